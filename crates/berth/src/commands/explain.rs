//! `berth explain`: why a tenant runs or waits, how it does by its deadline, and what was done to it before.

mod left;
mod present;
mod recorded;

use std::process::ExitCode;

use anyhow::Result;
use berth_model::Settings;
use berth_model::control::{DeadlineStanding, Explanation, FindingRow, MoodRow, PastHold, SloStanding};
use berth_model::fields::elapsed;
use berth_model::hold::Means;
use berth_model::snapshot::DeadlineRow;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Serialize;

use crate::asking::{EXIT_CODES, ask};
use crate::cli::Global;
use crate::columns::{Columns, printable};
use crate::out::Stdout;
use crate::{logging, settings, table, words};

const EXAMPLES: &str = "\
Examples:
  berth explain trainer
  berth explain /team-a/job --json | jq .hold.behind
  berth explain trainer --json | jq .deadline.work.risk

Anybody who may ask the daemon may ask about anybody, also about one who has left: what happened to
it is told as far as it is written down (`berth history` tells more). Without a daemon: what its
records say of a hold, a look at who is there, and what is written down of one who has left, as far
as this user may read it.
";

/// Say why a tenant runs or waits, how it does by its deadline, and what was done to it before
#[derive(Debug, clap::Args)]
#[command(after_help = format!("{EXAMPLES}\n{EXIT_CODES}"))]
pub struct Args {
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
    let (now, zone) = (Timestamp::now(), TimeZone::system());
    match ask(&settings, |client| async move { client.explain(&args.tenant).await })? {
        Ok(told) => {
            let deadline = deadline(&settings, &told)?;
            let noticed = noticed(&settings, &told)?;
            let kernels = kernels(&settings, &told)?;
            let mood = mood(&settings, &told)?;
            match args.json {
                true => Stdout::json(&Explained { kernels, mood, ..Explained::of(&told, deadline, noticed) })?,
                false => Stdout::text(&text(
                    &told,
                    deadline.as_ref(),
                    &noticed,
                    (kernels.as_ref(), mood.as_ref()),
                    now,
                    &zone,
                ))?,
            }
        }
        Err(error) if error.is_nobody() => match left::find(&settings, &args.tenant)? {
            Some(left) if args.json => Stdout::json(&left)?,
            Some(left) => Stdout::text(&left.text(now, &zone))?,
            None => return Err(error.into()),
        },
        Err(error) if error.is_absent() => recorded::tell(&settings, &args.tenant, args.json, error)?,
        Err(error) => return Err(error.into()),
    }
    Ok(ExitCode::SUCCESS)
}

/// The JSON.
#[derive(Debug, Serialize)]
struct Explained<'a> {
    #[serde(flatten)]
    told: &'a Explanation,
    deadline: Option<DeadlineRow>,
    /// Labels about it that are not understood, and what would be right.
    unread_labels: Vec<String>,
    /// What is not as it should be; none also for those who may not be told.
    noticed: Vec<FindingRow>,
    /// Its goals at the level of kernels, and how it does there; `None` where it has none and does not take part.
    kernels: Option<SloStanding>,
    /// What its owner's words have come to; none also for those who may not be told.
    mood: Option<MoodRow>,
}

impl<'a> Explained<'a> {
    fn of(told: &'a Explanation, standing: Option<DeadlineStanding>, noticed: Vec<FindingRow>) -> Self {
        let (deadline, unread_labels) = standing.map(|its| (its.counts, its.unread_labels)).unwrap_or_default();
        Self { told, deadline, unread_labels, noticed, kernels: None, mood: None }
    }
}

/// `None` also of a daemon that does not tell.
fn deadline(settings: &Settings, told: &Explanation) -> Result<Option<DeadlineStanding>> {
    let tenant = told.tenant.to_string();
    let standing = ask(settings, |client| async move { client.deadlines(Some(&tenant)).await })?;
    Ok(standing.ok().and_then(|standing| standing.into_iter().next()))
}

/// Nothing also for those who may not be told, and of a daemon that does not tell.
fn noticed(settings: &Settings, told: &Explanation) -> Result<Vec<FindingRow>> {
    let tenant = told.tenant.to_string();
    let noticed = ask(settings, |client| async move { client.findings(Some(&tenant)).await })?;
    Ok(noticed.unwrap_or_default())
}

/// `None` also of a daemon that does not tell.
fn kernels(settings: &Settings, told: &Explanation) -> Result<Option<SloStanding>> {
    let tenant = told.tenant.to_string();
    let standing = ask(settings, |client| async move { client.slos(Some(&tenant)).await })?;
    let standing = standing.ok().and_then(|standing| standing.into_iter().next());
    Ok(standing.filter(|standing| !standing.rows.is_empty() || !standing.counts.is_empty()))
}

