//! One GPU in virtual time: who is there, who computes, what is done when.
//!
//! One computes at a time, in *slices*: until its work is done, until somebody comes who may go before it (then to the end of the kernel
//! under way, a *grain*), or until the order is looked at again. Passing the GPU on costs time. Who finds too little memory waits for it
//! in line, as at an allocation under berth.

use std::collections::VecDeque;
use std::time::Duration;

use berth_model::cluster::PlacementId;
use berth_model::deadline::{Spread, Unit};
use berth_model::{Bytes, Mono};

use super::order::{self, Claim, Ready, Rule};

/// What a kernel takes: nothing stops it.
const GRAIN: Duration = Duration::from_millis(50);
/// What passing the GPU on costs, as `EdfSettings::switch` has it.
const SWITCH: Duration = Duration::from_millis(1);
/// The order is looked at again after this long at the latest: somebody may be lost by then.
const LOOK: Duration = Duration::from_secs(1);
/// What those without a deadline are owed when they go first; when somebody would be late for it.
const TURN: Duration = Duration::from_secs(1);
const QUANTUM: Duration = Duration::from_secs(10);
/// Of a GPU's time what those without a deadline are owed while they want it.
pub const REST: f64 = 0.1;

#[derive(Debug)]
pub struct Gpu {
    rule: Rule,
    pub memory: Bytes,
    /// In the order they came.
    tenants: Vec<Tenant>,
    /// Wait for memory.
    line: VecDeque<Tenant>,
    slice: Option<Slice>,
    /// Who computed last.
    last: Option<PlacementId>,
    owed: Duration,
    /// Time in which it computed.
    busy: Duration,
    misses: VecDeque<Mono>,
}

/// One container on it.
#[derive(Debug, Clone, PartialEq)]
pub struct Tenant {
    pub id: PlacementId,
    pub memory: Bytes,
    pub unit: Unit,
    pub deadline: Option<Duration>,
    pub takes: Option<Spread>,
    /// The first is under way.
    pub pieces: VecDeque<Piece>,
    /// How many are still to come.
    pub to_come: usize,
    pub has_missed: bool,
    /// Of its last piece: what was left of its time, in seconds.
    pub last_float: Option<f64>,
}

/// One unit of work.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Piece {
    pub due: Option<Mono>,
    pub takes: Duration,
    pub done: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Slice {
    tenant: PlacementId,
    /// When it computes; the GPU is handed to it before.
    from: Mono,
    until: Mono,
    /// It is what those without a deadline are owed.
    of_rest: bool,
    /// Somebody without a deadline waits meanwhile.
    owes: bool,
}

/// What became of a unit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Done {
    pub id: PlacementId,
    pub due: Option<Mono>,
    /// It was the last one: the container has left.
    pub left: bool,
}

impl Gpu {
    pub fn new(rule: Rule, memory: Bytes) -> Self {
        Self {
            rule,
            memory,
            tenants: Vec::new(),
            line: VecDeque::new(),
            slice: None,
            last: None,
            owed: Duration::ZERO,
            busy: Duration::ZERO,
            misses: VecDeque::new(),
        }
    }

    pub fn tenants(&self) -> &[Tenant] {
        &self.tenants
    }

    pub fn line(&self) -> &VecDeque<Tenant> {
        &self.line
    }

    pub fn misses(&self) -> impl Iterator<Item = Mono> {
        self.misses.iter().rev().copied()
    }

    pub fn used(&self) -> Bytes {
        self.tenants.iter().map(|tenant| tenant.memory).sum()
    }

    /// Those that want to compute and do not.
    pub fn queue(&self) -> usize {
        self.ready().count().saturating_sub(self.slice.iter().count()) + self.line.len()
    }

    /// Time in which it has computed until now.
    pub fn busy(&self, now: Mono) -> Duration {
        self.busy + self.slice.map_or(Duration::ZERO, |slice| now.since(slice.from))
    }

    /// GPU time that the unit under way has had.
    pub fn done(&self, tenant: &Tenant, now: Mono) -> Duration {
        let before = tenant.pieces.front().map_or(Duration::ZERO, |piece| piece.done);
        let slice = self.slice.filter(|slice| slice.tenant == tenant.id);
        before + slice.map_or(Duration::ZERO, |slice| now.since(slice.from))
    }

    /// Somebody comes.
    pub fn arrive(&mut self, tenant: Tenant, now: Mono) {
        self.line.push_back(tenant);
        self.let_in(now);
    }

    /// Work for somebody who is there; `false` if it is not.
    pub fn request(&mut self, id: PlacementId, piece: Piece, now: Mono) -> bool {
        let mut there = self.tenants.iter_mut().chain(&mut self.line);
        let Some(tenant) = there.find(|tenant| tenant.id == id) else { return false };
        tenant.pieces.push_back(piece);
        tenant.to_come = tenant.to_come.saturating_sub(1);
        self.disturb(now);
        true
    }

    /// Everybody goes: the node is lost.
    pub fn clear(&mut self, now: Mono) -> Vec<PlacementId> {
        self.busy = self.busy(now);
        self.slice = None;
        (self.owed, self.last) = (Duration::ZERO, None);
        self.tenants.drain(..).chain(self.line.drain(..)).map(|tenant| tenant.id).collect()
    }

