//! What is recorded, against what is there now: processes by pid and start, cgroups by inode.

use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use berth_model::hold::{Freezer, Grip};
use berth_model::{ProcKey, Stat};

use crate::record::Kept;

/// By which a cgroup is known again: the kernel gives another to one made later at the same path.
pub fn inode(cgroup: &Path) -> Option<u64> {
    std::fs::metadata(cgroup).ok().map(|found| found.ino())
}

/// Which boot of this machine it is.
pub fn boot_id(proc_root: &Path) -> io::Result<String> {
    let text = std::fs::read_to_string(proc_root.join("sys/kernel/random/boot_id"))?;
    Ok(text.trim().to_owned())
}

/// The start of the process that has this pid; `None` if there is none, or it cannot be told. One whose first thread has
/// ended is there for as long as another runs, and cannot be told from one that only waits to be reaped.
pub fn start_ticks(proc_root: &Path, pid: u32) -> Option<u64> {
    stat(proc_root, pid, |stat| stat.start_ticks())?
}

/// What is to be known of the process that has this pid; `None` if there is none, or nothing can be told of it.
pub fn stat<T>(proc_root: &Path, pid: u32, look: impl FnOnce(&Stat<'_>) -> T) -> Option<T> {
    let bytes = std::fs::read(proc_root.join(pid.to_string()).join("stat")).ok()?;
    Stat::parse(&bytes).as_ref().map(look)
}

/// Why there is nothing to undo though a hold is on record: nothing was touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Gone {
    /// One made later stands at the path of its cgroup.
    OtherCgroup,
    /// Its processes have ended, or its cgroup is no more.
    Ended,
}

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Gone::OtherCgroup => "its cgroup is another one now",
            Gone::Ended => "what was held has ended",
        })
    }
}

impl Kept {
    /// What of the grip may be true now that whoever wrote it is gone: of processes that live, and of a cgroup that is the
    /// one that was recorded. See [`Grip::after_crash`].
    pub fn verified(&self, proc_root: &Path) -> Grip {
        let is_there = |process: &ProcKey| start_ticks(proc_root, process.pid) == Some(process.start_ticks);
        let mut grip = self.entry.grip.clone();
        for set in [&mut grip.gated, &mut grip.stopped, &mut grip.locked, &mut grip.parked] {
            set.retain(|process| is_there(process));
        }
        grip.frozen = grip.frozen.filter(|freezer| *freezer == Freezer::Docker || self.has_its_cgroup());
        grip.sheltered &= self.has_its_cgroup();
        grip.after_crash()
    }

    /// Of a record of which nothing may be true any more: what has become of whom it names.
    pub fn gone(&self) -> Gone {
        let found = self.entry.cgroup.as_deref().and_then(inode);
        if found.is_some() && !self.has_its_cgroup() { Gone::OtherCgroup } else { Gone::Ended }
    }

    /// The cgroup is there, and not another made at the same path.
    fn has_its_cgroup(&self) -> bool {
        let Some(found) = self.entry.cgroup.as_deref().and_then(inode) else { return false };
        self.cgroup_inode.is_none_or(|recorded| recorded == found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::entry;

    fn own() -> ProcKey {
        let pid = std::process::id();
        ProcKey { pid, start_ticks: start_ticks(Path::new("/proc"), pid).unwrap() }
    }

    fn kept(grip: Grip, cgroup: &Path) -> Kept {
        let mut entry = entry("/a");
        entry.grip = grip;
        entry.cgroup = Some(cgroup.to_owned());
        Kept { entry, is_whole: true, cgroup_inode: inode(cgroup) }
    }

    #[test]
    fn only_processes_that_live_under_their_start_are_left() {
        let later = ProcKey { start_ticks: own().start_ticks + 1, ..own() };
        let grip = Grip { stopped: [own(), later].into(), locked: [later].into(), ..Grip::default() };
        let left = kept(grip, Path::new("/nowhere")).verified(Path::new("/proc"));
        assert_eq!(left, Grip { stopped: [own()].into(), ..Grip::default() });
    }

    #[test]
    fn a_process_whose_name_is_no_text_is_not_taken_for_gone() {
        let proc_root = tempfile::tempdir().unwrap();
        std::fs::create_dir(proc_root.path().join("7")).unwrap();
        let stat = b"7 (\xff) T\n) T 1 7 7 0 -1 4 0 0 0 0 0 0 0 0 20 0 1 0 4242 0 0";
        std::fs::write(proc_root.path().join("7/stat"), stat).unwrap();
        let process = ProcKey { pid: 7, start_ticks: 4242 };
        let kept = kept(Grip { locked: [process].into(), ..Grip::default() }, Path::new("/nowhere"));
        assert!(kept.verified(proc_root.path()).locked.contains(&process));
    }

    #[test]
    fn what_was_gated_may_have_been_stopped_since() {
        let kept = kept(Grip { gated: [own()].into(), ..Grip::default() }, Path::new("/nowhere"));
        assert!(kept.verified(Path::new("/proc")).stopped.contains(&own()));
    }

    #[test]
    fn a_cgroup_made_anew_at_the_same_path_is_not_the_one_that_was_frozen() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("a");
        std::fs::create_dir(&dir).unwrap();
        let kept = kept(Grip { frozen: Some(Freezer::Cgroup), sheltered: true, ..Grip::default() }, &dir);
        assert_eq!(kept.verified(Path::new("/proc")), kept.entry.grip);
        // Made before the old one goes, so that it cannot have its inode.
        std::fs::create_dir(parent.path().join("b")).unwrap();
        std::fs::rename(parent.path().join("b"), &dir).unwrap();
        assert!(kept.verified(Path::new("/proc")).is_empty());
        assert_eq!(kept.gone(), Gone::OtherCgroup);
        std::fs::remove_dir(&dir).unwrap();
        assert!(kept.verified(Path::new("/proc")).is_empty());
        assert_eq!(kept.gone(), Gone::Ended);
    }
}
