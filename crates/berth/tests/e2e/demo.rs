//! `berth demo` plays to its end, or is stopped, and leaves the machine as it was.

use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::support::{BERTH, Host, Running, hierarchy, until};

const TENANTS: [&str; 6] = ["notebook", "trainer", "server", "sweep-1", "sweep-2", "too-big"];

/// A demo on plain cgroups, with a temporary directory of its own, printing to a file.
fn start(host: &Host) -> Running {
    let tmp = host.file("tmp");
    std::fs::create_dir(&tmp).unwrap();
    let printed = std::fs::File::create(host.file("printed")).unwrap();
    let mut command = Command::new(BERTH);
    command.args(["demo", "--plain", "--ground", "cgroup"]).env("TMPDIR", &tmp);
    Running::start(command.stdin(Stdio::null()).stdout(printed).stderr(host.log("demo")))
}

fn printed(host: &Host) -> String {
    std::fs::read_to_string(host.file("printed")).unwrap()
}

fn cgroup(demo: &Running) -> std::path::PathBuf {
    hierarchy().join(format!("berth-demo-{}", demo.pid()))
}

/// Its directory, its cgroups, and every process that names the directory.
fn leaves_nothing(host: &Host, demo: &Running) {
    let tmp = host.file("tmp");
    assert_eq!(std::fs::read_dir(&tmp).unwrap().count(), 0, "files are left in {}", tmp.display());
    assert!(!cgroup(demo).exists(), "{} is left", cgroup(demo).display());
    let left: Vec<String> = commands().filter(|command| command.contains(tmp.to_str().unwrap())).collect();
    assert!(left.is_empty(), "processes are left: {left:?}");
}

fn commands() -> impl Iterator<Item = String> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let command = |path: &Path| std::fs::read(path.join("cmdline")).ok();
    processes.filter_map(move |entry| Some(String::from_utf8_lossy(&command(&entry.path())?).into_owned()))
}

/// What berth saw of a tenant differs by milliseconds from what the tenant noted; a second is for a busy machine.
fn agrees_with_its_own_clock(line: &str) {
    let (before, _) = line.split_once(" ms").unwrap_or_else(|| panic!("no difference: {line}"));
    let millis: f64 = before.split_whitespace().next_back().unwrap().parse().unwrap();
    assert!(millis.abs() < 1_000.0, "{line}");
}

#[test]
fn the_demo_plays_to_its_end_table_and_leaves_nothing() {
    let host = Host::bare();
    let mut demo = start(&host);
    until("the tenants' cgroups", || cgroup(&demo).exists().then_some(()));
    until("the end table", || printed(&host).contains("What berth saw").then_some(()));
    assert_eq!(demo.wait(), 0);
    let text = printed(&host);
    let (played, table) = text.split_once("What berth saw").unwrap();
    assert!(
        played.contains("notebook") && played.contains("MiB") | played.contains("GiB"),
        "no table on the way: {text}"
    );
    for tenant in TENANTS {
        let line = table.lines().find(|line| line.starts_with(tenant)).unwrap_or_else(|| panic!("{tenant}: {table}"));
        assert!(!line.contains("still there"), "{line}");
        if tenant != "too-big" {
            agrees_with_its_own_clock(line);
        }
    }
    let sweep = table.lines().find(|line| line.starts_with("sweep-1")).unwrap();
    assert!(sweep.split_whitespace().any(|cell| cell == "3"), "it came three times: {sweep}");
    assert!(table.contains("out of memory") || table.contains("OUT_OF_MEMORY"), "{table}");
    assert!(table.contains("Try next"), "{table}");
    leaves_nothing(&host, &demo);
}

#[test]
fn a_demo_interrupted_in_the_middle_leaves_nothing() {
    let host = Host::bare();
    let mut demo = start(&host);
    until("a tenant on the stage", || printed(&host).contains("notebook").then_some(()));
    demo.signal(Signal::INT);
    let code = demo.wait();
    assert!(code == 0 || code == 130, "{code}");
    leaves_nothing(&host, &demo);
}
