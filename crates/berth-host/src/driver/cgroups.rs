//! What a process's cgroups say: does it stand still, and how much memory may it still take.
//!
//! Read only. Both versions at once, as on hybrid hosts, where the freezer may be in either and memory in one.

use std::fs;
use std::path::{Path, PathBuf};

use berth_model::Bytes;

/// Where the hierarchies are mounted that matter here.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Hierarchies {
    unified: Option<PathBuf>,
    /// cgroup v1.
    freezer: Option<PathBuf>,
    /// cgroup v1.
    memory: Option<PathBuf>,
}

/// The limit that leaves a process least memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryRoom {
    /// Directory of the cgroup that has the limit.
    pub cgroup: PathBuf,
    pub limit: Bytes,
    /// What can still be taken: cached files that nobody used of late count as room.
    pub room: Bytes,
}

impl Hierarchies {
    /// As `/proc/self/mounts` has them.
    pub fn from_mounts(mounts: &str) -> Hierarchies {
        let mut found = Hierarchies::default();
        for line in mounts.lines() {
            let mut fields = line.split(' ').skip(1);
            let (Some(mount), Some(kind), Some(options)) = (fields.next(), fields.next(), fields.next()) else {
                continue;
            };
            let has = |controller| kind == "cgroup" && options.split(',').any(|option| option == controller);
            let mount = || Some(PathBuf::from(mount));
            if kind == "cgroup2" && found.unified.is_none() {
                found.unified = mount();
            }
            if has("freezer") && found.freezer.is_none() {
                found.freezer = mount();
            }
            if has("memory") && found.memory.is_none() {
                found.memory = mount();
            }
        }
        found
    }

    /// The cgroup that keeps a process with this `/proc/PID/cgroup` frozen, or is about to.
    pub fn frozen(&self, membership: &str) -> Option<PathBuf> {
        let unified = self.unified.as_ref().and_then(|mount| directory(mount, membership, ""));
        let freezer = self.freezer.as_ref().and_then(|mount| directory(mount, membership, "freezer"));
        // Both tell of a freeze further up too.
        let by_unified = unified.filter(|dir| {
            read(dir, "cgroup.events").is_some_and(|text| text.lines().any(|line| line == "frozen 1"))
                || read(dir, "cgroup.freeze").is_some_and(|text| text.trim() == "1")
        });
        by_unified
            .or_else(|| freezer.filter(|dir| read(dir, "freezer.state").is_some_and(|state| state.trim() != "THAWED")))
    }

    /// The tightest memory limit over a process with this `/proc/PID/cgroup`; `None` where nothing limits it.
    pub fn memory_room(&self, membership: &str) -> Option<MemoryRoom> {
        let unified = self.unified.iter().flat_map(|mount| upwards(mount, membership, "")).filter_map(room_v2);
        let memory = self.memory.iter().flat_map(|mount| upwards(mount, membership, "memory")).filter_map(room_v1);
        unified.chain(memory).min_by_key(|room| room.room)
    }
}

/// The process's directory in the hierarchy with this controller; the unified one has none.
fn directory(mount: &Path, membership: &str, controller: &str) -> Option<PathBuf> {
    membership.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let is_it = if controller.is_empty() {
            controllers.is_empty()
        } else {
            controllers.split(',').any(|c| c == controller)
        };
        is_it.then(|| mount.join(path.trim_start_matches('/')))
    })
}

/// That directory and those above it, up to the mount.
fn upwards(mount: &Path, membership: &str, controller: &str) -> Vec<PathBuf> {
    let Some(dir) = directory(mount, membership, controller) else { return Vec::new() };
    dir.ancestors().take_while(|dir| dir.starts_with(mount)).map(Path::to_owned).collect()
}

fn room_v2(dir: PathBuf) -> Option<MemoryRoom> {
    // Beyond `high` a process is slowed until it hardly moves: for gigabytes at once that is a limit.
    let limits = ["memory.max", "memory.high"].into_iter().filter_map(|file| number(&dir, file));
    let limit = limits.min()?;
    Some(room(number(&dir, "memory.current")?, cached(&dir, "inactive_file"), limit, dir))
}

/// A limit that was never set is a number beyond any memory.
fn room_v1(dir: PathBuf) -> Option<MemoryRoom> {
    let limit = number(&dir, "memory.limit_in_bytes")?;
    Some(room(number(&dir, "memory.usage_in_bytes")?, cached(&dir, "total_inactive_file"), limit, dir))
}

