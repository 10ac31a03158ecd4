//! `berth bench edf`: missed deadlines on a simulated GPU, unmanaged and under each policy.

use std::path::PathBuf;

use anyhow::{Context as _, Result};

use super::save;
use crate::bench::edf::{self, LOADS_PCT, Plan, plots};
use crate::commands::sim::profile;
use crate::out::{Stdout, say};

const EXAMPLES: &str = "\
Examples:
  berth bench edf                                       20 tenants at 50, 80, 95 and 110 % load
  berth bench edf --json > result.json
  berth bench edf --quick                               a few runs, to see that it works
  berth bench edf --profile h200 --plot misses.svg

Everything happens in virtual time: no GPU, no container and no daemon is needed, and the same
command gives the same figures.";

/// Missed deadlines on a simulated GPU: unmanaged, and under each policy
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The simulated GPU's profile: rtx3090, h200, a100, or a file
    #[arg(long, value_name = "NAME", default_value = "rtx3090")]
    profile: String,
    /// The first seed; the others follow it
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u32,
    /// Measure only this; may be repeated [default: both]
    #[arg(long = "part", value_enum)]
    parts: Vec<Part>,
    /// Only at this load, in percent; may be repeated [default: 50, 80, 95, 110]
    #[arg(long = "load", value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    loads_pct: Vec<u32>,
    /// Few runs and cases: to see that it works, not to measure
    #[arg(long)]
    quick: bool,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
    /// Also write the JSON to this file
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Also draw misses against load into this SVG file
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Twenty tenants whose jobs come over time
    Loads,
    /// A few jobs that wait at once, against every order of them
    Together,
}

pub fn run(args: &Args) -> Result<()> {
    let (jobs_each, seeds, cases) = if args.quick { (2, 2, 10) } else { (5, 6, 500) };
    let loads_pct = if args.loads_pct.is_empty() { LOADS_PCT.to_vec() } else { args.loads_pct.clone() };
    let wants = |part| args.parts.is_empty() || args.parts.contains(&part);
    let plan = Plan {
        profile: profile(&args.profile)?,
        loads_pct: if wants(Part::Loads) { loads_pct } else { Vec::new() },
        jobs_each,
        seeds: (u64::from(args.seed)..).take(seeds).collect(),
        cases: if wants(Part::Together) { cases } else { 0 },
    };
    let report = edf::run(&plan, &say)?;
    save(args.save.as_deref(), &report)?;
    if let Some(file) = &args.plot {
        std::fs::write(file, plots::misses(&report).to_svg()).with_context(|| format!("writing {}", file.display()))?;
    }
    if args.json { Stdout::json(&report) } else { Stdout::line(&report.to_text()) }
}
