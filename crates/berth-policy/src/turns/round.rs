//! One look at the units, to change the turns by: who contends, who is ahead, who is brief beside whom.

use std::cmp::Ordering;
use std::time::Duration;

use berth_model::Mono;

use super::book::Book;
use super::length::Pace;
use super::order::used;
use super::unit::Unit;
use crate::settings::FifoSettings;

/// Share of what a unit is behind that the GPU may rest for its sake, at each pause.
const PATIENCE: f64 = 0.01;

/// Who computes beside another delays it by what it takes and what the two lose to each other: at most this many times as long.
const BESIDE: u32 = 2;

/// One look at the units, to change the turns by.
pub(super) struct Round<'r, 'a> {
    pub units: &'r [Unit<'a>],
    pub settings: &'r FifoSettings,
    pub now: Mono,
}

/// GPU seconds by which a unit, or its owner, is ahead of another of late.
fn lead(unit: &Unit<'_>, other: &Unit<'_>, book: &Book) -> f64 {
    if unit.owner == other.owner {
        used(unit, book) - used(other, book)
    } else {
        book.used_by(unit.owner) - book.used_by(other.owner)
    }
}

impl<'r, 'a> Round<'r, 'a> {
    pub fn contenders(&self) -> impl Iterator<Item = &'r Unit<'a>> + use<'r, 'a> {
        self.units.iter().filter(|unit| unit.contends())
    }

    pub fn standing(&self) -> impl Iterator<Item = &'r Unit<'a>> + use<'r, 'a> {
        self.contenders().filter(|unit| unit.standing_since.is_some())
    }

    pub fn is_idle(&self, unit: &Unit<'_>) -> bool {
        unit.quiet_since.is_some_and(|quiet| self.now.since(quiet) >= self.settings.idle.get())
    }

    /// How long a unit may keep the turn from another: its quantum, or only a slice if it is a quantum ahead already. Who goes
    /// on and on keeps it from one that does not only until it has had as much: for a slice, or for what the other's burst
    /// takes where that one will soon be back.
    ///
    /// Claims go before all that: who has the better one keeps the turn, and gets it at the other's next launch.
    pub fn may_keep(&self, unit: &Unit<'_>, other: &Unit<'_>, book: &Book) -> Duration {
        match unit.claim.cmp(&other.claim) {
            Ordering::Greater => return Duration::ZERO,
            Ordering::Less => return Duration::MAX,
            Ordering::Equal => {}
        }
        let (quantum, lead) = (self.settings.quantum.get(), lead(unit, other, book));
        let slice = self.settings.slice.get().min(quantum);
        if lead >= quantum.as_secs_f64() {
            return slice;
        }
        match (unit.length.pace(), other.length.pace()) {
            (Pace::OnAndOn, Pace::Seldom) if lead >= 0.0 => slice,
            (Pace::OnAndOn, Pace::Often) if lead >= 0.0 => other.length.burst().clamp(slice, quantum),
            _ => quantum,
        }
    }

    /// How long a unit computes until it has had as much as another.
    pub fn until_even(&self, unit: &Unit<'_>, other: &Unit<'_>, book: &Book) -> Duration {
        Duration::try_from_secs_f64(-lead(unit, other, book)).unwrap_or_default()
    }

    /// How long the turn stays with a unit that pauses and is known to go on at once. One that is behind the other keeps it for longer:
    /// of many threads none may have launched for a moment, and giving the turn away for that would cost it more than the pause
    /// costs the other.
    pub fn linger(&self, unit: &Unit<'_>, other: &Unit<'_>, book: &Book) -> Duration {
        if other.claim < unit.claim {
            return Duration::ZERO;
        }
        let each = unit.members.iter().filter_map(|tenant| book.get(&tenant.key));
        let usual = each.map(|record| record.linger(self.settings)).max().unwrap_or_default();
        let behind = Duration::try_from_secs_f64(lead(other, unit, book) * PATIENCE).unwrap_or_default();
        let usual = if usual.is_zero() { usual } else { usual.max(behind.min(self.settings.slice.get())) };
        usual.max(self.patience(unit, other, book))
    }

    /// How long the turn is kept for one that pauses in the middle of its work and would be late if another went first, who cannot
    /// be stopped once it has launched: for half of what that would take, and a slice at most.
    ///
    /// One that has time, or of whom nobody knows how much is left, would lose the next kernel to the other's beside it, since a hold
    /// takes longer than a short pause. For such a one the turn is kept no longer than its bursts take, and not at all where its pauses are
    /// longer than that: the GPU rests for it half of the time at most.
    fn patience(&self, unit: &Unit<'_>, other: &Unit<'_>, book: &Book) -> Duration {
        let slice = self.settings.slice.get();
        let known = |unit: &Unit<'_>| Some(unit.length.burst()).filter(|burst| !burst.is_zero()).unwrap_or(slice);
        let takes = known(other);
        let most = slice.min(takes / 2);
        let is_tight = unit.claim.left().is_some() && unit.spare.is_some_and(|spare| spare < takes);
        if unit.claim >= other.claim {
            Duration::ZERO
        } else if is_tight {
            most
        } else {
            let pause = most.min(known(unit));
            let mut each = unit.members.iter().filter_map(|tenant| book.get(&tenant.key));
            let is_worth_it = unit.is_midway && each.all(|record| record.is_back_within(pause));
            if is_worth_it { pause } else { Duration::ZERO }
        }
    }

    pub fn is_brief_beside(&self, unit: &Unit<'_>, other: &Unit<'_>, book: &Book) -> bool {
        let leads = lead(other, unit, book) > 0.0;
        unit.length.is_brief_beside(&other.length, leads) && !self.minds(other, unit)
    }

    /// A unit, or one due after it, might be late if another computed beside it. How long that takes is a guess, so there must be time
    /// for a quantum.
    fn minds(&self, unit: &Unit<'_>, other: &Unit<'_>) -> bool {
        let takes = other.length.left().unwrap_or_default() * BESIDE;
        unit.spare.is_some_and(|spare| spare < takes.max(self.settings.quantum.get()))
    }

    /// Rivals that compute and beside which a unit is brief.
    pub fn hosts(&self, unit: &Unit<'_>, book: &Book) -> Vec<&'r Unit<'a>> {
        let busy = self.contenders().filter(|other| other.busy_since.is_some() && other.meets(unit).is_some());
        busy.filter(|other| self.is_brief_beside(unit, other, book)).collect()
    }

    /// A unit is not to compute while another does. Those that are brief beside the same one are not kept apart: the GPU is
    /// shared as long as one of them is there, so the sooner all are done the better.
    pub fn is_apart(&self, unit: &Unit<'_>, other: &Unit<'_>, hosts: &[&Unit<'_>], book: &Book) -> bool {
        let is_guest = |host: &&Unit<'_>| host.name != other.name && self.is_brief_beside(other, host, book);
        !self.is_brief_beside(unit, other, book) && !hosts.iter().any(is_guest)
    }

    /// Who cannot be made to stop is waited for no longer than a quantum.
    pub fn last_resort(&self, blocker: Option<&Unit<'_>>) -> Duration {
        let (wait, quantum) = (self.settings.last_resort.get(), self.settings.quantum.get());
        if blocker.is_some_and(|unit| !unit.is_movable) { wait.min(quantum) } else { wait }
    }
}
