//! Which stage a thing belongs to: whatever outlives a stage that is killed is named by its stage and by the process that
//! stage lived in, so that the next one can tell what was left behind from what is in use.

use std::fmt;
use std::path::Path;

use anyhow::Context as _;
use berth_model::{ProcKey, Stat};

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
    Stat::parse(&stat).filter(|stat| !stat.has_ended())?.start_ticks()
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
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let started = living(child.id());
        child.kill().unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while living(child.id()).is_some() && std::time::Instant::now() < deadline {
            std::thread::yield_now();
        }
        assert!(started.is_some() && living(child.id()).is_none());
        child.wait().unwrap();
    }
}
