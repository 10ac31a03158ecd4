//! Tasks as the daemon tells them, against the account of those who had them: every way to come and to go.

use std::sync::Arc;

use berth_load::{Edge, Moment, Phase};
use berth_model::settings::Mode;
use berth_model::{Change, Evidence, Source, SourceStatus};
use rustix::process::Signal;

use crate::support::{Cgroup, Daemon, Events, Host, Tenant, Told, skip};

const SIGKILL: i32 = 128 + 9;
const SIGABRT: i32 = 128 + 6;

/// Tenants that end in every way there is, all at once on one host; each has ended when this returns.
struct Cast {
    /// Stays twice; both contexts are destroyed.
    twice: Tenant,
    /// Exits without freeing or destroying anything.
    leaver: Tenant,
    killed: Tenant,
    /// Aborts while its kernel runs.
    aborted: Tenant,
    /// Asks for more memory than there is.
    greedy: Tenant,
}

impl Cast {
    fn play(host: &Host, daemon: &Daemon) -> Self {
        let mut cast = Self {
            twice: host.tenant("twice", &["hold", "--hold", "2s", "--tasks", "2", "--task-gap", "2s"]),
            leaver: host.tenant("leaver", &["hold", "--hold", "2s", "--fail-at", "free", "--fail-how", "exit"]),
            killed: host.holder("killed", &[]),
            aborted: host.tenant("aborted", &["--hold", "2s", "--fail-at", "kernel", "--fail-how", "abort"]),
            greedy: host.tenant("greedy", &["hold", "--alloc-bytes", "200GiB"]),
        };
        daemon.sees(&cast.killed.key());
        cast.killed.kill();
        let codes = [&mut cast.killed, &mut cast.twice, &mut cast.leaver, &mut cast.aborted, &mut cast.greedy];
        assert_eq!(codes.map(Tenant::wait), [SIGKILL, 0, 0, SIGABRT, 1]);
        cast
    }
}

/// Its one task, ended.
fn only_task(events: &Events, tenant: &Tenant) -> Told {
    let tasks = events.ended(&tenant.key(), 1);
    assert_eq!(tasks.len(), 1, "{tasks:?}");
    tasks[0].clone()
}

/// From the call that makes the context to its return.
fn coming(tenant: &Tenant, task: u32) -> std::ops::RangeInclusive<u64> {
    let begin = tenant.phase(task, Phase::Context, Edge::Begin).unwrap();
    begin..=tenant.moment(task, Moment::ContextReady, Edge::End).unwrap()
}

/// From the call that destroys the context to its return.
fn going(tenant: &Tenant, task: u32) -> std::ops::RangeInclusive<u64> {
    let begin = tenant.phase(task, Phase::Destroy, Edge::Begin).unwrap();
    begin..=tenant.moment(task, Moment::ContextGone, Edge::End).unwrap()
}

fn probes_work(daemon: &Daemon, test: &str) -> bool {
    match daemon.source(Source::Probes, |_| true) {
        SourceStatus::Up => true,
        SourceStatus::Down { reason } => {
            skip(test, &reason);
            false
        }
        SourceStatus::Off => panic!("nobody switched the probes off"),
    }
}

#[test]
fn probed_tasks_begin_and_end_within_the_tenants_own_brackets() {
    let host = Host::start();
    let daemon = host.daemon();
    if !probes_work(&daemon, "probed_tasks_begin_and_end_within_the_tenants_own_brackets") {
        return;
    }
    let events = daemon.events();
    let cast = Cast::play(&host, &daemon);

    let twice = events.ended(&cast.twice.key(), 2);
    assert_eq!(twice.len(), 2, "{twice:?}");
    for (task, told) in (0..).zip(&twice) {
        assert_eq!(told.evidence, Evidence::Probe);
        assert!(coming(&cast.twice, task).contains(&told.started), "{told:?}, {:?}", coming(&cast.twice, task));
        let (going, ended) = (going(&cast.twice, task), told.ended.unwrap());
        assert!(going.contains(&ended), "{told:?}, {going:?}");
    }
    for tenant in [&cast.leaver, &cast.killed, &cast.aborted] {
        let told = only_task(&events, tenant);
        assert_eq!(told.evidence, Evidence::Probe);
        assert!(coming(tenant, 0).contains(&told.started), "{}: {told:?}", tenant.cgroup.path());
        assert!(told.ended.unwrap() >= tenant.last_word(), "{} ended before its last word", tenant.cgroup.path());
    }
    let greedy = only_task(&events, &cast.greedy);
    assert!(coming(&cast.greedy, 0).contains(&greedy.started), "{greedy:?}");
    assert!(daemon.snapshot().tasks.is_empty(), "somebody is left");
}

#[test]
fn an_end_the_daemon_slept_through_is_dated_by_the_probe_and_not_by_the_exit_heard_first() {
    let host = Host::start();
    let daemon = host.daemon();
    if !probes_work(&daemon, "an_end_the_daemon_slept_through_is_dated_by_the_probe_and_not_by_the_exit_heard_first") {
        return;
    }
    let events = daemon.events();
    let mut tenant = host.tenant("overslept", &["hold", "--hold", "1s"]);
    daemon.row_where(&tenant.key(), |row| row.task_id.is_some());
    daemon.signal(Signal::STOP);
    assert_eq!(tenant.wait(), 0);
    daemon.signal(Signal::CONT);
    let told = only_task(&events, &tenant);
    let going = going(&tenant, 0);
    assert!(going.contains(&told.ended.unwrap()), "{told:?}, {going:?}");
}

