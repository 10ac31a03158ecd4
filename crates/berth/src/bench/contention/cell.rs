//! One workload on a number of tenants, run in every way: the cell of a table.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_model::hold::Means;
use berth_policy::edf::Edf;
use berth_policy::fifo::Fifo;
use berth_policy::paper::Paper;
use berth_policy::{EdfSettings, FifoSettings, Nobody, PaperSettings, Policy};
use berth_sim::scenario::{Failed, Order, Phase, Report, Run, Scenario};
use berth_sim::{Profile, Sharing};
use serde::Serialize;

use super::arena::{Arena, Terms, Told};
use super::costs::{Costs, PUBLISHED_TURN};
use super::estimate::Estimate;
use super::own::{self, Own};
use super::workload::{Workload, draw};

const NS: f64 = 1e9;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Case {
    pub workload: Workload,
    pub tenants: usize,
}

/// How the tenants of a case come to the GPU.
#[derive(Debug, Clone, Copy)]
pub enum Way {
    OneByOne,
    Unmanaged,
    Mps,
    /// A lock around each kernel, first come, first served, at no cost; the rest overlaps. No bound: who also orders contexts, or
    /// kernels by their length, does better. [`Cell::bound`] is one.
    KernelLock,
    /// berth watches with everything it has, and holds nobody: what seeing alone costs.
    Watched,
    Managed(Contender),
}

/// A policy, and what berth has on the host it is tried on.
#[derive(Debug, Clone, Copy)]
pub struct Contender {
    pub name: &'static str,
    pub policy: fn() -> Box<dyn Policy>,
    pub terms: fn(seed: u64) -> Terms,
    /// The same programs have run before, and what they did then is remembered.
    pub remembers: bool,
}

/// Algorithm 2 with the eyes and hands it was published with.
pub const PAPER: Contender = Contender {
    name: "paper",
    policy: || Box::new(Paper::new(PaperSettings::default())),
    terms: |seed| {
        let turn_ns = u64::try_from(PUBLISHED_TURN.as_nanos()).unwrap_or(u64::MAX);
        Terms::published(Duration::from_nanos(draw(seed, usize::MAX, turn_ns)))
    },
    remembers: false,
};
/// Algorithm 2 with berth's eyes and hands, as the daemon runs it.
pub const PAPER_BERTH: Contender =
    Contender { name: "paper-berth", terms: |_| Terms { means: [Means::Freeze].into(), ..Terms::full() }, ..PAPER };

/// By deadlines, with everything berth can have.
pub const EDF: Contender = Contender {
    name: "edf",
    policy: || Box::new(Edf::new(FifoSettings::default(), EdfSettings::default())),
    terms: |_| Terms::full(),
    remembers: false,
};

/// berth with everything it can have, the first time it sees these programs.
pub const FIFO: Contender = fifo("fifo", |_| Terms::full());
/// The same when they have run before.
pub const FIFO_KNOWN: Contender = Contender { name: "fifo-known", remembers: true, ..FIFO };
/// Docker's pause and unpause instead of the cgroup freezer.
pub const FIFO_DOCKER: Contender = fifo("fifo-docker", |_| Terms { costs: Costs::DOCKER, ..Terms::full() });
/// Calls are seen, nobody can be stopped at them: the driver's lock alone.
pub const FIFO_LOCK: Contender = fifo("fifo-lock", |_| Terms { means: [Means::Lock].into(), ..Terms::full() });
/// The same with the freezer alone.
pub const FIFO_FREEZE: Contender = fifo("fifo-freeze", |_| Terms { means: [Means::Freeze].into(), ..Terms::full() });
/// Both when the programs have run before: nobody is locked or frozen of whom it is not known that it pays.
pub const FIFO_LOCK_KNOWN: Contender = Contender { name: "fifo-lock-known", remembers: true, ..FIFO_LOCK };
pub const FIFO_FREEZE_KNOWN: Contender = Contender { name: "fifo-freeze-known", remembers: true, ..FIFO_FREEZE };
/// A host without eBPF: the driver's list every few milliseconds, lock and freezer.
pub const FIFO_BLIND: Contender = fifo("fifo-blind", |_| Terms::without_probes());

const WATCHED: Contender =
    Contender { name: "watched", policy: || Box::new(Nobody), terms: |_| Terms::full(), remembers: false };

const fn fifo(name: &'static str, terms: fn(u64) -> Terms) -> Contender {
    Contender { name, policy: || Box::new(Fifo::new(FifoSettings::default())), terms, remembers: false }
}

