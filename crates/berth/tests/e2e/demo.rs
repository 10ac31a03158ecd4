//! `berth demo` plays to its end, or is stopped, and leaves the machine as it was.

use std::collections::BTreeSet;
use std::time::Duration;

use rustix::process::Signal;

use crate::support::{Engine, Host, Staged, until, until_within};

const TENANTS: [&str; 6] = ["notebook", "trainer", "server", "sweep-1", "sweep-2", "too-big"];

/// The column of the end table.
const STAYS: usize = 4;
/// The demo itself cuts what is not over after a minute and a half; it then has its table to print.
const CURTAIN: Duration = Duration::from_secs(120);
const STAGE: &str = "berth-demo";

/// On plain cgroups.
fn start(host: &Host, name: &str) -> Staged {
    Staged::start(host, name, STAGE, &["demo", "--plain", "--ground", "cgroup"])
}

fn on_docker(host: &Host, name: &str, engine: &Engine) -> Staged {
    let socket = format!("docker.socket={}", engine.socket().display());
    Staged::start(host, name, STAGE, &["--set", &socket, "demo", "--plain", "--ground", "docker"])
}

/// Plays to its end; what it printed before the end table, and from there on.
fn finish(demo: &mut Staged) -> (String, String) {
    until_within(CURTAIN, "the end table", || {
        let ended = !demo.process.is_running();
        let is_there = demo.printed().contains("What berth saw");
        assert!(is_there || !ended, "a demo ended without a table");
        is_there.then_some(())
    });
    assert_eq!(demo.process.wait(), 0);
    let text = demo.printed();
    assert!(!text.contains("Ended early"), "{text}");
    let (played, table) = text.split_once("What berth saw").unwrap();
    (played.to_owned(), table.to_owned())
}

/// Owners told of a tenant, by every table in the text.
fn owners(text: &str, tenant: &str) -> BTreeSet<String> {
    let mut column = None;
    let mut found = BTreeSet::new();
    for line in text.lines() {
        column = line.find("OWNER").or(column);
        let is_row = line.split_whitespace().any(|word| word == tenant || word.ends_with(&format!("/{tenant}")));
        let owner = column.and_then(|column| line.get(column..)?.split_whitespace().next());
        found.extend(owner.filter(|_| is_row).map(str::to_owned));
    }
    found
}

/// What berth saw of a tenant differs by milliseconds from what the tenant noted; a second is for a busy machine.
fn agrees_with_its_own_clock(line: &str) {
    let (before, _) = line.split_once(" ms").unwrap_or_else(|| panic!("no difference: {line}"));
    let millis: f64 = before.split_whitespace().next_back().unwrap().parse().unwrap();
    assert!(millis.abs() < 1_000.0, "{line}");
}

/// Each tenant by itself, as it was: nobody is left out, mixed up with another, or seen more often than it came.
fn is_right(table: &str) {
    for tenant in TENANTS {
        let line = table.lines().find(|line| line.starts_with(tenant)).unwrap_or_else(|| panic!("{tenant}: {table}"));
        assert!(!line.contains("removed"), "{line}");
        if tenant != "too-big" {
            agrees_with_its_own_clock(line);
            let cells: Vec<&str> = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
            assert_eq!(cells[STAYS], if tenant == "sweep-1" { "3" } else { "1" }, "{line}");
        }
    }
    assert!(table.contains("out of memory") || table.contains("OUT_OF_MEMORY"), "{table}");
    assert!(table.contains("Try next"), "{table}");
}

#[test]
fn the_demo_plays_to_its_end_table_and_leaves_nothing() {
    let host = Host::bare();
    let mut demo = start(&host, "demo");
    until("the tenants' cgroups", || demo.cgroup());
    let (played, table) = finish(&mut demo);
    let has_memory = played.contains("MiB") || played.contains("GiB");
    assert!(played.contains("notebook") && has_memory, "no table on the way: {played}");
    is_right(&table);
    // Plain cgroups carry no name but that of the user they run as.
    let (on_the_way, at_the_end) = (owners(&played, "notebook"), owners(&table, "notebook"));
    assert_eq!(on_the_way, at_the_end);
    assert_eq!(at_the_end.len(), 1, "{at_the_end:?}");
    demo.leaves_nothing();
}

#[test]
fn two_demos_side_by_side_do_not_disturb_each_other() {
    let host = Host::bare();
    let mut demos = ["one", "two"].map(|name| start(&host, name));
    for demo in &mut demos {
        is_right(&finish(demo).1);
        demo.leaves_nothing();
    }
}

#[test]
fn two_demos_side_by_side_on_one_docker_engine_do_not_disturb_each_other() {
    let Some(engine) = Engine::for_test("two_demos_side_by_side_on_one_docker_engine") else { return };
    let host = Host::bare();
    let mut demos = ["one", "two"].map(|name| on_docker(&host, name, &engine));
    for demo in &mut demos {
        let (_, table) = finish(demo);
        is_right(&table);
        assert_eq!(owners(&table, "notebook"), BTreeSet::from(["ada".to_owned()]), "as its label says: {table}");
        demo.leaves_nothing_on(&engine);
    }
}

#[test]
fn a_demo_ended_in_the_middle_leaves_nothing_and_says_what_became_of_its_tenants() {
    // Ctrl-C, a service manager or `timeout`, a terminal that is closed.
    for (signal, name, code) in [(Signal::INT, "int", 130), (Signal::TERM, "term", 143), (Signal::HUP, "hup", 129)] {
        let host = Host::bare();
        let mut demo = start(&host, name);
        until("a tenant on the stage", || demo.printed().contains("notebook").then_some(()));
        demo.process.signal(signal);
        assert_eq!(demo.process.wait(), code, "{name}");
        let text = demo.printed();
        let (_, table) = text.split_once("Ended early").unwrap_or_else(|| panic!("{name}: {text}"));
        let notebook = table.lines().find(|line| line.starts_with("notebook")).unwrap();
        assert!(notebook.trim_end().ends_with("removed"), "{notebook}");
        assert!(table.contains("Did not come:") && table.contains("too-big"), "{table}");
        assert!(!table.contains("Try next"), "{table}");
        demo.leaves_nothing();
    }
}

#[test]
fn a_demo_whose_terminal_is_closed_leaves_nothing() {
    let host = Host::bare();
    let mut demo = Staged::start_in_terminal(&host, STAGE, &["demo", "--ground", "cgroup"]);
    until("a tenant on the screen", || demo.printed().contains("notebook").then_some(()));
    demo.process.kill();
    until("the end of its processes", || demo.processes().is_empty().then_some(()));
    // Its directory goes last.
    until("the end of its directory", || demo.files().is_empty().then_some(()));
}
