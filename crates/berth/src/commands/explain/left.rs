//! Why somebody waited who has left: from what the daemon has written down.

use anyhow::Result;
use berth_model::control::{PastHold, PastRelease, PastWhat};
use berth_model::fields::elapsed;
use berth_model::history::{Happening, MOST_TOLD, Query, Record, TaskStory};
use berth_model::{Settings, TenantKey};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Serialize;

use crate::asking::ask;
use crate::columns::printable;
use crate::commands::history;
use crate::words;

/// One who is no longer there: the JSON.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Left {
    tenant: TenantKey,
    name: String,
    /// Always, to tell it from the answer about one who is there.
    has_left: bool,
    /// Newest first.
    records: Vec<Record>,
}

/// The last one who was called so, of whom anything is written down.
pub(super) fn find(settings: &Settings, whom: &str) -> Result<Option<Left>> {
    let query = everything_about(whom);
    // Without a history nobody is known who is not there.
    let told = ask(settings, |client| async move { client.history(&query).await })?;
    Ok(told.ok().and_then(|told| Left::of(told.records)))
}

/// The same without a daemon, for those who may read its files.
pub(super) fn find_in_files(settings: &Settings, whom: &str) -> Option<Left> {
    Left::of(in_files(settings, whom))
}

/// Newest first, those of tasks that were under way before all others; none where none may be read.
pub(super) fn in_files(settings: &Settings, whom: &str) -> Vec<Record> {
    let query = everything_about(whom);
    let Ok(told) = history::from_files(&settings.history, &query) else { return Vec::new() };
    let open = berth_store::history::under_way(&settings.history.dir).unwrap_or_default();
    query.choose(open.into_iter().chain(told.records).collect())
}

fn everything_about(whom: &str) -> Query {
    Query { whom: Some(whom.to_owned()), since: None, limit: MOST_TOLD }
}

impl Left {
    /// A name may have been another's before: what is told is of the one who had it last.
    fn of(records: Vec<Record>) -> Option<Self> {
        let newest = records.first()?;
        let (tenant, name) = (newest.tenant.clone(), newest.name.clone());
        let records = records.into_iter().filter(|record| record.tenant == tenant).collect();
        Some(Self { tenant, name, has_left: true, records })
    }

    pub fn text(&self, now: Timestamp, zone: &TimeZone) -> String {
        let last = self.records.iter().find_map(|record| match &record.what {
            Happening::Task(story) => Some((record.at, story)),
            _ => None,
        });
        let mut lines = vec![format!("{}: {}", self.name, sentence(last, now)), String::new()];
        lines.push(format!("  {:<10}  {}", "tenant", self.tenant));
        if let Some((_, story)) = last {
            lines.push(format!("  {:<10}  {}", "owner", story.workload.owner.as_deref().unwrap_or("-")));
            lines.push(format!("  {:<10}  {}", "command", story.workload.command));
        }
        let judged = self.records.iter().find_map(|record| match &record.what {
            Happening::Judged(judgement) => Some(words::deadline::story(judgement)),
            _ => None,
        });
        lines.extend(judged.map(|(what, details)| format!("  {:<10}  {what}; {details}", "judged")));
        let text: String = lines.into_iter().map(|line| printable(&line) + "\n").collect();
        text + &super::past(&holds(&self.records), now, zone)
    }
}

/// `left 4m07s ago, after 2h05m on GPU 0, held for 14 s of it`.
fn sentence(last: Option<(Timestamp, &TaskStory)>, now: Timestamp) -> String {
    let Some((at, story)) = last else { return "is not there; no task of it is on record".to_owned() };
    let ago = elapsed(now.duration_since(at).as_secs_f64());
    let how = if story.end.is_some() { "left" } else { "was there when the daemon stopped," };
    let gpus: Vec<String> = story.gpus.iter().map(|gpu| format!("GPU {gpu}")).collect();
    let gpus = if gpus.is_empty() { "a GPU".to_owned() } else { gpus.join(", ") };
    let held = match story.spent.held_seconds {
        Some(seconds) if seconds > 0.0 => format!(", held for {} of it", words::hold::seconds(seconds)),
        _ => String::new(),
    };
    format!("{how} {ago} ago, after {} on {gpus}{held}", elapsed(story.seconds))
}

/// Holds and their ends, newest first, from records that are.
pub(super) fn holds(records: &[Record]) -> Vec<PastHold> {
    let mut holds: Vec<PastHold> = Vec::new();
    for Record { at, what, .. } in records.iter().rev() {
        let what = match what.clone() {
            Happening::Held { means, by_uid, reason } => PastWhat::Held { means, by_uid, reason, released: None },
            Happening::HoldFailed { message } => PastWhat::Failed { message },
            Happening::Released { by_uid, reason } => {
                for hold in &mut holds {
                    if let PastWhat::Held { released: released @ None, .. } = &mut hold.what {
                        *released = Some(PastRelease { at: *at, by_uid, reason: reason.clone() });
                    }
                }
                continue;
            }
            Happening::Task(_) | Happening::Judged(_) => continue,
        };
        holds.push(PastHold { at: *at, what });
    }
    holds.reverse();
    holds
}

#[cfg(test)]
mod tests {
    use berth_model::history::{Spent, Why, Workload};
    use berth_model::hold::Means;
    use berth_model::snapshot::TaskEnd;
    use berth_model::{Evidence, GpuIndex, TaskId};

    use super::*;
    use crate::testing::{at, judgement};

    fn record(second: i64, uid: u32, what: Happening) -> Record {
        Record { at: at(second), tenant: TenantKey::User { uid }, name: "train-7".into(), what }
    }

    fn task() -> Happening {
        let workload = Workload { owner: Some("ada".into()), image: None, command: "python train.py".into() };
        Happening::Task(TaskStory {
            task_id: TaskId(3),
            workload,
            gpus: vec![GpuIndex(0)],
            started_at: at(-400),
            start_evidence: Evidence::Probe,
            seconds: 360.0,
            spent: Spent { active_seconds: None, held_seconds: Some(14.0), burst_seconds: None },
            peak_memory_bytes: None,
            end: Some(TaskEnd::Exited),
            left: None,
        })
    }

    fn held() -> Happening {
        Happening::Held { means: Means::Gate, by_uid: None, reason: "`b` computes on GPU 0".into() }
    }

    #[test]
    fn one_who_left_is_told_with_when_and_with_its_holds() {
        let released = Happening::Released { by_uid: None, reason: "it is its turn".into() };
        let judged = judgement("9s", Some(-1.5), Some(Why::Held { behind: Some("b".into()) }));
        let judged = record(-40, 7, Happening::Judged(judged));
        let records = vec![record(-40, 7, task()), judged, record(-100, 7, released), record(-114, 7, held())];
        let left = Left::of(records).unwrap();
        insta::assert_snapshot!(left.text(at(0), &TimeZone::UTC));
    }

    #[test]
    fn the_one_who_had_the_name_last_is_meant() {
        let left = Left::of(vec![record(-40, 8, task()), record(-50, 7, task()), record(-60, 8, held())]).unwrap();
        assert_eq!((left.tenant, left.records.len()), (TenantKey::User { uid: 8 }, 2));
        assert_eq!(Left::of(vec![]), None);
    }
}
