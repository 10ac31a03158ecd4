//! The gate on a program that computes: the workload, on the simulated driver.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use berth_load::{GapRange, Mode, Phase};
use berth_model::{Bytes, Event, GpuIndex, HaltedCall, Moment, Mono, ProcKey};
use berth_sim::Profile;
use berth_sim::server::{ServeOptions, Server, find_libraries};
use tempfile::TempDir;

use super::super::{Options, Probes, available};
use super::gate::{signal_continue, until_stopped};
use crate::clock;
use crate::procs::Registry;
use crate::testing::skip;

/// A simulated GPU.
struct Simulator {
    dir: TempDir,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Simulator {
    fn start() -> Self {
        // Cargo builds a shared library only when its package is asked for, so ask: quick when nothing changed.
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "-p", "berth-sim-cuda", "-p", "berth-sim-nvml"]);
        build.args(if cfg!(debug_assertions) { &[][..] } else { &["--release"] });
        assert!(build.current_dir(env!("CARGO_MANIFEST_DIR")).status().unwrap().success());
        let dir = tempfile::tempdir().unwrap();
        let mut options = ServeOptions::new(dir.path(), Profile::builtin("h200").unwrap());
        options.libraries = Some(find_libraries().unwrap());
        let server = Server::bind(options).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || server.run(|| stopped.load(Ordering::Relaxed)).unwrap());
        Self { dir, stop, thread: Some(thread) }
    }

    fn libcuda(&self) -> PathBuf {
        self.dir.path().join("lib/libcuda.so.1")
    }
}

impl Drop for Simulator {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// The workload as a child of this test program, and the lines it has printed.
struct Workload {
    child: Child,
    lines: Arc<Mutex<Vec<berth_load::Line>>>,
    reader: Option<JoinHandle<()>>,
}

/// Tells a child of this test program to be a workload on this library.
const WORKLOAD: &str = "BERTH_TEST_GATED";

/// No test: what such a child runs.
#[test]
fn workload_process() {
    let Ok(library) = std::env::var(WORKLOAD) else { return };
    let mut options = berth_load::Options::new(Mode::Matmul);
    options.size = 2_048;
    options.library = library.into();
    // Time for the gate to come down on a busy machine: before the launch, and before the second stay.
    options.hold = Duration::from_secs(1);
    options.tasks = 2;
    options.task_gap = GapRange { min: Duration::from_secs(2), max: Duration::from_secs(2) };
    std::process::exit(berth_load::run(&options) as i32);
}

impl Workload {
    fn start(libcuda: &Path) -> Self {
        // By the running image, not by path: a build beside this run may have replaced the file.
        let mut child = Command::new("/proc/self/exe")
            .args(["--exact", "probes::tests::sim::workload_process", "--nocapture", "--test-threads=1"])
            .env(WORKLOAD, libcuda)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let lines = Arc::new(Mutex::new(Vec::new()));
        let read = lines.clone();
        let reader = std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                // The test program's own words come before the first line.
                let json = line.find('{').and_then(|at| serde_json::from_str(&line[at..]).ok());
                read.lock().unwrap().extend(json);
            }
        });
        Self { child, lines, reader: Some(reader) }
    }

    /// When it ended this phase last.
    fn ended(&self, wanted: Phase) -> Option<Mono> {
        let lines = self.lines.lock().unwrap();
        let is_end = |line: &&berth_load::Line| matches!(line.event, berth_load::Event::Phase { phase, edge: berth_load::Edge::End, .. } if phase == wanted);
        lines.iter().rev().find(is_end).map(|line| Mono(line.at.mono_ns))
    }

    fn finish(&mut self) {
        assert!(self.child.wait().unwrap().success());
        self.reader.take().unwrap().join().unwrap();
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn with_workload(test: &str, run: impl Fn(&Probes, &Receiver<Event>, &mut Workload, ProcKey)) {
    if let Err(reason) = available() {
        return skip(test, &reason.to_string());
    }
    let simulator = Simulator::start();
    for perf_events in [false, true] {
        let (event_tx, event_rx) = mpsc::channel();
        let registry = Registry::new("/proc".as_ref(), event_tx.clone()).unwrap();
        let options =
            Options { libraries: vec![simulator.libcuda()], perf_events, signals: true, ..Options::default() };
        let probes = Probes::start(options, move |pid| registry.resolve(pid), event_tx).unwrap();
        let mut workload = Workload::start(&simulator.libcuda());
        let process = next(&event_rx, |event| match event {
            Event::Moment { process, moment: Moment::DeviceOpen, .. } => Some(process),
            _ => None,
        });
        run(&probes, &event_rx, &mut workload, process);
    }
}

fn next<T>(event_rx: &Receiver<Event>, wanted: impl Fn(Event) -> Option<T>) -> T {
    loop {
        let event = event_rx.recv_timeout(crate::testing::PATIENCE).expect("an event in time");
        if let Some(found) = wanted(event) {
            return found;
        }
    }
}

fn halted(event: Event) -> Option<(ProcKey, HaltedCall)> {
    if let Event::Halted { process, call, .. } = event { Some((process, call)) } else { None }
}

#[test]
fn a_workload_has_its_input_in_place_when_it_stops_and_computes_when_it_is_let_go() {
    with_workload("a_gated_workload", |probes, event_rx, workload, process| {
        probes.gate(process).unwrap();
        probes.watch_drains(process, true).unwrap();
        assert_eq!(next(event_rx, halted), (process, HaltedCall::Launch));
        until_stopped(process);
        // What it printed before is still being read.
        crate::testing::eventually("its input is copied", || workload.ended(Phase::Input).is_some());
        assert_eq!(workload.ended(Phase::Kernel), None);
        let continued = clock::now();
        probes.ungate(process).unwrap();
        probes.continued(process);
        signal_continue(process);
        let drained = next(event_rx, |event| match event {
            Event::Drained { process: drained, at } if drained == process => Some(at),
            _ => None,
        });
        workload.finish();
        let computed = workload.ended(Phase::Kernel).unwrap();
        assert!(continued < drained && drained <= computed, "{continued:?} {drained:?} {computed:?}");
    });
}

#[test]
fn a_workload_waits_at_the_allocation_it_may_not_make_yet() {
    with_workload("a_limited_workload", |probes, event_rx, workload, process| {
        next(event_rx, |event| matches!(event, Event::Moment { moment: Moment::ContextGone, .. }).then_some(()));
        probes.allow(GpuIndex(0), Bytes(1 << 20)).unwrap();
        probes.limit_allocations(process, Some(GpuIndex(0))).unwrap();
        let (stopped, call) = next(event_rx, halted);
        assert_eq!((stopped, call), (process, HaltedCall::Allocation { bytes: Bytes(2_048 * 2_048 * 4) }));
        until_stopped(process);
        crate::testing::eventually("it is in its second stay", || {
            workload.ended(Phase::Context) > workload.ended(Phase::Alloc)
        });
        probes.limit_allocations(process, None).unwrap();
        probes.continued(process);
        signal_continue(process);
        workload.finish();
        assert!(workload.ended(Phase::Kernel) > workload.ended(Phase::Context));
    });
}
