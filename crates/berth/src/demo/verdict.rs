//! What berth saw of each tenant beside what the tenant itself noted.

use std::collections::BTreeSet;
use std::path::Path;

use berth_load::{Edge, Event, Line, Moment};
use berth_model::fields::elapsed;
use berth_model::{Bytes, GpuIndex, Snapshot, TenantKey};

use super::{CAST, Played};
use crate::columns::Columns;
use crate::table::render;

/// The end of the play, in numbers.
#[derive(Debug)]
pub struct Verdict {
    rows: Vec<Row>,
    /// Who did not come before the end.
    absent: Vec<&'static str>,
}

#[derive(Debug)]
struct Row {
    name: &'static str,
    what: &'static str,
    /// `None` where berth does not tell this tenant from the others.
    seen: Option<Seen>,
    own_s: Option<f64>,
    /// `None` if it was still there at the end of the play, and removed.
    exit: Option<String>,
}

/// What berth saw of one tenant, over all its stays.
#[derive(Debug, PartialEq)]
struct Seen {
    owner: Option<String>,
    gpus: BTreeSet<GpuIndex>,
    stays: usize,
    peak: Option<Bytes>,
    seconds: f64,
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
        Self {
            rows: played.iter().map(|part| row(part, last)).collect(),
            absent: CAST.iter().skip(played.len()).map(|cue| cue.name).collect(),
        }
    }

    /// Whether everybody came, and left by themselves.
    fn is_whole(&self) -> bool {
        self.absent.is_empty() && self.rows.iter().all(|row| row.exit.is_some())
    }

    pub fn to_text(&self) -> String {
        let table = self.table();
        if self.is_whole() {
            return format!("What berth saw, and what the tenants noted themselves\n\n{table}");
        }
        let absent = if self.absent.is_empty() {
            String::new()
        } else {
            format!("\nDid not come: {}\n", self.absent.join(", "))
        };
        format!("Ended early. What berth saw until then, and what the tenants noted themselves\n\n{table}{absent}")
    }

    fn table(&self) -> String {
        let headings =
            ["TENANT", "OWNER", "WHAT IT DOES", "GPU", "STAYS", "PEAK", "SEEN", "ITS OWN CLOCK", "DIFFERENCE", "ENDED"];
        let numeric = [false, false, false, true, true, true, true, true, true, false];
        let table = render(Columns::new(&headings, &numeric, self.rows.iter().map(Row::cells).collect()));
        if self.rows.iter().all(|row| row.seen.is_some()) {
            return table;
        }
        format!("{table}\nBare processes of one user are one tenant to berth, so it does not tell these apart.\n")
    }
}

impl Row {
    fn cells(&self) -> Vec<String> {
        let of_seen = |text: fn(&Seen) -> Option<String>| self.seen.as_ref().and_then(text).unwrap_or_else(unknown);
        let difference = self.seen.as_ref().zip(self.own_s).map(|(seen, own)| (seen.seconds - own) * 1e3);
        vec![
            self.name.to_owned(),
            of_seen(|seen| seen.owner.clone()),
            self.what.to_owned(),
            of_seen(|seen| seen.gpus.iter().map(ToString::to_string).reduce(|all, gpu| format!("{all},{gpu}"))),
            of_seen(|seen| Some(seen.stays.to_string())),
            of_seen(|seen| seen.peak.map(|bytes| bytes.to_string())),
            of_seen(|seen| Some(elapsed(seen.seconds))),
            self.own_s.map_or_else(unknown, elapsed),
            difference.map_or_else(unknown, |millis| format!("{millis:+.1} ms")),
            self.exit.clone().unwrap_or_else(|| "removed".to_owned()),
        ]
    }
}

fn unknown() -> String {
    "-".to_owned()
}

fn row(part: &Played, last: Option<&Snapshot>) -> Row {
    let own = own_account(&part.tenant.lines);
    Row {
        name: part.cue.name,
        what: part.cue.what,
        seen: part.tenant.key().zip(last).map(|(key, snapshot)| Seen::of(key, snapshot)),
        own_s: own.seconds,
        exit: part.exit_code.map(|code| match (own.error, code) {
            (Some(error), _) => error,
            (None, 0) => "well".to_owned(),
            (None, code) => format!("with {code}"),
        }),
    }
}

impl Seen {
    fn of(tenant: &TenantKey, snapshot: &Snapshot) -> Self {
        let ended: Vec<_> = snapshot.ended.iter().filter(|task| task.tenant.is(tenant)).collect();
        let present: Vec<_> =
            snapshot.tasks.iter().filter(|row| row.tenant.is(tenant) && row.task_id.is_some()).collect();
        let present_s = present.first().and_then(|row| row.task_seconds);
        let peaks =
            ended.iter().map(|task| task.peak_memory_bytes).chain(present.iter().map(|row| row.gpu_memory_bytes));
        let owners = ended.iter().map(|task| &task.owner).chain(present.iter().map(|row| &row.owner));
        Self {
            owner: owners.flatten().next().cloned(),
            gpus: ended
                .iter()
                .flat_map(|task| task.gpus.clone())
                .chain(present.iter().filter_map(|row| row.gpu_index))
                .collect(),
            stays: ended.len() + usize::from(!present.is_empty()),
            peak: peaks.flatten().max(),
            seconds: ended.iter().map(|task| task.seconds).chain(present_s).fold(0.0, |sum, seconds| sum + seconds),
        }
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
    fn a_tenant_that_is_still_there_is_seen_with_what_it_has_done_so_far() {
        let snapshot = crate::testing::busy();
        let row = snapshot.tasks.iter().find(|row| row.task_id.is_some()).unwrap();
        let seen = Seen::of(&row.tenant, &snapshot);
        let ended: f64 =
            snapshot.ended.iter().filter(|task| task.tenant.is(&row.tenant)).map(|task| task.seconds).sum();
        assert!(seen.stays >= 1 && seen.gpus.contains(&row.gpu_index.unwrap()));
        assert!((seen.seconds - ended - row.task_seconds.unwrap()).abs() < 1e-9);
        let stranger = Seen::of(&TenantKey::User { uid: 4_242 }, &snapshot);
        assert_eq!((stranger.stays, elapsed(stranger.seconds).as_str()), (0, "0.0s"));
    }

    #[test]
    fn a_play_cut_short_says_who_was_removed_and_who_did_not_come() {
        let row = |exit: Option<&str>| Row {
            name: "notebook",
            what: "holds",
            seen: None,
            own_s: None,
            exit: exit.map(str::to_owned),
        };
        let cut = Verdict { rows: vec![row(None)], absent: vec!["too-big"] }.to_text();
        assert!(cut.starts_with("Ended early") && cut.contains("removed"), "{cut}");
        assert!(cut.contains("Did not come: too-big"), "{cut}");
        let whole = Verdict { rows: vec![row(Some("well"))], absent: vec![] }.to_text();
        assert!(whole.starts_with("What berth saw") && !whole.contains("removed"), "{whole}");
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
