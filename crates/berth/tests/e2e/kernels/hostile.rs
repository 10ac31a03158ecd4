//! A tenant that means harm, or is badly broken, harms only itself.
//!
//! Beside each a well-behaved pair works: a server with a goal and a trainer, both with the library. What is asserted: the trainer gets at
//! least a quarter of its undisturbed steps done while the hostile one is at it (which may have its part of the GPU and of two cores, and
//! no more), stands for no longer than a few stops that were given up, and is back when the other is gone; requests are served, half of them in little more than twice the time at most that they take without it; the
//! daemon stays up, answers, and keeps neither memory nor descriptors. A machine may be busy with other things for a moment, so the best
//! of three measurements counts. One that others yield to may stop them until it has lost its lead or is refused; from then on the same
//! holds.

use std::path::Path;
use std::time::Duration;

use berth_load::roles::words::Trained;
use berth_model::kernels::{KernelNews, KernelRole};
use berth_model::{Change, Percent};

use super::client::Client;
use super::programs::{Program, library};
use super::{daemon_with, gpu, row, taking_part};
use crate::support::{Daemon, Host, until};

const FACTOR: f64 = 4.0;
/// So much longer half of the server's requests may take beside the hostile one. Stopped by time slices alone they would take several times as long.
const SLOWER: f64 = 2.0;
/// And that much, for a machine that is busy.
const MOMENT_MS: f64 = 1.0;
/// Anything that stops somebody is given up after a second; the rest is for a machine that is busy.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
const MEASUREMENTS: usize = 3;
/// Of the daemon's resident memory, in any of these.
const MOST_GROWTH: u64 = 32 << 20;
const MOST_DESCRIPTORS_LEFT: usize = 8;

struct Scene {
    server: Program,
    trainer: Program,
    daemon: Daemon,
    host: Host,
}

/// The pair at work for a while.
struct Pace {
    steps_per_s: f64,
    longest_pause: Duration,
    /// Half of the server's requests took no longer, and nine of ten.
    p50_ms: f64,
    p90_ms: f64,
    /// The server could not keep up.
    is_behind: bool,
}

impl Scene {
    fn set(library: &Path) -> Self {
        let host = Host::start();
        // Who leads for more than half of the time, beside others that have work, leads no more.
        let daemon = daemon_with(&host, |kernels| kernels.lead_share = Percent::checked(50).unwrap());
        let start = |name: &str, args: &[&str]| Program::start(&host, library, name, args);
        let server = start("server", &["serve", "--kernels", "10", "--kernel-us", "50"]);
        let trainer = start("trainer", &["train", "--kernels", "10", "--shortest-us", "100", "--longest-us", "200"]);
        daemon.berth(&["slo", "set", server.path(), "latency=p99:10ms"]).ok();
        let scene = Self { server, trainer, daemon, host };
        until("the trainer to yield", || {
            scene.pace();
            row(&scene.daemon, &scene.trainer.key()).filter(|row| row.role == KernelRole::Yields)
        });
        scene
    }

    /// The trainer works until `meanwhile` returns.
    fn while_training<T>(&self, meanwhile: impl FnOnce() -> T) -> (T, Trained) {
        self.trainer.tell("go");
        let done = meanwhile();
        (done, self.trainer.trained())
    }

    fn pace(&self) -> Pace {
        let (served, trained) = self.while_training(|| {
            self.server.tell("go 40 1.5");
            self.server.served()
        });
        let seconds = (served.to_ns - served.from_ns) as f64 / 1e9;
        Pace {
            steps_per_s: trained.ended_ns.len() as f64 / seconds,
            longest_pause: longest_pause(&trained),
            p50_ms: served.p50_ms,
            p90_ms: served.p90_ms,
            is_behind: served.given_up > 0,
        }
    }

    /// The first of some measurements in which both get on well enough, or the last.
    fn pace_beside(&self, alone: &Pace) -> Pace {
        let is_well = |pace: &Pace| pace.steps_per_s * FACTOR >= alone.steps_per_s && pace.serves_as(alone);
        let mut paces = (1..=MEASUREMENTS).map(|count| (count, self.pace()));
        paces.find(|(count, pace)| is_well(pace) || *count == MEASUREMENTS).unwrap().1
    }

    /// One that others yield to.
    fn leader(&self) -> Client {
        self.led_by(taking_part(&self.host, &self.daemon, "hostile"))
    }

