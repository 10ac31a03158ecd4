//! Deadlines that people have set, on disk: what was said counts until someone says otherwise, whatever becomes of the daemon.
//!
//! One small file beside the history, replaced whole: written under another name, synced, renamed, and the directory synced. Whoever
//! dies in between leaves the old file or the new one. A file that cannot be read, or is of a later version, is left as it is and
//! nothing is set. Who opens this has the right to write the history there (its lock); blocks for the disk.

use std::io;
use std::path::{Path, PathBuf};

use berth_model::TenantKey;
use berth_model::deadline::{Deadline, Given};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::place::{Place, PlaceError};

const NAME: &str = "deadlines.v1.json";
const SCRATCH: &str = "deadlines.new";
const VERSION: u32 = 1;
/// Kept; of more, what was said longest ago goes.
const MOST: usize = 1_024;
/// Bytes of the file, well below what is read of one.
const MOST_BYTES: usize = 512 << 10;

#[derive(Debug, thiserror::Error)]
pub enum DeadlinesError {
    #[error("deadlines that are set cannot be kept (history.dir chooses another place)")]
    Place(#[from] PlaceError),
    #[error("reading {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} is damaged: mend it or move it away, and restart the daemon", path.display())]
    Damaged { path: PathBuf, source: serde_json::Error },
    #[error("{} is of version {version}, which this daemon does not know: start a newer one, or move the file away and restart it", path.display())]
    Newer { path: PathBuf, version: u32 },
    #[error("writing {}", path.display())]
    Write { path: PathBuf, source: io::Error },
}

/// What a person has said about one tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Override {
    pub tenant: TenantKey,
    /// What people called it then.
    pub name: String,
    pub given: Given,
}

/// All that was said, oldest first.
#[derive(Debug)]
pub struct Deadlines {
    place: Place,
    overrides: Vec<Override>,
}

/// The file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    version: u32,
    deadlines: Vec<Line>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    tenant: TenantKey,
    name: String,
    deadline: Option<Deadline>,
    by_uid: u32,
    at: Timestamp,
}

/// Read first: what else is in a file of a later version nobody knows.
#[derive(Deserialize)]
struct Version {
    version: u32,
}

// === impl Deadlines ===

impl Deadlines {
    /// Makes the directory if it is missing; without a file nothing has been set.
    pub fn open(dir: &Path) -> Result<Self, DeadlinesError> {
        let place = Place::make(dir)?;
        let path = dir.join(NAME);
        let overrides = match place.read(NAME) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(source) => return Err(DeadlinesError::Read { path, source }),
            Ok(bytes) => decode(&bytes, path)?,
        };
        Ok(Self { place, overrides })
    }

    pub fn overrides(&self) -> &[Override] {
        &self.overrides
    }

    /// Puts it in the place of what was said before of the same tenant. If it fails, nothing has changed.
    pub fn set(&mut self, one: Override) -> Result<(), DeadlinesError> {
        let others = self.overrides.iter().filter(|other| !other.tenant.is(&one.tenant));
        let all = others.cloned().chain([one.clone()]).collect();
        self.replace(all)
    }

    /// Forgets what was said of a tenant. If it fails, nothing has changed.
    pub fn reset(&mut self, tenant: &TenantKey) -> Result<(), DeadlinesError> {
        let others: Vec<Override> = self.overrides.iter().filter(|other| !other.tenant.is(tenant)).cloned().collect();
        if others.len() == self.overrides.len() { Ok(()) } else { self.replace(others) }
    }

    fn replace(&mut self, mut all: Vec<Override>) -> Result<(), DeadlinesError> {
        all.drain(..all.len().saturating_sub(MOST));
        let mut bytes = encode(&all);
        while bytes.len() > MOST_BYTES {
            // At least one goes each time, and a tenth so that it does not take for ever.
            all.drain(..all.len().div_ceil(10));
            bytes = encode(&all);
        }
        let path = self.place.path().join(NAME);
        self.place.replace_for_good(NAME, SCRATCH, &bytes).map_err(|source| DeadlinesError::Write { path, source })?;
        self.overrides = all;
        Ok(())
    }
}

