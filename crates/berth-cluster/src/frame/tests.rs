//! Frames: what was written is read, and nothing else is.

use berth_model::cluster::report::{MOST_GPUS, MOST_LOADS, MOST_MISSES, MOST_PLACED, UnderWay};
use berth_model::cluster::{GpuReport, LoadReport, PlacementId, Record};
use berth_model::deadline::{Spread, Unit};
use berth_model::hold::Means;
use berth_model::settings::PolicyName;
use berth_model::{Bytes, GpuUuid, Percent};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;

const NONCE: Nonce = Nonce([0xa5; NONCE_BYTES]);

fn node() -> NodeId {
    "worker-1".parse().unwrap()
}

fn key() -> NodeKey {
    ClusterKey::new([7; KEY_BYTES]).node(&node())
}

fn asked() -> Fresh {
    Fresh::Answer(NONCE)
}

fn load() -> LoadReport {
    let takes = Some(Spread { units: 8, median_seconds: 2.0, p90_seconds: 2.5, most_seconds: 3.0 });
    let under_way = Some(UnderWay { due_in_seconds: 4.25, done_seconds: 1.5 });
    LoadReport { unit: Unit::Task, deadline_seconds: 9.0, under_way, takes }
}

fn gpu() -> GpuReport {
    GpuReport {
        uuid: GpuUuid("GPU-5f2a1d00-0000-0000-0000-000000000000".into()),
        is_lost: false,
        memory_total_bytes: Some(Bytes::from_mib(24_576)),
        memory_used_bytes: Some(Bytes::from_mib(2_048)),
        memory_promised_bytes: Bytes::from_mib(1_024),
        core_pct: Percent::checked(87),
        queue: 2,
        others: 1,
        share: 0.9,
        loads: vec![load(), LoadReport { unit: Unit::Burst, deadline_seconds: 0.5, under_way: None, takes: None }],
        has_more: false,
        missed_by_present: 0,
        misses_ago_seconds: vec![1.5, 60.0],
        past_float_seconds: 0.25,
        placed: vec![PlacementId(0xfeed)],
    }
}

fn report() -> Report {
    Report {
        node: node(),
        stamp: Stamp { started_ms: 1_700_000_000_000, number: 3, at_ms: 1_700_000_060_000 },
        berth: "0.1.0".into(),
        policy: Some(PolicyName::Edf),
        means: vec![Means::Freeze, Means::Gate],
        gpus: vec![gpu()],
        pasts: 17,
    }
}

fn frame() -> Vec<u8> {
    encode_report(&report(), Duration::from_millis(120), Some(&NONCE), &key()).unwrap()
}

fn refused(frame: &[u8]) -> FrameError {
    decode_report(frame, &node(), &key(), &asked()).unwrap_err()
}

/// Signs what an honest node would not.
fn signed(change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut frame = frame();
    frame.truncate(frame.len() - MAC_BYTES);
    change(&mut frame);
    let length = u32::try_from(frame.len() + MAC_BYTES).unwrap();
    frame[8..12].copy_from_slice(&length.to_le_bytes());
    let signature = key().sign(&frame);
    frame.extend(signature);
    frame
}

/// A change of these bytes is a change of the version: `docs/report-format.md` explains each.
#[test]
fn the_golden_frame() {
    let golden = include_str!("golden.hex");
    let lines = golden.lines().map(|line| line.split('#').next().unwrap_or_default());
    let digits: String = lines.flat_map(|line| line.split_whitespace()).collect();
    assert_eq!(hex(&frame()), digits);
    let page = include_str!("../../../../docs/report-format.md");
    let example = page.rsplit_once("```text\n").and_then(|(_, rest)| rest.split_once("```")).unwrap().0;
    let lines = example.lines().map(|line| line.split("  #").next().unwrap_or_default());
    assert_eq!(lines.collect::<String>(), digits, "the page shows the same");
}

#[test]
fn a_report_is_small() {
    let idle = GpuReport { loads: vec![], misses_ago_seconds: vec![], placed: vec![], ..gpu() };
    let idle = encode_report(&Report { gpus: vec![idle], ..report() }, Duration::ZERO, None, &key()).unwrap();
    assert_eq!((Record::BYTES, idle.len(), frame().len()), (16, 231, 319), "as the page says");
}

