use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use proptest::prelude::*;

use super::Monitor;
use crate::cluster::PlacementId;
use crate::event::{
    Change, ContainerFacts, Event, Evidence, GpuInfo, GpuProcess, GpuReading, GpuSample, Moment, ProcessFacts,
    ProcessKind, Sample, Source, SourceStatus,
};
use crate::hold::Step;
use crate::id::{ContainerId, GpuIndex, GpuUuid, ProcKey, Runtime, TenantKey};
use crate::quantity::{Bytes, Percent};
use crate::settings;
use crate::snapshot::{Snapshot, TaskState};
use crate::time::{Anchor, Mono};

const MS: u64 = 1_000_000;

/// A host with two GPUs, driven by hand.
struct Host {
    monitor: Monitor,
    changes: Vec<Change>,
}

/// A process on a GPU in a sample.
type Listed = (ProcKey, u32, u64);

fn process(pid: u32) -> ProcKey {
    ProcKey { pid, start_ticks: u64::from(pid) * 10 }
}

fn container(letter: char) -> TenantKey {
    TenantKey::Container { runtime: Runtime::Docker, id: ContainerId(letter.to_string().repeat(64)) }
}

fn at(millis: u64) -> Mono {
    Mono(millis * MS)
}

fn gpu(index: u32) -> GpuInfo {
    GpuInfo {
        index: GpuIndex(index),
        uuid: GpuUuid(format!("GPU-{index}")),
        name: "Test".into(),
        memory_total: Some(Bytes::from_mib(24_000)),
        mig: Some(false),
    }
}

impl Host {
    fn new() -> Self {
        let mut host = Self { monitor: Monitor::new(settings::Monitor::default()), changes: Vec::new() };
        host.apply(Event::Gpus(vec![gpu(0), gpu(1)]));
        host.look(0, &[]);
        host
    }

    fn apply(&mut self, event: Event) {
        self.changes.extend(self.monitor.apply(event));
    }

    fn process(&mut self, key: ProcKey, tenant: &TenantKey) {
        let facts = ProcessFacts {
            process: key,
            tenant: tenant.clone(),
            uid: Some(1000),
            user: Some("ada".into()),
            command: "train".into(),
            started: Some(at(u64::from(key.pid))),
        };
        self.apply(Event::Process(facts));
    }

    fn moment(&mut self, key: ProcKey, moment: Moment, millis: u64) {
        self.apply(Event::Moment { process: key, moment, at: at(millis) });
    }

    /// A look at both GPUs that lists `(process, gpu, mib)`.
    fn look(&mut self, millis: u64, listed: &[Listed]) {
        self.look_with(millis, listed, Some(0));
    }

    fn look_with(&mut self, millis: u64, listed: &[Listed], core: Option<u32>) {
        let gpus = [0, 1].map(|gpu| {
            let here = listed.iter().filter(|(_, on, _)| *on == gpu);
            let processes = here.map(|(process, _, mib)| GpuProcess {
                process: *process,
                kind: ProcessKind::Compute,
                memory: Some(Bytes::from_mib(*mib)),
                core: None,
            });
            let reading = GpuReading::Ok {
                memory_used: Some(Bytes(0)),
                memory_free: None,
                core: core.and_then(Percent::checked),
                processes: Ok(processes.collect()),
            };
            GpuSample { index: GpuIndex(gpu), reading }
        });
        self.apply(Event::Sample(Sample {
            at: at(millis),
            took: Duration::ZERO,
            cpu: Duration::ZERO,
            gpus: gpus.into(),
        }));
    }

    fn snapshot(&mut self, millis: u64) -> Snapshot {
        self.monitor.snapshot(&Anchor { mono: at(millis), wall: wall(millis) })
    }

    fn started(&self) -> usize {
        self.changes.iter().filter(|change| matches!(change, Change::TaskStarted { .. })).count()
    }

    fn ended_ms(&self) -> Vec<u64> {
        let ended = self.changes.iter().filter_map(|change| match change {
            Change::TaskEnded { nanos, .. } => Some(nanos / MS),
            _ => None,
        });
        ended.collect()
    }
}

fn wall(millis: u64) -> Timestamp {
    Timestamp::from_millisecond(1_700_000_000_000 + i64::try_from(millis).unwrap()).unwrap()
}

