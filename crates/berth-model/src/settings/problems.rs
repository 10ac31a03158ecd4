//! Settings that are well-formed one by one and wrong together or out of range.

use std::path::PathBuf;
use std::time::Duration;

use super::{EngineName, Settings};
use crate::cluster::NodeId;
use crate::cluster::report::HEARTBEAT;
use crate::time::Span;

/// No loop may be asked to spin faster than this.
const LEAST_INTERVAL: Span = Span::from_millis(1);

/// Nodes of a Kubernetes tell that they live every [`HEARTBEAT`]; what they write takes seconds to arrive, at worst.
const LEAST_STALE: Span = Span(Duration::from_secs(HEARTBEAT.as_secs() + 5));

/// What the task table's layout allows.
pub const MOST_ROWS: u32 = 1 << 16;

/// Bytes in a Unix socket's path: the kernel has room for 108, of which one ends it.
pub const LONGEST_SOCKET: usize = 107;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSettings {
    #[error("{key} is {value}: must be at least {least}")]
    TooSmall { key: &'static str, value: String, least: String },
    #[error("{key} is {value}: must be at most {most}")]
    TooLarge { key: &'static str, value: String, most: String },
    #[error("{key} is {value}: must not be above {other} ({limit})")]
    Above { key: &'static str, value: String, other: &'static str, limit: String },
    #[error("{key} is `{value}`: write permissions in octal, such as `0660`")]
    NotOctal { key: &'static str, value: String },
    #[error("{key} is `{value}`: write an address and a port, such as `0.0.0.0:7277`")]
    NotAnAddress { key: &'static str, value: String },
    #[error("{key} is `{value}`: a node has 1 to {} letters, digits, `.`, `-` and `_`", NodeId::LONGEST)]
    NotANode { key: &'static str, value: String },
    #[error("{key} is empty: give {what}")]
    Empty { key: &'static str, what: &'static str },
    #[error("{key} is a path of {bytes} bytes: a Unix socket's may have at most {LONGEST_SOCKET}")]
    LongSocket { key: &'static str, bytes: usize },
    #[error("{key} is in {}, which is mounted into tenants, and so is {other}: give it a directory of its own", dir.display())]
    InTenants { key: &'static str, dir: PathBuf, other: &'static str },
    #[error(
        "{key} is {value}: must be at least {LEAST_STALE} with engine `kubernetes`, whose nodes report every {} s",
        HEARTBEAT.as_secs()
    )]
    SoonerThanReports { key: &'static str, value: String },
}

// === impl InvalidSettings ===

impl InvalidSettings {
    /// The key whose value is wrong.
    pub fn key(&self) -> &'static str {
        match self {
            InvalidSettings::TooSmall { key, .. }
            | InvalidSettings::TooLarge { key, .. }
            | InvalidSettings::Above { key, .. }
            | InvalidSettings::NotOctal { key, .. }
            | InvalidSettings::NotAnAddress { key, .. }
            | InvalidSettings::NotANode { key, .. }
            | InvalidSettings::Empty { key, .. }
            | InvalidSettings::LongSocket { key, .. }
            | InvalidSettings::InTenants { key, .. }
            | InvalidSettings::SoonerThanReports { key, .. } => key,
        }
    }

    /// The other key it is wrong together with.
    pub fn other(&self) -> Option<&'static str> {
        match self {
            InvalidSettings::Above { other, .. } | InvalidSettings::InTenants { other, .. } => Some(other),
            InvalidSettings::SoonerThanReports { .. } => Some("placer.engine"),
            _ => None,
        }
    }
}

// === impl Settings ===

impl Settings {
    /// All that is wrong with these settings; empty if they can be used.
    pub fn problems(&self) -> Vec<InvalidSettings> {
        let mut problems = self.wrong_intervals();
        problems.extend(self.wrong_holds());
        problems.extend(self.kernels.problems());
        problems.extend(self.wrong_deadlines());
        problems.extend(self.wrong_rows());
        problems.extend(self.wrong_history());
        if self.api.mode().is_none() {
            problems.push(InvalidSettings::NotOctal { key: "api.socket_mode", value: self.api.socket_mode.clone() });
        }
        problems.extend(self.wrong_cluster());
        problems.extend(self.wrong_paths());
        problems
    }

    fn wrong_intervals(&self) -> Vec<InvalidSettings> {
        let m = &self.monitor;
        let each = [
            ("monitor.fast_interval", m.fast_interval),
            ("monitor.interval", m.interval),
            ("monitor.probed_interval", m.probed_interval),
            ("monitor.utilisation_interval", m.utilisation_interval),
        ];
        too_short(&each).chain(out_of_order(&each[..3])).collect()
    }

    fn wrong_holds(&self) -> Vec<InvalidSettings> {
        let (fifo, paper) = (&self.fifo, &self.paper);
        let each = [
            ("fifo.slice", fifo.slice),
            ("fifo.quantum", fifo.quantum),
            ("fifo.longest_wait", fifo.longest_wait),
            ("fifo.last_resort", fifo.last_resort),
            ("fifo.fair_half_life", fifo.fair_half_life),
            ("paper.turn", paper.turn),
            ("paper.longest_wait", paper.longest_wait),
        ];
        let what = "what may be done to tenants (`hold.policy = \"off\"` holds nobody)";
        let nothing = self.hold.means.is_empty().then_some(InvalidSettings::Empty { key: "hold.means", what });
        let ordered = out_of_order(&each[..2]).chain(out_of_order(&each[2..4])).chain(out_of_order(&each[5..]));
        let counts = [("fifo.contexts_at_once", fifo.contexts_at_once), ("edf.rest", self.edf.rest.get().into())];
        let none = counts.into_iter().filter(|(_, value)| *value == 0).map(|(key, value)| {
            let (value, least) = (value.to_string(), "1".to_owned());
            InvalidSettings::TooSmall { key, value, least }
        });
        nothing.into_iter().chain(too_short(&each)).chain(none).chain(ordered).collect()
    }

    fn wrong_deadlines(&self) -> Vec<InvalidSettings> {
        let each =
            [("deadline.burst_gap", self.deadline.burst_gap), ("deadline.serves_after", self.deadline.serves_after)];
        too_short(&each).chain(out_of_order(&each)).collect()
    }

    fn wrong_rows(&self) -> Option<InvalidSettings> {
        let (key, value) = ("table.rows", self.table.rows.to_string());
        match self.table.rows {
            0 => Some(InvalidSettings::TooSmall { key, value, least: "1".into() }),
            1..=MOST_ROWS => None,
            _ => Some(InvalidSettings::TooLarge { key, value, most: MOST_ROWS.to_string() }),
        }
    }

    fn wrong_history(&self) -> Option<InvalidSettings> {
        let (key, value) = ("history.max_mib", self.history.max_mib.to_string());
        (self.history.max_mib == 0).then(|| InvalidSettings::TooSmall { key, value, least: "1".into() })
    }

    fn wrong_cluster(&self) -> Vec<InvalidSettings> {
        let (cluster, placer) = (&self.cluster, &self.placer);
        let each = [
            ("cluster.report_every", cluster.report_every),
            ("placer.ask_every", placer.ask_every),
            ("placer.stale_after", placer.stale_after),
            ("placer.miss_window", placer.miss_window),
            ("placer.reservation_lasts", placer.reservation_lasts),
        ];
        let listens = [
            ("api.metrics_listen", &self.api.metrics_listen, self.api.metrics_address()),
            ("cluster.listen", &cluster.listen, cluster.address()),
            ("placer.listen", &placer.listen, placer.address()),
        ];
        let nowhere = listens.into_iter().filter(|(_, text, address)| !text.is_empty() && address.is_none());
        let nowhere = nowhere.map(|(key, text, _)| InvalidSettings::NotAnAddress { key, value: text.clone() });
        let nobody = (!cluster.node.is_empty() && cluster.node_id().is_none())
            .then(|| InvalidSettings::NotANode { key: "cluster.node", value: cluster.node.clone() });
        let no_port = (placer.node_port == 0).then(|| {
            let (value, least) = ("0".to_owned(), "1".to_owned());
            InvalidSettings::TooSmall { key: "placer.node_port", value, least }
        });
        // A node that is well and has nothing new to tell must not look like one that is gone.
        let too_stale = placer.engine == EngineName::Kubernetes && placer.stale_after < LEAST_STALE;
        let too_stale = too_stale.then(|| {
            let value = placer.stale_after.to_string();
            InvalidSettings::SoonerThanReports { key: "placer.stale_after", value }
        });
        let wrong = nowhere.chain(nobody).chain(no_port).chain(too_stale);
        wrong.chain(too_short(&each)).chain(out_of_order(&each[1..3])).collect()
    }

    fn wrong_paths(&self) -> Vec<InvalidSettings> {
        let sockets = [
            ("docker.socket", &self.docker.socket),
            ("api.socket", &self.api.socket),
            ("placer.socket", &self.placer.socket),
            ("placer.engine_socket", &self.placer.engine_socket),
            ("kernels.socket", &self.kernels.socket),
        ];
        let others = [
            ("nvml.library", &self.nvml.library),
            ("processes.proc_root", &self.processes.proc_root),
            ("hold.journal", &self.hold.journal),
            ("hold.cgroup_root", &self.hold.cgroup_root),
            ("hold.driver", &self.hold.driver),
            ("table.path", &self.table.path),
            ("history.dir", &self.history.dir),
            ("cluster.key_file", &self.cluster.key_file),
            ("placer.key_file", &self.placer.key_file),
            ("placer.tls_certificate", &self.placer.tls_certificate),
            ("placer.tls_key", &self.placer.tls_key),
        ];
        let empty = others.into_iter().chain(sockets).filter(|(_, path)| path.as_os_str().is_empty());
        let long = sockets.into_iter().filter_map(|(key, path)| {
            let bytes = path.as_os_str().len();
            (bytes > LONGEST_SOCKET).then_some(InvalidSettings::LongSocket { key, bytes })
        });
        // What lies beside the library's socket is every tenant's to read.
        let dir = self.kernels.socket.parent().filter(|_| self.kernels.enabled);
        let all = others.into_iter().chain(sockets).filter(|(key, _)| *key != "kernels.socket");
        let beside = all.filter_map(|(other, path)| {
            let dir = dir.filter(|dir| path.starts_with(dir))?.to_owned();
            Some(InvalidSettings::InTenants { key: "kernels.socket", dir, other })
        });
        let wrong = empty.map(|(key, _)| InvalidSettings::Empty { key, what: "a path" });
        wrong.chain(long).chain(beside).collect()
    }
}

type Named = (&'static str, Span);

fn too_short(each: &[Named]) -> impl Iterator<Item = InvalidSettings> {
    each.iter().filter(|(_, value)| *value < LEAST_INTERVAL).map(|(key, value)| {
        let (value, least) = (value.to_string(), LEAST_INTERVAL.to_string());
        InvalidSettings::TooSmall { key, value, least }
    })
}

/// None of these may be above the one after it.
fn out_of_order(each: &[Named]) -> impl Iterator<Item = InvalidSettings> {
    let pairs = each.windows(2).map(|pair| (pair[0], pair[1]));
    pairs.filter(|((_, value), (_, limit))| value > limit).map(|((key, value), (other, limit))| {
        let (value, limit) = (value.to_string(), limit.to_string());
        InvalidSettings::Above { key, value, other, limit }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantity::Percent;

    #[test]
    fn nothing_that_is_not_for_tenants_lies_where_the_library_s_socket_is() {
        let mut settings = Settings::default();
        settings.kernels.enabled = true;
        assert_eq!(settings.problems(), [], "as it is shipped");
        settings.kernels.socket = "/run/berth/shim.sock".into();
        let told: Vec<String> = settings.problems().iter().map(ToString::to_string).collect();
        let api = "kernels.socket is in /run/berth, which is mounted into tenants, and so is api.socket: give it a directory of its own";
        assert!(told.contains(&api.to_owned()), "{told:?}");
        settings.kernels.enabled = false;
        assert_eq!(settings.problems(), [], "nobody is given it");
    }

    #[test]
    fn each_wrong_value_is_told_apart() {
        let mut settings = Settings::default();
        settings.monitor.fast_interval = Span::from_millis(0);
        settings.monitor.interval = Span::from_millis(9_000);
        settings.table.rows = 0;
        settings.api.socket_mode = "rw".into();
        settings.nvml.library = PathBuf::new();
        let told: Vec<_> = settings.problems().iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "monitor.fast_interval is 0s: must be at least 1ms",
                "monitor.interval is 9s: must not be above monitor.probed_interval (500ms)",
                "table.rows is 0: must be at least 1",
                "api.socket_mode is `rw`: write permissions in octal, such as `0660`",
                "nvml.library is empty: give a path",
            ]
        );
    }

    #[test]
    fn numbers_by_which_nobody_could_decide_are_told() {
        let mut settings = Settings::default();
        settings.hold.means.clear();
        settings.fifo.quantum = Span::from_millis(0);
        settings.fifo.contexts_at_once = 0;
        settings.edf.rest = Percent::default();
        settings.fifo.last_resort = Span::from_millis(1_000);
        settings.paper.turn = Span::from_millis(700_000);
        let told: Vec<_> = settings.problems().iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "hold.means is empty: give what may be done to tenants (`hold.policy = \"off\"` holds nobody)",
                "fifo.quantum is 0s: must be at least 1ms",
                "fifo.contexts_at_once is 0: must be at least 1",
                "edf.rest is 0: must be at least 1",
                "fifo.slice is 100ms: must not be above fifo.quantum (0s)",
                "fifo.longest_wait is 1m: must not be above fifo.last_resort (1s)",
                "paper.turn is 700s: must not be above paper.longest_wait (10m)",
            ]
        );
    }

    #[test]
    fn a_cluster_nobody_could_be_part_of_is_told() {
        let mut settings = Settings::default();
        settings.cluster.listen = "7277".into();
        settings.cluster.node = "a node".into();
        settings.placer.node_port = 0;
        settings.placer.ask_every = Span::from_millis(9_000);
        settings.placer.listen = "localhost:1".into();
        settings.placer.key_file = PathBuf::new();
        let told: Vec<_> = settings.problems().iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "cluster.listen is `7277`: write an address and a port, such as `0.0.0.0:7277`",
                "placer.listen is `localhost:1`: write an address and a port, such as `0.0.0.0:7277`",
                "cluster.node is `a node`: a node has 1 to 253 letters, digits, `.`, `-` and `_`",
                "placer.node_port is 0: must be at least 1",
                "placer.ask_every is 9s: must not be above placer.stale_after (5s)",
                "placer.key_file is empty: give a path",
            ]
        );
        settings = Settings::default();
        settings.placer.engine = EngineName::Kubernetes;
        let told: Vec<_> = settings.problems().iter().map(ToString::to_string).collect();
        let why = "must be at least 15s with engine `kubernetes`, whose nodes report every 10 s";
        assert_eq!(told, [format!("placer.stale_after is 5s: {why}")]);
        settings.placer.stale_after = Span::from_millis(15_000);
        assert_eq!(settings.problems(), []);
        settings.cluster.listen = "[::1]:7277".into();
        settings.api.metrics_listen = "0.0.0.0:7279".into();
        settings.cluster.node = "24ifsmvkjbyhk9xkblj1w4s2u".into();
        assert_eq!(settings.problems(), []);
    }

    #[test]
    fn limits_are_the_last_that_is_allowed() {
        let mut settings = Settings::default();
        settings.table.rows = MOST_ROWS;
        settings.api.socket = "x".repeat(LONGEST_SOCKET).into();
        assert_eq!(settings.problems(), []);
        settings.table.rows += 1;
        settings.api.socket = "x".repeat(LONGEST_SOCKET + 1).into();
        settings.docker.socket = "/x".repeat(100).into();
        let told: Vec<_> = settings.problems().iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "table.rows is 65537: must be at most 65536",
                "docker.socket is a path of 200 bytes: a Unix socket's may have at most 107",
                "api.socket is a path of 108 bytes: a Unix socket's may have at most 107",
            ]
        );
    }
}
