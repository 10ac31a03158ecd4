//! Child processes that are gone when the test is, however it ends; and waiting with a deadline.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

pub const BERTH: &str = env!("CARGO_BIN_EXE_berth");

/// Far more than anything here takes, also on a machine that is busy with other things; only a hang gets there.
const PATIENCE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(10);

/// Polls until there is an answer.
pub fn until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    until_within(PATIENCE, what, look)
}

/// The same for what takes its time by design.
pub fn until_within<T>(patience: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited {patience:?} in vain for {what}");
        std::thread::sleep(POLL);
    }
}

/// Looks on for a while: for claims that something does not happen, which no event can end.
pub fn throughout(window: Duration, mut look: impl FnMut()) {
    let end = Instant::now() + window;
    while Instant::now() < end {
        look();
        std::thread::sleep(POLL);
    }
}

/// What a command that ran to its end answered.
#[derive(Debug)]
pub struct Run {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Run {
    /// What it printed, if it succeeded.
    pub fn ok(self) -> String {
        assert_eq!(self.code, 0, "{}{}", self.stdout, self.stderr);
        self.stdout
    }
}

impl From<Output> for Run {
    fn from(output: Output) -> Self {
        Self {
            code: code(output.status),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

pub fn run(command: &mut Command) -> Run {
    let output = command.stdin(Stdio::null()).output();
    output.unwrap_or_else(|error| panic!("running {:?}: {error}", command.get_program())).into()
}

/// A process that is killed and reaped when dropped, unless it has ended before.
#[derive(Debug)]
pub struct Running(Child);

impl Running {
    pub fn start(command: &mut Command) -> Self {
        Self(command.spawn().unwrap_or_else(|error| panic!("running {:?}: {error}", command.get_program())))
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// The first line of its standard output, which must be a pipe; empty if it ends without one.
    pub fn first_line(&mut self) -> String {
        let mut line = String::new();
        BufReader::new(self.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        line
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    pub fn is_running(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }

    /// As a shell counts it: a signal is 128 and its number.
    pub fn wait(&mut self) -> i32 {
        code(until("a process to end", || self.0.try_wait().unwrap()))
    }

    /// Kills it and waits for its end; its pid is free afterwards.
    pub fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}