fn encode(overrides: &[Override]) -> Vec<u8> {
    let deadlines = overrides.iter().cloned().map(Line::from).collect();
    let mut bytes = serde_json::to_vec_pretty(&File { version: VERSION, deadlines })
        .expect("keys are texts and no number is without a JSON form");
    bytes.push(b'\n');
    bytes
}

fn decode(bytes: &[u8], path: PathBuf) -> Result<Vec<Override>, DeadlinesError> {
    let damaged = |source| DeadlinesError::Damaged { path: path.clone(), source };
    let Version { version } = serde_json::from_slice(bytes).map_err(damaged)?;
    if version != VERSION {
        return Err(DeadlinesError::Newer { path, version });
    }
    let file: File = serde_json::from_slice(bytes).map_err(damaged)?;
    Ok(file.deadlines.into_iter().map(Override::from).collect())
}

// === impl Line ===

impl From<Override> for Line {
    fn from(Override { tenant, name, given: Given { deadline, by_uid, at } }: Override) -> Self {
        Self { tenant, name, deadline, by_uid, at }
    }
}

impl From<Line> for Override {
    fn from(Line { tenant, name, deadline, by_uid, at }: Line) -> Self {
        Self { tenant, name, given: Given { deadline, by_uid, at } }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use berth_model::{ContainerId, Runtime};
    use proptest::prelude::*;

    use super::*;

    fn tenant(uid: u32) -> TenantKey {
        TenantKey::User { uid }
    }

    fn said(tenant: TenantKey, deadline: Option<&str>) -> Override {
        let deadline = deadline.map(|text| text.parse().unwrap());
        Override { tenant, name: "ada".into(), given: Given { deadline, by_uid: 7, at: Timestamp::UNIX_EPOCH } }
    }

    fn opened(dir: &tempfile::TempDir) -> Deadlines {
        Deadlines::open(dir.path()).unwrap()
    }

    fn file(dir: &tempfile::TempDir) -> PathBuf {
        dir.path().join(NAME)
    }

    #[test]
    fn what_is_said_outlives_who_wrote_it_and_the_last_word_counts() {
        let dir = tempfile::tempdir().unwrap();
        let mut deadlines = opened(&dir);
        assert!(deadlines.overrides().is_empty());
        for one in [said(tenant(1), Some("9")), said(tenant(2), None), said(tenant(1), Some("2m"))] {
            deadlines.set(one).unwrap();
        }
        let expected = [said(tenant(2), None), said(tenant(1), Some("2m"))];
        assert_eq!(opened(&dir).overrides(), expected);
        deadlines.reset(&tenant(2)).unwrap();
        deadlines.reset(&tenant(3)).unwrap();
        assert_eq!(opened(&dir).overrides(), &expected[1..]);
    }

    #[test]
    fn a_container_is_its_id_whatever_its_cgroup_is_called() {
        let dir = tempfile::tempdir().unwrap();
        let mut deadlines = opened(&dir);
        let named = |runtime| TenantKey::Container { runtime, id: ContainerId("ab".into()) };
        deadlines.set(said(named(Runtime::Docker), Some("9"))).unwrap();
        deadlines.set(said(named(Runtime::Unknown), Some("8"))).unwrap();
        assert_eq!(deadlines.overrides().len(), 1);
        deadlines.reset(&named(Runtime::Docker)).unwrap();
        assert!(opened(&dir).overrides().is_empty());
    }

    #[test]
    fn a_damaged_or_later_file_is_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        opened(&dir).set(said(tenant(1), Some("9"))).unwrap();
        let good = std::fs::read_to_string(file(&dir)).unwrap();
        let later = good.replace("\"version\": 1", "\"version\": 2").replace("by_uid", "by");
        let extended = good.replace("\"by_uid\"", "\"why\": \"demo\", \"by_uid\"");
        for text in [&good[..good.len() / 2], "", "{}", &extended, &later] {
            std::fs::write(file(&dir), text).unwrap();
            let error = Deadlines::open(dir.path()).unwrap_err();
            let is_later = matches!(error, DeadlinesError::Newer { version: 2, .. });
            assert_eq!((is_later, error.to_string().contains(NAME)), (text == later, true), "{error}");
            assert_eq!(std::fs::read_to_string(file(&dir)).unwrap(), *text);
        }
    }

