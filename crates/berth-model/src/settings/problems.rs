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
    #[error("{key} is empty: give a path")]
    Empty { key: &'static str },
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
            | InvalidSettings::Empty { key }
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
        problems.extend(self.wrong_rows());
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
        let too_small = each.into_iter().filter(|(_, value)| *value < LEAST_INTERVAL).map(|(key, value)| {
            let (value, least) = (value.to_string(), LEAST_INTERVAL.to_string());
            InvalidSettings::TooSmall { key, value, least }
        });
        let ordered = each[..3].windows(2).map(|pair| (pair[0], pair[1]));
        let above = ordered.filter(|((_, value), (_, limit))| value > limit).map(|((key, value), (other, limit))| {
            let (value, limit) = (value.to_string(), limit.to_string());
            InvalidSettings::Above { key, value, other, limit }
        });
        too_small.chain(above).collect()
    }

    fn wrong_rows(&self) -> Option<InvalidSettings> {
        let (key, value) = ("table.rows", self.table.rows.to_string());
        match self.table.rows {
            0 => Some(InvalidSettings::TooSmall { key, value, least: "1".into() }),
            1..=MOST_ROWS => None,
            _ => Some(InvalidSettings::TooLarge { key, value, most: MOST_ROWS.to_string() }),
        }
    }

    fn wrong_paths(&self) -> Vec<InvalidSettings> {
        let sockets = [("docker.socket", &self.docker.socket), ("api.socket", &self.api.socket)];
        let others = [
            ("nvml.library", &self.nvml.library),
            ("processes.proc_root", &self.processes.proc_root),
            ("table.path", &self.table.path),
        ];
        let empty = others.into_iter().chain(sockets).filter(|(_, path)| path.as_os_str().is_empty());
        let long = sockets.into_iter().filter_map(|(key, path)| {
            let bytes = path.as_os_str().len();
            (bytes > LONGEST_SOCKET).then_some(InvalidSettings::LongSocket { key, bytes })
        });
        empty.map(|(key, _)| InvalidSettings::Empty { key }).chain(long).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

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
