//! What the measurement has to show, judged by what it showed. What was not measured is not judged.

use super::completion::{Cell, JCT, Mix, SAME, UNBOUNDED};
use super::feasible::Feasible;
use super::promises::Case;
use super::report::Report;
use super::switching::Switched;
use crate::bench::contention::goals::Goal;

/// Switches that have to be survived.
const SWITCHES: u64 = 1_000;
/// Finding out which policy is best costs `auto` some windows.
const FINDING_OUT: f64 = 0.95;

pub fn judge(report: &Report) -> Vec<Goal> {
    let mut goals: Vec<Goal> = report.completion.iter().flat_map(completion).collect();
    goals.extend(promises(report));
    goals.extend(goodput(report));
    goals.extend(report.switching.iter().flat_map(switching));
    goals.extend(auto(report));
    goals
}

/// By the worst seed. Where sharing does not pay, as it may not for any two of a mixed draw, there is nothing to gain over shortest first, and nothing
/// may be lost.
fn completion(cell: &Cell) -> Vec<Goal> {
    let goal = |way: &str, over: &str| {
        let (worst, mean) = cell.ratio(way, over)?;
        let gains = over == "fifo" || cell.mix == Mix::Pays;
        let name = format!("{way} over {over}, {}", cell.mix.as_str());
        let reached = format!("×{mean:.3}, worst seed ×{worst:.4}");
        let (wanted, is_met) = if gains { ("below ×1", worst < 1.0) } else { ("≤ ×1", worst <= 1.0) };
        Some(Goal::new(&name, wanted, reached).judged(is_met))
    };
    let pairs = [(JCT, "fifo"), (JCT, "sjf"), (JCT, SAME), (UNBOUNDED, "sjf")];
    pairs.into_iter().filter_map(|(way, over)| goal(way, over)).collect()
}

/// Of the sets that can be kept if late requests are never run, and of those that can be kept by programs that run every request.
fn promises(report: &Report) -> Vec<Goal> {
    let goal = |name: &str, can_be: fn(&Case) -> Feasible| {
        let feasible = report.promises.iter().filter(|case| can_be(case) == Feasible::Yes);
        let (count, kept) =
            feasible.fold((0, 0), |(count, kept), case| (count + 1, kept + usize::from(case.missed == 0)));
        let goal = Goal::new(name, "all", format!("{kept} of {count} ({} sets tried)", report.promises.len()));
        if count > 0 { goal.judged(kept == count) } else { goal }
    };
    if report.promises.is_empty() {
        return Vec::new();
    }
    vec![
        goal("slo keeps all goals that can be kept", |case| case.feasible),
        goal("…by programs that run every request", |case| case.runnable),
    ]
}

fn goodput(report: &Report) -> Option<Goal> {
    let of = |name: &str| report.mixture.get(name);
    let (hybrid, jct, slo) = (of("hybrid")?, of("jct")?, of("slo")?);
    let better = jct.goodput.max(slo.goodput);
    let reached = format!("{:.3}, Jain {:.3}", hybrid.goodput, hybrid.fairness.jain);
    let name = "hybrid's goodput over the better of both";
    Some(Goal::new(name, &format!("≥ {better:.3}"), reached).judged(hybrid.goodput >= better))
}

fn switching(switched: &Switched) -> Vec<Goal> {
    let Switched { switches, lost, kernels, is_stuck, longest_wait_ms, bound_ms, .. } = switched;
    let name = format!("launches lost by {switches} switches");
    let none = Goal::new(&name, "0", format!("{lost} of {kernels}"));
    let none = if *switches >= SWITCHES { none.judged(*lost == 0) } else { none };
    let stuck = Goal::new("everybody goes on meanwhile", "yes", if *is_stuck { "no" } else { "yes" }.to_owned());
    let wait =
        Goal::new("the longest wait meanwhile", &format!("≤ {bound_ms:.0} ms"), format!("{longest_wait_ms:.1} ms"));
    vec![none, stuck.judged(!is_stuck), wait.judged(longest_wait_ms <= bound_ms)]
}

fn auto(report: &Report) -> Option<Goal> {
    let auto = report.changing.get("auto")?;
    let others = report.changing.iter().filter(|(name, _)| *name != "auto");
    let best = others.map(|(_, column)| column.mean).max_by(f64::total_cmp)?;
    let ratio = auto.mean / best;
    let name = "auto's goodput over the best fixed policy";
    Some(Goal::new(name, &format!("≥ ×{FINDING_OUT}"), format!("×{ratio:.3}")).judged(ratio >= FINDING_OUT))
}
