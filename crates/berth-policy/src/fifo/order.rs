//! The one order of a host: first whoever has stood for longer than [`FifoSettings::longest_wait`], longest first; then owners
//! who have used least; of one owner's, those who have used least themselves, so that one with short bursts does not wait for a long
//! one of each of the others; then those who have waited longest since their last turn, then the first to arrive.

use std::cmp::Ordering;

use berth_model::Mono;

use super::book::{Book, Record};
use super::unit::Unit;
use crate::settings::FifoSettings;
use crate::view::{Tenant, View};

pub(super) fn sort(units: &mut [Unit<'_>], book: &Book, settings: &FifoSettings, now: Mono) {
    let overdue_since = |unit: &Unit<'_>| {
        unit.standing_since.filter(|since| now.since(*since) >= settings.longest_wait.get()).unwrap_or(Mono(u64::MAX))
    };
    units.sort_by(|one, other| overdue_since(one).cmp(&overdue_since(other)).then_with(|| compare(one, other, book)));
}

fn compare(one: &Unit<'_>, other: &Unit<'_>, book: &Book) -> Ordering {
    book.used_by(one.owner)
        .total_cmp(&book.used_by(other.owner))
        .then_with(|| used(one, book).total_cmp(&used(other, book)))
        .then_with(|| served(one, book).cmp(&served(other, book)))
        .then_with(|| (one.arrived, &one.name).cmp(&(other.arrived, &other.name)))
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
