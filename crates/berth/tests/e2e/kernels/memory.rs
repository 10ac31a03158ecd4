//! Device memory that one has reserved, with the real library in every program: others are refused it, and the one that has reserved it gets it.

use std::process::Stdio;
use std::sync::Arc;

use berth_model::Bytes;

use super::programs::{Program, library, with_library};
use super::{daemon, row};
use crate::support::{Cgroup, Daemon, Host, Running, until};

/// Takes so much in one piece, keeps it for a moment, and ends; well, unless it was refused.
fn takes(host: &Host, library: &std::path::Path, cgroup: &Cgroup, bytes: &str) -> i32 {
    let args = ["hold", "--size", "64", "--alloc-bytes", bytes, "--hold", "300ms"];
    let mut command = with_library(cgroup, host, library, &args);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(host.log("takes"));
    Running::start(&mut command).wait()
}

fn used(daemon: &Daemon) -> u64 {
    daemon.snapshot().gpus[0].memory_used_bytes.map_or(0, |bytes| bytes.0)
}

#[test]
fn memory_that_is_reserved_is_refused_to_others_and_given_to_whoever_has_reserved_it() {
    let test = "memory_that_is_reserved_is_refused_to_others_and_given_to_whoever_has_reserved_it";
    let Some(library) = library(test) else { return };
    let host = Host::small();
    let daemon = daemon(&host);
    let server = Program::start(&host, &library, "server", &["serve", "--kernels", "10", "--kernel-us", "100"]);
    daemon.sees(&server.key());
    let other = Arc::new(Cgroup::make("other"));
    assert_eq!(takes(&host, &library, &other, "2400MiB"), 0, "nobody has reserved any");
    let told = daemon.berth(&["slo", "set", server.path(), "memory-reserve=2GiB"]).ok();
    assert!(told.contains("memory-reserve=2GiB"), "{told}");
    let kept = until("memory to be kept", || row(&daemon, &server.key())?.memory.memory_kept_bytes);
    // Its context is counted by the driver, and is used of what it has reserved.
    assert!((1_500 << 20..=2 << 30).contains(&kept.0), "{kept}");
    let shown = daemon.berth(&["slo", "show"]).ok();
    assert!(shown.contains("are free and kept for it"), "{shown}");

    assert_ne!(takes(&host, &library, &other, "2400MiB"), 0, "of {} MiB, {} used", 4_096, used(&daemon) >> 20);
    assert_eq!(takes(&host, &library, &other, "1000MiB"), 0, "beside what is reserved there is room");
    assert_eq!(takes(&host, &library, &server.cgroup, "2400MiB"), 0, "whoever has reserved it may have it, and more");
    let row = row(&daemon, &server.key()).unwrap();
    assert_eq!((row.memory.memory_limit_bytes, row.counters.memory_refused), (None, 0), "{row:?}");

    // What the daemon has seen end is the like of what comes: no more than an eighth beyond it.
    let told = daemon.berth(&["slo", "set", server.path(), "memory-reserve=auto"]).ok();
    assert!(!told.contains("memory-reserve"), "nothing of a server's kind has ended: {told}");
    until("nothing to be kept", || {
        super::row(&daemon, &server.key())?.memory.memory_kept_bytes.is_none().then_some(())
    });
    let shown = daemon.berth(&["slo", "show"]).ok();
    assert!(shown.contains("`berth.slo.memory-reserve=auto`: nothing counts yet"), "{shown}");
    server.end();
}

#[test]
fn how_much_the_like_took_before_is_learned_by_the_next_daemon_too() {
    let test = "how_much_the_like_took_before_is_learned_by_the_next_daemon_too";
    let Some(library) = library(test) else { return };
    let host = Host::small();
    let before = daemon(&host);
    let cgroup = Arc::new(Cgroup::make("server"));
    let args = ["serve", "--kernels", "10", "--kernel-us", "100"];
    let server = Program::start_in(&cgroup, &host, &library, "server", &args);
    let peak = until("its memory", || before.row(&server.key())?.gpu_memory_bytes);
    let key = server.key();
    server.end();
    until("its end", || before.row(&key).is_none().then_some(()));
    drop(before);
    let after = daemon(&host);
    let server = Program::start_in(&cgroup, &host, &library, "server", &args);
    after.sees(&server.key());
    after.berth(&["slo", "set", server.path(), "memory=auto"]).ok();
    let limit = until("its limit", || row(&after, &server.key())?.memory.memory_limit_bytes);
    let Bytes(peak) = peak;
    assert!((peak..=peak + peak / 4).contains(&limit.0), "{limit} after {peak} bytes");
    let shown = after.berth(&["slo", "show"]).ok();
    assert!(shown.contains("counts, since the like of it took"), "{shown}");
    server.end();
}
