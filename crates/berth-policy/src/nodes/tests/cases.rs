//! The cases people ask about.

use super::*;

#[test]
fn it_goes_where_least_is_due_by_its_deadline() {
    let late = vec![task(60.0, exactly(50.0))];
    let list = list(
        SETTINGS,
        [
            ("a", vec![busy(40, vec![task(5.0, exactly(4.0))])]),
            ("b", vec![busy(40, late)]),
            ("c", vec![busy(40, vec![server(2.0, exactly(1.0))])]),
        ],
    );
    // By 9 s 4 s are due on `a` and 4 on `c`; on `b` nothing, but it would be late with more than 10 s more.
    assert_eq!(chosen(&list, &wanted(9.0, exactly(4.0), gib(10)), START), "b/GPU-0");
    assert_eq!(chosen(&list, &wanted(55.0, exactly(30.0), gib(10)), START), "a/GPU-0");
    assert_eq!(
        why(&list, "b", &wanted(55.0, exactly(30.0), gib(10)), START),
        "80.000 s of GPU time would be due within 60.000 s"
    );
    assert_eq!(chosen(&list, &wanted(9.0, exactly(8.0), gib(10)), START), "b/GPU-0");
    assert_eq!(chosen(&list, &wanted(9.0, exactly(9.5), gib(10)), START), "nobody");
    assert_eq!(why(&list, "b", &wanted(9.0, exactly(9.5), gib(10)), START), "alone it would take 9.500 s of 9.000 s");
}

#[test]
fn what_is_due_comes_nearer_as_a_report_ages() {
    let list = list(SETTINGS, [("a", vec![busy(40, vec![task(12.0, exactly(6.0))])])]);
    let newcomer = wanted(9.0, exactly(5.0), gib(10));
    assert_eq!(chosen(&list, &newcomer, START), "a/GPU-0");
    assert_eq!(chosen(&list, &newcomer, after(4.0)), "nobody", "6 s are due in 8 s");
}

#[test]
fn memory_must_be_free_and_neither_promised_nor_on_its_way() {
    let promised = GpuReport { memory_promised_bytes: gib(30), ..gpu(40) };
    let silent = GpuReport { memory_used_bytes: None, ..gpu(80) };
    let mut list = list(SETTINGS, [("a", vec![promised]), ("b", vec![gpu(19)]), ("c", vec![silent])]);
    let newcomer = wanted(9.0, exactly(1.0), gib(20));
    assert_eq!(why(&list, "a", &newcomer, START), "at most 10.0 GiB is free on a GPU, 20.0 GiB is wanted");
    assert_eq!(why(&list, "c", &newcomer, START), "how much memory is free there is not known");
    assert_eq!(chosen(&list, &newcomer, START), "nobody");
    let smaller = Wanted { memory_bytes: Some(gib(12)), ..newcomer };
    let place = list.choose(&smaller, Among::All, START).unwrap();
    assert_eq!(shown(&place.choice), "b/GPU-0");
    list.reserve(PlacementId(1), &smaller, &place.choice, START);
    assert_eq!(chosen(&list, &smaller, START), "nobody");
    assert_eq!(why(&list, "b", &smaller, START), "what is on its way there takes what is left");
    let larger = Wanted { memory_bytes: Some(gib(20)), ..smaller };
    assert_eq!(
        list.verdict(&id("b"), &larger, START),
        Err(NotHere::TooLittleMemory { free_bytes: gib(7), wanted_bytes: gib(20) }),
        "without it there would not be enough either"
    );
}

