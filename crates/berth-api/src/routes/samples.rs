//! Snapshots and changes for tests.

use std::sync::Arc;

use berth_model::cluster::PlacementId;
use berth_model::cluster::report::About;
use berth_model::deadline::{Origin, Risk, Spread, Tally, Unit};
use berth_model::hold::Means;
use berth_model::kernels::{
    AutoChoice, GpuPolicy, GpuWindow, KernelCounters, KernelLevel, KernelRole, KernelRow, KernelTotals, MemoryFigures,
    PolicyFigures, RequestFigures, SlowedBy, WindowFigures,
};
use berth_model::settings::{KernelPolicyName, PolicyName};
use berth_model::snapshot::{
    Counters, DeadlineRow, DeadlineTotals, EndedTask, Histogram, HoldCounters, HoldRow, HoldStage, Management, MissRow,
    OwnerTally, ProbeCounters, QueueRow, SourceView, StandsAt, TaskEnd, WorkRow,
};
use berth_model::watch::{Kind, SeriesTotals, WatchTotals};
use berth_model::{
    Bytes, Change, ContainerId, Evidence, GpuIndex, GpuUuid, GpuView, Mono, Percent, ProcessKind, Runtime, Snapshot,
    Source, SourceStatus, TaskId, TaskRow, TaskState, TenantKey,
};
use jiff::Timestamp;

const ID: &str = "4e3c1c4b8f0a5d6e7f8091a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6";

pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_790_000_000 + second).unwrap()
}

pub(crate) fn container() -> TenantKey {
    TenantKey::Container { runtime: Runtime::Docker, id: ContainerId(ID.into()) }
}

pub(crate) fn kernel_row() -> KernelRow {
    let labels = [("berth.slo.latency".to_owned(), "p99:10ms".to_owned())].into();
    KernelRow {
        tenant: container(),
        name: "trainer".into(),
        gpu_index: Some(GpuIndex(0)),
        gpu_uuid: GpuUuid("GPU-0".into()),
        clients: 1,
        role: KernelRole::Leads,
        yields_to: vec![],
        is_busy: true,
        is_stopped: false,
        reason: Some("it has a goal, and those without one yield to it".into()),
        urged_by: vec![Kind::SloRisk],
        chosen: Some("slo on GPU 0: it keeps 100 % of the goals".into()),
        slo: berth_model::Slo::from_labels(&labels).0,
        unread_labels: vec![],
        attainment: Some(0.995),
        lead_lost_until: None,
        served_seconds: 1.5,
        wanted_seconds: 2.0,
        stopped_seconds: 0.25,
        kernel_kinds: 12,
        kernel_seconds: Some(5e-5),
        kernel_spread: Some(0.1),
        longest_kernel_seconds: Some(2e-4),
        prediction_error: Some(0.07),
        prediction_off: Some(-0.01),
        sm_share: Some(0.8),
        bandwidth_share: Some(0.35),
        confined_to_sms: Some(64),
        slowed_by: vec![SlowedBy { name: "trainer".into(), rho: 0.2, error: 0.01, confidence: 0.9 }],
        memory: MemoryFigures {
            memory_allocated_bytes: Some(Bytes::from_mib(2_048)),
            memory_limit_bytes: Some(Bytes::from_mib(10_240)),
            memory_kept_bytes: Some(Bytes::from_mib(6_144)),
            memory_missing_bytes: Some(Bytes(0)),
        },
        requests: RequestFigures {
            requests: 5_000,
            requests_per_second: Some(200.0),
            request_p50_seconds: Some(2e-3),
            request_p99_seconds: Some(4e-3),
            speed_of_alone: Some(0.9),
        },
        counters: KernelCounters {
            launches: 100,
            stops: 7,
            stops_given_up: 1,
            preempted: 3,
            copied_bytes: 4096,
            memory_refused: 2,
            samples: 30,
        },
    }
}

pub(crate) fn change() -> Change {
    Change::TaskStarted {
        task: TaskId(1),
        tenant: container(),
        name: "trainer".into(),
        at: Mono(5),
        evidence: Evidence::Probe,
    }
}

pub(crate) fn about() -> About {
    let rest = Percent::checked(10).unwrap();
    About { node: "worker-1".parse().unwrap(), berth: "0.1.0".into(), started_ms: 1, rest }
}

