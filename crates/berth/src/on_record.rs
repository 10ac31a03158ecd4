//! What is on record about holds, for those who find no daemon: read from the journal, and changed in nothing.
//!
//! A record says what may have been done to a tenant. What can be looked at is looked at: whether its processes live and stand
//! stopped, whether its cgroup is the one that was meant and is frozen. So nobody is shown as held who runs. Whether a process
//! is locked or parked only the driver knows, which is not asked: there the record counts.

use std::io;
use std::path::Path;

use berth_host::freezer::{CgroupDir, Motion, shelter_below};
use berth_model::control::{Refusal, find_named};
use berth_model::hold::{By, Grip, Means};
use berth_model::snapshot::{HoldRow, HoldStage};
use berth_model::{Settings, Snapshot, TenantKey};
use berth_store::{Found, Holder, JournalError, Kept, PlaceError, Role};
use jiff::Timestamp;
use serde::Serialize;

use crate::guard::is_stopped;

/// The JSON of it.
#[derive(Debug, Default, Serialize)]
pub struct OnRecord {
    pub holds: Vec<Recorded>,
    /// Who has the right to change it; none if nobody who lives has.
    pub kept_by: Option<KeptBy>,
    /// What is not known for want of something that could be read, in words.
    pub unknown: Vec<String>,
}

/// One tenant that a record is about.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Recorded {
    pub tenant: TenantKey,
    pub name: String,
    pub now: Now,
    /// By which it was to be held; none if it was about to be released, or cannot be told.
    pub means: Option<Means>,
    /// The user who decided; none for a policy.
    pub by_uid: Option<u32>,
    pub reason: String,
    pub since: Option<Timestamp>,
}

