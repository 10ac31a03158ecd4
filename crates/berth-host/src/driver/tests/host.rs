//! A simulated GPU, and processes on it: this test program itself, started again as a workload.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread::JoinHandle;
use std::time::Duration;

use berth_load::{Edge, Event, FOREVER, Line, Mode, Moment, Options as Load};
use berth_model::{Bytes, ProcKey};
use berth_sim::Profile;
use berth_sim::server::{ServeOptions, Server};
use tempfile::TempDir;

use super::{LONG, key};
use crate::driver::{Driver, DriverError, Options, ParkOptions, Parking};
use crate::nvml::{GpuLook, GpuProbe, NvmlProbe, RawReading};
use crate::testing::{eventually, libraries};

/// One GPU of 400 MiB, so slow that a small product takes it a second; it moves memory quickly.
pub struct SimHost {
    dir: TempDir,
    stop: Arc<AtomicBool>,
    server: Option<JoinHandle<()>>,
}

impl SimHost {
    pub fn start() -> Self {
        let mut profile = Profile::builtin("h200").unwrap();
        (profile.gpu.memory_mib, profile.context.memory_mib) = (400, 16);
        profile.compute.gflops = 2.0;
        (profile.checkpoint.save_base_ms, profile.checkpoint.restore_base_ms) = (50.0, 20.0);
        let dir = tempfile::tempdir().unwrap();
        let mut options = ServeOptions::new(dir.path(), profile);
        options.libraries = Some(libraries());
        let server = Server::bind(options).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let server = std::thread::spawn(move || server.run(|| stopped.load(Ordering::Relaxed)).unwrap());
        Self { dir, stop, server: Some(server) }
    }

    pub fn driver(&self) -> Driver {
        Driver::open(&self.library("libcuda.so.1"), Options::default()).unwrap()
    }

    pub fn probe(&self) -> NvmlProbe {
        NvmlProbe::open(&self.library("libnvidia-ml.so.1")).unwrap()
    }

    pub fn parking(&self) -> Parking {
        let options = ParkOptions { margin: Bytes::from_mib(16), ..ParkOptions::default() };
        Parking::new(self.driver(), Box::new(self.probe()), options)
    }

    /// Has memory, as NVML tells, and does nothing.
    pub fn idle(&self, memory: Bytes) -> Tenant {
        let tenant = Tenant::start(&self.library("libcuda.so.1"), &format!("hold:{}", memory.0));
        tenant.until_listed(&mut self.probe(), memory);
        tenant
    }

    /// Computes for a second, and ends.
    pub fn computing(&self) -> Tenant {
        self.product(1024)
    }

    /// Computes for four seconds, and ends.
    pub fn computing_long(&self) -> Tenant {
        self.product(1600)
    }

    fn product(&self, size: u32) -> Tenant {
        let tenant = Tenant::start(&self.library("libcuda.so.1"), &format!("matmul:{size}"));
        tenant.until(Moment::FirstLaunch);
        tenant
    }

    /// Launches something small ten times a second.
    pub fn light(&self) -> Tenant {
        let tenant = Tenant::start(&self.library("libcuda.so.1"), "light:64");
        tenant.until(Moment::KernelDone);
        tenant
    }

    /// Asks for the lock of another process, then parks it if told to, and ends without undoing anything.
    pub fn rival(&self, verb: &str, process: ProcKey) -> Rival {
        Rival::start(&self.library("libcuda.so.1"), verb, process)
    }

    fn library(&self, name: &str) -> PathBuf {
        self.dir.path().join("lib").join(name)
    }
}

impl Drop for SimHost {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.server.take().expect("taken here alone").join().unwrap();
    }
}

/// A workload in a process of its own, ended with the test.
pub struct Tenant {
    child: Child,
    line_rx: Receiver<Line>,
}

