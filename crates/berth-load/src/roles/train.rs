//! A program that trains: steps of a few hundred short kernels, or of long ones, one after the other for as long as it may.
//!
//! As frameworks do, it submits a step ahead of the one that runs, and waits only for the one before.

use std::time::Duration;

use super::arrivals::kernel_times_us;
use super::calibration::Given;
use super::gpu::{Gpu, Spin};
use super::words::{Input, Ready, Said, Trained, Word, say};
use super::{Place, RoleError};
use crate::driver::CallError;
use crate::record::Stamp;
use crate::sys::work::Waiting;

/// As many threads as there is room for: large batches fill a GPU.
const BLOCKS_PER_SM: u32 = 8;
/// Long kernels are long because they have many blocks, which take turns.
const LONG_WAVES: u32 = 20;
const WARM_UP_STEPS: usize = 3;
/// A kernel should leave the display and the driver's watchdog alone.
const LONGEST_KERNEL: Duration = Duration::from_secs(1);

const EXAMPLES: &str = "\
Examples:
  (echo; sleep 5; echo) | berth load train
  berth load train --kernel-ms 20      a neighbour of long kernels";

/// Train in steps of many kernels, and print when each step was done
///
/// Says `{"event":"ready"}`, begins at a line of its input, ends at the next and prints the times of its steps; and so on until the input ends. Between, `kernels` asks how many it has submitted.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Kernels of a step
    #[arg(long, value_name = "COUNT", default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..))]
    kernels: u32,
    /// How long the shortest takes alone
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 10.0)]
    shortest_us: f64,
    /// How long the longest takes alone
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 400.0)]
    longest_us: f64,
    /// Instead: a step is one kernel that takes this long alone
    #[arg(long, value_name = "MILLISECONDS", conflicts_with_all = ["kernels", "shortest_us", "longest_us"])]
    kernel_ms: Option<f64>,
    /// Seed of the kernels' lengths
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    given: Given,
    #[command(flatten)]
    place: Place,
}

impl Args {
    fn kernel_times_us(&self) -> Vec<f64> {
        let times = match self.kernel_ms {
            Some(ms) => vec![ms * 1e3],
            None => kernel_times_us(self.seed, self.kernels, (self.shortest_us, self.longest_us)),
        };
        times.into_iter().map(|us| us.min(LONGEST_KERNEL.as_secs_f64() * 1e6)).collect()
    }
}

pub fn run(args: &Args) -> Result<(), RoleError> {
    let gpu = Gpu::open(&args.place, Waiting::Sleeping)?;
    let blocks = if args.kernel_ms.is_some() { BLOCKS_PER_SM * LONG_WAVES } else { BLOCKS_PER_SM };
    let calibration = args.given.complete(&gpu, blocks)?;
    let step: Vec<Spin> = args.kernel_times_us().into_iter().map(|us| calibration.kernel(us)).collect();
    for _ in 0..WARM_UP_STEPS {
        submit(&gpu, &step)?;
    }
    gpu.synchronize()?;
    let input = Input::listen();
    say(&Said::Ready(Ready { calibration: Some(calibration), graph: None }))?;
    while let Some(word) = input.next()? {
        match word {
            Word::Kernels => say(&Said::Kernels { submitted: gpu.submitted() })?,
            Word::Go(_) | Word::Service => say(&Said::Trained(train(&gpu, &step, &input)?))?,
        }
    }
    Ok(())
}

fn submit(gpu: &Gpu, step: &[Spin]) -> Result<(), CallError> {
    step.iter().try_for_each(|kernel| gpu.launch(*kernel))
}

/// Until a line comes.
fn train(gpu: &Gpu, step: &[Spin], input: &Input) -> Result<Trained, CallError> {
    let (mut running, mut submitted) = (gpu.event(false)?, gpu.event(false)?);
    let mut trained = Trained { from_ns: Stamp::now().mono_ns, ended_ns: Vec::new() };
    submit(gpu, step)?;
    gpu.record(&running)?;
    while !input.has_come() {
        submit(gpu, step)?;
        gpu.record(&submitted)?;
        gpu.await_event(&running)?;
        trained.ended_ns.push(Stamp::now().mono_ns);
        std::mem::swap(&mut running, &mut submitted);
    }
    gpu.synchronize()?;
    Ok(trained)
}
