//! `berth bench policy`: what `jct`, `slo` and `hybrid` come to.

use anyhow::Result;

use super::virtual_time;
use crate::bench::policy::report::Report;
use crate::bench::policy::{self, Plan};
use crate::out::say;

const EXAMPLES: &str = "\
Examples:
  berth bench policy                      jobs, goals, both, the policy changed under load, auto
  berth bench policy --json > result.json
  berth bench policy --quick              short runs, to see that it works
  berth bench policy --seed 200           others of the same kind

Everything happens in virtual time: no GPU and no daemon is needed, and the same command gives
the same figures.";

/// The policies inside one GPU: mean completion, goals kept, work that counts, and switching under load
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    common: virtual_time::Args,
}

pub fn run(args: &Args) -> Result<()> {
    let (seeds, jobs, sets, seconds) = if args.common.quick { (2, 2, 4, 0.2) } else { (6, 5, 40, 1.0) };
    let plan = Plan { seeds: args.common.seeds(seeds), jobs, sets, seconds };
    args.common.show(|is_enough| policy::run(&plan, is_enough, &say), Report::to_text)
}
