//! `berth bench squads`: equal tenants by turns, with fixed parts, and in squads.

use anyhow::Result;

use super::virtual_time;
use crate::bench::squads::report::Report;
use crate::bench::squads::{self, LOADS_PCT, Plan};
use crate::out::say;

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
    #[command(flatten)]
    common: virtual_time::Args,
    /// Only at this load, in percent; may be repeated [default: 30, 60, 95]
    #[arg(long = "load", value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(1..=300))]
    loads_pct: Vec<u32>,
}

pub fn run(args: &Args) -> Result<()> {
    let (seeds, seconds) = if args.common.quick { (2, 0.2) } else { (6, 1.0) };
    let loads_pct = if args.loads_pct.is_empty() { LOADS_PCT.to_vec() } else { args.loads_pct.clone() };
    let plan = Plan { loads_pct, seeds: args.common.seeds(seeds), seconds };
    args.common.show(|is_enough| squads::run(&plan, is_enough, &say), Report::to_text)
}
