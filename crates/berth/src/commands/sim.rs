//! `berth sim`: a simulated GPU, for people without one.

mod env;
mod fault;
mod serve;

use std::process::ExitCode;

use anyhow::Result;

pub use serve::profile;

const EXAMPLES: &str = "\
Examples:
  berth sim serve --dir /tmp/sim --profile h200 --gpus 2
  eval \"$(berth sim env --dir /tmp/sim)\" && berth load
  berth sim fault --dir /tmp/sim gpu-lost 0";

/// Simulate GPUs: serve them, use them, break them
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Serve(serve::Args),
    Fault(fault::Args),
    Env(env::Args),
}

pub fn run(args: &Args) -> Result<ExitCode> {
    match &args.command {
        Command::Serve(args) => serve::run(args)?,
        Command::Fault(args) => fault::run(args)?,
        Command::Env(args) => env::run(args)?,
    }
    Ok(ExitCode::SUCCESS)
}