#[test]
fn a_gpu_that_is_sure_to_do_goes_before_one_of_which_something_is_not_known() {
    let list = list(
        SETTINGS,
        [
            ("strange", vec![busy(40, vec![task(50.0, None)])]),
            ("missed", vec![GpuReport { misses_ago_seconds: vec![59.0], ..gpu(40) }]),
            ("busy", vec![busy(40, vec![task(9.0, exactly(7.0))])]),
        ],
    );
    let ranked = |newcomer: &Wanted| -> Vec<String> {
        let told = list.rank(newcomer, Among::All, START).into_iter();
        told.map(|verdict| format!("{}{}", verdict.node, if verdict.result.is_ok() { "" } else { "!" })).collect()
    };
    assert_eq!(ranked(&wanted(9.0, exactly(1.0), gib(1))), ["missed", "busy", "strange"]);
    assert_eq!(ranked(&wanted(9.0, exactly(3.0), gib(1))), ["missed", "strange", "busy!"]);
    assert_eq!(ranked(&wanted(9.0, None, gib(1))), ["strange", "missed", "busy"], "none is sure, none is refused");
}

#[test]
fn a_miss_counts_where_there_is_about_as_much_room_and_not_against_an_empty_gpu() {
    let beside = |seconds| {
        let missed = GpuReport { misses_ago_seconds: vec![59.0], ..gpu(40) };
        let list =
            list(SETTINGS, [("missed", vec![missed]), ("busy", vec![busy(40, vec![task(9.0, exactly(seconds))])])]);
        chosen(&list, &wanted(9.0, exactly(1.0), gib(1)), START)
    };
    assert_eq!(beside(0.2), "busy/GPU-0");
    assert_eq!(beside(5.0), "missed/GPU-0");
}

#[test]
fn several_gpus_are_of_one_node_and_all_must_do() {
    let full = busy(40, vec![task(9.0, exactly(8.0))]);
    let lost = GpuReport { is_lost: true, ..gpu(40) };
    let list = list(
        SETTINGS,
        [
            ("a", vec![gpu(40), full.clone(), gpu(10)]),
            ("b", vec![full.clone(), gpu(40), gpu(40)]),
            ("c", vec![gpu(40)]),
            ("d", vec![lost.clone(), gpu(40)]),
            ("e", vec![lost]),
            ("f", vec![]),
        ],
    );
    let two = Wanted { gpus: 2, ..wanted(9.0, exactly(3.0), gib(20)) };
    assert_eq!(chosen(&list, &two, START), "b/GPU-1+GPU-2");
    assert_eq!(why(&list, "a", &two, START), "11.000 s of GPU time would be due within 9.000 s");
    assert_eq!(why(&list, "c", &two, START), "it has 1 of 2 GPUs");
    assert_eq!(why(&list, "d", &two, START), "it has 1 of 2 GPUs");
    assert_eq!(why(&list, "e", &two, START), "its GPUs do not answer");
    assert_eq!(why(&list, "f", &two, START), "it has no GPU");
    let three = Wanted { gpus: 3, ..two };
    assert_eq!(why(&list, "a", &three, START), "at most 10.0 GiB is free on a GPU, 20.0 GiB is wanted");
}

#[test]
fn what_has_no_deadline_goes_where_it_gets_most() {
    let crowded = GpuReport { others: 3, ..gpu(40) };
    let half = busy(40, vec![server(2.0, exactly(1.0))]);
    let mut list = list(SETTINGS, [("crowded", vec![crowded]), ("half", vec![half]), ("small", vec![gpu(4)])]);
    let newcomer = Wanted { memory_bytes: Some(gib(10)), ..Wanted::anything() };
    assert_eq!(chosen(&list, &newcomer, START), "half/GPU-0");
    let place = list.choose(&newcomer, Among::All, START).unwrap();
    for number in 0..3 {
        list.reserve(PlacementId(number), &newcomer, &place.choice, START);
    }
    assert_eq!(chosen(&list, &newcomer, START), "crowded/GPU-0");
}

/// A GPU that keeps a tenth for those without a deadline, with a task that takes so much of the next 10 s.
fn due_in_10_s(seconds: f64) -> GpuReport {
    GpuReport { share: 0.9, ..busy(40, vec![task(10.0, exactly(seconds))]) }
}

