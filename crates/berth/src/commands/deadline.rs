//! `berth deadline`: which deadline counts for a tenant, and letting another count. The daemon keeps what is set.

use std::process::ExitCode;

use anyhow::Result;
use berth_api::{DeadlineRequest, paths};
use berth_model::Deadline;
use berth_model::control::DeadlineStanding;
use berth_model::deadline::Origin;
use clap::Subcommand;
use jiff::tz::TimeZone;

use crate::asking::{EXIT_CODES, ask};
use crate::cli::Global;
use crate::columns::{Columns, printable};
use crate::out::Stdout;
use crate::words::hold::user;
use crate::{logging, out, settings, table, words};

const EXAMPLES: &str = "\
Examples:
  berth deadline show
  berth deadline set trainer 9s
  berth deadline reset trainer

A tenant is named as in `berth ps`; a container that has not come to a GPU yet by its name or the
beginning of its id. What is set goes before the labels of a container, counts at once, also for the
unit of work that is under way, and outlives the daemon; it is forgotten when the container is
removed. Owners may set what is theirs, root everything. Deadlines outside the bounds of the
settings (`deadline.bounds`) count as the nearest inside, whoever sets them.
";

const SET_EXAMPLES: &str = "\
Examples:
  berth deadline set trainer 9s
  berth deadline set 4e3c1c4b 1500ms        a container by the beginning of its id
  berth deadline set /team-a/job 2m         a cgroup
  berth deadline set trainer 9              seconds, as in `docker run -dl 9`
";

const CLEAR_EXAMPLES: &str = "\
Examples:
  berth deadline clear trainer

It has no deadline then, whatever its labels say; `berth deadline reset` lets these count again.
";

const RESET_EXAMPLES: &str = "\
Examples:
  berth deadline reset trainer

Forgets what was set or cleared: the label `berth.deadline` counts again, if it has one.
";

const SHOW_EXAMPLES: &str = "\
Examples:
  berth deadline show
  berth deadline show trainer
  berth deadline show --json | jq -r '.[] | select(.counts.tally.misses > 0) | .name'

FROM: `set` or `cleared` by whom, `label`, or `docker -dl` for a label that stock Docker makes of
`-dl 9`. FLOAT: what is left of the unit of work under way; LAST: what was left of the one before.
Below zero it is late. Unknown is -, in JSON null.
";

/// Show which deadlines count, or say which is to
#[derive(Debug, clap::Args)]
#[command(after_help = format!("{EXAMPLES}\n{EXIT_CODES}"))]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Set(SetArgs),
    Clear(ClearArgs),
    Reset(ResetArgs),
    Show(ShowArgs),
}

/// Give a tenant a deadline, whatever its labels say
#[derive(Debug, clap::Args)]
#[command(after_help = format!("{SET_EXAMPLES}\n{EXIT_CODES}"))]
struct SetArgs {
    #[command(flatten)]
    whom: Whom,
    /// How long a unit of its work may take: seconds, or with a unit (1500ms, 9s, 2m)
    #[arg(value_name = "DEADLINE", allow_negative_numbers = true)]
    deadline: Deadline,
}

/// Take a tenant's deadline away, whatever its labels say
#[derive(Debug, clap::Args)]
#[command(after_help = format!("{CLEAR_EXAMPLES}\n{EXIT_CODES}"))]
struct ClearArgs {
    #[command(flatten)]
    whom: Whom,
}

/// Let the labels of a tenant say its deadline again
#[derive(Debug, clap::Args)]
#[command(after_help = format!("{RESET_EXAMPLES}\n{EXIT_CODES}"))]
struct ResetArgs {
    #[command(flatten)]
    whom: Whom,
}

