//! What the measurement has to show, judged by what it showed.

use super::cell::{Cell, Column};
use super::together::Together;
use crate::bench::contention::goals::Goal;

/// The load above which not all can be in time.
const OVERLOAD_PCT: u32 = 110;
/// Share of the deadlines that may be missed beyond those the offline optimum misses, where there is more work than time.
const GRACE: f64 = 0.10;
/// Jobs without a deadline get what is left, and stay no longer than this many times as long as they do under `fifo`.
const LEFT_OVER: f64 = 3.0;

pub fn judge(cells: &[Cell], together: &Together) -> Vec<Goal> {
    let mut goals = Vec::from_iter((together.cases > 0).then(|| as_good_as_any_order(together)));
    goals.extend(cells.iter().filter_map(no_more_than_fifo));
    goals.extend(cells.iter().filter_map(gap));
    goals.extend(cells.iter().filter(|cell| cell.load_pct >= OVERLOAD_PCT).filter_map(graceful));
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

/// Told, not judged: what a policy that does not see the future cannot reach.
fn gap(cell: &Cell) -> Option<Goal> {
    let edf = cell.ways.get("edf")?.miss_rate.mean;
    let (least, most) = cell.optimum_rate();
    let reached = format!("{:.1} to {:.1} points above it", points(edf - most), points(edf - least));
    Some(Goal::new(&format!("edf, gap to the offline optimum, load {} %", cell.load_pct), "told", reached))
}

fn graceful(cell: &Cell) -> Option<Goal> {
    let edf = cell.ways.get("edf")?;
    let (least, _) = cell.optimum_rate();
    let above = edf.miss_rate.mean - least;
    let name = format!("edf, load {} %: beyond what must be missed", cell.load_pct);
    let reached = format!("{:.1} points", points(above));
    Some(Goal::new(&name, &format!("≤ {:.0} points", points(GRACE)), reached).judged(above <= GRACE))
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
