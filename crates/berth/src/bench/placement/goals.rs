//! What the measurement has to show, judged by what it showed.

use super::cell::{Cell, Column};
use crate::bench::contention::estimate::Estimate;
use crate::bench::contention::goals::Goal;
use crate::bench::report::Verdict;
use crate::cluster_sim::Way;

/// Judged at every load that was measured with `fit` and with another way.
pub fn judge(cells: &[Cell]) -> Vec<Goal> {
    cells.iter().filter_map(fewest_misses).collect()
}

fn fewest_misses(cell: &Cell) -> Option<Goal> {
    let fit = cell.ways.get(&Way::Fit)?;
    let others: Vec<(&Way, &Column)> = cell.ways.iter().filter(|(way, _)| **way != Way::Fit).collect();
    let against = others.iter().map(|(way, column)| format!("{} {}", way.as_str(), pct(column)));
    let reached = format!("{} against {}", pct(fit), against.collect::<Vec<_>>().join(", "));
    let verdict = others.iter().map(|(_, column)| fewer(fit, column)).max_by_key(|verdict| rank(*verdict))?;
    let name = format!("fit misses the fewest deadlines, load {} %", cell.load_pct);
    Some(Goal { verdict, ..Goal::new(&name, "lowest", reached) })
}

/// By the differences with the same seeds. If they may as well be nothing, it is not shown.
fn fewer(fit: &Column, other: &Column) -> Verdict {
    let differences = fit.miss_rates().zip(other.miss_rates()).map(|(fit, other)| fit - other);
    match Estimate::of(differences) {
        Some(difference) if difference.mean >= 0.0 => Verdict::NotMet,
        Some(difference) if difference.high < 0.0 => Verdict::Met,
        _ => Verdict::NotShown,
    }
}

/// Of several verdicts the worst counts.
fn rank(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Met => 0,
        Verdict::NotShown => 1,
        Verdict::NotMet => 2,
    }
}

fn pct(column: &Column) -> String {
    format!("{:.2} %", column.miss_rate.mean * 100.0)
}
