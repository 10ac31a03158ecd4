//! The process a call is made on, pinned: the driver takes bare pids, and a pid may be handed out again at any moment.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use berth_model::{ProcKey, Stat};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::error::DriverError;

/// A process that lived when it was pinned. As long as it lives, its pid means it.
#[derive(Debug)]
pub struct Target {
    pub process: ProcKey,
    /// As the driver wants it.
    pub pid: i32,
    pidfd: OwnedFd,
    /// The state letter of proc(5) when it was pinned.
    letter: char,
}

impl Target {
    /// `Gone` if it has ended, or another process has its pid.
    pub fn pin(proc_root: &Path, process: ProcKey) -> Result<Target, DriverError> {
        let gone = DriverError::Gone { pid: process.pid };
        let Some(pid) = i32::try_from(process.pid).ok().and_then(Pid::from_raw) else { return Err(gone) };
        let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) => pidfd,
            Err(Errno::SRCH | Errno::INVAL | Errno::NOENT) => return Err(gone),
            Err(error) => return Err(unreadable(process, "pidfd", error.into())),
        };
        let stat = fs::read(proc_root.join(process.pid.to_string()).join("stat"));
        if !is_alive(&pidfd) {
            return Err(gone);
        }
        let stat = stat.map_err(|source| unreadable(process, "stat", source))?;
        let stat = Stat::parse(&stat).filter(|stat| stat.start_ticks() == Some(process.start_ticks));
        let letter = stat.and_then(|stat| stat.state()).ok_or(gone)?;
        Ok(Target { process, pid: pid.as_raw_nonzero().get(), pidfd, letter })
    }

    /// A zombie does not live.
    pub fn is_alive(&self) -> bool {
        is_alive(&self.pidfd)
    }

    /// Stopped by a signal or a debugger when it was pinned. One whose first thread berth itself keeps at a call is not: the
    /// others run.
    pub fn is_stopped(&self, proc_root: &Path) -> bool {
        match self.letter {
            'T' => true,
            't' => !is_traced_by_us(proc_root, self.process),
            _ => false,
        }
    }
}

/// The tracer is told as one of its threads.
fn is_traced_by_us(proc_root: &Path, process: ProcKey) -> bool {
    let status = read(proc_root, process, "status").unwrap_or_default();
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:")).map_or("", str::trim);
    !tracer.is_empty() && Path::new("/proc/self/task").join(tracer).exists()
}

/// One of the files of the process. What it says is the process's if it still lives afterwards.
pub fn read(proc_root: &Path, process: ProcKey, file: &'static str) -> Result<String, DriverError> {
    let bytes = fs::read(proc_root.join(process.pid.to_string()).join(file));
    match bytes {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(DriverError::Gone { pid: process.pid }),
        Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => {
            Err(DriverError::Gone { pid: process.pid })
        }
        Err(source) => Err(unreadable(process, file, source)),
    }
}

fn unreadable(process: ProcKey, file: &'static str, source: io::Error) -> DriverError {
    DriverError::Read { pid: process.pid, file, source }
}

/// A pidfd is readable from the moment the last thread has exited.
fn is_alive(pidfd: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
    matches!(poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn myself() -> ProcKey {
        let stat = fs::read("/proc/self/stat").unwrap();
        ProcKey { pid: std::process::id(), start_ticks: Stat::parse(&stat).unwrap().start_ticks().unwrap() }
    }

    #[test]
    fn a_pid_that_was_handed_out_again_is_not_the_process_that_was_meant() {
        let me = myself();
        assert!(Target::pin("/proc".as_ref(), me).unwrap().is_alive());
        let former = ProcKey { start_ticks: me.start_ticks - 1, ..me };
        assert!(matches!(Target::pin("/proc".as_ref(), former), Err(DriverError::Gone { .. })));
        let none = ProcKey { pid: 0, ..me };
        assert!(matches!(Target::pin("/proc".as_ref(), none), Err(DriverError::Gone { pid: 0 })));
    }
}
