//! What estimates follow, forget and guess.

use proptest::prelude::*;

use super::*;

fn kernel(function: u64) -> Shape {
    Shape { kind: SampleKind::Kernel, function, blocks: 128, threads_per_block: 256, bytes: 0 }
}

#[test]
fn the_same_work_has_the_same_place_and_other_work_another() {
    let estimates = Estimates::new();
    let place = |shape| std::ptr::from_ref(estimates.place(shape).unwrap());
    assert_eq!(place(kernel(7)), place(kernel(7)));
    assert_ne!(place(kernel(7)), place(kernel(8)));
    assert_ne!(place(kernel(7)), place(Shape { blocks: 64, ..kernel(7) }));
    assert_ne!(place(kernel(7)), place(Shape { kind: SampleKind::Graph, ..kernel(7) }));
}

#[test]
fn how_many_blocks_fit_is_asked_once_for_each_shape() {
    let estimates = Estimates::new();
    let place = estimates.place(kernel(7)).unwrap();
    assert_eq!(place.blocks_per_sm(kernel(7)), None);
    assert_eq!(place.ask_blocks_per_sm(kernel(7), || Some(4)), Some(4));
    assert_eq!(place.ask_blocks_per_sm(kernel(7), || panic!("it is known")), Some(4));
    let wider = Shape { bytes: 1, ..kernel(7) };
    let other = estimates.place(wider).unwrap();
    assert_eq!(other.ask_blocks_per_sm(wider, || None), None, "with other shared memory it is another shape");
    assert_eq!(other.ask_blocks_per_sm(wider, || panic!("the driver does not say")), None);
}

#[test]
fn what_is_told_of_one_shape_is_none_of_another_that_has_its_place_by_then() {
    let place = Place::default();
    place.ask_blocks_per_sm(kernel(7), || Some(4));
    assert_eq!(place.blocks_per_sm(kernel(8)), None);
    assert_eq!(place.ask_blocks_per_sm(kernel(8), || Some(2)), Some(2));
}

#[test]
fn copies_of_about_the_same_size_are_alike() {
    let copy = |bytes| Shape { kind: SampleKind::Copy, function: 1, blocks: 0, threads_per_block: 0, bytes };
    assert_eq!(copy(1 << 20).key(), copy((1 << 20) + 4096).key());
    assert_ne!(copy(1 << 20).key(), copy(1 << 22).key());
    assert!(copy(1 << 30).assumed_ns() > 40_000_000);
    assert!(copy(u64::MAX).assumed_ns() > 0);
}

#[test]
fn in_a_full_table_new_work_gets_the_places_of_what_is_not_seen_any_more() {
    let estimates = Estimates::new();
    let often: Vec<Shape> = (0..100).map(kernel).collect();
    let see = |shape: &Shape| estimates.place(*shape).unwrap().known_ns();
    for shape in &often {
        see(shape);
        estimates.learn(*shape, 5_000);
    }
    let mut lost = 0;
    for function in 100..50_000 {
        assert_eq!(see(&kernel(function)), None, "it has nothing of the one before");
        estimates.learn(kernel(function), 7_000);
        if function % 100 == 0 {
            for shape in often.iter().filter(|shape| see(shape) != Some(5_000)) {
                lost += 1;
                estimates.learn(*shape, 5_000);
            }
        }
    }
    assert!(lost < 50, "{lost} of 50,000 times that one was seen of a hundred that go on and on");
    assert_eq!(see(&kernel(49_999)), Some(7_000));
}

#[test]
fn a_shape_that_was_never_seen_is_reckoned_by_others_of_its_function() {
    let (estimates, shape) = (Estimates::new(), |blocks| Shape { blocks, ..kernel(7) });
    assert_eq!(estimates.guess_ns(shape(128)), KERNEL_NS);
    estimates.learn(shape(128), 2_000_000);
    assert_eq!(estimates.guess_ns(shape(256)), 4_000_000);
    assert_eq!(estimates.guess_ns(shape(1)), KERNEL_NS, "a block alone takes its time, too");
    assert_eq!(estimates.guess_ns(kernel(8)), KERNEL_NS, "another function says nothing");
    estimates.learn(shape(128), 3_000);
    assert_eq!(estimates.guess_ns(shape(1)), 3_000);
    assert!(estimates.guess_ns(shape(u32::MAX)) > 3_000);
}

#[test]
fn work_that_has_grown_is_believed_after_some_measurements_that_are_made_at_once() {
    let place = Place::default();
    (0..FIRST).for_each(|_| assert!(place.is_due(512)));
    place.learn(1_000_000);
    for _ in 1..CHANGED_AFTER {
        while !place.is_due(512) {}
        place.learn(50_000_000);
        assert!(place.known_ns().unwrap() < 10_000_000, "it may be another's time");
        assert!(place.is_due(512), "the next is measured");
    }
    place.learn(60_000_000);
    assert_eq!(place.known_ns(), Some(50_000_000));
    assert!(!place.is_due(512));
    place.learn(1_000_000);
    assert_eq!(place.known_ns(), Some(1_000_000));
}

#[test]
fn now_and_then_a_long_measurement_changes_little() {
    let place = Place::default();
    place.learn(1_000_000);
    for _ in 0..20 {
        place.learn(3_000_000);
        place.learn(1_000_000);
    }
    assert_eq!(place.known_ns(), Some(1_000_000));
}

#[test]
fn a_graph_whose_handle_is_given_to_another_has_nothing_of_it() {
    let estimates = Estimates::new();
    let graph = Shape { kind: SampleKind::Graph, blocks: 0, threads_per_block: 0, ..kernel(7) };
    estimates.place(graph);
    estimates.learn(graph, 1_000_000);
    estimates.place(kernel(7));
    estimates.learn(kernel(7), 5_000);
    estimates.forget_graph(7);
    assert_eq!(estimates.place(graph).unwrap().known_ns(), None);
    assert_eq!(estimates.place(kernel(7)).unwrap().known_ns(), Some(5_000));
}

#[test]
fn the_first_few_are_measured_then_one_in_so_many_and_none_where_none_is_wanted() {
    let place = Place::default();
    let due: Vec<u32> = (0..100).filter(|_| place.is_due(32)).collect();
    assert_eq!(due, [0, 1, 2, 32, 64, 96]);
    assert!(!Place::default().is_due(0));
}

proptest! {
    #[test]
    fn an_estimate_lies_between_the_shortest_and_the_longest_measurement(took in prop::collection::vec(1u64..1 << 40, 1..50)) {
        let place = Place::default();
        for ns in &took {
            place.learn(*ns);
        }
        let known = place.known_ns().unwrap();
        prop_assert!(took.iter().min().unwrap() <= &known && &known <= took.iter().max().unwrap());
    }

    #[test]
    fn one_long_measurement_hardly_counts_and_a_shorter_one_at_once(known in 1_000u64..1 << 40, factor in 2u64..1000) {
        prop_assert!(follow(Some(known), known.saturating_mul(factor)) <= known + known * factor / SLOWLY + 1);
        prop_assert_eq!(follow(Some(known), known / factor), (known / factor).max(1));
    }
}
