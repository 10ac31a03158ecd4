//! `berth bench edf`: how many deadlines are missed on a simulated GPU in virtual time, unmanaged and under each policy.
//!
//! No clock, no files, no output; the same seeds give the same figures. `load` draws jobs, `trial` runs them in the arena of
//! `contention`, `cell` is one load in every way, `bound` says what no order could do better. `together` sets `edf` against every order of a
//! few jobs (`solver`). `goals` judges, `report` and `plots` show.

pub mod alone;
pub mod bound;
pub mod cell;
pub mod goals;
pub mod load;
pub mod plots;
pub mod report;
pub mod solver;
#[cfg(test)]
mod tests;
pub mod together;
pub mod trial;

use berth_sim::Profile;
use berth_sim::scenario::Failed;

use crate::bench::contention::cell::{Contender, EDF, FIFO, PAPER};
use cell::Cell;
use report::Report;
use together::Together;
use trial::{Knows, Way};

pub const LOADS_PCT: [u32; 4] = [50, 80, 95, 110];

/// What to measure.
#[derive(Debug, Clone)]
pub struct Plan {
    pub profile: Profile,
    pub loads_pct: Vec<u32>,
    /// Jobs of each tenant in a run.
    pub jobs_each: usize,
    /// Of the loads: one run of each way with each.
    pub seeds: Vec<u64>,
    /// Cases of jobs that wait together, drawn from the first seed on.
    pub cases: usize,
}

#[derive(Debug, thiserror::Error)]
pub enum EdfFailed {
    #[error("running twenty tenants at {load_pct} % load")]
    Load { load_pct: u32, source: Failed },
    #[error("running case {seed} of jobs that wait together")]
    Together { seed: u64, source: Failed },
}

/// `told` hears what is being run.
pub fn run(plan: &Plan, told: &dyn Fn(&str)) -> Result<Report, EdfFailed> {
    let ways = ways();
    let mut cells = Vec::new();
    for load_pct in plan.loads_pct.iter().copied() {
        told(&format!("load {load_pct} %: {} runs", ways.len() * plan.seeds.len()));
        let cell = Cell::measure(load_pct, plan.jobs_each, &ways, &plan.profile, &plan.seeds);
        cells.push(cell.map_err(|source| EdfFailed::Load { load_pct, source })?);
    }
    if plan.cases > 0 {
        told(&format!("together: {} cases", plan.cases));
    }
    let together = together(plan)?;
    Ok(Report {
        berth: env!("CARGO_PKG_VERSION").to_owned(),
        gpu: plan.profile.gpu.name.clone(),
        seeds: plan.seeds.clone(),
        goals: goals::judge(&cells, &together),
        cells,
        together,
    })
}

/// `edf` with what the daemon would know, and for comparison with more and with less.
fn ways() -> Vec<Way> {
    let edf = |name, knows| Way::Managed(Contender { name, ..EDF }, knows);
    vec![
        Way::Unmanaged,
        Way::Managed(PAPER, Knows::Nothing),
        Way::Managed(FIFO, Knows::Earlier),
        edf("edf", Knows::Earlier),
        edf("edf-exact", Knows::Everything),
        edf("edf-unknown", Knows::Nothing),
    ]
}

fn together(plan: &Plan) -> Result<Together, EdfFailed> {
    let first = plan.seeds.first().copied().unwrap_or(1);
    let mut together = Together::default();
    for seed in (first..).take(plan.cases) {
        let case = together::case(EDF, &plan.profile, seed);
        together.add(case.map_err(|source| EdfFailed::Together { seed, source })?);
    }
    Ok(together)
}