/// What one run gave, in seconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// From the first start until the last process has ended.
    pub total: f64,
    /// From the first input until the last output is done: what the papers measure.
    pub on_gpu: f64,
    /// From the first start until a process has ended, mean.
    pub completion: f64,
    pub input: f64,
    pub kernel: f64,
    pub output: f64,
    pub holds: f64,
    pub spent: Seconds,
    /// Each tenant's input to output.
    pub each: Vec<f64>,
    /// What each tenant got.
    pub own: Vec<Own>,
    pub decisions: Vec<Told>,
}

/// Where the time went; what each means is told at [`berth_sim::scenario::Spent`].
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Seconds {
    pub computing: f64,
    pub switching: f64,
    pub blocked: f64,
    pub handover: f64,
    pub idle: f64,
    pub start: f64,
    pub end: f64,
}

/// One way of one cell over all seeds, in seconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Column {
    pub total: Estimate,
    pub on_gpu: Estimate,
    pub completion: Estimate,
    pub input: f64,
    pub kernel: f64,
    pub output: f64,
    /// Per run.
    pub holds: f64,
    /// Total over unmanaged, by pairs with the same starts.
    pub total_over_unmanaged: Estimate,
    pub completion_over_unmanaged: Estimate,
    pub spent: Seconds,
    pub own: own::OverUnmanaged,
    /// Of the first seed.
    pub each: Vec<f64>,
    /// Of the first seed.
    pub decisions: Vec<Told>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cell {
    #[serde(flatten)]
    pub case: Case,
    /// The kernels alone, one after another.
    pub kernels: f64,
    /// Nobody is done earlier without running kernels side by side: until the first kernel of whoever is ready first, all
    /// kernels, and the end of whoever takes the shortest to end; or the longest of them alone.
    pub bound: f64,
    /// The sum of each tenant's input to output when it is alone: the published figures' line to compare with.
    pub alone: f64,
    pub ways: BTreeMap<&'static str, Column>,
}

impl Way {
    pub fn name(self) -> &'static str {
        match self {
            Way::OneByOne => "one-by-one",
            Way::Unmanaged => "unmanaged",
            Way::Mps => "mps",
            Way::KernelLock => "kernel-lock",
            Way::Watched => WATCHED.name,
            Way::Managed(contender) => contender.name,
        }
    }
}

impl Case {
    pub fn run(self, way: Way, profile: &Profile, seed: u64) -> Result<Sample, Failed> {
        let (order, sharing) = match way {
            Way::OneByOne => (Order::OneByOne, Sharing::TimeSliced),
            Way::KernelLock => (Order::KernelsOneByOne, Sharing::TimeSliced),
            Way::Mps => (Order::Together, Sharing::Mps),
            Way::Unmanaged | Way::Watched | Way::Managed(_) => (Order::Together, Sharing::TimeSliced),
        };
        let programs = self.workload.programs(self.tenants, seed);
        let scenario = Scenario { programs, order, sharing, seed };
        let contender = match way {
            Way::Managed(contender) => contender,
            Way::Watched => WATCHED,
            _ => return Ok(Sample::of(&scenario.run(profile)?, 0, Vec::new())),
        };
        let owners: Vec<String> = (0..self.tenants).map(|index| format!("user-{index}")).collect();
        let arena = || Arena::new((contender.policy)(), (contender.terms)(seed), &owners);
        let mut arena = if contender.remembers {
            let mut before = arena();
            let report = scenario.run_managed(profile, &mut before)?;
            arena().remembering(&before.pasts(report.total_ns))
        } else {
            arena()
        };
        let report = scenario.run_managed(profile, &mut arena)?;
        Ok(Sample::of(&report, arena.holds(), arena.decisions))
    }

    /// Every way with every seed.
    pub fn measure(self, ways: &[Way], profile: &Profile, seeds: &[u64]) -> Result<Cell, Failed> {
        let unmanaged = self.runs(Way::Unmanaged, profile, seeds)?;
        let one_by_one = self.runs(Way::OneByOne, profile, seeds)?;
        let mut columns = BTreeMap::new();
        for way in ways {
            let column = match way {
                Way::Unmanaged => Column::of(&unmanaged, &unmanaged),
                Way::OneByOne => Column::of(&one_by_one, &unmanaged),
                way => Column::of(&self.runs(*way, profile, seeds)?, &unmanaged),
            };
            columns.extend(column.map(|column| (way.name(), column)));
        }
        let kernels = unmanaged.first().map_or(0.0, |sample| sample.spent.computing);
        let alone = one_by_one.first().map_or(0.0, |sample| sample.each.iter().sum());
        let bounds = one_by_one.iter().zip(&unmanaged).filter_map(|(alone, sample)| own::bound(alone, sample));
        let bound = Estimate::of(bounds).map_or(kernels, |bound| bound.mean);
        Ok(Cell { case: self, kernels, bound, alone, ways: columns })
    }