#[test]
fn the_first_without_a_deadline_goes_nowhere_where_its_share_makes_somebody_late() {
    let crowded = GpuReport { others: 1, ..due_in_10_s(9.5) };
    let mut list = list(SETTINGS, [("a", vec![due_in_10_s(9.5)]), ("b", vec![due_in_10_s(9.1)])]);
    let newcomer = Wanted { memory_bytes: Some(gib(10)), ..Wanted::anything() };
    assert_eq!(chosen(&list, &newcomer, START), "nobody");
    assert_eq!(why(&list, "a", &newcomer, START), "9.500 s of GPU time would be due within 9.000 s");
    list.apply(report("b", 2, vec![due_in_10_s(8.9)]), START).unwrap();
    assert_eq!(chosen(&list, &newcomer, START), "b/GPU-0");
    list.apply(report("b", 3, vec![crowded]), START).unwrap();
    assert_eq!(chosen(&list, &newcomer, START), "b/GPU-0", "the share is taken already");
}

#[test]
fn who_is_late_anyway_does_not_keep_out_those_without_a_deadline() {
    let newcomer = Wanted { memory_bytes: Some(gib(10)), ..Wanted::anything() };
    let with = |loads| GpuReport { share: 0.9, ..busy(40, loads) };
    let told = |loads| {
        let list = list(SETTINGS, [("a", vec![with(loads)])]);
        assert_eq!(
            list.choose(&newcomer, Among::All, START).is_some(),
            list.verdict(&id("a"), &newcomer, START).is_ok()
        );
        why(&list, "a", &newcomer, START)
    };
    let overdue = || task(-3.0, exactly(2.0));
    assert_eq!(told(vec![overdue()]), "a/GPU-0");
    assert_eq!(told(vec![overdue(), task(10.0, exactly(8.9)), server(100.0, exactly(0.1))]), "a/GPU-0");
    assert_eq!(told(vec![task(1.0, exactly(2.0))]), "a/GPU-0", "lost before it is due");
    assert_eq!(told(vec![server(1.0, exactly(2.0))]), "a/GPU-0", "too much in the long run, with or without it");
    assert_eq!(told(vec![task(4.0, exactly(3.0)), task(4.0, exactly(3.0))]), "a/GPU-0", "not both can be in time");
    // Others still are, and it would be its doing if they were not.
    assert_eq!(told(vec![overdue(), task(10.0, exactly(9.5))]), "9.500 s of GPU time would be due within 9.000 s");
    assert_eq!(
        told(vec![task(4.0, exactly(3.0)), task(4.0, exactly(3.0)), task(1.0, exactly(0.95))]),
        "0.950 s of GPU time would be due within 0.900 s"
    );
    assert_eq!(told(vec![server(1.0, exactly(0.95))]), "0.950 s of GPU time would be due within 0.900 s");
}

#[test]
fn one_without_a_deadline_that_is_on_its_way_takes_its_share() {
    let mut list = list(SETTINGS, [("a", vec![due_in_10_s(5.0)])]);
    let newcomer = wanted(10.0, exactly(4.5), gib(10));
    assert_eq!(chosen(&list, &newcomer, START), "a/GPU-0");
    let choice = Choice { node: id("a"), gpus: vec![GpuUuid("GPU-0".into())] };
    list.reserve(PlacementId(1), &Wanted::anything(), &choice, START);
    assert_eq!(chosen(&list, &newcomer, START), "nobody");
    assert_eq!(why(&list, "a", &newcomer, START), "what is on its way there takes what is left");
}

#[test]
fn packing_leaves_large_rests_whole_and_spreading_takes_the_smaller_of_equals() {
    let nodes = || [("a", vec![gpu(80)]), ("b", vec![busy(26, vec![task(9.0, exactly(1.0))])]), ("c", vec![gpu(40)])];
    let newcomer = wanted(9.0, exactly(2.0), gib(20));
    assert_eq!(chosen(&list(PACK, nodes()), &newcomer, START), "b/GPU-0");
    assert_eq!(chosen(&list(SETTINGS, nodes()), &newcomer, START), "c/GPU-0");
    let unknown = Wanted { memory_bytes: None, ..newcomer };
    assert_eq!(chosen(&list(PACK, nodes()), &unknown, START), "a/GPU-0", "it may need a lot");
}

