//! A real swarm of three nodes: containers go where the rule says, once, and never to a node of which nobody knows how it stands.

mod between;
mod stage;

use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{BERTH, Run, Running, run, throughout, until, until_within};
use stage::{MOST, Swarm};

/// No node takes it.
const NOBODY: i32 = 6;
/// Nobody knows how the node stands: by the question that went unanswered just now, or since those before it did.
const NOT_KNOWN: &[&str] = &["no-report 1", "stale 1", "down 1"];
/// For a manager to see that a node is gone, and for berth to find another place.
const MOVED_WITHIN: Duration = Duration::from_secs(60);

fn kill(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// Nothing was made, and why is told.
fn refused(swarm: &Swarm, run: &Run, service: &str, why: &[&str]) {
    assert_eq!(run.code, NOBODY, "{run:?}");
    assert!(run.stderr.contains("nothing was created"), "{run:?}");
    assert!(why.iter().any(|why| run.stderr.contains(why)), "{run:?}");
    assert!(!swarm.services().contains(&service.to_owned()));
}

#[test]
fn containers_go_where_there_is_room_and_nowhere_if_there_is_none() {
    let Some(swarm) = Swarm::for_test("containers_go_where_there_is_room") else { return };
    let mut nodes: Vec<String> = Vec::new();
    for name in ["a", "b", "c"] {
        let placed = swarm.place(name, &["--deadline", "9s"]);
        assert!(placed.stderr.contains("berth: placed on n"), "{placed:?}");
        placed.ok();
        nodes.push(swarm.runs(name));
    }
    nodes.sort();
    assert_eq!(nodes, ["n1", "n2", "n3"], "each GPU has room for one");
    let nobody = swarm.place("d", &["--deadline", "9s", "--explain"]);
    refused(&swarm, &nobody, "d", &["reserved 3"]);
    assert_eq!(nobody.stderr.matches("what is on its way there").count(), 3, "{nobody:?}");

    let spec = &swarm.inspect("a")["Spec"];
    let container = &spec["TaskTemplate"]["ContainerSpec"];
    assert_eq!(container["Labels"]["berth.deadline"], "9s");
    assert_eq!(container["Labels"]["berth.placement"], spec["Labels"]["berth.placement"]);
    let gpu = spec["Labels"]["berth.gpus"].as_str().unwrap();
    let env = container["Env"].to_string();
    assert!(env.contains(&format!("NVIDIA_VISIBLE_DEVICES={gpu}")) && env.contains("LD_LIBRARY_PATH"), "{env}");
    assert_eq!(spec["TaskTemplate"]["RestartPolicy"]["Condition"], "none");

    swarm.docker(&["service", "rm", "b"]).ok();
    until("its place to be free again", || (swarm.place("e", &[]).code == 0).then_some(()));
    swarm.runs("e");

    let wrong = swarm.place("f", &["--constraint", "colour==red"]);
    assert_eq!(wrong.code, 125, "{wrong:?}");
    // The client asks an engine that is no manager of this swarm: nothing is made there, or anywhere.
    let elsewhere = run(swarm.run_command(&["--name", "f"], &["true"]).env("DOCKER_HOST", swarm.host(2)));
    assert_eq!(elsewhere.code, 1, "{elsewhere:?}");
    assert!(elsewhere.stderr.contains("no manager of the swarm that the placer"), "{elsewhere:?}");
    assert!(!swarm.services().contains(&"f".to_owned()));

    let rest = swarm.place("f", &["--replicas", "2"]);
    assert_eq!(rest.code, 125, "{rest:?}");
    assert!(rest.stderr.contains("each container has a place of its own"), "{rest:?}");
}

#[test]
fn deadlines_decide_where_one_more_goes() {
    let Some(swarm) = Swarm::for_test("deadlines_decide_where_one_more_goes") else { return };
    // More than half of what there is until it is due: two of them would be late beside each other.
    let place = |name: &str| {
        let flags = ["--name", name, "--deadline", "1000s", "--takes", "600s", "--stop-signal", "KILL"];
        run(&mut swarm.run_command(&flags, &["/berth", "load", "hold"]))
    };
    let mut nodes: Vec<String> = Vec::new();
    for name in ["a", "b", "c"] {
        place(name).ok();
        nodes.push(swarm.runs(name));
    }
    nodes.sort();
    assert_eq!(nodes, ["n1", "n2", "n3"], "no two beside each other");
    // By what the daemons see on their GPUs, no longer by what is on its way there.
    until("each to be seen on its GPU", || {
        let is_seen =
            |node: &serde_json::Value| node["reserved"] == 0 && !node["report"]["gpus"][0]["loads"][0].is_null();
        swarm.nodes().iter().all(is_seen).then_some(())
    });
    refused(&swarm, &place("d"), "d", &["would-be-late 3"]);
    let short = run(&mut swarm.run_command(&["--deadline", "5s", "--takes", "9s"], &["true"]));
    assert_eq!(short.code, NOBODY, "{short:?}");
    assert!(short.stderr.contains("deadline-too-short 3"), "{short:?}");
    assert_eq!(swarm.services().len(), 3);
}

#[test]
fn of_two_that_want_the_last_place_at_once_one_gets_it() {
    let Some(swarm) = Swarm::for_test("of_two_that_want_the_last_place") else { return };
    let start = |name: &str| {
        let flags = ["--name", name, "--memory", MOST, "--constraint", "node.hostname==n2"];
        let mut command = swarm.run_command(&flags, &["sleep", "1000"]);
        Running::start(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()))
    };
    let names = ["a", "b", "c", "d"];
    let mut running = names.map(start);
    let codes = running.each_mut().map(Running::wait);
    assert_eq!(codes.iter().filter(|code| **code == 0).count(), 1, "{codes:?}");
    assert_eq!(codes.iter().filter(|code| **code == NOBODY).count(), 3, "{codes:?}");
    let services = swarm.services();
    assert_eq!(services.len(), 1, "{services:?}");
    assert_eq!(swarm.runs(&services[0]), "n2");

    // The placer dies and is started again: what it kept is known to the engine.
    kill(swarm.pid("placer.pid"), Signal::KILL);
    let gone = swarm.place("e", &[]);
    assert_eq!(gone.code, 1, "{gone:?}");
    assert!(gone.stderr.contains("no placer answers"), "{gone:?}");
    swarm.script(&["placer"], &[]);
    until("what runs to be known again", || {
        let again = swarm.place("e", &["--constraint", "node.hostname==n2"]);
        assert_ne!(again.code, 0, "the same place was given twice");
        again.stderr.contains("reserved 1").then_some(())
    });
    // A name is taken once, whatever else is asked with it.
    let twice = swarm.place(&services[0], &["--constraint", "node.hostname==n3"]);
    assert!(twice.code != 0 && twice.stderr.contains("name conflicts"), "{twice:?}");
    assert_eq!(swarm.services(), services);
    swarm.place("f", &["--constraint", "node.hostname==n3"]).ok();
}

