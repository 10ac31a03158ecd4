//! The contract of [`GpuProbe`], held by every probe, and what opening refuses.

mod fake_host;
mod real_gpu;
mod sim_host;
mod tenant;

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::mpsc::channel;

use berth_model::{Bytes, Event, GpuIndex, GpuReading, ProcessKind};

use super::*;
use crate::procs::Registry;
use crate::testing::eventually;
use fake_host::FakeHost;

/// A host with two GPUs on which a test can make things happen.
trait Host {
    fn probe(&mut self) -> Box<dyn GpuProbe>;
    /// Puts a living process on a GPU; its pid.
    fn occupy(&mut self, gpu: GpuIndex, memory: Bytes) -> u32;
    /// Ends it.
    fn vacate(&mut self, pid: u32);
    fn lose(&mut self, gpu: GpuIndex);
    fn bring_back(&mut self, gpu: GpuIndex);
    /// Puts other GPUs in the places of all there are; who was on those is on none.
    fn replace_all(&mut self);
}

const FIRST: GpuIndex = GpuIndex(0);
const SECOND: GpuIndex = GpuIndex(1);

fn reading(look: &Look, gpu: GpuIndex) -> &RawReading {
    &look.gpus.iter().find(|look| look.index == gpu).expect("every GPU of the inventory is in the look").reading
}

fn listed(look: &Look, gpu: GpuIndex) -> &[RawProcess] {
    match reading(look, gpu) {
        RawReading::Ok { processes: Ok(listed), .. } => listed,
        other => panic!("no process list: {other:?}"),
    }
}

fn contract(host: &mut dyn Host) {
    let mut probe = host.probe();
    assert_eq!(probe.look(false).gpus, [], "without an inventory there is nothing to look at");

    let gpus = probe.inventory().unwrap();
    assert_eq!(gpus.iter().map(|gpu| gpu.index).collect::<Vec<_>>(), [FIRST, SECOND]);
    assert_ne!(gpus[0].uuid, gpus[1].uuid);
    assert!(gpus.iter().all(|gpu| gpu.memory_total.is_some_and(|total| total.0 > 0)));
    assert_eq!(probe.inventory().unwrap(), gpus, "asking again changes nothing");

    let before = crate::clock::now();
    let look = probe.look(false);
    assert!(look.at >= before);
    assert_eq!((listed(&look, FIRST), listed(&look, SECOND)), (&[][..], &[][..]));

    let pid = host.occupy(SECOND, Bytes::from_mib(64));
    eventually("the process is listed", || !listed(&probe.look(false), SECOND).is_empty());
    let look = probe.look(false);
    assert_eq!(listed(&look, FIRST), []);
    let [process] = listed(&look, SECOND) else { panic!("one process expected: {look:?}") };
    assert_eq!((process.pid, process.kind), (pid, ProcessKind::Compute));
    assert!(process.memory.is_some_and(|memory| memory >= Bytes::from_mib(64)), "{process:?}");
    assert_eq!(process.core, None, "not asked for");
    assert!(listed(&probe.look(true), SECOND)[0].core.is_some(), "asked for");

    host.lose(FIRST);
    let look = probe.look(true);
    assert!(matches!(reading(&look, FIRST), RawReading::Lost { reason } if !reason.is_empty()));
    assert_eq!(listed(&look, SECOND)[0].pid, pid, "the others go on, under their own index");

    let mut late = host.probe();
    assert_eq!(late.inventory().unwrap(), gpus[1..], "a lost GPU cannot be described");
    assert!(matches!(reading(&late.look(false), FIRST), RawReading::Lost { reason } if !reason.is_empty()));
    assert_eq!(listed(&late.look(false), SECOND)[0].pid, pid);

    host.bring_back(FIRST);
    eventually("the GPU that was lost from the first is read", || {
        matches!(reading(&late.look(false), FIRST), RawReading::Ok { .. })
    });
    assert_eq!(late.inventory().unwrap(), gpus);
    eventually("the GPU that came back is read", || {
        matches!(reading(&probe.look(false), FIRST), RawReading::Ok { .. })
    });
    assert_eq!(probe.inventory().unwrap(), gpus);

    host.vacate(pid);
    eventually("the process is unlisted", || listed(&probe.look(false), SECOND).is_empty());

    host.replace_all();
    eventually("those that were replaced are left out", || {
        let look = probe.look(false);
        let is_lost = |gpu: &GpuLook| matches!(gpu.reading, RawReading::Lost { .. });
        assert!(look.gpus.iter().all(is_lost), "another GPU is read as the old one: {look:?}");
        look.gpus.is_empty()
    });
    let others = probe.inventory().unwrap();
    assert_eq!(others.iter().map(|gpu| gpu.index).collect::<Vec<_>>(), [FIRST, SECOND]);
    assert!(others.iter().all(|other| gpus.iter().all(|gpu| gpu.uuid != other.uuid)), "{others:?}");
    assert_eq!(listed(&probe.look(false), FIRST), []);
}