#[test]
fn a_listed_process_is_a_task_until_it_is_no_longer_listed() {
    let mut host = Host::new();
    host.process(process(7), &container('a'));
    host.look(100, &[(process(7), 0, 518)]);
    host.look(200, &[(process(7), 0, 2_000)]);

    let rows = host.snapshot(250).tasks;
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].pids, [7]);
    assert_eq!(rows[0].gpu_index, Some(GpuIndex(0)));
    assert_eq!(rows[0].gpu_uuid, Some(GpuUuid("GPU-0".into())));
    assert_eq!(rows[0].gpu_memory_bytes, Some(Bytes::from_mib(2_000)));
    assert_eq!(rows[0].task_started_at, Some(wall(100)));
    assert_eq!(rows[0].task_seconds, Some(0.15));
    assert_eq!(rows[0].owner.as_deref(), Some("ada"));

    host.look(900, &[]);
    assert_eq!(host.ended_ms(), [800]);
    let after = host.snapshot(1_000);
    assert_eq!(after.tasks, []);
    assert_eq!(after.ended[0].peak_memory_bytes, Some(Bytes::from_mib(2_000)));
    assert_eq!(after.ended[0].gpus, [GpuIndex(0)]);
}

#[test]
fn a_probed_process_is_on_from_the_return_of_its_context_creation_however_often_one_looks() {
    for looks in [vec![], vec![160], vec![120, 140, 160, 180]] {
        let mut host = Host::new();
        host.process(process(7), &container('a'));
        host.moment(process(7), Moment::DeviceOpen, 100);
        for millis in looks {
            host.look(millis, &[(process(7), 0, 300)]);
            assert_eq!(host.snapshot(millis).tasks[0].state, TaskState::Opening);
        }
        host.moment(process(7), Moment::ContextReady, 200);
        host.look(210, &[(process(7), 0, 518)]);
        assert_eq!(host.snapshot(300).tasks[0].task_started_at, Some(wall(200)));
    }
}

#[test]
fn a_process_that_was_there_before_the_first_look_is_dated_by_its_own_start() {
    let mut host = Host::new();
    host.monitor.counters.samples = 0;
    host.process(process(7), &container('a'));
    host.look(100, &[(process(7), 0, 500)]);
    host.process(process(8), &container('b'));
    host.look(200, &[(process(7), 0, 500), (process(8), 0, 500)]);
    let known: Vec<_> =
        host.snapshot(300).tasks.iter().map(|row| (row.task_started_at, row.task_start_evidence)).collect();
    assert_eq!(known, [(Some(wall(7)), Some(Evidence::Process)), (Some(wall(200)), Some(Evidence::Look))]);
}

#[test]
fn what_probes_see_of_a_process_found_late_is_not_called_its_first() {
    let mut host = Host::new();
    host.process(process(7), &container('a'));
    host.look(100, &[(process(7), 0, 500)]);
    host.moment(process(7), Moment::FirstAllocation, 200);
    host.moment(process(7), Moment::FirstLaunch, 210);
    assert!(!host.changes.iter().any(|change| matches!(change, Change::MomentSeen { .. })));
    assert_eq!(host.snapshot(300).tasks[0].state, TaskState::Computing, "but it computes");
}

#[test]
fn a_process_the_probes_missed_is_not_left_opening_for_ever() {
    let mut host = Host::new();
    host.process(process(7), &container('a'));
    host.moment(process(7), Moment::DeviceOpen, 100);
    for millis in (200..11_000).step_by(200) {
        host.look(millis, &[(process(7), 0, 518)]);
    }
    assert_eq!(host.snapshot(11_000).tasks[0].task_started_at, Some(wall(200)));
}

#[test]
fn the_end_is_dated_by_the_context_s_destruction_once_a_look_confirms_it() {
    let mut host = Host::new();
    host.process(process(7), &container('a'));
    host.moment(process(7), Moment::ContextReady, 100);
    host.moment(process(7), Moment::ContextReady, 105);
    host.look(110, &[(process(7), 0, 518)]);
    host.moment(process(7), Moment::ContextGone, 300);
    host.look(301, &[(process(7), 0, 518)]);
    assert_eq!(host.ended_ms(), [0u64; 0], "a second context keeps it on");
    host.moment(process(7), Moment::ContextGone, 400);
    host.look(450, &[]);
    assert_eq!(host.ended_ms(), [300]);
}

#[test]
fn a_stay_between_two_looks_is_seen_by_probes_alone() {
    let mut host = Host::new();
    host.process(process(7), &container('a'));
    host.look(90, &[]);
    host.moment(process(7), Moment::ContextReady, 100);
    host.moment(process(7), Moment::ContextGone, 140);
    host.look(200, &[]);
    assert_eq!((host.started(), host.ended_ms()), (1, vec![40]));
}

#[test]
fn a_context_ready_after_the_look_began_is_not_ended_by_it() {
    let mut host = Host::new();
    host.process(process(7), &container('a'));
    host.moment(process(7), Moment::ContextReady, 100);
    host.look(99, &[]);
    assert_eq!(host.ended_ms(), [0u64; 0]);
    assert_eq!(host.snapshot(120).tasks[0].gpu_index, None, "shown without a GPU until the driver lists it");
}

