//! What berth saw of each tenant beside what the tenant itself noted.

use std::path::Path;
use std::sync::Arc;

use berth_load::{Edge, Event, Line, Moment};
use berth_model::fields::elapsed;
use berth_model::snapshot::EndedTask;
use berth_model::{Snapshot, TenantKey};

use super::Played;
use crate::columns::Columns;
use crate::table::render;

/// The end of the play, in numbers.
#[derive(Debug)]
pub struct Verdict {
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    name: &'static str,
    owner: &'static str,
    what: &'static str,
    stays: usize,
    gpus: String,
    peak: String,
    seen_s: f64,
    own_s: Option<f64>,
    exit: String,
}

/// A tenant's own account.
#[derive(Debug, Default, PartialEq)]
struct Own {
    /// On the GPU, over all its stays; `None` if it did not live to note every end.
    seconds: Option<f64>,
    error: Option<String>,
}

impl Verdict {
    pub fn of(played: &[Played], last: Option<&Snapshot>) -> Self {
        let ended = last.map(|snapshot| snapshot.ended.as_slice()).unwrap_or_default();
        Self { rows: played.iter().map(|part| row(part, ended)).collect() }
    }

    pub fn to_text(&self) -> String {
        let cells = self.rows.iter().map(|row| {
            let difference = row.own_s.map(|own| format!("{:+.1} ms", (row.seen_s - own) * 1e3));
            vec![
                row.name.to_owned(),
                row.owner.to_owned(),
                row.what.to_owned(),
                row.gpus.clone(),
                row.stays.to_string(),
                row.peak.clone(),
                elapsed(row.seen_s),
                row.own_s.map_or_else(|| "-".to_owned(), elapsed),
                difference.unwrap_or_else(|| "-".to_owned()),
                row.exit.clone(),
            ]
        });
        let headings =
            ["TENANT", "OWNER", "WHAT IT DOES", "GPU", "STAYS", "PEAK", "SEEN", "ITS OWN CLOCK", "DIFFERENCE", "ENDED"];
        let numeric = [false, false, false, true, true, true, true, true, true, false];
        render(Columns::new(&headings, &numeric, cells.collect()))
    }
}

fn row(part: &Played, ended: &[Arc<EndedTask>]) -> Row {
    let is_its = |task: &&EndedTask| part.tenant.key().is_none_or(|key: &TenantKey| *key == task.tenant);
    let stays: Vec<&EndedTask> = ended.iter().map(AsRef::as_ref).filter(is_its).collect();
    let mut gpus: Vec<_> = stays.iter().flat_map(|task| &task.gpus).map(ToString::to_string).collect();
    gpus.sort_unstable();
    gpus.dedup();
    let own = own_account(&part.tenant.lines);
    Row {
        name: part.cue.name,
        owner: part.cue.owner,
        what: part.cue.what,
        stays: stays.len(),
        gpus: if gpus.is_empty() { "-".to_owned() } else { gpus.join(",") },
        peak: stays.iter().filter_map(|task| task.peak_memory_bytes).max().map_or("-".to_owned(), |b| b.to_string()),
        seen_s: stays.iter().map(|task| task.seconds).sum(),
        own_s: own.seconds,
        exit: match (own.error, part.exit_code) {
            (_, None) => "still there".to_owned(),
            (Some(error), Some(_)) => error,
            (None, Some(0)) => "well".to_owned(),
            (None, Some(code)) => format!("with {code}"),
        },
    }
}

fn own_account(lines: &Path) -> Own {
    let text = std::fs::read_to_string(lines).unwrap_or_default();
    account(text.lines().filter_map(|line| serde_json::from_str(line).ok()))
}

/// From each context made to the same context gone.
fn account(lines: impl Iterator<Item = Line>) -> Own {
    let (mut began, mut seconds, mut error) = (None, 0.0, None);
    for line in lines {
        match line.event {
            Event::Moment { moment: Moment::ContextReady, edge: Edge::End, .. } => began = Some(line.at.mono_ns),
            Event::Moment { moment: Moment::ContextGone, edge: Edge::End, .. } => {
                if let Some(from) = began.take() {
                    seconds += std::time::Duration::from_nanos(line.at.mono_ns.saturating_sub(from)).as_secs_f64();
                }
            }
            Event::Error { message, .. } => error = Some(message),
            _ => {}
        }
    }
    Own { seconds: (began.is_none() && seconds > 0.0).then_some(seconds), error }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Line {
        serde_json::from_str(text).unwrap()
    }

    fn moment(moment: &str, at: u64) -> Line {
        line(&format!(
            r#"{{"mono_ns":{at},"wall_ns":0,"pid":1,"task":0,"event":"moment","moment":"{moment}","edge":"end"}}"#
        ))
    }

    #[test]
    fn stays_add_up_by_the_tenant_s_own_clock() {
        let lines =
            [("context_ready", 1_000_000_000), ("context_gone", 3_000_000_000), ("context_ready", 4_000_000_000)];
        let mut lines: Vec<Line> = lines.map(|(name, at)| moment(name, at)).into();
        assert_eq!(account(lines.clone().into_iter()), Own { seconds: None, error: None }, "its last stay has no end");
        lines.push(moment("context_gone", 4_500_000_000));
        assert_eq!(account(lines.into_iter()), Own { seconds: Some(2.5), error: None });
    }
}
