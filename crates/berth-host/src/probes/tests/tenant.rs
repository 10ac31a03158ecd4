//! A process that calls a driver library on command and tells when, compiled from C when the tests run.

use std::cell::Cell;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use tempfile::TempDir;

/// A directory with the driver library and the program, on an inode of its own.
pub struct Workshop {
    _directory: TempDir,
    pub driver: PathBuf,
    pub program: PathBuf,
    started: Cell<u32>,
}

pub struct Tenant {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    counts: Option<PathBuf>,
}

/// When the tenant called, by its own `CLOCK_MONOTONIC`.
#[derive(Debug, Clone, Copy)]
pub struct Called {
    pub before: u64,
    /// After the first call.
    pub after: u64,
    /// Nanoseconds of processor time that all repetitions took, which a busy machine hardly stretches.
    pub cpu: u64,
}

impl Workshop {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let source = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let (driver, program) = (directory.path().join("libcuda.so.1"), directory.path().join("tenant"));
        cc(&["-shared", "-fPIC"], &source("driver.c", include_str!("driver.c")), &driver, &[]);
        cc(&[], &source("tenant.c", include_str!("tenant.c")), &program, &["-ldl", "-lpthread"]);
        Self { _directory: directory, driver, program, started: Cell::new(0) }
    }

    pub fn tenant(&self) -> Tenant {
        let counts = self.program.with_file_name(format!("counts-{}", self.started.replace(self.started.get() + 1)));
        std::fs::write(&counts, [0; 4096]).unwrap();
        let mut command = Command::new(&self.program);
        let mut tenant = Tenant::start(command.arg(&self.driver).env("BERTH_TEST_COUNTS", &counts));
        tenant.counts = Some(counts);
        tenant
    }
}

fn cc(flags: &[&str], source: &Path, output: &Path, libraries: &[&str]) {
    let status =
        Command::new("cc").arg("-O1").args(flags).arg("-o").arg(output).arg(source).args(libraries).status().unwrap();
    assert!(status.success(), "compile {}", source.display());
}

impl Tenant {
    pub fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, stdin, stdout, counts: None }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its parent has been told nothing of it that had not been asked for: no stop, no going on.
    pub fn is_unseen(&self) -> bool {
        use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
        let options = WaitIdOptions::STOPPED | WaitIdOptions::CONTINUED | WaitIdOptions::NOHANG;
        waitid(WaitId::Pid(Pid::from_child(&self.child)), options).unwrap().is_none()
    }

    pub fn call(&mut self, what: &str) -> Called {
        self.repeat(what, 1)
    }

    pub fn repeat(&mut self, what: &str, times: u32) -> Called {
        self.begin(what, times);
        self.answer(what)
    }

    /// Begins a call that may not come back.
    pub fn begin(&mut self, what: &str, times: u32) {
        writeln!(self.stdin, "{what} {times}").unwrap();
    }

    /// Waits for the end of what was begun.
    pub fn answer(&mut self, what: &str) -> Called {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        let numbers: Vec<u64> = line.split_whitespace().map(|n| n.parse().unwrap()).collect();
        let [before, after, cpu] = numbers[..] else { panic!("the tenant died at {what}: {:?}", self.child.wait()) };
        Called { before, after, cpu }
    }

    /// Launches and allocations that the driver was really given.
    pub fn made(&self) -> [u64; 2] {
        let bytes = std::fs::read(self.counts.as_ref().unwrap()).unwrap();
        [0, 8].map(|at| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()))
    }
}

impl Drop for Tenant {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
