//! `berth bench policy`: what the policies inside a GPU come to, in virtual time.
//!
//! `completion` measures `jct` on jobs, `promises` measures `slo` on goals that `feasible` shows can be kept and beside what `online` keeps, `mixture` all three on both with `fairness`
//! beside it, `switching` changes them while work runs, `changing` has `auto` find the best; `planning` measures what a plan costs. `world` is the GPU and what the daemon does around a
//! policy; `goals` judges, `report` shows. The same seeds give the same figures. `jct` and the world were tuned on seeds 1 to 5; what `slo` does of
//! queues and misses to spare, and what `hybrid` tries, on seeds up to 400. Those that are measured unless others are asked for begin at [`FIRST_SEED`].

pub mod changing;
pub mod completion;
pub mod fairness;
pub mod feasible;
pub mod goals;
pub mod mixture;
pub mod online;
pub mod planning;
pub mod promises;
pub mod report;
pub mod switching;
#[cfg(test)]
mod tests;
pub mod world;

use report::Report;

/// From 401 on nothing was tuned.
pub const FIRST_SEED: u32 = 101;

/// What to measure.
#[derive(Debug, Clone)]
pub struct Plan {
    pub seeds: Vec<u64>,
    /// Jobs of each tenant in `completion`.
    pub jobs: usize,
    /// Sets of goals that are tried.
    pub sets: usize,
    /// How long requests come.
    pub seconds: f64,
}

/// `told` hears what is being run; when `is_enough` says so it ends with what it has.
pub fn run(plan: &Plan, is_enough: &dyn Fn() -> bool, told: &dyn Fn(&str)) -> Report {
    let mut report = Report::new(plan);
    for mix in completion::Mix::ALL {
        told(&format!("jobs, {}", mix.as_str()));
        report.completion.push(completion::measure(mix, plan.jobs, &plan.seeds));
        if is_enough() {
            return report.judged();
        }
    }
    let first = plan.seeds.first().copied().unwrap_or(1);
    told(&format!("{} sets of goals at {:.0} % load, each with an offline search", plan.sets, promises::LOAD * 100.0));
    for seed in (first..).take(plan.sets) {
        report.promises.push(promises::measure(plan.seconds, seed));
        if is_enough() {
            return report.judged();
        }
    }
    told("servers, jobs and work without a goal together");
    report.mixture = mixture::measure(plan.seconds, &plan.seeds);
    told("changing the policy at every plan");
    report.switching = Some(switching::measure(plan.seconds, first));
    told("work that changes, and auto");
    report.changing = changing::measure(plan.seconds, &plan.seeds);
    report.judged()
}
