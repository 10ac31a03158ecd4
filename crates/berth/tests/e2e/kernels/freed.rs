//! Who is stopped goes on within 100 ms when whoever stopped it is gone or stands still: the daemon killed, the leader killed, both, the
//! leader stopped by a signal or held.
//!
//! Trainers with the library are stopped for certain at that moment: by the word of a leader that does not let go, or by the daemon's
//! turns, whose daemon is stopped while others have theirs. They say themselves when their next step was done, on the clock the instant is
//! taken by; who had a step done shortly before was not stopped, and does not count. What is asserted: the median of nine (three trainers,
//! three times) is below 100 ms, and none is above two seconds; and in the second after that they are together at least half as fast as they
//! were in the same run before anybody stopped them, most times: as one alone was where the daemon is gone, as all in turns where it is not. A single late one on a busy machine is printed, and no failure.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use berth_load::roles::words::{Ready, Trained};
use berth_model::kernels::KernelRole;
use rustix::process::Signal;

use super::client::Client;
use super::programs::{Program, library, same_kernels};
use super::{daemon, row, row_where, taking_part};
use crate::support::held::is_frozen;
use crate::support::{Daemon, Host, hierarchy, skip_unprepared, throughout, until};

const TRAINERS: usize = 3;
const SAMPLES: usize = 9;
const MOST_TRIES: usize = 40;
/// They would measure each other.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
const MEDIAN: Duration = Duration::from_millis(100);
const WORST: Duration = Duration::from_secs(2);
/// A machine that is busy with other things costs them a part; to be stopped again for half of the time costs more.
const FULL_SPEED: f64 = 0.5;
const AFTERWARDS: Duration = Duration::from_secs(1);
/// How long steps are counted before.
const UNDISTURBED: Duration = Duration::from_millis(300);
/// A step of a trainer, of ten kernels; much shorter than the bound.
const STEP: [&str; 7] = ["train", "--kernels", "10", "--shortest-us", "100", "--longest-us", "101"];
/// For so long before the instant no step may have been done: whoever is stopped stands.
const STOOD: Duration = Duration::from_millis(30);

/// Trainers, the one that stops them, and the daemon.
struct Stage {
    daemon: Daemon,
    trainers: Vec<Program>,
    leader: Client,
    /// Steps a second of one of them while nobody else had work.
    alone_per_s: f64,
    /// From then on all of them had work, and nobody had stopped them yet.
    together_from: u64,
    /// After those who live on it.
    _host: Host,
}

impl Stage {
    fn set(library: &std::path::Path, known: &mut Option<Ready>) -> Self {
        let host = Host::start();
        let daemon = daemon(&host);
        let mut trainers = Vec::new();
        for index in 0..TRAINERS {
            let given = known.as_ref().map(same_kernels);
            let given: Vec<&str> = given.iter().flatten().map(String::as_str).collect();
            let trainer = Program::start(&host, library, &format!("trainer-{index}"), &[&STEP[..], &given].concat());
            known.get_or_insert_with(|| trainer.ready.clone());
            trainers.push(trainer);
        }
        let leader = taking_part(&host, &daemon, "leader");
        trainers[0].tell("go");
        throughout(UNDISTURBED, || ());
        let alone_per_s = {
            let trained = trainers[0].trained();
            steps_per_s(&trained, trained.from_ns, UNDISTURBED)
        };
        trainers.iter().for_each(|trainer| trainer.tell("go"));
        throughout(STOOD, || ());
        let together_from = now();
        throughout(UNDISTURBED, || ());
        Self { daemon, trainers, leader, alone_per_s, together_from, _host: host }
    }

    /// By the leader's own word; the daemon has no part in it.
    fn stopped_by_the_leader(self) -> Self {
        self.daemon.berth(&["slo", "set", self.leader.path(), "latency=p99:10ms"]).ok();
        for trainer in &self.trainers {
            until("a trainer to yield", || {
                row(&self.daemon, &trainer.key()).filter(|row| row.role == KernelRole::Yields)
            });
        }
        self.leader.works(true);
        self.leader.tell("raise 1").says("raised");
        self.stand();
        self
    }

