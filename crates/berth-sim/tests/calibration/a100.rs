//! The `a100` profile is estimated, not calibrated: only its place between the others is held.

use berth_sim::Sharing;
use berth_sim::scenario::{Order, Phase, Report};

fn five(profile: &str, order: Order) -> Report {
    super::run(profile, 5, 8_192, order, Sharing::TimeSliced)
}

#[test]
fn a100_computes_faster_than_rtx3090_and_slower_than_h200() {
    let kernel = |profile| five(profile, Order::OneByOne).mean_ns(Phase::Kernel);
    assert!(kernel("h200") < kernel("a100"));
    assert!(kernel("a100") < kernel("rtx3090"));
}

#[test]
fn turns_beat_fighting_on_an_a100_too() {
    let mean = |order| five("a100", order).mean_completion_ns();
    assert!(mean(Order::KernelsOneByOne) < mean(Order::Together));
}