#[test]
fn a_node_that_loses_its_power_gets_nothing_and_what_ran_there_goes_elsewhere() {
    let Some(swarm) = Swarm::for_test("a_node_that_loses_its_power") else { return };
    swarm.serve("server", &["--constraint", "node.role==worker"]).ok();
    let (lost, other) = match swarm.runs("server").as_str() {
        "n2" => (2, "n3"),
        _ => (3, "n2"),
    };
    swarm.docker(&["node", "update", "--label-add", "rack=a", other]).ok();
    let before = swarm.inspect("server")["Spec"]["Labels"].clone();
    swarm.script(&["down"], &[&lost.to_string()]);
    // Long before the manager knows.
    let there = format!("node.hostname==n{lost}");
    refused(&swarm, &swarm.place_small("there", &["--constraint", &there]), "there", NOT_KNOWN);
    until_within(MOVED_WITHIN, "the server to run elsewhere", || (swarm.runs("server") == other).then_some(()));
    let after = swarm.inspect("server");
    let labels = &after["Spec"]["Labels"];
    assert_ne!(labels["berth.placement"], before["berth.placement"]);
    let env = after["Spec"]["TaskTemplate"]["ContainerSpec"]["Env"].to_string();
    assert!(env.contains(&format!("CUDA_VISIBLE_DEVICES={}", labels["berth.gpus"].as_str().unwrap())), "{env}");
    assert!(!env.contains(before["berth.gpus"].as_str().unwrap()), "{env}");
    // The user's own constraint is still there beside the place.
    let constraints = after["Spec"]["TaskTemplate"]["Placement"]["Constraints"].to_string();
    assert!(constraints.contains("node.role==worker") && constraints.contains(labels["berth.node"].as_str().unwrap()));

    // Nobody is left for a second one, and that is told; when the node is back, it is placed there.
    refused(&swarm, &swarm.serve("second", &["--constraint", "node.role==worker"]), "second", &["down 1"]);
    swarm.script(&["up"], &[&lost.to_string()]);
    until_within(MOVED_WITHIN, "the node to be back", || swarm.why_not(&format!("n{lost}")).is_none().then_some(()));
    swarm.serve("second", &["--constraint", "node.role==worker"]).ok();
    assert_eq!(swarm.runs("second"), format!("n{lost}"));
    assert_eq!(swarm.runs("server"), other, "it stays where it is");
}