#[test]
fn what_a_node_says_is_read_with_its_age() {
    let told = decode_report(&frame(), &node(), &key(), &asked()).unwrap();
    assert_eq!(told, Told { what: report(), age: Duration::from_millis(120) });
}

#[test]
fn a_change_of_any_bit_is_refused() {
    let frame = frame();
    for at in 0..frame.len() {
        for bit in 0..8 {
            let mut changed = frame.clone();
            changed[at] ^= 1 << bit;
            let expected = if at < 4 { FrameError::NotAFrame } else { FrameError::Forged };
            assert_eq!(refused(&changed), expected, "byte {at}, bit {bit}");
        }
    }
}

#[test]
fn whatever_is_cut_or_added_is_refused() {
    let frame = frame();
    for end in 0..frame.len() {
        let error = refused(&frame[..end]);
        assert!(matches!(error, FrameError::TooShort { .. } | FrameError::Forged), "{end}: {error}");
    }
    assert_eq!(refused(&[&frame[..], &[0]].concat()), FrameError::Forged);
    assert_eq!(refused(&vec![0; MOST_BYTES + 1]), FrameError::TooLong { bytes: MOST_BYTES + 1 });
}

#[test]
fn another_s_key_another_node_and_another_kind_are_refused() {
    let other: NodeId = "worker-2".parse().unwrap();
    let others = ClusterKey::new([7; KEY_BYTES]).node(&other);
    assert_eq!(decode_report(&frame(), &node(), &others, &asked()), Err(FrameError::Forged));
    // A node that signs with its own key in another's name.
    let claimed = decode_report(&frame(), &other, &key(), &asked());
    assert_eq!(claimed, Err(FrameError::OtherNode { found: node() }));
    let pasts = decode_pasts(&frame(), &node(), &key(), &asked());
    assert_eq!(pasts, Err(FrameError::OtherKind { found: 1, wanted: Kind::Pasts }));
}

#[test]
fn an_answer_to_another_question_is_refused() {
    let other = Fresh::Answer(Nonce([1; NONCE_BYTES]));
    assert_eq!(decode_report(&frame(), &node(), &key(), &other), Err(FrameError::Replayed));
    let unasked = encode_report(&report(), Duration::ZERO, None, &key()).unwrap();
    assert_eq!(refused(&unasked), FrameError::Unasked);
}

#[test]
fn what_nobody_asked_for_is_judged_by_its_stamp() {
    let unasked = encode_report(&report(), Duration::ZERO, None, &key()).unwrap();
    let judged = |now_ms: u64, last: Option<Stamp>| {
        let fresh = Fresh::Unasked { now_ms, stale_after: Duration::from_secs(5), last };
        decode_report(&unasked, &node(), &key(), &fresh).map(|told| told.what.stamp.number)
    };
    let stamp = report().stamp;
    let at = stamp.at_ms;
    assert_eq!((judged(at, None), judged(at + 5_000, None), judged(at - 2_000, None)), (Ok(3), Ok(3), Ok(3)));
    assert_eq!(judged(at + 5_001, None), Err(FrameError::Stale { age_ms: 5_001 }));
    assert_eq!(judged(at - 2_001, None), Err(FrameError::Future { ahead_ms: 2_001 }));
    assert_eq!(judged(at, Some(stamp)), Err(FrameError::NotNewer));
    assert_eq!(judged(at, Some(Stamp { number: 4, ..stamp })), Err(FrameError::NotNewer));
    assert_eq!(judged(at, Some(Stamp { number: 2, at_ms: at + 9, ..stamp })), Ok(3));
    assert_eq!(judged(at, Some(Stamp { number: 9, started_ms: 1, ..stamp })), Ok(3), "its daemon has restarted");
    let answer = Fresh::Unasked { now_ms: at, stale_after: Duration::from_secs(5), last: None };
    assert_eq!(decode_report(&frame(), &node(), &key(), &answer), Err(FrameError::Asked));
}

