//! Every path, socket and interval of the daemon, typed. The doc comment of a field is its manual.

pub mod cluster;
pub mod kernels;
pub mod kubernetes;
mod pattern;
pub mod policy;
mod problems;
mod read;

use core::net::SocketAddr;
use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::deadline::{Bound, UnitRule};
use crate::hold::Means;
use crate::time::Span;
pub use cluster::{ClusterSettings, EngineName, PlacerSettings};
pub use kernels::{Division, GpuRule, InvalidGpuRule, KernelPolicyName, KernelSettings};
pub use kubernetes::KubernetesSettings;
pub use pattern::Pattern;
pub use policy::{EdfSettings, FifoSettings, PaperSettings};
pub use problems::{InvalidSettings, LONGEST_SOCKET, MOST_ROWS};
use read::{choice, count, octal, rows};

/// The whole configuration file. Every key is optional; unknown keys are refused.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    pub nvml: Nvml,
    pub docker: Docker,
    pub probes: Probes,
    pub processes: Processes,
    pub monitor: Monitor,
    pub hold: Hold,
    pub fifo: FifoSettings,
    pub edf: EdfSettings,
    pub paper: PaperSettings,
    pub kernels: KernelSettings,
    pub deadline: Deadlines,
    pub history: History,
    pub table: Table,
    pub api: Api,
    pub cluster: ClusterSettings,
    pub placer: PlacerSettings,
    pub kubernetes: KubernetesSettings,
    pub log: Log,
}

/// The GPU driver's management library.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Nvml {
    /// File name or path of the library.
    pub library: PathBuf,
}

/// The Docker Engine, where names, labels and owners of containers come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Docker {
    /// `auto` uses the engine if it answers, `off` never asks, `required` refuses to start without it.
    #[serde(deserialize_with = "choice")]
    pub mode: Mode,
    /// Unix socket of the engine.
    pub socket: PathBuf,
}

/// eBPF probes on the CUDA driver library: they see the moments of a task exactly.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Probes {
    /// `auto` uses them if the host allows it, `off` never, `required` refuses to start without them.
    #[serde(deserialize_with = "choice")]
    pub mode: Mode,
    /// Driver libraries to watch from the start. Others are found in `/proc/PID/maps` of processes that use a GPU.
    pub libraries: Vec<PathBuf>,
}

/// Process events of the kernel: exits are seen at once, and new processes wake the monitor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Processes {
    /// The proc connector (`CN_PROC`); `auto` uses it where probes are missing. Exits of known GPU processes are always
    /// seen, by pidfd.
    #[serde(deserialize_with = "choice")]
    pub connector: Mode,
    /// Where the proc file system is mounted.
    pub proc_root: PathBuf,
}

/// How often to look.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Monitor {
    /// Between two looks while something may be changing.
    pub fast_interval: Span,
    /// Between two looks otherwise, where only looking can tell who came and went.
    pub interval: Span,
    /// Between two looks otherwise, where probes tell who came and went.
    pub probed_interval: Span,
    /// How long to look fast after an event.
    pub fast_for: Span,
    /// A tenant that has computed, and has not for this long, is idle. Who has not been seen computing is loaded.
    pub idle_after: Span,
    /// Between two readings of per-process GPU use, which cost the driver milliseconds.
    pub utilisation_interval: Span,
    /// How many ended tasks to remember.
    #[serde(deserialize_with = "count")]
    pub ended_tasks: usize,
}

/// Keeping tenants off a GPU while others use it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Hold {
    /// Who decides: `off` holds nobody, `fifo` lets tenants that would contend compute one after the other, `edf` does so in the order of
    /// their deadlines, `paper` pauses newcomers at first sight, as published.
    #[serde(deserialize_with = "choice")]
    pub policy: PolicyName,
    /// The policy decides and nothing is done: everybody is told what would be. Persons hold and release all the same.
    pub dry_run: bool,
    /// What may be done to tenants, by policies and persons alike: `freeze`, `lock`, `gate`, `park`. What the host cannot do is
    /// left out anyway. The gate keeps whom it has stopped by a freeze, and needs no `freeze` here for that.
    pub means: BTreeSet<Means>,
    /// Tenants that policies never hold, by container name, cgroup path or user; `*` stands for anything, `?` for one
    /// character.
    pub never_names: Vec<Pattern>,
    /// Owners whose tenants policies never hold, by name as in `berth ps`, or by user id where no label names the owner; with
    /// the same wildcards.
    pub never_owners: Vec<Pattern>,
    /// Owners may take tenants of their own out of the policy's hands: by the label `berth.hold=never`, or by releasing one. `false`
    /// leaves that to root and the user of the daemon; owners still hold their own, and release what they hold.
    pub owners_exempt: bool,
    /// How long a tenant is left alone that somebody has sent a signal to, so that it can take it and end; also one that somebody has
    /// let go on (`docker unpause`), where `owners_exempt` is false. It begins at the last of them, and lasts at least as long as the
    /// container's own stop timeout. Who asks for it again and again has three at once, and then a tenth of the time.
    pub grace: Span,
    /// Containers of one Compose project and owner that are on GPUs of their own, as the ranks of one job are, are held and
    /// released together. A label `berth.gang` goes before it.
    pub compose_gangs: bool,
    /// Directory of the journal of holds, by which they are undone if the daemon dies.
    pub journal: PathBuf,
    /// Where cgroups are mounted: the unified hierarchy, or the directory that holds `freezer`.
    pub cgroup_root: PathBuf,
    /// How long a freeze may take before it is undone and counts as failed.
    pub freeze_within: Span,
    /// How long a Docker container is held by the freezer of its cgroup, which is fast and which the engine knows nothing of, before
    /// the engine's own pause takes over: then `docker ps` shows it, and `docker inspect` calls it unhealthy if its health is checked.
    /// One whose check waits for it is handed over sooner, before the check has failed.
    pub pause_after: Span,
    /// How long to wait for the driver to lock a process, which it does when the process's work is done.
    pub lock_within: Span,
    /// The CUDA driver library by which processes are locked and parked.
    pub driver: PathBuf,
}

