//! Reports of hosts that are made up.

use jiff::{SignedDuration, Timestamp};

use super::*;
use crate::cluster::PlacementId;
use crate::deadline::{Spread, Tally};
use crate::hold::Means;
use crate::settings::PolicyName;
use crate::snapshot::{Counters, DeadlineTotals, HoldCounters, Management, MissRow};
use crate::testing;

const GPU: GpuIndex = GpuIndex(0);

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_790_000_000 + second).unwrap()
}

fn gpu(index: u32) -> GpuView {
    GpuView {
        index: GpuIndex(index),
        uuid: Some(GpuUuid(format!("GPU-{index}"))),
        name: None,
        memory_used_bytes: Some(Bytes::from_mib(1_000)),
        memory_total_bytes: Some(Bytes::from_mib(4_000)),
        core_pct: Percent::checked(40),
        tenants: 0,
        lost: None,
        blind: None,
        mig: None,
    }
}

fn host(tasks: Vec<TaskRow>) -> Snapshot {
    Snapshot {
        taken_at: at(0),
        gpus: vec![gpu(0), gpu(1)],
        tasks,
        ended: vec![],
        sources: vec![],
        counters: Counters::default(),
        probes: None,
        management: None,
        deadlines: DeadlineTotals::default(),
        kernels: None,
        watch: crate::watch::WatchTotals::default(),
    }
}

/// On GPU 0.
fn row(uid: u32) -> TaskRow {
    let row = testing::row(TenantKey::User { uid }, "somebody");
    TaskRow { gpu_index: Some(GPU), gpu_uuid: gpu(0).uuid, gpu_memory_bytes: Some(Bytes::from_mib(500)), ..row }
}

fn due(uid: u32, float_seconds: f64) -> TaskRow {
    TaskRow { deadline: Some(testing::deadline(float_seconds)), ..row(uid) }
}

fn about() -> About {
    let rest = Percent::checked(10).unwrap();
    About { node: "a".parse().unwrap(), berth: "0.1.0".into(), started_ms: 5, rest }
}

fn report(snapshot: &Snapshot) -> Report {
    let report = Report::of(snapshot, &about(), 7);
    assert_eq!(report.check(), Ok(()), "what is told can be");
    report
}

/// Of GPU 0.
fn told(tasks: Vec<TaskRow>) -> GpuReport {
    report(&host(tasks)).gpus.swap_remove(0)
}

fn spread(seconds: f64) -> Option<Spread> {
    Spread::of([seconds])
}

#[test]
fn an_idle_node_has_gpus_and_nothing_on_them() {
    let Report { node, stamp, berth, policy, means, gpus, pasts } = report(&host(vec![]));
    assert_eq!((node.as_str(), berth.as_str(), pasts), ("a", "0.1.0", 0));
    assert_eq!(stamp, Stamp { started_ms: 5, number: 7, at_ms: 1_790_000_000_000 });
    assert_eq!((policy, means, gpus.len()), (None, vec![], 2));
    let free = gpus[0].free_bytes();
    assert_eq!((free, gpus[0].share, gpus[0].others), (Some(Bytes::from_mib(3_000)), 0.9, 0));
}

#[test]
fn who_decides_there_and_by_what_is_told() {
    let management = Management {
        policy: PolicyName::Edf,
        dry_run: false,
        means: vec![Means::Freeze, Means::Gate],
        queue: vec![],
        holds: HoldCounters::default(),
        would_be_holds: HoldCounters::default(),
    };
    let deadlines = DeadlineTotals { pasts: 3, ..DeadlineTotals::default() };
    let told = report(&Snapshot { management: Some(management), deadlines, ..host(vec![]) });
    assert_eq!((told.policy, told.means.len(), told.pasts), (Some(PolicyName::Edf), 2, 3));
}

