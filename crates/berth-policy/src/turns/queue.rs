//! Who waits, for whom, and until when as far as can be told.

use std::time::Duration;

use berth_model::Mono;
use berth_model::hold::Means;

use super::book::Book;
use super::length::Pace;
use super::turn::Turns;
use super::unit::Unit;
use crate::Waiting;
use crate::settings::FifoSettings;
use crate::view::{Activity, Stand, Tenant, View};

/// Those at a launch in the order of their turns, then those at an allocation in the order of arrival.
pub(super) fn queue(
    view: &View,
    units: &[Unit<'_>],
    turns: &Turns,
    book: &Book,
    settings: &FifoSettings,
    now: Mono,
) -> Vec<Waiting> {
    let mut queue = Vec::new();
    let mut before: Vec<&Unit<'_>> = Vec::new();
    let waits = |unit: &&Unit<'_>| unit.contends() && unit.standing_since.is_some() && !turns.has_turn(unit);
    for unit in units.iter().filter(waits) {
        let Some(since) = unit.standing_since else { continue };
        let ahead = turns.ahead_of(unit, units);
        let latest = since + settings.last_resort.get();
        let left = |other: &Unit<'_>| time_left(other, turns.ran(other, now), book, settings);
        let expected_at = ahead.and_then(|ahead| expected(unit, ahead, &before, left, now)).map(|at| at.min(latest));
        let behind = ahead.and_then(|ahead| ahead.members.first()).map(|tenant| tenant.key.clone());
        queue.extend(unit.members.iter().map(|tenant| Waiting {
            tenant: tenant.key.clone(),
            behind: behind.clone(),
            since,
            expected_at,
        }));
        before.push(unit);
    }
    queue.extend(super::order::by_arrival(view).into_iter().filter_map(waits_for_memory));
    queue
}

/// When the one ahead and all rivals before it in line will have had their time, if that is known of each.
fn expected(
    unit: &Unit<'_>,
    ahead: &Unit<'_>,
    before: &[&Unit<'_>],
    left: impl Fn(&Unit<'_>) -> Option<Duration>,
    now: Mono,
) -> Option<Mono> {
    let rivals = before.iter().copied().filter(|other| unit.meets(other).is_some());
    let left: Option<Duration> = rivals.chain([ahead]).map(left).sum();
    left.map(|left| now + left)
}

/// How much longer a unit keeps the GPU: by its claim for all that is left of its work; else for what is left of its burst, of the quantum of one that goes on and on, or of all that its
/// like computed before, whichever is over first.
fn time_left(unit: &Unit<'_>, ran: Duration, book: &Book, settings: &FifoSettings) -> Option<Duration> {
    if let Some(left) = unit.claim.left() {
        return Some(left);
    }
    let at_once = match unit.length.pace() {
        Pace::OnAndOn => Some(settings.quantum.get().saturating_sub(ran)),
        Pace::Seldom | Pace::Often => unit.length.left(),
    };
    in_all(unit, book).into_iter().chain(at_once).min()
}

fn in_all(unit: &Unit<'_>, book: &Book) -> Option<Duration> {
    let each = unit.members.iter().map(|tenant| {
        let used = book.get(&tenant.key).map_or(0.0, |record| record.used);
        Duration::try_from_secs_f64((tenant.past?.active_seconds - used).max(0.0)).ok()
    });
    each.collect::<Option<Vec<_>>>()?.into_iter().max()
}

fn waits_for_memory(tenant: &Tenant) -> Option<Waiting> {
    let since = match (tenant.activity, tenant.stand) {
        (_, Stand::ByPerson | Stand::Free) => return None,
        (_, Stand::Held { means: Means::Park, since }) | (Activity::AtAllocation { since, .. }, _) => since,
        _ => return None,
    };
    Some(Waiting { tenant: tenant.key.clone(), behind: None, since, expected_at: None })
}
