use proptest::prelude::*;

use super::*;

fn at(seconds: f64) -> Mono {
    Mono(0) + Duration::from_secs_f64(seconds)
}

/// A task whose time is known exactly.
fn task(id: u64, due: Option<f64>, takes: f64) -> Tenant {
    let known = Spread { units: 1, median_seconds: takes, p90_seconds: takes, most_seconds: takes };
    let piece = Piece { due: due.map(at), takes: Duration::from_secs_f64(takes), done: Duration::ZERO };
    Tenant {
        id: PlacementId(id),
        memory: Bytes::from_mib(10),
        unit: Unit::Task,
        deadline: due.map(Duration::from_secs_f64),
        takes: Some(known),
        pieces: VecDeque::from([piece]),
        to_come: 0,
        has_missed: false,
        last_float: None,
    }
}

fn gpu(rule: Rule) -> Gpu {
    Gpu::new(rule, Bytes::from_mib(100))
}

/// Who was done when, in seconds, from the beginning to the end.
fn run(gpu: &mut Gpu) -> Vec<(u64, f64)> {
    let mut done = Vec::new();
    while let Some(now) = gpu.next_at() {
        done.extend(gpu.step(now).map(|done| (done.id.0, now.since(Mono(0)).as_secs_f64())));
    }
    done
}

fn order(done: &[(u64, f64)]) -> Vec<u64> {
    done.iter().map(|(id, _)| *id).collect()
}

#[test]
fn the_earlier_deadline_goes_first_after_the_kernel_under_way() {
    let mut gpu = gpu(Rule::Edf);
    gpu.arrive(task(1, Some(100.0), 10.0), at(0.0));
    gpu.arrive(task(2, Some(4.0), 2.0), at(0.03));
    let done = run(&mut gpu);
    assert_eq!(order(&done), [2, 1]);
    // A switch, a kernel of 50 ms, a switch, 2 s.
    assert!((done[0].1 - 2.052).abs() < 1e-6, "{done:?}");
    assert_eq!(gpu.busy(at(99.0)), Duration::from_secs(12));
}

#[test]
fn in_order_of_arrival_nobody_goes_before_another_and_shared_all_go_on_at_once() {
    let both = |rule| {
        let mut gpu = gpu(rule);
        gpu.arrive(task(1, Some(100.0), 10.0), at(0.0));
        gpu.arrive(task(2, Some(4.0), 2.0), at(0.03));
        run(&mut gpu)
    };
    assert_eq!(order(&both(Rule::Fifo)), [1, 2]);
    let shared = both(Rule::Share);
    assert!(shared[0].0 == 2 && (3.9..4.3).contains(&shared[0].1), "{shared:?}");
}

#[test]
fn those_without_a_deadline_have_their_share_and_else_what_is_left() {
    let mut gpu = gpu(Rule::Edf);
    gpu.arrive(task(1, None, 3.0), at(0.0));
    gpu.arrive(task(2, Some(200.0), 100.0), at(0.0));
    let done = run(&mut gpu);
    assert_eq!(order(&done), [1, 2]);
    assert!((27.0..34.0).contains(&done[0].1), "3 s at a tenth of the time: {done:?}");
}

#[test]
fn who_finds_too_little_memory_waits_for_it_in_line() {
    let mut gpu = gpu(Rule::Edf);
    gpu.arrive(Tenant { memory: Bytes::from_mib(70), ..task(1, Some(90.0), 5.0) }, at(0.0));
    gpu.arrive(Tenant { memory: Bytes::from_mib(60), ..task(2, Some(9.0), 1.0) }, at(0.0));
    gpu.arrive(task(3, Some(8.0), 1.0), at(0.0));
    assert_eq!((gpu.line().len(), gpu.used(), gpu.queue()), (2, Bytes::from_mib(70), 2));
    assert_eq!(order(&run(&mut gpu)), [1, 3, 2]);
}

#[test]
fn one_that_serves_stays_until_its_last_request_and_is_remembered_for_being_late() {
    let mut gpu = gpu(Rule::Edf);
    let server = Tenant { pieces: VecDeque::new(), to_come: 2, unit: Unit::Burst, ..task(1, Some(1.0), 0.5) };
    gpu.arrive(server, at(0.0));
    assert_eq!(gpu.next_at(), None);
    let piece = |due| Piece { due: Some(at(due)), takes: Duration::from_millis(500), done: Duration::ZERO };
    assert!(gpu.request(PlacementId(1), piece(1.0), at(0.2)));
    assert_eq!(run(&mut gpu).len(), 1);
    assert!(!gpu.tenants()[0].has_missed && gpu.tenants()[0].last_float.is_some_and(|float| float > 0.2));
    assert!(gpu.request(PlacementId(1), piece(2.0), at(1.9)));
    assert_eq!(run(&mut gpu).len(), 1);
    assert!(gpu.tenants().is_empty() && gpu.misses().count() == 1);
    assert!(!gpu.request(PlacementId(1), piece(9.0), at(3.0)), "it has left");
}

proptest! {
    /// However they come, all that is asked for is done, and no more; and one computes at a time.
    #[test]
    fn work_is_neither_lost_nor_made(
        each in prop::collection::vec((0.0_f64..20.0, prop::option::of(0.1_f64..30.0), 0.01_f64..5.0, 1_u64..90), 1..12),
        rule in prop::sample::select(vec![Rule::Edf, Rule::Fifo, Rule::Share]),
    ) {
        let mut gpu = gpu(rule);
        let mut coming: Vec<_> = each.iter().enumerate().collect();
        coming.sort_by(|(_, one), (_, other)| one.0.total_cmp(&other.0));
        let mut done = Vec::new();
        for (id, (comes, due, takes, mib)) in coming {
            while let Some(now) = gpu.next_at().filter(|now| *now <= at(*comes)) {
                done.extend(gpu.step(now).map(|done| (done.id.0, now)));
            }
            let due = due.map(|due| comes + due);
            gpu.arrive(Tenant { memory: Bytes::from_mib(*mib), ..task(id as u64, due, *takes) }, at(*comes));
            prop_assert!(gpu.used() <= gpu.memory);
        }
        while let Some(now) = gpu.next_at() {
            done.extend(gpu.step(now).map(|done| (done.id.0, now)));
        }
        prop_assert_eq!(done.len(), each.len());
        let work: Duration = each.iter().map(|(_, _, takes, _)| Duration::from_secs_f64(*takes)).sum();
        prop_assert_eq!(gpu.busy(at(1e6)), work);
        let last = done.iter().map(|(_, now)| *now).max().unwrap();
        prop_assert!(last.since(Mono(0)) >= work);
    }
}
