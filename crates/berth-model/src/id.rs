//! Who is who: processes, GPUs, tenants, tasks.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A process that cannot be mistaken for a later one with the same pid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProcKey {
    pub pid: u32,
    /// Field 22 of `/proc/PID/stat`: start time after boot in clock ticks.
    pub start_ticks: u64,
}

/// The driver's index of a GPU: order on this host, may change with a reboot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GpuIndex(pub u32);

/// The GPU's own identity, `GPU-…`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GpuUuid(pub String);

/// An engine's container id, in full.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ContainerId(pub String);

/// Which container engine's naming a cgroup path follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Runtime {
    Docker,
    Podman,
    Containerd,
    Crio,
    Lxc,
    /// A container by its id, under a parent that does not say whose it is.
    Unknown,
}

/// What shares a GPU: a container, a plain cgroup, or the bare processes of one user.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum TenantKey {
    Container {
        runtime: Runtime,
        id: ContainerId,
    },
    /// Path inside the hierarchy a hold would act on (the unified one, or the v1 freezer's).
    Cgroup {
        path: String,
    },
    User {
        uid: u32,
    },
}

/// One stay of a tenant on the GPUs, counted from 1 since the daemon started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskId(pub u64);

impl TenantKey {
    pub fn container_id(&self) -> Option<&ContainerId> {
        match self {
            TenantKey::Container { id, .. } => Some(id),
            TenantKey::Cgroup { .. } | TenantKey::User { .. } => None,
        }
    }

    /// Whether both are the same tenant. A container's id is its identity: whose naming its cgroup follows depends on where
    /// the engine was told to put it.
    pub fn is(&self, other: &TenantKey) -> bool {
        match (self.container_id(), other.container_id()) {
            (Some(one), Some(other)) => one == other,
            _ => self == other,
        }
    }

    /// The id Docker may know this tenant by: its own naming, or one that does not say whose it is.
    pub fn docker_id(&self) -> Option<&ContainerId> {
        match self {
            TenantKey::Container { runtime: Runtime::Docker | Runtime::Unknown, id } => Some(id),
            TenantKey::Container { .. } | TenantKey::Cgroup { .. } | TenantKey::User { .. } => None,
        }
    }
}

impl Runtime {
    pub fn as_str(self) -> &'static str {
        match self {
            Runtime::Docker => "docker",
            Runtime::Podman => "podman",
            Runtime::Containerd => "containerd",
            Runtime::Crio => "crio",
            Runtime::Lxc => "lxc",
            Runtime::Unknown => "container",
        }
    }
}

impl fmt::Display for TenantKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TenantKey::Container { runtime, id } => write!(f, "{}:{id}", runtime.as_str()),
            TenantKey::Cgroup { path } => write!(f, "cgroup:{path}"),
            TenantKey::User { uid } => write!(f, "user:{uid}"),
        }
    }
}

impl ContainerId {
    /// The twelve characters people know from `docker ps`.
    pub fn short(&self) -> &str {
        self.0.get(..12).unwrap_or(&self.0)
    }
}

impl fmt::Display for ContainerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for ProcKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.pid, self.start_ticks)
    }
}

impl fmt::Display for GpuUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for GpuIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
