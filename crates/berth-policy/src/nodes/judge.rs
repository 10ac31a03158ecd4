//! A whole node before a question: which of its GPUs would be taken, or why it is left out.

use berth_model::Mono;
use berth_model::cluster::{Choice, Engine, NotHere, Strategy, Wanted};
use berth_model::id::GpuUuid;

use super::line::Line;
use super::node::{Gpu, Latest, Node};
use super::{NodesSettings, Place, fit, paper};

/// How good a place is: lower is better. Of one question and strategy it can be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank(pub u64);

/// GPUs of one node that will do.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Found {
    /// Of the worst of them.
    pub rank: Rank,
    /// By their number in the report.
    gpus: Vec<usize>,
}

/// A question, made ready to be put to many nodes.
#[derive(Debug)]
pub(super) struct Asked<'a> {
    pub by: By,
    gpus: usize,
    settings: &'a NodesSettings,
}

#[derive(Debug)]
pub(super) enum By {
    Fit(Box<fit::Ask>),
    Paper(paper::Ask),
}

impl<'a> Asked<'a> {
    pub fn new(wanted: &Wanted, settings: &'a NodesSettings) -> Self {
        let by = match settings.strategy {
            Strategy::Fit => By::Fit(Box::new(fit::Ask::new(wanted, settings.order))),
            Strategy::Paper => By::Paper(paper::Ask::new(wanted)),
        };
        Self { by, gpus: wanted.gpus.max(1) as usize, settings }
    }

    /// `None`: it is left out. `lines` are those of its GPUs that answer, under `fit`.
    pub fn place(&self, node: &Node, lines: &[Line], now: Mono) -> Option<Found> {
        self.is_open(node, now).ok()?;
        let judged = node.gpus().enumerate().map(|(at, (number, gpu))| (number, self.judge(&gpu, lines.get(at), now)));
        if self.gpus == 1 {
            let best = judged.filter_map(|(number, rank)| Some((rank.ok()?, number))).min()?;
            return Some(Found { rank: best.0, gpus: vec![best.1] });
        }
        let mut gpus: Vec<(Rank, usize)> = judged.filter_map(|(number, rank)| Some((rank.ok()?, number))).collect();
        gpus.sort_unstable();
        gpus.truncate(self.gpus);
        let worst = gpus.last().filter(|_| gpus.len() == self.gpus)?;
        Some(Found { rank: worst.0, gpus: gpus.iter().map(|(_, number)| *number).collect() })
    }

    /// Of a node that is left out.
    pub fn why_not(&self, node: &Node, lines: &[Line], now: Mono) -> NotHere {
        if let Err(why) = self.is_open(node, now) {
            return why;
        }
        if !node.reservations.is_empty() {
            let without = node.without_reservations();
            let lines: Vec<Line> = without.gpus().map(|(_, gpu)| gpu.line()).collect();
            if self.place(&without, &lines, now).is_some() {
                return NotHere::Reserved;
            }
        }
        let judged = node.gpus().enumerate().map(|(at, (_, gpu))| self.judge(&gpu, lines.get(at), now));
        let mut refusals: Vec<NotHere> = judged.filter_map(Result::err).collect();
        // With as many as are wanted, the last of them is what is missing.
        refusals.sort_by(|one, other| shortfall(one).total_cmp(&shortfall(other)));
        let fit = node.gpus().count() - refusals.len();
        refusals.into_iter().nth(self.gpus - 1 - fit).unwrap_or(NotHere::GpusLost)
    }

    /// Whether these of its GPUs will do, each of them.
    pub fn holds(&self, node: &Node, gpus: &[GpuUuid], now: Mono) -> Result<(), NotHere> {
        self.is_open(node, now)?;
        gpus.iter().try_for_each(|uuid| {
            let (_, gpu) = node.gpus().find(|(_, gpu)| gpu.report.uuid == *uuid).ok_or(NotHere::GpusLost)?;
            self.judge(&gpu, Some(&gpu.line()), now).map(drop)
        })
    }

    pub fn to_place(&self, node: &Node, found: &Found) -> Place {
        let report = &node.latest.as_ref().expect("a node without a report is no place").report;
        let gpus = found.gpus.iter().map(|number| report.gpus[*number].uuid.clone()).collect();
        let score = match self.by {
            By::Fit(_) => fit::Ask::score(found.rank),
            By::Paper(_) => paper::Ask::score(found.rank),
        };
        Place { choice: Choice { node: node.id.clone(), gpus }, score }
    }

    /// Its engine takes something, it has reported lately, and it has enough GPUs that answer.
    fn is_open(&self, node: &Node, now: Mono) -> Result<(), NotHere> {
        if node.engine != Engine::Ready {
            return Err(NotHere::Engine { engine: node.engine });
        }
        let Latest { report, made } = node.latest.as_ref().ok_or(NotHere::NoReport)?;
        let age = now.since(*made);
        if node.is_stale || age > self.settings.stale_after {
            return Err(NotHere::Stale { age_seconds: age.as_secs_f64() });
        }
        let answering = report.gpus.iter().filter(|gpu| !gpu.is_lost).count();
        if answering == 0 && !report.gpus.is_empty() {
            return Err(NotHere::GpusLost);
        }
        if answering < self.gpus {
            let told = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
            return Err(NotHere::TooFewGpus { gpus: told(answering), wanted: told(self.gpus) });
        }
        Ok(())
    }

    fn judge(&self, gpu: &Gpu<'_>, line: Option<&Line>, now: Mono) -> Result<Rank, NotHere> {
        match (&self.by, line) {
            (By::Fit(ask), Some(line)) => {
                let column = fit::column(gpu.has_missed(self.settings.miss_window), gpu.free_bytes());
                ask.judge(gpu, column, line, now)
            }
            (By::Fit(_), None) => Err(NotHere::NoReport),
            (By::Paper(ask), _) => ask.judge(gpu, now),
        }
    }
}

/// How far a GPU is from doing: time that is missing, then memory, then what time does not mend.
fn shortfall(why: &NotHere) -> f64 {
    const MEMORY: f64 = 1e12;
    const STATE: f64 = 1e24;
    #[expect(clippy::cast_precision_loss, reason = "to compare")]
    match why {
        NotHere::WouldBeLate { due_seconds, room_seconds } => due_seconds - room_seconds,
        NotHere::FloatTooShort { float_seconds, deadline_seconds } => deadline_seconds - float_seconds,
        NotHere::TooShort { needs_seconds, deadline_seconds } => needs_seconds - deadline_seconds,
        NotHere::TooLittleMemory { free_bytes, .. } => MEMORY + (u64::MAX - free_bytes.0) as f64,
        _ => STATE,
    }
}
