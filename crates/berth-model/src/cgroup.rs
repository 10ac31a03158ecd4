//! From `/proc/PID/cgroup` to a tenant: which container, plain cgroup or user a process belongs to.
//!
//! A container is recognised by its id wherever an engine's naming shows it: Docker with either cgroup driver, rootless
//! Docker, Podman, containerd and CRI-O under Kubernetes, LXC; on cgroup v1, v2 and hybrid hosts. Of nested containers
//! the outermost counts: it is the one this host's engine knows and can act on. Without a container the tenant is the
//! cgroup a hold would act on, unless that is one systemd makes for logins or the root: then it is the user.

use crate::id::{ContainerId, Runtime, TenantKey};

/// The tenant of a process with this `/proc/PID/cgroup` text and owner.
pub fn tenant_of(cgroup_file: &str, uid: u32) -> TenantKey {
    let lines = || cgroup_file.lines().filter_map(Line::parse);
    let container = lines().find_map(|line| container_in(line.path));
    if let Some((runtime, id)) = container {
        return TenantKey::Container { runtime, id };
    }
    let held_by = lines()
        .filter(|line| line.path != "/" && line.is_held())
        .min_by_key(|line| usize::from(!line.is_unified()))
        .map(|line| line.path);
    match held_by {
        Some(path) if !is_login(path) => TenantKey::Cgroup { path: path.to_owned() },
        _ => TenantKey::User { uid },
    }
}

/// One line, `hierarchy:controllers:path`.
struct Line<'a> {
    controllers: &'a str,
    path: &'a str,
}

impl<'a> Line<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        path.starts_with('/').then_some(Line { controllers, path })
    }

    fn is_unified(&self) -> bool {
        self.controllers.is_empty()
    }

    /// The hierarchies a freeze acts on. Others (memory, cpu) are often used to limit what is no tenant of its own.
    fn is_held(&self) -> bool {
        self.is_unified() || self.controllers.split(',').any(|controller| controller == "freezer")
    }
}

fn container_in(path: &str) -> Option<(Runtime, ContainerId)> {
    let mut parent = "";
    for part in path.split('/') {
        let found = scoped(part).or_else(|| plain(parent, part, path)).or_else(|| lxc(part));
        if found.is_some() {
            return found;
        }
        parent = part;
    }
    None
}

/// systemd driver and Podman: `docker-<id>.scope`, `cri-containerd-<id>.scope`, `libpod-<id>.scope/container`.
fn scoped(part: &str) -> Option<(Runtime, ContainerId)> {
    let (prefix, id) = part.strip_suffix(".scope").unwrap_or(part).rsplit_once('-')?;
    let runtime = match prefix {
        "docker" => Runtime::Docker,
        "libpod" | "libpod-payload" => Runtime::Podman,
        "cri-containerd" | "containerd" | "nerdctl" => Runtime::Containerd,
        "crio" => Runtime::Crio,
        _ => return None,
    };
    is_container_id(id).then(|| (runtime, ContainerId(id.to_owned())))
}

/// cgroupfs driver: `/docker/<id>`, `/kubepods/burstable/pod<uid>/<id>`, or `<id>` under any `--cgroup-parent`.
/// With systemd and cgroup v2 containerd also writes `<slice>:cri-containerd:<id>`.
fn plain(parent: &str, part: &str, path: &str) -> Option<(Runtime, ContainerId)> {
    let (prefix, id) = part.rsplit_once(':').map_or((parent, part), |(prefix, id)| (prefix, id));
    if !is_container_id(id) {
        return None;
    }
    let runtime = match prefix {
        "docker" => Runtime::Docker,
        "libpod_parent" => Runtime::Podman,
        _ if prefix.ends_with("cri-containerd") || path.contains("kubepods") => Runtime::Containerd,
        _ => Runtime::Unknown,
    };
    Some((runtime, ContainerId(id.to_owned())))
}

fn lxc(part: &str) -> Option<(Runtime, ContainerId)> {
    let name = part.strip_prefix("lxc.payload.")?;
    (!name.is_empty()).then(|| (Runtime::Lxc, ContainerId(name.to_owned())))
}