#[test]
fn placing_goes_on_while_a_node_dies_and_nothing_is_placed_twice_or_lost() {
    let Some(swarm) = Swarm::for_test("placing_goes_on_while_a_node_dies") else { return };
    // Seven of them fit on a GPU: what three nodes have in the middle, two can hold in the end.
    let start = |number: usize| {
        let name = format!("s{number}");
        let flags = ["--name", &name, "--memory", "20GiB", "--restart-condition", "any", "--stop-signal", "KILL"];
        let mut command = swarm.run_command(&flags, &["sleep", "1000"]);
        let running = Running::start(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()));
        (name, running)
    };
    let mut placing: Vec<(String, Running)> = (0..6).map(start).collect();
    swarm.script(&["down"], &["3"]);
    placing.extend((6..12).map(start));
    let ended = placing.into_iter().map(|(name, mut running)| (name, running.wait()));
    let (made, others): (Vec<_>, Vec<_>) = ended.partition(|(_, code)| *code == 0);
    assert!(others.iter().all(|(_, code)| *code == NOBODY), "{others:?}");
    let mut names: Vec<String> = made.into_iter().map(|(name, _)| name).collect();
    let mut services = swarm.services();
    names.sort();
    services.sort();
    assert_eq!(services, names, "what was said to be placed is there, and nothing else");
    assert!(names.len() >= 6, "{names:?}");
    until_within(MOVED_WITHIN, "each to run once, on a node that lives", || {
        let counts = |name: &String| (swarm.containers(1, name), swarm.containers(2, name));
        names.iter().map(counts).all(|(one, two)| one + two == 1).then_some(())
    });
    for node in [1, 2] {
        let there = names.iter().filter(|name| swarm.containers(node, name) == 1).count();
        assert!(there <= 7, "{there} of 20 GiB each on one GPU of 140");
    }
}

