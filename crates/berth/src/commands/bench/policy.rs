//! `berth bench policy`: what `jct`, `slo` and `hybrid` come to.

use anyhow::Result;

use super::virtual_time;
use crate::bench::policy::report::Report;
use crate::bench::policy::{self, Plan, planning};
use crate::out::say;

const EXAMPLES: &str = "\
Examples:
  berth bench policy                      jobs, goals, both, the policy changed under load, auto
  berth bench policy --json > result.json
  berth bench policy --quick              short runs, to see that it works
  berth bench policy --seed 200           others of the same kind
  berth bench policy --costs              what a plan costs on this machine, by the number of clients

Everything happens in virtual time, but for --costs: no GPU and no daemon is needed, and the same
command gives the same figures.";

/// The policies inside one GPU: mean completion, goals kept, work that counts, and switching under load
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    common: virtual_time::Args,
    /// Measure what a plan costs on this machine instead, for 2 to 512 clients
    #[arg(long, conflicts_with_all = ["seed", "quick"])]
    costs: bool,
}

pub fn run(args: &Args) -> Result<()> {
    if args.costs {
        return args.common.show(|_| planning::Report::measure(&planning::CLIENTS), planning::Report::to_text);
    }
    let (seeds, jobs, sets, seconds) = if args.common.quick { (2, 2, 4, 0.2) } else { (6, 5, 40, 1.0) };
    let plan = Plan { seeds: args.common.seeds(seeds), jobs, sets, seconds };
    args.common.show(|is_enough| policy::run(&plan, is_enough, &say), Report::to_text)
}
