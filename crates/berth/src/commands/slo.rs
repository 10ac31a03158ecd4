//! `berth slo`: which goals count for a tenant at the level of kernels, and letting others count. The daemon keeps what is set.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::{Result, bail};
use berth_api::{SloRequest, paths};
use berth_model::control::SloStanding;
use berth_model::slo::LABELS;
use clap::Subcommand;

use crate::asking::{EXIT_CODES, ask};
use crate::cli::Global;
use crate::columns::{Columns, printable};
use crate::out::Stdout;
use crate::words::hold::user;
use crate::{logging, out, settings, table, words};

const EXAMPLES: &str = "\
Examples:
  berth slo show
  berth slo set server latency=p99:10ms
  berth slo set trainer throughput=80% weight=3
  berth slo set server memory-reserve=8GiB
  berth slo clear server
  berth slo reset server

A tenant is named as in `berth ps`. What is set goes before the labels `berth.slo.*` of a container,
all of them, counts at once, and outlives the daemon. Owners may set what is theirs, root everything.
";

const SET_EXAMPLES: &str = "\
Examples:
  berth slo set server latency=p99:10ms
  berth slo set trainer throughput=80% weight=3
";

const CLEAR_EXAMPLES: &str = "\
Examples:
  berth slo clear server
";

const RESET_EXAMPLES: &str = "\
Examples:
  berth slo reset server
";

const SHOW_EXAMPLES: &str = "\
Examples:
  berth slo show
  berth slo show server --json
";

/// Show which goals count at the level of kernels, or say which are to
#[derive(Debug, clap::Args)]
#[command(after_help = format!("{EXAMPLES}\n{}\n{EXIT_CODES}", goals()))]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Set(SetArgs),
    /// Take a tenant's goals away, whatever its labels say
    #[command(after_help = format!("{CLEAR_EXAMPLES}\n{EXIT_CODES}"))]
    Clear(Whom),
    /// Let the labels of a tenant say its goals again
    #[command(after_help = format!("{RESET_EXAMPLES}\n{EXIT_CODES}"))]
    Reset(Whom),
    Show(ShowArgs),
}

/// Give a tenant goals, whatever its labels say
#[derive(Debug, clap::Args)]
#[command(after_help = format!("{SET_EXAMPLES}\n{}\n{EXIT_CODES}", goals()))]
struct SetArgs {
    #[command(flatten)]
    whom: Whom,
    /// Goals and limits, such as latency=p99:10ms
    #[arg(value_name = "GOAL=VALUE", required = true, value_parser = pair)]
    goals: Vec<(String, String)>,
}