#[test]
fn the_fake_keeps_the_contract() {
    contract(&mut FakeHost::new());
}

#[test]
fn a_listed_process_that_has_ended_is_left_out_of_the_sample() {
    let mut host = FakeHost::new();
    let (event_tx, event_rx) = channel();
    let registry = Registry::new(Path::new("/proc"), event_tx).unwrap();
    let mut probe = host.probe();
    probe.inventory().unwrap();
    let pid = host.occupy(FIRST, Bytes::from_mib(1));
    old_enough();
    let look = probe.look(false);
    let sample = look.clone().resolve(&registry, &mut Listings::default());
    assert!(matches!(event_rx.try_recv(), Ok(Event::Process(facts)) if facts.process.pid == pid));
    let GpuReading::Ok { processes: Ok(processes), .. } = &sample.gpus[0].reading else { panic!("{sample:?}") };
    assert_eq!(processes.iter().map(|process| process.process.pid).collect::<Vec<_>>(), [pid]);
    host.vacate(pid);
    let late = look.resolve(&registry, &mut Listings::default());
    let GpuReading::Ok { processes: Ok(processes), .. } = &late.gpus[0].reading else { panic!("{late:?}") };
    assert_eq!(*processes, []);
}

#[test]
fn a_newcomer_with_a_listed_pid_is_not_taken_for_the_listed_process() {
    let mut host = FakeHost::new();
    let registry = Registry::new(Path::new("/proc"), channel().0).unwrap();
    let mut probe = host.probe();
    probe.inventory().unwrap();
    // The driver lists a pid; by the time the look is resolved, another process has it.
    let mut look = probe.look(false);
    let newcomer = host.occupy(FIRST, Bytes::from_mib(1));
    let RawReading::Ok { processes, .. } = &mut look.gpus[0].reading else { panic!() };
    *processes = Ok(vec![RawProcess { pid: newcomer, kind: ProcessKind::Compute, memory: Some(Bytes(1)), core: None }]);
    let sample = look.resolve(&registry, &mut Listings::default());
    let GpuReading::Ok { processes: Ok(processes), .. } = &sample.gpus[0].reading else { panic!("{sample:?}") };
    assert_eq!(*processes, []);
}

