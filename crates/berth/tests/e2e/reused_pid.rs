//! A pid is handed out again: whoever has it now is never taken for the one who had it on the GPU.

use std::process::{Command, Stdio};
use std::sync::Arc;

use berth_load::{Edge, Phase};
use berth_model::settings::Mode;
use rustix::process::Signal;

use crate::support::{Cgroup, Daemon, Host, Running, Tenant, skip, until};

/// Where the kernel lets us say which pid comes next.
const NEXT_PID: &str = "/proc/sys/kernel/ns_last_pid";
/// Others on this machine take pids too, and may be quicker.
const ATTEMPTS: u32 = 200;
const ROUNDS: u32 = 10;

/// Starts processes until one has this pid; `None` if somebody else has got it.
fn reborn<T>(pid: u32, mut start: impl FnMut() -> (T, u32)) -> Option<T> {
    (0..ATTEMPTS).find_map(|_| {
        std::fs::write(NEXT_PID, (pid - 1).to_string()).unwrap();
        let (process, its_pid) = start();
        (its_pid == pid).then_some(process)
    })
}

fn pids_can_be_chosen(test: &str) -> bool {
    let now = std::fs::read_to_string(NEXT_PID).unwrap_or_default();
    match std::fs::write(NEXT_PID, now.trim()) {
        Ok(()) => true,
        Err(error) => {
            skip(test, &format!("writing {NEXT_PID}: {error}"));
            false
        }
    }
}

/// A tenant that was on the GPU, was killed, and whose pid now is another's.
struct Swap<T> {
    gone: Tenant,
    newcomer: T,
}

/// `before` and `after` stand around the moment of the swap.
fn swap<T>(
    host: &Host,
    daemon: &Daemon,
    cgroup: &Arc<Cgroup>,
    (before, after): (impl Fn(), impl Fn()),
    mut start: impl FnMut() -> (T, u32),
) -> Swap<T> {
    for _ in 0..ROUNDS {
        let mut gone = host.tenant_in(cgroup, &["hold"]);
        daemon.row_where(&cgroup.key(), |row| row.pids == [gone.pid()] && row.task_id.is_some());
        before();
        gone.kill();
        let newcomer = reborn(gone.pid(), &mut start);
        after();
        if let Some(newcomer) = newcomer {
            return Swap { gone, newcomer };
        }
    }
    panic!("in {ROUNDS} rounds somebody else was always quicker to take the pid");
}

/// Looks on for as long as the daemon needs for some looks of its own.
fn never_shows(daemon: &Daemon, pid: u32) {
    let enough = daemon.snapshot().counters.samples + 5;
    until("some looks", || {
        let snapshot = daemon.snapshot();
        assert!(snapshot.tasks.iter().all(|row| !row.pids.contains(&pid)), "{pid} is shown: {:?}", snapshot.tasks);
        (snapshot.counters.samples >= enough).then_some(())
    });
}

fn sleeper(cgroup: &Cgroup) -> (Running, u32) {
    let mut command = cgroup.command("/bin/sleep");
    let sleeper = Running::start(command.arg("600").stdin(Stdio::null()));
    let pid = sleeper.pid();
    (sleeper, pid)
}

fn with_probes(host: &Host, mode: Mode) -> Daemon {
    host.daemon_with("berth", |settings| settings.probes.mode = mode)
}

#[test]
fn a_stranger_with_a_dead_tenants_pid_is_not_on_the_gpu() {
    if pids_can_be_chosen("a_stranger_with_a_dead_tenants_pid_is_not_on_the_gpu") {
        stranger(Mode::Auto);
        stranger(Mode::Off);
    }
}

fn stranger(probes: Mode) {
    let host = Host::start();
    let daemon = with_probes(&host, probes);
    let events = daemon.events();
    let cgroup = Arc::new(Cgroup::make("reborn"));
    let swapped = swap(&host, &daemon, &cgroup, (|| (), || ()), || {
        let stranger = Running::start(Command::new("/bin/sleep").arg("600").stdin(Stdio::null()));
        let pid = stranger.pid();
        (stranger, pid)
    });
    assert_eq!(swapped.newcomer.pid(), swapped.gone.pid());
    daemon.sees_nothing_of(&cgroup.key());
    never_shows(&daemon, swapped.gone.pid());
    events.ended(&cgroup.key(), 1);
}

/// The hardest case: the daemon sleeps through it all, and the newcomer belongs to the same tenant.
#[test]
fn a_pid_swapped_while_the_daemon_was_not_running_is_another_process() {
    if !pids_can_be_chosen("a_pid_swapped_while_the_daemon_was_not_running_is_another_process") {
        return;
    }
    let host = Host::start();
    let daemon = host.daemon();
    let events = daemon.events();
    let cgroup = Arc::new(Cgroup::make("asleep"));
    let around = (|| daemon.signal(Signal::STOP), || daemon.signal(Signal::CONT));
    let swapped = swap(&host, &daemon, &cgroup, around, || sleeper(&cgroup));
    daemon.sees_nothing_of(&cgroup.key());
    never_shows(&daemon, swapped.gone.pid());
    events.ended(&cgroup.key(), 1);
    drop(swapped);
}

#[test]
fn a_newcomer_with_a_dead_tenants_pid_begins_a_task_of_its_own_when_it_comes() {
    if pids_can_be_chosen("a_newcomer_with_a_dead_tenants_pid_begins_a_task_of_its_own") {
        newcomer(Mode::Auto);
        newcomer(Mode::Off);
    }
}

fn newcomer(probes: Mode) {
    let host = Host::start();
    let daemon = with_probes(&host, probes);
    let events = daemon.events();
    let cgroup = Arc::new(Cgroup::make("second-life"));
    let key = cgroup.key();
    let swapped = swap(&host, &daemon, &cgroup, (|| (), || ()), || {
        let newcomer = host.tenant_in(&cgroup, &["hold", "--host-time", "2s"]);
        let pid = newcomer.pid();
        (newcomer, pid)
    });
    // Both have the same pid: until the end of the first is told, its row could be taken for the second's.
    events.ended(&key, 1);
    let row = daemon.row_where(&key, |row| row.pids == [swapped.newcomer.pid()] && row.task_id.is_some());
    swapped.newcomer.reaches(Phase::Hold);
    let tasks = until("the newcomer's task", || {
        Some(events.tasks(&key)).filter(|tasks| tasks.last().is_some_and(|told| Some(told.task) == row.task_id))
    });
    let [.., old, new] = tasks.as_slice() else { panic!("{tasks:?}") };
    assert_eq!(new.ended, None);
    assert!(old.ended.is_some() && new.task != old.task);
    let came = swapped.newcomer.phase(0, Phase::Context, Edge::Begin).unwrap();
    assert!(new.started >= came, "its task is dated {} ns before it came", came - new.started);
}
