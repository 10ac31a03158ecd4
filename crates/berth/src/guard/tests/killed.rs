//! Daemons that are killed at any instant, with real processes and cgroups: nothing stays frozen or stopped.
//!
//! The daemon and its guard are this test's own binary, started again: see [`pretend_daemon`] and [`pretend_guard`].

use std::process::{Child, Command, Stdio};
use std::time::Instant;

use berth_host::freezer::Hierarchies;
use rustix::process::{Pid, Signal, kill_process};

use super::*;
use crate::guard::supervise::{Guard, Program};

const ROLE: &str = "BERTH_TEST_ROLE";
const DIR: &str = "BERTH_TEST_DIR";
const ROUNDS: u64 = 12;
const TENANTS: usize = 3;
/// What is promised.
const FREE_WITHIN: Duration = Duration::from_secs(2);

/// A cgroup with one process that does nothing; gone when dropped.
struct Tenant {
    dir: PathBuf,
    child: Child,
}

impl Tenant {
    fn start(hierarchy: &Path, number: usize) -> Self {
        let dir = hierarchy.join(format!("berth-guard-{}-{number}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let child = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
        std::fs::write(dir.join("cgroup.procs"), child.id().to_string()).unwrap();
        Self { dir, child }
    }

    fn is_free(&self) -> bool {
        let read = |name: &str| std::fs::read_to_string(self.dir.join(name)).unwrap_or_default();
        let is_frozen = read("freezer.state").trim() == "FROZEN"
            || read("freezer.state").trim() == "FREEZING"
            || read("cgroup.events").contains("frozen 1")
            || read("cgroup.freeze").trim() == "1";
        !is_frozen && !is_stopped(Path::new(PROC), process(self.child.id()))
    }
}

impl Drop for Tenant {
    fn drop(&mut self) {
        let _ = std::fs::write(self.dir.join("freezer.state"), "THAWED");
        let _ = std::fs::write(self.dir.join("cgroup.freeze"), "0");
        let _ = self.child.kill();
        let _ = self.child.wait();
        let deadline = Instant::now() + Duration::from_secs(5);
        while std::fs::remove_dir(&self.dir).is_err() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// One test of this binary, in a process of its own.
fn again(test: &str, dir: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("guard::tests::killed::{test}"), "--nocapture", "--quiet"]);
    command.env(ROLE, test).env(DIR, dir).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit());
    command
}

fn role(test: &str) -> Option<PathBuf> {
    (std::env::var(ROLE).ok()? == test).then(|| std::env::var_os(DIR).unwrap().into())
}

fn until(what: &str, within: Duration, mut look: impl FnMut() -> bool) {
    let deadline = Instant::now() + within;
    while !look() {
        assert!(Instant::now() < deadline, "not within {within:?}: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Holds and releases the tenants named in its directory for ever, each hold written down first.
#[test]
fn pretend_daemon() {
    let Some(dir) = role("pretend_daemon") else { return };
    let mut settings = Settings::default();
    settings.hold.journal = dir.join("holds");
    let patience = Duration::from_secs(30);
    let (journal, _) = Journal::open(&settings.hold.journal, Role::Daemon, patience, Path::new(PROC)).unwrap();
    let args = ["--exact", "guard::tests::killed::pretend_guard", "--nocapture", "--quiet"];
    let program = Program { path: "/proc/self/exe".into(), args: args.map(Into::into).to_vec() };
    let guard = Guard::start(program, Plan::new(&settings)).unwrap();
    // Any will do: what it is for is another test's business.
    guard.hand_over(std::fs::File::open("/dev/null").unwrap().into());
    let hands = crate::guard::hands(&settings);
    let tenants = std::fs::read_to_string(dir.join("tenants")).unwrap();
    loop {
        let pid = guard.pid().map_or(String::new(), |pid| pid.to_string());
        std::fs::write(dir.join("guard.new"), pid).unwrap();
        std::fs::rename(dir.join("guard.new"), dir.join("guard")).unwrap();
        for line in tenants.lines() {
            let (cgroup, pid) = line.split_once(' ').unwrap();
            hold_and_release(&journal, &*hands, Path::new(cgroup), process(pid.parse().unwrap()));
        }
    }
}

/// As if it had been stopped at a launch: stopped, frozen, continued within, thawed.
fn hold_and_release(journal: &Journal, hands: &dyn Hands, cgroup: &Path, process: ProcKey) {
    let name = cgroup.file_name().unwrap().to_str().unwrap();
    let gated = Grip { gated: [process].into(), ..Grip::default() };
    let mut entry = Entry { cgroup: Some(cgroup.to_owned()), ..entry(name, 1, gated) };
    let subject = Subject::new(entry.tenant.clone(), entry.cgroup.clone(), None);
    journal.write(&entry).unwrap();
    // The gate's doing, which nobody has time to write down.
    kill_process(Pid::from_raw(process.pid.try_into().unwrap()).unwrap(), Signal::STOP).unwrap();
    entry.grip.stopped.insert(process);
    for want in [Want::Gated, Want::Free] {
        let body = berth_model::hold::Body {
            processes: &[process].into(),
            can_freeze: true,
            freezer: berth_model::hold::Freezer::Cgroup,
        };
        while let Some(step) = berth_model::hold::next(&entry.grip, want, body) {
            entry.grip = entry.grip.begun(step);
            journal.write(&entry).unwrap();
            if !matches!(step, Step::Gate(_) | Step::Ungate(_)) {
                hands.perform(&subject, step).unwrap();
            }
            entry.grip = entry.grip.done(step);
            journal.write(&entry).unwrap();
        }
    }
    journal.remove(&entry.tenant).unwrap();
}

#[test]
fn pretend_guard() {
    // It inherits the role of the daemon that started it.
    if role("pretend_daemon").is_some() && !std::env::args().any(|arg| arg.ends_with("pretend_daemon")) {
        crate::guard::run().unwrap();
    }
}

fn hierarchies() -> Vec<PathBuf> {
    let Hierarchies { v1, v2 } = Hierarchies::under(Path::new("/sys/fs/cgroup"));
    [v1, v2].into_iter().flatten().collect()
}

#[test]
fn whenever_the_daemon_is_killed_nobody_is_frozen_or_stopped_two_seconds_later() {
    if !rustix::process::geteuid().is_root() || hierarchies().is_empty() {
        eprintln!("SKIPPED: only root can make cgroups");
        return;
    }
    for hierarchy in hierarchies() {
        let place = Place::new();
        let tenants: Vec<Tenant> = (0..TENANTS).map(|number| Tenant::start(&hierarchy, number)).collect();
        let lines: Vec<String> = tenants.iter().map(|it| format!("{} {}", it.dir.display(), it.child.id())).collect();
        std::fs::write(place.0.path().join("tenants"), lines.join("\n")).unwrap();
        for round in 0..ROUNDS {
            kill_one(&place, round);
            until("everybody is free", FREE_WITHIN, || tenants.iter().all(Tenant::is_free));
            until("nothing is on record", FREE_WITHIN, || {
                berth_store::read(&place.journal(), Path::new(PROC)).unwrap().entries.is_empty()
            });
        }
    }
}

/// Lets a daemon hold and release for some milliseconds and kills it in the middle of it.
fn kill_one(place: &Place, round: u64) {
    let _ = std::fs::remove_file(place.0.path().join("guard"));
    let mut daemon = again("pretend_daemon", place.0.path()).spawn().unwrap();
    until("the guard is in place", Duration::from_secs(30), || place.0.path().join("guard").exists());
    // Between any two steps; each takes a fraction of a millisecond.
    std::thread::sleep(Duration::from_micros(round * 7_919 % 23_000));
    daemon.kill().unwrap();
    daemon.wait().unwrap();
}

#[test]
fn a_guard_that_is_killed_is_replaced_and_the_new_one_does_its_work() {
    if !rustix::process::geteuid().is_root() || hierarchies().is_empty() {
        eprintln!("SKIPPED: only root can make cgroups");
        return;
    }
    let place = Place::new();
    let tenant = Tenant::start(&hierarchies()[0], TENANTS);
    std::fs::write(place.0.path().join("tenants"), format!("{} {}", tenant.dir.display(), tenant.child.id())).unwrap();
    let mut daemon = again("pretend_daemon", place.0.path()).spawn().unwrap();
    let guard = || std::fs::read_to_string(place.0.path().join("guard")).ok().and_then(|pid| pid.parse::<i32>().ok());
    until("a guard is in place", Duration::from_secs(30), || guard().is_some());
    let first = guard().unwrap();
    kill_process(Pid::from_raw(first).unwrap(), Signal::KILL).unwrap();
    until("another is in place", Duration::from_secs(30), || guard().is_some_and(|pid| pid != first));
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    until("the tenant is free", FREE_WITHIN, || tenant.is_free());
}