#[test]
fn who_has_a_deadline_is_a_load_and_what_it_would_leave_to_others_is_told() {
    let gpu = told(vec![due(1, 4.0), row(2), row(3)]);
    assert_eq!((gpu.loads.len(), gpu.others, gpu.share), (1, 2, 0.9));
    let load = gpu.loads[0];
    assert_eq!((load.unit, load.deadline_seconds), (Unit::Task, 9.0));
    assert_eq!(load.under_way.map(|work| work.due_in_seconds), Some(4.0));
    assert_eq!(told(vec![due(1, 4.0)]).share, 0.9, "also while nobody is there to have it");
}

/// It has said that it will need 2,000 MiB.
fn opening(placement: Option<PlacementId>) -> TaskRow {
    let memory_needed_bytes = Some(Bytes::from_mib(2_000));
    TaskRow { gpu_index: None, gpu_uuid: None, gpu_memory_bytes: None, memory_needed_bytes, placement, ..due(1, 4.0) }
}

#[test]
fn who_opens_a_device_may_come_to_any_gpu() {
    for gpu in report(&host(vec![opening(None)])).gpus {
        assert_eq!((gpu.loads.len(), gpu.memory_promised_bytes), (1, Bytes::from_mib(2_000)));
    }
}

#[test]
fn who_was_placed_and_opens_a_device_is_left_to_the_placer_which_keeps_its_place() {
    let without_deadline = TaskRow { deadline: None, ..opening(Some(PlacementId(2))) };
    for gpu in report(&host(vec![opening(Some(PlacementId(1))), without_deadline])).gpus {
        assert_eq!((gpu.loads.len(), gpu.others, gpu.memory_promised_bytes), (0, 0, Bytes(0)));
        assert_eq!(gpu.placed, [], "it need not stay");
    }
}

#[test]
fn who_is_idle_in_its_task_may_serve() {
    let idle = DeadlineRow {
        work: None,
        takes: spread(8.0),
        next_takes: spread(0.5),
        last_float_seconds: Some(1.5),
        ..testing::deadline(0.0)
    };
    let resting = |uid, last_float_seconds| {
        let deadline = Some(DeadlineRow { last_float_seconds, ..idle.clone() });
        TaskRow { deadline, ..row(uid) }
    };
    let gpu = told(vec![resting(1, Some(1.5)), resting(2, Some(-2.0)), resting(3, None), due(4, 4.0)]);
    assert_eq!((gpu.loads[0].unit, gpu.loads[0].takes), (Unit::Burst, spread(0.5)));
    assert_eq!(gpu.past_float_seconds, -0.5, "of those who rest");
    let burst = DeadlineRow { unit: Unit::Burst, ..idle };
    assert_eq!(LoadReport::of(&burst).takes, spread(8.0));
}

#[test]
fn memory_that_was_promised_is_not_free() {
    let needs = |uid, mib| TaskRow { memory_needed_bytes: Some(Bytes::from_mib(mib)), ..row(uid) };
    let gpu = told(vec![needs(1, 2_000), needs(2, 100), row(3)]);
    assert_eq!(gpu.memory_promised_bytes, Bytes::from_mib(1_500), "500 MiB of it are taken");
    assert_eq!(gpu.free_bytes(), Some(Bytes::from_mib(1_500)));
}

#[test]
fn where_the_driver_does_not_say_who_has_what_used_memory_is_theirs_who_were_promised_it() {
    let untold = |uid, mib: Option<u64>| TaskRow {
        gpu_memory_bytes: None,
        memory_needed_bytes: mib.map(Bytes::from_mib),
        ..row(uid)
    };
    let promised = |rows| told(rows).memory_promised_bytes;
    // 1,000 MiB are used.
    assert_eq!(promised(vec![untold(1, Some(2_500)), untold(2, Some(400))]), Bytes::from_mib(1_900));
    assert_eq!(promised(vec![untold(1, Some(700))]), Bytes(0));
    assert_eq!(promised(vec![untold(1, Some(2_500)), row(2)]), Bytes::from_mib(2_000), "500 MiB are another's");
    assert_eq!(promised(vec![untold(1, Some(2_500)), untold(2, None)]), Bytes::from_mib(2_500), "all may be another's");
}

