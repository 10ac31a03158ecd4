//! The daemon's end: asked to stop it leaves nothing, whatever goes on around it.

use berth_proto::table::{Freshness, Reader};

use crate::support::{Daemon, Host, until};

/// Pids of processes whose command line names the host's directory.
fn processes_of(host: &Host) -> Vec<u32> {
    let dir = host.dir().to_str().unwrap().as_bytes().to_vec();
    let names_it = |pid: &u32| {
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        command.windows(dir.len()).any(|part| part == dir)
    };
    let pids = std::fs::read_dir("/proc").unwrap().flatten();
    pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(names_it).collect()
}

fn stops_cleanly(host: &Host, mut daemon: Daemon) {
    let before = processes_of(host);
    let mut reader = Reader::open(&daemon.settings.table.path).unwrap();
    assert_eq!(daemon.stop(), 0);
    assert!(!daemon.settings.api.socket.exists(), "the socket is left");
    assert_eq!(reader.read().unwrap().freshness, Freshness::WriterGone);
    let log = std::fs::read_to_string(host.file("berth.log")).unwrap();
    assert!(log.contains("signal=\"SIGTERM\"") && log.trim_end().ends_with("stopped"), "{log}");
    assert!(!log.contains("panicked") && !log.contains("ERROR"), "{log}");
    let left: Vec<u32> = processes_of(host).into_iter().filter(|pid| !before.contains(pid)).collect();
    assert!(left.is_empty() && !processes_of(host).contains(&daemon.pid()), "{left:?}");
}

#[test]
fn a_daemon_asked_to_stop_leaves_nothing_and_the_next_one_starts_in_its_place() {
    let host = Host::start();
    let tenant = host.holder("lasting", &[]);
    let daemon = host.daemon();
    daemon.sees(&tenant.key());
    let ps = daemon.berth(&["ps"]);
    assert_eq!(ps.stderr, "", "{ps:?}");
    stops_cleanly(&host, daemon);
    let next = host.daemon();
    next.sees(&tenant.key());
}

#[test]
fn a_daemon_stops_cleanly_while_tenants_come_and_go_and_somebody_listens() {
    let host = Host::start();
    let daemon = host.daemon();
    let events = daemon.events();
    let forever = ["hold", "--hold", "50ms", "--tasks", "forever", "--task-gap", "1ms..50ms"];
    let mut tenants: Vec<_> = (0..5)
        .map(|seed: u32| {
            let seed = seed.to_string();
            host.tenant("restless", &[&forever[..], &["--seed", &seed]].concat())
        })
        .collect();
    until("a good deal of coming and going", || (daemon.snapshot().counters.tasks_ended >= 10).then_some(()));
    stops_cleanly(&host, daemon);
    drop(events);
    for tenant in &mut tenants {
        assert!(tenant.is_running(), "a tenant ended with the daemon");
        tenant.signal(rustix::process::Signal::TERM);
        assert_eq!(tenant.wait(), 0);
    }
}

#[test]
fn a_daemon_stops_cleanly_when_its_gpus_are_gone() {
    let mut host = Host::start();
    let daemon = host.daemon();
    let tenant = host.holder("orphan", &[]);
    daemon.sees(&tenant.key());
    host.kill_sim();
    stops_cleanly(&host, daemon);
}