fn is_container_id(id: &str) -> bool {
    id.len() == 64 && id.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// Cgroups systemd makes for logins: the user is the tenant, not the session.
fn is_login(path: &str) -> bool {
    path.starts_with("/user.slice/") || path == "/user.slice" || path == "/init.scope"
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const A: &str = "4e3c1c4b8f0a5d6e7f8091a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6";
    const B: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    fn container(runtime: Runtime, id: &str) -> TenantKey {
        TenantKey::Container { runtime, id: ContainerId(id.into()) }
    }

    #[test]
    fn every_engine_s_naming_leads_to_its_container() {
        let cases = [
            (Runtime::Docker, format!("0::/system.slice/docker-{A}.scope")),
            (Runtime::Docker, format!("0::/docker/{A}")),
            (Runtime::Docker, format!("12:pids:/docker/{A}\n6:freezer:/docker/{A}\n0::/docker/{A}")),
            (Runtime::Docker, format!("4:memory:/other\n6:freezer:/docker/{A}\n0::/")),
            (Runtime::Docker, format!("0::/user.slice/user-1000.slice/user@1000.service/user.slice/docker-{A}.scope")),
            (Runtime::Podman, format!("0::/machine.slice/libpod-{A}.scope/container")),
            (Runtime::Podman, format!("0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{A}.scope")),
            (Runtime::Podman, format!("6:freezer:/libpod_parent/libpod-{A}")),
            (
                Runtime::Containerd,
                format!(
                    "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod8a6f1c2e_1111_2222_3333_444455556666.slice/cri-containerd-{A}.scope"
                ),
            ),
            (
                Runtime::Containerd,
                format!("6:freezer:/kubepods/besteffort/pod8a6f1c2e-1111-2222-3333-444455556666/{A}"),
            ),
            (
                Runtime::Containerd,
                format!("0::/system.slice/containerd.service/kubepods-besteffort-pod8a6f.slice:cri-containerd:{A}"),
            ),
            (Runtime::Crio, format!("0::/kubepods.slice/kubepods-pod8a6f.slice/crio-{A}.scope")),
            (Runtime::Unknown, format!("0::/docker2/{A}")),
        ];
        for (runtime, text) in cases {
            assert_eq!(tenant_of(&text, 1000), container(runtime, A), "{text}");
        }
        let lxc = "0::/lxc.payload.trainer/init.scope";
        assert_eq!(tenant_of(lxc, 0), container(Runtime::Lxc, "trainer"));
    }

    #[test]
    fn of_nested_containers_the_outermost_is_the_tenant() {
        assert_eq!(tenant_of(&format!("0::/docker/{A}/docker/{B}"), 0), container(Runtime::Docker, A));
        let kind = format!("0::/system.slice/docker-{A}.scope/kubelet.slice/cri-containerd-{B}.scope");
        assert_eq!(tenant_of(&kind, 0), container(Runtime::Docker, A));
    }

    #[test]
    fn a_plain_cgroup_is_a_tenant_by_the_hierarchy_a_hold_would_act_on() {
        let cgroup = |path: &str| TenantKey::Cgroup { path: path.into() };
        assert_eq!(tenant_of("0::/team-a/job", 0), cgroup("/team-a/job"));
        assert_eq!(tenant_of("6:freezer:/team-a\n4:memory:/limits/x\n0::/", 0), cgroup("/team-a"));
        assert_eq!(tenant_of("6:freezer:/v1\n0::/v2", 0), cgroup("/v2"));
        assert_eq!(tenant_of("0::/system.slice/trainer.service", 0), cgroup("/system.slice/trainer.service"));
    }

    #[test]
    fn bare_processes_belong_to_their_user() {
        let user = TenantKey::User { uid: 1000 };
        for text in [
            "0::/",
            "4:memory:/limits/x\n6:freezer:/\n0::/",
            "0::/user.slice/user-1000.slice/session-3.scope",
            "0::/user.slice/user-1000.slice/user@1000.service/app.slice/app-gnome-terminal.scope",
            "",
            "garbage\n::\n1:x",
        ] {
            assert_eq!(tenant_of(text, 1000), user, "{text:?}");
        }
    }

    #[test]
    fn what_only_resembles_a_container_id_is_not_one() {
        let short = &A[..63];
        for text in
            [format!("0::/docker/{short}"), format!("0::/docker/{}", A.to_uppercase()), "0::/docker/buildkit".into()]
        {
            assert!(matches!(tenant_of(&text, 0), TenantKey::Cgroup { .. }), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_gives_some_tenant(text in "(\\PC|\n|:|/){0,200}", uid: u32) {
            let _ = tenant_of(&text, uid);
        }

        #[test]
        fn a_container_is_found_at_any_depth(prefix in "(/[a-z]{1,8}){0,4}", suffix in "(/[a-z]{1,8}){0,3}") {
            let text = format!("0::{prefix}/docker/{A}{suffix}");
            prop_assert_eq!(tenant_of(&text, 0), container(Runtime::Docker, A));
        }
    }
}