#[test]
fn coming_back_after_the_context_is_gone_is_another_task() {
    let mut host = Host::new();
    host.process(process(7), &container('a'));
    for start in [100, 1_000] {
        host.moment(process(7), Moment::ContextReady, start);
        host.look(start + 10, &[(process(7), 0, 518)]);
        host.moment(process(7), Moment::ContextGone, start + 200);
        host.look(start + 210, &[]);
    }
    assert_eq!(host.ended_ms(), [200, 200]);
    let ids: Vec<_> = host.snapshot(2_000).ended.iter().map(|task| task.task_id.0).collect();
    assert_eq!(ids, [2, 1], "newest first");
}

#[test]
fn a_server_of_mps_is_told_from_its_clients_also_where_they_are_one_tenant() {
    let mut host = Host::new();
    let (server, client) = (process(1), process(2));
    [server, client].into_iter().for_each(|key| host.process(key, &container('a')));
    let listed = |process, kind| GpuProcess { process, kind, memory: None, core: None };
    let processes = Ok(vec![listed(server, ProcessKind::MpsServer), listed(client, ProcessKind::MpsClient)]);
    let gpus = vec![GpuSample {
        index: GpuIndex(0),
        reading: GpuReading::Ok { memory_used: None, memory_free: None, core: None, processes },
    }];
    host.apply(Event::Sample(Sample { at: at(10), took: Duration::ZERO, cpu: Duration::ZERO, gpus }));
    assert_eq!(host.monitor.mps_servers(), [1].into());
}

#[test]
fn several_processes_of_a_tenant_are_one_task() {
    let mut host = Host::new();
    host.process(process(7), &container('a'));
    host.process(process(8), &container('a'));
    host.look(100, &[(process(7), 0, 500), (process(8), 0, 700), (process(8), 1, 50)]);
    let rows = host.snapshot(150).tasks;
    assert_eq!(rows.len(), 2, "one row per GPU");
    assert_eq!((rows[0].pids.clone(), rows[0].gpu_memory_bytes), (vec![7, 8], Some(Bytes::from_mib(1_200))));
    assert_eq!(rows[0].task_id, rows[1].task_id);
    host.apply(Event::ProcessExited { process: process(7), at: at(200) });
    assert_eq!(host.ended_ms(), [0u64; 0]);
    host.apply(Event::ProcessExited { process: process(8), at: at(300) });
    assert_eq!((host.started(), host.ended_ms()), (1, vec![200]));
}

#[test]
fn an_exit_ends_the_task_at_once_and_a_late_look_does_not_bring_it_back() {
    let mut host = Host::new();
    host.process(process(7), &container('a'));
    host.look(100, &[(process(7), 0, 500)]);
    host.apply(Event::ProcessExited { process: process(7), at: at(300) });
    host.look(299, &[(process(7), 0, 500)]);
    assert_eq!((host.started(), host.ended_ms()), (1, vec![200]));
    assert_eq!(host.snapshot(400).tasks, []);
}

#[test]
fn a_process_that_exits_right_after_its_last_context_is_dated_by_the_context() {
    for (contexts, ends) in [(1, 200), (2, 250)] {
        let mut host = Host::new();
        host.process(process(7), &container('a'));
        for _ in 0..contexts {
            host.moment(process(7), Moment::ContextReady, 100);
        }
        host.look(150, &[(process(7), 0, 500)]);
        host.moment(process(7), Moment::ContextGone, 300);
        host.apply(Event::ProcessExited { process: process(7), at: at(350) });
        assert_eq!(host.ended_ms(), [ends], "with {contexts} contexts");
    }
}

#[test]
fn a_reused_pid_is_another_process() {
    let mut host = Host::new();
    let (first, second) = (process(7), ProcKey { pid: 7, start_ticks: 99_999 });
    host.process(first, &container('a'));
    host.look(100, &[(first, 0, 500)]);
    host.process(second, &container('b'));
    host.look(200, &[(second, 0, 800)]);
    let rows = host.snapshot(250).tasks;
    assert_eq!(rows.len(), 1);
    assert_eq!((&rows[0].tenant, rows[0].task_started_at), (&container('b'), Some(wall(200))));
    assert_eq!(host.ended_ms(), [100]);
}

#[test]
fn a_list_that_could_not_be_read_ends_nothing() {
    let mut host = Host::new();
    host.process(process(7), &container('a'));
    host.look(100, &[(process(7), 0, 500)]);
    let reading =
        GpuReading::Ok { memory_used: None, memory_free: None, core: None, processes: Err("unknown error".into()) };
    let gpus = vec![GpuSample { index: GpuIndex(0), reading }];
    host.apply(Event::Sample(Sample { at: at(200), took: Duration::ZERO, cpu: Duration::ZERO, gpus }));
    assert_eq!(host.ended_ms(), [0u64; 0]);
    let snapshot = host.snapshot(210);
    assert_eq!((snapshot.tasks.len(), snapshot.gpus[0].blind.as_deref()), (1, Some("unknown error")));
    assert_eq!(snapshot.gpus[1].blind, None, "the other GPU's list was read");
    host.look(300, &[(process(7), 0, 500)]);
    assert_eq!(host.snapshot(310).gpus[0].blind, None);
}

