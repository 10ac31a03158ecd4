//! `berth bench placement`: missed deadlines on a simulated cluster, by who places its containers.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::save;
use crate::bench::placement::{self, LOADS_PCT, Plan, plots};
use crate::cluster_sim::{Setup, Way};
use crate::commands::cluster::sim::Faults;
use crate::interrupt::Interrupt;
use crate::out::{Stdout, say};

const EXAMPLES: &str = "\
Examples:
  berth bench placement                                 50 nodes with 2 GPUs each at 60, 80 and 95 % load
  berth bench placement --json > result.json
  berth bench placement --quick                         a few short runs, to see that it works
  berth bench placement --report-every 10s --stale-after 30s
  berth bench placement --load 80 --failures 5 --plot misses.svg

Everything happens in virtual time: no GPU, no engine and no daemon is needed, and the same
command gives the same figures.";

/// Missed deadlines on a simulated cluster: placed at random, by memory, as published, and by berth
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Nodes of the cluster
    #[arg(long, value_name = "COUNT", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    nodes: u32,
    /// The first seed; the others follow it
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u32,
    /// Only at this load, in percent; may be repeated [default: 60, 80, 95]
    #[arg(long = "load", value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    loads_pct: Vec<u32>,
    #[command(flatten)]
    faults: Faults,
    /// Few and short runs: to see that it works, not to measure
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

pub fn run(args: &Args) -> Result<()> {
    let (seeds, lasts) = if args.quick { (2, 120) } else { (6, 600) };
    let setup = Setup {
        nodes: usize::try_from(args.nodes).context("counting nodes")?,
        lasts: Duration::from_secs(lasts),
        ..args.faults.setup()
    };
    let plan = Plan {
        setup,
        ways: Way::ALL.to_vec(),
        loads_pct: if args.loads_pct.is_empty() { LOADS_PCT.to_vec() } else { args.loads_pct.clone() },
        seeds: (u64::from(args.seed)..).take(seeds).collect(),
    };
    let interrupt = Interrupt::listen()?;
    let report = placement::run(&plan, &|| interrupt.noted().is_some(), &say);
    save(args.save.as_deref(), &report)?;
    if let Some(file) = &args.plot {
        std::fs::write(file, plots::misses(&report).to_svg()).with_context(|| format!("writing {}", file.display()))?;
    }
    if args.json {
        Stdout::json(&report)?
    } else {
        Stdout::line(&report.to_text())?
    }
    Ok(interrupt.check()?)
}
