//! `berth bench squads`: equal tenants by turns, with fixed parts, and in squads.

use std::path::PathBuf;

use anyhow::Result;

use super::save;
use crate::bench::squads::{self, LOADS_PCT, Plan};
use crate::interrupt::Interrupt;
use crate::out::{Stdout, say};

const EXAMPLES: &str = "\
Examples:
  berth bench squads                      four tenants at 30, 60 and 95 % load
  berth bench squads --json > result.json
  berth bench squads --quick              short runs, to see that it works

Everything happens in virtual time: no GPU and no daemon is needed, and the same command gives
the same figures.";

/// Equal tenants inside one GPU: by turns, with fixed parts of it, and in squads of each kind
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The first seed; the others follow it
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u32,
    /// Only at this load, in percent; may be repeated [default: 30, 60, 95]
    #[arg(long = "load", value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(1..=300))]
    loads_pct: Vec<u32>,
    /// Few and short runs: to see that it works, not to measure
    #[arg(long)]
    quick: bool,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
    /// Also write the JSON to this file
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result<()> {
    let (seeds, seconds) = if args.quick { (2, 0.2) } else { (6, 2.0) };
    let plan = Plan {
        loads_pct: if args.loads_pct.is_empty() { LOADS_PCT.to_vec() } else { args.loads_pct.clone() },
        seeds: (u64::from(args.seed)..).take(seeds).collect(),
        seconds,
    };
    let interrupt = Interrupt::listen()?;
    let report = squads::run(&plan, &|| interrupt.noted().is_some(), &say);
    save(args.save.as_deref(), &report)?;
    if args.json {
        Stdout::json(&report)?
    } else {
        Stdout::line(&report.to_text())?
    }
    Ok(interrupt.check()?)
}
