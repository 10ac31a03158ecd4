//! The published rule and its repairs.

use super::*;

#[test]
fn most_free_memory_first_whose_float_time_exceeds_the_deadline() {
    let list = list(
        PAPER,
        [
            ("a", vec![busy(70, vec![task(4.0, None), task(4.0, None)])]),
            ("b", vec![busy(40, vec![task(5.0, None), task(5.0, None)])]),
            ("c", vec![gpu(10)]),
        ],
    );
    let newcomer = |deadline| wanted(deadline, None, gib(1));
    assert_eq!(chosen(&list, &newcomer(7.0), START), "a/GPU-0");
    assert_eq!(chosen(&list, &newcomer(9.0), START), "b/GPU-0");
    assert_eq!(chosen(&list, &newcomer(10.0), START), "c/GPU-0", "nobody there has a deadline: without bound");
    assert_eq!(why(&list, "b", &newcomer(10.0), START), "its float time of 10.000 s does not exceed 10.000 s");
    assert_eq!(chosen(&list, &newcomer(9.0), after(1.0)), "c/GPU-0", "what is under way has less time now");
    assert_eq!(chosen(&list, &Wanted::anything(), START), "a/GPU-0");
}

#[test]
fn a_miss_full_cores_and_full_memory_make_it_not_placeable() {
    let missed = GpuReport { missed_by_present: 2, ..gpu(40) };
    let computing = GpuReport { core_pct: Percent::checked(100), ..gpu(40) };
    let late = busy(40, vec![task(-1.0, None)]);
    let past = GpuReport { past_float_seconds: 20.0, ..busy(30, vec![server(5.0, None)]) };
    let list = list(
        PAPER,
        [
            ("missed", vec![missed]),
            ("computing", vec![computing]),
            ("full", vec![gpu(0)]),
            ("late", vec![late]),
            ("past", vec![past]),
        ],
    );
    let newcomer = wanted(9.0, None, gib(1));
    assert_eq!(why(&list, "missed", &newcomer, START), "2 containers there missed their deadlines");
    assert_eq!(why(&list, "computing", &newcomer, START), "its GPUs compute all the time");
    assert_eq!(why(&list, "full", &newcomer, START), "its GPU memory is full");
    let told = "its float time of -1.000 s does not exceed 9.000 s";
    assert_eq!(why(&list, "late", &newcomer, START), told, "it is no miss before its end");
    assert_eq!(chosen(&list, &newcomer, START), "past/GPU-0");
}

#[test]
fn each_gpu_is_judged_as_a_node_and_what_is_on_its_way_counts() {
    let mut list = list(PAPER, [("a", vec![busy(70, vec![task(4.0, None)]), gpu(30)]), ("b", vec![gpu(20)])]);
    let newcomer = wanted(9.0, None, gib(15));
    assert_eq!(chosen(&list, &newcomer, START), "a/GPU-1");
    let place = list.choose(&newcomer, Among::All, START).unwrap();
    list.reserve(PlacementId(1), &newcomer, &place.choice, START);
    assert_eq!(chosen(&list, &newcomer, START), "b/GPU-0", "15 GiB are left, and its float time is 9 s");
    assert_eq!(why(&list, "a", &newcomer, START), "what is on its way there takes what is left");
}
