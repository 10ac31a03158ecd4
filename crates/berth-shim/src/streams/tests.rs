//! Who has a place in the table, and who is seen to have passed.

use proptest::prelude::*;

use super::*;

const WHO: Identity = Identity { context: 77, thread: 0, lane: 3 };

#[test]
fn a_stream_is_found_until_it_is_forgotten() {
    let streams = Streams::new();
    assert_eq!(streams.find(0x5000), None);
    let place = streams.insert(0x5000, WHO).unwrap();
    streams.get(place).event.store(9, Ordering::Relaxed);
    assert_eq!(streams.find(0x5000), Some(place));
    assert_eq!(streams.forget(|stream| stream.context.load(Ordering::Relaxed) == 77), [(9, 77)]);
    assert_eq!(streams.find(0x5000), None);
    let again = streams.insert(0x5000, WHO).unwrap();
    assert_eq!(streams.get(again).event.load(Ordering::Relaxed), 0, "the next one has nothing of the last");
}

#[test]
fn streams_that_come_and_go_by_the_hundred_thousand_find_a_place() {
    let streams = Streams::new();
    for key in 0..100_000u64 {
        let place = streams.insert(0x1_0000 + key * 64, WHO).expect("all others were given back");
        assert_eq!(streams.find(0x1_0000 + key * 64), Some(place));
        assert_eq!(streams.give_back(place).count(), 0);
    }
}

#[test]
fn streams_beyond_the_table_are_turned_away_and_the_others_stay() {
    let streams = Streams::new();
    let placed = (0..10_000u64).filter(|key| streams.insert(0x1_0000 + key * 64, WHO).is_some()).count();
    assert!((PLACES * 9 / 10..=PLACES).contains(&placed), "{placed}");
    assert!(streams.find(0x1_0000).is_some());
}

#[test]
fn streams_of_a_thread_that_has_ended_are_told_from_others() {
    let streams = Streams::new();
    let own = streams.insert(0x5000, Identity { thread: 4, ..WHO }).unwrap();
    let other = streams.insert(0x6000, WHO).unwrap();
    streams.abandon(4);
    assert!(streams.get(own).is_abandoned() && !streams.get(other).is_abandoned());
}

#[test]
fn a_stream_that_is_destroyed_with_work_is_active_until_that_is_done_and_its_handle_is_free() {
    let streams = Streams::new();
    let old = streams.insert(0x5000, WHO).unwrap();
    streams.set_active(old);
    assert_eq!(streams.get(old).handle(), Some(0x5000));
    streams.orphan(old);
    assert_eq!((streams.find(0x5000), streams.get(old).handle()), (None, None));
    let new = streams.insert(0x5000, WHO).unwrap();
    assert!(new != old && streams.get(old).is_abandoned() && !streams.get(new).is_abandoned());
    assert_eq!(streams.active(3).collect::<Vec<_>>(), [old]);
    assert!(streams.forget_orphans(|_| false).is_empty() && streams.active(3).count() == 1, "it still works");
    streams.forget_orphans(|_| true);
    assert_eq!((streams.active(3).count(), streams.find(0x5000)), (0, Some(new)));
    streams.forget_orphans(|_| panic!("there is none"));
}

#[test]
fn a_gate_comes_once_in_so_many_waits() {
    let stream = Stream::default();
    let gates: Vec<u32> = (1..=1000).filter(|_| stream.is_gate_due()).collect();
    assert_eq!(gates, [256, 512, 768]);
}

#[test]
fn default_streams_are_named_by_others_only_where_they_are_a_contexts() {
    let streams = Streams::new();
    let legacy = streams.insert(default_key(77, 0), WHO).unwrap();
    let own = streams.insert(default_key(77, 4), Identity { thread: 4, ..WHO }).unwrap();
    assert_eq!((streams.get(legacy).handle(), streams.get(own).handle()), (Some(STREAM_LEGACY), None));
}

#[test]
fn active_streams_are_told_by_gpu() {
    let streams = Streams::new();
    let a = streams.insert(0x5000, WHO).unwrap();
    let b = streams.insert(0x6000, Identity { lane: 1, ..WHO }).unwrap();
    assert!(streams.set_active(a) && streams.set_active(b));
    assert!(!streams.set_active(a), "it was active before");
    assert_eq!(streams.active(3).collect::<Vec<_>>(), [a]);
    streams.set_done(a);
    assert_eq!(streams.active(3).count(), 0);
    assert!(streams.set_active(a));
}

proptest! {
    #[test]
    fn between_two_waits_there_is_a_grain_of_work_or_one_piece(pieces in prop::collection::vec(1u64..200_000, 1..200), grain in 1u64..300_000) {
        let stream = Stream::default();
        let mut run: Vec<u64> = Vec::new();
        for (index, piece) in pieces.into_iter().enumerate() {
            if stream.needs_wait(piece, grain, index == 0) {
                run.clear();
            }
            run.push(piece);
            prop_assert!(run.len() == 1 || run.iter().sum::<u64>() <= grain, "{:?}", run);
        }
    }

    #[test]
    fn a_stream_that_was_idle_looks_first(estimate in 0u64..1 << 50, grain in 0u64..1 << 50) {
        prop_assert!(Stream::default().needs_wait(estimate, grain, true));
    }
}