    /// When [`Gpu::step`] has something to do.
    pub fn next_at(&self) -> Option<Mono> {
        self.slice.map(|slice| slice.until)
    }

    /// Ends the slice that ends now and begins the next.
    pub fn step(&mut self, now: Mono) -> Option<Done> {
        let slice = self.slice.take_if(|slice| slice.until <= now)?;
        let ran = now.since(slice.from);
        self.busy += ran;
        if slice.of_rest {
            self.owed = self.owed.saturating_sub(ran);
        } else if slice.owes {
            self.owed = (self.owed + ran.mul_f64(REST / (1.0 - REST))).min(QUANTUM);
        }
        let done = self.credit(slice.tenant, ran, now);
        self.let_in(now);
        if self.slice.is_none() {
            self.begin(now);
        }
        done
    }

    /// Adds to what a unit had, and ends it if that is all.
    fn credit(&mut self, id: PlacementId, ran: Duration, now: Mono) -> Option<Done> {
        let place = self.tenants.iter().position(|tenant| tenant.id == id)?;
        let tenant = self.tenants.get_mut(place)?;
        let piece = tenant.pieces.front_mut()?;
        piece.done += ran;
        let piece = tenant.pieces.pop_front_if(|piece| piece.done >= piece.takes)?;
        let is_late = piece.due.is_some_and(|due| now > due);
        tenant.has_missed |= is_late;
        tenant.last_float = piece.due.map(|due| due.since(now).as_secs_f64() - now.since(due).as_secs_f64());
        let left = tenant.pieces.is_empty() && tenant.to_come == 0;
        if left {
            self.tenants.remove(place);
        }
        if is_late {
            self.misses.push_back(now);
            self.misses.drain(..self.misses.len().saturating_sub(berth_model::cluster::report::MOST_MISSES));
        }
        Some(Done { id, due: piece.due, left })
    }

    /// From the line, in order, as long as there is memory.
    fn let_in(&mut self, now: Mono) {
        let free = |gpu: &Self| gpu.memory.0.saturating_sub(gpu.used().0);
        while let Some(tenant) = self.line.front().map(|tenant| tenant.memory.0).filter(|bytes| *bytes <= free(self)) {
            debug_assert!(tenant <= self.memory.0);
            self.tenants.extend(self.line.pop_front());
            self.disturb(now);
        }
    }

    /// Somebody may go before the one that computes: after the kernel that is under way.
    fn disturb(&mut self, now: Mono) {
        match &mut self.slice {
            None => self.begin(now),
            // What is owed is paid in one go.
            Some(slice) if self.rule == Rule::Edf && !slice.of_rest => {
                let grains = now.since(slice.from).as_nanos().div_ceil(GRAIN.as_nanos()).max(1);
                let grains = u32::try_from(grains).unwrap_or(u32::MAX);
                slice.until = slice.until.min(slice.from + GRAIN.saturating_mul(grains));
            }
            Some(_) => {}
        }
    }

    fn ready(&self) -> impl Iterator<Item = &Tenant> {
        self.tenants.iter().filter(|tenant| !tenant.pieces.is_empty())
    }

    fn begin(&mut self, now: Mono) {
        let here: Vec<(PlacementId, Piece, Ready)> = self.ready().filter_map(|tenant| self.as_ready(tenant)).collect();
        let ready: Vec<Ready> = here.iter().map(|(_, _, ready)| *ready).collect();
        let Some((index, of_rest, owes)) = self.next(&here, &ready, now) else { return };
        let (id, piece, one) = here[index];
        let from = if one.computes { now } else { now + SWITCH };
        let lasts = piece.takes.saturating_sub(piece.done);
        let most = match self.rule {
            Rule::Edf if of_rest => self.owed,
            Rule::Edf => LOOK,
            Rule::Fifo => lasts,
            Rule::Share => GRAIN,
        };
        self.last = Some(id);
        self.slice = Some(Slice { tenant: id, from, until: from + lasts.min(most), of_rest, owes });
    }

    fn as_ready(&self, tenant: &Tenant) -> Option<(PlacementId, Piece, Ready)> {
        let piece = *tenant.pieces.front()?;
        let computes = self.last == Some(tenant.id);
        Some((tenant.id, piece, Ready { due: piece.due, takes: tenant.takes, done: piece.done, computes }))
    }

    /// Who is next, whether it is what those without a deadline are owed, and whether they are owed more by it.
    fn next(&self, here: &[(PlacementId, Piece, Ready)], ready: &[Ready], now: Mono) -> Option<(usize, bool, bool)> {
        match self.rule {
            Rule::Fifo => (!here.is_empty()).then_some((0, false, false)),
            Rule::Share => {
                let after = here.iter().position(|(id, ..)| Some(*id) == self.last).map_or(0, |place| place + 1);
                (!here.is_empty()).then(|| (after % here.len(), false, false))
            }
            Rule::Edf => {
                let (claims, spare) = order::claims(ready, SWITCH, now);
                let first = order::first(ready, &claims)?;
                let other = ready.iter().position(|one| one.due.is_none()).filter(|_| claims[first] != Claim::None);
                let enough = if spare.is_some_and(|spare| spare < TURN) { QUANTUM } else { TURN };
                match other {
                    Some(other) if self.owed >= enough => Some((other, true, false)),
                    other => Some((first, false, other.is_some())),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