    fn led_by(&self, leader: Client) -> Client {
        self.daemon.berth(&["slo", "set", leader.path(), "latency=p99:1ms"]).ok();
        leader.works(true).says("Lead");
        until("the trainer to yield to it", || {
            let shown = row(&self.daemon, &self.trainer.key());
            shown.filter(|row| row.yields_to.iter().any(|name| name == leader.path()))
        });
        leader
    }

    /// It lost its lead, is refused, or the two were parted: the trainer yields to it no more.
    fn is_led_no_more_by(&self, leader: &Client) {
        until("the end of its lead", || {
            let shown = row(&self.daemon, &self.trainer.key());
            shown.filter(|row| !row.yields_to.iter().any(|name| name == leader.path()))
        });
    }

    fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.daemon.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }

    fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.daemon.pid())).unwrap().count()
    }
}

impl Pace {
    fn serves_as(&self, alone: &Self) -> bool {
        !self.is_behind && self.p50_ms <= alone.p50_ms * SLOWER + MOMENT_MS
    }
}

fn longest_pause(trained: &Trained) -> Duration {
    let ends: Vec<u64> = std::iter::once(trained.from_ns).chain(trained.ended_ns.iter().copied()).collect();
    Duration::from_nanos(ends.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(u64::MAX))
}

/// `hostile` begins, and returns when it has done its worst; what it returns is hostile until it is dropped.
fn harms_only_itself<T>(test: &str, hostile: impl FnOnce(&Scene, &Path) -> T) {
    let Some(library) = library(test) else { return };
    let mut scene = Scene::set(&library);
    let events = scene.daemon.events();
    let alone = scene.pace();
    let (memory, descriptors) = (scene.resident_bytes(), scene.descriptors());
    let (hostile, trained) = scene.while_training(|| hostile(&scene, &library));
    let beside = scene.pace_beside(&alone);
    assert!(scene.daemon.is_running());
    let grown = scene.resident_bytes().saturating_sub(memory);
    drop(hostile);
    until("its connections to be gone", || (scene.descriptors() <= descriptors + MOST_DESCRIPTORS_LEFT).then_some(()));
    let after = scene.pace_beside(&alone);
    let longest = [longest_pause(&trained), beside.longest_pause, after.longest_pause].into_iter().max().unwrap();
    let rates = [&alone, &beside, &after].map(|pace| pace.steps_per_s);
    eprintln!("{test}: {rates:.0?} steps a second alone, beside and after; longest pause {longest:.0?}");
    let latencies = [&alone, &beside, &after].map(|pace| (pace.p50_ms, pace.p90_ms));
    eprintln!("{test}: {latencies:.2?} ms took half and nine tenths of the server's requests");
    eprintln!("{test}: the daemon has {} KiB more", grown / 1024);
    for pace in [&beside, &after] {
        assert!(pace.steps_per_s * FACTOR >= alone.steps_per_s, "the trainer was slowed down");
        assert!(pace.serves_as(&alone), "the server could not keep up, or its requests took far longer");
    }
    assert!(longest < LONGEST_PAUSE, "the trainer stood for {longest:?}");
    assert!(grown < MOST_GROWTH, "the daemon has {grown} bytes more");
    for key in [scene.server.key(), scene.trainer.key()] {
        assert!(row(&scene.daemon, &key).is_some(), "{key} is not attached any more");
    }
    let lost = events.all().into_iter().any(|change| {
        let Change::KernelLevel { tenant, news: KernelNews::LeadLost { .. }, .. } = change else { return false };
        tenant == scene.server.key()
    });
    assert!(!lost, "the server lost its lead, by somebody else's doing");
    scene.server.end();
    scene.trainer.end();
}

#[test]
fn one_that_forges_messages_as_fast_as_it_can() {
    harms_only_itself("one_that_forges_messages_as_fast_as_it_can", |scene, _| {
        let hostile = taking_part(&scene.host, &scene.daemon, "hostile");
        hostile.tell("forge");
        hostile
    });
}

#[test]
fn one_that_attaches_a_thousand_times() {
    harms_only_itself("one_that_attaches_a_thousand_times", |scene, _| {
        let hostile = taking_part(&scene.host, &scene.daemon, "hostile");
        hostile.tell("crowd 1000").says("crowd");
        hostile
    });
}

