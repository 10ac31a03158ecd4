//! Which stage a thing belongs to: whatever outlives a stage that is killed is named by its stage and by the process that
//! stage lived in, so that the next one can tell what was left behind from what is in use.

use std::fmt;
use std::path::Path;

use anyhow::Context as _;
use berth_model::ProcKey;

/// Written `NAME-PID-TICKS`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageId {
    pub name: String,
    pub process: ProcKey,
}

impl StageId {
    /// A stage of this process.
    pub fn here(name: &str) -> anyhow::Result<Self> {
        let pid = std::process::id();
        let start_ticks = living(pid).context("finding when this process started, in /proc")?;
        Ok(Self { name: name.to_owned(), process: ProcKey { pid, start_ticks } })
    }

    /// Of something named by its stage, and further after `-` or `:`. `None` unless it is of a stage of this name.
    pub fn parse(name: &str, text: &str) -> Option<Self> {
        let mut parts = text.strip_prefix(name)?.strip_prefix('-')?.split(['-', ':']);
        let process = ProcKey { pid: parts.next()?.parse().ok()?, start_ticks: parts.next()?.parse().ok()? };
        Some(Self { name: name.to_owned(), process })
    }

    /// Its process is gone, whoever has the pid now.
    pub fn is_over(&self) -> bool {
        living(self.process.pid) != Some(self.process.start_ticks)
    }
}

impl fmt::Display for StageId {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}-{}-{}", self.name, self.process.pid, self.process.start_ticks)
    }
}

/// When the process started, in clock ticks after boot; `None` if there is none, or nobody but its parent knows of it.
fn living(pid: u32) -> Option<u64> {
    let stat = std::fs::read(Path::new("/proc").join(pid.to_string()).join("stat")).ok()?;
    start_ticks(&String::from_utf8_lossy(&stat))
}

/// Fields 3 and 22 of proc(5); the second, a name, may hold anything, so they count from its last `)`.
fn start_ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let has_ended = matches!(fields.next()?, "Z" | "X");
    fields.nth(18)?.parse().ok().filter(|_| !has_ended)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(pid: u32, start_ticks: u64) -> StageId {
        StageId { name: "berth-demo".into(), process: ProcKey { pid, start_ticks } }
    }

    #[test]
    fn a_stage_is_known_again_by_whatever_it_named() {
        for text in ["berth-demo-7-99", "berth-demo-7-99-Xy12ab", "berth-demo-7-99:local"] {
            assert_eq!(StageId::parse("berth-demo", text), Some(id(7, 99)), "{text}");
        }
        assert_eq!(StageId::parse("berth-demo", &id(7, 99).to_string()), Some(id(7, 99)));
        for text in ["berth-demo-7", "berth-demo-notebook", "berth-bench-7-99", "berth-e2e-7-99"] {
            assert_eq!(StageId::parse("berth-demo", text), None, "{text}");
        }
    }

    #[test]
    fn a_stage_is_over_when_another_process_has_its_pid() {
        let here = StageId::here("berth-demo").unwrap();
        assert!(!here.is_over());
        assert!(id(here.process.pid, here.process.start_ticks - 1).is_over());
    }

    #[test]
    fn a_process_that_only_waits_to_be_reaped_is_none() {
        let stat = |state| format!("7 (a) b) {state} 1 7 7 0 -1 4 0 0 0 0 0 0 0 0 20 0 1 0 4242 0 0");
        assert_eq!(start_ticks(&stat("S")), Some(4242));
        assert_eq!(start_ticks(&stat("Z")), None);
    }
}