#[test]
fn a_gpu_that_vanishes_is_told_once_and_its_tenants_are_shown_lost() {
    let mut host = Host::new();
    host.process(process(7), &container('a'));
    host.look(100, &[(process(7), 0, 500)]);
    for millis in [200, 300] {
        let reading = GpuReading::Lost { reason: "GPU is lost".into() };
        let gpus = vec![GpuSample { index: GpuIndex(0), reading }];
        host.apply(Event::Sample(Sample { at: at(millis), took: Duration::ZERO, cpu: Duration::ZERO, gpus }));
    }
    let snapshot = host.snapshot(310);
    assert_eq!(snapshot.tasks[0].state, TaskState::Lost);
    assert_eq!(snapshot.gpus[0].lost.as_deref(), Some("GPU is lost"));
    assert_eq!(snapshot.counters.gpus_lost, 1);
    host.look(400, &[(process(7), 0, 500)]);
    assert!(host.changes.contains(&Change::GpuBack { gpu: GpuIndex(0) }));
    assert_eq!(host.started(), 1, "the task went on");
}

fn lost(index: u32, millis: u64) -> Event {
    let reading = GpuReading::Lost { reason: "GPU is lost".into() };
    let gpus = vec![GpuSample { index: GpuIndex(index), reading }];
    Event::Sample(Sample { at: at(millis), took: Duration::ZERO, cpu: Duration::ZERO, gpus })
}

#[test]
fn what_a_tenant_has_on_a_lost_gpu_is_unknown_from_the_moment_of_the_loss() {
    let mut host = Host::new();
    host.process(process(7), &container('a'));
    host.look_with(100, &[(process(7), 0, 500)], Some(70));
    host.look_with(900, &[(process(7), 0, 500)], Some(70));
    let figures = |host: &mut Host, millis| {
        let row = host.snapshot(millis).tasks.remove(0);
        (row.gpu_memory_bytes, row.gpu_core_pct)
    };
    assert_eq!(figures(&mut host, 910), (Some(Bytes::from_mib(500)), Percent::checked(70)));
    host.apply(lost(0, 1_000));
    assert_eq!(figures(&mut host, 1_000), (None, None));
    host.look(1_100, &[(process(7), 0, 600)]);
    assert_eq!(figures(&mut host, 1_100), (Some(Bytes::from_mib(600)), Percent::checked(0)));
}

/// Each tenant's own use is read now and then, and is good for longer than a look: not for longer than the GPU.
#[test]
fn a_share_of_a_shared_gpu_is_forgotten_with_the_gpu() {
    let mut host = Host::new();
    for (pid, letter) in [(7, 'a'), (8, 'b')] {
        host.process(process(pid), &container(letter));
    }
    let shares = [7, 8].map(|pid| GpuProcess {
        process: process(pid),
        kind: ProcessKind::Compute,
        memory: Some(Bytes::from_mib(500)),
        core: Percent::checked(30),
    });
    let reading = GpuReading::Ok { memory_used: None, memory_free: None, core: None, processes: Ok(shares.into()) };
    let gpus = vec![GpuSample { index: GpuIndex(0), reading }];
    host.apply(Event::Sample(Sample { at: at(100), took: Duration::ZERO, cpu: Duration::ZERO, gpus }));
    let cores = |host: &mut Host| host.snapshot(110).tasks.iter().map(|row| row.gpu_core_pct).collect::<Vec<_>>();
    assert_eq!(cores(&mut host), [Percent::checked(30); 2]);
    host.apply(lost(0, 105));
    assert_eq!(cores(&mut host), [None; 2]);
}

#[test]
fn a_gpu_lost_before_the_first_inventory_is_shown_lost_and_named_when_it_is_back() {
    let mut host = Host { monitor: Monitor::new(settings::Monitor::default()), changes: Vec::new() };
    host.apply(Event::Gpus(vec![gpu(1)]));
    host.apply(lost(0, 100));
    let view = host.snapshot(110).gpus.remove(0);
    assert_eq!((view.index, view.uuid, view.name, view.mig), (GpuIndex(0), None, None, None));
    assert_eq!(view.lost.as_deref(), Some("GPU is lost"));
    assert!(matches!(&host.changes[..], [Change::GpuLost { gpu: GpuIndex(0), .. }]), "{:?}", host.changes);

    host.process(process(7), &container('a'));
    host.look(200, &[(process(7), 0, 500)]);
    host.apply(Event::Gpus(vec![gpu(0), gpu(1)]));
    let snapshot = host.snapshot(210);
    assert_eq!((&snapshot.gpus[0].uuid, &snapshot.gpus[0].lost), (&Some(gpu(0).uuid), &None));
    assert_eq!(snapshot.tasks[0].gpu_uuid, Some(gpu(0).uuid), "who was found on it meanwhile stays on it");
    assert!(host.changes.contains(&Change::GpuBack { gpu: GpuIndex(0) }));
}