    /// By the daemon, whose turn it is for the leader, which is one among equals here.
    fn stopped_by_the_daemon(self) -> Self {
        self.leader.works(true);
        row_where(&self.daemon, &self.leader, |row| row.role == KernelRole::Equal);
        // Until then one may not even have begun, and nobody stops it.
        for trainer in &self.trainers {
            until("a trainer to have waited", || {
                row(&self.daemon, &trainer.key()).filter(|row| row.counters.stops > 0)
            });
        }
        let is_its_turn = || {
            self.daemon.signal(Signal::STOP);
            let is_so = self.leader.word("yields") == 0;
            if !is_so {
                self.daemon.signal(Signal::CONT);
            }
            is_so.then_some(())
        };
        until("the turn of somebody else", is_its_turn);
        self.stand();
        self
    }

    fn stand(&self) {
        // What was submitted before the stop has its time to end.
        throughout(2 * STOOD, || ());
    }

    /// What came of it for the trainers.
    fn freed(&mut self, Strike { from, at }: Strike) -> Freed {
        throughout(MEDIAN + AFTERWARDS + STOOD, || ());
        let trained: Vec<Trained> = self.trainers.iter().map(Program::trained).collect();
        let late = |trained: &Trained| {
            let first = trained.ended_ns.iter().find(|end| **end >= from).expect("no step after it: it hangs");
            let stood = !trained.ended_ns.iter().any(|end| (from - nanos(STOOD)..from).contains(end));
            stood.then_some(first.saturating_sub(at) as f64 / 1e6)
        };
        let together = |from, during| trained.iter().map(|one| steps_per_s(one, from, during)).sum::<f64>();
        let free_per_s = match self.daemon.is_running() {
            true => together(self.together_from, UNDISTURBED),
            false => self.alone_per_s,
        };
        let late_ms = trained.iter().filter_map(late).collect();
        Freed { late_ms, free_per_s, per_s: together(at + nanos(MEDIAN), AFTERWARDS) }
    }
}

struct Freed {
    /// How long after the strike each that stood until it began had its next step done.
    late_ms: Vec<f64>,
    /// Steps a second before, when nobody was stopped: of one that was alone where the daemon is gone, of all in their turns where it is not.
    free_per_s: f64,
    /// The same of all of them in the second afterwards.
    per_s: f64,
}

/// From when on they might go on, and at which instant whoever stopped them was gone or stood still.
#[derive(Clone, Copy)]
struct Strike {
    from: u64,
    at: u64,
}

impl Strike {
    fn now() -> Self {
        Self { from: now(), at: now() }
    }
}

/// Of the steps that were done from then on, in that time.
fn steps_per_s(trained: &Trained, from: u64, during: Duration) -> f64 {
    let steps = trained.ended_ns.iter().filter(|end| (from..from + nanos(during)).contains(end)).count();
    steps as f64 / during.as_secs_f64()
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap()
}

/// `stop` stops the trainers; `strike` is what happens then, and says when.
fn all_go_on(test: &str, stop: fn(Stage) -> Stage, strike: impl Fn(&mut Stage) -> Strike) {
    let Some(library) = library(test) else { return };
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut late_ms, mut rates, mut free, mut known, mut tries) = (Vec::new(), Vec::new(), 0.0, None, 0);
    while late_ms.len() < SAMPLES {
        tries += 1;
        assert!(tries <= MOST_TRIES, "hardly anybody was stopped: {late_ms:?}");
        let mut stage = stop(Stage::set(&library, &mut known));
        let struck = strike(&mut stage);
        let freed = stage.freed(struck);
        late_ms.extend(&freed.late_ms);
        rates.push(freed.per_s);
        // Their kernels are the same each time. What was slow before is no measure.
        free = f64::max(free, freed.free_per_s);
        // Whoever was stopped by a signal is to end with the rest.
        stage.leader.signal(Signal::CONT);
    }
    late_ms.sort_by(f64::total_cmp);
    let (median, worst) = (late_ms[late_ms.len() / 2], late_ms[late_ms.len() - 1]);
    rates.sort_by(f64::total_cmp);
    let rate = rates[rates.len() / 2];
    eprintln!("{test}: {rate:.0} steps in the second after, of {rates:.0?}; {free:.0} before");
    eprintln!("{test}: median {median:.2} ms, worst {worst:.2} ms of {late_ms:.2?}, {tries} tries");
    assert!(median < MEDIAN.as_secs_f64() * 1e3, "{late_ms:?}");
    assert!(rate > free * FULL_SPEED, "they went on, and not at full speed: {rates:.0?} after {free:.0}");
    assert!(worst < WORST.as_secs_f64() * 1e3, "{late_ms:?}");
}

