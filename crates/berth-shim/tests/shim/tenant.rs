//! A process with the library preloaded, before the driver of these tests, both compiled when the tests run.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use berth_proto::shim::{LIBRARY_NAME, SOCKET_VARIABLE};

/// How long anything may take before a test says that it never came.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// What errno is before each command, and must be after it.
const ERRNO: i64 = 77;

pub struct Tenant {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

/// Programs and libraries, made once per run.
struct Workshop {
    shim: PathBuf,
    directory: PathBuf,
}

impl Tenant {
    /// A program that loads the driver when it runs.
    pub fn start(socket: &Path) -> Self {
        Self::with("tenant", socket, |_| {})
    }

    pub fn with(program: &str, socket: &Path, change: impl FnOnce(&mut Command)) -> Self {
        let Workshop { shim, directory } = workshop();
        let mut command = Command::new(directory.join(program));
        command.arg(directory.join("libcuda.so.1")).env("LD_PRELOAD", shim).env(SOCKET_VARIABLE, socket);
        command.env("LD_LIBRARY_PATH", directory).stdin(Stdio::piped()).stdout(Stdio::piped());
        // A machine that is busy with tests is slow to answer.
        command.env("BERTH_SHIM_WAIT_MS", PATIENCE.as_millis().to_string());
        change(&mut command);
        let mut child = command.spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, stdin, stdout }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Gives a command without waiting for its answer.
    pub fn tell(&mut self, command: &str) {
        writeln!(self.stdin, "{command}").unwrap();
    }

    pub fn answer(&mut self) -> i64 {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        let mut numbers = line.split_whitespace().map(|word| word.parse::<i64>());
        let (Some(Ok(answer)), Some(Ok(errno))) = (numbers.next(), numbers.next()) else {
            panic!("the tenant says {line:?}");
        };
        assert_eq!(errno, ERRNO, "the library has changed errno");
        answer
    }

    pub fn ask(&mut self, command: &str) -> i64 {
        self.tell(command);
        self.answer()
    }

    /// A command that must succeed.
    pub fn run(&mut self, command: &str) {
        assert_eq!(self.ask(command), 0, "{command}");
    }

    /// How often the driver's function of this name was called.
    pub fn calls(&mut self, symbol: &str) -> i64 {
        self.ask(&format!("calls {symbol}"))
    }

    /// Kernels and copies that the GPU has done.
    pub fn done(&mut self) -> i64 {
        self.ask("done")
    }

    pub fn until(&mut self, what: &str, mut is_so: impl FnMut(&mut Self) -> bool) {
        until(what, || is_so(self));
    }

    /// Its end by itself, and how that was.
    pub fn finish(mut self) -> bool {
        drop(std::mem::replace(&mut self.stdin, spare()));
        self.child.wait().unwrap().success()
    }
}

impl Drop for Tenant {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Somewhere to write to, for who has closed its own.
fn spare() -> ChildStdin {
    Command::new("true")
        .stdin(Stdio::piped())
        .spawn()
        .map(|mut child| {
            let stdin = child.stdin.take().unwrap();
            child.wait().unwrap();
            stdin
        })
        .unwrap()
}

pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn workshop() -> &'static Workshop {
    static MADE: OnceLock<Workshop> = OnceLock::new();
    MADE.get_or_init(|| {
        let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("shim");
        std::fs::create_dir_all(&directory).unwrap();
        let (driver, tenant) = (include_str!("driver.c"), include_str!("tenant.c"));
        let symbolic = ["-shared", "-fPIC", "-Wl,-Bsymbolic", "-Wl,-soname,libcuda.so.1"];
        cc(&directory, "driver.c", driver, "libcuda.so.1", &symbolic);
        cc(&directory, "tenant.c", tenant, "tenant", &["-rdynamic"]);
        cc(&directory, "tenant.c", tenant, "linked", &["-Wl,--no-as-needed", "-L.", "-l:libcuda.so.1"]);
        Workshop { shim: build(), directory }
    })
}

/// Put in place whole: another run may be using it.
fn cc(directory: &Path, source: &str, text: &str, output: &str, flags: &[&str]) {
    let new = |name: &str| format!("{}.{name}", std::process::id());
    std::fs::write(directory.join(new(source)), text).unwrap();
    let mut command = Command::new("cc");
    command.current_dir(directory).args(["-O1", "-w", "-o", &new(output), &new(source)]);
    command.args(flags).args(["-ldl", "-lpthread"]);
    assert!(command.status().unwrap().success(), "compile {source}");
    std::fs::rename(directory.join(new(output)), directory.join(output)).unwrap();
    std::fs::remove_file(directory.join(new(source))).unwrap();
}

/// Cargo builds a cdylib only when its package is asked for. `BERTH_TEST_SHIM` names one that was built otherwise.
fn build() -> PathBuf {
    if let Some(library) = std::env::var_os("BERTH_TEST_SHIM") {
        return library.into();
    }
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "-p", "berth-shim"]).current_dir(env!("CARGO_MANIFEST_DIR"));
    let test = std::env::current_exe().unwrap();
    if test.components().any(|part| part.as_os_str() == "release") {
        build.arg("--release");
    }
    assert!(build.status().unwrap().success());
    let library = test.ancestors().nth(2).unwrap().join(LIBRARY_NAME);
    assert!(library.exists(), "{}", library.display());
    library
}
