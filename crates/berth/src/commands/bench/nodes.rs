//! `berth bench nodes`: what a list of nodes costs.

use std::path::PathBuf;

use anyhow::{Context as _, Result};

use super::save;
use crate::bench::nodes::{self, Plan, SIZES};
use crate::out::{Stdout, say};

const EXAMPLES: &str = "\
Examples:
  berth bench nodes                       100 to 100,000 nodes
  berth bench nodes --json > result.json
  berth bench nodes --nodes 5000          only so many
  berth bench nodes --quick               few nodes, to see that it works

The nodes are drawn, and nothing is sent: no cluster, no GPU and no daemon is needed. Build it with
--release: a debug build takes some fifty times as long.";

/// What a list of nodes costs: made, one report applied, one choice
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Only so many nodes; may be repeated [default: 100, 1000, 10000, 100000]
    #[arg(long = "nodes", value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    sizes: Vec<u32>,
    /// The seed of the nodes
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u32,
    /// Few nodes and turns: to see that it works, not to measure
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
    let sizes: Vec<usize> = args.sizes.iter().map(|nodes| *nodes as usize).collect();
    let (every, turns) = if args.quick { (&SIZES[..2], 200) } else { (&SIZES[..], 10_000) };
    let plan = Plan { sizes: if sizes.is_empty() { every.to_vec() } else { sizes }, turns, seed: args.seed.into() };
    let report = nodes::run(&plan, &say).context("making frames of reports")?;
    save(args.save.as_deref(), &report)?;
    if args.json { Stdout::json(&report) } else { Stdout::line(&report.to_text()) }
}
