//! What the measurement has to show, judged by what it showed. What was not measured is not judged.

use super::completion::{Cell, Mix};
use super::report::Report;
use super::switching::Switched;
use crate::bench::contention::goals::Goal;

/// Shortest first makes the longest job wait for ever while others come. `jct` bounds that, and what one that has waited gets done is done
/// out of order: its price on the mean.
const BOUND_COSTS: f64 = 1.002;
/// Switches that have to be survived.
const SWITCHES: u64 = 1_000;

pub fn judge(report: &Report) -> Vec<Goal> {
    let mut goals: Vec<Goal> = report.completion.iter().flat_map(completion).collect();
    goals.extend(promises(report));
    goals.extend(goodput(report));
    goals.extend(report.switching.iter().flat_map(switching));
    goals
}

/// By the worst seed.
fn completion(cell: &Cell) -> Vec<Goal> {
    let most = if cell.mix == Mix::DoesNotPay { BOUND_COSTS } else { 1.0 };
    let goal = |over: &str, most: f64| {
        let (worst, mean) = cell.ratio(over)?;
        let name = format!("jct over {over}, {}", cell.mix.as_str());
        let reached = format!("×{mean:.3}, worst seed ×{worst:.4}");
        let wanted = if most > 1.0 { format!("≤ ×{most}") } else { "below ×1".to_owned() };
        Some(Goal::new(&name, &wanted, reached).judged(if most > 1.0 { worst <= most } else { worst < most }))
    };
    [goal("fifo", 1.0), goal("sjf", most)].into_iter().flatten().collect()
}

fn promises(report: &Report) -> Option<Goal> {
    let feasible = report.promises.iter().filter(|case| case.feasible.is_some());
    let (count, kept) = feasible.fold((0, 0), |(count, kept), case| (count + 1, kept + usize::from(case.missed == 0)));
    let reached = format!("{kept} of {count} ({} sets tried)", report.promises.len());
    let goal = Goal::new("slo keeps all goals that can be kept", "all", reached);
    (!report.promises.is_empty()).then(|| if count > 0 { goal.judged(kept == count) } else { goal })
}

fn goodput(report: &Report) -> Option<Goal> {
    let of = |name: &str| report.mixture.get(name);
    let (hybrid, jct, slo) = (of("hybrid")?, of("jct")?, of("slo")?);
    let better = jct.goodput.max(slo.goodput);
    let reached = format!("{:.3}, Jain {:.3}", hybrid.goodput, hybrid.jain);
    let name = "hybrid's goodput over the better of both";
    Some(Goal::new(name, &format!("≥ {better:.3}"), reached).judged(hybrid.goodput >= better))
}

fn switching(switched: &Switched) -> Vec<Goal> {
    let Switched { switches, lost, kernels, longest_wait_ms, bound_ms, .. } = switched;
    let name = format!("kernels lost by {switches} switches");
    let none = Goal::new(&name, "0", format!("{lost} of {kernels}"));
    let none = if *switches >= SWITCHES { none.judged(*lost == 0) } else { none };
    let wait =
        Goal::new("the longest wait meanwhile", &format!("≤ {bound_ms:.0} ms"), format!("{longest_wait_ms:.1} ms"));
    vec![none, wait.judged(longest_wait_ms <= bound_ms)]
}
