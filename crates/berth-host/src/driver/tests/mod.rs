//! The driver's steps on a driver that does as it is told, on the simulated one with real processes, and on a real GPU.

mod fake_driver;
mod host;
mod parking;
mod real_gpu;
mod simulated;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use berth_model::ProcKey;

const SOON: Duration = Duration::from_millis(50);
const LONG: Duration = Duration::from_secs(10);

/// A process that does nothing, ended with the test.
struct Sleeper(Child);

impl Sleeper {
    fn new() -> Self {
        Self(Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().unwrap())
    }

    fn key(&self) -> ProcKey {
        key(self.0.id())
    }

    fn end(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.end();
    }
}

/// Who has this pid now.
fn key(pid: u32) -> ProcKey {
    crate::procs::read::key(Path::new("/proc"), pid).unwrap()
}
