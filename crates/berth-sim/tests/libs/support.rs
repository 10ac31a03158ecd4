//! Servers and client processes for the tests, each cleaned up when dropped.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use berth_proto::nvml_state::{self, Process, Reader};
use berth_proto::sim_dir;
use berth_sim::Profile;
use berth_sim::server::{Libraries, ServeOptions, Server, find_libraries};
use tempfile::TempDir;

use crate::client;

/// How long anything may take before a test says that it never came.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Cargo builds a cdylib only when its package is asked for, so ask: once per run, and quick when nothing changed.
pub fn libraries() -> Libraries {
    static BUILT: OnceLock<Libraries> = OnceLock::new();
    BUILT
        .get_or_init(|| {
            let mut build = Command::new(env!("CARGO"));
            build.args(["build", "--quiet", "-p", "berth-sim-cuda", "-p", "berth-sim-nvml"]);
            build.current_dir(env!("CARGO_MANIFEST_DIR"));
            if std::env::current_exe().unwrap().components().any(|part| part.as_os_str() == "release") {
                build.arg("--release");
            }
            assert!(build.status().unwrap().success());
            find_libraries().unwrap()
        })
        .clone()
}

pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A server in a thread of this process, in a directory of its own.
pub struct Sim {
    dir: TempDir,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Sim {
    pub fn start() -> Self {
        Self::with(|_| {})
    }

    /// The H200's profile, ten times as fast, changed by `change`.
    pub fn with(change: impl FnOnce(&mut ServeOptions)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut options = ServeOptions::new(dir.path(), Profile::builtin("h200").unwrap());
        options.libraries = Some(libraries());
        options.time_scale = 10.0;
        change(&mut options);
        let server = Server::bind(options).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || server.run(|| stopped.load(Ordering::Relaxed)).unwrap());
        Self { dir, stop, thread: Some(thread) }
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn library(&self, soname: &str) -> PathBuf {
        self.dir().join(sim_dir::LIBRARIES).join(soname)
    }

    pub fn client(&self) -> Client {
        Client::start(&self.library(sim_dir::CUDA_SONAME), &[])
    }

    pub fn snapshot(&self) -> Reader {
        Reader::open(&self.dir().join(nvml_state::FILE_NAME)).unwrap()
    }

    /// The process as NVML lists it on the first GPU.
    pub fn listed(&self, pid: u32) -> Option<Process> {
        self.snapshot().gpu(0).unwrap().processes.into_iter().find(|process| process.pid == pid)
    }

    pub fn used_bytes(&self) -> u64 {
        self.snapshot().gpu(0).unwrap().used_bytes
    }

    pub fn stop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A server in a process of its own, to be killed.
pub struct SimProcess(Child);

impl SimProcess {
    pub fn start(dir: &Path) -> Self {
        libraries();
        let child = Command::new("/proc/self/exe")
            .args(["--exact", "client::server_process", "--nocapture"])
            .env(client::SERVE, dir)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let server = Self(child);
        until("the server", || UnixStream::connect(dir.join(sim_dir::SOCKET)).ok());
        server
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    pub fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for SimProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A process that uses the driver when told to.
pub struct Client {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

/// What a command came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Done {
    pub code: u32,
    pub value: u64,
    pub took: Duration,
}

impl Client {
    pub fn start(libcuda: &Path, environment: &[(&str, &str)]) -> Self {
        Self::spawn(Self::command(libcuda).envs(environment.iter().copied()))
    }

    /// As another user; for tests that run as root.
    pub fn start_as(libcuda: &Path, uid: u32) -> Self {
        Self::spawn(Self::command(libcuda).uid(uid))
    }

    /// By the running image, not by path: a build beside this run may have replaced the file.
    fn command(libcuda: &Path) -> Command {
        let mut command = Command::new("/proc/self/exe");
        command.args(["--exact", "client::client_process", "--nocapture", "--test-threads=1"]);
        command.env(client::LIBRARY, libcuda).current_dir("/");
        command
    }

    fn spawn(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, input, output }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn send(&mut self, command: &str) {
        writeln!(self.input.as_mut().unwrap(), "{command}").unwrap();
    }

    pub fn answer(&mut self) -> Done {
        for line in (&mut self.output).lines() {
            let line = line.unwrap();
            let Some(answer) = line.strip_prefix("@ ") else { continue };
            let numbers: Vec<u64> = answer.split(' ').map(|word| word.parse().unwrap()).collect();
            let code = u32::try_from(numbers[0]).unwrap();
            return Done { code, value: numbers[1], took: Duration::from_micros(numbers[2]) };
        }
        panic!("the client ended without an answer");
    }

    pub fn ask(&mut self, command: &str) -> Done {
        self.send(command);
        self.answer()
    }

    /// Must succeed; gives the value.
    pub fn must(&mut self, command: &str) -> u64 {
        let done = self.ask(command);
        assert_eq!(done.code, 0, "{command}");
        done.value
    }

    /// With a context, some memory and a kernel.
    pub fn ready(mut self) -> Self {
        for command in ["init", "ctx 0", "alloc 67108864", "module"] {
            self.must(command);
        }
        self
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: our own child, not yet waited for.
        assert_eq!(unsafe { libc::kill(i32::try_from(self.pid()).unwrap(), signal) }, 0);
    }

    /// Leaves by itself, without destroying anything.
    pub fn quit(mut self) {
        self.send("quit");
        self.child.wait().unwrap();
    }

    /// The pipe to the client; whoever forked from it sees its end when this is dropped.
    pub fn take_input(&mut self) -> Option<ChildStdin> {
        self.input.take()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
