//! `berth cluster`: what a cluster needs beside the daemons of its nodes.

mod key;
mod serve;
pub mod sim;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

use crate::cli::Global;

const EXAMPLES: &str = "\
Examples:
  berth cluster key new                  the key of a new cluster, where its placer runs
  berth cluster key node worker-1        the key of one node, to be taken there
  berth cluster serve --engine swarm     the placer, beside a manager of the swarm
  berth cluster sim --nodes 1000         the rules of placement on simulated nodes";

/// The placer of a cluster, its keys, and its rules in simulation
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Key(key::Args),
    Serve(serve::Args),
    Sim(Box<sim::Args>),
}

pub fn run(args: &Args, global: &Global) -> Result<ExitCode> {
    match &args.command {
        Command::Key(args) => key::run(args, global),
        Command::Serve(args) => serve::run(args, global),
        Command::Sim(args) => sim::run(args),
    }
}