#[test]
fn a_node_that_is_cut_off_gets_nothing_and_no_container_is_there_twice_when_it_is_back() {
    let Some(swarm) = Swarm::for_test("a_node_that_is_cut_off") else { return };
    swarm.serve("server", &["--constraint", "node.hostname!=n1"]).ok();
    let cut = if swarm.runs("server") == "n2" { 2 } else { 3 };
    let name = format!("n{cut}");
    swarm.script(&["link"], &[&cut.to_string(), "down"]);
    let there = format!("node.hostname=={name}");
    refused(&swarm, &swarm.place_small("there", &["--constraint", &there]), "there", NOT_KNOWN);
    until("its report to be stale", || swarm.why_not(&name).filter(|why| why == "stale" || why == "engine"));
    swarm.place("elsewhere", &["--constraint", "node.hostname==n1"]).ok();
    until_within(MOVED_WITHIN, "the server to run elsewhere", || (swarm.runs("server") != name).then_some(()));
    swarm.script(&["link"], &[&cut.to_string(), "up"]);
    until_within(MOVED_WITHIN, "the node to be back", || swarm.why_not(&name).is_none().then_some(()));
    until_within(MOVED_WITHIN, "one container to be left", || {
        let running: usize = (1..=3).map(|node| swarm.containers(node, "server")).sum();
        (running == 1).then_some(())
    });
    assert_eq!(swarm.services().len(), 2);
}

#[test]
fn a_node_whose_daemon_does_not_answer_or_is_not_believed_gets_nothing() {
    let Some(swarm) = Swarm::for_test("a_node_whose_daemon_does_not_answer") else { return };
    let on_two = ["--constraint", "node.hostname==n2"];
    // Stopped in the middle of placing: the process is there, its port is open, and nobody answers.
    let daemon = swarm.pid("n2/daemon.pid");
    kill(daemon, Signal::STOP);
    refused(&swarm, &swarm.place("there", &on_two), "there", NOT_KNOWN);
    swarm.place("elsewhere", &["--constraint", "node.hostname!=n1"]).ok();
    assert_eq!(swarm.runs("elsewhere"), "n3");
    until("its report to be stale", || swarm.why_not("n2").filter(|why| why == "stale"));
    refused(&swarm, &swarm.place("there", &on_two), "there", NOT_KNOWN);
    kill(daemon, Signal::CONT);
    until("it to report again", || swarm.why_not("n2").is_none().then_some(()));

    // One that has another cluster's key.
    kill(daemon, Signal::TERM);
    until("the daemon to be gone", || (!swarm.file("n2/berth.sock").exists()).then_some(()));
    let id = swarm.docker_on(2, &["info", "--format", "{{.Swarm.NodeID}}"]).ok();
    let (key, other) = (swarm.file("n2/node.key"), swarm.file("other.key"));
    let (key, other) = (key.to_str().unwrap(), other.to_str().unwrap());
    let kept = std::fs::read(key).unwrap();
    swarm.berth(&["cluster", "key", "new", "--out", other]).ok();
    swarm.berth(&["cluster", "key", "node", id.trim(), "--cluster-key", other, "--out", key, "--force"]).ok();
    swarm.script(&["daemon"], &["2"]);
    until("its report to be stale", || swarm.why_not("n2").filter(|why| why == "stale"));
    let told = swarm.nodes();
    let why = told.iter().find(|node| node["name"] == "n2").unwrap()["refused"].as_str().unwrap().to_owned();
    assert!(why.contains("refuses") || why.contains("not believed"), "{why}");
    refused(&swarm, &swarm.place("there", &on_two), "there", NOT_KNOWN);

    // With its own key it is one of them again.
    kill(swarm.pid("n2/daemon.pid"), Signal::TERM);
    until("the daemon to be gone", || (!swarm.file("n2/berth.sock").exists()).then_some(()));
    std::fs::write(key, kept).unwrap();
    swarm.script(&["daemon"], &["2"]);
    until("it to report again", || swarm.why_not("n2").is_none().then_some(()));
    swarm.place("there", &on_two).ok();
    assert_eq!(swarm.runs("there"), "n2");
}