fn row() -> TaskRow {
    TaskRow {
        tenant: container(),
        container_id: Some(ContainerId(ID.into())),
        container_name: "trainer".into(),
        owner: Some("ada".into()),
        image: Some("pytorch:2".into()),
        container_started_at: None,
        command: "python train.py".into(),
        pids: vec![4242],
        process_kinds: vec![ProcessKind::Compute],
        gpu_uuid: Some(GpuUuid("GPU-1".into())),
        gpu_index: Some(GpuIndex(0)),
        gpu_memory_bytes: Some(Bytes(2 << 30)),
        gpu_core_pct: Percent::checked(25),
        state: TaskState::Computing,
        task_id: Some(TaskId(1)),
        task_started_at: Some(at(0)),
        task_seconds: Some(12.5),
        task_start_evidence: Some(Evidence::Probe),
        hold: None,
        held_seconds: None,
        deadline: Some(deadline()),
        memory_needed_bytes: Some(Bytes(3 << 30)),
        placement: Some(PlacementId(0xfeed)),
    }
}

/// Of a task that has taken 12.5 of 15 seconds.
fn deadline() -> DeadlineRow {
    DeadlineRow {
        deadline: "15s".parse().unwrap(),
        origin: Origin::Set { by_uid: 1000 },
        asked: Some("1s".parse().unwrap()),
        bound: Some("owner ada 15s..".into()),
        unit: Unit::Task,
        work: Some(WorkRow {
            started_at: at(0),
            due_at: at(15),
            float_seconds: 2.5,
            expected_float_seconds: Some(0.5),
            active_seconds: 9.0,
            risk: Risk::Tight,
        }),
        takes: Some(Spread { units: 4, median_seconds: 11.0, p90_seconds: 14.0, most_seconds: 14.0 }),
        next_takes: None,
        tally: Tally { hits: 12, misses: 2, unknown: 1 },
        last_float_seconds: Some(-0.5),
    }
}

/// Fifteen units, three of which were late.
fn deadline_totals() -> DeadlineTotals {
    let tally = |owner: Option<&str>, unit, tally| OwnerTally { owner: owner.map(str::to_owned), unit, tally };
    let histogram = |ends: &[f64], counts: &[u64], sum| Histogram {
        buckets: ends.iter().copied().map(Some).chain([None]).zip(counts.iter().copied()).collect(),
        sum,
    };
    DeadlineTotals {
        tallies: vec![
            tally(None, Unit::Burst, Tally { hits: 0, misses: 2, unknown: 0 }),
            tally(Some("ada"), Unit::Task, Tally { hits: 12, misses: 1, unknown: 3 }),
        ],
        warnings: 2,
        float_seconds: histogram(&[-1.0, 0.0, 1.0], &[1, 2, 4, 8], 7.25),
        run_seconds: histogram(&[1.0, 10.0], &[5, 10, 0], 61.5),
        misses: vec![MissRow { gpu_uuid: GpuUuid("GPU-1".into()), missed_at: at(3) }],
        pasts: 4,
    }
}

pub(crate) fn hold() -> HoldRow {
    HoldRow {
        stage: HoldStage::Held,
        means: Some(Means::Gate),
        by_uid: None,
        reason: "`trainer` computes on GPU 0".into(),
        stands_at: Some(StandsAt::FirstLaunch),
        since: at(2),
        held_seconds: 10.0,
        place: Some(1),
        places: Some(1),
        behind: Some("trainer".into()),
        expected_at: Some(at(30)),
        until: None,
    }
}

fn gpu(index: u32, lost: Option<&str>) -> GpuView {
    GpuView {
        index: GpuIndex(index),
        uuid: Some(GpuUuid(format!("GPU-{index}"))),
        name: Some("NVIDIA H200".into()),
        memory_used_bytes: lost.is_none().then_some(Bytes(3 << 30)),
        memory_total_bytes: Some(Bytes(140 << 30)),
        core_pct: if lost.is_none() { Percent::checked(40) } else { None },
        tenants: 2,
        lost: lost.map(str::to_owned),
        blind: None,
        mig: Some(false),
    }
}

