//! The one order of a host: claims first; where nobody has one, first whoever has stood for longer than [`FifoSettings::longest_wait`], longest first; then owners by
//! what they will have used when their next burst is over; of one owner's, its tenants by the same. So nobody is ahead of
//! others by more than a burst, and of those who have used as much the one that takes the shortest goes first. Those that are
//! about equal come in the order in which they last had their turn, then in that of arrival.

use std::collections::BTreeMap;

use berth_model::Mono;

use super::book::{Book, Record};
use super::unit::Unit;
use crate::settings::FifoSettings;
use crate::view::{Tenant, View};

pub(super) fn sort(units: &mut [Unit<'_>], book: &Book, settings: &FifoSettings, now: Mono) {
    let overdue_since = |unit: &Unit<'_>| {
        unit.standing_since.filter(|since| now.since(*since) >= settings.longest_wait.get()).unwrap_or(Mono(u64::MAX))
    };
    let costs = owners_costs(units, book, settings);
    units.sort_by_cached_key(|unit| {
        let owner = book.used_by(unit.owner) + costs.get(&unit.owner.map(str::to_owned)).copied().unwrap_or_default();
        let own = used(unit, book) + unit.length.cost(settings);
        (unit.claim, overdue_since(unit), nanos(owner), nanos(own), served(unit, book), unit.arrived, unit.name.clone())
    });
}

/// What each owner's next burst will take: that of whichever of its units is first among them, of those that stand if any
/// does.
fn owners_costs(units: &[Unit<'_>], book: &Book, settings: &FifoSettings) -> BTreeMap<Option<String>, f64> {
    let mut firsts: BTreeMap<Option<String>, (bool, f64, f64)> = BTreeMap::new();
    for unit in units {
        let cost = unit.length.cost(settings);
        let rank = (unit.standing_since.is_none(), used(unit, book) + cost, cost);
        let first = firsts.entry(unit.owner.map(str::to_owned)).or_insert(rank);
        if (rank.0, nanos(rank.1)) < (first.0, nanos(first.1)) {
            *first = rank;
        }
    }
    firsts.into_iter().map(|(owner, (.., cost))| (owner, cost)).collect()
}

/// To compare by; a host's GPU time is far below 2^63 ns.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small positive number, rounded")]
fn nanos(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

/// GPU seconds its members have used of late.
pub(super) fn used(unit: &Unit<'_>, book: &Book) -> f64 {
    unit.members.iter().filter_map(|tenant| book.get(&tenant.key)).map(Record::recent).sum()
}

/// `None`, not served yet, is before all others.
fn served(unit: &Unit<'_>, book: &Book) -> Option<Mono> {
    unit.members.iter().filter_map(|tenant| book.get(&tenant.key)?.served).max()
}

pub(super) fn by_arrival(view: &View) -> Vec<&Tenant> {
    let mut tenants: Vec<&Tenant> = view.tenants.iter().collect();
    tenants.sort_by_key(|tenant| (tenant.arrived, &tenant.key));
    tenants
}
