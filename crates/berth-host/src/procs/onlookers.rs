//! Who would notice that a process stops: a terminal's shell, or a parent that waits for stops as well as for ends.
//!
//! Most parents wait for an end only, and are told of nothing else. A shell with job control, `su` or `sudo` is: it takes the
//! stop for a person's and goes on, or stops itself. What a parent waits for is seen only while it waits.
//!
//! It matters where the kernel halts processes by signals, and where a wait for a freeze has come to nothing.

use std::fs;
use std::path::Path;

use berth_model::{ProcKey, Stat};

/// The option of `wait4` and `waitid` by which stops are told too.
const STOPS: u64 = 2;
/// Looks for stops whenever it is signalled, and waits for other things meanwhile.
const ALWAYS_LOOKS: [&str; 1] = ["sudo"];

#[cfg(target_arch = "x86_64")]
const WAITS: [(u64, usize); 2] = [(61, 2), (247, 3)];
#[cfg(target_arch = "aarch64")]
const WAITS: [(u64, usize); 2] = [(260, 2), (95, 3)];

/// Whether a stop of the process would be noticed, as far as can be told now. What cannot be read has ended.
pub fn would_see_a_stop(proc_root: &Path, process: ProcKey) -> bool {
    let stat = fs::read(proc_root.join(process.pid.to_string()).join("stat")).unwrap_or_default();
    let Some((parent, terminal)) = Stat::parse(&stat).and_then(|stat| stat.parent().zip(stat.terminal())) else {
        return false;
    };
    terminal != 0 || parent_looks(&proc_root.join(parent.to_string()))
}

fn parent_looks(parent: &Path) -> bool {
    let name = fs::read_to_string(parent.join("comm")).unwrap_or_default();
    let threads = fs::read_dir(parent.join("task")).into_iter().flatten().flatten();
    let calls = threads.map(|thread| fs::read_to_string(thread.path().join("syscall")).unwrap_or_default());
    ALWAYS_LOOKS.contains(&name.trim_end()) || calls.into_iter().any(|call| waits_for_stops(&call))
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

    #[test]
    fn a_shell_with_job_control_would_see_its_child_stop() {
        let (shell, child) = shell("set -m; sleep 1000 & fg %1; true");
        eventually("a wait for stops", || would_see_a_stop(Path::new("/proc"), child));
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
        assert!(!would_see_a_stop(Path::new("/proc"), child));
        end(shell);
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
