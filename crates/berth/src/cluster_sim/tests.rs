//! What a run must not invent, and that it can be repeated.

use std::ops::ControlFlow;
use std::time::Duration;

use super::*;

fn setup(way: Way, load: f64) -> Setup {
    Setup { way, load, nodes: 6, lasts: Duration::from_secs(120), ..Setup::default() }
}

fn outcome(setup: &Setup) -> Outcome {
    run(setup, &mut |_| ControlFlow::Continue(()))
}

#[test]
fn the_same_seed_gives_the_same_outcome_and_another_another() {
    let setup = setup(Way::Random, 0.8);
    assert_eq!(outcome(&setup), outcome(&setup));
    assert_ne!(outcome(&setup), outcome(&Setup { seed: 2, ..setup }));
}

#[test]
fn with_hardly_any_load_only_what_is_lost_alone_is_missed_whoever_places() {
    for way in Way::ALL {
        let outcome = outcome(&Setup { lasts: Duration::from_secs(4_000), ..setup(way, 0.02) });
        let all = outcome.all();
        assert!(all.deadlines > 50 && all.missed <= all.lost + all.deadlines / 50, "{outcome:?}");
        assert_eq!((outcome.never_placed, outcome.is_complete), (0, true), "{outcome:?}");
    }
}

#[test]
fn all_work_is_done_whoever_places() {
    for way in Way::ALL {
        let outcome = outcome(&Setup { lasts: Duration::from_secs(600), ..setup(way, 0.6) });
        assert!(outcome.utilisation.is_some_and(|used| (0.4..0.8).contains(&used)), "{outcome:?}");
        assert_eq!(outcome.never_placed, 0, "{outcome:?}");
    }
}

#[test]
fn every_container_is_judged_once_and_all_see_the_same_ones() {
    let counts = Way::ALL.map(|way| {
        let outcome = outcome(&setup(way, 0.9));
        (outcome.containers, outcome.tasks.deadlines, outcome.bursts.deadlines, outcome.all().lost)
    });
    assert!(counts.iter().all(|one| *one == counts[0]), "{counts:?}");
}

#[test]
fn where_reports_are_lost_and_nodes_fail_nobody_goes_where_nothing_is_known() {
    for way in [Way::Fit, Way::Paper] {
        let faults = Setup { report_loss: 0.6, failures: 12, ..setup(way, 0.6) };
        let outcome = outcome(&faults);
        assert!(outcome.displaced > 0, "{outcome:?}");
        assert_eq!((outcome.placed_on_stale, outcome.never_placed, outcome.is_complete), (0, 0, true), "{outcome:?}");
    }
}

#[test]
fn who_has_heard_enough_gets_what_there_is() {
    let mut told = 0;
    let outcome = run(&setup(Way::LeastMemory, 0.8), &mut |progress| {
        told += 1;
        if progress.seconds >= 60.0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!((told, outcome.seconds, outcome.is_complete), (6, 60.0, false));
}
