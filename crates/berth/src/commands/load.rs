//! `berth load`: the workload that tells the truth about its own timing.

use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  berth load                       one matrix product on GPU 0
  berth load --tasks 5 --task-gap 1s..3s
  berth load hold --alloc-bytes 20GiB --hold 30s
  berth load light --period 50ms
  berth load --fail-at kernel --fail-how kill
  berth load serve --rate 200      requests at random, for measurements beside
  berth load train --kernel-ms 20  another program";

/// Run a naive matrix product on a GPU, phase by phase, and print true times as JSON lines
#[derive(Debug, clap::Args)]
#[command(after_help = help())]
#[group(id = "berth-load")]
pub struct Args {
    #[command(flatten)]
    load: berth_load::roles::Load,
}

fn help() -> String {
    format!("{EXAMPLES}\n\n{}", berth_load::EXIT_CODES_HELP)
}

pub fn run(args: Args) -> ExitCode {
    args.load.run().into()
}
