//! The daemon killed at many instants while it holds containers: two seconds later nobody is held but whom a person paused.
//!
//! `BERTH_TEST_KILLS` says how often; each time at another instant, drawn by the seed that is printed and that `BERTH_TEST_SEED`
//! gives again. Once on the machine's cgroups, and once on a host with the unified hierarchy alone.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use berth_model::settings::{Mode, PolicyName};
use berth_model::snapshot::HoldStage;
use berth_model::time::Span;

use crate::support::held::{is_at, is_free, is_frozen, stage};
use crate::support::{Cgroups, Container, Daemon, Engine, Host, OwnEngine, run, skip, until, until_within};

/// What the design promises.
const FREE_WITHIN: Duration = Duration::from_secs(2);
const KILLS: u64 = 8;
/// No kill comes later than this after everybody is held whom root says: several turns of those who contend.
const LATEST_US: u64 = 1_200_000;

/// Computes a fifth of a second again and again, and copies and rests in between: three of them contend.
const CONTENDS: [&str; 6] = ["--size", "8000", "--repeats", "100000", "--gap", "20ms"];

struct Scene {
    contenders: Vec<Container>,
    /// Held by root's word, by the freezer, by the engine's pause and by the driver's lock.
    by_word: Vec<(Container, &'static str)>,
    /// Being parked by root's word when the daemon is killed: its GPU memory is on its way, or out.
    parked: Container,
    /// By somebody else, before there was any daemon.
    paused: Container,
}

impl Scene {
    fn set(engine: &Engine, host: &Host) -> Self {
        let contenders = (0..3).map(|number| engine.run(host, &format!("contends-{number}"), &[], &CONTENDS)).collect();
        let by_word = ["gate", "freeze", "lock"].map(|means| (engine.run(host, means, &[], &["light"]), means));
        let paused = engine.run(host, "paused", &[], &["hold"]);
        paused.docker(&["pause"]).ok();
        let parked = engine.run(host, "park", &[], &["light"]);
        Self { contenders, by_word: by_word.into(), parked, paused }
    }

    fn held(&self) -> impl Iterator<Item = &Container> {
        self.contenders.iter().chain(self.by_word.iter().map(|(container, _)| container)).chain([&self.parked])
    }

    /// With all of them known, and held whom root says.
    fn manage(&self, daemon: &Daemon) {
        for container in self.held() {
            daemon.row_where(&container.key(), |row| row.task_id.is_some() && row.container_name == container.name);
        }
        for (container, means) in &self.by_word {
            daemon.berth(&["hold", &container.name, "--by", means]).ok();
        }
        for (container, _) in &self.by_word {
            daemon.row_where(&container.key(), |row| is_at(row, HoldStage::Held));
        }
    }
}

fn settings(settings: &mut berth_model::Settings, socket: &Path) {
    settings.docker.mode = Mode::Required;
    settings.docker.socket = socket.to_owned();
    settings.hold.policy = PolicyName::Fifo;
    // Often enough for kills to fall into hand-overs.
    settings.hold.pause_after = Span::from_millis(150);
}

fn kills() -> u64 {
    std::env::var("BERTH_TEST_KILLS").map_or(KILLS, |count| count.parse().expect("BERTH_TEST_KILLS is a number"))
}

/// Instants after which to kill, repeatable by their seed.
struct Instants(u64);

impl Instants {
    fn of_this_run() -> Self {
        let given = std::env::var("BERTH_TEST_SEED").ok();
        let drawn = || std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(1, |time| u64::from(time.subsec_nanos()));
        let seed = given.map_or_else(drawn, |seed| seed.parse().expect("BERTH_TEST_SEED is a number"));
        eprintln!("instants of kills: BERTH_TEST_SEED={seed}");
        Self(seed)
    }

    /// SplitMix64: any seed will do, and neighbours have nothing in common.
    fn next(&mut self) -> Duration {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Duration::from_micros((mixed ^ (mixed >> 31)) % LATEST_US)
    }
}

#[test]
fn two_seconds_after_any_kill_nobody_is_held_but_whom_a_person_paused() {
    let test = "two_seconds_after_any_kill_nobody_is_held_but_whom_a_person_paused";
    let Some(engine) = Engine::for_test(test) else { return };
    let Some((host, mut daemon)) = stage(test, &engine, |them| settings(them, &engine.socket())) else { return };
    let scene = Scene::set(&engine, &host);
    let cgroups: Vec<PathBuf> = scene.held().map(Container::freezer).collect();
    let frozen = || cgroups.iter().filter(|cgroup| is_frozen(cgroup)).count();
    let (mut held_at_a_kill, mut instants) = (0, Instants::of_this_run());
    for round in 0..kills() {
        scene.manage(&daemon);
        let mut parking = daemon.berth_meanwhile(&["hold", &scene.parked.name, "--by", "park"]);
        std::thread::sleep(instants.next());
        held_at_a_kill += frozen();
        daemon.kill();
        // It may have been answered, or not.
        parking.wait();
        until_within(FREE_WITHIN, "everybody to be free", || {
            cgroups.iter().all(|cgroup| is_free(cgroup)).then_some(())
        });
        for container in scene.held() {
            until("the engine to know", || (container.says(".State.Status") == "running").then_some(()));
            let lines = container.lines();
            until("it to go on", || (container.lines() > lines).then_some(()));
        }
        assert_eq!(scene.paused.says(".State.Status"), "paused", "round {round}");
        assert!(is_frozen(&scene.paused.freezer()), "round {round}");
        daemon = host.daemon_with("berth", |them| settings(them, &engine.socket()));
    }
    // Two are always held by root's word.
    assert!(held_at_a_kill as u64 > 2 * kills(), "no kill came while the policy held anybody: little was shown");
    eprintln!("{} kills, {held_at_a_kill} tenants frozen at them", kills());
}

// === where the unified hierarchy is all there is ===

const INSIDE: &str = "BERTH_TEST_INSIDE_UNIFIED";
/// What must hold there too; the rest differs in nothing that the hierarchy could matter for.
const CLAIMS: [&str; 3] = [
    "two_seconds_after_any_kill_nobody_is_held_but_whom_a_person_paused",
    "a_held_container_that_is_stopped_takes_the_signal_and_ends_by_itself",
    "a_hold_that_lasts_is_shown_by_the_engine_and_nothing_runs_on_the_way",
];

#[test]
fn the_same_where_the_unified_hierarchy_is_all_there_is() {
    let test = "the_same_where_the_unified_hierarchy_is_all_there_is";
    if std::env::var_os(INSIDE).is_some() {
        return;
    }
    let Some(other) = Engine::for_test(test) else { return };
    let Some(own) = OwnEngine::start(&other, Cgroups::Unified, &[]) else {
        return skip(test, "there is no dockerd, or it cannot have a mount namespace with the unified hierarchy");
    };
    let mut tests = own.inside(std::env::current_exe().unwrap());
    // What a container's kernel offers is not less there than here; what is skipped there is skipped here.
    tests.args(CLAIMS).args(["--nocapture", "--test-threads", "1"]).env(INSIDE, "1");
    tests.env("BERTH_TEST_DOCKER", own.engine().address()).stdin(Stdio::null());
    let ran = run(&mut tests);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains("3 passed"), "{}", ran.stdout);
    eprintln!("{}", ran.stderr);
}