impl Tenant {
    /// It has its memory when this returns. `order` is a mode and its amount.
    pub fn start(libcuda: &Path, order: &str) -> Tenant {
        let mut child = spawn(libcuda, order);
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (line_tx, line_rx) = mpsc::channel();
        std::thread::spawn(move || {
            // The test runner's own words may stand before a line.
            let json = |line: String| serde_json::from_str(line.get(line.find('{')?..)?).ok();
            lines.map_while(Result::ok).filter_map(json).all(|line| line_tx.send(line).is_ok())
        });
        let tenant = Tenant { child, line_rx };
        tenant.until(Moment::FirstAllocation);
        tenant
    }

    /// Waits until it has passed this moment; when that was, on the monotonic clock.
    pub fn until(&self, wanted: Moment) -> u64 {
        loop {
            let line = self.line_rx.recv_timeout(LONG).unwrap_or_else(|_| panic!("no {wanted:?} within ten seconds"));
            match line.event {
                Event::Moment { moment, edge: Edge::End, .. } if moment == wanted => return line.at.mono_ns,
                _ => {}
            }
        }
    }

    /// Waits until NVML tells that it has more than this.
    pub fn until_listed(&self, probe: &mut NvmlProbe, memory: Bytes) {
        probe.inventory().unwrap();
        let pid = self.key().pid;
        let has = |gpu: &GpuLook| {
            let RawReading::Ok { processes: Ok(listed), .. } = &gpu.reading else { return false };
            listed.iter().any(|process| process.pid == pid && process.memory > Some(memory))
        };
        eventually("its memory is told", || probe.look(false).gpus.iter().any(has));
    }

    pub fn key(&self) -> ProcKey {
        key(self.child.id())
    }

    /// Whether it ended well by itself.
    pub fn finish(&mut self) -> bool {
        self.child.wait().unwrap().success()
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }
}

impl Drop for Tenant {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Another daemon, which can be killed.
pub struct Rival(Child);

impl Rival {
    pub fn start(libcuda: &Path, verb: &str, process: ProcKey) -> Rival {
        Rival(spawn(libcuda, &format!("{verb}:{}", process.pid)))
    }

    pub fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Rival {
    fn drop(&mut self) {
        self.kill();
    }
}

fn spawn(libcuda: &Path, order: &str) -> Child {
    // By the running image, not by path: a build beside this run may have replaced the file.
    Command::new("/proc/self/exe")
        .args(["--exact", "driver::tests::host::tenant_process", "--nocapture", "--test-threads=1"])
        .env(ORDER, format!("{order}:{}", libcuda.display()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Between the two rounds of a pausing tenant: longer than its memory takes to be moved out and back.
const PAUSE: Duration = Duration::from_secs(15);

/// Tells a child of this test program what to be: `MODE:AMOUNT:LIBCUDA`, or `VERB:PID:LIBCUDA` on another process.
const ORDER: &str = "BERTH_TEST_DRIVER_TENANT";

/// No test: what such a child runs.
#[test]
fn tenant_process() {
    let Ok(order) = std::env::var(ORDER) else { return };
    let mut parts = order.splitn(3, ':');
    let (mode, amount) = (parts.next().unwrap(), parts.next().unwrap());
    if let "lock" | "park" = mode {
        let driver = Driver::open(parts.next().unwrap().as_ref(), Options::default()).unwrap();
        let process = key(amount.parse().unwrap());
        // Whoever watches asks for locks too.
        while matches!(driver.lock(process, LONG), Err(DriverError::Busy { .. })) {}
        if mode == "park" {
            driver.checkpoint(process, LONG).unwrap();
        }
        return;
    }
    let mut options = match mode {
        "hold" => Load { alloc_bytes: amount.parse().unwrap(), hold: FOREVER, ..Load::new(Mode::Hold) },
        // Computes, pauses with its memory, computes again, and checks what it got.
        "pausing" => {
            Load { size: amount.parse().unwrap(), repeats: 2, gap: PAUSE, verify: true, ..Load::new(Mode::Matmul) }
        }
        "light" => Load { size: amount.parse().unwrap(), ..Load::new(Mode::Light) },
        _ => Load { size: amount.parse().unwrap(), ..Load::new(Mode::Matmul) },
    };
    options.library = parts.next().unwrap().into();
    std::process::exit(berth_load::run(&options) as i32);
}
