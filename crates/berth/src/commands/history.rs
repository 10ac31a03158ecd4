//! `berth history`: which tasks there were, who was held and which deadlines were met, from what daemons have written down.

mod summary;

use std::process::ExitCode;

use anyhow::{Context, Result};
use berth_api::ClientError;
use berth_model::deadline::Verdict;
use berth_model::fields::elapsed;
use berth_model::history::{Happening, MOST_TOLD, Query, Record, TaskStory, Told, USUAL_LIMIT};
use berth_model::snapshot::TaskEnd;
use berth_model::{Settings, settings as model};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

use crate::asking::{AskError, ask};
use crate::cli::Global;
use crate::columns::Columns;
use crate::out::Stdout;
use crate::{logging, out, settings, table, words};

const EXAMPLES: &str = "\
Examples:
  berth history                    the last tasks and holds, newest first
  berth history trainer            of one tenant, also when it has left
  berth history pytorch:2          of all containers of an image
  berth history --since 2h         of the last two hours; or since a day or an instant
  berth history trainer --misses   deadlines it did not meet, and why
  berth history --summary          deadlines met and missed by each container and image
  berth history --json | jq -r '.[] | select(.what == \"held\") | .reason'

What is remembered outlives the daemon and the machine's boot, until it takes more room than
`history.max_mib`. Of one whose deadlines were judged a summary comes first, of the records that are
shown. Bursts that come faster than one in a second are written down one in a second, with how many
more were met or missed. --summary and --misses look at the newest 1000 records. Of how long units
took nine in ten took no more than P90; of float, what was left, nine in ten had at least P10.
Whoever may ask the daemon may read it. Without a daemon its files are read,
which only its user may. Unknown is null, or not said.";

/// Show which tasks there were, who was held, by whom and why, and which deadlines were met
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Whom, named as in `berth ps`; or an image
    #[arg(value_name = "NAME")]
    tenant: Option<String>,
    /// JSON instead of a table: an array, newest first
    #[arg(long)]
    json: bool,
    /// The newest so many
    #[arg(long, value_name = "N", default_value_t = USUAL_LIMIT, value_parser = limit)]
    limit: usize,
    /// Nothing older than this long ago (2h, 7d), or than a day or an instant (2026-11-15, 2026-11-15T10:00)
    #[arg(long, value_name = "WHEN", value_parser = since)]
    since: Option<Timestamp>,
    /// Only deadlines that were not met
    #[arg(long)]
    misses: bool,
    /// Only deadlines, added up: units, hits and misses, how long they took, what was left, why they were missed
    #[arg(long)]
    summary: bool,
}

impl Args {
    /// What is chosen here rather than by the daemon is chosen from as much as it tells.
    fn query(&self) -> Query {
        let limit = if self.misses || self.summary { MOST_TOLD } else { self.limit };
        Query { whom: self.tenant.clone(), since: self.since, limit }
    }

    fn choose(&self, told: Told) -> Told {
        if !self.misses {
            return told;
        }
        let is_miss = |record: &Record| matches!(&record.what, Happening::Judged(it) if it.verdict() == Verdict::Miss);
        let mut records: Vec<Record> = told.records.into_iter().filter(is_miss).collect();
        let is_cut = told.is_cut || (!self.summary && records.len() > self.limit);
        records.truncate(if self.summary { MOST_TOLD } else { self.limit });
        Told { records, is_cut, ..told }
    }
}

pub fn run(args: &Args, global: &Global) -> Result<ExitCode> {
    let settings = settings::load(global)?;
    logging::start_if_asked(global.log.is_some(), &settings.log)?;
    let query = args.query();
    let told = args.choose(tell(&settings, &query)?);
    show(args, &told)?;
    remarks(&told, &query, args.misses).iter().for_each(|remark| out::say(remark));
    Ok(ExitCode::SUCCESS)
}

fn show(args: &Args, told: &Told) -> Result<()> {
    let records = &told.records;
    match (args.summary, args.json) {
        (true, true) => return Stdout::json(&summary::of(records)),
        (false, true) => return Stdout::json(records),
        _ if records.is_empty() => return Ok(()),
        _ => {}
    }
    let summaries = summary::of(records);
    let is_summed = args.summary || args.tenant.is_some() && !summaries.is_empty();
    let above = if is_summed { summary::text(&summaries) } else { String::new() };
    let below = if args.summary { String::new() } else { text(records, &TimeZone::system()) };
    let gap = if above.is_empty() || below.is_empty() { "" } else { "\n" };
    Stdout::text(&format!("{above}{gap}{below}"))
}

/// What the daemon remembers, or its files without it.
fn tell(settings: &Settings, query: &Query) -> Result<Told> {
    match ask(settings, |client| async move { client.history(query).await })? {
        Err(AskError::NoDaemon(absent)) => from_files_instead(settings, query, &absent),
        told => Ok(told?),
    }
}

