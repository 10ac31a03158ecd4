//! `berth bench launch`: what a launch costs with berth's library in the program.

use std::path::PathBuf;

use anyhow::Result;

use super::{Gpu, save};
use crate::bench::launch::{self, Plan};
use crate::interrupt::Interrupt;
use crate::out::{Stdout, say};
use crate::stage::GpuChoice;

const EXAMPLES: &str = "\
Examples:
  berth bench launch                                  on the simulated GPU, whose launches are slow
  berth bench launch --gpu real --json
  berth bench launch --gpu real --torch gpu/torch     also a training's rate, and its results

Ways: bare, bare-too (another one: what processes differ by anyway), loaded (the library, and no daemon), attached, leads (somebody yields to it), yields.
No daemon is needed: the measurement is the library's other end itself.";

/// What a launch costs with berth's library in the program
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Rounds, each with other processes
    #[arg(long, value_name = "COUNT", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Batches of each way in a round
    #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    batches: u32,
    /// Launches of a batch
    #[arg(long, value_name = "COUNT", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..))]
    launches: u32,
    /// On which GPU
    #[arg(long, value_enum, default_value = "sim")]
    gpu: Gpu,
    /// The simulated GPU's profile: a name or a file
    #[arg(long, value_name = "NAME", default_value = "h200")]
    profile: String,
    /// The directory of the PyTorch programs, `gpu/torch` in the repository
    #[arg(long, value_name = "DIR")]
    torch: Option<PathBuf>,
    /// How long a training runs in each of its turns
    #[arg(long, value_name = "COUNT", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// berth's library for programs [default: beside this program]
    #[arg(long, value_name = "FILE")]
    shim: Option<PathBuf>,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
    /// Also write the JSON to this file
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result<()> {
    let plan = Plan {
        gpu: match args.gpu {
            Gpu::Sim => GpuChoice::Sim { profile: args.profile.clone(), gpus: 1, time_scale: None, mps: false },
            Gpu::Real => GpuChoice::Real,
        },
        shim: args.shim.clone(),
        rounds: args.rounds,
        batches: args.batches,
        launches: args.launches,
        torch: args.torch.clone(),
        seconds: args.seconds,
    };
    let interrupt = Interrupt::listen()?;
    let report = interrupt.outcome(launch::run(&plan, &interrupt, &say))?;
    save(args.save.as_deref(), &report)?;
    if args.json { Stdout::json(&report) } else { Stdout::line(&report.to_text()) }
}
