//! Rows that show whether they are whole, and processes that play writer or reader.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use berth_proto::table::{Deadline, Due, ProcessKinds, Risk, Row, Runtime, Stamp, State, Tenant, Unit};
use tempfile::TempDir;

/// A directory in memory if there is one, as in real life.
pub fn directory() -> TempDir {
    let shm = Path::new("/dev/shm");
    let parent = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
    tempfile::Builder::new().prefix("berth-table-").tempdir_in(parent).unwrap()
}

pub fn path_in(directory: &TempDir) -> PathBuf {
    directory.path().join("tasks")
}

pub fn stamp(counter: u64) -> Stamp {
    Stamp { mono_ns: counter, wall_ns: counter }
}

/// Every field says the same number.
pub fn row_of(counter: u64) -> Row {
    let small = u32::try_from(counter % 1_000_000).unwrap();
    Row {
        tenant: Tenant::Container { runtime: Some(Runtime::Docker), id: Some(format!("{counter:064x}")) },
        name: format!("name-{counter:040}"),
        owner: Some(format!("owner-{counter:020}")),
        gpu_index: Some(small),
        gpu_uuid: Some(format!("GPU-{counter:036}")),
        memory_bytes: Some(counter),
        core_pct: Some(u8::try_from(counter % 101).unwrap()),
        state: Some(State::Computing),
        task_id: Some(counter),
        task_started: Some(stamp(counter)),
        deadline: Some(Deadline {
            deadline_ns: counter,
            unit: Some(Unit::Task),
            due: Some(Due { mono_ns: counter, risk: Some(Risk::Safe) }),
            hits: small,
            misses: small,
            unknown: small,
            last_float_ns: Some(i64::from(small)),
        }),
        process_kinds: ProcessKinds { compute: true, ..ProcessKinds::default() },
        pids: vec![small; 16],
        pids_left_out: 0,
        text_cut: false,
    }
}

/// Their number depends on the counter as well.
pub fn rows_of(counter: u64, most: u64) -> Vec<Row> {
    (0..=counter % most).map(|_| row_of(counter)).collect()
}

/// Polls until `check` gives something.
pub fn eventually<T>(what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = check() {
            return found;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "no {what} within a minute");
        std::thread::yield_now();
    }
}

/// Another process, killed at the latest when the test ends.
#[derive(Debug)]
pub struct Other(pub Child);

impl Other {
    /// Runs one of the tests in `children.rs` on the table at `path`.
    pub fn start(role: &str, path: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", &format!("children::{role}"), "--ignored"]);
        Self(command.env("BERTH_TEST_TABLE", path).stdout(Stdio::null()).spawn().unwrap())
    }

    pub fn signal(&self, signal: i32) {
        let pid = i32::try_from(self.0.id()).unwrap();
        // SAFETY: a signal to a child of ours that has not been waited for, so its pid is still its own.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
    }

    /// Stops it and waits until it has stopped.
    pub fn stop(&self) {
        self.signal(libc::SIGSTOP);
        eventually("stopped process", || (self.state() == Some('T')).then_some(()));
    }

    pub fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    fn state(&self) -> Option<char> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id())).ok()?;
        stat.rsplit(") ").next()?.chars().next()
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