/// Show who has which goals, and how they are kept
#[derive(Debug, clap::Args)]
#[command(after_help = format!("{SHOW_EXAMPLES}\n{EXIT_CODES}"))]
struct ShowArgs {
    /// Whom, named as in `berth ps`; everybody who has some or takes part, if not given
    #[arg(value_name = "NAME")]
    tenant: Option<String>,
    /// JSON instead of a table: an array
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct Whom {
    /// Whom, named as in `berth ps`
    #[arg(value_name = "NAME")]
    tenant: String,
    /// JSON instead of words
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args, global: &Global) -> Result<ExitCode> {
    let settings = settings::load(global)?;
    logging::start_if_asked(global.log.is_some(), &settings.log)?;
    let (request, json) = match &args.command {
        Command::Set(SetArgs { whom, goals }) => (SloRequest { goals: distinct(goals)?, ..whom.request() }, whom.json),
        Command::Clear(whom) => (SloRequest { clear: true, ..whom.request() }, whom.json),
        Command::Reset(whom) => (SloRequest { reset: true, ..whom.request() }, whom.json),
        Command::Show(args) => {
            let tenant = args.tenant.as_deref();
            let told = ask(&settings, |client| async move { client.slos(tenant).await })??;
            return show(args, &told);
        }
    };
    let standing: SloStanding = ask(&settings, |client| async move { client.post(paths::SLO, &request).await })??;
    if json {
        Stdout::json(&standing)?;
    } else {
        Stdout::line(&printable(&sentence(&standing)))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn show(args: &ShowArgs, told: &[SloStanding]) -> Result<ExitCode> {
    match told {
        _ if args.json => Stdout::json(&told)?,
        [] => out::say("nobody has a goal"),
        _ => Stdout::text(&(list(told) + &wrong(told) + &reserved(told)))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// What was asked for and does not count, a line each.
fn wrong(told: &[SloStanding]) -> String {
    let each = told.iter().flat_map(|standing| standing.wrong.iter().map(move |wrong| (&standing.name, wrong)));
    each.map(|(name, wrong)| printable(&format!("{name}: {wrong}")) + "\n").collect()
}

/// What became of memory that is reserved, a line for each GPU.
fn reserved(told: &[SloStanding]) -> String {
    let each = told.iter().flat_map(|standing| standing.rows.iter().map(move |row| (&standing.name, row)));
    let lines = each.filter_map(|(name, row)| Some(format!("{name}: {}", words::kernels::memory(row)?)));
    lines.map(|line| printable(&line) + "\n").collect()
}

fn sentence(standing: &SloStanding) -> String {
    let by = standing.given.as_ref().map(|given| format!(", by the word of {}", user(given.by_uid)));
    let passing = match (&standing.given, standing.is_durable) {
        (Some(_), false) => "; until the daemon ends, which writes nothing down (history.enabled)",
        _ => "",
    };
    let later = if standing.rows.is_empty() { "; it does not take part at the level of kernels now" } else { "" };
    format!("{}: {}{}{later}{passing}", standing.name, counts(standing), by.unwrap_or_default())
}

fn list(told: &[SloStanding]) -> String {
    let headings = ["TENANT", "GOALS", "FROM", "ROLE", "KEPT", "ERROR"];
    let rows = told.iter().map(|standing| {
        let unknown = || "-".to_owned();
        let from = match &standing.given {
            Some(given) => format!("set by {}", user(given.by_uid)),
            None if standing.counts.is_empty() => unknown(),
            None => "label".to_owned(),
        };
        let roles = standing.rows.iter().map(words::kernels::role).collect::<Vec<_>>();
        let kept = standing.rows.iter().filter_map(|row| row.attainment).min_by(f64::total_cmp);
        let error = standing.rows.iter().filter_map(|row| row.prediction_error).max_by(f64::total_cmp);
        let percent = |share: Option<f64>| share.map_or_else(unknown, |share| format!("{:.1}%", share * 100.0));
        let roles = if roles.is_empty() { "not attached".to_owned() } else { roles.join(", ") };
        vec![standing.name.clone(), counts(standing), from, roles, percent(kept), percent(error)]
    });
    table::render(Columns::new(&headings, &[false, false, false, false, true, true], rows.collect()))
}

/// As they are set.
fn counts(standing: &SloStanding) -> String {
    let goals = standing.counts.iter().map(|(key, value)| format!("{}={value}", key.trim_start_matches("berth.slo.")));
    let goals = goals.collect::<Vec<_>>().join(" ");
    if goals.is_empty() { "no goal".to_owned() } else { goals }
}

fn goals() -> String {
    let line = |(label, value): &(&str, &str)| format!("  {:<15} {value}\n", label.trim_start_matches("berth.slo."));
    format!("Goals and limits:\n{}", LABELS.iter().map(line).collect::<String>())
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (goal, value) = text.split_once('=').ok_or("write a goal and its value, such as latency=p99:10ms")?;
    Ok((goal.trim_start_matches("berth.slo.").to_owned(), value.to_owned()))
}

fn distinct(goals: &[(String, String)]) -> Result<BTreeMap<String, String>> {
    let all: BTreeMap<String, String> = goals.iter().cloned().collect();
    if all.len() < goals.len() {
        bail!("each goal is given once");
    }
    Ok(all)
}

impl Whom {
    fn request(&self) -> SloRequest {
        SloRequest { tenant: self.tenant.clone(), ..SloRequest::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_counts_is_told_as_it_is_set_and_by_whom() {
        let mut standing = SloStanding {
            tenant: berth_model::TenantKey::User { uid: 7 },
            name: "server".into(),
            counts: [("berth.slo.latency".to_owned(), "p99:10ms".to_owned())].into(),
            wrong: vec!["`berth.slo.reserve=60%`: 25% counts".to_owned()],
            given: None,
            is_durable: true,
            rows: vec![],
        };
        let absent = "; it does not take part at the level of kernels now";
        assert_eq!(sentence(&standing), format!("server: latency=p99:10ms{absent}"));
        let at = jiff::Timestamp::UNIX_EPOCH;
        standing.given = Some(berth_model::control::GivenSlo { by_uid: 0, at });
        standing.counts.clear();
        assert_eq!(sentence(&standing), format!("server: no goal, by the word of root{absent}"));
        assert_eq!(wrong(&[standing.clone()]), "server: `berth.slo.reserve=60%`: 25% counts\n");
        let listed = list(&[standing]);
        assert!(listed.contains("set by root") && listed.contains("not attached"), "{listed}");
    }

    #[test]
    fn a_goal_is_given_once_with_its_value() {
        assert_eq!(pair("berth.slo.weight=3").unwrap(), ("weight".to_owned(), "3".to_owned()));
        assert!(pair("latency").is_err());
        assert!(distinct(&[pair("a=1").unwrap(), pair("a=2").unwrap()]).is_err());
    }
}