#[test]
fn who_was_on_a_gpu_that_is_gone_from_the_inventory_is_on_it_no_more() {
    let another = GpuInfo { uuid: GpuUuid("GPU-x".into()), ..gpu(1) };
    for inventory in [vec![gpu(0)], vec![gpu(0), another]] {
        let mut host = Host::new();
        host.process(process(7), &container('a'));
        host.process(process(8), &container('b'));
        host.look(100, &[(process(7), 0, 500), (process(8), 0, 500), (process(8), 1, 500)]);
        host.process(process(9), &container('c'));
        host.look(200, &[(process(7), 0, 500), (process(8), 0, 500), (process(8), 1, 500), (process(9), 1, 500)]);
        host.apply(Event::Gpus(inventory));
        let gpus: Vec<_> = host.snapshot(210).tasks.iter().map(|row| row.gpu_index.map(|gpu| gpu.0)).collect();
        assert_eq!(gpus, [None, Some(0), Some(0)]);
        host.look(300, &[(process(7), 0, 500), (process(8), 0, 500)]);
        assert_eq!(host.ended_ms(), [100], "one tenant was on no other GPU");
        assert_eq!(host.snapshot(310).tasks.len(), 2);
    }
}

#[test]
fn the_end_of_a_loss_is_told_also_when_another_gpu_has_come() {
    let another = GpuInfo { uuid: GpuUuid("GPU-x".into()), ..gpu(0) };
    for (inventory, is_back) in [(vec![another, gpu(1)], true), (vec![gpu(0), gpu(1)], false), (vec![gpu(1)], false)] {
        let mut host = Host::new();
        let reading = GpuReading::Lost { reason: "GPU is lost".into() };
        let gpus = vec![GpuSample { index: GpuIndex(0), reading }];
        host.apply(Event::Sample(Sample { at: at(100), took: Duration::ZERO, cpu: Duration::ZERO, gpus }));
        host.apply(Event::Gpus(inventory));
        assert_eq!(host.changes.contains(&Change::GpuBack { gpu: GpuIndex(0) }), is_back, "{:?}", host.changes);
        let lost = host.snapshot(110).gpus.iter().any(|gpu| gpu.lost.is_some());
        assert!(!(is_back && lost), "told to be back, and shown as lost");
    }
}

#[test]
fn a_probed_process_whose_gpu_is_gone_ends_like_one_that_stays_unlisted() {
    let mut host = Host::new();
    host.process(process(7), &container('a'));
    host.moment(process(7), Moment::ContextReady, 100);
    host.look(400, &[(process(7), 1, 500)]);
    host.apply(Event::Gpus(vec![gpu(0)]));
    host.look(500, &[]);
    assert_eq!(host.ended_ms(), [0u64; 0]);
    host.look(5_500, &[]);
    assert_eq!(host.ended_ms(), [300], "dated by the last look that listed it");
}

#[test]
fn a_gpu_that_went_before_a_context_was_made_does_not_end_the_stay_on_another() {
    let mut host = Host::new();
    host.process(process(7), &container('a'));
    host.moment(process(7), Moment::DeviceOpen, 100);
    host.look(200, &[(process(7), 1, 300)]);
    host.apply(Event::Gpus(vec![gpu(0)]));
    host.moment(process(7), Moment::ContextReady, 9_000);
    host.look(9_100, &[]);
    assert_eq!((host.started(), host.ended_ms().len()), (1, 0), "not listed yet");
}

#[test]
fn a_tenant_computes_then_idles() {
    let mut host = Host::new();
    host.process(process(7), &container('a'));
    host.look(100, &[(process(7), 0, 500)]);
    assert_eq!(host.snapshot(110).tasks[0].state, TaskState::Loaded);
    host.look_with(500, &[(process(7), 0, 500)], Some(97));
    let row = &host.snapshot(510).tasks[0];
    assert_eq!((row.state, row.gpu_core_pct.map(Percent::get)), (TaskState::Computing, Some(97)));
    host.look(2_400, &[(process(7), 0, 500)]);
    assert_eq!(host.snapshot(2_501).tasks[0].state, TaskState::Idle);
}

#[test]
fn what_a_tenant_that_just_left_computed_is_not_put_on_the_one_that_stays() {
    let mut host = Host::new();
    host.process(process(7), &container('a'));
    host.process(process(8), &container('b'));
    host.look_with(1_000, &[(process(7), 0, 500), (process(8), 0, 500)], Some(100));
    host.look_with(1_100, &[(process(7), 0, 500)], Some(100));
    let row = &host.snapshot(1_110).tasks[0];
    assert_eq!((row.state, row.gpu_core_pct), (TaskState::Loaded, None), "the figure still speaks of the other");
    host.look_with(1_500, &[(process(7), 0, 500)], Some(3));
    let row = &host.snapshot(1_510).tasks[0];
    assert_eq!((row.state, row.gpu_core_pct.map(Percent::get)), (TaskState::Computing, Some(3)));
}