/// `None` also for those who may not be told, and of a daemon that does not tell.
fn mood(settings: &Settings, told: &Explanation) -> Result<Option<MoodRow>> {
    let tenant = told.tenant.to_string();
    Ok(ask(settings, |client| async move { client.mood(&tenant).await })?.ok())
}

/// Its goals at the level of kernels, and what its owner's words have come to there.
type InKernels<'a> = (Option<&'a SloStanding>, Option<&'a MoodRow>);

fn text(
    told: &Explanation,
    deadline: Option<&DeadlineStanding>,
    noticed: &[FindingRow],
    (kernels, mood): InKernels<'_>,
    now: Timestamp,
    zone: &TimeZone,
) -> String {
    let mut lines = vec![format!("{}: {}", told.name, words::hold::sentence(told, now))];
    lines.push(String::new());
    let deadline = deadline.into_iter().flat_map(words::deadline::of_standing);
    let kernels = kernels.into_iter().flat_map(of_kernels);
    let noticed = noticed.iter().map(|finding| ("noticed", words::watch::finding(finding, now)));
    let facts = facts(told).into_iter().chain(deadline).chain(kernels).chain(mood.and_then(of_mood)).chain(noticed);
    lines.extend(facts.map(|(what, value)| format!("  {what:<10}  {value}")));
    let text: String = lines.into_iter().map(|line| printable(&line) + "\n").collect();
    text + &past(&told.history, now, zone)
}

fn of_kernels(standing: &SloStanding) -> Vec<(&'static str, String)> {
    if standing.rows.is_empty() {
        return vec![("kernels", "it has goals and does not take part at the level of kernels".to_owned())];
    }
    standing.rows.iter().flat_map(words::kernels::facts).collect()
}

/// Nothing where nothing was said of late, or it has faded.
fn of_mood(mood: &MoodRow) -> Option<(&'static str, String)> {
    let words = if mood.mood < 0.0 { "complaints" } else { "praise" };
    let counts = (mood.weight - 1.0).abs() >= 0.005;
    counts.then(|| ("feedback", format!("{words} of late; it counts ×{:.2} at the level of kernels", mood.weight)))
}

/// Holds of the past, newest first, below what is told of the present.
fn past(holds: &[PastHold], now: Timestamp, zone: &TimeZone) -> String {
    if holds.is_empty() {
        return "\nNo hold of it is remembered.\n".to_owned();
    }
    let rows = holds.iter().map(|past| words::hold::past(past, table::time(past.at, zone), now)).collect();
    let numeric = [false, true, false, false, false];
    let table = table::render(Columns::new(&words::hold::PAST_HEADINGS, &numeric, rows));
    format!("\nLast holds, newest first\n{table}")
}

fn facts(told: &Explanation) -> Vec<(&'static str, String)> {
    let list = |words: Vec<String>| if words.is_empty() { "none".to_owned() } else { words.join(", ") };
    let gpus = told.gpus.iter().map(|gpu| format!("GPU {gpu}")).collect();
    let on = told.task_seconds.map_or_else(String::new, |seconds| format!(" for {}", elapsed(seconds)));
    let held = match told.held_seconds {
        seconds if seconds > 0.0 => format!(", held for {} of it", elapsed(seconds)),
        _ => String::new(),
    };
    let gang = Some(("gang", format!("held and released with {}", told.gang_with.join(", "))));
    let facts = [
        ("tenant", told.tenant.to_string()),
        ("owner", told.owner.clone().unwrap_or_else(|| "-".to_owned())),
        ("on", format!("{}{on}{held}; now {}", list(gpus), told.state.as_str())),
        ("beside", list(told.computing_there.clone())),
        ("before", told.before.as_ref().map_or_else(|| "not known".to_owned(), words::hold::before)),
        ("policy", words::hold::policy(told.policy, told.dry_run)),
        ("means", list(told.means.iter().map(|means: &Means| means.as_str().to_owned()).collect())),
    ];
    let awaited = Some(("awaited by", told.awaited_by.join(", ")));
    let facts = facts.into_iter().chain(awaited.filter(|_| !told.awaited_by.is_empty()));
    facts.chain(gang.filter(|_| !told.gang_with.is_empty())).collect()
}

#[cfg(test)]
mod tests {
    use berth_model::control::{PastRelease, PastWhat};
    use berth_model::deadline::Given;
    use berth_model::snapshot::{HoldRow, StandsAt};

    use super::*;

    const NONE: InKernels<'static> = (None, None);
    use crate::testing::{at, deadlines, explained, waiting};

    fn standing(name: &str) -> DeadlineStanding {
        let row = deadlines().tasks.into_iter().find(|row| row.container_name == name).unwrap();
        DeadlineStanding {
            tenant: row.tenant,
            name: row.container_name,
            owner: row.owner,
            is_here: true,
            given: None,
            is_durable: true,
            counts: row.deadline,
            unread_labels: vec![],
        }
    }