fn now() -> u64 {
    berth_host::clock::now().0
}

#[test]
fn whom_a_leader_stops_goes_on_when_the_daemon_is_killed() {
    all_go_on("whom_a_leader_stops_goes_on_when_the_daemon_is_killed", Stage::stopped_by_the_leader, |stage| {
        let strike = Strike::now();
        stage.daemon.kill();
        strike
    });
}

#[test]
fn whom_the_daemon_stops_goes_on_when_it_is_killed() {
    all_go_on("whom_the_daemon_stops_goes_on_when_it_is_killed", Stage::stopped_by_the_daemon, |stage| {
        let strike = Strike::now();
        stage.daemon.kill();
        strike
    });
}

#[test]
fn whom_a_leader_stops_goes_on_when_the_leader_is_killed() {
    all_go_on("whom_a_leader_stops_goes_on_when_the_leader_is_killed", Stage::stopped_by_the_leader, |stage| {
        let strike = Strike::now();
        stage.leader.kill();
        strike
    });
}

#[test]
fn whom_a_leader_stops_goes_on_when_both_are_killed() {
    all_go_on("whom_a_leader_stops_goes_on_when_both_are_killed", Stage::stopped_by_the_leader, |stage| {
        let strike = Strike::now();
        stage.leader.kill();
        stage.daemon.kill();
        strike
    });
}

#[test]
fn whom_a_leader_stops_goes_on_when_the_leader_is_stopped_and_the_daemon_killed() {
    let test = "whom_a_leader_stops_goes_on_when_the_leader_is_stopped_and_the_daemon_killed";
    all_go_on(test, Stage::stopped_by_the_leader, |stage| {
        let strike = Strike::now();
        stage.leader.signal(Signal::STOP);
        stage.daemon.kill();
        strike
    });
}

#[test]
fn whom_a_leader_stops_goes_on_when_the_leader_is_stopped_by_a_signal() {
    let test = "whom_a_leader_stops_goes_on_when_the_leader_is_stopped_by_a_signal";
    all_go_on(test, Stage::stopped_by_the_leader, |stage| {
        let strike = Strike::now();
        stage.leader.signal(Signal::STOP);
        strike
    });
}

/// By the daemon itself, with the freezer.
#[test]
fn whom_a_leader_stops_goes_on_when_the_leader_is_held() {
    all_go_on("whom_a_leader_stops_goes_on_when_the_leader_is_held", Stage::stopped_by_the_leader, |stage| {
        let from = now();
        let hold = stage.daemon.berth_meanwhile(&["hold", stage.leader.path()]);
        let at = until("the leader to be frozen", || is_frozen(stage.leader.dir()).then(now));
        drop(hold);
        Strike { from, at }
    });
}

/// As `docker pause` does.
#[test]
fn whom_a_leader_stops_goes_on_when_the_leader_is_frozen_by_somebody_else() {
    let test = "whom_a_leader_stops_goes_on_when_the_leader_is_frozen_by_somebody_else";
    if !hierarchy().join("cgroup.controllers").exists() {
        return skip_unprepared(test, "cgroups of the first version alone: nobody who is frozen there can be killed");
    }
    all_go_on(test, Stage::stopped_by_the_leader, |stage| {
        let from = now();
        std::fs::write(stage.leader.dir().join("cgroup.freeze"), "1").unwrap();
        let at = until("the leader to be frozen", || is_frozen(stage.leader.dir()).then(now));
        Strike { from, at }
    });
}
