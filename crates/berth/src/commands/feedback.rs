//! `berth feedback`: saying how a tenant does. The daemon keeps it beside what it measures.

use std::process::ExitCode;

use anyhow::Result;
use berth_api::{FeedbackRequest, paths};
use berth_model::control::Heard;
use berth_model::watch::feedback::Feedback;

use crate::asking::{EXIT_CODES, ask};
use crate::cli::Global;
use crate::columns::printable;
use crate::out::Stdout;
use crate::{logging, settings};

const EXAMPLES: &str = "\
Examples:
  berth feedback trainer slow
  berth feedback trainer good
  berth feedback /team-a/job late --json | jq .weight

Words: good, uneven (sometimes fast, sometimes slow), slow, late, stuck. Owners say it of what is
theirs, root of everything; nobody else is shown it. It counts half after half an hour, and makes a
factor between 0.8 and 1.25 on its weight at the level of kernels however often it is said, which
`berth explain` tells. Policies of holds do not go by it.
`berth series NAME --metric feedback` shows what was said.
";

/// Say how a tenant does: good, uneven, slow, late or stuck
#[derive(Debug, clap::Args)]
#[command(after_help = format!("{EXAMPLES}\n{EXIT_CODES}"))]
pub struct Args {
    /// Whom, named as in `berth ps`
    #[arg(value_name = "NAME")]
    tenant: String,
    /// How it does
    #[arg(value_name = "WORD")]
    said: Feedback,
    /// JSON instead of words
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args, global: &Global) -> Result<ExitCode> {
    let settings = settings::load(global)?;
    logging::start_if_asked(global.log.is_some(), &settings.log)?;
    let request = FeedbackRequest { tenant: args.tenant.clone(), said: args.said };
    let heard: Heard = ask(&settings, |client| async move { client.post(paths::FEEDBACK, &request).await })??;
    if args.json {
        Stdout::json(&heard)?
    } else {
        Stdout::line(&printable(&sentence(&heard)))?
    }
    Ok(ExitCode::SUCCESS)
}

fn sentence(heard: &Heard) -> String {
    let Heard { name, said, weight, is_kept, .. } = heard;
    let passing = if *is_kept { "" } else { "; until the daemon ends, which writes nothing down (history.enabled)" };
    format!("{name}: {said}, heard; it counts ×{weight:.2} at the level of kernels{passing}")
}

#[cfg(test)]
mod tests {
    use berth_model::TenantKey;

    use super::*;

    #[test]
    fn what_follows_from_a_word_is_said_with_it() {
        let mut heard = Heard {
            tenant: TenantKey::User { uid: 7 },
            name: "trainer".into(),
            said: Feedback::Slow,
            mood: -0.375,
            weight: 1.087,
            is_kept: true,
        };
        assert_eq!(sentence(&heard), "trainer: slow, heard; it counts ×1.09 at the level of kernels");
        heard.is_kept = false;
        assert!(sentence(&heard).ends_with("which writes nothing down (history.enabled)"));
    }
}