#[test]
fn a_listing_that_outlives_the_last_context_does_not_delay_the_end() {
    let mut host = Host::new();
    host.process(process(7), &container('a'));
    host.moment(process(7), Moment::ContextReady, 100);
    host.look(150, &[(process(7), 0, 500)]);
    host.moment(process(7), Moment::ContextGone, 300);
    host.look(301, &[(process(7), 0, 500)]);
    host.look(320, &[]);
    assert_eq!(host.ended_ms(), [200]);
}

#[test]
fn core_use_of_sharing_tenants_is_unknown_unless_the_driver_tells_them_apart() {
    let mut host = Host::new();
    host.process(process(7), &container('a'));
    host.process(process(8), &container('b'));
    host.look_with(100, &[(process(7), 0, 500), (process(8), 0, 500)], Some(100));
    assert!(host.snapshot(110).tasks.iter().all(|row| row.gpu_core_pct.is_none()));
    assert!(host.monitor.wish(at(110), false).per_process_core, "and is asked for");
}

#[test]
fn names_are_asked_once_and_again_when_the_engine_comes_back() {
    let mut host = Host::new();
    let id = ContainerId("a".repeat(64));
    host.process(process(7), &container('a'));
    host.look(100, &[(process(7), 0, 500)]);
    assert_eq!(host.monitor.take_questions(), std::slice::from_ref(&id));
    assert_eq!(host.monitor.take_questions(), []);
    assert_eq!(host.snapshot(110).tasks[0].container_name, "aaaaaaaaaaaa");
    host.apply(Event::Source { source: Source::Docker, status: SourceStatus::Up });
    assert_eq!(host.monitor.take_questions(), std::slice::from_ref(&id));
    let facts = ContainerFacts {
        id: id.clone(),
        name: "trainer".into(),
        image: "torch".into(),
        labels: BTreeMap::new(),
        owner: Some("grace".into()),
        started_at: None,
        health: None,
        endurance: None,
        stop: crate::event::Stop::default(),
    };
    host.apply(Event::Container(Box::new(facts)));
    let row = &host.snapshot(120).tasks[0];
    assert_eq!((row.container_name.as_str(), row.owner.as_deref()), ("trainer", Some("grace")));
    host.apply(Event::ContainerGone { id });
    assert_eq!(host.snapshot(120).tasks[0].container_name, "trainer", "named until its processes are gone");
    assert_eq!(host.monitor.take_questions(), []);
}

#[test]
fn labels_say_what_a_container_needs_and_by_what_it_was_placed() {
    let told = |memory: &str, placement: &str| {
        let mut host = Host::new();
        host.process(process(7), &container('a'));
        host.look(100, &[(process(7), 0, 500)]);
        let labels = [("berth.memory", memory), ("berth.placement", placement)];
        let facts = ContainerFacts {
            id: ContainerId("a".repeat(64)),
            name: "trainer".into(),
            image: "torch".into(),
            labels: labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            owner: None,
            started_at: None,
            health: None,
            endurance: None,
            stop: crate::event::Stop::default(),
        };
        host.apply(Event::Container(Box::new(facts)));
        let row = host.snapshot(110).tasks.swap_remove(0);
        (row.memory_needed_bytes, row.placement)
    };
    assert_eq!(told("20GiB", "000000000000feed"), (Some(Bytes(20 << 30)), Some(PlacementId(0xfeed))));
    assert_eq!(told("much", "somewhere"), (None, None), "what is no such thing says nothing");
}

#[test]
fn kubernetes_is_asked_about_containers_of_any_runtime_and_docker_about_its_own() {
    let mut host = Host::new();
    let id = ContainerId("c".repeat(64));
    host.process(process(7), &TenantKey::Container { runtime: Runtime::Containerd, id: id.clone() });
    host.look(100, &[(process(7), 0, 500)]);
    assert_eq!(host.monitor.take_questions(), []);
    host.apply(Event::Source { source: Source::Kubernetes, status: SourceStatus::Up });
    assert_eq!(host.monitor.take_questions(), std::slice::from_ref(&id));
    assert_eq!(host.monitor.take_questions(), []);
    host.apply(Event::Source { source: Source::Kubernetes, status: SourceStatus::Down { reason: "away".into() } });
    assert_eq!(host.monitor.take_questions(), []);
    host.apply(Event::Source { source: Source::Kubernetes, status: SourceStatus::Up });
    assert_eq!(host.monitor.take_questions(), [id], "what it did not answer is asked again");
}