#[test]
fn one_that_connects_without_end() {
    harms_only_itself("one_that_connects_without_end", |scene, library| {
        let hostile = taking_part(&scene.host, &scene.daemon, "hostile");
        hostile.tell("knock").says("knocks");
        for name in ["first", "second", "third"] {
            let newcomer = Program::start(&scene.host, library, name, &["train", "--kernels", "10"]);
            until("a newcomer to attach beside it", || row(&scene.daemon, &newcomer.key()));
            newcomer.end();
        }
        hostile
    });
}

#[test]
fn one_that_writes_garbage_into_its_memory_while_it_is_read() {
    harms_only_itself("one_that_writes_garbage_into_its_memory_while_it_is_read", |scene, _| {
        let hostile = taking_part(&scene.host, &scene.daemon, "hostile");
        hostile.works(true).tell("scribble").says("scribbles");
        hostile
    });
}

#[test]
fn one_that_others_yield_to_and_that_never_lets_go() {
    harms_only_itself("one_that_others_yield_to_and_that_never_lets_go", |scene, _| {
        let leader = scene.leader();
        leader.tell("raise 1").says("raised");
        scene.is_led_no_more_by(&leader);
        leader
    });
}

#[test]
fn one_that_others_yield_to_and_that_says_it_is_idle_and_never_lets_go() {
    harms_only_itself("one_that_others_yield_to_and_that_says_it_is_idle_and_never_lets_go", |scene, _| {
        let leader = scene.leader();
        leader.works(false).tell("keep leads").says("keeps");
        scene.is_led_no_more_by(&leader);
        leader
    });
}

/// By that it would say that others keep it stopped, and that it waits for its turn.
#[test]
fn one_that_keeps_the_words_of_its_own_yields_up() {
    harms_only_itself("one_that_keeps_the_words_of_its_own_yields_up", |scene, _| {
        let first = taking_part(&scene.host, &scene.daemon, "hostile");
        let second = first.beside(&scene.host);
        second.attaches().uses(&gpu(&scene.daemon));
        for hostile in [&first, &second] {
            hostile.works(true).tell("keep yields").says("keeps");
        }
        (second, first)
    });
}

#[test]
fn one_that_others_yield_to_and_that_takes_the_page_away_under_them() {
    harms_only_itself("one_that_others_yield_to_and_that_takes_the_page_away_under_them", |scene, _| {
        let leader = taking_part(&scene.host, &scene.daemon, "hostile");
        // The page is open to it until it says that it has mapped it, or a second has passed.
        leader.tell("quiet").says("quiet");
        let leader = scene.led_by(leader);
        leader.tell("punch").says("punches");
        scene.is_led_no_more_by(&leader);
        leader
    });
}

#[test]
fn one_that_forks_and_launches_in_its_children() {
    harms_only_itself("one_that_forks_and_launches_in_its_children", |scene, library| {
        let hostile = Program::start(&scene.host, library, "hostile", &["abuse", "fork"]);
        hostile.tell("go");
        let checked = hostile.checked();
        assert_eq!(checked.wrong, 0, "a child crashed or hung, or the parent could not go on: {checked:?}");
        hostile.tell("go");
        hostile
    });
}

#[test]
fn one_that_closes_all_descriptors() {
    harms_only_itself("one_that_closes_all_descriptors", |scene, library| {
        let hostile = Program::start(&scene.host, library, "hostile", &["abuse", "close"]);
        hostile.tell("go");
        hostile
    });
}

#[test]
fn one_that_others_yield_to_and_that_rewrites_its_word_without_end() {
    harms_only_itself("one_that_others_yield_to_and_that_rewrites_its_word_without_end", |scene, _| {
        let leader = scene.leader();
        leader.tell("rewrite").says("rewrites");
        scene.is_led_no_more_by(&leader);
        // Parted from it, the trainer waits for it in its turn, until that was more than its share.
        until("the end of its lead by the daemon's word", || {
            row(&scene.daemon, &leader.key()).is_none_or(|row| row.lead_lost_until.is_some()).then_some(())
        });
        leader
    });
}

#[test]
fn one_with_thousands_of_streams() {
    harms_only_itself("one_with_thousands_of_streams", |scene, library| {
        let hostile = Program::start(&scene.host, library, "hostile", &["abuse", "streams"]);
        hostile.tell("go");
        until("it to launch", || row(&scene.daemon, &hostile.key()).filter(|row| row.counters.launches > 3_000));
        // The trainer works beside it meanwhile, and afterwards beside all these streams.
        assert_eq!(hostile.checked().wrong, 0);
        hostile
    });
}
