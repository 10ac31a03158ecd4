//! Which cgroup a tenant's own is: the one its name comes from, never one below it, never one it shares.
//!
//! On a hybrid host a container is in the v1 freezer's hierarchy and in the unified one. Its engine looks at the v1 freezer:
//! frozen there, `docker exec` is refused at once; frozen in the other, it hangs and holds up every later command.

use std::fs;
use std::path::{Component, Path, PathBuf};

use berth_model::cgroup::tenant_of;
use berth_model::{ContainerId, TenantKey};

use super::dir::Version;
use super::error::{FreezerError, Refusal};

/// Where the hierarchies that can freeze are mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchies {
    pub v1: Option<PathBuf>,
    pub v2: Option<PathBuf>,
}

/// One line of `/proc/PID/cgroup` whose hierarchy can freeze.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place<'a> {
    version: Version,
    path: &'a str,
}

impl Hierarchies {
    /// `root` is the unified hierarchy itself, or the directory that holds `freezer` (v1) and `unified`.
    pub fn under(root: &Path) -> Hierarchies {
        let is_unified = |dir: &Path| dir.join("cgroup.controllers").exists();
        if is_unified(root) {
            return Hierarchies { v1: None, v2: Some(root.to_owned()) };
        }
        let (v1, v2) = (root.join("freezer"), root.join("unified"));
        Hierarchies { v1: v1.join("cgroup.procs").exists().then_some(v1), v2: is_unified(&v2).then_some(v2) }
    }

    /// The directory of the tenant named in this `/proc/PID/cgroup` text; `None` for one without a cgroup of its own.
    pub(super) fn tenant_dir(&self, cgroup_file: &str) -> Option<PathBuf> {
        // The user does not matter: one that is only a user has no cgroup.
        let tenant = tenant_of(cgroup_file, 0);
        let places = || places(cgroup_file).filter(|place| self.mount(place.version).is_some());
        let (version, path) = match &tenant {
            TenantKey::Container { id, .. } => {
                let own = |place: Place<'_>| Some((place.version, own_path(place.path, id)?.to_owned()));
                places().filter_map(own).min_by_key(|(version, _)| *version)?
            }
            TenantKey::Cgroup { path } => {
                let named = places().filter(|place| place.path == path);
                (named.map(|place| place.version).max()?, path.clone())
            }
            TenantKey::User { .. } => return None,
        };
        Some(self.mount(version)?.join(path.trim_start_matches('/')))
    }

    /// Whether `dir` may be frozen by a process with this `/proc/self/cgroup` text.
    pub(super) fn check(&self, dir: &Path, our_cgroup_file: &str) -> Result<(), FreezerError> {
        let refused = |why| Err(FreezerError::Refused { path: dir.to_owned(), why });
        let hierarchy = [Version::V1, Version::V2].into_iter().find_map(|version| {
            let below = dir.strip_prefix(self.mount(version)?).ok()?;
            Some((version, below))
        });
        let Some((version, below)) = hierarchy else { return refused(Refusal::Elsewhere) };
        if below.components().any(|part| !matches!(part, Component::Normal(_))) {
            return refused(Refusal::Elsewhere);
        }
        if below.as_os_str().is_empty() {
            return refused(Refusal::Root);
        }
        let ours = places(our_cgroup_file).filter(|place| place.version == version);
        if ours.map(|place| place.path.trim_start_matches('/')).any(|own| Path::new(own).starts_with(below)) {
            return refused(Refusal::OurOwn);
        }
        let is_container = tenant_of(&format!("0::/{}", below.display()), 0).container_id().is_some();
        if !is_container && has_inhabited_child(dir) {
            return refused(Refusal::Shared);
        }
        Ok(())
    }

    /// Where a process with this `/proc/PID/cgroup` text is in each of them.
    pub(super) fn dirs(&self, cgroup_file: &str) -> Vec<PathBuf> {
        let dir = |place: Place<'_>| Some(self.mount(place.version)?.join(place.path.trim_start_matches('/')));
        places(cgroup_file).filter_map(dir).collect()
    }

    fn mount(&self, version: Version) -> Option<&Path> {
        match version {
            Version::V1 => self.v1.as_deref(),
            Version::V2 => self.v2.as_deref(),
        }
    }
}

fn places(cgroup_file: &str) -> impl Iterator<Item = Place<'_>> {
    cgroup_file.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let version = match controllers {
            "" => Version::V2,
            _ if controllers.split(',').any(|controller| controller == "freezer") => Version::V1,
            _ => return None,
        };
        Some(Place { version, path })
    })
}

/// The part of `path` that ends with the name of the container: what it calls its own is below.
fn own_path<'a>(path: &'a str, id: &ContainerId) -> Option<&'a str> {
    let ends = path.match_indices('/').map(|(at, _)| at).skip(1).chain([path.len()]);
    ends.map(|end| &path[..end]).find(|part| tenant_of(&format!("0::{part}"), 0).container_id() == Some(id))
}

