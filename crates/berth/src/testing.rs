//! Hosts for tests of what is shown.

use std::sync::Arc;

use berth_model::control::Explanation;
use berth_model::deadline::{Origin, Risk, Spread, Tally, Unit};
use berth_model::history::{Judgement, Why, Workload};
use berth_model::hold::Means;
use berth_model::settings::PolicyName;
use berth_model::snapshot::{
    Counters, DeadlineRow, DeadlineTotals, EndedTask, HoldCounters, HoldRow, HoldStage, Management, QueueRow,
    SourceView, TaskEnd, WorkRow,
};
use berth_model::{
    Bytes, ContainerId, Evidence, GpuIndex, GpuUuid, GpuView, Percent, ProcessKind, Runtime, Snapshot, Source,
    SourceStatus, TaskId, TaskRow, TaskState, TenantKey,
};
use jiff::Timestamp;

const ID: &str = "4e3c1c4b8f0a5d6e7f8091a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6";

pub fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_790_000_000 + second).unwrap()
}

/// A container on GPU 0, computing.
pub fn row(name: &str) -> TaskRow {
    let id = ContainerId(ID.into());
    TaskRow {
        tenant: TenantKey::Container { runtime: Runtime::Docker, id: id.clone() },
        container_id: Some(id),
        container_name: name.into(),
        owner: Some("ada".into()),
        image: Some("pytorch:2.9".into()),
        container_started_at: None,
        command: "python train.py".into(),
        pids: vec![4242],
        process_kinds: vec![ProcessKind::Compute],
        gpu_uuid: Some(GpuUuid("GPU-0".into())),
        gpu_index: Some(GpuIndex(0)),
        gpu_memory_bytes: Some(Bytes::from_mib(20_480)),
        gpu_core_pct: Percent::checked(62),
        state: TaskState::Computing,
        task_id: Some(TaskId(1)),
        task_started_at: Some(at(-247)),
        task_seconds: Some(247.0),
        task_start_evidence: Some(Evidence::Probe),
        hold: None,
        held_seconds: None,
        deadline: None,
        memory_needed_bytes: None,
        placement: None,
    }
}

pub fn gpu(index: u32, used_mib: u64, core: u32) -> GpuView {
    GpuView {
        index: GpuIndex(index),
        uuid: Some(GpuUuid(format!("GPU-{index}"))),
        name: Some("NVIDIA H200".into()),
        memory_used_bytes: Some(Bytes::from_mib(used_mib)),
        memory_total_bytes: Some(Bytes::from_mib(143_771)),
        core_pct: Percent::checked(core),
        tenants: 0,
        lost: None,
        blind: None,
        mig: Some(false),
    }
}

/// GPUs, nobody on them.
pub fn empty() -> Snapshot {
    Snapshot {
        taken_at: at(0),
        gpus: vec![gpu(0, 518, 0)],
        tasks: vec![],
        ended: vec![],
        sources: vec![
            SourceView { source: Source::Nvml, status: SourceStatus::Up },
            SourceView { source: Source::Docker, status: SourceStatus::Up },
            SourceView { source: Source::ProcessEvents, status: SourceStatus::Up },
            SourceView { source: Source::Probes, status: SourceStatus::Off },
        ],
        counters: Counters::default(),
        probes: None,
        management: None,
        deadlines: DeadlineTotals::default(),
        kernels: None,
        watch: berth_model::watch::WatchTotals::default(),
    }
}

/// Two GPUs with tenants of every kind: a long name, one that still opens the device, one whose use is unknown.
pub fn busy() -> Snapshot {
    let hold = TaskRow {
        tenant: TenantKey::Container { runtime: Runtime::Docker, id: ContainerId("b".repeat(64)) },
        container_id: Some(ContainerId("b".repeat(64))),
        owner: Some("grace".into()),
        pids: vec![5001, 5002, 5003],
        gpu_memory_bytes: Some(Bytes::from_mib(900)),
        gpu_core_pct: Percent::checked(0),
        state: TaskState::Idle,
        task_id: Some(TaskId(2)),
        task_seconds: Some(7_500.0),
        task_start_evidence: Some(Evidence::Look),
        hold: None,
        ..row("notebook-of-somebody-with-a-long-name-and-a-habit-of-describing-everything")
    };
    let user = TaskRow {
        tenant: TenantKey::User { uid: 1000 },
        container_id: None,
        owner: Some("linus".into()),
        image: None,
        container_started_at: None,
        command: "blender".into(),
        pids: vec![777],
        process_kinds: vec![ProcessKind::Compute, ProcessKind::Graphics],
        gpu_uuid: Some(GpuUuid("GPU-1".into())),
        gpu_index: Some(GpuIndex(1)),
        gpu_memory_bytes: Some(Bytes::from_mib(3_000)),
        gpu_core_pct: None,
        state: TaskState::Loaded,
        task_id: Some(TaskId(3)),
        task_seconds: Some(3.2),
        ..row("linus")
    };
    let opening = TaskRow {
        tenant: TenantKey::Cgroup { path: "/team-a/job".into() },
        container_id: None,
        owner: None,
        pids: vec![9001],
        gpu_uuid: None,
        gpu_index: None,
        gpu_memory_bytes: None,
        gpu_core_pct: None,
        state: TaskState::Opening,
        task_id: None,
        task_started_at: None,
        task_seconds: None,
        task_start_evidence: None,
        hold: None,
        ..row("/team-a/job")
    };
    let mut gpus = vec![gpu(0, 21_900, 62), gpu(1, 3_518, 17)];
    (gpus[0].tenants, gpus[1].tenants) = (2, 1);
    let counters = Counters { samples: 1200, tasks_started: 5, tasks_ended: 2, gpus_lost: 0 };
    Snapshot {
        gpus,
        tasks: vec![row("trainer"), hold, user, opening],
        ended: ended().into_iter().map(std::sync::Arc::new).collect(),
        counters,
        ..empty()
    }
}

