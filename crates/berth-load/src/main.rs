//! `berth-load`: the workload alone, for containers too small for the whole of berth. Needs nothing but libc.

use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
#[command(version, after_help = berth_load::EXIT_CODES_HELP)]
struct Command {
    #[command(flatten)]
    args: berth_load::Args,
}

fn main() -> ExitCode {
    berth_load::run(&Command::parse().args.into()).into()
}
