//! `berth bench contention`: tenants that contend for a simulated GPU in virtual time, under every policy.
//!
//! No clock, no files, no output; the same seeds give the same figures. `arena` puts a policy and the costs of berth's
//! hands around the processes of a scenario, `cell` runs one case in every way, `own` says what each tenant got of it, `figure` names the published figures,
//! `goals` judges, `report` and `plots` show.

pub mod arena;
pub mod cell;
pub mod costs;
pub mod estimate;
pub mod figure;
#[cfg(test)]
mod findings;
pub mod goals;
pub mod own;
pub mod plots;
pub mod report;
pub mod svg;
pub mod tenants;
#[cfg(test)]
mod tests;
pub mod workload;

use berth_sim::Profile;
use berth_sim::scenario::Failed;

use cell::{Case, Contender, Way};
use costs::Costs;
use figure::Figure;
use report::Report;

/// What to measure.
#[derive(Debug, Clone)]
pub struct Plan {
    pub figures: Vec<Figure>,
    /// Name of the profile, by which goals are found.
    pub profile_name: String,
    pub profile: Profile,
    pub contenders: Vec<Contender>,
    /// Runs of each cell.
    pub seeds: usize,
}

#[derive(Debug, thiserror::Error)]
#[error("running {workload} on {tenants} tenants")]
pub struct CellFailed {
    workload: String,
    tenants: usize,
    source: Failed,
}

/// `told` hears what is being run.
pub fn run(plan: &Plan, told: &dyn Fn(&str)) -> Result<Report, CellFailed> {
    let ways: Vec<Way> = [Way::OneByOne, Way::Unmanaged, Way::Mps, Way::KernelLock, Way::Watched]
        .into_iter()
        .chain(plan.contenders.iter().copied().map(Way::Managed))
        .collect();
    let seeds: Vec<u64> = (1..).take(plan.seeds).collect();
    let mut cells = Vec::new();
    for figure in &plan.figures {
        let mut new: Vec<Case> = figure.cases();
        new.retain(|case| !cells.iter().any(|cell: &cell::Cell| cell.case == *case));
        if !new.is_empty() {
            let runs = new.len() * ways.len() * seeds.len();
            told(&format!("{}: {runs} runs", figure.name()));
        }
        for case in new {
            let failed = |source| CellFailed { workload: case.workload.name(), tenants: case.tenants, source };
            cells.push(case.measure(&ways, &plan.profile, &seeds).map_err(failed)?);
        }
    }
    let gpu = match plan.profile_name.as_str() {
        "rtx3090" => goals::Gpu::Rtx3090,
        "h200" => goals::Gpu::H200,
        _ => goals::Gpu::Other,
    };
    Ok(Report {
        berth: env!("CARGO_PKG_VERSION").to_owned(),
        gpu: plan.profile.gpu.name.clone(),
        seeds: plan.seeds,
        costs: Costs::CGROUP,
        figures: plan.figures.clone(),
        goals: goals::judge(&cells, gpu),
        cells,
    })
}
