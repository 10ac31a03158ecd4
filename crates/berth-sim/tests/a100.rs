//! The `a100` profile is estimated, not calibrated: only its place between the others is held.

use berth_sim::scenario::{Order, Phase, Report, Scenario};
use berth_sim::{Profile, Sharing};

fn run(profile: &str, order: Order) -> Report {
    Scenario::of(5, 8_192, order, Sharing::TimeSliced).run(&Profile::builtin(profile).unwrap()).unwrap()
}

#[test]
fn a100_computes_faster_than_rtx3090_and_slower_than_h200() {
    let kernel = |profile| run(profile, Order::OneByOne).mean_ns(Phase::Kernel);
    assert!(kernel("h200") < kernel("a100"));
    assert!(kernel("a100") < kernel("rtx3090"));
}

#[test]
fn turns_beat_fighting_on_an_a100_too() {
    assert!(
        run("a100", Order::KernelsOneByOne).mean_completion_ns() < run("a100", Order::Together).mean_completion_ns()
    );
}
