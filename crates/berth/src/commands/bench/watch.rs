//! `berth bench watch`: how well what goes wrong is noticed.

use std::path::PathBuf;

use anyhow::Result;

use super::save;
use crate::bench::watch::{self, Plan};
use crate::out::{Stdout, say};

const EXAMPLES: &str = "\
Examples:
  berth bench watch                       200 scenes of each kind with a fault, and 200 without
  berth bench watch --json > result.json
  berth bench watch --runs 1000 --seed 7

Scenes are drawn from the seed; no GPU and no daemon is needed. How fast figures are written depends on this
machine: build it with --release.";

/// How well faults are noticed, what forecasts are worth, and what keeping figures costs
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Scenes with a fault, and as many without, for each kind and level of noise
    #[arg(long, value_name = "COUNT", default_value_t = 200, value_parser = clap::value_parser!(u32).range(4..=100_000))]
    runs: u32,
    /// The seed of the scenes
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u32,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
    /// Also write the JSON to this file
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
}

/// Lots of values for the store: a week at one in five seconds is a few more.
const LOTS: u32 = 100_000;

pub fn run(args: &Args) -> Result<()> {
    let plan = Plan { runs: args.runs, seed: args.seed.into(), lots: LOTS };
    let report = watch::run(&plan, &say)?;
    save(args.save.as_deref(), &report)?;
    if args.json { Stdout::json(&report) } else { Stdout::line(&report.to_text()) }
}