#[test]
fn paused_and_drained_nodes_and_changed_labels_are_respected() {
    let Some(swarm) = Swarm::for_test("paused_and_drained_nodes") else { return };
    swarm.docker(&["node", "update", "--label-add", "rack=a", "n2"]).ok();
    let in_rack = ["--constraint", "node.labels.rack==a"];
    until("the label to be known", || {
        let answer = swarm.serve("server", &in_rack);
        (answer.code == 0).then_some(())
    });
    assert_eq!(swarm.runs("server"), "n2");
    swarm.docker(&["node", "update", "--availability", "pause", "n2"]).ok();
    until("it to be known as paused", || {
        let paused = run(&mut swarm.run_command(&["--name", "new", "--constraint", "node.hostname==n2"], &["true"]));
        assert!(paused.code == NOBODY || paused.code == 0, "{paused:?}");
        if paused.code == 0 {
            swarm.docker(&["service", "rm", "new"]).ok();
        }
        paused.stderr.contains("paused 1").then_some(())
    });
    let stays = || assert!(swarm.tasks("server").iter().all(|task| task.node == "n2" && task.desired == "running"));
    throughout(Duration::from_secs(2), stays);

    // Drained, and nobody else is in the rack: it waits, and says for what.
    swarm.docker(&["node", "update", "--availability", "drain", "n2"]).ok();
    let pending =
        |swarm: &Swarm| swarm.inspect("server")["Spec"]["Labels"]["berth.pending"].as_str().map(str::to_owned);
    let why = until_within(MOVED_WITHIN, "the server to wait for a place", || pending(&swarm));
    assert_eq!(why, "nobody takes it: drained, excluded");
    swarm.docker(&["node", "update", "--label-add", "rack=a", "n3"]).ok();
    until_within(MOVED_WITHIN, "the server to have a place", || (swarm.runs("server") == "n3").then_some(()));
    assert_eq!(pending(&swarm), None);
    // A label that goes takes what is there by it along.
    swarm.docker(&["node", "update", "--availability", "active", "n2"]).ok();
    swarm.docker(&["node", "update", "--label-rm", "rack", "n3"]).ok();
    until_within(MOVED_WITHIN, "the server to be where the label is", || (swarm.runs("server") == "n2").then_some(()));
    // The engine calls the one it ends rejected before its container is gone.
    let containers = || (1..=3).map(|node| swarm.containers(node, "server")).sum::<usize>();
    until("the old container to be gone", || (containers() == 1).then_some(()));
}

#[test]
fn what_is_to_run_once_follows_the_label_it_was_placed_by() {
    let Some(swarm) = Swarm::for_test("what_is_to_run_once_follows_the_label") else { return };
    let label = |change: &str, node: &str| swarm.docker(&["node", "update", change, "rack=a", node]).ok();
    let unlabel = |node: &str| swarm.docker(&["node", "update", "--label-rm", "rack", node]).ok();
    label("--label-add", "n2");
    label("--label-add", "n3");
    until("the labels to be known", || {
        (swarm.place("once", &["--constraint", "node.labels.rack==a"]).code == 0).then_some(())
    });
    let first = swarm.runs("once");
    let second = if first == "n2" { "n3" } else { "n2" };
    let containers = || (1..=3).map(|node| swarm.containers(node, "once")).sum::<usize>();
    // The manager ends it at once, and makes no other.
    unlabel(&first);
    until_within(MOVED_WITHIN, "it to be where the label is", || (swarm.runs("once") == second).then_some(()));
    until("the first container to be gone", || (containers() == 1).then_some(()));

    // Nobody has the label: it waits, and goes when somebody has, be it where it was.
    unlabel(second);
    let pending = || swarm.inspect("once")["Spec"]["Labels"]["berth.pending"].as_str().map(str::to_owned);
    let why = until_within(MOVED_WITHIN, "it to wait for a place", pending);
    assert_eq!(why, "nobody takes it: excluded");
    until("its container to be gone", || (containers() == 0).then_some(()));
    label("--label-add", second);
    until_within(MOVED_WITHIN, "it to have a place", || pending().is_none().then_some(()));
    assert_eq!((swarm.runs("once").as_str(), containers()), (second, 1));
}

