//! What a run gave each tenant, and against what: its own time from its start to its end, and how long its bursts took.
//!
//! The total and the mean of all say nothing about one tenant that pays for the others. A burst's time is from when the tenant
//! wanted to compute until it had: what it waited is in it.

use berth_sim::scenario::{Phase, Run};
use serde::Serialize;

use super::cell::Sample;

const NS: f64 = 1e9;

/// One tenant's times, in seconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Own {
    /// When it started, from the first start on.
    start: f64,
    /// From its start until it has ended.
    pub stay: f64,
    /// From its start until its first kernel began.
    head: f64,
    /// From its last kernel's end until its own.
    tail: f64,
    /// From wanting to compute to having computed, each time.
    pub bursts: Vec<f64>,
}

/// One way against unmanaged with the same starts, tenant by tenant.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct OverUnmanaged {
    /// Each tenant's stay, mean of all runs.
    pub stays: Vec<f64>,
    /// The worst stay of any tenant in any run.
    pub worst_stay: f64,
    /// Mean time of a burst of each tenant that has several, mean of all runs.
    pub bursts: Vec<Option<f64>>,
    /// The longest burst of each tenant that has several over its longest unmanaged, mean of all runs.
    pub longest_bursts: Vec<Option<f64>>,
    /// Mean time of a burst, in seconds, mean of all runs.
    pub burst_seconds: Vec<Option<f64>>,
}

impl Own {
    pub fn of(run: &Run) -> Own {
        let seconds = |ns: u64| ns as f64 / NS;
        let start = run.phases.iter().find(|(phase, ..)| *phase != Phase::Arrival).map_or(0, |(_, begin, _)| *begin);
        let kernels = || run.phases.iter().filter(|(phase, ..)| *phase == Phase::Kernel);
        let end = run.ended_ns();
        Own {
            start: seconds(start),
            stay: seconds(end - start),
            head: seconds(kernels().next().map_or(end, |(_, begin, _)| *begin) - start),
            tail: seconds(end - kernels().next_back().map_or(start, |(.., end)| *end)),
            bursts: bursts(run),
        }
    }

    /// `None`: it has too few bursts to speak of how long they take.
    fn mean_burst(&self) -> Option<f64> {
        (self.bursts.len() > 1).then(|| self.bursts.iter().sum::<f64>() / self.bursts.len() as f64)
    }

    fn longest_burst(&self) -> Option<f64> {
        self.bursts.iter().copied().reduce(f64::max).filter(|_| self.bursts.len() > 1)
    }
}

impl OverUnmanaged {
    pub fn of(samples: &[Sample], unmanaged: &[Sample]) -> OverUnmanaged {
        let pairs = || samples.iter().zip(unmanaged);
        let tenants = samples.first().map_or(0, |sample| sample.own.len());
        let mean = |tenant: usize, of: &dyn Fn(&Own) -> Option<f64>| {
            let ratios = pairs().map(|(one, other)| Some(of(&one.own[tenant])? / of(&other.own[tenant])?));
            let ratios: Vec<f64> = ratios.collect::<Option<_>>()?;
            Some(ratios.iter().sum::<f64>() / ratios.len() as f64)
        };
        let each = |of: &dyn Fn(&Own) -> Option<f64>| (0..tenants).map(|tenant| mean(tenant, of)).collect();
        let all = pairs().flat_map(|(one, other)| one.own.iter().zip(&other.own));
        let seconds = |tenant: usize| {
            let means: Vec<f64> =
                samples.iter().map(|sample| sample.own[tenant].mean_burst()).collect::<Option<_>>()?;
            Some(means.iter().sum::<f64>() / means.len() as f64)
        };
        OverUnmanaged {
            stays: (0..tenants).filter_map(|tenant| mean(tenant, &|own| Some(own.stay))).collect(),
            worst_stay: all.map(|(one, other)| one.stay / other.stay).fold(0.0, f64::max),
            bursts: each(&Own::mean_burst),
            longest_bursts: each(&Own::longest_burst),
            burst_seconds: (0..tenants).map(seconds).collect(),
        }
    }

    /// Of the tenant whose bursts take longest against unmanaged, how much longer.
    pub fn slowest_bursts(&self) -> f64 {
        self.bursts.iter().flatten().copied().fold(0.0, f64::max)
    }
}

/// `alone`: the same programs one by one; `sample`: with their starts.
pub fn bound(alone: &Sample, sample: &Sample) -> Option<f64> {
    let each = || alone.own.iter().zip(&sample.own);
    let least = |of: &dyn Fn((&Own, &Own)) -> f64| each().map(of).reduce(f64::min);
    let first_kernel = least(&|(alone, own)| own.start + alone.head)?;
    let shortest_end = least(&|(alone, _)| alone.tail)?;
    let longest_alone = each().map(|(alone, own)| own.start + alone.stay).reduce(f64::max)?;
    Some((first_kernel + alone.spent.computing + shortest_end).max(longest_alone))
}

fn bursts(run: &Run) -> Vec<f64> {
    let mut bursts = Vec::new();
    let mut waited = 0;
    for (phase, begin, end) in &run.phases {
        match phase {
            Phase::Turn => waited += end - begin,
            Phase::Kernel => bursts.push((end - begin + std::mem::take(&mut waited)) as f64 / NS),
            _ => {}
        }
    }
    bursts
}
