//! The built-in profiles against the tables they are calibrated from. `cargo test -p berth-sim --test calibration --
//! --nocapture` prints every measured figure beside the simulated one.

mod a100;
mod h200;
mod h200_contexts;
mod rtx3090;

use berth_sim::scenario::{Order, Report, Scenario};
use berth_sim::{Profile, Sharing};

fn profile(name: &str) -> Profile {
    Profile::builtin(name).expect("built-in profiles load")
}

/// `k` equal products of `n` × `n`.
fn run(name: &str, k: usize, n: u64, order: Order, sharing: Sharing) -> Report {
    Scenario::of(k, n, order, sharing).run(&profile(name)).expect("the programs fit on the GPU")
}