fn from_files_instead(settings: &Settings, query: &Query, absent: &ClientError) -> Result<Told> {
    out::say(&format!("{absent}; reading {}", settings.history.dir.display()));
    berth_store::history::read(&settings.history.dir, query).context("without a daemon only its user may read")
}

/// For a daemon that is asked; `Err` is why it cannot tell.
pub fn from_files(settings: &model::History, query: &Query) -> Result<Told, String> {
    if !settings.enabled {
        return Err("it is switched off by the settings (history.enabled)".to_owned());
    }
    berth_store::history::read(&settings.dir, query).map_err(|error| berth_engine::describe(&error))
}

fn limit(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=MOST_TOLD).contains(number));
    number.ok_or_else(|| format!("write a number from 1 to {MOST_TOLD}"))
}

pub(super) fn since(text: &str) -> Result<Timestamp, String> {
    instant(text, &Zoned::now())
        .ok_or_else(|| "write a duration such as `2h` or `7d`, a day such as `2026-11-15`, or an instant".to_owned())
}

fn instant(text: &str, now: &Zoned) -> Option<Timestamp> {
    if let Ok(span) = text.parse::<jiff::Span>() {
        return now.checked_sub(span).ok().filter(|at| at <= now).map(|at| at.timestamp());
    }
    let civil = || text.parse::<jiff::civil::DateTime>().ok()?.to_zoned(now.time_zone().clone()).ok();
    text.parse::<Timestamp>().ok().or_else(|| civil().map(|at| at.timestamp()))
}

/// What is to be known besides the records.
fn remarks(told: &Told, query: &Query, misses: bool) -> Vec<String> {
    let what = if misses { "no missed deadline" } else { "nothing" };
    let nothing = match &query.whom {
        Some(whom) => format!("{what} is remembered of `{whom}`"),
        None => format!("{what} is remembered"),
    };
    let damaged = told.damaged;
    let remarks = [
        told.records.is_empty().then_some(nothing),
        (told.is_cut && query.limit < MOST_TOLD).then(|| "there is more: --limit shows it".to_owned()),
        (told.is_cut && query.limit == MOST_TOLD)
            .then(|| format!("older ones than the newest {MOST_TOLD} are left out")),
        (damaged > 0).then(|| format!("{damaged} lines of its files are damaged and left out")),
    ];
    remarks.into_iter().flatten().collect()
}

fn text(records: &[Record], zone: &TimeZone) -> String {
    let rows = records.iter().map(|record| {
        let (what, details) = words(&record.what);
        vec![table::time(record.at, zone), record.name.clone(), what, details]
    });
    table::render(Columns::new(&["AT", "TENANT", "WHAT", "DETAILS"], &[false; 4], rows.collect()))
}

fn words(what: &Happening) -> (String, String) {
    let by = |uid: Option<u32>| uid.map(|uid| format!(" by {}", words::hold::user(uid))).unwrap_or_default();
    match what {
        Happening::Task(story) => (format!("{} after {}", end(story.end), elapsed(story.seconds)), details(story)),
        Happening::Judged(judgement) => words::deadline::story(judgement),
        Happening::Held { means, by_uid, reason } => {
            (format!("held ({}){}", means.as_str(), by(*by_uid)), reason.clone())
        }
        Happening::Released { by_uid, reason } => (format!("released{}", by(*by_uid)), reason.clone()),
        Happening::HoldFailed { message } => ("hold failed".to_owned(), message.clone()),
    }
}

fn end(end: Option<TaskEnd>) -> &'static str {
    match end {
        Some(TaskEnd::Left | TaskEnd::Exited) => "task ended",
        None => "task lost sight of",
    }
}

