//! What a unit may claim beyond its place in line: all that policies with turns differ in.
//!
//! Where nobody has a claim the order is that of [`super::order`]. A claim goes before it: of two units the one whose claim is
//! better goes first, and the other stops for it at its next launch rather than after a quantum.

use std::fmt;
use std::time::Duration;

use berth_model::Mono;

use super::book::Book;
use super::round::Round;
use super::unit::Unit;
use crate::Reason;
use crate::settings::FifoSettings;

/// Says what each unit may claim.
pub(crate) trait Claims: fmt::Debug + Send {
    /// Sets the claim of each unit; once per view. Asked again at the same instant it says the same.
    fn assess(&mut self, units: &mut [Unit<'_>], book: &Book, settings: &FifoSettings, now: Mono);

    /// When claims change though nothing happens.
    fn again_at(&self, units: &[Unit<'_>], now: Mono) -> Vec<Mono>;
}

/// Nobody has a claim.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Unclaimed;

/// The best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum Claim {
    /// It has no deadline, and those that have none are owed their share of the GPU.
    Share,
    /// It can meet its deadline, with all that are due before it.
    InTime {
        /// By when it must have computed to be done when it is due.
        by: Mono,
        /// GPU time it still takes; nothing where that is not known.
        left: Duration,
        due: Mono,
    },
    /// It could meet its deadline by itself, but not together with those that are due before it and take less.
    SqueezedOut { left: Duration, due: Mono },
    /// None: it has no deadline, or cannot meet it any more.
    #[default]
    Rest,
}

impl Claims for Unclaimed {
    fn assess(&mut self, _: &mut [Unit<'_>], _: &Book, _: &FifoSettings, _: Mono) {}

    fn again_at(&self, _: &[Unit<'_>], _: Mono) -> Vec<Mono> {
        Vec::new()
    }
}

impl Claim {
    /// When the work behind it is due.
    pub fn due(self) -> Option<Mono> {
        match self {
            Claim::InTime { due, .. } | Claim::SqueezedOut { due, .. } => Some(due),
            Claim::Share | Claim::Rest => None,
        }
    }

    /// GPU time the work behind it still takes, where that is known and not over.
    pub fn left(self) -> Option<Duration> {
        match self {
            Claim::InTime { left, .. } | Claim::SqueezedOut { left, .. } => Some(left).filter(|left| !left.is_zero()),
            Claim::Share | Claim::Rest => None,
        }
    }
}

/// Why a unit goes first by its claim; `None` where nobody with a lesser one wants the GPU, or it has none.
pub(super) fn of(unit: &Unit<'_>, round: &Round<'_, '_>) -> Option<Reason> {
    let mut others = round.contenders().filter(|other| other.wants() && unit.meets(other).is_some());
    others.find(|other| unit.claim < other.claim)?;
    match unit.claim {
        Claim::InTime { due, .. } => Some(Reason::DueFirst { due_in: due.since(round.now) }),
        Claim::Share => Some(Reason::ShareDue),
        Claim::SqueezedOut { .. } | Claim::Rest => None,
    }
}

/// Why a unit waits for another by the other's claim; `None` if that is no better.
pub(super) fn against(unit: &Unit<'_>, other: &Unit<'_>, now: Mono) -> Option<Reason> {
    unit.meets(other).filter(|_| other.claim < unit.claim)?;
    let who = other.title();
    Some(match (other.claim, unit.claim) {
        (Claim::Share, _) => Reason::OthersShare { who },
        (_, Claim::SqueezedOut { .. }) => Reason::NotAllInTime { who },
        _ if unit.is_lost => Reason::CannotMeet { who },
        (other, _) => Reason::DueBefore { who, due_in: other.due()?.since(now) },
    })
}