    #[test]
    fn one_who_dies_while_writing_leaves_what_was_there() {
        let dir = tempfile::tempdir().unwrap();
        opened(&dir).set(said(tenant(1), Some("9"))).unwrap();
        std::fs::write(dir.path().join(SCRATCH), "{\"version\": 1, \"dead").unwrap();
        let mut next = opened(&dir);
        assert_eq!(next.overrides(), [said(tenant(1), Some("9"))]);
        next.set(said(tenant(2), None)).unwrap();
        assert!(!dir.path().join(SCRATCH).exists());
        assert_eq!(opened(&dir).overrides().len(), 2);
    }

    #[test]
    fn what_cannot_be_written_is_not_set() {
        let dir = tempfile::tempdir().unwrap();
        let mut deadlines = opened(&dir);
        deadlines.set(said(tenant(1), Some("9"))).unwrap();
        // Nothing can be written in its place.
        std::fs::create_dir(dir.path().join(SCRATCH)).unwrap();
        let error = deadlines.set(said(tenant(1), Some("1"))).unwrap_err();
        assert!(matches!(error, DeadlinesError::Write { .. }), "{error}");
        assert!(deadlines.reset(&tenant(1)).is_err());
        assert_eq!(deadlines.overrides(), [said(tenant(1), Some("9"))]);
        assert_eq!(opened(&dir).overrides(), [said(tenant(1), Some("9"))]);
    }

    #[test]
    fn what_is_kept_is_bounded_and_the_oldest_word_goes_first() {
        let dir = tempfile::tempdir().unwrap();
        let mut deadlines = opened(&dir);
        let long = |number: usize| TenantKey::Cgroup { path: format!("/{number}/{}", "x".repeat(4_000)) };
        deadlines.replace((0..300).map(|number| said(long(number), None)).collect()).unwrap();
        let kept = deadlines.overrides().to_vec();
        assert!((50..200).contains(&kept.len()) && kept.last().unwrap().tenant == long(299), "{}", kept.len());
        assert_eq!(opened(&dir).overrides(), kept, "the file is no longer than what is read");
        deadlines.replace((0..MOST + 5).map(|uid| said(tenant(u32::try_from(uid).unwrap()), None)).collect()).unwrap();
        assert_eq!((deadlines.overrides().len(), &deadlines.overrides()[0].tenant), (MOST, &tenant(5)));
    }

    fn any_override() -> impl Strategy<Value = Override> {
        let tenant = prop_oneof![
            any::<u32>().prop_map(|uid| TenantKey::User { uid }),
            any::<String>().prop_map(|path| TenantKey::Cgroup { path }),
            any::<String>().prop_map(|id| TenantKey::Container { runtime: Runtime::Docker, id: ContainerId(id) }),
        ];
        let deadline = prop::option::of((1..=31_536_000_000u64).prop_map(Duration::from_millis));
        (tenant, any::<String>(), deadline, any::<u32>(), 0..4_000_000_000i64).prop_map(
            |(tenant, name, deadline, by_uid, second)| {
                let at = Timestamp::from_second(second).unwrap();
                Override { tenant, name, given: Given { deadline: deadline.and_then(Deadline::new), by_uid, at } }
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_written_is_what_is_read(all in prop::collection::vec(any_override(), 0..20)) {
            prop_assert_eq!(decode(&encode(&all), PathBuf::new()).unwrap(), all);
        }

        #[test]
        fn no_bytes_make_it_panic_or_invent_a_deadline(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(decode(&bytes, PathBuf::new()).is_err());
        }
    }
}