/// One computes, three wait for it, one is exempt.
pub fn contended() -> Snapshot {
    let waits = |place: u32| {
        let expected_at = (place < 3).then(|| at(i64::from(place) * 10));
        let hold = HoldRow { place: Some(place), expected_at, ..waiting() };
        let tenant = TenantKey::Cgroup { path: format!("/train-{}", place + 7) };
        TaskRow {
            tenant,
            container_id: None,
            gpu_core_pct: Percent::checked(0),
            state: TaskState::Loaded,
            hold: Some(hold),
            held_seconds: Some(14.0),
            ..row(&format!("train-{}", place + 7))
        }
    };
    let exempt = HoldRow {
        stage: HoldStage::Exempt,
        by_uid: Some(0),
        means: None,
        reason: "root released it".into(),
        place: None,
        ..waiting()
    };
    let tasks = vec![row("train-7"), waits(1), waits(2), waits(3), TaskRow { hold: Some(exempt), ..row("notebook") }];
    let queue = tasks[1..4].iter().map(|row| QueueRow {
        tenant: row.tenant.clone(),
        name: row.container_name.clone(),
        behind: Some("train-7".into()),
        reason: "`train-7` computes on GPU 0".into(),
        since: at(-14),
        expected_at: row.hold.as_ref().and_then(|hold| hold.expected_at),
    });
    let holds = HoldCounters { gate: 3, ..HoldCounters::default() };
    let management = Some(Management {
        policy: PolicyName::Fifo,
        dry_run: false,
        means: Vec::new(),
        queue: queue.collect(),
        holds,
        would_be_holds: HoldCounters::default(),
    });
    Snapshot { tasks, management, ..busy() }
}

/// The first GPU went away under its tenants.
pub fn lost() -> Snapshot {
    let mut snapshot = busy();
    let gpu = &mut snapshot.gpus[0];
    gpu.lost = Some("GPU is lost: the driver no longer answers for it (XID 79)".into());
    (gpu.memory_used_bytes, gpu.core_pct) = (None, None);
    for row in snapshot.tasks.iter_mut().filter(|row| row.gpu_index == Some(GpuIndex(0))) {
        (row.state, row.gpu_memory_bytes, row.gpu_core_pct) = (TaskState::Lost, None, None);
    }
    snapshot.sources[1].status =
        SourceStatus::Down { reason: "permission denied on /var/run/docker.sock: join the group docker".into() };
    snapshot
}

pub fn ended() -> Vec<EndedTask> {
    vec![EndedTask {
        task_id: TaskId(1),
        tenant: TenantKey::User { uid: 0 },
        container_name: "batch".into(),
        owner: None,
        image: None,
        command: "python batch.py".into(),
        gpus: vec![GpuIndex(0), GpuIndex(1)],
        peak_memory_bytes: Some(Bytes::from_mib(8_192)),
        started_at: at(-90),
        start_evidence: Evidence::Look,
        ended_at: at(-30),
        seconds: 60.0,
        end: TaskEnd::Left,
        judgement: None,
    }]
}

pub fn shared(snapshot: Snapshot) -> Arc<Snapshot> {
    Arc::new(snapshot)
}

/// Second of three, stopped 14 seconds before [`at`] 0 and expected 20 seconds after it.
pub fn waiting() -> HoldRow {
    HoldRow {
        stage: HoldStage::Held,
        means: Some(Means::Gate),
        by_uid: None,
        reason: "`train-7` computes on GPU 0".into(),
        stands_at: None,
        since: at(-14),
        held_seconds: 14.0,
        place: Some(2),
        places: Some(3),
        behind: Some("train-7".into()),
        expected_at: Some(at(20)),
        until: None,
    }
}

/// Of one that has computed nothing yet.
pub fn explained(hold: Option<HoldRow>) -> Explanation {
    let row = row("train-8");
    Explanation {
        tenant: row.tenant,
        name: row.container_name,
        owner: row.owner,
        policy: PolicyName::Fifo,
        dry_run: false,
        gpus: vec![GpuIndex(0)],
        state: TaskState::Loaded,
        task_seconds: Some(30.0),
        held_seconds: hold.as_ref().map_or(0.0, |hold| hold.held_seconds),
        hold,
        is_paused_by_others: false,
        left_alone_until: None,
        means: vec![Means::Freeze, Means::Gate],
        computing_there: vec!["train-7".into()],
        gang_with: vec![],
        awaited_by: vec![],
        before: None,
        history: vec![],
    }
}

