//! Running the built binary and seeing what it says.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

pub const BERTH: &str = env!("CARGO_BIN_EXE_berth");

/// Far more than anything here takes; only a hang gets there.
pub const DEADLINE: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub struct Run {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Run {
    pub fn of(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// A line for bash, with the binary as `$BERTH`.
    pub fn shell(line: &str) -> Self {
        Self::of(Command::new("bash").args(["-c", line]).env("BERTH", BERTH).output().unwrap())
    }

    /// What it printed, if it succeeded.
    pub fn ok(self) -> String {
        assert_eq!(self.code, 0, "{}", self.stderr);
        self.stdout
    }
}

pub fn berth(args: &[&str]) -> Run {
    Run::of(Command::new(BERTH).args(args).stdin(Stdio::null()).output().unwrap())
}

pub fn dir_named(dir: &TempDir, name: &str) -> String {
    dir.path().join(name).to_str().unwrap().to_owned()
}

/// A process that is killed if the test fails before it ends.
#[derive(Debug)]
pub struct Running(pub Child);

impl Running {
    pub fn start(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::null()).spawn().unwrap())
    }

    pub fn signal(&self, signal: i32) {
        let pid = rustix::process::Pid::from_child(&self.0);
        let signal = rustix::process::Signal::from_named_raw(signal).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Its exit code and all it wrote to standard error, if that is a pipe.
    pub fn wait(mut self) -> (i32, String) {
        let status = until("the process to end", || self.0.try_wait().unwrap());
        let mut stderr = String::new();
        if let Some(mut pipe) = self.0.stderr.take() {
            pipe.read_to_string(&mut stderr).unwrap();
        }
        (status.code().unwrap_or(-1), stderr)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Polls until there is an answer.
pub fn until<T>(what: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(answer) = poll() {
            return answer;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub fn until_exists(path: &str) {
    until(path, || Path::new(path).exists().then_some(()));
}