/// What has become of it, as far as can be seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "is", rename_all = "lowercase")]
pub enum Now {
    Held,
    /// Nothing that can be seen keeps it off: what is on record was undone, or never came about.
    Free,
    /// Nothing of what was held is there any more.
    Gone {
        why: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KeptBy {
    pub role: Role,
    pub pid: u32,
}

impl OnRecord {
    /// Never fails: what cannot be read is told in [`OnRecord::unknown`].
    pub fn read(settings: &Settings) -> Self {
        let (path, proc_root) = (&settings.hold.journal, &settings.processes.proc_root);
        let read = berth_store::read(path, proc_root);
        match read.and_then(|found| Ok((found, berth_store::holder(path, proc_root)?))) {
            Ok((found, holder)) => Self::of(&found, holder, proc_root),
            Err(error) => Self { unknown: vec![unreadable(&error, path)], ..Self::default() },
        }
    }

    fn of(found: &Found, holder: Option<Holder>, proc_root: &Path) -> Self {
        let unusable = found.unusable.iter().map(|file| format!("{file}: `berth release --all` tells what to do"));
        let mut unknown: Vec<String> = unusable.collect();
        match found.outdated {
            0 => {}
            1 => unknown.push("1 record is of an earlier boot: nothing of it lasts".to_owned()),
            more => unknown.push(format!("{more} records are of an earlier boot: nothing of them lasts")),
        }
        let holds = found.entries.iter().map(|kept| recorded(kept, proc_root)).collect();
        let kept_by = holder.map(|Holder { role, pid, .. }| KeptBy { role, pid });
        Self { holds, kept_by, unknown }
    }

    /// The one a person means.
    pub fn find(&self, selector: &str) -> Result<&Recorded, Refusal> {
        let tenant = find_named(selector, self.holds.iter().map(|hold| (&hold.tenant, hold.name.as_str())))?;
        let found = self.holds.iter().find(|hold| hold.tenant == *tenant);
        found.ok_or_else(|| Refusal::NoSuchTenant { selector: selector.to_owned(), known: Vec::new() })
    }

    /// Rows of those who are held say so.
    pub fn mark(&self, snapshot: &mut Snapshot) {
        let now = snapshot.taken_at;
        for hold in self.holds.iter().filter(|hold| hold.now == Now::Held) {
            for row in snapshot.tasks.iter_mut().filter(|row| row.tenant == hold.tenant) {
                row.hold = Some(hold.row(now));
                row.held_seconds = Some(hold.seconds(now));
            }
        }
    }

    /// What can be done about what is on record; `None` if nothing is.
    pub fn advice(&self) -> Option<String> {
        let by = self.kept_by.as_ref().map(|KeptBy { role, pid }| (role, pid));
        let is_any_held = self.holds.iter().any(|hold| hold.now == Now::Held);
        match by {
            _ if self.holds.is_empty() => None,
            Some((Role::Guard, pid)) => Some(format!("the guard (process {pid}) is letting them go")),
            Some((Role::Release, pid)) => Some(format!("`berth release` (process {pid}) is letting them go")),
            Some((Role::Daemon, pid)) => Some(format!(
                "a daemon (process {pid}) keeps these records, and does not answer here: name its socket (--socket), or \
                 `berth release --all --force` if it hangs"
            )),
            None if is_any_held => Some(
                "neither a daemon nor a guard runs: `berth release --all` lets them go, and so does starting the daemon"
                    .to_owned(),
            ),
            None => Some("nobody is held by it: the next daemon, or `berth release --all`, clears it away".to_owned()),
        }
    }
}

impl Recorded {
    fn seconds(&self, now: Timestamp) -> f64 {
        self.since.map_or(0.0, |since| now.duration_since(since).as_secs_f64().max(0.0))
    }

    fn row(&self, now: Timestamp) -> HoldRow {
        HoldRow {
            stage: HoldStage::Held,
            means: self.means,
            by_uid: self.by_uid,
            reason: self.reason.clone(),
            stands_at: None,
            since: self.since.unwrap_or(now),
            held_seconds: self.seconds(now),
            place: None,
            places: None,
            behind: None,
            expected_at: None,
            until: None,
        }
    }
}

fn recorded(kept: &Kept, proc_root: &Path) -> Recorded {
    let (entry, grip) = (&kept.entry, kept.verified(proc_root));
    let now = match grip.is_empty() {
        true => Now::Gone { why: kept.gone().to_string() },
        false if keeps_off(&grip, entry.cgroup.as_deref(), proc_root) => Now::Held,
        false => Now::Free,
    };
    Recorded {
        tenant: entry.tenant.clone(),
        name: entry.name.clone(),
        now,
        means: entry.want.means().or_else(|| means(&entry.grip)),
        by_uid: match entry.by {
            By::Person { uid } => Some(uid),
            By::Policy => None,
        },
        reason: entry.reason.clone(),
        since: Some(entry.since_wall).filter(|since| *since != Timestamp::UNIX_EPOCH),
    }
}

/// What is certain, and what cannot be looked at.
fn keeps_off(grip: &Grip, cgroup: Option<&Path>, proc_root: &Path) -> bool {
    let is_thawed = |dir: &Path| {
        let state = CgroupDir::open(dir).and_then(|dir| dir.state());
        state.is_ok_and(|state| state.motion == Motion::Thawed && !state.own)
    };
    // The cgroup of those who stand in its shelter is thawed.
    let runs = |dir: &Path| {
        let shelter = shelter_below(dir);
        is_thawed(dir) && (!shelter.exists() || is_thawed(&shelter))
    };
    let is_frozen = grip.sheltered || (grip.frozen.is_some() && !cgroup.is_some_and(runs));
    let stands = grip.stopped.iter().any(|process| is_stopped(proc_root, *process));
    is_frozen || stands || !grip.locked.is_empty() || !grip.parked.is_empty()
}

/// Of one that was wanted free, or of which that is not known.
fn means(grip: &Grip) -> Option<Means> {
    let found = [
        (!grip.parked.is_empty(), Means::Park),
        (!grip.gated.is_empty() || !grip.stopped.is_empty(), Means::Gate),
        (grip.frozen.is_some() || grip.sheltered, Means::Freeze),
        (!grip.locked.is_empty(), Means::Lock),
    ];
    found.into_iter().find(|(is_so, _)| *is_so).map(|(_, means)| means)
}

fn unreadable(error: &JournalError, path: &Path) -> String {
    let path = path.display();
    match error {
        JournalError::Place(PlaceError::Open { source, .. }) if source.kind() == io::ErrorKind::PermissionDenied => {
            format!("whether anybody is held cannot be told: only the user of the daemon may read {path}")
        }
        error => format!("whether anybody is held cannot be told: {}", berth_engine::describe(error)),
    }
}

#[cfg(test)]
mod tests {
    use berth_model::hold::Freezer;

    use super::*;
    use crate::testing::{at, busy};

    fn hold(now: Now) -> Recorded {
        Recorded {
            tenant: busy().tasks[0].tenant.clone(),
            name: "trainer".into(),
            now,
            means: Some(Means::Gate),
            by_uid: None,
            reason: "`b` computes".into(),
            since: Some(at(-14)),
        }
    }

    fn record(now: Now, role: Option<Role>) -> OnRecord {
        let kept_by = role.map(|role| KeptBy { role, pid: 77 });
        OnRecord { holds: vec![hold(now)], kept_by, unknown: Vec::new() }
    }

    #[test]
    fn what_to_do_depends_on_who_is_at_work_and_on_whether_anybody_is_held() {
        let advice = |now, role| record(now, role).advice().unwrap();
        assert!(advice(Now::Held, None).contains("`berth release --all` lets them go"));
        assert!(advice(Now::Free, None).starts_with("nobody is held"));
        assert_eq!(advice(Now::Held, Some(Role::Guard)), "the guard (process 77) is letting them go");
        assert!(advice(Now::Held, Some(Role::Daemon)).contains("does not answer here"));
        assert_eq!(OnRecord::default().advice(), None);
    }

    /// Its own cgroup is thawed, for its engine to check its health.
    #[test]
    fn who_stands_in_the_shelter_is_held_and_who_was_let_go_there_is_not() {
        let host = tempfile::tempdir().unwrap();
        let (dir, shelter) = (host.path().to_owned(), shelter_below(host.path()));
        std::fs::create_dir(&shelter).unwrap();
        let set = |dir: &Path, state: &str, own: &str| {
            for (file, text) in [("state", state), ("self_freezing", own), ("parent_freezing", "0")] {
                std::fs::write(dir.join(format!("freezer.{file}")), text).unwrap();
            }
        };
        let grip = Grip { frozen: Some(Freezer::Shelter), ..Grip::default() };
        let is_held = || keeps_off(&grip, Some(&dir), Path::new("/proc"));
        set(&dir, "THAWED", "0");
        for (state, own, expected) in [("FROZEN", "1", true), ("FREEZING", "1", true), ("THAWED", "0", false)] {
            set(&shelter, state, own);
            assert_eq!(is_held(), expected, "{state}");
        }
        std::fs::remove_dir_all(&shelter).unwrap();
        assert!(!is_held(), "nobody is in the shelter");
        set(&dir, "FROZEN", "1");
        assert!(is_held(), "frozen where it is, for want of a shelter");
    }

    #[test]
    fn only_who_is_held_is_marked_so() {
        for (now, is_marked) in [(Now::Held, true), (Now::Free, false), (Now::Gone { why: "it ended".into() }, false)] {
            let mut snapshot = busy();
            record(now, None).mark(&mut snapshot);
            let marked: Vec<bool> = snapshot.tasks.iter().map(|row| row.hold.is_some()).collect();
            assert_eq!((marked[0], marked[1]), (is_marked, false));
            assert_eq!(snapshot.tasks[0].held_seconds, is_marked.then_some(14.0));
        }
    }
}
