//! The share of a GPU that those without a deadline get in any case.
//!
//! While one of them wants a GPU that one with a claim wants too, they are owed their part of the time, and while one of them computes
//! there it is paid. When enough for a turn has come together they go first, until it is paid; if somebody would be late for that, not
//! before they are owed a whole quantum. What is owed and what was had too much are both bounded by a quantum: a kernel of a
//! minute does not cost those after it ten.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_model::{GpuIndex, Mono};

use crate::settings::{EdfSettings, FifoSettings};
use crate::turns::unit::Unit;
use crate::turns::{Claim, fraction};

/// Less than this is nothing, in seconds: what is added up from many views is not exact.
const EVEN: f64 = 1e-6;
/// What is owed is not looked at more often than this.
const SOON: Duration = Duration::from_millis(1);

#[derive(Debug, Default)]
pub(super) struct Shares {
    gpus: BTreeMap<GpuIndex, Share>,
    at: Option<Mono>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Share {
    /// GPU seconds; below zero: had too much.
    owed: f64,
    /// They go first.
    is_due: bool,
    /// GPU seconds owed per second, by the last view.
    rate: f64,
    /// Seconds owed with which they go first; `None` if none of them stands.
    enough: Option<f64>,
}

impl Shares {
    /// Gives the best claim to those that are owed their share.
    pub fn assess(&mut self, units: &mut [Unit<'_>], settings: &EdfSettings, turns: &FifoSettings, now: Mono) {
        self.pass_time(turns, now);
        let is_entitled = |unit: &Unit<'_>| is_entitled(unit, turns, now);
        let mut gpus = BTreeMap::new();
        for gpu in units.iter().flat_map(|unit| unit.gpus.iter().copied()) {
            gpus.entry(gpu).or_insert_with(|| {
                let there = || units.iter().filter(|unit| unit.contends() && unit.gpus.contains(&gpu));
                let resting: Vec<&Unit<'_>> = there().filter(|unit| is_entitled(unit)).collect();
                let claimed: Vec<&Unit<'_>> =
                    there().filter(|unit| unit.claim != Claim::Rest && unit.wants()).collect();
                let share = self.gpus.get(&gpu).copied().unwrap_or_default();
                share.with(&resting, &claimed, fraction(settings.rest), turns)
            });
        }
        self.gpus = gpus;
        let is_due = |unit: &Unit<'_>| unit.gpus.iter().any(|gpu| self.gpus.get(gpu).is_some_and(|share| share.is_due));
        units.iter_mut().filter(|unit| is_entitled(unit) && is_due(unit)).for_each(|unit| unit.claim = Claim::Share);
    }

    /// When they come to go first, or have had their share.
    pub fn again_at(&self, now: Mono) -> impl Iterator<Item = Mono> {
        self.gpus.values().filter_map(move |share| Some(now + share.changes_in()?))
    }

    fn pass_time(&mut self, turns: &FifoSettings, now: Mono) {
        let passed = self.at.map_or(0.0, |at| now.since(at).as_secs_f64());
        self.at = Some(self.at.map_or(now, |at| at.max(now)));
        let most = turns.quantum.get().as_secs_f64();
        for share in self.gpus.values_mut() {
            share.owed = (share.owed + passed * share.rate).clamp(-most, most);
        }
    }
}

impl Share {
    /// As it is from now on, with those on the GPU that have no claim and those that have one and want it.
    fn with(self, resting: &[&Unit<'_>], claimed: &[&Unit<'_>], rest: f64, turns: &FifoSettings) -> Self {
        let has = resting.iter().any(|unit| unit.busy_since.is_some());
        let is_contended = !claimed.is_empty() && resting.iter().any(|unit| unit.wants());
        let rate = match (is_contended, has) {
            (false, _) => 0.0,
            (true, false) => rest,
            (true, true) => rest - 1.0,
        };
        let (slice, quantum) = (turns.slice.get(), turns.quantum.get());
        let standing = resting.iter().filter(|unit| unit.standing_since.is_some());
        let turn = standing.map(|unit| unit.length.burst().max(slice).min(quantum)).min();
        let spare = claimed.iter().filter_map(|unit| unit.spare).min();
        let enough = turn.map(|turn| if spare.is_some_and(|spare| spare < turn) { quantum } else { turn });
        let enough = enough.map(|enough| enough.as_secs_f64());
        let is_enough = enough.is_some_and(|enough| self.owed + EVEN >= enough);
        let is_due = is_contended && (is_enough || self.is_due && self.owed > EVEN);
        Self { rate, is_due, enough, ..self }
    }

    fn changes_in(&self) -> Option<Duration> {
        let left = match self.is_due {
            true => -self.owed / self.rate,
            false => (self.enough? - self.owed) / self.rate,
        };
        let left = Duration::try_from_secs_f64(left).ok()?;
        Some(left.max(SOON))
    }
}

/// It has no deadline; or it has lost it, and has stood for long since.
fn is_entitled(unit: &Unit<'_>, turns: &FifoSettings, now: Mono) -> bool {
    let is_overdue = unit.standing_since.is_some_and(|since| now.since(since) >= turns.longest_wait.get());
    matches!(unit.claim, Claim::Rest | Claim::Share) && unit.contends() && (!unit.is_lost || is_overdue)
}
