//! The shelter: a frozen cgroup below a tenant's own, in which its processes stand while their own cgroup changes hands.
//!
//! An engine looks whether a container's cgroup is frozen before it pauses it, and refuses if it is. With the processes one
//! level below, the cgroup can be thawed for the engine to freeze, and nothing runs in between. A process that moves from one
//! frozen cgroup to another does not notice. They are frozen there in the first place where the engine runs commands in the container
//! now and then, which it cannot in a frozen cgroup.
//!
//! Nothing here asks whose cgroup it is. A container that has made cgroups of its own inside is refused: its processes would not
//! find back to theirs.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use berth_model::hold::SHELTER;
use rustix::io::Errno;

use super::dir::CgroupDir;
use super::error::FreezerError;
use super::patience::Patience;

/// Freezes the processes of `dir` by moving them into its shelter: `dir` itself is not frozen for a moment. `told` hears `true` when
/// all are in, and `false` when they stand, or before they are moved back: what cannot be moved in time is.
pub fn freeze(dir: &CgroupDir, within: Duration, told: impl Fn(bool)) -> Result<(), FreezerError> {
    enter(dir, within)?;
    told(true);
    let stand = CgroupDir::open(&path(dir)).and_then(|shelter| shelter.freeze(within));
    told(false);
    stand.inspect_err(|_| drop(leave(dir, within)))
}

/// Moves the processes of `dir` into its shelter, which is frozen. What cannot be moved is moved back.
pub fn enter(dir: &CgroupDir, within: Duration) -> Result<(), FreezerError> {
    let path = path(dir);
    if has_others(dir, &path)? {
        return Err(FreezerError::NoShelter { path: dir.path().to_owned(), why: "it has cgroups inside" });
    }
    match fs::create_dir(&path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(FreezerError::io("make", &path, error));
        }
        _ => {}
    }
    let entered = CgroupDir::open(&path).and_then(|shelter| {
        shelter.freeze(within)?;
        move_all(dir.path(), &path, within)
    });
    entered.inspect_err(|_| {
        // The first error counts; whoever undoes the hold tries again.
        let _ = leave(dir, within);
    })
}

/// Moves the processes back and removes the shelter. None is no error.
pub fn leave(dir: &CgroupDir, within: Duration) -> Result<(), FreezerError> {
    let path = path(dir);
    if !path.exists() {
        return Ok(());
    }
    match move_all(&path, dir.path(), within).and_then(|()| remove(&path, within)) {
        Err(error) if error.is_gone() => Ok(()),
        left => left,
    }
}

pub fn is_there(dir: &CgroupDir) -> bool {
    path(dir).exists()
}

fn path(dir: &CgroupDir) -> PathBuf {
    below(dir.path())
}

/// The shelter of the cgroup at `dir`.
pub fn below(dir: &Path) -> PathBuf {
    dir.join(SHELTER)
}

fn has_others(dir: &CgroupDir, shelter: &Path) -> Result<bool, FreezerError> {
    let entries = fs::read_dir(dir.path()).map_err(|source| FreezerError::io("list", &procs(dir.path()), source))?;
    let dirs = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    Ok(dirs.map(|entry| entry.path()).any(|path| path != shelter))
}

/// One that ends meanwhile needs no moving. Frozen processes make no others, so this comes to an end; with those that run it may
/// not, and is given up.
fn move_all(from: &Path, to: &Path, within: Duration) -> Result<(), FreezerError> {
    let patience = Patience::new(within);
    loop {
        let path = procs(from);
        let text = fs::read_to_string(&path).map_err(|source| FreezerError::io("read", &path, source))?;
        if text.trim().is_empty() {
            return Ok(());
        }
        for pid in text.lines() {
            move_one(pid, from, to)?;
        }
        if !patience.rest() {
            return Err(FreezerError::NoShelter { path: from.to_owned(), why: "they do not all move in time" });
        }
    }
}

fn move_one(pid: &str, from: &Path, to: &Path) -> Result<(), FreezerError> {
    // The kernel's word for a process it cannot name here; written, it would mean whoever writes it.
    if pid == "0" {
        let why = "some of them are in a pid namespace that is not below ours";
        return Err(FreezerError::NoShelter { path: from.to_owned(), why });
    }
    let path = procs(to);
    let written = OpenOptions::new().write(true).open(&path).and_then(|mut file| file.write_all(pid.as_bytes()));
    match written {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::SRCH) => Ok(()),
        moved => moved.map_err(|source| FreezerError::io("write", &path, source)),
    }
}

/// Busy for a moment after the last one has left.
fn remove(path: &Path, within: Duration) -> Result<(), FreezerError> {
    let patience = Patience::new(within);
    loop {
        match fs::remove_dir(path) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::BUSY) && patience.rest() => {}
            removed => return removed.map_err(|source| FreezerError::io("remove", &procs(path), source)),
        }
    }
}

fn procs(dir: &Path) -> PathBuf {
    dir.join("cgroup.procs")
}