#[test]
fn without_probes_every_stay_is_found_by_looking() {
    let host = Host::start();
    let daemon = host.daemon_with("berth", |settings| settings.probes.mode = Mode::Off);
    assert_eq!(daemon.source(Source::Probes, |_| true), SourceStatus::Off);
    let events = daemon.events();
    let cast = Cast::play(&host, &daemon);

    let twice = events.ended(&cast.twice.key(), 2);
    assert_eq!(twice.len(), 2, "{twice:?}");
    for (task, told) in (0..).zip(&twice) {
        assert_eq!(told.evidence, Evidence::Look);
        assert!(told.started >= *coming(&cast.twice, task).start(), "{told:?}");
        assert!(told.ended.unwrap() >= *going(&cast.twice, task).start(), "{told:?}");
    }
    for tenant in [&cast.leaver, &cast.killed, &cast.aborted] {
        let told = only_task(&events, tenant);
        assert!(told.started >= *coming(tenant, 0).start(), "{}: {told:?}", tenant.cgroup.path());
        assert!(told.ended.unwrap() >= tenant.last_word(), "{} ended before its last word", tenant.cgroup.path());
    }
    daemon.sees_nothing_of(&cast.greedy.key());
}

#[test]
fn processes_of_a_tenant_are_one_task_until_the_last_is_gone_and_the_next_begins_another() {
    let host = Host::start();
    let daemon = host.daemon();
    let events = daemon.events();
    let cgroup = Arc::new(Cgroup::make("pair"));
    let key = cgroup.key();
    let mut first = host.tenant_in(&cgroup, &["hold"]);
    daemon.sees(&key);
    let mut second = host.tenant_in(&cgroup, &["hold"]);
    // Listed before its context is ready, it is no part of the task yet.
    second.reaches(Phase::Hold);
    daemon.row_where(&key, |row| row.pids.len() == 2);
    first.kill();
    let left = daemon.row_where(&key, |row| row.pids.len() == 1);
    assert_eq!(left.pids, [second.pid()]);
    let tasks = events.began(&key, 1);
    assert_eq!((tasks.len(), tasks[0].ended), (1, None), "a process went, not the tenant");
    second.kill();
    events.ended(&key, 1);
    daemon.sees_nothing_of(&key);

    let _third = host.tenant_in(&cgroup, &["hold"]);
    let row = daemon.sees(&key);
    let tasks = events.began(&key, 2);
    assert_eq!(tasks.len(), 2, "{tasks:?}");
    assert_eq!(row.task_id, Some(tasks[1].task));
    assert!(tasks[1].started > tasks[0].ended.unwrap());
}

#[test]
fn a_tenant_that_was_there_before_the_daemon_is_dated_by_its_process() {
    let host = Host::start();
    let tenant = host.holder("elder", &[]);
    let daemon = host.daemon();
    let row = daemon.sees(&tenant.key());
    assert_eq!(row.task_start_evidence, Some(Evidence::Process));
    let first_word = tenant.lines()[0].at.wall_ns;
    let started = u64::try_from(row.task_started_at.unwrap().as_nanosecond()).unwrap();
    // The process is older than its first word; the kernel counts its start in ticks of 10 ms.
    assert!(started <= first_word && first_word - started < 20_000_000_000, "{started} and {first_word}");
}

#[test]
fn the_moments_of_a_stay_are_told_in_their_order() {
    let host = Host::start();
    let daemon = host.daemon();
    if !probes_work(&daemon, "the_moments_of_a_stay_are_told_in_their_order") {
        return;
    }
    let events = daemon.events();
    // It lives on after its first stay: the exit of a process may be heard before the last its probes had to say.
    let mut tenant = host.tenant("ordered", &["--size", "512", "--tasks", "2", "--task-gap", "1s"]);
    assert_eq!(tenant.wait(), 0);
    events.ended(&tenant.key(), 2);
    let seen: Vec<_> = events
        .all()
        .into_iter()
        .filter_map(|change| match change {
            Change::MomentSeen { tenant: of, moment, at, .. } if of == tenant.key() => Some((moment, at.0)),
            _ => None,
        })
        .collect();
    use berth_model::Moment::{ContextGone, ContextReady, DeviceOpen, FirstAllocation, FirstLaunch};
    let first_stay: Vec<_> = seen.iter().map(|(moment, _)| *moment).take(5).collect();
    assert_eq!(first_stay, [DeviceOpen, ContextReady, FirstAllocation, FirstLaunch, ContextGone]);
    let bracket = |wanted| {
        let begin = tenant.moment(0, wanted, Edge::Begin).unwrap();
        begin..=tenant.moment(0, wanted, Edge::End).unwrap()
    };
    assert!(bracket(Moment::FirstAllocation).contains(&seen[2].1), "{seen:?}");
    assert!(bracket(Moment::FirstLaunch).contains(&seen[3].1), "{seen:?}");
}