/// Show who has which deadline, where it comes from and how it does
#[derive(Debug, clap::Args)]
#[command(after_help = format!("{SHOW_EXAMPLES}\n{EXIT_CODES}"))]
struct ShowArgs {
    /// Whom, named as in `berth ps`; everybody who has one, or had one cleared, if not given
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
        Command::Set(SetArgs { whom, deadline }) => {
            (DeadlineRequest { deadline: Some(*deadline), ..whom.request() }, whom.json)
        }
        Command::Clear(ClearArgs { whom }) => (DeadlineRequest { clear: true, ..whom.request() }, whom.json),
        Command::Reset(ResetArgs { whom }) => (DeadlineRequest { reset: true, ..whom.request() }, whom.json),
        Command::Show(args) => {
            let tenant = args.tenant.as_deref();
            let told = ask(&settings, |client| async move { client.deadlines(tenant).await })??;
            return show(args, &told);
        }
    };
    let standing: DeadlineStanding =
        ask(&settings, |client| async move { client.post(paths::DEADLINE, &request).await })??;
    if json {
        Stdout::json(&standing)?;
    } else {
        Stdout::line(&printable(&sentence(&standing)))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn show(args: &ShowArgs, told: &[DeadlineStanding]) -> Result<ExitCode> {
    match (told, &args.tenant) {
        _ if args.json => Stdout::json(&told)?,
        ([only], Some(_)) => Stdout::text(&page(only))?,
        ([], _) => out::say("nobody has a deadline"),
        _ => Stdout::text(&list(told, &TimeZone::system()))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// One tenant, with all that is known of its deadline.
fn page(standing: &DeadlineStanding) -> String {
    // The sentence has told the deadline.
    let facts = words::deadline::of_standing(standing).into_iter().filter(|(what, _)| *what != "deadline");
    let facts = facts.map(|(what, value)| format!("  {what:<10}  {value}"));
    let lines = [sentence(standing)].into_iter().chain(facts);
    lines.map(|line| printable(&line) + "\n").collect()
}

/// What counts for a tenant now, and on what terms.
fn sentence(standing: &DeadlineStanding) -> String {
    let counts = match (&standing.counts, &standing.given) {
        (Some(counts), _) => words::deadline::origin(counts),
        (None, Some(given)) => format!("no deadline, by the word of {}", user(given.by_uid)),
        (None, None) => "no deadline".to_owned(),
    };
    let later = if standing.is_here { "" } else { "; it is not on a GPU now" };
    let passing = match (&standing.given, standing.is_durable) {
        (Some(_), false) => "; until the daemon ends, which writes nothing down (history.enabled)",
        _ => "",
    };
    format!("{}: {counts}{later}{passing}", standing.name)
}

fn list(told: &[DeadlineStanding], zone: &TimeZone) -> String {
    let headings = ["TENANT", "OWNER", "DEADLINE", "FROM", "UNIT", "DUE", "FLOAT", "LAST", "HITS", "MISSES", "UNKNOWN"];
    let numeric = [false, false, true, false, false, false, true, true, true, true, true];
    table::render(Columns::new(&headings, &numeric, told.iter().map(|one| row(one, zone)).collect()))
}

fn row(standing: &DeadlineStanding, zone: &TimeZone) -> Vec<String> {
    let unknown = || "-".to_owned();
    let counts = standing.counts.as_ref();
    let work = counts.and_then(|counts| counts.work.as_ref());
    let count = |which: fn(&berth_model::deadline::Tally) -> u64| {
        counts.map_or_else(unknown, |counts| which(&counts.tally).to_string())
    };
    let float = |seconds: Option<f64>| seconds.map_or_else(unknown, words::deadline::brief_float);
    let due = match work {
        Some(work) => table::time(work.due_at, zone),
        None if !standing.is_here => "not on a GPU".to_owned(),
        None => unknown(),
    };
    vec![
        standing.name.clone(),
        standing.owner.clone().unwrap_or_else(unknown),
        deadline(standing),
        from(standing),
        counts.map_or_else(unknown, |counts| counts.unit.as_str().to_owned()),
        due,
        float(work.map(|work| work.float_seconds)),
        float(counts.and_then(|counts| counts.last_float_seconds)),
        count(|tally| tally.hits),
        count(|tally| tally.misses),
        count(|tally| tally.unknown),
    ]
}

/// With what was asked for, if the bounds do not allow it.
fn deadline(standing: &DeadlineStanding) -> String {
    match &standing.counts {
        None => "none".to_owned(),
        Some(counts) => match counts.asked {
            None => counts.deadline.to_string(),
            Some(asked) => format!("{} (not {asked})", counts.deadline),
        },
    }
}

fn from(standing: &DeadlineStanding) -> String {
    match (standing.counts.as_ref().map(|counts| counts.origin), &standing.given) {
        (Some(Origin::Set { by_uid }), _) => format!("set by {}", user(by_uid)),
        (Some(Origin::Label), _) => "label".to_owned(),
        (Some(Origin::StockLabel), _) => "docker -dl".to_owned(),
        (None, Some(given)) => format!("cleared by {}", user(given.by_uid)),
        (None, None) if !standing.unread_labels.is_empty() => "label not understood".to_owned(),
        (None, None) => "-".to_owned(),
    }
}

impl Whom {
    fn request(&self) -> DeadlineRequest {
        DeadlineRequest { tenant: self.tenant.clone(), ..DeadlineRequest::default() }
    }
}

#[cfg(test)]
mod tests {
    use berth_model::deadline::Given;

    use super::*;
    use crate::testing::{at, deadlines};

    /// Those with a deadline, as if somebody had asked; and one who had one, and is not here.
    fn told() -> Vec<DeadlineStanding> {
        let here = deadlines().tasks.into_iter().filter(|row| row.deadline.is_some()).map(|row| DeadlineStanding {
            tenant: row.tenant,
            name: row.container_name,
            owner: row.owner,
            is_here: true,
            given: None,
            is_durable: true,
            counts: row.deadline,
            unread_labels: vec![],
        });
        let mut told: Vec<DeadlineStanding> = here.collect();
        let cleared = Given { deadline: None, by_uid: 0, at: at(0) };
        let (is_here, given) = (false, Some(cleared));
        told.push(DeadlineStanding { name: "cleared".into(), is_here, given, counts: None, ..told[0].clone() });
        let unread_labels = vec!["`berth.deadline`: `abc` is not a deadline".to_owned()];
        told.insert(0, DeadlineStanding { name: "unread".into(), counts: None, unread_labels, ..told[0].clone() });
        told
    }

    #[test]
    fn everybody_s_deadlines() {
        insta::assert_snapshot!(list(&told(), &TimeZone::UTC));
    }

    #[test]
    fn a_label_that_is_not_understood_is_told_with_what_is_wrong() {
        let unread = told().remove(0);
        let expected = "unread: no deadline\n  label       not understood: `berth.deadline`: `abc` is not a deadline\n";
        assert_eq!(page(&unread), expected);
        let lines = vec!["a\u{1b}[2J\nb".to_owned()];
        let page = page(&DeadlineStanding { unread_labels: lines, ..unread });
        assert!(!page.contains('\u{1b}') && page.lines().count() == 2, "{page}");
    }

    #[test]
    fn what_was_said_is_told_with_what_it_depends_on() {
        let cleared = told().pop().unwrap();
        assert_eq!(sentence(&cleared), "cleared: no deadline, by the word of root; it is not on a GPU now");
        let passing = sentence(&DeadlineStanding { is_durable: false, is_here: true, ..cleared.clone() });
        assert!(passing.ends_with("; until the daemon ends, which writes nothing down (history.enabled)"), "{passing}");
        assert_eq!(sentence(&DeadlineStanding { given: None, is_here: true, ..cleared }), "cleared: no deadline");
    }
}
