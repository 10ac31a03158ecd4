//! `berth bench policy`: what `jct`, `slo` and `hybrid` come to.

use std::path::PathBuf;

use anyhow::Result;

use super::save;
use crate::bench::policy::{self, Plan};
use crate::interrupt::Interrupt;
use crate::out::{Stdout, say};

const EXAMPLES: &str = "\
Examples:
  berth bench policy                      jobs, goals, both together, and the policy changed under load
  berth bench policy --json > result.json
  berth bench policy --quick              short runs, to see that it works
  berth bench policy --seed 100           others of the same kind

Everything happens in virtual time: no GPU and no daemon is needed, and the same command gives
the same figures.";

/// The policies inside one GPU: mean completion, goals kept, work that counts, and switching under load
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The first seed; the others follow it
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u32,
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
    let (seeds, sets, seconds) = if args.quick { (2, 4, 0.3) } else { (6, 40, 2.0) };
    let seeds = (u64::from(args.seed)..).take(seeds).collect();
    let interrupt = Interrupt::listen()?;
    let report = policy::run(&Plan { seeds, jobs: 14, sets, seconds }, &|| interrupt.noted().is_some(), &say);
    save(args.save.as_deref(), &report)?;
    if args.json {
        Stdout::json(&report)?
    } else {
        Stdout::line(&report.to_text())?
    }
    Ok(interrupt.check()?)
}