#[test]
fn what_a_node_signs_and_cannot_be_is_refused() {
    assert_eq!(refused(&signed(|frame| frame[4] = 2)), FrameError::Version { found: 2 });
    assert_eq!(refused(&signed(|frame| frame[7] = 1)), FrameError::Impossible { what: "header" });
    assert_eq!(refused(&signed(|frame| frame[6] = 2)), FrameError::Impossible { what: "nonce" });
    assert_eq!(refused(&signed(|frame| frame.push(0))), FrameError::Trailing { bytes: 1 });
    assert_eq!(refused(&signed(|frame| frame.truncate(frame.len() - 1))), FrameError::Cut { what: "placements" });
    // Its record says otherwise than its facts.
    let at = frame().windows(4).position(|bytes| bytes == *b"GPU-").unwrap() - 2;
    assert_eq!(refused(&signed(|frame| frame[at - Record::BYTES] = 0)), FrameError::Impossible { what: "record" });
}

#[test]
fn a_length_that_lies_is_refused_before_room_is_made() {
    let mut wrong = signed(|_| {});
    wrong.truncate(wrong.len() - MAC_BYTES);
    wrong[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
    let signature = key().sign(&wrong);
    wrong.extend(signature);
    assert_eq!(refused(&wrong), FrameError::OtherLength { said: u32::MAX, found: wrong.len() });
    // The name of the node claims what follows and more.
    let cut = signed(|frame| {
        frame.truncate(32);
        frame.extend([253, 0]);
    });
    assert_eq!(refused(&cut), FrameError::Cut { what: "node" });
    let many = signed(|frame| {
        frame.truncate(32);
        frame.extend([255, 255]);
    });
    assert_eq!(refused(&many), FrameError::TooMany { what: "node", count: 65_535, most: 253 });
}

#[test]
fn what_cannot_be_is_not_made_either() {
    let made = |change: fn(&mut Report)| {
        let mut report = report();
        change(&mut report);
        encode_report(&report, Duration::ZERO, None, &key()).map(|_| ()).unwrap_err()
    };
    let impossible = |what| FrameError::Impossible { what };
    assert_eq!(made(|report| report.berth = "0.1\n".into()), impossible("version"));
    assert_eq!(made(|report| report.stamp.number = 0), impossible("stamp"));
    assert_eq!(made(|report| report.gpus[0].past_float_seconds = 1e11), impossible("float time"));
    let untrue = |error: FrameError| matches!(error, FrameError::Untrue(_));
    assert!(untrue(made(|report| report.gpus[0].share = f64::NAN)));
    assert!(untrue(made(|report| report.gpus[0].memory_used_bytes = Some(Bytes(u64::MAX)))));
    assert!(untrue(made(|report| report.gpus[0].uuid.0 = "GPU-1,GPU-2".into())));
    assert!(untrue(made(|report| report.gpus.push(gpu()))));
    assert!(untrue(made(|report| report.gpus[0].loads[0].deadline_seconds = -1.0)));
    assert!(untrue(made(|report| report.gpus[0].loads[0].takes.as_mut().unwrap().units = 0)));
    assert!(untrue(made(|report| report.gpus[0].loads = vec![load(); MOST_LOADS + 1])));
    assert!(untrue(made(|report| report.gpus = vec![gpu(); MOST_GPUS + 1])));
}

/// By one who has the key, and skips the checks of whoever writes.
#[test]
fn what_cannot_be_is_refused_when_it_is_read() {
    let at = |bytes: &[u8]| frame().windows(bytes.len()).position(|window| window == bytes).unwrap();
    let (share, deadline) = (at(&0.9f64.to_le_bytes()), at(&9.0f64.to_le_bytes()));
    let written =
        |at: usize, bytes: &[u8]| refused(&signed(|frame| frame[at..at + bytes.len()].copy_from_slice(bytes)));
    for figure in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300] {
        assert_eq!(written(share, &figure.to_le_bytes()), FrameError::Impossible { what: "share" });
    }
    for (at, figure) in [(share, 0.0f64), (share, 1.5), (deadline, 0.0), (deadline, -1.0), (deadline, 1e9)] {
        let refusal = written(at, &figure.to_le_bytes());
        assert!(matches!(refusal, FrameError::Untrue(_)), "{figure}: {refusal}");
    }
    // How many tenants: more than there are bytes for, and more than are read.
    let loads = at(&0.25f64.to_le_bytes()) + 8;
    let what = "tenants with a deadline";
    assert_eq!(written(loads, &200u16.to_le_bytes()), FrameError::Cut { what });
    assert_eq!(written(loads, &u16::MAX.to_le_bytes()), FrameError::TooMany { what, count: 65_535, most: MOST_LOADS });
    let uuid = at(b"GPU-5f2a");
    assert!(matches!(written(uuid, b"GPU,"), FrameError::Untrue(Impossible::GpuName)));
    assert_eq!(written(uuid, &[0xff]), FrameError::Impossible { what: "uuid" }, "no text at all");
}

