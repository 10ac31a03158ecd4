//! Who would notice that a process stops: a terminal's shell, or a parent that waits for stops as well as for ends.
//!
//! Most parents wait for an end only, and are told of nothing else. A shell with job control, `su` or `sudo` is: it takes the
//! stop for a person's and goes on, or stops itself. What a parent waits for is seen only while it waits.
//!
//! It matters where the kernel halts processes by signals, and where a wait for a freeze has come to nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use berth_model::{ProcKey, Stat};
use rustix::fs::{Mode, OFlags, RawDir};

/// The option of `wait4` and `waitid` by which stops are told too.
const STOPS: u64 = 2;
/// Looks for stops whenever it is signalled, and waits for other things meanwhile.
const ALWAYS_LOOKS: [&str; 1] = ["sudo"];
/// Files read in one look at a tenant: how many processes and threads there are is its choice, and it is looked at several times a
/// second.
const MOST_READS: usize = 96;
/// Threads of one parent that are looked at. A shell has one.
const MOST_THREADS: usize = 16;

#[cfg(target_arch = "x86_64")]
const WAITS: [(u64, usize); 2] = [(61, 2), (247, 3)];
#[cfg(target_arch = "aarch64")]
const WAITS: [(u64, usize); 2] = [(260, 2), (95, 3)];

/// Those of `processes` whose stop would be noticed, as far as can be told now. What cannot be read has ended; of very many not all
/// are looked at, nor all threads of their parents.
pub fn whose_stop_would_be_seen(proc_root: &Path, processes: &BTreeSet<ProcKey>) -> Vec<ProcKey> {
    let mut look = Look { proc_root, reads_left: MOST_READS, parents: BTreeMap::new() };
    processes.iter().copied().filter(|process| look.would_be_seen(*process)).collect()
}

/// One look at a tenant's processes.
struct Look<'a> {
    proc_root: &'a Path,
    reads_left: usize,
    /// Whether they look for stops; many processes have the same.
    parents: BTreeMap<u32, bool>,
}

impl Look<'_> {
    fn would_be_seen(&mut self, process: ProcKey) -> bool {
        let stat = self.read(&self.proc_root.join(process.pid.to_string()).join("stat"));
        let Some((parent, terminal)) = Stat::parse(&stat).and_then(|stat| stat.parent().zip(stat.terminal())) else {
            return false;
        };
        terminal != 0 || self.parent_looks(parent)
    }

    fn parent_looks(&mut self, parent: u32) -> bool {
        if let Some(looks) = self.parents.get(&parent) {
            return *looks;
        }
        let dir = self.proc_root.join(parent.to_string());
        let name = self.read(&dir.join("comm"));
        let looks = ALWAYS_LOOKS.iter().any(|always| always.as_bytes() == name.trim_ascii_end())
            || first_threads(&dir).iter().any(|thread| {
                let call = self.read(&dir.join("task").join(thread).join("syscall"));
                waits_for_stops(&String::from_utf8_lossy(&call))
            });
        self.parents.insert(parent, looks);
        looks
    }

    fn read(&mut self, path: &Path) -> Vec<u8> {
        match self.reads_left.checked_sub(1) {
            Some(left) => self.reads_left = left,
            None => return Vec::new(),
        }
        fs::read(path).unwrap_or_default()
    }
}

/// The first threads of a process, which the kernel lists in the order in which they came. The buffer is small because it makes an
/// entry for each that has room in there.
fn first_threads(dir: &Path) -> Vec<OsString> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(task) = rustix::fs::open(dir.join("task"), flags, Mode::empty()) else { return Vec::new() };
    let mut buffer = [MaybeUninit::uninit(); 1 << 10];
    let mut entries = RawDir::new(task, &mut buffer);
    let mut threads = Vec::new();
    while let Some(Ok(entry)) = entries.next()
        && threads.len() < MOST_THREADS
    {
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name != "." && name != ".." {
            threads.push(name.to_owned());
        }
    }
    threads
}