fn room(used: u64, cached: u64, limit: u64, cgroup: PathBuf) -> MemoryRoom {
    let room = limit.saturating_sub(used.saturating_sub(cached));
    MemoryRoom { cgroup, limit: Bytes(limit), room: Bytes(room) }
}

fn read(dir: &Path, file: &str) -> Option<String> {
    fs::read_to_string(dir.join(file)).ok()
}

/// `None` too for `max`.
fn number(dir: &Path, file: &str) -> Option<u64> {
    read(dir, file)?.trim().parse().ok()
}

fn cached(dir: &Path, key: &str) -> u64 {
    let value =
        |text: String| text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok());
    read(dir, "memory.stat").and_then(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    const HYBRID: &str = "\
tmpfs /sys/fs/cgroup tmpfs rw 0 0
cgroup /sys/fs/cgroup/cpu cgroup rw,relatime,cpu 0 0
cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0
cgroup /sys/fs/cgroup/freezer cgroup rw,relatime,freezer 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0
";

    fn tree(files: &[(&str, &str)]) -> TempDir {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn hierarchies_are_found_among_the_mounts_of_a_hybrid_host() {
        let found = Hierarchies::from_mounts(HYBRID);
        let at = |name: &str| Some(PathBuf::from(format!("/sys/fs/cgroup/{name}")));
        assert_eq!(found, Hierarchies { unified: at("unified"), freezer: at("freezer"), memory: at("memory") });
        assert_eq!(Hierarchies::from_mounts("proc /proc proc rw 0 0\nbroken\n"), Hierarchies::default());
    }

    #[test]
    fn a_limit_further_up_counts_and_the_tightest_is_told() {
        let root = tree(&[
            ("memory.current", "900"),
            ("pod/memory.max", "1000\n"),
            ("pod/memory.current", "700\n"),
            ("pod/memory.stat", "anon 500\ninactive_file 150\nfile 200\n"),
            ("pod/job/memory.max", "max\n"),
            ("pod/job/memory.high", "max\n"),
            ("pod/job/memory.current", "600\n"),
        ]);
        let host = Hierarchies { unified: Some(root.path().into()), ..Hierarchies::default() };
        let room = host.memory_room("0::/pod/job\n").unwrap();
        assert_eq!((room.cgroup, room.limit, room.room), (root.path().join("pod"), Bytes(1000), Bytes(450)));
        fs::write(root.path().join("pod/job/memory.high"), "800").unwrap();
        assert_eq!(host.memory_room("0::/pod/job\n").unwrap().room, Bytes(200), "high is a limit too");
        assert_eq!(host.memory_room("0::/other\n"), None);
    }

    #[test]
    fn version_one_s_limit_is_read_beside_the_unified_hierarchy() {
        let root = tree(&[
            ("m/job/memory.limit_in_bytes", "5000"),
            ("m/job/memory.usage_in_bytes", "6000"),
            ("m/job/memory.stat", "inactive_file 1\ntotal_inactive_file 500\n"),
            ("u/job/cgroup.events", "populated 1\nfrozen 0\n"),
        ]);
        let host = Hierarchies {
            unified: Some(root.path().join("u")),
            memory: Some(root.path().join("m")),
            ..Hierarchies::default()
        };
        let room = host.memory_room("4:cpu,memory:/job\n0::/job\n").unwrap();
        assert_eq!((room.limit, room.room), (Bytes(5000), Bytes(0)), "no room, and none owed");
    }

    #[test]
    fn a_frozen_cgroup_is_told_in_either_version_from_the_order_on() {
        let root = tree(&[
            ("u/a/cgroup.events", "populated 1\nfrozen 1\n"),
            ("u/b/cgroup.events", "populated 1\nfrozen 0\n"),
            ("u/b/cgroup.freeze", "1\n"),
            ("u/c/cgroup.freeze", "0\n"),
            ("f/c/freezer.state", "FREEZING\n"),
            ("f/d/freezer.state", "THAWED\n"),
        ]);
        let host =
            Hierarchies { unified: Some(root.path().join("u")), freezer: Some(root.path().join("f")), memory: None };
        let frozen = |name: &str| host.frozen(&format!("6:freezer:/{name}\n0::/{name}\n")).is_some();
        assert_eq!(["a", "b", "c", "d", "e"].map(frozen), [true, true, true, false, false]);
    }
}