#[test]
fn the_engine_and_the_age_of_a_report_leave_nodes_out() {
    let mut list = list(SETTINGS, [("a", vec![gpu(80)]), ("b", vec![gpu(80)])]);
    list.engine(&id("silent"), Engine::Ready);
    let anything = Wanted::anything();
    for (engine, told) in [
        (Engine::Paused, "its engine is paused"),
        (Engine::Drained, "its engine is drained"),
        (Engine::Down, "its engine does not answer"),
    ] {
        list.engine(&id("a"), engine);
        assert_eq!(why(&list, "a", &anything, START), told);
    }
    assert_eq!(why(&list, "silent", &anything, START), "its berth has not reported");
    assert_eq!(chosen(&list, &anything, after(5.0)), "b/GPU-0");
    assert_eq!(chosen(&list, &anything, after(5.5)), "nobody");
    assert_eq!(why(&list, "b", &anything, after(5.5)), "its last report is 5.5 s old");
    let refusals = list.refusals(&anything, Among::Only(&[id("a"), id("b"), id("b")]), after(5.5));
    assert_eq!(
        refusals.0.into_iter().collect::<Vec<_>>(),
        [("down".into(), 1), ("excluded".into(), 1), ("stale".into(), 1)]
    );
    list.engine(&id("a"), Engine::Ready);
    list.remove(&id("b"));
    assert_eq!(chosen(&list, &anything, START), "a/GPU-0");
    assert_eq!(list.choose(&anything, Among::Only(&[id("b"), id("x")]), START), None);
}

#[test]
fn reports_are_taken_once_in_order_and_of_nodes_that_are_there() {
    let mut list = list(SETTINGS, [("a", vec![gpu(80)])]);
    let apply = |list: &mut NodeList, report, at| list.apply(report, at).map_err(|error| error.to_string());
    let older = Err("a report of a that is not newer than the last one".to_owned());
    assert_eq!(apply(&mut list, report("a", 1, vec![]), START), older, "a replay");
    apply(&mut list, report("a", 3, vec![gpu(10)]), START).unwrap();
    assert_eq!(apply(&mut list, report("a", 2, vec![]), START), older);
    let told = apply(&mut list, report("b", 9, vec![]), START).unwrap_err();
    assert_eq!(told, "a report of b, which is no node of the cluster");
    let set_back = |number| {
        let stamp = Stamp { started_ms: 0, number, at_ms: 0 };
        Arc::new(Report { stamp, ..(*report("a", 1, vec![gpu(20)])).clone() })
    };
    assert_eq!(apply(&mut list, set_back(1), after(5.0)), older, "another start, and the last is still heard");
    assert_eq!(apply(&mut list, set_back(2), after(5.1)), Ok(()), "the clock of its host was set back");
}

#[test]
fn a_report_that_cannot_be_leaves_its_node_out_until_the_next() {
    let mut list = list(SETTINGS, [("a", vec![gpu(80)])]);
    let wrong = GpuReport { share: f64::NAN, ..gpu(80) };
    assert!(matches!(list.apply(report("a", 2, vec![wrong]), START), Err(NotApplied::Impossible { .. })));
    assert_eq!(why(&list, "a", &Wanted::anything(), START), "its berth has not reported");
    assert_eq!(chosen(&list, &Wanted::anything(), START), "nobody");
    list.apply(report("a", 3, vec![gpu(80)]), START).unwrap();
    assert_eq!(chosen(&list, &Wanted::anything(), START), "a/GPU-0");
}