/// By `/proc/PID/syscall`: the call's number and its arguments in hexadecimal.
fn waits_for_stops(call: &str) -> bool {
    let mut words = call.split_ascii_whitespace();
    let Some(number) = words.next().and_then(|number| number.parse::<u64>().ok()) else { return false };
    let Some((_, options)) = WAITS.iter().find(|(wait, _)| *wait == number) else { return false };
    let options = words.nth(*options).and_then(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok());
    options.is_some_and(|options| options & STOPS != 0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt as _;
    use std::process::{Child, Command, Stdio};

    use super::*;
    use crate::procs::read;
    use crate::testing::eventually;

    /// A shell, and the `sleep` it waits for.
    fn shell(script: &str) -> (Child, ProcKey) {
        let shell = Command::new("bash").args(["-c", script]).stdin(Stdio::null()).process_group(0).spawn().unwrap();
        let children = format!("/proc/{0}/task/{0}/children", shell.id());
        let mut child = None;
        eventually("a child of the shell", || {
            let text = fs::read_to_string(&children).unwrap_or_default();
            child = text.split_whitespace().next().and_then(|pid| pid.parse().ok());
            child.is_some()
        });
        let process = read::key(Path::new("/proc"), child.unwrap()).unwrap();
        (shell, process)
    }

    fn end(mut shell: Child) {
        let group = rustix::process::Pid::from_child(&shell);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        shell.kill().unwrap();
        shell.wait().unwrap();
    }

    fn would_see_a_stop(process: ProcKey) -> bool {
        !whose_stop_would_be_seen(Path::new("/proc"), &[process].into()).is_empty()
    }

    #[test]
    fn a_shell_with_job_control_would_see_its_child_stop() {
        let (shell, child) = shell("set -m; sleep 1000 & fg %1; true");
        eventually("a wait for stops", || would_see_a_stop(child));
        let _ = rustix::process::kill_process(
            rustix::process::Pid::from_raw(child.pid.cast_signed()).unwrap(),
            rustix::process::Signal::KILL,
        );
        end(shell);
    }

    #[test]
    fn a_script_that_waits_for_an_end_would_not() {
        let (shell, child) = shell("sleep 1000; true");
        let waits = format!("/proc/{}/syscall", shell.id());
        eventually("the shell to wait", || fs::read_to_string(&waits).is_ok_and(|call| !call.starts_with("running")));
        assert!(!would_see_a_stop(child));
        end(shell);
    }

    /// A process with a terminal or without, and its parent with so many threads, each of which waits for stops.
    fn put(proc_root: &Path, pid: u32, parent: u32, terminal: u32, threads: u32) {
        let (dir, tasks) = (proc_root.join(pid.to_string()), proc_root.join(parent.to_string()).join("task"));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("stat"), format!("{pid} (x) S {parent} 1 1 {terminal} 0 0 0")).unwrap();
        for thread in 0..threads {
            let dir = tasks.join(thread.to_string());
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("syscall"), format!("{} 0x0 0x0 0x2", WAITS[0].0)).unwrap();
        }
    }

    #[test]
    fn however_many_processes_a_tenant_has_a_bounded_number_is_looked_at() {
        let host = tempfile::tempdir().unwrap();
        (1_000..2_000).for_each(|pid| put(host.path(), pid, 1, 34_816, 0));
        let processes = (1_000..2_000).map(|pid| ProcKey { pid, start_ticks: 1 }).collect();
        assert_eq!(whose_stop_would_be_seen(host.path(), &processes).len(), MOST_READS);
    }

    #[test]
    fn of_the_threads_of_a_parent_only_the_first_are_looked_at_and_those_once() {
        let host = tempfile::tempdir().unwrap();
        (1_000..1_010).for_each(|pid| put(host.path(), pid, 1, 0, 0));
        put(host.path(), 1_010, 1, 0, 500);
        assert_eq!(first_threads(&host.path().join("1")).len(), MOST_THREADS);
        let processes: BTreeSet<_> = (1_000..1_011).map(|pid| ProcKey { pid, start_ticks: 1 }).collect();
        let mut look = Look { proc_root: host.path(), reads_left: MOST_READS, parents: BTreeMap::new() };
        assert!(processes.iter().all(|process| look.would_be_seen(*process)));
        assert_eq!(MOST_READS - look.reads_left, processes.len() + 2, "its name and its first thread");
    }

    #[test]
    fn only_waits_for_stops_count() {
        let (wait4, waitid) = (WAITS[0].0, WAITS[1].0);
        assert!(waits_for_stops(&format!("{wait4} 0xffffffff 0x7ffd 0x2 0x0 0x0 0x0 0x7ffd 0x7f00\n")));
        assert!(waits_for_stops(&format!("{waitid} 0x1 0x7 0x7ffd 0x6 0x0 0x0 0x7ffd 0x7f00\n")));
        assert!(!waits_for_stops(&format!("{wait4} 0xffffffff 0x7ffd 0x0 0x0 0x0 0x0 0x7ffd 0x7f00\n")));
        assert!(!waits_for_stops("7 0x1 0x1 0x2 0x2 0x2\n") && !waits_for_stops("running\n") && !waits_for_stops(""));
    }
}
