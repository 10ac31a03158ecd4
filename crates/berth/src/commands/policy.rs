//! `berth policy`: who decides about holds, and letting another decide.

use std::process::ExitCode;

use anyhow::Result;
use berth_api::{PolicyRequest, paths};
use berth_model::control::PolicyView;
use berth_model::settings::PolicyName;
use clap::Subcommand;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use crate::asking::{EXIT_CODES, ask};
use crate::cli::Global;
use crate::out::Stdout;
use crate::{logging, settings};

const EXAMPLES: &str = "\
Examples:
  berth policy show
  berth policy set fifo
";

const SHOW_EXAMPLES: &str = "\
Examples:
  berth policy show
  berth policy show --json | jq -r .policy
";

const SET_EXAMPLES: &str = "\
Examples:
  berth policy set off                  release everybody whom the policy holds
  berth policy set fifo

off: nobody but persons hold. fifo: tenants that would contend compute one after the other.
paper: newcomers are paused at first sight, as published.

What the policy before it holds is released, what persons hold stays held. Only root and the user of
the daemon may do this. It counts until the daemon is restarted: hold.policy sets it for good.
";

/// Show who decides about holds, or let another policy decide
#[derive(Debug, clap::Args)]
#[command(after_help = format!("{EXAMPLES}\n{EXIT_CODES}"))]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Show(ShowArgs),
    Set(SetArgs),
}

/// Show which policy decides
#[derive(Debug, clap::Args)]
#[command(after_help = SHOW_EXAMPLES)]
struct ShowArgs {
    /// JSON instead of a word
    #[arg(long)]
    json: bool,
}

/// Let another policy decide
#[derive(Debug, clap::Args)]
#[command(after_help = SET_EXAMPLES)]
struct SetArgs {
    /// Which
    #[arg(value_name = "POLICY", value_parser = policies())]
    policy: PolicyName,
    /// JSON instead of words
    #[arg(long)]
    json: bool,
}

fn policies() -> impl TypedValueParser<Value = PolicyName> {
    const ALL: [PolicyName; 3] = [PolicyName::Off, PolicyName::Fifo, PolicyName::Paper];
    let chosen = |word: String| ALL.into_iter().find(|policy| policy.as_str() == word);
    PossibleValuesParser::new(ALL.map(PolicyName::as_str)).map(move |word| chosen(word).unwrap_or(PolicyName::Off))
}

pub fn run(args: &Args, global: &Global) -> Result<ExitCode> {
    let settings = settings::load(global)?;
    logging::start_if_asked(global.log.is_some(), &settings.log)?;
    let (view, json): (PolicyView, bool) = match &args.command {
        Command::Show(args) => (ask(&settings, |client| async move { client.get(paths::POLICY).await })??, args.json),
        Command::Set(SetArgs { policy, json }) => {
            let request = PolicyRequest { policy: *policy };
            let set = ask(&settings, |client| async move { client.post(paths::POLICY, &request).await })??;
            (set, *json)
        }
    };
    match (json, &args.command) {
        (true, _) => Stdout::json(&view)?,
        (false, Command::Show(_)) => Stdout::line(view.policy.as_str())?,
        (false, Command::Set(_)) => {
            Stdout::line(&format!("{} decides now, until the daemon is restarted", view.policy.as_str()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