#[test]
fn a_reservation_ends_when_it_is_seen_released_or_too_old() {
    let mut list = list(SETTINGS, [("a", vec![gpu(80), gpu(80)])]);
    let two = Wanted { gpus: 2, ..wanted(9.0, exactly(5.0), gib(20)) };
    let place = list.choose(&two, Among::All, START).unwrap();
    let reserve = |list: &mut NodeList, number| list.reserve(PlacementId(number), &two, &place.choice, START);
    reserve(&mut list, 1);
    assert_eq!((list.reserved(&id("a")), chosen(&list, &two, START).as_str()), (1, "nobody"));
    list.release(PlacementId(1));
    assert_eq!((list.reserved(&id("a")), chosen(&list, &two, START).as_str()), (0, "a/GPU-0+GPU-1"));

    reserve(&mut list, 2);
    let seen = GpuReport { placed: vec![PlacementId(7), PlacementId(2)], ..gpu(60) };
    list.apply(report("a", 2, vec![seen.clone(), gpu(80)]), START).unwrap();
    assert_eq!(list.reserved(&id("a")), 1, "on the other GPU it is still on its way");
    let one = Wanted { gpus: 1, ..two.clone() };
    assert_eq!(chosen(&list, &one, START), "a/GPU-0");
    list.apply(report("a", 3, vec![seen.clone(), seen]), START).unwrap();
    assert_eq!(list.reserved(&id("a")), 0);
    reserve(&mut list, 2);
    assert_eq!(list.reserved(&id("a")), 0, "its report tells of it already");

    reserve(&mut list, 3);
    assert_eq!(list.expire(after(30.0)), []);
    assert_eq!(list.expire(after(31.0)), [PlacementId(3)]);
    assert_eq!(list.reserved(&id("a")), 0);
}

#[test]
fn what_is_on_its_way_is_due_since_it_was_placed() {
    let mut list = list(SETTINGS, [("a", vec![gpu(80)])]);
    let first = wanted(6.0, exactly(5.0), gib(1));
    let place = list.choose(&first, Among::All, after(1.0)).unwrap();
    list.reserve(PlacementId(1), &first, &place.choice, after(1.0));
    let second = wanted(9.0, exactly(4.0), gib(1));
    assert_eq!(chosen(&list, &second, after(1.0)), "a/GPU-0");
    assert_eq!(
        why(&list, "a", &Wanted { takes: exactly(4.5), ..second }, after(2.0)),
        "what is on its way there takes what is left"
    );
}

#[test]
fn a_place_holds_if_its_own_gpus_would_be_given_to_it_again() {
    let mut list = list(SETTINGS, [("n1", vec![gpu(40), gpu(80)])]);
    let (wanted, on) =
        (wanted(1e3, None, gib(30)), |gpu: &str| Choice { node: id("n1"), gpus: vec![GpuUuid(gpu.into())] });
    let (one, two) = (PlacementId(1), PlacementId(2));
    list.reserve(one, &wanted, &on("GPU-0"), START);
    assert_eq!(list.holds(one, &wanted, &on("GPU-0"), START), Ok(()), "it is not in its own way");
    list.reserve(two, &wanted, &on("GPU-0"), START);
    assert_eq!(list.reserved(&id("n1")), 2);
    let told = list.holds(one, &wanted, &on("GPU-0"), START);
    assert!(
        matches!(told, Err(NotHere::TooLittleMemory { .. })),
        "{told:?}, though the other GPU of its node has room"
    );
    list.release(two);
    assert_eq!(list.reserved(&id("n1")), 1);
    list.apply(report("n1", 2, vec![GpuReport { is_lost: true, ..gpu(40) }, gpu(80)]), START).unwrap();
    assert_eq!(list.holds(one, &wanted, &on("GPU-0"), START), Err(NotHere::GpusLost));
    assert!(matches!(list.holds(one, &wanted, &on("GPU-1"), after(9.0)), Err(NotHere::Stale { .. })));
}