/// With a deadline by a label, of which so much is left at [`at`] 0.
pub fn due(row: TaskRow, deadline: &str, float_seconds: f64, risk: Risk) -> TaskRow {
    let deadline: berth_model::Deadline = deadline.parse().unwrap();
    let due_at = at(0) + jiff::SignedDuration::from_secs_f64(float_seconds);
    let work = WorkRow {
        started_at: due_at - jiff::SignedDuration::from_secs_f64(deadline.seconds()),
        due_at,
        float_seconds,
        expected_float_seconds: match risk {
            Risk::Safe => Some(float_seconds - 1.0),
            Risk::Tight => Some(0.3),
            Risk::Likely => Some(-3.4),
            Risk::Late => None,
        },
        active_seconds: 2.5,
        risk,
    };
    let deadline = DeadlineRow {
        deadline,
        origin: Origin::Label,
        asked: None,
        bound: None,
        unit: Unit::Task,
        work: Some(work),
        takes: Some(Spread { units: 14, median_seconds: 4.1, p90_seconds: 5.6, most_seconds: 8.3 }),
        next_takes: None,
        tally: Tally { hits: 12, misses: 2, unknown: 1 },
        last_float_seconds: Some(1.9),
    };
    TaskRow { deadline: Some(deadline), ..row }
}

/// Every risk and every origin: one that has time, one by a person's word, one that waits, one that is late though its bound gave it
/// more than it asked for, a server between two requests, and one without.
pub fn deadlines() -> Snapshot {
    let named = |uid: u32, name: &str| TaskRow { tenant: TenantKey::User { uid }, ..row(name) };
    let mut set = due(named(2, "report"), "5s", 1.1, Risk::Tight);
    let mut waits = due(named(3, "train-8"), "20s", 12.0, Risk::Likely);
    (waits.state, waits.hold) = (TaskState::Loaded, Some(HoldRow { place: Some(1), places: Some(1), ..waiting() }));
    let mut late = due(named(4, "eager"), "5s", -0.8, Risk::Late);
    let mut server = due(named(5, "server"), "2s", 0.0, Risk::Safe);
    let of = |row: &mut TaskRow, change: fn(&mut DeadlineRow)| change(row.deadline.as_mut().unwrap());
    of(&mut set, |row| row.origin = Origin::Set { by_uid: 1000 });
    of(&mut waits, |row| (row.takes, row.tally, row.last_float_seconds) = (None, Tally::default(), None));
    of(&mut late, |row| {
        (row.asked, row.bound) = (Some("1ms".parse().unwrap()), Some("owner ada 5s..".into()));
        row.tally = Tally { hits: 0, misses: 7, unknown: 0 };
    });
    of(&mut server, |row| {
        (row.origin, row.unit, row.work) = (Origin::StockLabel, Unit::Burst, None);
        row.tally = Tally { hits: 4031, misses: 9, unknown: 0 };
    });
    (server.state, server.gpu_core_pct) = (TaskState::Idle, Percent::checked(0));
    let tasks = vec![due(row("trainer"), "9s", 5.2, Risk::Safe), set, waits, late, server, named(6, "notebook")];
    let management = contended().management.map(|all| Management { queue: all.queue[..1].to_vec(), ..all });
    Snapshot { tasks, management, ended: judged_tasks().into_iter().map(Arc::new).collect(), ..busy() }
}

/// A unit of work of `batch`, with so much left; `None`: nobody saw its end.
pub fn judgement(deadline: &str, float_seconds: Option<f64>, why: Option<Why>) -> Judgement {
    let deadline: berth_model::Deadline = deadline.parse().unwrap();
    let seconds = float_seconds.map(|float| deadline.seconds() - float);
    Judgement {
        task_id: TaskId(1),
        workload: Workload { owner: Some("ada".into()), image: Some("pytorch:2.9".into()), command: "batch".into() },
        unit: Unit::Task,
        deadline,
        started_at: at(-90),
        due_at: at(-90) + jiff::SignedDuration::from_secs_f64(deadline.seconds()),
        seconds,
        float_seconds,
        deadline_hit: float_seconds.map(|float| float >= 0.0),
        active_seconds: seconds.map(|seconds| seconds / 2.0),
        held_seconds: 0.0,
        contended_seconds: 0.0,
        why,
        unwritten: Tally::default(),
    }
}

/// Those of [`ended`]: without a deadline, in time, late, and one whose start nobody saw.
pub fn judged_tasks() -> Vec<EndedTask> {
    let late = judgement("50s", Some(-10.0), Some(Why::Held { behind: Some("train-7".into()) }));
    let verdicts = [None, Some(judgement("2m", Some(60.0), None)), Some(late), Some(judgement("9s", None, None))];
    verdicts.into_iter().map(|judgement| EndedTask { judgement, ..ended().remove(0) }).collect()
}
