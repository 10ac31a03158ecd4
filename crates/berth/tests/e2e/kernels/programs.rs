//! Programs with the library, each in a cgroup of its own: `berth load` in one of its roles, told what to do line by line.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use berth_load::roles::Calibration;
use berth_load::roles::words::{Checked, Ready, Said, Served, Trained};
use berth_model::TenantKey;

use crate::support::{BERTH, Cgroup, Host, skip_unprepared};

/// Far more than any answer takes on a machine that is busy; only a hang gets there.
const PATIENCE: Duration = Duration::from_secs(60);

/// The library, built beside the binary; `None`, said loudly, without it.
pub fn library(test: &str) -> Option<PathBuf> {
    let library = Path::new(BERTH).with_file_name("libberth_shim.so");
    if !library.exists() {
        skip_unprepared(test, "build berth-shim");
        return None;
    }
    Some(library)
}

pub struct Program {
    child: Child,
    stdin: Option<ChildStdin>,
    said: Receiver<String>,
    name: String,
    pub ready: Ready,
    /// After the process: it must be empty when removed.
    pub cgroup: Arc<Cgroup>,
}

impl Program {
    /// A role with its options; returns when it is ready.
    pub fn start(host: &Host, library: &Path, name: &str, args: &[&str]) -> Self {
        Self::start_in(&Arc::new(Cgroup::make(name)), host, library, name, args)
    }

    pub fn start_in(cgroup: &Arc<Cgroup>, host: &Host, library: &Path, name: &str, args: &[&str]) -> Self {
        let mut command = with_library(cgroup, host, library, args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(host.log(name));
        let mut child = command.spawn().unwrap();
        let (said_tx, said) = mpsc::channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| said_tx.send(line)));
        let (stdin, cgroup) = (child.stdin.take(), Arc::clone(cgroup));
        let mut program = Self { child, stdin, said, name: name.to_owned(), ready: Ready::default(), cgroup };
        let said = program.says();
        let Said::Ready(ready) = said else { panic!("{name} is not ready: {said:?}") };
        program.ready = ready;
        program
    }

    pub fn key(&self) -> TenantKey {
        self.cgroup.key()
    }

    pub fn path(&self) -> &str {
        self.cgroup.path()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn tell(&self, words: &str) {
        writeln!(self.stdin.as_ref().unwrap(), "{words}")
            .unwrap_or_else(|error| panic!("telling {}: {error}", self.name));
    }

    /// The next it says.
    pub fn says(&self) -> Said {
        let line = self.said.recv_timeout(PATIENCE);
        let line = line.unwrap_or_else(|error| panic!("waited for {} in vain ({error})", self.name));
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{} says `{line}`: {error}", self.name))
    }

    /// If it has said something.
    pub fn has_said(&self) -> Option<Said> {
        self.said.try_recv().ok().map(|line| serde_json::from_str(&line).unwrap())
    }

    pub fn served(&self) -> Served {
        match self.says() {
            Said::Served(served) => served,
            said => panic!("{} says {said:?}", self.name),
        }
    }

    /// Ends its training.
    pub fn trained(&self) -> Trained {
        self.tell("enough");
        match self.says() {
            Said::Trained(trained) => trained,
            said => panic!("{} says {said:?}", self.name),
        }
    }

    pub fn checked(&self) -> Checked {
        match self.says() {
            Said::Checked(checked) => checked,
            said => panic!("{} says {said:?}", self.name),
        }
    }

    /// Kernels it has submitted since it began.
    pub fn submitted(&self) -> u64 {
        self.tell("kernels");
        match self.says() {
            Said::Kernels { submitted } => submitted,
            said => panic!("{} says {said:?}", self.name),
        }
    }

    /// Ends it by the end of its input; it must have gone well.
    pub fn end(mut self) {
        drop(self.stdin.take());
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{} ends with {status}", self.name);
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn with_library(cgroup: &Cgroup, host: &Host, library: &Path, args: &[&str]) -> Command {
    let mut command = cgroup.command(BERTH);
    command.arg("load").args(args).args(["--library", &host.library("libcuda.so.1")]);
    command.env("LD_PRELOAD", library).env("BERTH_SHIM_SOCKET", host.file("clients/shim.sock"));
    // On a busy machine the daemon's first answer may take a while.
    command.env("BERTH_SHIM_LOG", "1").env("BERTH_SHIM_WAIT_MS", "20000");
    command
}

/// Options by which another program's kernels are as long as this one's, without measuring again.
pub fn same_kernels(ready: &Ready) -> [String; 4] {
    let Calibration { blocks, rounds_per_us } = ready.calibration.unwrap();
    ["--blocks".into(), blocks.to_string(), "--rounds-per-us".into(), rounds_per_us.to_string()]
}
