//! Device memory on one GPU that is kept free for those who have reserved some, and what others may take beside it.
//!
//! A reservation is a tenant's that takes part and that the driver has seen on the GPU. What it has not used yet of it is kept free: every
//! other tenant that takes part may have what it has and what is free beyond that. Where more is reserved than there is, whoever came first
//! has its own first.
//!
//! What is free the driver tells, about once a second, of an instant in the past. What tenants have taken since then their own libraries
//! tell, at each look; what they have given back counts with the driver's next word, since the driver may keep it. Between two looks two can
//! take the same room: libraries book without the daemon. Processes without the library are bound by nothing.
//!
//! Pure.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use berth_model::{Mono, TenantKey};

/// Changes of one tenant's memory that are remembered between two words of the driver's.
const MOST_SAID: usize = 4_096;

/// What is known of the memory of one GPU.
#[derive(Debug, Default)]
pub(super) struct Memory {
    seen: Option<Seen>,
    /// What tenants said they had, and since when; of what was before the driver's word only the last.
    said: BTreeMap<TenantKey, VecDeque<(Mono, u64)>>,
    rooms: BTreeMap<TenantKey, Room>,
    is_reserved: bool,
}

/// A word of the driver's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    /// What came later is not in it.
    pub at: Mono,
    pub free: u64,
    /// Where the driver tells.
    pub by_pid: BTreeMap<u32, u64>,
}

/// One tenant at one look.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Holder {
    /// The lowest number of its clients: who came first.
    pub came: u64,
    pub pids: BTreeSet<u32>,
    /// What its processes have by their own word.
    pub has: u64,
    /// The driver has seen it on this GPU.
    pub is_seen: bool,
    /// What it may have in all by its own limit.
    pub cap: Option<u64>,
    /// 0 without a reservation, and of a tenant that the driver has not seen there.
    pub reserves: u64,
}

/// What comes of it for one tenant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Room {
    pub has: u64,
    /// The most it may have in all; `None`: as much as there is.
    pub limit: Option<u64>,
    /// What is free and kept for it, and what it has reserved and is not there; `None` without a reservation, and where the driver has told
    /// nothing yet.
    pub kept: Option<u64>,
    pub missing: Option<u64>,
}

/// One that shares a GPU's free memory with others, since the driver's last word.
#[derive(Debug, Clone, Copy, Default)]
struct Sharer {
    /// Of its reservation, what it had not used then.
    lacks: u64,
    /// What it has taken since then.
    grown: u64,
}

impl Memory {
    pub fn see(&mut self, seen: Seen) {
        for said in self.said.values_mut() {
            while said.get(1).is_some_and(|(at, _)| *at <= seen.at) {
                said.pop_front();
            }
        }
        self.seen = Some(seen);
    }

    /// Takes in what everybody has now.
    pub fn look(&mut self, holders: &BTreeMap<TenantKey, Holder>, now: Mono) {
        self.said.retain(|tenant, _| holders.contains_key(tenant));
        for (tenant, holder) in holders {
            let said = self.said.entry(tenant.clone()).or_default();
            if said.back().is_none_or(|(_, has)| *has != holder.has) {
                said.push_back((now, holder.has));
            }
            if said.len() > MOST_SAID {
                said.remove(1);
            }
        }
        self.is_reserved = holders.values().any(|holder| holder.reserves > 0);
        self.rooms = self.share(holders);
    }

    /// Whether somebody has reserved some.
    pub fn is_reserved(&self) -> bool {
        self.is_reserved
    }

    pub fn room(&self, tenant: &TenantKey) -> Room {
        self.rooms.get(tenant).copied().unwrap_or_default()
    }

    fn share(&self, holders: &BTreeMap<TenantKey, Holder>) -> BTreeMap<TenantKey, Room> {
        let mut order: Vec<(&TenantKey, &Holder)> = holders.iter().collect();
        order.sort_by_key(|(_, holder)| holder.came);
        let Some(seen) = self.seen.as_ref().filter(|_| self.is_reserved) else {
            let own = |holder: &Holder| Room { has: holder.has, limit: holder.cap, ..Room::default() };
            return order.into_iter().map(|(tenant, holder)| (tenant.clone(), own(holder))).collect();
        };
        let bases: Vec<u64> = order.iter().map(|(tenant, holder)| self.base(tenant, holder, seen)).collect();
        let sharers: Vec<Sharer> =
            order.iter().zip(&bases).map(|((_, holder), base)| holder.sharer(*base, seen)).collect();
        let kept = keep(seen.free, &sharers);
        let each = order.iter().enumerate().map(|(own, (tenant, holder))| {
            let room =
                beside(seen.free, &sharers, &kept, own).map(|room| (bases[own].saturating_add(room)).max(holder.has));
            let left = kept[own].saturating_sub(sharers[own].grown);
            let is_reserved = holder.reserves > 0;
            let room = Room {
                has: holder.has,
                limit: room.into_iter().chain(holder.cap).min(),
                kept: is_reserved.then_some(left),
                missing: is_reserved.then_some(sharers[own].lacks - kept[own]),
            };
            ((*tenant).clone(), room)
        });
        each.collect()
    }

    /// What a tenant had when the driver looked, by its own word then; of one that had said nothing yet, by the driver's.
    fn base(&self, tenant: &TenantKey, holder: &Holder, seen: &Seen) -> u64 {
        let said = self.said.get(tenant).and_then(VecDeque::front).filter(|(at, _)| *at <= seen.at);
        said.map_or_else(|| holder.told(seen).unwrap_or(0), |(_, has)| *has)
    }
}

impl Holder {
    /// By the driver; `None` where it does not tell who has what.
    fn told(&self, seen: &Seen) -> Option<u64> {
        let own = self.pids.iter().filter_map(|pid| seen.by_pid.get(pid));
        (!seen.by_pid.is_empty()).then(|| own.fold(0, |sum: u64, bytes| sum.saturating_add(*bytes)))
    }

    fn sharer(&self, base: u64, seen: &Seen) -> Sharer {
        let told = self.told(seen);
        // Who claimed more than the driver knew of is not believed what it claims since then either, nor is who was never seen: they could keep
        // others out with words.
        let is_believed = self.is_seen && told.is_none_or(|told| told >= base);
        let grown = if is_believed { self.has.saturating_sub(base) } else { 0 };
        let used = told.unwrap_or(0).max(base);
        Sharer { lacks: self.reserves.saturating_sub(used), grown: grown.min(seen.free) }
    }
}

/// What is kept for each of those, in their order, as far as it is there.
fn keep(free: u64, sharers: &[Sharer]) -> Vec<u64> {
    let mut left = free;
    let each = sharers.iter().map(|one| {
        let kept = one.lacks.min(left);
        left -= kept;
        kept
    });
    each.collect()
}

/// What one of them may have taken since the driver's word; `None` where nobody else lacks anything.
fn beside(free: u64, sharers: &[Sharer], kept: &[u64], own: usize) -> Option<u64> {
    let others = || sharers.iter().zip(kept).enumerate().filter(|(other, _)| *other != own).map(|(_, other)| other);
    others().any(|(other, _)| other.lacks > 0).then(|| {
        let theirs = others().fold(0, |sum: u64, (other, kept)| sum.saturating_add(other.grown.max(*kept)));
        free.saturating_sub(theirs)
    })
}

#[cfg(test)]
mod tests;