#[test]
fn the_largest_report_there_may_be_fits() {
    let gpu = |number: usize| GpuReport {
        uuid: GpuUuid(format!("{number:096}")),
        loads: vec![load(); MOST_LOADS],
        misses_ago_seconds: vec![1.0; MOST_MISSES],
        placed: vec![PlacementId(1); MOST_PLACED],
        ..gpu()
    };
    let node: NodeId = "n".repeat(NodeId::LONGEST).parse().unwrap();
    let largest = Report { node, berth: "v".repeat(64), gpus: (0..MOST_GPUS).map(gpu).collect(), ..report() };
    let frame = encode_report(&largest, Duration::MAX, Some(&NONCE), &key()).unwrap();
    assert!(frame.len() > MOST_BYTES / 2, "{} bytes", frame.len());
}

// === any of them ===

fn seconds() -> impl Strategy<Value = f64> {
    prop_oneof![Just(0.0), 0.0..1e6, -1e6..1e6]
}

fn spread() -> impl Strategy<Value = Spread> {
    vec(0.001..1e5, 1..40).prop_map(|took| Spread::of(took).unwrap())
}

fn a_load() -> impl Strategy<Value = LoadReport> {
    let unit = prop_oneof![Just(Unit::Task), Just(Unit::Burst)];
    let under_way = option::of((seconds(), 0.0..1e6));
    (unit, 0.001..1e6, under_way, option::of(spread())).prop_map(|(unit, deadline_seconds, under_way, takes)| {
        let under_way = under_way.map(|(due, done_seconds): (f64, f64)| UnderWay {
            due_in_seconds: due.min(deadline_seconds),
            done_seconds,
        });
        LoadReport { unit, deadline_seconds, under_way, takes }
    })
}

fn a_gpu() -> impl Strategy<Value = GpuReport> {
    let memory = (option::of(0..1u64 << 48), option::of(0..1u64 << 48), any::<u64>());
    let counts = (any::<u32>(), any::<u32>(), any::<u32>(), option::of(0..=100u32));
    let lists = (vec(a_load(), 0..6), vec(0.0..1e6, 0..6), vec(any::<u64>(), 0..6));
    (memory, counts, lists, (0.001..=1.0, seconds()), any::<[bool; 2]>()).prop_map(
        |((total, used, promised), (queue, others, missed, core), (loads, mut ago, placed), (share, float), flags)| {
            ago.sort_by(f64::total_cmp);
            GpuReport {
                uuid: gpu().uuid,
                is_lost: flags[0],
                memory_total_bytes: total.map(Bytes),
                memory_used_bytes: used.map(|used| Bytes(total.map_or(used, |total| used.min(total)))),
                memory_promised_bytes: Bytes(promised),
                core_pct: core.and_then(Percent::checked),
                queue,
                others,
                share,
                loads,
                has_more: flags[1],
                missed_by_present: missed,
                misses_ago_seconds: ago,
                past_float_seconds: float,
                placed: placed.into_iter().map(PlacementId).collect(),
            }
        },
    )
}