#[test]
fn who_stands_in_line_waits_and_who_would_does_not() {
    let held = |uid, stage, place| {
        let hold = HoldRow {
            stage,
            means: Some(Means::Gate),
            by_uid: None,
            reason: String::new(),
            stands_at: None,
            since: at(0),
            held_seconds: 0.0,
            place,
            places: place,
            behind: None,
            expected_at: None,
            until: None,
        };
        TaskRow { hold: Some(hold), ..row(uid) }
    };
    let (held_first, would) = (held(1, HoldStage::Held, Some(1)), held(2, HoldStage::WouldHold, Some(2)));
    assert_eq!(told(vec![held_first, would, held(3, HoldStage::Gated, None), row(4)]).queue, 1);
}

#[test]
fn misses_are_told_by_gpu_and_by_whoever_is_still_there() {
    let missed = |uid, misses| {
        let deadline = DeadlineRow { tally: Tally { misses, ..Tally::default() }, ..testing::deadline(1.0) };
        TaskRow { deadline: Some(deadline), ..row(uid) }
    };
    let miss = |gpu: u32, ago| MissRow {
        gpu_uuid: GpuUuid(format!("GPU-{gpu}")),
        missed_at: at(0) - SignedDuration::from_secs(ago),
    };
    let deadlines =
        DeadlineTotals { misses: vec![miss(0, 9), miss(1, 1), miss(0, 2), miss(0, -3)], ..Default::default() };
    let told = report(&Snapshot { deadlines, ..host(vec![missed(1, 2), missed(2, 0), missed(3, 1)]) });
    assert_eq!((told.gpus[0].missed_by_present, told.gpus[1].missed_by_present), (2, 0));
    assert_eq!(told.gpus[0].misses_ago_seconds, [0.0, 2.0, 9.0], "a clock that was set back makes none of the future");
    assert_eq!(told.gpus[1].misses_ago_seconds, [1.0]);
}

#[test]
fn what_was_placed_is_seen_where_it_is_the_latest_first() {
    let placed = |uid, id| TaskRow { placement: Some(PlacementId(id)), ..row(uid) };
    let gpu = told(vec![placed(1, 10), row(2), placed(3, 30)]);
    assert_eq!(gpu.placed, [PlacementId(30), PlacementId(10)]);
}

#[test]
fn a_lost_gpu_is_told_of_and_one_nobody_can_name_is_not() {
    let mut snapshot = host(vec![]);
    snapshot.gpus[0].lost = Some("XID 79".into());
    snapshot.gpus[1].uuid = None;
    let gpus = report(&snapshot).gpus;
    assert_eq!((gpus.len(), gpus[0].is_lost), (1, true));
}

#[test]
fn what_is_too_much_is_left_out_and_said_to_be() {
    let many = u32::try_from(MOST_LOADS + 1).unwrap();
    let gpu = told((0..many).map(|uid| due(uid, 1.0)).collect());
    assert_eq!((gpu.loads.len(), gpu.has_more), (MOST_LOADS, true));
    let placed = |uid: u32| TaskRow { placement: Some(PlacementId(uid.into())), ..row(uid) };
    assert_eq!(told((0..2_000).map(placed).collect()).placed.len(), MOST_PLACED);
    let gpus = (0..100).map(self::gpu).collect();
    assert_eq!(report(&Snapshot { gpus, ..host(vec![]) }).gpus.len(), MOST_GPUS);
}

#[test]
fn figures_that_do_not_fit_together_are_made_to() {
    let mut snapshot = host(vec![due(1, 100.0)]);
    snapshot.gpus[0].memory_used_bytes = Some(Bytes::from_mib(9_000));
    let gpu = report(&snapshot).gpus.swap_remove(0);
    assert_eq!(gpu.memory_used_bytes, gpu.memory_total_bytes);
    assert_eq!(gpu.loads[0].under_way.unwrap().due_in_seconds, 9.0, "it was given a shorter deadline since");
    assert!(share(true, Percent::checked(100).unwrap()) > 0.0);
}