    #[test]
    fn one_who_has_a_deadline_is_told_all_about_it() {
        insta::assert_snapshot!(text(&explained(None), Some(&standing("trainer")), &[], NONE, at(0), &TimeZone::UTC));
        let told = explained(None);
        let json = serde_json::to_value(Explained::of(&told, Some(standing("trainer")), Vec::new())).unwrap();
        assert_eq!((&json["name"], &json["deadline"]["work"]["risk"]), (&"train-8".into(), &"safe".into()));
    }

    #[test]
    fn a_label_that_is_not_understood_is_told_to_people_and_programs() {
        let unread_labels = vec!["`berth.deadline`: `abc` is not a deadline".to_owned()];
        let standing = DeadlineStanding { counts: None, unread_labels, ..standing("trainer") };
        let told = text(&explained(None), Some(&standing), &[], NONE, at(0), &TimeZone::UTC);
        let lines = "  deadline    none\n  label       not understood: `berth.deadline`: `abc` is not a deadline\n";
        assert!(told.contains(lines), "{told}");
        let told = explained(None);
        let json = serde_json::to_value(Explained::of(&told, Some(standing), Vec::new())).unwrap();
        assert_eq!(json["unread_labels"][0], "`berth.deadline`: `abc` is not a deadline");
    }

    #[test]
    fn a_deadline_that_a_person_took_away_is_told_as_such() {
        let given = Some(Given { deadline: None, by_uid: 0, at: at(-5) });
        let standing = DeadlineStanding { given, counts: None, ..standing("trainer") };
        let told = text(&explained(None), Some(&standing), &[], NONE, at(0), &TimeZone::UTC);
        assert!(told.contains("  deadline    none: taken away by root, whatever its labels say\n"), "{told}");
        let standing = DeadlineStanding { given: None, ..standing };
        assert!(!text(&explained(None), Some(&standing), &[], NONE, at(0), &TimeZone::UTC).contains("deadline"));
    }

    #[test]
    fn one_who_waits_and_was_held_before() {
        let held = |released| PastWhat::Held {
            means: Means::Gate,
            by_uid: None,
            reason: "`train-7` computes on GPU 0".into(),
            released,
        };
        let release = PastRelease { at: at(-100), by_uid: None, reason: "it is its turn".into() };
        let history =
            vec![PastHold { at: at(-14), what: held(None) }, PastHold { at: at(-120), what: held(Some(release)) }];
        let hold = HoldRow { stands_at: Some(StandsAt::FirstLaunch), ..waiting() };
        let told = Explanation { history, ..explained(Some(hold)) };
        insta::assert_snapshot!(text(&told, Some(&standing("train-8")), &[], NONE, at(0), &TimeZone::UTC));
    }

    #[test]
    fn one_who_is_free_and_was_never_held() {
        insta::assert_snapshot!(text(&explained(None), None, &[], NONE, at(0), &TimeZone::UTC));
    }

    #[test]
    fn escape_sequences_in_names_do_not_reach_the_terminal() {
        let told = Explanation { name: "a\u{1b}[2J".into(), ..explained(None) };
        assert!(!text(&told, None, &[], NONE, at(0), &TimeZone::UTC).contains('\u{1b}'));
    }

    #[test]
    fn what_is_noticed_is_told_with_since_when_and_how_sure() {
        let finding = FindingRow {
            tenant: explained(None).tenant,
            name: "trainer".into(),
            gpu: Some(berth_model::GpuIndex(1)),
            kind: berth_model::watch::Kind::MemoryDrift,
            since: at(-600),
            sure: 0.98,
            words: "its memory grows by 2.0 GiB an hour".into(),
        };
        let told = text(&explained(None), None, &[finding], NONE, at(0), &TimeZone::UTC);
        assert!(
            told.contains("noticed     its memory grows by 2.0 GiB an hour on GPU 1, for 10m00s (98 % sure)"),
            "{told}"
        );
    }

    #[test]
    fn words_that_count_are_told_and_those_that_have_faded_are_not() {
        let mood = |mood, weight| MoodRow {
            tenant: berth_model::TenantKey::User { uid: 7 },
            name: "trainer".into(),
            mood,
            weight,
        };
        let told = |row: &MoodRow| text(&explained(None), None, &[], (None, Some(row)), at(0), &TimeZone::UTC);
        let slow = told(&mood(-0.4, 1.09));
        assert!(slow.contains("feedback    complaints of late; it counts ×1.09 at the level of kernels"), "{slow}");
        assert!(told(&mood(0.4, 0.91)).contains("praise of late; it counts ×0.91"));
        assert!(!told(&mood(-0.01, 1.002)).contains("feedback"));
    }
}