/// Deadlines of containers: which count, and for what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Deadlines {
    /// Where `docker` is the stock client, `-dl 9` makes a label whose name is `9`: `true` takes such a label for a deadline.
    pub stock_labels: bool,
    /// What a deadline is for, unless a label `berth.unit` says it: `task` is a whole stay on the GPUs, `burst` each stretch of computing, and `auto`
    /// the task, or each burst of one that computes again after having been idle, as a server does.
    #[serde(deserialize_with = "choice")]
    pub unit: UnitRule,
    /// A burst is over when nothing of it has computed for this long; it has ended when the last of it was done.
    pub burst_gap: Span,
    /// Who computes again after having been idle for this long serves requests (`unit = "auto"`).
    pub serves_after: Span,
    /// How short and how long deadlines may be, such as `owner eve* 30s..10m`, `label tier=batch 1m..` or `everybody 1s..`. Of all
    /// that apply the strictest counts, since labels, and owners that labels name, are the word of whoever starts a container: who wants
    /// exceptions writes no rule for everybody. A deadline outside counts as the nearest inside, and that is shown; where the rules
    /// leave nothing, the longer deadline counts.
    pub bounds: Vec<Bound>,
}

/// What is remembered on disk: tasks, holds and their reasons, for `berth history` and for the next daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct History {
    /// `false` writes nothing down, and begins anew with each daemon; deadlines that are set count until it ends.
    pub enabled: bool,
    /// Directory of its files, and of deadlines that were set, for the daemon's user alone; made if it is missing. Each daemon needs its
    /// own.
    pub dir: PathBuf,
    /// Room it may take, in MiB; the oldest is removed for the newest. A task or a hold takes about half a KiB.
    #[serde(deserialize_with = "count")]
    pub max_mib: u32,
}

/// The task table in shared memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Table {
    /// Where it is; its directory is made if it is missing.
    pub path: PathBuf,
    /// Rows it has room for, at most 65536; more tenants than that are counted as left out.
    #[serde(deserialize_with = "rows")]
    pub rows: u32,
}

/// The HTTP interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Api {
    /// Unix socket it listens on; its path has at most 107 bytes.
    pub socket: PathBuf,
    /// Permissions of the socket, in octal: who may read the state of this host.
    #[serde(deserialize_with = "octal")]
    pub socket_mode: String,
    /// Group of the socket, whose members may then read without being root; empty leaves it with the daemon's own.
    pub socket_group: String,
    /// Address and port for metrics alone, over TCP without TLS, such as `0.0.0.0:7279`, where a scraper cannot open the socket: whoever
    /// reaches it reads who uses the GPUs. Empty serves them on the socket only.
    pub metrics_listen: String,
}

/// What the daemon tells about itself, on standard error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Log {
    /// `text` for people, `json` for machines.
    #[serde(deserialize_with = "choice")]
    pub format: LogFormat,
    /// `error`, `warn`, `info`, `debug`, `trace`, or a filter such as `berth_host=debug,info`.
    pub level: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    Auto,
    Off,
    Required,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PolicyName {
    Off,
    Fifo,
    Edf,
    Paper,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    Text,
    Json,
}

// === defaults ===

impl Default for Nvml {
    fn default() -> Self {
        Self { library: "libnvidia-ml.so.1".into() }
    }
}

impl Default for Docker {
    fn default() -> Self {
        Self { mode: Mode::Auto, socket: "/var/run/docker.sock".into() }
    }
}

impl Default for Probes {
    fn default() -> Self {
        Self { mode: Mode::Auto, libraries: vec!["libcuda.so.1".into()] }
    }
}

impl Default for Processes {
    fn default() -> Self {
        Self { connector: Mode::Auto, proc_root: "/proc".into() }
    }
}

impl Default for Monitor {
    fn default() -> Self {
        Self {
            fast_interval: Span::from_millis(20),
            interval: Span::from_millis(100),
            probed_interval: Span::from_millis(500),
            fast_for: Span::from_millis(600),
            idle_after: Span::from_millis(2_000),
            utilisation_interval: Span::from_millis(1_000),
            ended_tasks: 256,
        }
    }
}

