//! How long a hold by freezing takes on this machine: from the decision until it is confirmed, and from the release until
//! the tenant runs.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use berth_model::ContainerId;
use serde::Serialize;

use super::pause::{self, PauseError};
use crate::docker::Pauser;
use crate::freezer::{CgroupDir, Freezer, FreezerError};

/// One means, over many turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Timing {
    pub hold: Quantiles,
    pub release: Quantiles,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Quantiles {
    pub p50_ns: u64,
    pub p99_ns: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    #[error("at least one turn is needed")]
    NoTurns,
    #[error("cannot {attempt}: {source}")]
    Io { attempt: &'static str, source: io::Error },
    #[error(transparent)]
    Freezer(#[from] FreezerError),
    #[error(transparent)]
    Pause(#[from] PauseError),
}

impl Quantiles {
    /// `None` of nothing.
    pub fn of(mut times: Vec<Duration>) -> Option<Quantiles> {
        times.sort_unstable();
        let at = |percent: usize| {
            let time = times.get((times.len() * percent / 100).min(times.len().checked_sub(1)?))?;
            u64::try_from(time.as_nanos()).ok()
        };
        Some(Quantiles { p50_ns: at(50)?, p99_ns: at(99)? })
    }
}

/// Freezes and thaws `busy` spinning processes and one that answers, in a cgroup made for it under `hierarchy`. The release
/// is over when the answering one has answered.
pub fn freezer(freezer: &Freezer, hierarchy: &Path, busy: usize, turns: usize) -> Result<Timing, BenchError> {
    let mut crowd = Crowd::new(hierarchy, busy)?;
    let dir = CgroupDir::open(&crowd.path)?;
    let (mut holds, mut releases) = (Vec::with_capacity(turns), Vec::with_capacity(turns));
    for _ in 0..turns {
        holds.push(timed(|| freezer.freeze(&dir))?);
        crowd.ask()?;
        let begin = Instant::now();
        freezer.thaw(&dir)?;
        crowd.answer()?;
        releases.push(begin.elapsed());
    }
    timing(holds, releases)
}

/// Pauses and unpauses a container that is there already. Both are over when the freezer says so.
pub fn docker(
    pauser: &Pauser,
    freezer: &Freezer,
    id: &ContainerId,
    dir: &CgroupDir,
    turns: usize,
) -> Result<Timing, BenchError> {
    let (mut holds, mut releases) = (Vec::with_capacity(turns), Vec::with_capacity(turns));
    for _ in 0..turns {
        holds.push(timed(|| pause::pause(pauser, freezer, id, dir))?);
        releases.push(timed(|| pause::unpause(pauser, freezer, id, Some(dir)))?);
    }
    timing(holds, releases)
}

fn timed<E>(what: impl FnOnce() -> Result<(), E>) -> Result<Duration, E> {
    let begin = Instant::now();
    what().map(|()| begin.elapsed())
}

fn timing(holds: Vec<Duration>, releases: Vec<Duration>) -> Result<Timing, BenchError> {
    let hold = Quantiles::of(holds).ok_or(BenchError::NoTurns)?;
    Ok(Timing { hold, release: Quantiles::of(releases).ok_or(BenchError::NoTurns)? })
}

/// The processes that are frozen, in a cgroup of their own; gone with it.
#[derive(Debug)]
struct Crowd {
    path: PathBuf,
    children: Vec<Child>,
}

impl Crowd {
    fn new(hierarchy: &Path, busy: usize) -> Result<Crowd, BenchError> {
        let path = hierarchy.join(format!("berth-bench-{}", std::process::id()));
        fs::create_dir(&path).map_err(|source| BenchError::Io { attempt: "make a cgroup", source })?;
        let mut crowd = Crowd { path, children: Vec::new() };
        crowd.add(Command::new("cat"))?;
        for _ in 0..busy {
            let mut spinning = Command::new("sh");
            // Whoever is killed cannot kill: it watches its parent itself.
            spinning.args(["-c", "while kill -0 $PPID; do :; done 2>/dev/null"]);
            crowd.add(spinning)?;
        }
        Ok(crowd)
    }

    fn add(&mut self, mut command: Command) -> Result<(), BenchError> {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let child = child.map_err(|source| BenchError::Io { attempt: "start a process to freeze", source })?;
        let pid = child.id().to_string();
        self.children.push(child);
        let moved = fs::write(self.path.join("cgroup.procs"), pid);
        moved.map_err(|source| BenchError::Io { attempt: "move a process into a cgroup", source })
    }

    fn ask(&mut self) -> Result<(), BenchError> {
        let asked = self.children[0].stdin.as_mut().map_or(Ok(()), |stdin| stdin.write_all(b"x"));
        asked.map_err(|source| BenchError::Io { attempt: "write to a frozen process", source })
    }

    fn answer(&mut self) -> Result<(), BenchError> {
        let answered = self.children[0].stdout.as_mut().map_or(Ok(()), |stdout| stdout.read_exact(&mut [0]));
        answered.map_err(|source| BenchError::Io { attempt: "read from a thawed process", source })
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        // On v1 the frozen cannot even die.
        let thawed = CgroupDir::open(&self.path).and_then(|dir| dir.thaw(Duration::from_secs(1)));
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        if let Err(error) = fs::remove_dir(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, ?thawed, "the benchmark's cgroup is left behind");
        }
    }
}
