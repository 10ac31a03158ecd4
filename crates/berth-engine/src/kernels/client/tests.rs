//! One client in made-up time.

use super::*;

#[test]
fn a_gpu_is_called_as_the_driver_calls_it() {
    let bytes = [0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff];
    assert_eq!(gpu_uuid(bytes).0, "GPU-00112233-4455-6677-8899-aabbccddeeff");
}

#[test]
fn of_a_ring_each_place_is_read_once_and_what_was_written_over_is_lost() {
    let mut ring = Ring::default();
    let mut places = |written| ring.unread(written, 4).collect::<Vec<_>>();
    assert_eq!(places(3), [0; 0], "they may not be written yet");
    assert_eq!(places(3), [0, 1, 2]);
    assert_eq!(places(9), [0; 0]);
    assert_eq!(places(5), [1, 2, 3, 0], "of six the last four are there, and one that jumps back is ignored");
    assert_eq!((places(u64::MAX).len(), places(0).len(), places(0).len()), (0, 4, 0));
}

fn lane() -> Lane {
    let told = message::Lane { lane: 0, uuid: [0; 16], sm_count: 132, waits_on_gpu: true, divides: true };
    Lane::new(gpu_uuid([0; 16]), told)
}

#[test]
fn a_request_that_is_begun_at_the_end_of_another_came_before_that() {
    let (ms, mut lane) = (Duration::from_millis, lane());
    let mut look = |began: u64, now: u64| {
        lane.doing = Doing { busy: true, since: Some(Mono(began * 1_000_000)), ..Doing::default() };
        lane.pass(true, 1, ms(1), Mono(now * 1_000_000));
    };
    look(1, 2);
    look(5, 6);
    lane.ended(Mono(1_000_000), ms(4));
    let work = lane.work().unwrap();
    assert_eq!((work.began, work.came), (Mono(5_000_000), Mono(3_000_000)));
}

#[test]
fn a_request_takes_the_time_it_had_the_gpu_for_and_one_nobody_looked_at_as_long_as_it_lasted() {
    let (ms, mut lane) = (Duration::from_millis, lane());
    for at in 1..=20u64 {
        let busy = at < 20;
        lane.doing = Doing { busy, since: Some(Mono(1)), ..Doing::default() };
        lane.pass(at > 10, 1, ms(1), Mono(at * 1_000_000));
    }
    lane.ended(Mono(1), ms(19));
    assert_eq!(lane.takes, Some(ms(9)), "it stood for the rest");
    assert_eq!(lane.work(), None);
    let mut unseen = lane_with(ms(3));
    unseen.ended(Mono(9), ms(3));
    assert_eq!(unseen.takes, Some(ms(3)));
}

#[test]
fn what_it_had_of_late_is_its_part_of_seconds_and_not_of_a_day() {
    let (ms, mut lane) = (Duration::from_millis, lane());
    let part = |lane: &Lane, now| {
        let (had, since) = lane.had_lately(Mono(now));
        had.as_secs_f64() / Mono(now).since(since).as_secs_f64()
    };
    lane.doing = Doing { busy: true, since: Some(Mono(1)), ..Doing::default() };
    (0..4_000).for_each(|_| lane.pass(true, 2, ms(10), Mono(1)));
    assert!((part(&lane, 100_000_000_000) - 0.5).abs() < 1e-6);
    (0..4_000).for_each(|_| lane.pass(false, 1, ms(10), Mono(1)));
    assert!(part(&lane, 100_000_000_000) < 0.01, "40 s ago it had half");
    assert_eq!(Duration::from_nanos(lane.served_ns), Duration::from_secs(20), "which is shown");
}

fn lane_with(takes: Duration) -> Lane {
    Lane { takes: Some(takes), ..lane() }
}