fn a_report() -> impl Strategy<Value = Report> {
    let stamp = (any::<u64>(), 1..=u64::MAX, any::<u64>());
    let policies = [None, Some(PolicyName::Off), Some(PolicyName::Fifo), Some(PolicyName::Paper)];
    let means = proptest::sample::subsequence(vec![Means::Freeze, Means::Lock, Means::Gate, Means::Park], 0..=4);
    (stamp, proptest::sample::select(policies.to_vec()), means, vec(a_gpu(), 0..4), any::<u32>()).prop_map(
        |((started_ms, number, at_ms), policy, means, mut gpus, pasts)| {
            let name = |(at, gpu): (usize, &mut GpuReport)| gpu.uuid.0 = format!("GPU-{at}");
            gpus.iter_mut().enumerate().for_each(name);
            let stamp = Stamp { started_ms, number, at_ms };
            Report { stamp, policy, means, gpus, pasts, ..report() }
        },
    )
}

fn a_past() -> impl Strategy<Value = Past> {
    let unit = prop_oneof![Just(Unit::Task), Just(Unit::Burst)];
    ("[a-z0-9./:@é-]{1,40}", unit, option::of(spread()), option::of(spread()))
        .prop_map(|(image, unit, takes, run)| Past { image, unit, takes, run })
}

/// A few numbers from one, as `splitmix64` has them.
fn draw(seed: &mut u64) -> usize {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*seed ^ *seed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    usize::try_from(mixed >> 33).unwrap()
}

fn mutate(body: &mut Vec<u8>, seed: &mut u64) {
    for _ in 0..=draw(seed) % 3 {
        let at = draw(seed) % body.len().max(1);
        match draw(seed) % 6 {
            0 => body.truncate(at),
            1 => body.insert(at.min(body.len()), 0xff),
            2 if at < body.len() => drop(body.remove(at)),
            3 if at < body.len() => body[at] = [0, 1, 0x7f, 0x80, 0xff][draw(seed) % 5],
            _ if at < body.len() => body[at] ^= 1 << (draw(seed) % 8),
            _ => {}
        }
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read(report in a_report(), age_ms in any::<u32>(), asks in any::<bool>()) {
        let (age, nonce) = (Duration::from_millis(age_ms.into()), asks.then_some(&NONCE));
        let frame = encode_report(&report, age, nonce, &key()).unwrap();
        let now_ms = report.stamp.at_ms;
        let unasked = Fresh::Unasked { now_ms, stale_after: Duration::ZERO, last: None };
        let told = decode_report(&frame, &node(), &key(), if asks { &Fresh::Answer(NONCE) } else { &unasked });
        prop_assert_eq!(told, Ok(Told { what: report, age }));
    }

    #[test]
    fn what_is_remembered_is_read(pasts in vec(a_past(), 0..8), number in any::<u32>()) {
        let pasts = Pasts { node: node(), stamp: report().stamp, number, pasts };
        let frame = encode_pasts(&pasts, Duration::ZERO, Some(&NONCE), &key()).unwrap();
        let told = decode_pasts(&frame, &node(), &key(), &Fresh::Answer(NONCE));
        prop_assert_eq!(told.map(|told| told.what), Ok(pasts));
    }

    #[test]
    fn no_bytes_are_believed_without_a_signature(bytes in vec(any::<u8>(), 0..200), starts_right in any::<bool>()) {
        let bytes = if starts_right { [&frame()[..32], &bytes].concat() } else { bytes };
        decode_report(&bytes, &node(), &key(), &Fresh::Answer(NONCE)).unwrap_err();
        fuzz(&bytes);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Two million bodies, most of them nearly right.
    #[test]
    fn no_body_makes_it_panic_and_what_is_read_would_be_written(
        report in a_report(),
        pasts in vec(a_past(), 0..4),
        mut seed in any::<u64>(),
    ) {
        let (mut one, mut other) = (Writer::default(), Writer::default());
        report::write(&report, &mut one).unwrap();
        pasts::write(&Pasts { node: node(), stamp: report.stamp, number: 1, pasts }, &mut other).unwrap();
        let bodies = [one.done(), other.done()];
        for round in 0..10_000 {
            let mut body = bodies[round % 2].clone();
            mutate(&mut body, &mut seed);
            fuzz(&body);
        }
    }
}
