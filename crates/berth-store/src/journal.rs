//! The journal: one file per held tenant, written before anything is done to it and removed when nothing is.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use std::{fmt, io};

use berth_model::{ProcKey, TenantKey};

use crate::clues::Clues;
use crate::lock::{self, Holder, Lock, Role};
use crate::place::{Place, PlaceError};
use crate::record::{self, Kept, Unreadable};
use crate::{Entry, live};

const RECORD: &str = ".hold";
const SCRATCH: &str = ".new";
/// What could not be read is kept under this ending for a person to look at.
const SET_ASIDE: &str = ".unreadable";

#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("the journal of holds cannot be kept")]
    Place(#[from] PlaceError),
    #[error("locking the journal in {}", path.display())]
    Lock { path: PathBuf, source: io::Error },
    #[error("the journal in {} is in use{}", path.display(), by(holder))]
    InUse { path: PathBuf, holder: Option<Holder> },
    #[error("finding out which boot of this machine it is")]
    Boot { source: io::Error },
    #[error("listing the journal in {}", path.display())]
    List { path: PathBuf, source: io::Error },
    #[error("writing down the hold of {tenant} in {}", path.display())]
    Write { tenant: TenantKey, path: PathBuf, source: io::Error },
    #[error("removing the record of {tenant} from {}", path.display())]
    Remove { tenant: TenantKey, path: PathBuf, source: io::Error },
}

/// What a journal says.
#[derive(Debug, Default)]
pub struct Found {
    pub entries: Vec<Kept>,
    pub unusable: Vec<Unusable>,
    /// Files of this boot, or of none that can be told, that somebody could not use before and has set aside.
    pub set_aside: Vec<Unusable>,
    /// How many records are of an earlier boot: nothing of them can be true any more.
    pub outdated: usize,
}

/// A file that could not be used, for someone to be told of.
#[derive(Debug)]
pub struct Unusable {
    pub path: PathBuf,
    pub why: String,
    /// Whom it may be about.
    pub clues: Clues,
}

impl Unusable {
    fn new(path: PathBuf, why: &impl ToString, bytes: &[u8]) -> Self {
        Self { path, why: why.to_string(), clues: Clues::of(bytes) }
    }
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} cannot be used: {}; ", self.path.display(), self.why)?;
        match self.clues.name() {
            Some(name) => write!(f, "it is about {name}"),
            None => f.write_str("whom it is about is not known"),
        }
    }
}

/// The journal, and the right to write in it. May be written by several threads.
#[derive(Debug)]
pub struct Journal {
    place: Place,
    boot: String,
    files: Mutex<Files>,
    _lock: Lock,
}

/// Which file is whose. Files are numbered: names of tenants are others' to choose.
#[derive(Debug, Default)]
struct Files {
    numbers: BTreeMap<TenantKey, u64>,
    last: u64,
}