/// Whether processes are in any cgroup below: they are other tenants'.
fn has_inhabited_child(dir: &Path) -> bool {
    let Ok(entries) = fs::read_dir(dir) else { return false };
    entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).any(|entry| {
        let child = entry.path();
        // `cgroup.threads` is read for cgroups that are in threaded mode, whose `cgroup.procs` cannot be.
        let is_inhabited = ["cgroup.procs", "cgroup.threads"]
            .into_iter()
            .any(|file| fs::read(child.join(file)).is_ok_and(|ids| !ids.is_empty()));
        is_inhabited || has_inhabited_child(&child)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "4e3c1c4b8f0a5d6e7f8091a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6";
    const B: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    fn hybrid() -> Hierarchies {
        Hierarchies { v1: Some("/c/freezer".into()), v2: Some("/c/unified".into()) }
    }

    fn unified() -> Hierarchies {
        Hierarchies { v1: None, v2: Some("/c".into()) }
    }

    fn found(hierarchies: &Hierarchies, text: &str) -> Option<String> {
        hierarchies.tenant_dir(text).map(|dir| dir.display().to_string())
    }

    #[test]
    fn a_container_s_cgroup_is_the_one_named_after_it_and_none_below() {
        for (text, dir) in [
            (format!("0::/docker/{A}"), format!("/c/docker/{A}")),
            (format!("0::/docker/{A}/init.scope"), format!("/c/docker/{A}")),
            (format!("0::/docker/{A}/docker/{B}"), format!("/c/docker/{A}")),
            (format!("0::/machine.slice/libpod-{A}.scope/container"), format!("/c/machine.slice/libpod-{A}.scope")),
            (format!("0::/kubepods/besteffort/pod1/{A}/x"), format!("/c/kubepods/besteffort/pod1/{A}")),
            ("0::/lxc.payload.trainer/init.scope".into(), "/c/lxc.payload.trainer".into()),
        ] {
            assert_eq!(found(&unified(), &text), Some(dir), "{text}");
        }
    }

    #[test]
    fn on_a_hybrid_host_a_container_is_frozen_where_its_engine_looks() {
        let text = format!("6:freezer:/docker/{A}\n4:memory:/docker/{A}\n0::/docker/{A}");
        assert_eq!(found(&hybrid(), &text), Some(format!("/c/freezer/docker/{A}")));
        let text = format!("6:freezer:/\n4:memory:/docker/{A}\n0::/docker/{A}");
        assert_eq!(found(&hybrid(), &text), Some(format!("/c/unified/docker/{A}")));
        let text = format!("6:freezer:/docker/{A}\n0::/docker/{A}");
        assert_eq!(found(&unified(), &text), Some(format!("/c/docker/{A}")), "a hierarchy that is not mounted");
    }

    #[test]
    fn a_plain_cgroup_is_frozen_in_the_hierarchy_it_is_named_by() {
        assert_eq!(found(&hybrid(), "6:freezer:/v1\n0::/v2").as_deref(), Some("/c/unified/v2"));
        assert_eq!(found(&hybrid(), "6:freezer:/v1\n0::/").as_deref(), Some("/c/freezer/v1"));
        assert_eq!(found(&unified(), "0::/system.slice/job.service").as_deref(), Some("/c/system.slice/job.service"));
    }

    #[test]
    fn a_bare_user_has_no_cgroup_to_freeze() {
        assert_eq!(found(&unified(), "0::/user.slice/user-1000.slice/session-3.scope"), None);
        assert_eq!(found(&hybrid(), "6:freezer:/\n0::/"), None);
        assert_eq!(found(&unified(), &format!("4:memory:/docker/{A}\n0::/")), None, "named where nothing can freeze");
    }

    #[test]
    fn the_root_and_whatever_berth_is_in_are_refused_by_name() {
        let why = |dir: &str, ours: &str| match unified().check(Path::new(dir), ours) {
            Ok(()) => None,
            Err(FreezerError::Refused { path, why }) => Some((path.display().to_string(), why)),
            Err(other) => panic!("{other}"),
        };
        let ours = "0::/system.slice/berth.service";
        let refused = |dir: &str, why| Some((dir.to_owned(), why));
        assert_eq!(why("/c", ours), refused("/c", Refusal::Root));
        assert_eq!(why("/c/", ours), refused("/c/", Refusal::Root));
        assert_eq!(why("/c/system.slice", ours), refused("/c/system.slice", Refusal::OurOwn));
        assert_eq!(
            why("/c/system.slice/berth.service", ours),
            refused("/c/system.slice/berth.service", Refusal::OurOwn)
        );
        assert_eq!(why("/c/x/../system.slice", ours), refused("/c/x/../system.slice", Refusal::Elsewhere));
        assert_eq!(why("/etc", ours), refused("/etc", Refusal::Elsewhere));
        assert_eq!(why("/c/system.slice/berth.service2", ours), None);
        assert_eq!(why("/c/team-a", ours), None);
    }
}
