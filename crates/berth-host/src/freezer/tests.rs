//! Real cgroups and real processes, in every hierarchy this machine has, and in a mount of the unified one alone.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use super::*;
use crate::testing::{eventually, skip};

const WITHIN: Duration = Duration::from_secs(2);
const PROC: &str = "/proc";
const CGROUP: &str = "/sys/fs/cgroup";

/// A cgroup for one test; its processes are killed and it is removed at the end.
pub(crate) struct TestCgroup {
    pub path: PathBuf,
}

impl TestCgroup {
    pub fn new(hierarchy: &Path) -> TestCgroup {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = format!("berth-test-{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        TestCgroup::at(hierarchy.join(name))
    }

    pub fn at(path: PathBuf) -> TestCgroup {
        fs::create_dir(&path).unwrap();
        TestCgroup { path }
    }

    pub fn dir(&self) -> CgroupDir {
        CgroupDir::open(&self.path).unwrap()
    }

    fn running(&self, script: &str) -> Reaped {
        Reaped(self.shell(script), self.dir())
    }

    /// A shell in it, running `script` once it has been moved there.
    pub fn shell(&self, script: &str) -> Child {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("read _; {script}")]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = shell.spawn().unwrap();
        fs::write(self.path.join("cgroup.procs"), child.id().to_string()).unwrap();
        child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        child
    }

    fn members(&self) -> Vec<i32> {
        let text = fs::read_to_string(self.path.join("cgroup.procs")).unwrap_or_default();
        text.lines().filter_map(|pid| pid.parse().ok()).collect()
    }
}

impl Drop for TestCgroup {
    fn drop(&mut self) {
        let Ok(dir) = CgroupDir::open(&self.path) else { return };
        dir.thaw(WITHIN).unwrap();
        eventually("the test's cgroup is empty and removed", || {
            for pid in self.members().into_iter().filter_map(Pid::from_raw) {
                let _ = kill_process(pid, Signal::KILL);
            }
            fs::remove_dir(&self.path).is_ok()
        });
    }
}

/// Ends its process whatever becomes of the test, frozen or not.
struct Reaped(Child, CgroupDir);

