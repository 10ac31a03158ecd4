//! `berth hold`: keeps a tenant off the GPUs by a person's word. The daemon does it.

use std::process::ExitCode;

use anyhow::Result;
use berth_api::{HoldRequest, paths};
use berth_model::control::Standing;
use berth_model::hold::Means;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use crate::asking::{EXIT_CODES, ask};
use crate::cli::Global;
use crate::columns::printable;
use crate::out::Stdout;
use crate::{logging, settings, words};

const EXAMPLES: &str = "\
Examples:
  berth hold trainer --reason \"demo at noon\"
  berth hold 4e3c1c4b --by lock         a container by the beginning of its id
  berth hold /team-a/job --by gate      a cgroup; it runs on until its next launch

A tenant is named as in `berth ps`: container name or the beginning of its id, cgroup path or the
end of it, user. It stays held until `berth release`, the end of its task, or a signal that someone
sends it (docker stop, kill), which it could not take; policies have no say.

Means: freeze (default) stands it still at once, by the container engine's pause where there is one;
gate lets it run until its next launch; lock has the driver take no new work of it; park also moves
its GPU memory to the host.
";

/// Keep a tenant off the GPUs
#[derive(Debug, clap::Args)]
#[command(after_help = format!("{EXAMPLES}\n{EXIT_CODES}"))]
pub struct Args {
    /// Whom, named as in `berth ps`
    #[arg(value_name = "NAME")]
    tenant: String,
    /// By which means [default: freeze, or lock where it cannot be frozen]
    #[arg(long, value_name = "MEANS", value_parser = means())]
    by: Option<Means>,
    /// Why, for others to read
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// JSON instead of words
    #[arg(long)]
    json: bool,
}

fn means() -> impl TypedValueParser<Value = Means> {
    const ALL: [Means; 4] = [Means::Freeze, Means::Gate, Means::Lock, Means::Park];
    let chosen = |word: String| ALL.into_iter().find(|means| means.as_str() == word);
    PossibleValuesParser::new(ALL.map(Means::as_str)).map(move |word| chosen(word).unwrap_or(Means::Freeze))
}

pub fn run(args: &Args, global: &Global) -> Result<ExitCode> {
    let settings = settings::load(global)?;
    logging::start_if_asked(global.log.is_some(), &settings.log)?;
    let request = HoldRequest { tenant: args.tenant.clone(), by: args.by, reason: args.reason.clone() };
    let standing: Standing = ask(&settings, |client| async move { client.post(paths::HOLD, &request).await })??;
    if args.json {
        Stdout::json(&standing)?;
    } else {
        Stdout::line(&printable(&words::hold::hold_done(&standing)))?;
    }
    Ok(ExitCode::SUCCESS)
}
