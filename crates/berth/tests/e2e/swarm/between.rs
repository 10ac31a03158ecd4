//! Somebody dies between the place that is given and the service that is made for it: the client is halted there, and let go after.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use super::stage::{MOST, Swarm};
use super::{MOVED_WITHIN, kill};
use crate::support::{Running, run, throughout, until, until_within};

const ON_TWO: [&str; 2] = ["--constraint", "node.hostname==n2"];
/// Several rounds of the placer, and the time a container takes to start.
const LONG_ENOUGH: Duration = Duration::from_secs(5);

/// `berth run --cluster` whose client has a place, and has not asked the engine for anything yet.
struct Halted {
    running: Running,
    gate: PathBuf,
}

impl Halted {
    /// One that takes most of a GPU.
    fn start(swarm: &Swarm, name: &str, flags: &[&str]) -> Self {
        let file = |what: &str| swarm.file(&format!("{name}.{what}"));
        let (client, gate, reached) = (file("client"), file("gate"), file("reached"));
        run(Command::new("mkfifo").arg(&gate)).ok();
        let script = format!(
            "#!/bin/sh\ncase \"$*\" in *'service create '*--replicas=0*) : >{}; read -r _ <{} ;; esac\nexec docker \"$@\"\n",
            reached.display(),
            gate.display()
        );
        std::fs::write(&client, script).unwrap();
        run(Command::new("chmod").arg("755").arg(&client)).ok();
        let flags = [&["--name", name, "--memory", MOST, "--stop-signal", "KILL"], flags].concat();
        let mut command = swarm.run_command(&flags, &["sleep", "1000"]);
        command.env("BERTH_DOCKER", &client).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let running = Running::start(&mut command);
        until("it to have a place", || reached.exists().then_some(()));
        Self { running, gate }
    }

    /// The client goes on to the engine, whoever has died.
    fn let_go(&self) {
        std::fs::write(&self.gate, "\n").unwrap();
    }
}

/// The node of the only place that is kept.
fn kept_on(swarm: &Swarm) -> u8 {
    let nodes = swarm.nodes();
    let node = nodes.iter().find(|node| node["reserved"] == 1).expect("a place is kept");
    node["name"].as_str().unwrap()[1..].parse().unwrap()
}

/// The other one of the two that are no managers.
fn other(node: u8) -> String {
    format!("n{}", if node == 2 { 3 } else { 2 })
}

/// `first` is made after `second` was given its place: it does not run beside it, and has its turn when `second` is gone.
fn waits_for_its_turn(swarm: &Swarm, first: &str, second: &str) {
    until("the first to be made", || swarm.services().contains(&first.to_owned()).then_some(()));
    let why = until("the first to wait for a place", || {
        swarm.inspect(first)["Spec"]["Labels"]["berth.pending"].as_str().map(str::to_owned)
    });
    assert!(why.contains("reserved") && why.contains("excluded"), "{why}");
    throughout(LONG_ENOUGH, || {
        assert_eq!(swarm.containers(2, second), 1);
        assert_eq!((1..=3).map(|node| swarm.containers_ever(node, first)).sum::<usize>(), 0);
    });
    swarm.docker(&["service", "rm", second]).ok();
    until_within(MOVED_WITHIN, "the first to have its turn", || (swarm.containers(2, first) == 1).then_some(()));
    swarm.docker(&["service", "rm", first]).ok();
    until("the place to be free", || (swarm.containers(2, first) == 0).then_some(()));
}

#[test]
fn a_place_is_not_given_twice_though_the_placer_or_berth_dies_before_the_service_is_made() {
    let Some(swarm) = Swarm::for_test("a_place_is_not_given_twice_though_the_placer_dies") else { return };
    // The next placer knows nothing of the place that the first had given.
    let mut first = Halted::start(&swarm, "a", &ON_TWO);
    kill(swarm.pid("placer.pid"), Signal::KILL);
    swarm.script(&["placer"], &[]);
    until_within(MOVED_WITHIN, "the next placer to give it", || (swarm.place("b", &ON_TWO).code == 0).then_some(()));
    assert_eq!(swarm.runs("b"), "n2");
    first.let_go();
    assert_eq!(first.running.wait(), 0);
    waits_for_its_turn(&swarm, "a", "b");

    // berth is killed, and the client it has started is not.
    let first = Halted::start(&swarm, "c", &ON_TWO);
    first.running.signal(Signal::KILL);
    until_within(MOVED_WITHIN, "its place to be given", || (swarm.place("d", &ON_TWO).code == 0).then_some(()));
    assert_eq!(swarm.runs("d"), "n2");
    first.let_go();
    waits_for_its_turn(&swarm, "c", "d");
}

#[test]
fn nothing_starts_on_a_node_that_is_lost_cut_off_or_silent_since_it_was_chosen() {
    let Some(swarm) = Swarm::for_test("nothing_starts_on_a_node_that_is_lost_since_it_was_chosen") else { return };
    let workers = ["--constraint", "node.hostname!=n1"];
    let goes_elsewhere = |name: &str, lost: u8, mut halted: Halted| {
        halted.let_go();
        assert_eq!(halted.running.wait(), 0, "its service is made");
        assert_eq!(swarm.runs(name), other(lost));
        let of_it = |node: u8| swarm.containers_ever(node, name);
        throughout(LONG_ENOUGH, || assert_eq!([of_it(1), of_it(lost)], [0, 0], "{name}"));
        assert_eq!((2..=3).map(|node| swarm.containers(node, name)).sum::<usize>(), 1);
        swarm.docker(&["service", "rm", name]).ok();
    };
    let is_back = |node: u8| {
        let name = format!("n{node}");
        until_within(MOVED_WITHIN, "the node to be back", || swarm.why_not(&name).is_none().then_some(()));
        until("all places to be free", || swarm.nodes().iter().all(|node| node["reserved"] == 0).then_some(()));
    };

    // Its daemon is stopped, and its report is stale by the time the service is made.
    let halted = Halted::start(&swarm, "a", &workers);
    let lost = kept_on(&swarm);
    let daemon = swarm.pid(&format!("n{lost}/daemon.pid"));
    kill(daemon, Signal::STOP);
    until("its report to be stale", || swarm.why_not(&format!("n{lost}")).filter(|why| why == "stale"));
    goes_elsewhere("a", lost, halted);
    kill(daemon, Signal::CONT);
    is_back(lost);

    // Its daemon is killed, and nobody has noticed.
    let halted = Halted::start(&swarm, "b", &workers);
    let lost = kept_on(&swarm);
    kill(swarm.pid(&format!("n{lost}/daemon.pid")), Signal::KILL);
    goes_elsewhere("b", lost, halted);
    swarm.script(&["daemon"], &[&lost.to_string()]);
    is_back(lost);

    // It is cut off, and its manager has not noticed.
    let halted = Halted::start(&swarm, "c", &workers);
    let lost = kept_on(&swarm);
    swarm.script(&["link"], &[&lost.to_string(), "down"]);
    goes_elsewhere("c", lost, halted);
    swarm.script(&["link"], &[&lost.to_string(), "up"]);
    is_back(lost);
    assert_eq!(swarm.containers_ever(lost, "c"), 0, "not when it is back, either");

    // It loses its power.
    let halted = Halted::start(&swarm, "d", &workers);
    let lost = kept_on(&swarm);
    swarm.script(&["down"], &[&lost.to_string()]);
    goes_elsewhere("d", lost, halted);
    swarm.script(&["up"], &[&lost.to_string()]);
    is_back(lost);
    assert_eq!(swarm.containers_ever(lost, "d"), 0, "not when it is back, either");
}
