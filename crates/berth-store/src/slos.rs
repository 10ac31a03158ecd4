//! Goals that people have set, on disk: what was said counts until someone says otherwise, whatever becomes of the daemon.
//!
//! One small file beside the history, replaced whole, as that of deadlines is. A file that cannot be read, or is of a later version, is
//! left as it is and nothing is set. Who opens this has the right to write the history there (its lock); blocks for the disk.

use std::io;
use std::path::{Path, PathBuf};

use berth_model::{Slo, TenantKey};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::place::{Place, PlaceError};

const NAME: &str = "slos.v1.json";
const SCRATCH: &str = "slos.new";
const VERSION: u32 = 1;
/// Kept; of more, what was said longest ago goes.
const MOST: usize = 1_024;

#[derive(Debug, thiserror::Error)]
pub enum SlosError {
    #[error("goals that are set cannot be kept (history.dir chooses another place)")]
    Place(#[from] PlaceError),
    #[error("reading {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} is damaged: mend it or move it away, and restart the daemon", path.display())]
    Damaged { path: PathBuf, source: serde_json::Error },
    #[error("{} is of version {version}, which this daemon does not know: start a newer one, or move the file away", path.display())]
    Newer { path: PathBuf, version: u32 },
    #[error("writing {}", path.display())]
    Write { path: PathBuf, source: io::Error },
}

/// What a person has said about one tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetSlo {
    pub tenant: TenantKey,
    /// What people called it then.
    pub name: String,
    pub slo: Slo,
    pub by_uid: u32,
    pub at: Timestamp,
}

/// All that was said, oldest first.
#[derive(Debug)]
pub struct Slos {
    place: Place,
    all: Vec<SetSlo>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    version: u32,
    slos: Vec<SetSlo>,
}

/// Read first: what else is in a file of a later version nobody knows.
#[derive(Deserialize)]
struct Version {
    version: u32,
}

impl Slos {
    /// Makes the directory if it is missing; without a file nothing has been set.
    pub fn open(dir: &Path) -> Result<Self, SlosError> {
        let place = Place::make(dir)?;
        let path = dir.join(NAME);
        let all = match place.read(NAME) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(source) => return Err(SlosError::Read { path, source }),
            Ok(bytes) => decode(&bytes, path)?,
        };
        Ok(Self { place, all })
    }

    pub fn all(&self) -> &[SetSlo] {
        &self.all
    }

    /// Puts it in the place of what was said before of the same tenant; `None` forgets that. If it fails, nothing has changed.
    pub fn say(&mut self, tenant: &TenantKey, said: Option<SetSlo>) -> Result<(), SlosError> {
        let others = self.all.iter().filter(|other| !other.tenant.is(tenant)).cloned();
        let mut all: Vec<SetSlo> = others.chain(said).collect();
        all.drain(..all.len().saturating_sub(MOST));
        let path = self.place.path().join(NAME);
        let mut bytes = serde_json::to_vec_pretty(&File { version: VERSION, slos: all.clone() })
            .expect("keys are texts and no number is without a JSON form");
        bytes.push(b'\n');
        self.place.replace_for_good(NAME, SCRATCH, &bytes).map_err(|source| SlosError::Write { path, source })?;
        self.all = all;
        Ok(())
    }
}

fn decode(bytes: &[u8], path: PathBuf) -> Result<Vec<SetSlo>, SlosError> {
    let damaged = |source| SlosError::Damaged { path: path.clone(), source };
    let Version { version } = serde_json::from_slice(bytes).map_err(damaged)?;
    if version != VERSION {
        return Err(SlosError::Newer { path, version });
    }
    let file: File = serde_json::from_slice(bytes).map_err(damaged)?;
    Ok(file.slos)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(uid: u32, weight: u32) -> SetSlo {
        let slo = Slo { weight: weight.try_into().unwrap(), ..Slo::default() };
        let at = Timestamp::from_second(1).unwrap();
        SetSlo { tenant: TenantKey::User { uid }, name: "a".into(), slo, by_uid: 0, at }
    }

    #[test]
    fn what_was_said_is_there_for_the_next_daemon_and_the_last_word_counts() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("history");
        let mut slos = Slos::open(&dir).unwrap();
        for one in [said(1, 2), said(2, 3), said(1, 4)] {
            slos.say(&one.tenant.clone(), Some(one)).unwrap();
        }
        assert_eq!(Slos::open(&dir).unwrap().all(), [said(2, 3), said(1, 4)]);
        slos.say(&TenantKey::User { uid: 2 }, None).unwrap();
        assert_eq!(Slos::open(&dir).unwrap().all(), [said(1, 4)]);
    }

    #[test]
    fn what_cannot_be_read_is_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("history");
        drop(Slos::open(&dir).unwrap());
        for (text, told) in [("{\"version\":2}", "version 2"), ("{", "damaged")] {
            std::fs::write(dir.join(NAME), text).unwrap();
            let error = Slos::open(&dir).unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
            assert_eq!(std::fs::read_to_string(dir.join(NAME)).unwrap(), text);
        }
    }
}
