//! What the measurement has to show, judged by what it showed.

use super::Level;
use super::foresight::{Figure, Foresight};
use super::store::Store;
use super::trial::Trial;
use crate::bench::contention::goals::Goal;

/// Precision and recall at the middle level.
const RIGHT: f64 = 0.9;
/// Of goals that are missed, the part that is told before, and by how many pieces of work.
const BEFORE: f64 = 0.8;
const LEAD: f64 = 10.0;
/// A forecast that is told may be worse than the plain one by chance, and by no more.
const NO_WORSE: f64 = 1.02;
/// Of load that comes back.
const COMES_BACK: f64 = 0.7;
const VALUES_PER_SECOND: f64 = 100_000.0;
const BYTES_PER_VALUE: f64 = 12.0;

pub fn judge(trials: &[Trial], foresights: &[Foresight], store: &Store) -> Vec<Goal> {
    let middle = trials.iter().filter(|trial| trial.level == Level::Middle);
    let mut goals: Vec<Goal> = middle.map(found).collect();
    goals.extend(trials.iter().filter(|trial| trial.level == Level::Middle).filter_map(told_before));
    goals.extend(foresights.iter().filter(|one| one.level == Level::Middle).map(foreseen));
    let rate = Goal::new("store: values written per second", "≥ 100,000", format!("{:.0}", store.values_per_second));
    goals.push(rate.judged(store.values_per_second >= VALUES_PER_SECOND));
    let size = Goal::new("store: bytes per value", "≤ 12", format!("{:.2}", store.bytes_per_value));
    goals.push(size.judged(store.bytes_per_value <= BYTES_PER_VALUE));
    goals.push(Goal::new("store: every value comes back", "yes", word(store.is_complete)).judged(store.is_complete));
    goals
}

fn found(trial: &Trial) -> Goal {
    let Trial { scene, precision, recall, .. } = trial;
    let reached = format!("precision {precision:.3}, recall {recall:.3}");
    let met = *precision >= RIGHT && *recall >= RIGHT;
    Goal::new(&format!("{}, middle noise", scene.name()), "both ≥ 0.9", reached).judged(met)
}

/// A risk is worth something that is told before it has come true.
fn told_before(trial: &Trial) -> Option<Goal> {
    let (before, lead) = (trial.before?, trial.lead.as_ref()?.p50);
    let name = format!("{}, middle noise: told before it is missed", trial.scene.name());
    let reached = format!("{before:.3}, by {lead:.0} pieces of work (p50)");
    Some(Goal::new(&name, "≥ 0.8, by ≥ 10", reached).judged(before >= BEFORE && lead >= LEAD))
}

fn foreseen(one: &Foresight) -> Goal {
    let most = if one.figure == Figure::Load { COMES_BACK } else { NO_WORSE };
    let name = format!("forecast of {}, error ÷ plain", one.figure.as_str());
    Goal::new(&name, &format!("≤ {most}"), format!("{:.3}", one.told_over_plain)).judged(one.told_over_plain <= most)
}

fn word(is: bool) -> String {
    if is { "yes" } else { "no" }.to_owned()
}