impl Drop for Reaped {
    fn drop(&mut self) {
        let _ = self.1.thaw(WITHIN);
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The hierarchies of this machine a test may make cgroups in.
pub(crate) fn hierarchies(test: &str) -> Vec<PathBuf> {
    let found = Hierarchies::under(Path::new(CGROUP));
    let is_usable = |mount: &PathBuf| {
        // Tests ask at the same time.
        let probe = mount.join(format!("berth-test-probe-{}-{test}", std::process::id()));
        fs::create_dir(&probe).and_then(|()| fs::remove_dir(&probe)).is_ok()
    };
    let usable: Vec<_> = [found.v1, found.v2].into_iter().flatten().filter(is_usable).collect();
    if usable.is_empty() {
        skip(test, "no cgroup hierarchy here can be written to");
    }
    usable
}

fn freezer() -> Freezer {
    Freezer::new(Path::new(PROC), Hierarchies::under(Path::new(CGROUP)), WITHIN)
}

/// Writes a line each time round, as fast as it can.
const COUNTING: &str = "while :; do echo x; done";

/// Reads until nothing more has been written since; what is in the pipe was written before.
fn drain(child: &mut Child) {
    let out = child.stdout.as_mut().unwrap();
    rustix::io::ioctl_fionbio(&*out, true).unwrap();
    let mut buffer = [0; 65_536];
    while out.read(&mut buffer).is_ok_and(|bytes| bytes > 0) {}
}

fn has_written(child: &mut Child) -> bool {
    child.stdout.as_mut().unwrap().read(&mut [0; 1]).is_ok_and(|bytes| bytes > 0)
}

#[test]
fn what_is_frozen_stands_still_until_it_is_thawed() {
    for hierarchy in hierarchies("what_is_frozen_stands_still_until_it_is_thawed") {
        let cgroup = TestCgroup::new(&hierarchy);
        let (freezer, dir) = (freezer(), cgroup.dir());
        let mut child = cgroup.running(COUNTING);
        assert_eq!(dir.state().unwrap(), State { motion: Motion::Thawed, own: false, above: false });
        freezer.freeze(&dir).unwrap();
        assert_eq!(dir.state().unwrap(), State { motion: Motion::Frozen, own: true, above: false });
        freezer.freeze(&dir).unwrap();
        drain(&mut child.0);
        let ticks = || fs::read_to_string(format!("/proc/{}/schedstat", child.0.id())).unwrap();
        let before = ticks();
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(ticks(), before, "it ran while frozen in {}", hierarchy.display());
        freezer.thaw(&dir).unwrap();
        eventually("it goes on", || has_written(&mut child.0));
        freezer.thaw(&dir).unwrap();
        assert_eq!(dir.state().unwrap(), State { motion: Motion::Thawed, own: false, above: false });
    }
}

#[test]
fn processes_that_fork_wildly_are_frozen_all_the_same() {
    for hierarchy in hierarchies("processes_that_fork_wildly_are_frozen_all_the_same") {
        let cgroup = TestCgroup::new(&hierarchy);
        let (freezer, dir) = (freezer(), cgroup.dir());
        let _children: Vec<_> = (0..4).map(|_| cgroup.running("while :; do (:) & (:) & (:); wait; done")).collect();
        for _ in 0..50 {
            freezer.freeze(&dir).unwrap();
            assert_eq!(dir.state().unwrap().motion, Motion::Frozen);
            let frozen = cgroup.members();
            std::thread::yield_now();
            assert_eq!(cgroup.members(), frozen, "somebody forked or ended while frozen");
            freezer.thaw(&dir).unwrap();
        }
    }
}

#[test]
fn cgroups_below_are_frozen_too_and_know_by_whom() {
    for hierarchy in hierarchies("cgroups_below_are_frozen_too_and_know_by_whom") {
        let outer = TestCgroup::new(&hierarchy);
        let inner = TestCgroup::at(outer.path.join("inner"));
        let _child = inner.running(COUNTING);
        outer.dir().freeze(WITHIN).unwrap();
        assert_eq!(inner.dir().state().unwrap(), State { motion: Motion::Frozen, own: false, above: true });
        inner.dir().freeze(WITHIN).unwrap();
        inner.dir().thaw(WITHIN).unwrap();
        assert_eq!(inner.dir().state().unwrap(), State { motion: Motion::Frozen, own: false, above: true });
        outer.dir().thaw(WITHIN).unwrap();
        assert_eq!(inner.dir().state().unwrap(), State { motion: Motion::Thawed, own: false, above: false });
    }
}

/// v2 tells a cgroup frozen when its own processes are, whatever those below it do.
#[test]
fn a_freeze_is_confirmed_when_the_cgroups_below_stand_still_as_well() {
    for hierarchy in hierarchies("a_freeze_is_confirmed_when_the_cgroups_below_stand_still_as_well") {
        let outer = TestCgroup::new(&hierarchy);
        let middle = TestCgroup::at(outer.path.join("middle"));
        let inner = TestCgroup::at(middle.path.join("inner"));
        let _own = outer.running("sleep 600");
        let _children: Vec<_> = (0..4).map(|_| inner.running("while :; do (:); done")).collect();
        for _ in 0..50 {
            outer.dir().freeze(WITHIN).unwrap();
            assert_eq!(inner.dir().state().unwrap().motion, Motion::Frozen, "in {}", hierarchy.display());
            outer.dir().thaw(WITHIN).unwrap();
        }
    }
}

#[test]
fn what_somebody_else_froze_is_refused_and_stays_frozen() {
    for hierarchy in hierarchies("what_somebody_else_froze_is_refused_and_stays_frozen") {
        let cgroup = TestCgroup::new(&hierarchy);
        let (freezer, dir) = (freezer(), cgroup.dir());
        let _child = cgroup.running(COUNTING);
        dir.freeze(WITHIN).unwrap();
        assert!(matches!(freezer.freeze(&dir), Err(FreezerError::HeldByOthers { .. })));
        freezer.thaw(&dir).unwrap();
        assert_eq!(dir.state().unwrap().motion, Motion::Frozen, "it was not ours");
        dir.thaw(WITHIN).unwrap();
        freezer.freeze(&dir).unwrap();
        freezer.thaw(&dir).unwrap();
        assert_eq!(dir.state().unwrap().motion, Motion::Thawed);
    }
}

#[test]
fn what_an_earlier_daemon_froze_is_thawed() {
    for hierarchy in hierarchies("what_an_earlier_daemon_froze_is_thawed") {
        let cgroup = TestCgroup::new(&hierarchy);
        let dir = cgroup.dir();
        let _child = cgroup.running(COUNTING);
        freezer().freeze(&dir).unwrap();
        freezer().thaw(&dir).unwrap();
        assert_eq!(dir.state().unwrap().motion, Motion::Thawed);
    }
}

#[test]
fn a_cgroup_that_is_gone_needs_no_thaw_and_a_new_one_of_its_name_is_not_it() {
    for hierarchy in hierarchies("a_cgroup_that_is_gone_needs_no_thaw_and_a_new_one_of_its_name_is_not_it") {
        let cgroup = TestCgroup::new(&hierarchy);
        let (freezer, dir) = (freezer(), cgroup.dir());
        freezer.freeze(&dir).unwrap();
        fs::remove_dir(&cgroup.path).unwrap();
        let gone = freezer.freeze(&dir).unwrap_err();
        assert!(gone.is_gone() && gone.to_string().contains(cgroup.path.to_str().unwrap()), "{gone}");
        assert!(CgroupDir::open(&cgroup.path).unwrap_err().is_gone());
        let again = TestCgroup::at(cgroup.path.clone());
        again.dir().freeze(WITHIN).unwrap();
        freezer.thaw(&dir).unwrap();
        assert_eq!(again.dir().state().unwrap().motion, Motion::Frozen, "frozen by somebody else, since");
        again.dir().thaw(WITHIN).unwrap();
        fs::remove_dir(&again.path).unwrap();
        freezer.thaw(&dir).unwrap();
    }
}

#[test]
fn a_tenant_is_found_by_its_process_and_a_parent_with_others_in_it_is_refused() {
    for hierarchy in hierarchies("a_tenant_is_found_by_its_process_and_a_parent_with_others_in_it_is_refused") {
        let outer = TestCgroup::new(&hierarchy);
        let inner = TestCgroup::at(outer.path.join("job"));
        let child = inner.running(COUNTING);
        let key = read::key(Path::new(PROC), child.0.id()).unwrap();
        assert_eq!(freezer().find(key).unwrap(), Some(inner.dir()));
        let refused = freezer().open(&outer.path).unwrap_err();
        assert!(matches!(refused, FreezerError::Refused { why: Refusal::Shared, .. }), "{refused}");
        let other = ProcKey { start_ticks: key.start_ticks + 1, ..key };
        assert!(freezer().find(other).unwrap_err().is_gone(), "another process has its pid now");
    }
}

#[test]
fn berth_s_own_cgroup_is_refused() {
    let own = read::key(Path::new(PROC), std::process::id()).unwrap();
    match freezer().find(own) {
        Ok(None) | Err(FreezerError::Refused { why: Refusal::OurOwn, .. }) => {}
        other => panic!("{other:?}"),
    }
}

/// The parent is in the cgroup too, as in a container: it looks for stopped children as soon as it can run.
#[test]
fn a_stop_that_is_undone_while_frozen_is_seen_by_nobody() {
    for hierarchy in hierarchies("a_stop_that_is_undone_while_frozen_is_seen_by_nobody") {
        let cgroup = TestCgroup::new(&hierarchy);
        let dir = cgroup.dir();
        let mut child = cgroup.running(COUNTING);
        let pid = Pid::from_child(&child.0);
        let seen = || {
            let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
            waitid(WaitId::Pid(pid), options).unwrap()
        };
        kill_process(pid, Signal::STOP).unwrap();
        eventually("it is stopped", || seen().is_some());
        dir.freeze(WITHIN).unwrap();
        kill_process(pid, Signal::CONT).unwrap();
        assert!(seen().is_none(), "continued while frozen in {}", hierarchy.display());
        drain(&mut child.0);
        assert!(!has_written(&mut child.0), "it ran while frozen");
        dir.thaw(WITHIN).unwrap();
        eventually("it goes on", || has_written(&mut child.0));
        assert!(seen().is_none());
    }
}

/// v1 keeps even the killed until the thaw: whoever leaves a cgroup frozen leaves processes nobody can end.
#[test]
fn the_killed_end_at_the_thaw_at_the_latest() {
    for hierarchy in hierarchies("the_killed_end_at_the_thaw_at_the_latest") {
        let cgroup = TestCgroup::new(&hierarchy);
        let dir = cgroup.dir();
        let mut child = cgroup.shell(COUNTING);
        dir.freeze(WITHIN).unwrap();
        child.kill().unwrap();
        if dir.version() == Version::V1 {
            std::thread::sleep(Duration::from_millis(20));
            assert!(child.try_wait().unwrap().is_none(), "v1 lets the killed die only when thawed");
            dir.thaw(WITHIN).unwrap();
        }
        eventually("the killed one ends", || child.try_wait().unwrap().is_some());
        dir.thaw(WITHIN).unwrap();
    }
}

/// Without any time at all, most freezes of busy processes are caught half-way.
#[test]
fn a_freeze_that_cannot_complete_is_undone() {
    for hierarchy in hierarchies("a_freeze_that_cannot_complete_is_undone") {
        let cgroup = TestCgroup::new(&hierarchy);
        let dir = cgroup.dir();
        let _children: Vec<_> = (0..4).map(|_| cgroup.running("while :; do (:) & (:); done")).collect();
        let mut undone = 0;
        for _ in 0..100 {
            match dir.freeze(Duration::ZERO) {
                Ok(()) => assert_eq!(dir.state().unwrap().motion, Motion::Frozen),
                Err(FreezerError::NotFrozen { .. }) => undone += 1,
                Err(other) => panic!("{other}"),
            }
            dir.thaw(WITHIN).unwrap();
            assert_eq!(dir.state().unwrap(), State { motion: Motion::Thawed, own: false, above: false });
        }
        assert!(undone > 0, "no freeze of busy processes was caught half-way in {}", hierarchy.display());
    }
}

/// Everything above once more where the unified hierarchy is all there is, as on a host without v1.
#[test]
fn all_of_it_holds_where_only_the_unified_hierarchy_is_mounted() {
    const TEST: &str = "all_of_it_holds_where_only_the_unified_hierarchy_is_mounted";
    const INSIDE: &str = "BERTH_TEST_UNIFIED_ONLY";
    if std::env::var_os(INSIDE).is_some() {
        assert_eq!(Hierarchies::under(Path::new(CGROUP)), Hierarchies { v1: None, v2: Some(CGROUP.into()) });
        return;
    }
    let mounts = "mount --make-rprivate / && umount -R /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup";
    let possible = Command::new("unshare").args(["-m", "sh", "-c", mounts]).output();
    if !possible.is_ok_and(|output| output.status.success()) {
        return skip(TEST, "the unified hierarchy cannot be mounted in a mount namespace");
    }
    let script = format!("{mounts} && exec \"$0\" \"$@\"");
    let mut tests = Command::new("unshare");
    tests.args(["-m", "sh", "-c", &script]).arg(std::env::current_exe().unwrap()).arg("freezer::tests::");
    let mut running = tests.env(INSIDE, "1").stdout(Stdio::piped()).spawn().unwrap();
    let lines: Vec<_> = BufReader::new(running.stdout.take().unwrap()).lines().map_while(Result::ok).collect();
    assert!(running.wait().unwrap().success(), "{}", lines.join("\n"));
}
