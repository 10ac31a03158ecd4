//! A program that only launches: what a launch costs the thread that makes it.

use std::time::Instant;

use super::gpu::Gpu;
use super::words::{Input, Launched, Ready, Said, Word, say};
use super::{Place, RoleError};
use crate::driver::CallError;
use crate::sys::Api;
use crate::sys::work::Waiting;

const EXAMPLES: &str = "\
Examples:
  yes go | head -n 20 | berth load launch
  berth load launch --launches 100";

/// Launch an empty kernel many times, and print what a launch costs
///
/// Says `{"event":"ready"}` and launches one batch at each line of its input, with nothing left from the one before. Ends with its input.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Launches of a batch: fewer than a driver queues, or its queue is measured
    #[arg(long, value_name = "COUNT", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..))]
    launches: u32,
    /// Launch as many past a preloaded library, by the driver's own function, and tell what each costs
    #[arg(long)]
    past: bool,
    #[command(flatten)]
    place: Place,
}

pub fn run(args: &Args) -> Result<(), RoleError> {
    let gpu = Gpu::open(&args.place, Waiting::Sleeping)?;
    let find_past = || Api::load_past(&args.place.library, args.place.lookup)?.ok_or(RoleError::NothingPast);
    let past = args.past.then(find_past).transpose()?;
    // What is done once, at the first launches, is no cost of a launch.
    batch(&gpu, args.launches, past.as_ref(), false)?;
    let input = Input::listen();
    say(&Said::Ready(Ready::default()))?;
    // Each comes first as often as the other.
    let mut past_first = false;
    while let Some(Word::Go(_)) = input.next()? {
        say(&Said::Launched(batch(&gpu, args.launches, past.as_ref(), past_first)?))?;
        past_first = !past_first;
    }
    Ok(())
}

fn batch(gpu: &Gpu, launches: u32, past: Option<&Api>, past_first: bool) -> Result<Launched, CallError> {
    let through = || timed(gpu, launches, || gpu.launch_empty());
    let beside = || past.map(|past| timed(gpu, launches, || gpu.launch_empty_past(past))).transpose();
    let (ns_per_launch, past_ns_per_launch) = if past_first {
        let past_ns = beside()?;
        (through()?, past_ns)
    } else {
        (through()?, beside()?)
    };
    Ok(Launched { launches, ns_per_launch, past_ns_per_launch })
}

/// Nanoseconds per launch, with nothing left to do afterwards.
fn timed(gpu: &Gpu, launches: u32, launch: impl Fn() -> Result<(), CallError>) -> Result<f64, CallError> {
    let begun = Instant::now();
    for _ in 0..launches {
        launch()?;
    }
    let ns_per_launch = begun.elapsed().as_secs_f64() * 1e9 / f64::from(launches);
    gpu.synchronize()?;
    Ok(ns_per_launch)
}