impl Default for Hold {
    fn default() -> Self {
        Self {
            policy: PolicyName::Off,
            dry_run: false,
            means: [Means::Freeze, Means::Lock, Means::Gate, Means::Park].into(),
            never_names: Vec::new(),
            never_owners: Vec::new(),
            owners_exempt: true,
            grace: Span::from_millis(30_000),
            compose_gangs: true,
            journal: "/run/berth/holds".into(),
            cgroup_root: "/sys/fs/cgroup".into(),
            freeze_within: Span::from_millis(1_000),
            pause_after: Span::from_millis(10_000),
            lock_within: Span::from_millis(5_000),
            driver: "libcuda.so.1".into(),
        }
    }
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            stock_labels: true,
            unit: UnitRule::Auto,
            burst_gap: Span::from_millis(200),
            serves_after: Span::from_millis(2_000),
            bounds: Vec::new(),
        }
    }
}

impl Default for History {
    fn default() -> Self {
        Self { enabled: true, dir: "/var/lib/berth/history".into(), max_mib: 64 }
    }
}

impl Default for Table {
    fn default() -> Self {
        Self { path: "/run/berth/tasks".into(), rows: 256 }
    }
}

impl Default for Api {
    fn default() -> Self {
        Self {
            socket: "/run/berth/berth.sock".into(),
            socket_mode: "0660".into(),
            socket_group: String::new(),
            metrics_listen: String::new(),
        }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self { format: LogFormat::Text, level: "info".into() }
    }
}

// === impl PolicyName ===

impl PolicyName {
    /// As in the file.
    pub fn as_str(self) -> &'static str {
        match self {
            PolicyName::Off => "off",
            PolicyName::Fifo => "fifo",
            PolicyName::Edf => "edf",
            PolicyName::Paper => "paper",
        }
    }
}

// === impl Api ===

impl Settings {
    /// Docker is not asked where Kubernetes tells of the containers.
    pub fn docker_mode(&self) -> Mode {
        if self.kubernetes.enabled { Mode::Off } else { self.docker.mode }
    }
}

impl Api {
    /// The socket's permissions; `None` if they are not octal permissions.
    pub fn mode(&self) -> Option<u32> {
        u32::from_str_radix(&self.socket_mode, 8).ok().filter(|mode| *mode <= 0o777)
    }

    /// Where metrics are served over TCP; `None` if nowhere, and where what is written is no address.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics_listen.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_file_is_the_default_and_the_default_is_sound() {
        let empty: Settings = toml::from_str("").unwrap();
        assert_eq!(empty, Settings::default());
        assert_eq!(empty.problems(), []);
    }

    #[test]
    fn the_default_survives_being_printed_and_read() {
        let printed = toml::to_string(&Settings::default()).unwrap();
        assert_eq!(toml::from_str::<Settings>(&printed).unwrap(), Settings::default());
    }

    #[test]
    fn an_unknown_key_is_refused_by_name_and_the_known_ones_are_told() {
        let error = toml::from_str::<Settings>("[monitor]\nfast_intervall = \"20ms\"").unwrap_err().to_string();
        assert!(error.contains("fast_intervall") && error.contains("probed_interval"), "{error}");
    }

    #[test]
    fn a_duration_without_unit_is_refused_with_its_line() {
        let error = toml::from_str::<Settings>("[monitor]\nfast_interval = \"20\"").unwrap_err().to_string();
        assert!(error.contains("line 2") && error.contains("`20`") && error.contains("500ms"), "{error}");
    }

    #[test]
    fn a_choice_is_one_of_its_words_and_nothing_else() {
        let told =
            |mode: &str| toml::from_str::<Settings>(&format!("docker.mode = {mode}")).unwrap_err().message().to_owned();
        assert_eq!(told("\"on\""), "unknown variant `on`, expected one of `auto`, `off`, `required`");
        assert_eq!(told("true"), "invalid type: boolean `true`, expected a string");
        assert_eq!(told("{ off = {} }"), "invalid type: map, expected a string");
    }

    #[test]
    fn a_number_that_is_none_is_refused_without_words_of_rust() {
        let told =
            |rows: &str| toml::from_str::<Settings>(&format!("table.rows = {rows}")).unwrap_err().message().to_owned();
        assert_eq!(told("-1"), "invalid value: integer `-1`, expected a whole number, 0 or more");
        assert_eq!(told("\"9\""), "invalid type: string \"9\", expected a whole number, 0 or more");
        assert_eq!(told("1.5"), "invalid type: floating point `1.5`, expected a whole number, 0 or more");
        assert_eq!(told("5_000_000_000"), "5000000000 is too large: must be at most 65536");
    }

    #[test]
    fn permissions_given_as_a_number_are_refused_with_what_to_write() {
        let error = toml::from_str::<Settings>("api.socket_mode = 660").unwrap_err();
        let expected = "invalid type: integer `660`, expected permissions in octal and in quotes, such as \"0660\"";
        assert_eq!(error.message(), expected);
    }
}
