//! `edf` on real containers: who is due first goes first, before one that was there and computes.

use berth_load::Phase;
use berth_model::settings::PolicyName;
use berth_model::snapshot::HoldStage;
use serde_json::Value;

use crate::support::held::{explained, is_at, stage};
use crate::support::{Container, Daemon, Engine, until};

/// A quarter of a minute in launches of 0.6 s each.
const LOOSE: [&str; 4] = ["--size", "12000", "--repeats", "25"];
/// As large, so that nothing lets it compute beside the other, and over in a second and a half.
const TIGHT: [&str; 4] = ["--size", "12000", "--repeats", "2"];

/// What is on record of its task once that is judged.
fn judged(daemon: &Daemon, container: &Container) -> Value {
    until("a task on record", || {
        let told = daemon.berth(&["history", "--json", &container.id]).ok();
        let records: Vec<Value> = serde_json::from_str(&told).unwrap();
        records.into_iter().find(|record| record["what"] == "judged")
    })
}

#[test]
fn a_tight_deadline_goes_before_a_loose_one_that_computes_and_both_are_met() {
    let test = "a_tight_deadline_goes_before_a_loose_one_that_computes";
    let Some(engine) = Engine::for_test(test) else { return };
    let Some((host, daemon)) = stage(test, &engine, |settings| settings.hold.policy = PolicyName::Edf) else { return };
    let loose = engine.run(&host, "loose", &["--label", "berth.deadline=5m"], &LOOSE);
    loose.reaches(Phase::Kernel);
    // Not enough to wait until the other is done.
    let tight = engine.run(&host, "tight", &["--label", "berth.deadline=8s"], &TIGHT);
    daemon.row_where(&loose.key(), |row| is_at(row, HoldStage::Held));
    let why = explained(&daemon, &loose.id);
    let reason = why["history"][0]["reason"].as_str().unwrap();
    assert!(reason.contains(&format!("`{}` is due before it", tight.name)), "{why}");

    let in_time = judged(&daemon, &tight);
    assert_eq!(in_time["deadline_hit"], true, "{in_time}");
    daemon.row_where(&loose.key(), |row| !is_at(row, HoldStage::Held));
    let loose_one = judged(&daemon, &loose);
    assert_eq!(loose_one["deadline_hit"], true, "{loose_one}");
    let [waited, computed] =
        [&loose_one["held_seconds"], &in_time["active_seconds"]].map(|value| value.as_f64().unwrap());
    assert!(waited > computed / 2.0, "it stood while the other computed: {loose_one} {in_time}");
}