#[test]
fn a_server_of_mps_is_known_by_the_program_that_runs_and_not_by_its_name() {
    let name = "nvidia-cuda-mps-server";
    let dir = tempfile::tempdir().unwrap();
    let installed = dir.path().join(name);
    fs::copy("/bin/sleep", &installed).unwrap();
    let mut children = [Command::new(&installed), Command::new("/bin/sleep")];
    children[1].arg0(format!("/usr/bin/{name}"));
    let mut children = children.map(|mut command| command.arg("60").spawn().unwrap());
    old_enough();
    let registry = Registry::new(Path::new("/proc"), channel().0).unwrap();
    let mut host = FakeHost::new();
    let mut probe = host.probe();
    probe.inventory().unwrap();
    let mut look = probe.look(false);
    let RawReading::Ok { processes, .. } = &mut look.gpus[0].reading else { panic!() };
    let listed = |child: &Child| RawProcess { pid: child.id(), kind: ProcessKind::Compute, memory: None, core: None };
    *processes = Ok(children.iter().map(listed).collect());
    let sample = look.resolve(&registry, &mut Listings::default());
    let GpuReading::Ok { processes: Ok(processes), .. } = &sample.gpus[0].reading else { panic!("{sample:?}") };
    let kinds: Vec<ProcessKind> = processes.iter().map(|process| process.kind).collect();
    // These tests may run in a container, and what runs there is its tenant's.
    let is_contained = registry.facts(children[0].id()).unwrap().tenant.container_id().is_some();
    let server = if is_contained { ProcessKind::Compute } else { ProcessKind::MpsServer };
    assert_eq!(kinds, [server, ProcessKind::Compute]);
    for child in &mut children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn a_list_that_cannot_be_read_says_nothing_about_who_is_there() {
    let mut host = FakeHost::new();
    let registry = Registry::new(Path::new("/proc"), channel().0).unwrap();
    let mut probe = host.probe();
    probe.inventory().unwrap();
    host.change(FIRST, |gpu| gpu.list_fails = Some("an internal driver error occurred".into()));
    let sample = probe.look(false).resolve(&registry, &mut Listings::default());
    let GpuReading::Ok { processes: Err(reason), .. } = &sample.gpus[0].reading else { panic!("{sample:?}") };
    assert_eq!(reason, "an internal driver error occurred");
    assert!(matches!(sample.gpus[1].reading, GpuReading::Ok { processes: Ok(_), .. }));
}

/// Set in the child that may open no more files.
const CHILD: &str = "BERTH_TEST_WITHOUT_FILES";

/// In a process of its own: the limit on open files holds for all tests in one.
#[test]
fn a_process_that_could_not_be_identified_once_is_found_by_the_next_look() {
    if std::env::var_os(CHILD).is_some() {
        return look_without_and_with_files();
    }
    let name = "nvml::tests::a_process_that_could_not_be_identified_once_is_found_by_the_next_look";
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    let output = child.args(["--exact", name, "--nocapture"]).env(CHILD, "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

fn look_without_and_with_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let mut host = FakeHost::new();
    let registry = Registry::new(Path::new("/proc"), channel().0).unwrap();
    let mut probe = host.probe();
    probe.inventory().unwrap();
    let pid = host.occupy(FIRST, Bytes::from_mib(1));
    old_enough();
    let mut listings = Listings::default();
    let mut seen = || {
        let sample = probe.look(false).resolve(&registry, &mut listings);
        let GpuReading::Ok { processes: Ok(processes), .. } = &sample.gpus[0].reading else { panic!("{sample:?}") };
        processes.iter().map(|process| process.process.pid).collect::<Vec<_>>()
    };
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(3), ..limit }).unwrap();
    let without = seen();
    setrlimit(Resource::Nofile, limit).unwrap();
    assert_eq!((without, seen()), (vec![], vec![pid]));
}

/// A process counts from the tick of 10 ms after its start.
fn old_enough() {
    let born = crate::clock::boot_ticks();
    eventually("a new tick", || crate::clock::boot_ticks() > born);
}

// === opening ===

fn refused(library: &Path) -> NvmlError {
    let error = NvmlProbe::open(library).map(drop).unwrap_err();
    let told = error.to_string();
    assert!(told.contains(&library.display().to_string()), "{told}");
    error
}

#[test]
fn a_library_that_is_not_there_is_told_by_path_and_by_name() {
    assert!(matches!(refused(Path::new("/nonexistent/libnvidia-ml.so.1")), NvmlError::NotFound { .. }));
    let error = refused(Path::new("libberth-no-such-library.so.1"));
    assert!(matches!(&error, NvmlError::NotFound { .. }) && error.to_string().contains("nvml.library"), "{error}");
}

#[test]
fn a_file_that_is_no_library_is_refused_with_the_loader_s_reason() {
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().join("libnvidia-ml.so.1");
    fs::write(&text, "this is not an ELF file, though it is long enough to hold the header of one.............")
        .unwrap();
    let error = refused(&text);
    assert!(matches!(&error, NvmlError::NotALibrary { reason, .. } if reason.contains("ELF")), "{error}");
    assert!(matches!(refused(dir.path()), NvmlError::NotALibrary { .. }));
}

#[test]
fn a_library_that_is_no_nvml_is_refused_by_the_function_it_lacks() {
    let error = refused(Path::new("libc.so.6"));
    assert!(matches!(error, NvmlError::NotNvml { symbol: "nvmlInit_v2", .. }), "{error}");
}
