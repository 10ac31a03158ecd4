//! What a measurement is worth: it repeats, it can fail, and what it says of the detectors holds for another seed too.

use super::scenes::Scene;
use super::trial::{Trial, measure};
use super::{Level, foresight, store};

#[test]
fn the_same_seed_finds_the_same() {
    let found = |seed| {
        let Trial { found, wrongly, delay, .. } = measure(Scene::Degradation, Level::High, 10, seed);
        (found, wrongly, delay)
    };
    assert_eq!(found(1), found(1));
    assert_ne!(found(1), found(2));
}

#[test]
fn faults_are_found_and_little_else_at_little_noise_by_a_seed_nothing_was_chosen_by() {
    for scene in Scene::ALL {
        let trial = measure(scene, Level::Low, 20, 4_711);
        assert!(trial.recall >= 0.9 && trial.precision >= 0.9, "{trial:?}");
    }
}

#[test]
fn a_scene_that_is_longer_without_a_finding_has_fewer_in_a_day() {
    let trial = measure(Scene::Starvation, Level::High, 20, 4_711);
    assert!(trial.wrongly_per_day > 0.0, "scenes of this noise mislead it: {trial:?}");
    assert!(trial.wrongly_per_day < 20.0 * 86_400.0 / 1_800.0, "{trial:?}");
    let goals = measure(Scene::SloRisk, Level::Middle, 20, 4_711);
    assert!(goals.lead.is_some() && trial.lead.is_none(), "{goals:?}");
}

#[test]
fn a_risk_to_a_goal_is_told_before_it_is_missed_and_its_forecast_is_judged() {
    let trial = measure(Scene::SloRisk, Level::Low, 20, 4_711);
    assert!(trial.before.unwrap() >= 0.8 && trial.lead.as_ref().unwrap().p50 > 0.0, "{trial:?}");
    assert!(trial.foreseen_over_plain.unwrap() > 0.0, "{trial:?}");
}

#[test]
fn a_store_gives_back_what_it_was_given_and_minutes_take_less() {
    let store = store::measure(2_000).unwrap();
    assert!(store.is_complete, "{store:?}");
    assert!(store.minutes_bytes_per_value < store.bytes_per_value / 2.0, "{store:?}");
}

#[test]
fn what_comes_back_is_foreseen_better_than_by_saying_that_all_stays() {
    let told = foresight::measure(3, 4_711);
    let load = told.iter().find(|one| one.figure == foresight::Figure::Load && one.level == Level::Low).unwrap();
    assert!(load.told_over_plain < 0.7, "{load:?}");
}
