//! One load, every way, every seed: the cell of the table.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use serde::Serialize;

use super::{IsEnough, Plan};
use crate::bench::contention::estimate::Estimate;
use crate::cluster_sim::{self, FACTORS, Missed, Outcome, Progress, Setup, Way};

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cell {
    /// GPU seconds that come in a hundred, over all GPUs.
    pub load_pct: u32,
    pub ways: BTreeMap<Way, Column>,
}

/// One way over all seeds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Column {
    /// Of all deadlines, of tasks and of bursts, the share that was missed.
    pub miss_rate: Estimate,
    pub task_miss_rate: Option<Estimate>,
    pub burst_miss_rate: Option<Estimate>,
    /// Share that is missed even alone on a GPU.
    pub lost_rate: f64,
    /// Of tasks, by the factor of their deadline, tight ones first.
    pub miss_rate_by_tightness: [Option<f64>; FACTORS.len()],
    /// Share of the GPUs' time in which they computed.
    pub utilisation: Option<Estimate>,
    /// Share of the containers that found no place when they came, and how long these waited.
    pub waited_rate: f64,
    pub waited_seconds: Option<f64>,
    /// Of containers without a deadline: from coming to their end over what they compute.
    pub stay_over_alone: Option<f64>,
    /// Seed by seed.
    pub outcomes: Vec<Outcome>,
}

impl Cell {
    /// `None` if it was enough before all was measured.
    pub fn measure(load_pct: u32, setup: &Setup, plan: &Plan, is_enough: &IsEnough<'_>) -> Option<Cell> {
        let column = |way: &Way| {
            let outcomes = outcomes(&Setup { way: *way, ..setup.clone() }, &plan.seeds, is_enough);
            Some((*way, Column::of(outcomes).filter(|_| !is_enough())?))
        };
        let ways = plan.ways.iter().map(column).collect::<Option<_>>()?;
        Some(Cell { load_pct, ways })
    }
}

/// All seeds side by side: a run has nothing to do with another.
fn outcomes(setup: &Setup, seeds: &[u64], is_enough: &IsEnough<'_>) -> Vec<Outcome> {
    let run = |seed: u64| {
        let mut told = |_: &Progress| if is_enough() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        cluster_sim::run(&Setup { seed, ..setup.clone() }, &mut told)
    };
    std::thread::scope(|scope| {
        let runs: Vec<_> = seeds.iter().map(|seed| scope.spawn(|| run(*seed))).collect();
        runs.into_iter().map(|run| run.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

impl Column {
    /// `None` without runs that had deadlines.
    fn of(outcomes: Vec<Outcome>) -> Option<Column> {
        let rates = |of: fn(&Outcome) -> Missed| outcomes.iter().filter_map(move |one| of(one).rate());
        let sum =
            |of: &dyn Fn(&Outcome) -> Missed| outcomes.iter().map(of).fold(Missed::default(), |all, one| all + one);
        let mean = |of: fn(&Outcome) -> Option<f64>| Some(Estimate::of(outcomes.iter().filter_map(of))?.mean);
        let containers: u64 = outcomes.iter().map(|outcome| outcome.containers).sum();
        let waited: u64 = outcomes.iter().map(|outcome| outcome.waited).sum();
        Some(Column {
            miss_rate: Estimate::of(rates(Outcome::all))?,
            task_miss_rate: Estimate::of(rates(|outcome| outcome.tasks)),
            burst_miss_rate: Estimate::of(rates(|outcome| outcome.bursts)),
            lost_rate: sum(&Outcome::all).lost_rate()?,
            miss_rate_by_tightness: std::array::from_fn(|class| {
                sum(&|outcome| outcome.tasks_by_tightness[class]).rate()
            }),
            utilisation: Estimate::of(outcomes.iter().filter_map(|outcome| outcome.utilisation)),
            waited_rate: waited as f64 / containers.max(1) as f64,
            waited_seconds: mean(|outcome| outcome.waited_seconds),
            stay_over_alone: mean(|outcome| outcome.stay_over_alone),
            outcomes,
        })
    }

    /// Seed by seed.
    pub fn miss_rates(&self) -> impl Iterator<Item = f64> {
        self.outcomes.iter().filter_map(|outcome| outcome.all().rate())
    }
}
