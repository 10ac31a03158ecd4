//! `berth-load`: the workload alone, for containers too small for the whole of berth. Needs nothing but libc.

use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
#[command(version, after_help = berth_load::EXIT_CODES_HELP)]
struct Command {
    #[command(flatten)]
    load: berth_load::roles::Load,
}

fn main() -> ExitCode {
    Command::parse().load.run().into()
}
