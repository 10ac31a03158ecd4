//! One load, every way, every seed: the cell of the table.

use std::collections::BTreeMap;

use berth_model::deadline::Verdict;
use berth_policy::EdfSettings;
use berth_sim::Profile;
use berth_sim::scenario::Failed;
use serde::Serialize;

use super::bound;
use super::load::{FACTORS, Load, tightness};
use super::trial::{Done, Way, beside_the_rest, for_the_optimum};
use crate::bench::contention::estimate::Estimate;

/// What is the same for every way.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cell {
    /// Kernel seconds that come in a hundred.
    pub load_pct: u32,
    /// Jobs of one run; how many of them have a deadline.
    pub jobs: usize,
    pub with_deadline: usize,
    /// Misses of the offline optimum, seed by seed.
    pub optimum: Vec<Between>,
    /// Share of the jobs with a deadline that must be missed if those without one have `edf.rest` of the GPU all the time.
    pub least_beside_the_rest: f64,
    /// Share of the jobs with a deadline that `edf` misses beyond what the offline optimum does.
    pub edf_gap: Option<Gap>,
    pub ways: BTreeMap<&'static str, Column>,
}

/// Where a number lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Between {
    pub least: usize,
    pub most: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Gap {
    pub at_least: f64,
    pub at_most: f64,
}

/// One way over all seeds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Column {
    /// Of the jobs with a deadline, the share that was late.
    pub miss_rate: Estimate,
    /// Seed by seed.
    pub misses: Vec<usize>,
    /// The same share, tenants with the tightest deadlines first.
    pub miss_rate_by_tightness: Vec<f64>,
    /// How late those are that are late: mean over all, and the worst.
    pub mean_lateness_seconds: Option<f64>,
    pub worst_lateness_seconds: Option<f64>,
    /// Jobs of any kind that were done in a minute.
    pub jobs_per_minute: Estimate,
    /// Of jobs without a deadline: their stay over what they take alone, mean and worst, and the longest stay.
    pub without_deadline: Without,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Without {
    pub stay_over_alone: Estimate,
    pub worst_stay_over_alone: f64,
    pub longest_stay_seconds: f64,
}

impl Cell {
    /// `each`: jobs of a tenant.
    pub fn measure(load_pct: u32, each: usize, ways: &[Way], profile: &Profile, seeds: &[u64]) -> Result<Cell, Failed> {
        let loads: Vec<(u64, Load)> =
            seeds.iter().map(|seed| (*seed, Load::new(f64::from(load_pct) / 100.0, each, *seed, profile))).collect();
        let jobs: Vec<Vec<bound::Job>> = loads.iter().map(|(_, load)| for_the_optimum(load)).collect();
        let optimum = jobs.iter().map(|jobs| Between { least: bound::at_least(jobs), most: bound::at_most(jobs) });
        let first = loads.first().map(|(_, load)| load);
        let mut columns = BTreeMap::new();
        for way in ways {
            let runs = runs(*way, &loads, profile)?;
            columns.extend(Column::of(&runs).map(|column| (way.name(), column)));
        }
        let cell = Cell {
            load_pct,
            jobs: first.map_or(0, |load| load.jobs.len()),
            with_deadline: first.map_or(0, |load| load.jobs.iter().filter(|job| job.deadline.is_some()).count()),
            optimum: optimum.collect(),
            least_beside_the_rest: least_beside_the_rest(&jobs),
            edf_gap: None,
            ways: columns,
        };
        Ok(Cell { edf_gap: cell.gap(), ..cell })
    }

    fn gap(&self) -> Option<Gap> {
        let rate = self.ways.get("edf")?.miss_rate.mean;
        let (least, most) = self.optimum_rate();
        Some(Gap { at_least: rate - most, at_most: rate - least })
    }

