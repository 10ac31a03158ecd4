//! What was noticed of a tenant: in full for its owner, and in a few words without figures for everybody.

use berth_model::control::FindingRow;
use berth_model::fields::elapsed;
use berth_model::watch::Kind;
use jiff::Timestamp;

/// All of it, for those who may be told.
pub fn finding(finding: &FindingRow, now: Timestamp) -> String {
    let FindingRow { gpu, since, sure, words, .. } = finding;
    let place = gpu.map_or_else(String::new, |gpu| format!(" on GPU {gpu}"));
    let seconds = now.duration_since(*since).as_secs_f64().max(0.0);
    format!("{words}{place}, for {} ({:.0} % sure)", elapsed(seconds), 100.0 * sure.min(0.99))
}

pub fn begun(kind: Kind) -> &'static str {
    match kind {
        Kind::Degradation => "its work takes longer than it used to",
        Kind::SloRisk => "fewer of its goals will be met than it asks for",
        Kind::MemoryDrift => "its memory grows and grows",
        Kind::Starvation => "it wants the GPU and gets next to nothing of it",
        Kind::StuckHold => "it is held though nobody else computes",
        Kind::PredictorError => "its work takes longer or shorter than is expected of it",
        Kind::NotAttached => "it asks to take part at the level of kernels, and has not attached",
    }
}

pub fn over(kind: Kind) -> &'static str {
    match kind {
        Kind::Degradation => "its work takes as long as usual again",
        Kind::SloRisk => "enough of its goals will be met again",
        Kind::MemoryDrift => "its memory has ceased to grow",
        Kind::Starvation => "it gets its share of the GPU again",
        Kind::StuckHold => "it is no longer held for nobody",
        Kind::PredictorError => "its work takes as long as is expected of it again",
        Kind::NotAttached => "it has attached at the level of kernels, or left",
    }
}
