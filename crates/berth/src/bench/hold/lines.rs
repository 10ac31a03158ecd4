//! What a tenant says of itself: the workload's lines, each with its own clock.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use berth_load::{Edge, Event, Line, Moment, Phase};

use crate::interrupt::Interrupt;

/// What a tenant does is waited for no longer than this.
const PATIENCE: Duration = Duration::from_secs(60);
/// What a tenant does it has written down after this long.
const SAID_BY: Duration = Duration::from_millis(5);

/// The file with the lines of one tenant. The workload appends, so it may be emptied while it writes.
#[derive(Debug, Clone)]
pub struct Lines {
    path: PathBuf,
    interrupt: Interrupt,
}

impl Lines {
    pub fn new(path: &Path, interrupt: &Interrupt) -> Lines {
        Lines { path: path.to_owned(), interrupt: interrupt.clone() }
    }

    /// Whatever was said before is forgotten.
    pub fn empty(&self) -> anyhow::Result<()> {
        let emptied = File::options().write(true).truncate(true).open(&self.path);
        emptied.map(drop).with_context(|| format!("emptying {}", self.path.display()))
    }

    /// Those that are written in full.
    pub fn read(&self) -> anyhow::Result<Vec<Line>> {
        let text = match fs::read_to_string(&self.path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            text => text.with_context(|| format!("reading {}", self.path.display()))?,
        };
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let parsed = |text: &str| serde_json::from_str(text).with_context(|| format!("a line of the workload: {text}"));
        whole.lines().map(parsed).collect()
    }

    /// The first that is dated after `ns`.
    pub fn first_after(&self, ns: u64) -> anyhow::Result<Line> {
        self.until("running again", |lines| lines.iter().find(|line| line.at.mono_ns > ns).cloned())
    }

    /// Until its next line can only come after a launch: it stands at one, or is about to. When it came there. One whose kernel
    /// is just done has begun it as well, and has yet to say that it is over: so it is asked twice.
    pub fn until_at_launch(&self) -> anyhow::Result<u64> {
        let is_begun =
            |line: &&Line| matches!(line.event, Event::Phase { phase: Phase::Kernel, edge: Edge::Begin, .. });
        let begun = || self.until("at a launch", |lines| lines.last().filter(is_begun).map(|line| line.at.mono_ns));
        let mut before = begun()?;
        loop {
            std::thread::sleep(SAID_BY);
            match begun()? {
                same if same == before => return Ok(same),
                later => before = later,
            }
        }
    }

    pub fn until_moment(&self, wanted: Moment, of_task: u32) -> anyhow::Result<()> {
        let is_it = |line: &Line| {
            line.task == of_task && matches!(line.event, Event::Moment { moment, .. } if moment == wanted)
        };
        self.until("that far", |lines| lines.iter().any(is_it).then_some(()))
    }

    /// How long its rounds of kernels took, in nanoseconds.
    pub fn rounds_ns(&self) -> anyhow::Result<Vec<f64>> {
        let mut begun = None;
        let mut rounds = Vec::new();
        for line in self.read()? {
            match line.event {
                Event::Phase { phase: Phase::Kernel, edge: Edge::Begin, .. } => begun = Some(line.at.mono_ns),
                Event::Phase { phase: Phase::Kernel, edge: Edge::End, .. } => {
                    rounds.extend(begun.take().map(|from| line.at.mono_ns.saturating_sub(from) as f64));
                }
                _ => {}
            }
        }
        Ok(rounds)
    }

    pub fn until<T>(&self, what: &str, found: impl Fn(&[Line]) -> Option<T>) -> anyhow::Result<T> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = found(&self.read()?) {
                return Ok(found);
            }
            self.interrupt.check()?;
            if Instant::now() > deadline {
                bail!("the tenant of {} is not {what} after {} s", self.path.display(), PATIENCE.as_secs());
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}
