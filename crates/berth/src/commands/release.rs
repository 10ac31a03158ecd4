//! `berth release`: lets a tenant run that is held, or all of them. The daemon does it; without one, `--all` undoes what is
//! on record.

mod doubtful;
mod on_record;

use std::process::ExitCode;

use anyhow::Result;
use berth_api::{ReleaseRequest, paths};
use berth_model::control::Standing;
use berth_model::{Settings, Span};
use clap::ArgGroup;
use serde::Serialize;

use crate::asking::{AskError, EXIT_CODES, ask};
use crate::cli::Global;
use crate::columns::printable;
use crate::out::{Stdout, say};
use crate::{logging, settings, sight, words};

const EXAMPLES: &str = "\
Examples:
  berth release trainer                 policies then leave it alone until its task ends
  berth release trainer --to-policy     the policy may hold it again at once
  berth release --all                   everybody who is held and whom you may release
  berth release --all --within 2m       without a daemon: give parked tenants time to come back
  berth release --all --force           past a daemon that hangs, by what is on record

Without a daemon `--all` undoes every hold on record; with one, the daemon does, and newcomers are
held on: `berth policy set off` ends that.
Only what berth holds is released: a container that someone else paused stays paused.
";

/// Let a tenant run that is held, or all of them
#[derive(Debug, clap::Args)]
#[command(after_help = format!("{EXAMPLES}\n{EXIT_CODES}"), group = ArgGroup::new("whom").required(true))]
pub struct Args {
    /// Whom, named as in `berth ps`
    #[arg(value_name = "NAME", group = "whom")]
    tenant: Option<String>,
    /// Everybody; also works without a daemon
    #[arg(long, group = "whom")]
    all: bool,
    /// Leave it to the policy again
    #[arg(long, conflicts_with = "all")]
    to_policy: bool,
    /// By what is on record, also while a daemon runs, which may hold them again
    #[arg(long, conflicts_with = "tenant")]
    force: bool,
    /// How long to try without a daemon
    #[arg(long, value_name = "TIME", default_value = "30s", conflicts_with = "tenant")]
    within: Span,
    /// JSON instead of words
    #[arg(long)]
    json: bool,
}

/// What came of releasing everybody: the JSON.
#[derive(Debug, Default, Serialize)]
struct Released {
    /// Names of those who are free.
    released: Vec<String>,
    gone: Vec<Gone>,
    left: Vec<Left>,
}

/// Somebody on record of whom nothing is there that was held: nothing was touched.
#[derive(Debug, Serialize)]
struct Gone {
    name: String,
    why: String,
}

/// Somebody who is not free yet.
#[derive(Debug, Serialize)]
struct Left {
    name: String,
    why: String,
}

pub fn run(args: &Args, global: &Global) -> Result<ExitCode> {
    let settings = settings::load(global)?;
    logging::start_if_asked(global.log.is_some(), &settings.log)?;
    sight::widen(&settings);
    match &args.tenant {
        Some(tenant) => one(args, tenant, &settings),
        None => all(args, &settings),
    }
}

fn one(args: &Args, tenant: &str, settings: &Settings) -> Result<ExitCode> {
    let request = ReleaseRequest { tenant: Some(tenant.to_owned()), to_policy: args.to_policy, all: false };
    let standings = request_release(settings, request)??;
    for standing in &standings {
        match args.json {
            true => Stdout::json(standing)?,
            false => Stdout::line(&printable(&words::hold::release_done(standing, args.to_policy)))?,
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn all(args: &Args, settings: &Settings) -> Result<ExitCode> {
    if args.force {
        return tell(&on_record::release(settings, args.within, true)?, args.json);
    }
    match request_release(settings, ReleaseRequest { all: true, ..ReleaseRequest::default() })? {
        Ok(standings) => tell(&Released::of(standings), args.json),
        Err(error) if error.is_absent() => tell(&on_record::release(settings, args.within, false)?, args.json),
        Err(error @ AskError::Failed(_)) => {
            say("the daemon does not do it: `berth release --all --force` goes by what is on record");
            Err(error.into())
        }
        Err(error) => Err(error.into()),
    }
}

fn request_release(settings: &Settings, request: ReleaseRequest) -> Result<Result<Vec<Standing>, AskError>> {
    ask(settings, |client| async move { client.post(paths::RELEASE, &request).await })
}

impl Released {
    fn of(standings: Vec<Standing>) -> Self {
        let mut told = Self::default();
        for Standing { name, is_settled, .. } in standings {
            match is_settled {
                true => told.released.push(name),
                false => told.left.push(Left { name, why: "it is under way".to_owned() }),
            }
        }
        told
    }
}

fn tell(told: &Released, json: bool) -> Result<ExitCode> {
    if json {
        Stdout::json(told)?;
    } else {
        for name in &told.released {
            Stdout::line(&format!("released {}", printable(name)))?;
        }
        for Left { name, why } in &told.left {
            say(&format!("{} is not free yet: {}", printable(name), printable(why)));
        }
        for Gone { name, why } in &told.gone {
            Stdout::line(&format!("{} is gone: {}, nothing was touched", printable(name), printable(why)))?;
        }
        if told.released.is_empty() && told.gone.is_empty() && told.left.is_empty() {
            Stdout::line("nobody is held")?;
        }
    }
    Ok(if told.left.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn whom_to_release_is_one_or_all_and_who_says_neither_is_told_so() {
        let parse = |line: &[&str]| Line::try_parse_from(["release"].iter().chain(line));
        let neither = parse(&[]).unwrap_err().to_string();
        assert!(neither.contains("<NAME|--all>"), "{neither}");
        assert!(parse(&["trainer", "--all"]).is_err() && parse(&["trainer", "--force"]).is_err());
        assert!(parse(&["--all", "--to-policy"]).is_err());
        assert!(parse(&["trainer", "--to-policy"]).is_ok() && parse(&["--all", "--force", "--within", "2m"]).is_ok());
    }

    #[test]
    fn who_is_not_free_yet_is_told_apart() {
        let standing = |name: &str, is_settled| Standing {
            tenant: berth_model::TenantKey::User { uid: 0 },
            name: name.into(),
            hold: None,
            is_settled,
        };
        let told = Released::of(vec![standing("a", true), standing("b", false)]);
        assert_eq!((told.released.as_slice(), told.left.len()), (&["a".to_owned()][..], 1));
    }
}
