//! The way between host and device, with the real library in every program: one without a goal is held back while one with a goal copies.

use std::fs::File;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::process::Stdio;
use std::sync::Arc;

use berth_proto::shim::{LaneLedger, LaneOrders, Ledger, Orders};

use super::programs::{library, with_library};
use super::{daemon, row};
use crate::support::{Cgroup, Daemon, Host, Running, Tenant, until};

/// Copies its input, computes for a moment, and copies its result, on and on.
struct Copying {
    program: Running,
    cgroup: Arc<Cgroup>,
    /// Between two of its tasks its tenant stays on the GPU.
    _holder: Tenant,
}

impl Copying {
    fn start(host: &Host, library: &std::path::Path, name: &str) -> Self {
        let cgroup = Arc::new(Cgroup::make(name));
        let holder = host.tenant_in(&cgroup, &["hold"]);
        let args = ["matmul", "--size", "2048", "--tasks", "1000000"];
        let mut command = with_library(&cgroup, host, library, &args);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(host.log(name));
        Self { program: Running::start(&mut command), cgroup, _holder: holder }
    }

    fn copies(&self, daemon: &Daemon) {
        let before = row(daemon, &self.cgroup.key()).map_or(0, |row| row.counters.copied_bytes);
        until("it to copy", || {
            row(daemon, &self.cgroup.key()).filter(|row| row.counters.copied_bytes > before).map(drop)
        });
    }

    /// A word of memory that it shares with the daemon; `None` before it does.
    fn word(&self, page: &str, offset: usize) -> Option<u64> {
        let proc = format!("/proc/{}", self.program.pid());
        let maps = std::fs::read_to_string(format!("{proc}/maps")).unwrap();
        let mapped = maps.lines().find(|line| line.contains(&format!("/memfd:{page}")))?;
        let begins = u64::from_str_radix(mapped.split('-').next()?, 16).unwrap();
        let mut word = [0; 8];
        let memory = File::open(format!("{proc}/mem")).unwrap();
        memory.read_exact_at(&mut word, begins + offset as u64).unwrap();
        Some(u64::from_ne_bytes(word))
    }

    /// Bytes per second it may copy; 0: as many as it can.
    fn budget(&self) -> Option<u64> {
        self.word("berth-orders", offset_of!(Orders, lanes) + offset_of!(LaneOrders, copy_bytes_per_second))
    }

    /// How long its copies were held back.
    fn paced_ns(&self) -> Option<u64> {
        self.word("berth-ledger", offset_of!(Ledger, lanes) + offset_of!(LaneLedger, paced_ns))
    }
}

#[test]
fn one_without_a_goal_is_held_back_while_one_with_a_goal_copies() {
    let test = "one_without_a_goal_is_held_back_while_one_with_a_goal_copies";
    let Some(library) = library(test) else { return };
    let host = Host::start();
    let daemon = daemon(&host);
    let [server, trainer] = ["server", "trainer"].map(|name| Copying::start(&host, &library, name));
    [&server, &trainer].into_iter().for_each(|one| one.copies(&daemon));
    let unbound = [&server, &trainer].map(|one| (one.budget(), one.paced_ns()));
    assert_eq!(unbound, [(Some(0), Some(0)); 2], "nobody has a goal");

    daemon.berth(&["slo", "set", server.cgroup.path(), "latency=p99:1s"]).ok();
    let budget = until("a budget", || trainer.budget().filter(|budget| *budget > 0));
    let paced = until("its copies to be held back", || trainer.paced_ns().filter(|paced| *paced > 0));
    eprintln!("{budget} bytes per second, held back for {paced} ns");
    assert_eq!((server.budget(), server.paced_ns()), (Some(0), Some(0)), "who has a goal copies as it can");

    daemon.berth(&["slo", "clear", server.cgroup.path()]).ok();
    until("no budget", || trainer.budget().filter(|budget| *budget == 0));
}