#[test]
fn what_has_used_up_its_attempts_has_no_place_and_is_not_started_again() {
    let Some(swarm) = Swarm::for_test("what_has_used_up_its_attempts") else { return };
    let restarts = ["--restart-condition", "on-failure", "--restart-max-attempts", "1", "--restart-delay", "0s"];
    let flags = [&["--name", "fails", "--memory", MOST, "--constraint", "node.hostname!=n1"], &restarts[..]].concat();
    run(&mut swarm.run_command(&flags, &["false"])).ok();
    let has_failed = |task: &stage::Task| task.state == "failed" && task.desired == "shutdown";
    let tasks = until("it to have failed twice", || {
        Some(swarm.tasks("fails")).filter(|tasks| tasks.len() == 2 && tasks.iter().all(has_failed))
    });
    until("its place to be free", || swarm.nodes().iter().all(|node| node["reserved"] == 0).then_some(()));
    swarm.docker(&["node", "update", "--availability", "drain", &tasks[0].node]).ok();
    let node = &tasks[0].node;
    until("it to be known as drained", || swarm.why_not(node).filter(|why| why == "engine"));
    throughout(Duration::from_secs(3), || assert_eq!(swarm.tasks("fails"), tasks));
}

#[test]
fn one_placer_acts_and_a_second_says_which_until_it_is_gone() {
    let Some(swarm) = Swarm::for_test("one_placer_acts") else { return };
    let second = swarm.file("second.sock");
    let second = format!("placer.socket={}", second.display());
    // Where the first one is: it must reach the nodes.
    let inside = swarm.pid("n1/holder.pid").to_string();
    let mut command = Command::new("nsenter");
    command.args(["--target", &inside, "--mount", "--net", "--uts", BERTH, "--config"]);
    command.arg(swarm.file("n1/berth.toml")).args(["--set", &second, "cluster", "serve"]);
    let _second = Running::start(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()));
    let place = |name: &str| {
        let args = ["--set", &second, "run", "--cluster", "--name", name, "--no-resolve-image", "image"];
        swarm.berth(&args)
    };
    let told = until("the second to say who acts", || {
        Some(place("a").stderr).filter(|told| told.contains("places for this swarm"))
    });
    assert!(told.contains(&format!("n1:{} (process ", swarm.file("placer.sock").display())), "{told}");
    assert_eq!(swarm.services(), [] as [String; 0]);
    kill(swarm.pid("placer.pid"), Signal::KILL);
    until_within(MOVED_WITHIN, "the second to take over", || (place("b").code == 0).then_some(()));
    assert_eq!(swarm.services(), ["b"]);

    // `docker berth service create` asks the same placer.
    let dir = swarm.file("plugin");
    std::fs::create_dir_all(&dir).unwrap();
    let plugin = dir.join("docker-berth");
    symlink(BERTH, &plugin).unwrap();
    let mut create = Command::new(&plugin);
    create.arg("--host").arg(format!("unix://{}", swarm.socket(1).display()));
    create.args([
        "berth",
        "service",
        "create",
        "--detach",
        "--no-resolve-image",
        "--deadline",
        "9s",
        "--name",
        "c",
        "image",
    ]);
    let created = run(create.env("BERTH_PLACER_SOCKET", swarm.file("second.sock")));
    assert!(created.stderr.contains("berth: placed on n"), "{created:?}");
    created.ok();
    assert_eq!(swarm.inspect("c")["Spec"]["TaskTemplate"]["ContainerSpec"]["Labels"]["berth.deadline"], "9s");
    assert_eq!(swarm.inspect("c")["Spec"]["TaskTemplate"]["RestartPolicy"]["Condition"], "any");
}
