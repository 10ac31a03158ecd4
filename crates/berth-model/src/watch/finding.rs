//! Something that is not as it should be: what, since when, and how sure that is.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::time::Mono;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Its work takes longer than it used to.
    Degradation,
    /// Fewer of its deadlines or other goals will be met than it asks for.
    SloRisk,
    /// Its memory grows and grows.
    MemoryDrift,
    /// It wants the GPU and gets next to nothing of it.
    Starvation,
    /// It is held though nobody else computes.
    StuckHold,
    /// Its work takes longer or shorter than is expected of it, again and again.
    PredictorError,
    /// It asks to take part at the level of kernels, and has not attached.
    NotAttached,
}

/// Holds for as long as its detector says so.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    pub kind: Kind,
    /// When it began, as far as the figures tell: mostly before it was noticed.
    pub since: Mono,
    /// 0 to 1: how much speaks for it. 1 − the chance that noise alone looks like this.
    pub sure: f64,
    /// What a person is told, without who it is about: "takes 1.4 times as long as it used to".
    pub words: String,
}

/// What is noticed and kept, counted for everybody: no tenant is named.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct WatchTotals {
    /// Findings there are now.
    pub findings: BTreeMap<Kind, u64>,
    /// Findings that began since the daemon started.
    pub found: BTreeMap<Kind, u64>,
    /// `None` where no figures are written down.
    pub series: Option<SeriesTotals>,
}

/// How figures over time are kept, since the daemon started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SeriesTotals {
    pub written: u64,
    /// Values that could not be written, or came too fast.
    pub lost: u64,
    /// On disk, when it was last looked after.
    pub bytes: u64,
}

impl Kind {
    pub const ALL: [Kind; 7] = [
        Kind::Degradation,
        Kind::SloRisk,
        Kind::MemoryDrift,
        Kind::Starvation,
        Kind::StuckHold,
        Kind::PredictorError,
        Kind::NotAttached,
    ];

    /// As in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Degradation => "degradation",
            Kind::SloRisk => "slo_risk",
            Kind::MemoryDrift => "memory_drift",
            Kind::Starvation => "starvation",
            Kind::StuckHold => "stuck_hold",
            Kind::PredictorError => "predictor_error",
            Kind::NotAttached => "not_attached",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_called_in_json_what_it_is_called() {
        for kind in Kind::ALL {
            assert_eq!(serde_json::to_string(&kind).unwrap(), format!("\"{}\"", kind.as_str()));
        }
    }
}
