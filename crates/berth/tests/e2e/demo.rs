//! `berth demo` plays to its end, or is stopped, and leaves the machine as it was.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use crate::support::{BERTH, Engine, Host, Running, hierarchy, until, until_within};

const TENANTS: [&str; 6] = ["notebook", "trainer", "server", "sweep-1", "sweep-2", "too-big"];

/// The column of the end table.
const STAYS: usize = 4;
/// The demo itself cuts what is not over after a minute and a half; it then has its table to print.
const CURTAIN: Duration = Duration::from_secs(120);

/// A demo with a temporary directory of its own, which prints to a file.
struct Demo {
    name: &'static str,
    process: Running,
    tmp: PathBuf,
    printed: PathBuf,
}

impl Demo {
    /// On plain cgroups.
    fn start(host: &Host, name: &'static str) -> Self {
        Self::start_by(host, name, Command::new(BERTH).args(["demo", "--plain", "--ground", "cgroup"]))
    }

    fn on_docker(host: &Host, name: &'static str, engine: &Engine) -> Self {
        let socket = format!("docker.socket={}", engine.socket().display());
        Self::start_by(
            host,
            name,
            Command::new(BERTH).args(["--set", &socket, "demo", "--plain", "--ground", "docker"]),
        )
    }

    fn start_by(host: &Host, name: &'static str, command: &mut Command) -> Self {
        let (tmp, printed) = (host.file(&format!("tmp-{name}")), host.file(&format!("printed-{name}")));
        std::fs::create_dir(&tmp).unwrap();
        let file = std::fs::File::create(&printed).unwrap();
        command.env("TMPDIR", &tmp).stdin(Stdio::null()).stdout(file).stderr(host.log(name));
        Self { name, process: Running::start(command), tmp, printed }
    }

    fn printed(&self) -> String {
        std::fs::read_to_string(&self.printed).unwrap()
    }

    fn cgroup(&self) -> PathBuf {
        hierarchy().join(format!("berth-demo-{}", self.process.pid()))
    }

    /// Plays to its end; what it printed before the end table, and from there on.
    fn finish(&mut self) -> (String, String) {
        until_within(CURTAIN, "the end table", || {
            let ended = !self.process.is_running();
            let is_there = self.printed().contains("What berth saw");
            assert!(is_there || !ended, "{} ended without a table", self.name);
            is_there.then_some(())
        });
        assert_eq!(self.process.wait(), 0);
        let text = self.printed();
        let (played, table) = text.split_once("What berth saw").unwrap();
        (played.to_owned(), table.to_owned())
    }

    /// Its directory, its cgroups, and every process that names the directory.
    fn leaves_nothing(&self) {
        let tmp = &self.tmp;
        assert_eq!(std::fs::read_dir(tmp).unwrap().count(), 0, "files are left in {}", tmp.display());
        assert!(!self.cgroup().exists(), "{} is left", self.cgroup().display());
        let left: Vec<String> = commands().filter(|command| command.contains(tmp.to_str().unwrap())).collect();
        assert!(left.is_empty(), "processes are left: {left:?}");
    }

    fn leaves_nothing_on(&self, engine: &Engine) {
        self.leaves_nothing();
        let label = format!("label=berth.stage.pid={}", self.process.pid());
        assert_eq!(engine.docker(&["ps", "--all", "--quiet", "--filter", &label]).ok(), "", "containers are left");
        let image = format!("berth-demo-{}", self.process.pid());
        assert_eq!(engine.docker(&["images", "--quiet", &image]).ok(), "", "its image is left");
    }
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

/// Each tenant by itself, as it was: nobody is left out, mixed up with another, or seen more often than it came.
fn is_right(table: &str) {
    for tenant in TENANTS {
        let line = table.lines().find(|line| line.starts_with(tenant)).unwrap_or_else(|| panic!("{tenant}: {table}"));
        assert!(!line.contains("still there"), "{line}");
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
    let mut demo = Demo::start(&host, "demo");
    until("the tenants' cgroups", || demo.cgroup().exists().then_some(()));
    let (played, table) = demo.finish();
    let has_memory = played.contains("MiB") || played.contains("GiB");
    assert!(played.contains("notebook") && has_memory, "no table on the way: {played}");
    is_right(&table);
    demo.leaves_nothing();
}

#[test]
fn two_demos_side_by_side_do_not_disturb_each_other() {
    let host = Host::bare();
    let mut demos = ["one", "two"].map(|name| Demo::start(&host, name));
    for demo in &mut demos {
        is_right(&demo.finish().1);
        demo.leaves_nothing();
    }
}

#[test]
fn two_demos_side_by_side_on_one_docker_engine_do_not_disturb_each_other() {
    let Some(engine) = Engine::for_test("two_demos_side_by_side_on_one_docker_engine") else { return };
    let host = Host::bare();
    let mut demos = ["one", "two"].map(|name| Demo::on_docker(&host, name, &engine));
    for demo in &mut demos {
        is_right(&demo.finish().1);
        demo.leaves_nothing_on(&engine);
    }
}

#[test]
fn a_demo_ended_in_the_middle_leaves_nothing() {
    // Ctrl-C, a service manager or `timeout`, a terminal that is closed.
    for (signal, name) in [(Signal::INT, "interrupted"), (Signal::TERM, "terminated"), (Signal::HUP, "hung-up")] {
        let host = Host::bare();
        let mut demo = Demo::start(&host, name);
        until("a tenant on the stage", || demo.printed().contains("notebook").then_some(()));
        demo.process.signal(signal);
        assert_eq!(demo.process.wait(), 0, "{name}");
        demo.leaves_nothing();
    }
}