/// What is in the journal, without the right to write.
pub fn read(path: &Path, proc_root: &Path) -> Result<Found, JournalError> {
    match Place::open(path) {
        Err(PlaceError::Open { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(Found::default()),
        Err(error) => Err(error.into()),
        Ok(place) => Ok(look(&place, &boot(proc_root)?)?.found),
    }
}

/// Who has the right to write now, by what it signed; `None` if nobody who lives has. Touches no lock: whoever waits for it is
/// not disturbed.
pub fn holder(path: &Path, proc_root: &Path) -> Result<Option<Holder>, JournalError> {
    let place = match Place::open(path) {
        Err(PlaceError::Open { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    lock::signed(&place, proc_root).map_err(|source| JournalError::Lock { path: path.to_owned(), source })
}

impl Journal {
    /// Takes the journal, and returns what is in it. A holder that dies or makes room is waited for until `patience` is over;
    /// one that lives and keeps it is not.
    pub fn open(
        path: &Path,
        role: Role,
        patience: Duration,
        proc_root: &Path,
    ) -> Result<(Journal, Found), JournalError> {
        Journal::take(path, role, None, patience, proc_root)
    }

    /// Takes the journal of a daemon that is known to be dying: it may look alive until the kernel has closed its files.
    pub fn take_over(
        path: &Path,
        daemon: ProcKey,
        patience: Duration,
        proc_root: &Path,
    ) -> Result<(Journal, Found), JournalError> {
        Journal::take(path, Role::Guard, Some(daemon), patience, proc_root)
    }

    fn take(
        path: &Path,
        role: Role,
        dying: Option<ProcKey>,
        patience: Duration,
        proc_root: &Path,
    ) -> Result<(Journal, Found), JournalError> {
        let place = Place::make(path)?;
        let failed = |source| JournalError::Lock { path: path.to_owned(), source };
        let lock = Lock::take(&place, Holder::own(role, proc_root), dying, patience, proc_root).map_err(failed)?;
        let Some(lock) = lock else {
            let holder = lock::holder(&place).map_err(failed)?;
            return Err(JournalError::InUse { path: path.to_owned(), holder });
        };
        let boot = boot(proc_root)?;
        let Look { found, files, spent } = look(&place, &boot)?;
        let journal = Journal { place, boot, files: Mutex::new(files), _lock: lock };
        journal.tidy(&spent);
        Ok((journal, found))
    }

    /// Writes down what is about to be, or may have been, done to a tenant. If it fails, the record before it stands.
    pub fn write(&self, entry: &Entry) -> Result<(), JournalError> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let number = files.numbers.get(&entry.tenant).copied().unwrap_or(files.last + 1);
        let (name, scratch) = (format!("{number}{RECORD}"), format!("{number}{SCRATCH}"));
        let written = record::encode(entry, &self.boot).and_then(|bytes| self.place.replace(&name, &scratch, &bytes));
        written.map_err(|source| {
            let path = self.place.path().join(&name);
            JournalError::Write { tenant: entry.tenant.clone(), path, source }
        })?;
        files.last = files.last.max(number);
        files.numbers.insert(entry.tenant.clone(), number);
        Ok(())
    }

    /// Nothing has hold of the tenant any more. No error if nothing is written about it.
    pub fn remove(&self, tenant: &TenantKey) -> Result<(), JournalError> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(number) = files.numbers.get(tenant).copied() else { return Ok(()) };
        let name = format!("{number}{RECORD}");
        self.place.remove(&name).map_err(|source| {
            let path = self.place.path().join(&name);
            JournalError::Remove { tenant: tenant.clone(), path, source }
        })?;
        files.numbers.remove(tenant);
        Ok(())
    }

    /// Nobody is on record.
    pub fn is_empty(&self) -> bool {
        self.files.lock().unwrap_or_else(PoisonError::into_inner).numbers.is_empty()
    }

    /// Someone waits for this journal. Asked by whoever only tidies up.
    pub fn is_awaited(&self) -> bool {
        // A lock that cannot be asked about is no reason to stop.
        lock::is_awaited(&self.place).unwrap_or(false)
    }

    pub fn path(&self) -> &Path {
        self.place.path()
    }

    /// What cannot be removed or set aside is found, and told, again the next time.
    fn tidy(&self, spent: &[Spent]) {
        for file in spent {
            let _ = match file {
                Spent::Remove(name) => self.place.remove(name),
                Spent::SetAside(name) => self.place.rename(name, &format!("{name}{SET_ASIDE}")),
            };
        }
    }
}

/// A directory, read.
#[derive(Debug, Default)]
struct Look {
    found: Found,
    files: Files,
    spent: Vec<Spent>,
}

/// A file that is of no more use.
#[derive(Debug)]
enum Spent {
    Remove(String),
    SetAside(String),
}

fn look(place: &Place, boot: &str) -> Result<Look, JournalError> {
    let mut names = place.names().map_err(|source| JournalError::List { path: place.path().to_owned(), source })?;
    names.sort_unstable();
    let mut look = Look::default();
    for name in names {
        look.take(place, boot, name);
    }
    Ok(look)
}

impl Look {
    fn take(&mut self, place: &Place, boot: &str, name: String) {
        if name.ends_with(SCRATCH) {
            // A write that never became one.
            return self.spent.push(Spent::Remove(name));
        }
        if name.ends_with(SET_ASIDE) {
            return self.take_set_aside(place, boot, name);
        }
        let Some(stem) = name.strip_suffix(RECORD) else { return };
        let path = place.path().join(&name);
        let number = stem.parse::<u64>().ok();
        self.files.last = self.files.last.max(number.unwrap_or(0));
        let bytes = match place.read(&name) {
            Ok(bytes) => bytes,
            // Removed since, by whoever may write.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(error) => return self.found.unusable.push(Unusable::new(path, &error, b"")),
        };
        match (record::decode(&bytes, boot, &path), number) {
            (Ok(kept), Some(number)) if !self.files.numbers.contains_key(&kept.entry.tenant) => {
                self.files.numbers.insert(kept.entry.tenant.clone(), number);
                self.found.entries.push(kept);
            }
            (Ok(_), _) => self.found.unusable.push(Unusable::new(path, &"berth gave no file this name", &bytes)),
            (Err(Unreadable::OtherBoot), _) => {
                self.found.outdated += 1;
                self.spent.push(Spent::Remove(name));
            }
            (Err(error), _) => {
                self.found.unusable.push(Unusable::new(path, &error, &bytes));
                self.spent.push(Spent::SetAside(name));
            }
        }
    }

    /// It goes on being told: whom it is about may still be held.
    fn take_set_aside(&mut self, place: &Place, boot: &str, name: String) {
        let path = place.path().join(&name);
        let Ok(bytes) = place.read(&name) else { return };
        match record::decode(&bytes, boot, &path) {
            Err(Unreadable::OtherBoot) => self.spent.push(Spent::Remove(name)),
            Err(error) => self.found.set_aside.push(Unusable::new(path, &error, &bytes)),
            Ok(_) => self.found.set_aside.push(Unusable::new(path, &"it was set aside", &bytes)),
        }
    }
}

fn boot(proc_root: &Path) -> Result<String, JournalError> {
    live::boot_id(proc_root).map_err(|source| JournalError::Boot { source })
}

fn by(holder: &Option<Holder>) -> String {
    holder.map_or(String::new(), |Holder { role, pid, .. }| match role {
        Role::Daemon => format!(" by the daemon (process {pid})"),
        Role::Guard => format!(" by the guard (process {pid}), which is still undoing holds"),
        Role::Release => format!(" by `berth release` (process {pid})"),
    })
}

#[cfg(test)]
mod tests;
