//! The daemon killed while it holds tenants: nobody stays held, whatever instant it was.

use std::time::Duration;

use berth_model::settings::PolicyName;
use berth_model::snapshot::HoldStage;
use rustix::process::{Pid, Signal, kill_process};

use crate::support::held::{can_gate, is_at, is_frozen, is_stopped};
use crate::support::{Daemon, Host, Tenant, until, until_within};

/// What the design promises: a dead daemon's holds are undone within this time.
const FREE_WITHIN: Duration = Duration::from_secs(2);

/// A prime number of milliseconds between two kills' delays, so that they fall on all stages of a hold.
const SPREAD_MS: u64 = 157;

fn is_held(tenant: &Tenant) -> bool {
    is_frozen(tenant.cgroup.dir()) || is_stopped(tenant.pid())
}

fn managed(host: &Host) -> Daemon {
    host.daemon_with("berth", |settings| settings.hold.policy = PolicyName::Fifo)
}

#[test]
fn nobody_stays_held_by_a_daemon_that_is_killed() {
    let host = Host::start();
    let mut daemon = managed(&host);
    if !can_gate(&daemon, "nobody_stays_held_by_a_daemon_that_is_killed") {
        return;
    }
    let mut was_any_held = false;
    for round in 0..6_u64 {
        let mut tenants: Vec<Tenant> =
            (0..3).map(|n| host.tenant(&format!("killed-{round}-{n}"), &["--size", "12000"])).collect();
        until("the first has a context", || {
            tenants[0].moment(0, berth_load::Moment::ContextReady, berth_load::Edge::End)
        });
        std::thread::sleep(Duration::from_millis(SPREAD_MS * round));
        was_any_held |= tenants.iter().any(is_held);
        daemon.kill();
        until_within(FREE_WITHIN, "everybody is free", || tenants.iter().all(|tenant| !is_held(tenant)).then_some(()));
        for tenant in &mut tenants {
            assert_eq!(tenant.wait(), 0, "it goes on as if nothing had been");
        }
        daemon = managed(&host);
    }
    assert!(was_any_held, "no kill came while anybody was held: nothing was shown");
}

/// The gate would have stopped it at its next launch; it is a person who has.
#[test]
fn whom_a_person_stopped_stays_so_though_a_killed_daemon_had_gated_it() {
    let host = Host::start();
    let mut daemon = managed(&host);
    if !can_gate(&daemon, "whom_a_person_stopped_stays_so_though_a_killed_daemon_had_gated_it") {
        return;
    }
    let first = host.tenant("first", &["--size", "24000"]);
    first.reaches(berth_load::Phase::Kernel);
    let second = host.holder("gated", &["--alloc-bytes", "2GiB"]);
    daemon.row_where(&second.key(), |row| is_at(row, HoldStage::Gated));
    second.signal(Signal::STOP);
    until("it is stopped", || is_stopped(second.pid()).then_some(()));
    daemon.kill();
    until("the guard has nothing left to do", || {
        let entries = std::fs::read_dir(&daemon.settings.hold.journal).unwrap().flatten();
        let is_hold = |entry: &std::fs::DirEntry| entry.path().extension().is_some_and(|it| it == "hold");
        (!entries.into_iter().any(|entry| is_hold(&entry))).then_some(())
    });
    assert!(is_stopped(second.pid()), "only who stopped it continues it");
    second.signal(Signal::CONT);
}

#[test]
fn what_a_person_held_is_free_too_without_any_policy() {
    let host = Host::start();
    let mut daemon = host.daemon();
    let tenant = host.holder("held-by-root", &[]);
    daemon.sees(&tenant.key());
    daemon.berth(&["hold", tenant.cgroup.path()]).ok();
    assert!(is_held(&tenant));
    daemon.kill();
    until_within(FREE_WITHIN, "it is free", || (!is_held(&tenant)).then_some(()));
}

#[test]
fn a_guard_that_is_killed_while_somebody_is_held_is_replaced_and_the_next_one_undoes_the_hold() {
    let host = Host::start();
    let mut daemon = managed(&host);
    let tenant = host.holder("guarded", &[]);
    daemon.sees(&tenant.key());
    daemon.berth(&["hold", tenant.cgroup.path()]).ok();
    for _ in 0..3 {
        let guard = until("a guard in place", || daemon.guard());
        kill_process(Pid::from_raw(guard.cast_signed()).unwrap(), Signal::KILL).unwrap();
        until("another guard in place", || daemon.guard().filter(|pid| *pid != guard));
        assert!(is_held(&tenant), "the daemon lives: nobody is let go");
    }
    // It holds on with the new one.
    let other = host.holder("later", &[]);
    daemon.sees(&other.key());
    until("a hold under the new guard", || (daemon.berth(&["hold", other.cgroup.path()]).code == 0).then_some(()));
    daemon.kill();
    until_within(FREE_WITHIN, "both are free", || (!is_held(&tenant) && !is_held(&other)).then_some(()));
}