/// Two GPUs, one lost; a container, a user whose numbers are unknown, and one still opening the device.
pub(crate) fn snapshot() -> Arc<Snapshot> {
    let user = TaskRow {
        tenant: TenantKey::User { uid: 1000 },
        container_id: None,
        container_name: "quo\"te\\d".into(),
        owner: None,
        image: None,
        container_started_at: None,
        gpu_memory_bytes: None,
        gpu_core_pct: None,
        state: TaskState::Idle,
        task_seconds: None,
        task_start_evidence: None,
        hold: Some(hold()),
        held_seconds: Some(10.0),
        deadline: None,
        ..row()
    };
    let opening = TaskRow { gpu_index: None, gpu_uuid: None, state: TaskState::Opening, ..user.clone() };
    let ended = EndedTask {
        task_id: TaskId(7),
        tenant: container(),
        container_name: "trainer".into(),
        owner: Some("ada".into()),
        image: Some("pytorch:2".into()),
        command: "python train.py".into(),
        gpus: vec![GpuIndex(0)],
        peak_memory_bytes: Some(Bytes(1 << 30)),
        started_at: at(-60),
        start_evidence: Evidence::Look,
        ended_at: at(-50),
        seconds: 10.0,
        end: TaskEnd::Exited,
        judgement: None,
    };
    Arc::new(Snapshot {
        taken_at: at(12),
        gpus: vec![gpu(0, None), gpu(1, Some("GPU is lost"))],
        tasks: vec![row(), user, opening],
        ended: vec![Arc::new(ended)],
        sources: vec![
            SourceView { source: Source::Nvml, status: SourceStatus::Up },
            SourceView { source: Source::Docker, status: SourceStatus::Down { reason: "no socket".into() } },
            SourceView { source: Source::ProcessEvents, status: SourceStatus::Off },
            SourceView { source: Source::Probes, status: SourceStatus::Up },
        ],
        counters: Counters { samples: 99, tasks_started: 3, tasks_ended: 2, gpus_lost: 1 },
        probes: Some(ProbeCounters { hits: 40, lost: 5, unresolved: 4, late: 3, wasted: 2 }),
        deadlines: deadline_totals(),
        kernels: Some(KernelLevel {
            policy: KernelPolicyName::Hybrid,
            gpu_policies: vec![GpuPolicy {
                gpu_index: Some(GpuIndex(1)),
                gpu_uuid: GpuUuid("GPU-1".into()),
                policy: KernelPolicyName::Slo,
            }],
            auto: vec![auto_choice()],
            windows: auto_choice().latest.into_iter().map(window).collect(),
            rows: vec![kernel_row()],
            totals: KernelTotals { attached: 3, refused: 1, leads_lost: 2, plans: 40 },
        }),
        watch: watch_totals(),
        management: Some(Management {
            policy: PolicyName::Fifo,
            dry_run: false,
            means: vec![Means::Freeze, Means::Gate],
            queue: vec![QueueRow {
                tenant: TenantKey::User { uid: 1000 },
                name: "quo\"te\\d".into(),
                behind: Some("trainer".into()),
                reason: "`trainer` computes on GPU 0".into(),
                since: at(2),
                expected_at: Some(at(30)),
            }],
            holds: HoldCounters { freeze: 1, lock: 0, gate: 4, park: 0, failed: 2 },
            would_be_holds: HoldCounters::default(),
        }),
    })
}

fn window(figures: WindowFigures) -> GpuWindow {
    GpuWindow { gpu_index: Some(GpuIndex(0)), gpu_uuid: GpuUuid("GPU-0".into()), ended_at: at(11), figures }
}

pub(crate) fn auto_choice() -> AutoChoice {
    let policy = KernelPolicyName::Slo;
    AutoChoice {
        gpu_index: Some(GpuIndex(0)),
        gpu_uuid: GpuUuid("GPU-0".into()),
        policy,
        instead_of: None,
        reason: "it keeps 100 % of the goals, the one before kept 60 %".into(),
        since: Some(at(1)),
        windows: 9,
        measured: vec![PolicyFigures { policy, benefit: 0.9, goals_kept: 1.0, windows_ago: 0 }],
        latest: Some(WindowFigures {
            policy,
            seconds: 2.0,
            goodput: 0.9,
            goals_kept: Some(1.0),
            fairness: Some(0.95),
            slowdown: None,
            worst_finish: Some(1.3),
            tenants: 2,
            changing: 0.1,
        }),
    }
}

fn watch_totals() -> WatchTotals {
    WatchTotals {
        findings: [(Kind::Starvation, 1)].into(),
        found: [(Kind::MemoryDrift, 2), (Kind::Starvation, 1)].into(),
        series: Some(SeriesTotals { written: 900, lost: 3, bytes: 5_000 }),
    }
}
