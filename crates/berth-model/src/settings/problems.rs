//! Settings that are well-formed one by one and wrong together or out of range.

use super::Settings;
use crate::time::Span;

/// No loop may be asked to spin faster than this.
const LEAST_INTERVAL: Span = Span::from_millis(1);

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
    #[error("{key} is empty: give {what}")]
    Empty { key: &'static str, what: &'static str },
    #[error("{key} is a path of {bytes} bytes: a Unix socket's may have at most {LONGEST_SOCKET}")]
    LongSocket { key: &'static str, bytes: usize },
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
            | InvalidSettings::Empty { key, .. }
            | InvalidSettings::LongSocket { key, .. } => key,
        }
    }

    /// The other key it is wrong together with.
    pub fn other(&self) -> Option<&'static str> {
        if let InvalidSettings::Above { other, .. } = self { Some(other) } else { None }
    }
}

// === impl Settings ===

impl Settings {
    /// All that is wrong with these settings; empty if they can be used.
    pub fn problems(&self) -> Vec<InvalidSettings> {
        let mut problems = self.wrong_intervals();
        problems.extend(self.wrong_holds());
        problems.extend(self.wrong_deadlines());
        problems.extend(self.wrong_rows());
        problems.extend(self.wrong_history());
        if self.api.mode().is_none() {
            problems.push(InvalidSettings::NotOctal { key: "api.socket_mode", value: self.api.socket_mode.clone() });
        }
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

    fn wrong_paths(&self) -> Vec<InvalidSettings> {
        let sockets = [("docker.socket", &self.docker.socket), ("api.socket", &self.api.socket)];
        let others = [
            ("nvml.library", &self.nvml.library),
            ("processes.proc_root", &self.processes.proc_root),
            ("hold.journal", &self.hold.journal),
            ("hold.cgroup_root", &self.hold.cgroup_root),
            ("hold.driver", &self.hold.driver),
            ("table.path", &self.table.path),
            ("history.dir", &self.history.dir),
        ];
        let empty = others.into_iter().chain(sockets).filter(|(_, path)| path.as_os_str().is_empty());
        let long = sockets.into_iter().filter_map(|(key, path)| {
            let bytes = path.as_os_str().len();
            (bytes > LONGEST_SOCKET).then_some(InvalidSettings::LongSocket { key, bytes })
        });
        empty.map(|(key, _)| InvalidSettings::Empty { key, what: "a path" }).chain(long).collect()
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
    use std::path::PathBuf;

    use super::*;
    use crate::quantity::Percent;

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