    /// What share of the jobs with a deadline the offline optimum misses: from where to where.
    pub fn optimum_rate(&self) -> (f64, f64) {
        let all = (self.with_deadline * self.optimum.len()).max(1) as f64;
        let sum = |of: fn(&Between) -> usize| self.optimum.iter().map(of).sum::<usize>() as f64 / all;
        (sum(|between| between.least), sum(|between| between.most))
    }
}

/// Over all seeds.
fn least_beside_the_rest(each: &[Vec<bound::Job>]) -> f64 {
    let rest = EdfSettings::default().rest;
    let least: usize = each.iter().map(|jobs| bound::at_least(&beside_the_rest(jobs, rest))).sum();
    least as f64 / each.iter().map(Vec::len).sum::<usize>().max(1) as f64
}

/// All seeds side by side: a run has nothing to do with another.
fn runs(way: Way, loads: &[(u64, Load)], profile: &Profile) -> Result<Vec<Vec<Done>>, Failed> {
    std::thread::scope(|scope| {
        let runs: Vec<_> = loads.iter().map(|(seed, load)| scope.spawn(|| way.run(load, profile, *seed))).collect();
        let joined = runs.into_iter().map(|run| run.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        joined.collect()
    })
}

impl Column {
    /// `None` without runs, or without jobs of both kinds in each.
    fn of(runs: &[Vec<Done>]) -> Option<Column> {
        let rates: Vec<f64> = runs.iter().map(miss_rate).collect::<Option<_>>()?;
        let late: Vec<f64> = runs.iter().flatten().filter_map(lateness).collect();
        let last = |run: &Vec<Done>| run.iter().map(|done| done.ended_seconds).fold(0.0, f64::max);
        Some(Column {
            miss_rate: Estimate::of(rates)?,
            misses: runs.iter().map(|run| run.iter().filter_map(lateness).count()).collect(),
            miss_rate_by_tightness: by_tightness(runs),
            mean_lateness_seconds: (!late.is_empty()).then(|| late.iter().sum::<f64>() / late.len() as f64),
            worst_lateness_seconds: late.iter().copied().reduce(f64::max),
            jobs_per_minute: Estimate::of(runs.iter().map(|run| run.len() as f64 * 60.0 / last(run)))?,
            without_deadline: Without::of(runs)?,
        })
    }
}

impl Without {
    fn of(runs: &[Vec<Done>]) -> Option<Without> {
        let of = |run: &Vec<Done>| run.iter().filter(|done| done.judged.is_none()).cloned().collect::<Vec<_>>();
        let over = |done: &Done| done.stay_seconds / done.alone_seconds;
        let without: Vec<Vec<Done>> = runs.iter().map(of).collect();
        let means = without.iter().filter_map(|run| Some(Estimate::of(run.iter().map(over))?.mean));
        let all = || without.iter().flatten();
        Some(Without {
            stay_over_alone: Estimate::of(means)?,
            worst_stay_over_alone: all().map(over).reduce(f64::max)?,
            longest_stay_seconds: all().map(|done| done.stay_seconds).reduce(f64::max)?,
        })
    }
}

/// By how much it was late; `None` if it was not, or had no deadline.
fn lateness(done: &Done) -> Option<f64> {
    let float = done.judged.as_ref()?.float_seconds;
    (Verdict::of(float) == Verdict::Miss).then(|| -float.unwrap_or_default())
}

fn miss_rate<'a>(run: impl IntoIterator<Item = &'a Done>) -> Option<f64> {
    let mut with_deadline = 0;
    let late = run.into_iter().filter(|done| done.judged.is_some()).filter(|done| {
        with_deadline += 1;
        lateness(done).is_some()
    });
    let late = late.count();
    (with_deadline > 0).then(|| late as f64 / f64::from(with_deadline))
}

fn by_tightness(runs: &[Vec<Done>]) -> Vec<f64> {
    let class = |wanted: usize| runs.iter().flatten().filter(move |done| tightness(done.tenant) == Some(wanted));
    (0..FACTORS.len()).filter_map(|wanted| miss_rate(class(wanted))).collect()
}
