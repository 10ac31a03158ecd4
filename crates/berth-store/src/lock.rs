//! Who may write: one process at a time, and how the next one makes itself known.
//!
//! Both are `flock`s, which the kernel gives back however their holder ends. `lock` is held by whoever writes; `next` by
//! whoever waits for it, so that a guard that is still undoing sees it and makes room.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use berth_model::ProcKey;
use rustix::fs::{FlockOperation, flock, ftruncate};
use rustix::io::{Errno, pread, pwrite};
use serde::Serialize;

use crate::live;
use crate::place::Place;

const LOCK: &str = "lock";
const NEXT: &str = "next";
const POLL: Duration = Duration::from_millis(5);
/// For a daemon that is being killed to be gone.
const CLAIM_PATIENCE: Duration = Duration::from_secs(2);

/// What a holder of the lock is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    Daemon,
    /// Undoes what a dead daemon left.
    Guard,
    /// A person's command that undoes.
    Release,
}

/// Who has the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    pub role: Role,
    pub pid: u32,
    start_ticks: u64,
}

/// The right to write, for as long as it lives.
#[derive(Debug)]
pub struct Lock(OwnedFd);

impl Lock {
    /// `Ok(None)`: someone else has it. A guard is given until `patience` to make room, a daemon is not asked to, unless it
    /// is known to be dying.
    pub fn take(
        place: &Place,
        own: Holder,
        dying: Option<ProcKey>,
        patience: Duration,
        proc_root: &Path,
    ) -> io::Result<Option<Lock>> {
        let deadline = Instant::now() + patience;
        let file = place.lock_file(LOCK)?;
        let mut waiting = None;
        while !try_lock(&file)? {
            let holder = holder_in(&file)?.filter(|holder| Some(holder.process()) != dying);
            let is_kept = holder.is_some_and(|holder| holder.keeps(proc_root));
            if is_kept || Instant::now() >= deadline {
                return Ok(None);
            }
            waiting = waiting.map_or_else(|| wait_in_line(place), |line| Ok(Some(line)))?;
            std::thread::sleep(POLL);
        }
        Lock(file).sign(own).map(Some)
    }

    fn sign(self, own: Holder) -> io::Result<Lock> {
        ftruncate(&self.0, 0)?;
        pwrite(&self.0, own.to_string().as_bytes(), 0)?;
        Ok(self)
    }
}

impl Drop for Lock {
    /// Nobody is taken for the holder who has let go. The lock itself goes with its file.
    fn drop(&mut self) {
        let _ = ftruncate(&self.0, 0);
    }
}

/// The lock of a daemon's own directory, or who has it. A daemon that is being killed looks alive until the kernel has closed its
/// files: nobody is believed at once.
pub fn claim(place: &Place, proc_root: &Path) -> io::Result<Result<Lock, Option<Holder>>> {
    let deadline = Instant::now() + CLAIM_PATIENCE;
    loop {
        let own = Holder::own(Role::Daemon, proc_root);
        if let Some(lock) = Lock::take(place, own, None, Duration::ZERO, proc_root)? {
            return Ok(Ok(lock));
        }
        if Instant::now() >= deadline {
            return holder(place).map(Err);
        }
        std::thread::sleep(POLL);
    }
}

/// Someone waits for the lock.
pub fn is_awaited(place: &Place) -> io::Result<bool> {
    Ok(wait_in_line(place)?.is_none())
}

/// Who has the lock, if anyone has and says so.
pub fn holder(place: &Place) -> io::Result<Option<Holder>> {
    let file = place.lock_file(LOCK)?;
    if try_lock(&file)? { Ok(None) } else { holder_in(&file) }
}

/// Who signed last and lives.
pub fn signed(place: &Place, proc_root: &Path) -> io::Result<Option<Holder>> {
    let text = match place.read(LOCK) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(Holder::parse(&text).filter(|holder| holder.lives(proc_root)))
}

/// `None`: another waits already.
fn wait_in_line(place: &Place) -> io::Result<Option<OwnedFd>> {
    let file = place.lock_file(NEXT)?;
    Ok(try_lock(&file)?.then_some(file))
}

fn try_lock(file: &OwnedFd) -> io::Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK | Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn holder_in(file: &OwnedFd) -> io::Result<Option<Holder>> {
    let mut bytes = [0; 64];
    let length = pread(file, &mut bytes, 0)?;
    Ok(std::str::from_utf8(&bytes[..length]).ok().and_then(Holder::parse))
}

impl Holder {
    pub fn own(role: Role, proc_root: &Path) -> Holder {
        let pid = std::process::id();
        Holder { role, pid, start_ticks: live::start_ticks(proc_root, pid).unwrap_or(0) }
    }

    pub fn process(&self) -> ProcKey {
        ProcKey { pid: self.pid, start_ticks: self.start_ticks }
    }

    /// It will not make room. What a holder before it signed counts only while that one lives.
    fn keeps(&self, proc_root: &Path) -> bool {
        self.role != Role::Guard && self.lives(proc_root)
    }

    /// One whose parent has not asked yet how it ended does not: its first thread goes with the process.
    fn lives(&self, proc_root: &Path) -> bool {
        live::stat(proc_root, self.pid, |stat| !stat.has_ended() && stat.start_ticks() == Some(self.start_ticks))
            .unwrap_or(false)
    }

    fn parse(text: &str) -> Option<Holder> {
        let [role, pid, start_ticks] = text.split_whitespace().collect::<Vec<_>>().try_into().ok()?;
        let role = [Role::Daemon, Role::Guard, Role::Release].into_iter().find(|one| one.to_string() == role)?;
        Some(Holder { role, pid: pid.parse().ok()?, start_ticks: start_ticks.parse().ok()? })
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.role, self.pid, self.start_ticks)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Daemon => "daemon",
            Role::Guard => "guard",
            Role::Release => "release",
        })
    }
}