#[test]
fn a_question_taken_back_is_asked_again_unless_it_was_answered_meanwhile() {
    let mut host = Host::new();
    let id = ContainerId("a".repeat(64));
    host.process(process(7), &container('a'));
    assert_eq!(host.monitor.take_questions(), std::slice::from_ref(&id));
    host.monitor.ask_again(&id);
    assert_eq!(host.monitor.take_questions(), std::slice::from_ref(&id));
    let facts = ContainerFacts {
        id: id.clone(),
        name: "trainer".into(),
        image: "torch".into(),
        labels: BTreeMap::new(),
        owner: None,
        started_at: None,
        health: None,
        endurance: None,
        stop: crate::event::Stop::default(),
    };
    host.apply(Event::Container(Box::new(facts)));
    host.monitor.ask_again(&id);
    assert_eq!(host.monitor.take_questions(), []);
}

#[test]
fn an_answer_that_comes_right_after_the_engine_is_taken_whatever_was_asked_before() {
    let mut host = Host::new();
    host.process(process(7), &container('a'));
    host.look(100, &[(process(7), 0, 500)]);
    assert_eq!(host.monitor.take_questions().len(), 1);
    host.apply(Event::Source { source: Source::Docker, status: SourceStatus::Up });
    let facts = |letter: &str, name: &str| ContainerFacts {
        id: ContainerId(letter.repeat(64)),
        name: name.into(),
        image: String::new(),
        labels: BTreeMap::new(),
        owner: None,
        started_at: None,
        health: None,
        endurance: None,
        stop: crate::event::Stop::default(),
    };
    host.apply(Event::Container(Box::new(facts("a", "trainer"))));
    host.apply(Event::Container(Box::new(facts("b", "elsewhere"))));
    assert_eq!(host.snapshot(110).tasks[0].container_name, "trainer");
    assert_eq!(host.monitor.containers.len(), 1, "containers without a process here are not kept");
}

#[test]
fn probes_know_better_than_rumours() {
    let mut host = Host::new();
    host.apply(Event::Stirred { source: Source::ProcessEvents, at: at(150) });
    assert_eq!(host.monitor.wish(at(150), false).look_in, Duration::from_millis(20));
    let mut host = Host::new();
    host.apply(Event::Source { source: Source::Probes, status: SourceStatus::Up });
    host.apply(Event::Stirred { source: Source::ProcessEvents, at: at(150) });
    assert_eq!(host.monitor.wish(at(150), false).look_in, Duration::from_millis(500));
    assert_eq!(host.monitor.wish(at(150), true).look_in, Duration::from_millis(100), "somebody waits for it");
}

#[test]
fn a_probed_process_the_driver_drops_early_ends_when_its_destruction_returns() {
    let mut host = Host::new();
    host.process(process(7), &container('a'));
    host.moment(process(7), Moment::ContextReady, 100);
    host.look(150, &[(process(7), 0, 500)]);
    host.look(400, &[]);
    assert_eq!(host.ended_ms(), [0u64; 0], "the destruction is still under way");
    host.moment(process(7), Moment::ContextGone, 700);
    assert_eq!(host.ended_ms(), [600]);
}

#[test]
fn a_process_whose_context_was_never_made_is_not_shown_opening_for_ever() {
    for listings in [vec![], vec![150]] {
        let mut host = Host::new();
        host.process(process(7), &container('a'));
        host.moment(process(7), Moment::DeviceOpen, 100);
        for millis in listings {
            host.look(millis, &[(process(7), 0, 300)]);
        }
        assert_eq!(host.snapshot(160).tasks[0].state, TaskState::Opening);
        host.look(200, &[]);
        host.look(10_200, &[]);
        assert_eq!(host.snapshot(10_300).tasks, []);
        host.moment(process(7), Moment::ContextReady, 20_000);
        assert_eq!(host.started(), 1, "a later try is seen all the same");
    }
}

#[test]
fn a_probed_process_that_stays_unlisted_has_ended_unseen() {
    let mut host = Host::new();
    host.process(process(7), &container('a'));
    host.moment(process(7), Moment::ContextReady, 100);
    host.look(150, &[(process(7), 0, 500)]);
    for millis in (400..6_000).step_by(500) {
        host.look(millis, &[]);
    }
    assert_eq!(host.ended_ms(), [300], "dated by the first look that missed it");
}

#[test]
fn a_listing_before_a_later_context_is_ready_begins_nothing() {
    let mut host = Host::new();
    host.process(process(7), &container('a'));
    host.moment(process(7), Moment::ContextReady, 100);
    host.moment(process(7), Moment::ContextGone, 200);
    for millis in [250, 9_000] {
        host.look(millis, &[(process(7), 0, 100)]);
        assert_eq!(host.started(), 1, "at {millis}");
    }
    host.moment(process(7), Moment::ContextReady, 9_300);
    assert_eq!(host.snapshot(9_400).tasks[0].task_started_at, Some(wall(9_300)));
}