fn details(story: &TaskStory) -> String {
    let gpus = story.gpus.iter().map(|gpu| format!("GPU {gpu}"));
    let spent = [
        story.spent.active_seconds.map(|seconds| format!("computed {}", elapsed(seconds))),
        story.spent.held_seconds.filter(|held| *held > 0.0).map(|seconds| format!("held {}", elapsed(seconds))),
        story.peak_memory_bytes.map(|bytes| format!("up to {bytes}")),
    ];
    let parts = gpus.chain(spent.into_iter().flatten()).chain(story.workload.image.clone());
    parts
        .chain(Some(story.workload.command.clone()).filter(|command| !command.is_empty()))
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
mod tests {
    use berth_model::deadline::{Tally, Unit};
    use berth_model::history::{Judgement, Spent, Why};
    use berth_model::hold::Means;
    use berth_model::{Bytes, TenantKey};

    use super::*;
    use crate::testing::{at, ended, judgement};

    fn record(second: i64, what: Happening) -> Record {
        Record { at: at(second), tenant: TenantKey::User { uid: 0 }, name: "batch".into(), what }
    }

    fn missed() -> Judgement {
        let why = Some(Why::Held { behind: Some("b".into()) });
        let unwritten = Tally { hits: 13, misses: 1, unknown: 0 };
        let missed = judgement("2s", Some(-3.2), why);
        Judgement { unit: Unit::Burst, held_seconds: 3.1, contended_seconds: 0.4, unwritten, ..missed }
    }

    fn args(line: &[&str]) -> Args {
        #[derive(Debug, clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: Args,
        }
        <Line as clap::Parser>::parse_from(["history"].iter().chain(line)).args
    }

    #[test]
    fn only_misses_are_left_of_all_that_is_told_and_no_more_than_asked_for() {
        let records: Vec<Record> = (0..6)
            .map(|second| match second % 2 {
                0 => record(-second, Happening::Judged(missed())),
                _ => record(-second, Happening::Judged(judgement("9s", Some(1.0), None))),
            })
            .collect();
        let told = Told { records, is_cut: false, damaged: 0 };
        let left = |line: &[&str]| {
            let left = args(line).choose(told.clone());
            (left.records.len(), left.is_cut)
        };
        assert_eq!(
            (left(&[]), left(&["--misses"]), left(&["--misses", "--limit", "2"])),
            ((6, false), (3, false), (2, true))
        );
        assert_eq!((args(&["--misses"]).query().limit, args(&["--limit", "7"]).query().limit), (MOST_TOLD, 7));
    }

    #[test]
    fn tasks_holds_and_deadlines_newest_first() {
        let spent = Spent { active_seconds: Some(41.5), held_seconds: Some(12.0), burst_seconds: None };
        let task = Record::of_ended(&ended()[0], spent);
        let Happening::Task(story) = task.what.clone() else { panic!("{task:?}") };
        let unknown = TaskStory { spent: Spent::default(), peak_memory_bytes: None, end: None, ..story };
        let records = [
            task,
            record(-60, Happening::Released { by_uid: None, reason: "it is its turn".into() }),
            record(-72, Happening::Held { means: Means::Gate, by_uid: None, reason: "`b` computes".into() }),
            record(-90, Happening::Held { means: Means::Freeze, by_uid: Some(1000), reason: "demo".into() }),
            record(-95, Happening::HoldFailed { message: "no cgroup".into() }),
            record(-99, Happening::Task(unknown)),
            record(-100, Happening::Judged(judgement("9s", Some(1.4), None))),
            record(-110, Happening::Judged(missed())),
            record(-120, Happening::Judged(judgement("9s", None, None))),
        ];
        insta::assert_snapshot!(text(&records, &TimeZone::UTC));
    }

    #[test]
    fn escape_sequences_in_names_do_not_reach_the_terminal() {
        let released = record(0, Happening::Released { by_uid: None, reason: "a\u{1b}[2J".into() });
        assert!(!text(&[released], &TimeZone::UTC).contains('\u{1b}'));
    }

    #[test]
    fn an_instant_is_told_as_people_say_it() {
        let now = "2026-11-15T09:00:00Z".parse::<Timestamp>().unwrap().to_zoned(TimeZone::fixed(jiff::tz::offset(1)));
        let ago = |text: &str| instant(text, &now).map(|at| now.timestamp().duration_since(at).as_secs());
        assert_eq!((ago("2h"), ago("90m"), ago("1d 1h")), (Some(7_200), Some(5_400), Some(90_000)));
        assert_eq!((ago("2026-11-15"), ago("2026-11-15T09:30")), (Some(36_000), Some(1_800)));
        assert_eq!(instant("2026-11-15T00:00:00Z", &now), Some("2026-11-15T00:00:00Z".parse().unwrap()));
        for text in ["", "yesterday", "2", "-2h"] {
            assert_eq!(instant(text, &now), None, "{text}");
        }
    }

    #[test]
    fn what_is_missing_is_said() {
        let query = Query { whom: Some("x".into()), ..Query::default() };
        assert_eq!(remarks(&Told::default(), &query, false), ["nothing is remembered of `x`"]);
        assert_eq!(remarks(&Told::default(), &query, true), ["no missed deadline is remembered of `x`"]);
        let released = record(0, Happening::Released { by_uid: None, reason: "a".into() });
        let told = Told { records: vec![released], is_cut: true, damaged: 2 };
        assert_eq!(remarks(&told, &query, false).len(), 2);
    }

    #[test]
    fn a_daemon_without_a_history_says_so() {
        let settings = model::History { enabled: false, ..model::History::default() };
        assert!(from_files(&settings, &Query::default()).unwrap_err().contains("history.enabled"));
    }

    #[test]
    fn what_is_not_known_is_not_said() {
        let task =
            Record::of_ended(&ended()[0], Spent { active_seconds: None, held_seconds: Some(0.0), burst_seconds: None });
        let Happening::Task(story) = &task.what else { panic!("{task:?}") };
        assert!(!details(story).contains("computed") && !details(story).contains("held"), "{}", details(story));
        assert!(details(story).contains(&Bytes::from_mib(8_192).to_string()));
    }
}
