//! What the measurement has to show, judged by what it showed.

use super::cell::{Cell, Column};
use super::together::Together;
use crate::bench::contention::goals::Goal;

/// At most so much work comes as can be done.
const FULL_PCT: u32 = 100;
/// Share of the deadlines that may be missed beyond those that must be, where more comes than can be done.
const GRACE: f64 = 0.10;
/// Jobs without a deadline get what is left, and stay no longer than this many times as long as they do under `fifo`.
const LEFT_OVER: f64 = 3.0;

pub fn judge(cells: &[Cell], together: &Together) -> Vec<Goal> {
    let mut goals = Vec::from_iter((together.cases > 0).then(|| as_good_as_any_order(together)));
    goals.extend(cells.iter().filter_map(no_more_than_fifo));
    goals.extend(graceful(cells));
    goals.extend(cells.iter().filter(|cell| cell.load_pct > FULL_PCT).filter_map(near_the_optimum));
    goals.extend(cells.iter().filter_map(nobody_starves));
    goals
}

fn as_good_as_any_order(together: &Together) -> Goal {
    let reached = format!(
        "{} more in {} of {} cases, {} missed in the best orders",
        together.edf_misses.saturating_sub(together.solver_misses),
        together.worse.len(),
        together.cases,
        together.solver_misses
    );
    Goal::new("edf, together: misses beyond the best order", "0", reached)
        .judged(together.worse.is_empty() && together.better == 0)
}

/// With every seed, not just on average.
fn no_more_than_fifo(cell: &Cell) -> Option<Goal> {
    let (edf, fifo) = (cell.ways.get("edf")?, cell.ways.get("fifo")?);
    let more = edf.misses.iter().zip(&fifo.misses).filter(|(edf, fifo)| edf > fifo).count();
    let reached = format!("{} against {}, more with {more} of {} seeds", pct(edf), pct(fifo), edf.misses.len());
    let name = format!("edf misses no more than fifo, load {} %", cell.load_pct);
    Some(Goal::new(&name, "no seed", reached).judged(more == 0))
}

/// Where more comes than can be done, as many jobs are in time in a second as before: one that is late drags no others with it.
fn graceful(cells: &[Cell]) -> Vec<Goal> {
    let in_time = |cell: &Cell, way| Some((1.0 - cell.ways.get(way)?.miss_rate.mean) * f64::from(cell.load_pct));
    let (full, over): (Vec<&Cell>, Vec<&Cell>) = cells.iter().partition(|cell| cell.load_pct <= FULL_PCT);
    let Some(full) = full.into_iter().max_by_key(|cell| cell.load_pct) else { return Vec::new() };
    let goal = |cell: &Cell| {
        let kept = |way| Some(in_time(cell, way)? / in_time(full, way)?);
        let edf = kept("edf")?;
        let others = ["fifo", "unmanaged"].iter().filter_map(|way| Some(format!("{way} ×{:.2}", kept(way)?)));
        let reached = format!("×{edf:.2} ({})", others.collect::<Vec<_>>().join(", "));
        let name = format!("edf, in time per second, load {} over {} %", cell.load_pct, full.load_pct);
        Some(Goal::new(&name, "≥ ×1", reached).judged(edf >= 1.0))
    };
    over.into_iter().filter_map(goal).collect()
}

/// Against what must be missed at least.
fn near_the_optimum(cell: &Cell) -> Option<Goal> {
    let gap = cell.edf_gap?.at_most;
    let name = format!("edf, load {} %: beyond what must be missed", cell.load_pct);
    let rate = cell.ways.get("edf")?.miss_rate.mean;
    let beside = points(rate - cell.least_beside_the_rest);
    let reached = format!("{:.1} points ({beside:.1} if those without a deadline have their share)", points(gap));
    Some(Goal::new(&name, &format!("≤ {:.0} points", points(GRACE)), reached).judged(gap <= GRACE))
}

fn nobody_starves(cell: &Cell) -> Option<Goal> {
    let (edf, fifo) = (cell.ways.get("edf")?.without_deadline, cell.ways.get("fifo")?.without_deadline);
    let over = edf.stay_over_alone.mean / fifo.stay_over_alone.mean;
    let reached = format!("×{over:.2}, the longest {:.0} s", edf.longest_stay_seconds);
    let name = format!("edf, without a deadline: stay over fifo's, load {} %", cell.load_pct);
    Some(Goal::new(&name, &format!("≤ ×{LEFT_OVER}"), reached).judged(over <= LEFT_OVER))
}

fn pct(column: &Column) -> String {
    format!("{:.1} %", points(column.miss_rate.mean))
}

fn points(share: f64) -> f64 {
    share * 100.0
}
