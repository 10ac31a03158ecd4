//! `berth top`: the host live on a whole screen.

use std::io::IsTerminal;
use std::process::ExitCode;

use anyhow::{Result, bail};
use berth_model::Span;

use crate::cli::Global;
use crate::live::Live;
use crate::{live, logging, settings, tui};

const EXAMPLES: &str = "\
Examples:
  berth top
  berth top --interval 200ms
  berth --socket /tmp/b.sock top

Keys: ? shows them. Who waits is listed in order, with for whom and until when; Enter tells more of
one. FLOAT is what is left until the work under way is due: green, yellow if it is tight, red if it
will probably be late or is; f sorts by it. Without a daemon berth watches by itself while this
runs, and shows who is held by its records. N shows the nodes of the cluster, as `berth nodes` does.";

/// Show the GPUs and who is on them, live
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// How often to look for news, 100ms at least; also the step of the history
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = live::interval)]
    interval: Span,
}

pub fn run(args: &Args, global: &Global) -> Result<ExitCode> {
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        bail!("top needs a terminal: use `berth ps --watch` for a file or a pipe");
    }
    let settings = settings::load(global)?;
    // Logs would be written over the screen.
    logging::start_if_asked(global.log.is_some() && !std::io::stderr().is_terminal(), &settings.log)?;
    let interval = args.interval.get();
    let live = Live::open(&settings, interval)?;
    tui::run(&live, &settings, interval)?;
    Ok(ExitCode::SUCCESS)
}
