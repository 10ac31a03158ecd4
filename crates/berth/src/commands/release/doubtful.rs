//! Those of whom a record does not say all that was done to them: torn, or foreign.
//!
//! What berth cannot prove to be its own doing it leaves alone, since a person may have paused them. So that nobody stays behind
//! unnoticed, those who still stand are named, with what lets them go on.

use std::path::{Path, PathBuf};

use berth_host::freezer::{CgroupDir, Motion, Version, shelter_below};
use berth_store::{Clues, Found, Kept, Unusable};

use super::Left;

#[derive(Debug)]
pub(super) struct Doubtful {
    clues: Clues,
    /// To be removed by whoever has looked after it; `None` where berth does.
    file: Option<PathBuf>,
}

pub(super) fn of(found: &Found) -> Vec<Doubtful> {
    let torn = found.entries.iter().filter(|kept| !kept.is_whole).map(Doubtful::torn);
    torn.chain(found.unusable.iter().chain(&found.set_aside).map(Doubtful::unusable)).collect()
}

impl Doubtful {
    fn torn(kept: &Kept) -> Self {
        let entry = &kept.entry;
        let container = entry.container.as_ref().or(entry.tenant.container_id()).map(|id| id.0.clone());
        let (called, cgroup) = (Some(entry.name.clone()), entry.cgroup.clone());
        Self { clues: Clues { called, container, cgroup, cgroup_inode: None }, file: None }
    }

    fn unusable(file: &Unusable) -> Self {
        Self { clues: file.clues.clone(), file: Some(file.path.clone()) }
    }

    /// `None` if it does not stand, as far as can be seen.
    pub(super) fn left(&self) -> Option<Left> {
        let cgroup = self.clues.cgroup.as_deref();
        let standing = cgroup.map(standing);
        if matches!(standing, Some(None)) {
            return None;
        }
        let file = self.file.as_deref();
        let name = self.clues.name().or_else(|| Some(file?.display().to_string()))?;
        let thaw = standing.flatten().map(|dir| thaw(&dir));
        let unpause = self.clues.container.as_ref().map(|id| format!("`docker unpause {id}`"));
        let remedy = match (unpause, thaw) {
            (Some(unpause), Some(thaw)) => format!("{unpause} lets it go on, or {thaw} if Docker has not paused it"),
            (Some(unpause), None) => format!("if it is paused, {unpause} lets it go on"),
            (None, Some(thaw)) => format!("{thaw} lets it go on"),
            (None, None) => format!("{} tells whose it may be", self.search()),
        };
        let remove = file.map_or_else(String::new, |file| format!("; then `rm {}*`", without_ending(file).display()));
        let doubt = "its record is damaged, and does not say whether berth has stopped it or a person";
        Some(Left { name, why: format!("{doubt}: {remedy}{remove}") })
    }

    /// What finds one of whom no name is left.
    fn search(&self) -> String {
        match self.clues.cgroup_inode {
            Some(inode) => format!("`find /sys/fs/cgroup -type d -inum {inode}`"),
            None => "`docker ps --filter status=paused`".to_owned(),
        }
    }
}

/// It is set aside under a longer name.
fn without_ending(file: &Path) -> PathBuf {
    if file.extension().is_some_and(|ending| ending == "unreadable") {
        file.with_extension("")
    } else {
        file.to_owned()
    }
}

/// Which directory is frozen: the cgroup's, or that of its shelter.
fn standing(cgroup: &Path) -> Option<CgroupDir> {
    let is_frozen = |dir: &CgroupDir| dir.state().is_ok_and(|state| state.own || state.motion != Motion::Thawed);
    [shelter_below(cgroup), cgroup.to_owned()].iter().filter_map(|dir| CgroupDir::open(dir).ok()).find(is_frozen)
}

fn thaw(dir: &CgroupDir) -> String {
    let path = dir.path().display();
    match dir.version() {
        Version::V1 => format!("`echo THAWED > {path}/freezer.state`"),
        Version::V2 => format!("`echo 0 > {path}/cgroup.freeze`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cgroup(host: &Path, state: &str) -> PathBuf {
        let is_frozen = if state == "THAWED" { "0" } else { "1" };
        for (file, text) in [("state", state), ("self_freezing", is_frozen), ("parent_freezing", "0")] {
            std::fs::write(host.join(format!("freezer.{file}")), text).unwrap();
        }
        host.to_owned()
    }

    fn left(clues: Clues) -> Option<String> {
        let file = Some("/run/berth/holds/3.hold.unreadable".into());
        Doubtful { clues, file }.left().map(|Left { name, why }| format!("{name}: {why}"))
    }

    #[test]
    fn who_still_stands_is_named_with_what_lets_it_go_on_and_who_runs_is_not() {
        let host = tempfile::tempdir().unwrap();
        let id = Some("0123456789abcdef".to_owned());
        let frozen = Some(cgroup(host.path(), "FROZEN"));
        let clues = Clues { container: id, cgroup: frozen, ..Clues::default() };
        let told = left(clues.clone()).unwrap();
        assert!(told.starts_with("0123456789ab: ") && told.contains("`docker unpause 0123456789abcdef`"), "{told}");
        assert!(told.contains(&format!("`echo THAWED > {}/freezer.state`", host.path().display())), "{told}");
        assert!(told.ends_with("then `rm /run/berth/holds/3.hold*`"), "{told}");
        cgroup(host.path(), "THAWED");
        assert_eq!(left(clues), None);
    }

    #[test]
    fn a_file_that_names_nobody_is_told_by_itself() {
        let told = left(Clues::default()).unwrap();
        assert!(told.starts_with("/run/berth/holds/3.hold.unreadable: ") && told.contains("status=paused"), "{told}");
        let told = left(Clues { cgroup_inode: Some(77), ..Clues::default() }).unwrap();
        assert!(told.contains("-inum 77`"), "{told}");
    }
}
