//! Whether a process stands still: stopped by a signal, held by a debugger, or in a cgroup that is frozen, at whose wish ever.
//!
//! Only files are read, so that it costs a few tens of microseconds, and nothing that the process could write decides.

use std::fs;
use std::path::{Path, PathBuf};

use berth_model::Stat;

use crate::driver::cgroups::Hierarchies;

#[derive(Debug)]
pub struct Still {
    proc_root: PathBuf,
    hierarchies: Hierarchies,
}

impl Still {
    pub fn new(proc_root: &Path) -> Self {
        // Without, no freeze is seen; signals still are.
        let mounts = fs::read_to_string(proc_root.join("self/mounts")).unwrap_or_default();
        Self { proc_root: proc_root.to_owned(), hierarchies: Hierarchies::from_mounts(&mounts) }
    }

    /// One that is gone does not stand still.
    pub fn is_so(&self, pid: u32) -> bool {
        let read = |file: &str| fs::read(self.proc_root.join(pid.to_string()).join(file)).ok();
        let stopped = read("stat").and_then(|stat| Stat::parse(&stat)?.state()).is_some_and(is_stop);
        let is_frozen = || {
            let membership = read("cgroup").map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            membership.is_some_and(|membership| self.hierarchies.frozen(&membership).is_some())
        };
        stopped || is_frozen()
    }

    /// Neither stands still nor is gone.
    pub fn runs(&self, pid: u32) -> bool {
        self.proc_root.join(pid.to_string()).exists() && !self.is_so(pid)
    }
}

/// As proc(5) writes it.
fn is_stop(state: char) -> bool {
    matches!(state, 'T' | 't')
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    use rustix::process::{Pid, Signal, kill_process};

    use super::*;

    fn until(wanted: impl Fn() -> bool) {
        let started = Instant::now();
        while !wanted() {
            assert!(started.elapsed() < Duration::from_secs(10));
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_process_stands_still_from_a_stop_until_it_goes_on() {
        let still = Still::new(Path::new("/proc"));
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pid = Pid::from_child(&child);
        assert!(!still.is_so(child.id()) && still.runs(child.id()));
        kill_process(pid, Signal::STOP).unwrap();
        until(|| still.is_so(child.id()));
        kill_process(pid, Signal::CONT).unwrap();
        until(|| !still.is_so(child.id()));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(!still.is_so(child.id()) && !still.runs(child.id()), "it is gone");
    }
}
