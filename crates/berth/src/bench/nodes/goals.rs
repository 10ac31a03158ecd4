//! What the measurement has to show at the largest size, judged by what it showed.

use super::cell::Cell;
use super::report::name;
use crate::bench::contention::goals::Goal;
use crate::bench::quantiles::Quantiles;

/// Nodes for which the goals are.
const NODES: usize = 100_000;
const BUILT_MS: f64 = 5.0;
const APPLIED_US: f64 = 1.0;
const CHOICE_US: f64 = 10.0;

pub fn judge(cells: &[Cell]) -> Vec<Goal> {
    cells.iter().filter(|cell| cell.nodes == NODES).flat_map(of).collect()
}

fn of(cell: &Cell) -> Vec<Goal> {
    let who = name(cell.strategy);
    let built = goal(&format!("{who}: list built from nothing"), BUILT_MS, "ms", cell.built_ms, None);
    let limit = format!("{}; only to read the reports takes {:.2}", built.reached, cell.read_ms);
    let mut goals = vec![Goal { reached: limit, ..built }];
    let times = [
        ("one report applied, at random", APPLIED_US, Some(scaled(cell.applied_at_random_ns, 1e-3))),
        ("one report applied, in turn", APPLIED_US, Some(scaled(cell.applied_ns, 1e-3))),
        ("one choice", CHOICE_US, Some(cell.choice_us)),
        ("nobody has the memory", CHOICE_US, cell.no_memory_us),
        ("nobody has the time", CHOICE_US, cell.no_time_us),
    ];
    let measured = times.into_iter().filter_map(|(what, most, time)| Some((what, most, time?)));
    goals.extend(
        measured.map(|(what, most, time)| goal(&format!("{who}: {what}"), most, "µs", time.p50, Some(time.p99))),
    );
    goals
}

fn scaled(quantiles: Quantiles, factor: f64) -> Quantiles {
    let Quantiles { n, p50, p99, max } = quantiles;
    Quantiles { n, p50: p50 * factor, p99: p99 * factor, max: max * factor }
}

/// The median decides; where it is above the goal, by how much is said.
fn goal(name: &str, most: f64, unit: &str, reached: f64, p99: Option<f64>) -> Goal {
    let tail = p99.map_or_else(String::new, |p99| format!(", p99 {p99:.2}"));
    let over = if reached > most { format!(", ×{:.1} of the goal", reached / most) } else { String::new() };
    Goal::new(name, &format!("≤ {most:.0} {unit}"), format!("{reached:.2} {unit}{tail}{over}")).judged(reached <= most)
}