    /// All seeds side by side: a run has nothing to do with another.
    fn runs(self, way: Way, profile: &Profile, seeds: &[u64]) -> Result<Vec<Sample>, Failed> {
        std::thread::scope(|scope| {
            let runs: Vec<_> = seeds.iter().map(|seed| scope.spawn(|| self.run(way, profile, *seed))).collect();
            let joined =
                runs.into_iter().map(|run| run.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            joined.collect()
        })
    }
}

impl Sample {
    fn of(report: &Report, holds: u32, decisions: Vec<Told>) -> Sample {
        let seconds = |phase| report.mean_ns(phase) / NS;
        let spans: Vec<(f64, f64)> = report.runs.iter().filter_map(input_to_output).collect();
        let first = spans.iter().map(|(begin, _)| *begin).fold(f64::INFINITY, f64::min);
        let last = spans.iter().map(|(_, end)| *end).fold(0.0, f64::max);
        Sample {
            total: report.total_ns as f64 / NS,
            on_gpu: (last - first).max(0.0),
            completion: report.mean_completion_ns() / NS,
            input: seconds(Phase::Input),
            kernel: seconds(Phase::Kernel),
            output: seconds(Phase::Output),
            holds: f64::from(holds),
            spent: Seconds::of(&report.spent),
            each: spans.iter().map(|(begin, end)| end - begin).collect(),
            own: report.runs.iter().map(Own::of).collect(),
            decisions,
        }
    }
}

impl Seconds {
    fn of(spent: &berth_sim::scenario::Spent) -> Seconds {
        Seconds {
            computing: spent.computing_ns / NS,
            switching: spent.switching_ns / NS,
            blocked: spent.blocked_ns / NS,
            handover: spent.handover_ns / NS,
            idle: spent.idle_ns / NS,
            start: spent.start_ns / NS,
            end: spent.end_ns / NS,
        }
    }

    /// Name and value of each part above the kernels themselves.
    pub fn above_kernels(&self) -> [(&'static str, f64); 6] {
        [
            ("switching", self.switching),
            ("blocked", self.blocked),
            ("handover", self.handover),
            ("idle", self.idle),
            ("start", self.start),
            ("end", self.end),
        ]
    }
}

impl Column {
    fn of(samples: &[Sample], unmanaged: &[Sample]) -> Option<Column> {
        let over = |of: fn(&Sample) -> f64| Estimate::of(samples.iter().zip(unmanaged).map(|(a, b)| of(a) / of(b)));
        let mean = |of: fn(&Sample) -> f64| Some(Estimate::of(samples.iter().map(of))?.mean);
        Some(Column {
            total: Estimate::of(samples.iter().map(|sample| sample.total))?,
            on_gpu: Estimate::of(samples.iter().map(|sample| sample.on_gpu))?,
            completion: Estimate::of(samples.iter().map(|sample| sample.completion))?,
            input: mean(|sample| sample.input)?,
            kernel: mean(|sample| sample.kernel)?,
            output: mean(|sample| sample.output)?,
            holds: mean(|sample| sample.holds)?,
            total_over_unmanaged: over(|sample| sample.total)?,
            completion_over_unmanaged: over(|sample| sample.completion)?,
            spent: Seconds {
                computing: mean(|sample| sample.spent.computing)?,
                switching: mean(|sample| sample.spent.switching)?,
                blocked: mean(|sample| sample.spent.blocked)?,
                handover: mean(|sample| sample.spent.handover)?,
                idle: mean(|sample| sample.spent.idle)?,
                start: mean(|sample| sample.spent.start)?,
                end: mean(|sample| sample.spent.end)?,
            },
            own: own::OverUnmanaged::of(samples, unmanaged),
            each: samples.first()?.each.clone(),
            decisions: samples.first()?.decisions.clone(),
        })
    }
}

/// Begin of its first input and end of its last output, in seconds.
fn input_to_output(run: &Run) -> Option<(f64, f64)> {
    let begin = run.phases.iter().find(|(phase, ..)| *phase == Phase::Input)?.1;
    let end = run.phases.iter().rev().find(|(phase, ..)| *phase == Phase::Output)?.2;
    Some((begin as f64 / NS, end as f64 / NS))
}