/// Any order of events a host could produce, and some it could not.
fn any_event() -> impl Strategy<Value = (u8, u32, u64)> {
    (0u8..8, 1u32..5, 0u64..60)
}

fn stepped(host: &mut Host, tenant: &TenantKey, step: Step, millis: u64) {
    host.apply(Event::Step { tenant: tenant.clone(), step, outcome: Ok(()), at: at(millis) });
}

#[test]
fn a_parked_process_stays_where_it_was_though_no_list_has_it() {
    for is_probed in [true, false] {
        let (mut host, tenant, one) = (Host::new(), container('a'), process(7));
        host.process(one, &tenant);
        if is_probed {
            host.moment(one, Moment::DeviceOpen, 10);
            host.moment(one, Moment::ContextReady, 20);
        }
        host.look(100, &[(one, 1, 300)]);
        stepped(&mut host, &tenant, Step::Lock(one), 200);
        stepped(&mut host, &tenant, Step::Checkpoint(one), 300);
        (400..20_000).step_by(500).for_each(|millis| host.look(millis, &[]));
        let rows = host.snapshot(20_000).tasks;
        let [row] = &rows[..] else { panic!("{rows:?}") };
        assert_eq!((row.gpu_index, row.gpu_memory_bytes), (Some(GpuIndex(1)), None), "it has nothing there now");
        stepped(&mut host, &tenant, Step::Restore(one), 20_100);
        stepped(&mut host, &tenant, Step::Unlock(one), 20_200);
        // A look that began while it was parked and came back late.
        host.look(20_150, &[]);
        host.look(20_300, &[(one, 1, 300)]);
        assert_eq!((host.started(), host.ended_ms().len()), (1, 0), "one stay throughout");
        assert_eq!(host.snapshot(20_300).tasks[0].gpu_memory_bytes, Some(Bytes::from_mib(300)));
    }
}

#[test]
fn who_was_parked_and_is_not_there_any_more_is_gone() {
    let (mut host, tenant, one) = (Host::new(), container('a'), process(7));
    host.process(one, &tenant);
    host.look(100, &[(one, 0, 300)]);
    stepped(&mut host, &tenant, Step::Lock(one), 200);
    host.look(300, &[]);
    stepped(&mut host, &tenant, Step::Unlock(one), 400);
    host.look(500, &[]);
    assert_eq!(host.ended_ms().len(), 1, "it gave its context back as soon as it could");
}

proptest! {
    #[test]
    fn tasks_of_a_tenant_never_overlap_and_every_end_had_a_start(events in prop::collection::vec(any_event(), 1..80)) {
        let mut host = Host::new();
        let mut clock = 1_000;
        for (kind, pid, jitter) in events {
            clock += 10;
            let when = clock - jitter.min(clock);
            let key = process(pid);
            host.process(key, &container(if pid % 2 == 0 { 'a' } else { 'b' }));
            match kind {
                0 => host.moment(key, Moment::DeviceOpen, when),
                1 => host.moment(key, Moment::ContextReady, when),
                2 => host.moment(key, Moment::FirstAllocation, when),
                3 => host.moment(key, Moment::FirstLaunch, when),
                4 => host.moment(key, Moment::ContextGone, when),
                5 => host.apply(Event::ProcessExited { process: key, at: at(when) }),
                6 => host.look(clock, &[(key, pid % 2, 100)]),
                _ => host.look(clock, &[]),
            }
            let snapshot = host.snapshot(clock);
            prop_assert_eq!(
                snapshot.counters.tasks_started - snapshot.counters.tasks_ended,
                host.monitor.tasks.len() as u64
            );
            for row in &snapshot.tasks {
                let on = host.monitor.stays.values().any(|stay| stay.is_on() && stay.facts.tenant == row.tenant);
                prop_assert_eq!(row.task_id.is_some(), on, "a task is there exactly while a process is on");
            }
        }
        let ended = host.snapshot(clock).ended;
        for tenant in [container('a'), container('b')] {
            let mut spans: Vec<_> = ended.iter().filter(|task| task.tenant == tenant).collect();
            spans.reverse();
            for pair in spans.windows(2) {
                prop_assert!(pair[0].ended_at <= pair[1].started_at);
            }
            prop_assert!(spans.iter().all(|task| task.started_at <= task.ended_at));
        }
    }

    #[test]
    fn the_same_events_give_the_same_snapshot(events in prop::collection::vec(any_event(), 1..40)) {
        let run = || {
            let mut host = Host::new();
            for (step, (kind, pid, _)) in events.iter().enumerate() {
                let millis = 1_000 + step as u64 * 10;
                host.process(process(*pid), &container('a'));
                if *kind < 4 { host.moment(process(*pid), Moment::ContextReady, millis) } else { host.look(millis, &[]) }
            }
            host.snapshot(9_000)
        };
        prop_assert_eq!(run(), run());
    }
}
