//! `berth bench contention`: the published figures made again on a simulated GPU.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::Result;

use super::{save, write_plots};
use crate::bench::contention::cell::{
    Contender, FIFO, FIFO_BLIND, FIFO_DOCKER, FIFO_FREEZE, FIFO_FREEZE_KNOWN, FIFO_KNOWN, FIFO_LOCK, FIFO_LOCK_KNOWN,
    PAPER, PAPER_BERTH,
};
use crate::bench::contention::figure::Figure;
use crate::bench::contention::{Plan, plots};
use crate::commands::sim::profile;
use crate::out::{Stdout, say};

const EXAMPLES: &str = "\
Examples:
  berth bench contention                                all figures on the simulated RTX 3090
  berth bench contention --figure fig8 --policy fifo
  berth bench contention --profile h200 --figure sizes
  berth bench contention --json > result.json
  berth bench contention --plots plots                  SVG files as well

Everything happens in virtual time: no GPU, no container and no daemon is needed, and the same
command gives the same figures. The seeds move the tenants' starts.";

/// What contention costs on a simulated GPU, and what each policy makes of it
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Make only this figure; may be repeated [default: all]
    #[arg(long = "figure", value_name = "NAME", value_enum)]
    figures: Vec<Figure>,
    /// Try only this policy; may be repeated
    #[arg(long = "policy", value_name = "NAME", value_enum, default_values = ["paper", "fifo"])]
    policies: Vec<PolicyName>,
    /// The simulated GPU's profile: rtx3090, h200, a100, or a file
    #[arg(long, value_name = "NAME", default_value = "rtx3090")]
    profile: String,
    /// Runs of each cell, each with other starts
    #[arg(long, value_name = "COUNT", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..))]
    seeds: u16,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
    /// Also write the JSON to this file
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Also write each figure as SVG into this directory
    #[arg(long, value_name = "DIR")]
    plots: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
enum PolicyName {
    /// Algorithm 2 of the contention paper, with the eyes and hands it had
    Paper,
    /// The same with berth's eyes and hands, as the daemon runs it
    PaperBerth,
    /// berth's own, with all means
    Fifo,
    /// The same when the tenants' programs have run before
    FifoKnown,
    /// The same, frozen by Docker's pause
    FifoDocker,
    /// By the driver's lock alone
    FifoLock,
    /// The same when the programs have run before
    FifoLockKnown,
    /// By the freezer alone
    FifoFreeze,
    /// The same when the programs have run before
    FifoFreezeKnown,
    /// Without eBPF: by NVML, lock and freezer
    FifoBlind,
}

pub fn run(args: &Args) -> Result<()> {
    let profile = profile(&args.profile)?;
    let plan = Plan {
        figures: Figure::ALL.into_iter().filter(|one| args.figures.is_empty() || args.figures.contains(one)).collect(),
        profile_name: args.profile.clone(),
        profile,
        contenders: args.policies.iter().collect::<BTreeSet<_>>().into_iter().map(|name| contender(*name)).collect(),
        seeds: usize::from(args.seeds),
    };
    let report = crate::bench::contention::run(&plan, &say)?;
    save(args.save.as_deref(), &report)?;
    if let Some(dir) = &args.plots {
        write_plots(dir, report.figures.iter().flat_map(|figure| plots::charts(&report, *figure)))?;
    }
    if args.json { Stdout::json(&report) } else { Stdout::line(&report.to_text()) }
}

fn contender(name: PolicyName) -> Contender {
    match name {
        PolicyName::Paper => PAPER,
        PolicyName::PaperBerth => PAPER_BERTH,
        PolicyName::Fifo => FIFO,
        PolicyName::FifoKnown => FIFO_KNOWN,
        PolicyName::FifoDocker => FIFO_DOCKER,
        PolicyName::FifoLock => FIFO_LOCK,
        PolicyName::FifoLockKnown => FIFO_LOCK_KNOWN,
        PolicyName::FifoFreeze => FIFO_FREEZE,
        PolicyName::FifoFreezeKnown => FIFO_FREEZE_KNOWN,
        PolicyName::FifoBlind => FIFO_BLIND,
    }
}
