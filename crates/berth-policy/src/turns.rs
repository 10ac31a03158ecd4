//! Turns: of the tenants that would contend for a GPU one computes at a time, fair by owner, then the shortest first, then first come,
//! first served; only computing is exclusive. What [`crate::fifo`] and [`crate::edf`] have in common, which is all but claims.
//!
//! Two tenants that compute at once lose to each other; a tenant that makes its context, allocates, copies or cleans up
//! loses nothing to one that computes. So a tenant is held as late as possible, at its launch, and the next one is
//! released as soon as something shows that the GPU is free, not when the one before has left.
//!
//! *Contention* is between tenants that share a GPU and are not light. What is light is learned ([`book`]): bursts so short
//! that making someone wait for one costs more than sharing, and little of them. Light tenants take no part.
//!
//! *The turn* ([`turn`]): of the rest one at a time per GPU runs freely, all others are gated. Gated is not held: they
//! run on, and stop only if they launch. The turn goes to whoever stands at a launch as soon as the one that has it is quiet;
//! if nobody does, it is given in advance to one that is still loading, who then never stops at all.
//!
//! *Small beside large* ([`length`], [`order`]): who computes briefly beside one that computes for long does not wait for it, and is
//! not even stopped where that is known before; of those that wait, who takes the shortest goes first, up to what owners have
//! used. Those that are about equal wait for each other, in the order in which they came.
//!
//! *The first time* a tenant is seen nothing says what it is until its first burst has come back: within
//! [`FifoSettings::small_burst`], and it is light. It is waited for meanwhile, so that heavy ones that start at the same moment do
//! not slip through together; tenants that are light wait at most for that long, once. Not even that where both have loaded
//! no more than a context takes ([`FifoSettings::context_mib`]): who has loaded little mostly has little to compute, and if not,
//! has shown it as soon as its first burst is longer than a small one. Who has a past is known from the beginning.
//!
//! *No starvation*: who has stood at a launch for [`FifoSettings::longest_wait`] is first in line, before any owner's share, and
//! then waits for one turn at most of each of those that stood before it or compute. A turn lasts a quantum or, if that
//! is over in the middle of a kernel, until the kernel ends: none is cut short. So with *n* others the wait is bounded by
//! `longest_wait + n × (quantum + longest kernel)`, plus [`FifoSettings::settle`] for each that is released and does not launch. In
//! queues longer than the longest wait the order is therefore by waiting rather than by owner. Only where the bound
//! fails, because a kernel does not end, does a tenant compute beside another: after [`FifoSettings::last_resort`], or after a
//! quantum where the other cannot be held at all.
//!
//! *Claims* ([`claim`]) go before the order of those that have none: that is where a policy says who may be served first.
//!
//! *Units* ([`mod@unit`]): a tenant moves on all its GPUs or none, and with its gang. One order over all units of the host
//! ([`order`]), and whoever waits too long keeps its GPUs from later ones: crossed wishes cannot block each other.
//!
//! *Contexts* ([`contexts`]) are made a few at a time, so that the first is ready long before the last.
//!
//! *Memory* ([`memory`]): a tenant at an allocation that does not fit waits, in order of arrival; where all wait for each
//! other, one is parked or let through to fail. *Means* ([`means`]): the gate if there is one, else lock or freeze, and those
//! only where they cannot hit the making of a context or a teardown.

pub(crate) mod book;
mod claim;
mod computing;
mod contexts;
pub(crate) mod length;
mod means;
mod memory;
mod order;
mod queue;
mod round;
mod turn;
pub(crate) mod unit;

use std::collections::BTreeMap;

use berth_model::hold::Means;
use berth_model::{Mono, TenantKey};

use crate::settings::FifoSettings;
use crate::view::{Activity, Stand, Tenant, View};
use crate::{Action, Decision, Reason, Verdict};
use book::Book;
pub(crate) use claim::{Claim, Claims, Unclaimed};
pub(crate) use computing::fraction;
use turn::Turns;
use unit::{Unit, units};

/// Who has the turn on the GPUs of one host, and what is known of those that want it.
#[derive(Debug)]
pub(crate) struct Rota<C> {
    settings: FifoSettings,
    book: Book,
    turns: Turns,
    claims: C,
}

/// Where a tenant should be, and why.
#[derive(Debug, Clone, PartialEq)]
enum Wish {
    Free(Reason),
    Hold(Means, Reason),
    /// Before its first context.
    Bar(Reason),
    /// As it is.
    Keep,
}

impl<C: Claims> Rota<C> {
    pub fn new(settings: FifoSettings, claims: C) -> Self {
        Self { settings, book: Book::default(), turns: Turns::default(), claims }
    }

    /// As [`crate::Policy::decide`].
    pub fn decide(&mut self, view: &View, now: Mono) -> Verdict {
        self.book.learn(view, &self.settings, now);
        let mut units = units(view, &self.book, &self.settings, now);
        self.claims.assess(&mut units, &self.book, &self.settings, now);
        self.pass_turns(&mut units, now);
        let wishes = self.wishes(view, &units, now);
        let mut decisions = Vec::new();
        for tenant in order::by_arrival(view) {
            decisions.extend(wishes.get(&tenant.key).and_then(|wish| self.decision(tenant, wish, now)));
        }
        let queue = queue::queue(view, &units, &self.turns, &self.book, &self.settings, now);
        let again_at = self.turns.again_at(&units, &self.book, &self.settings, now);
        let again_at = again_at.into_iter().chain(memory::again_at(view, &self.book, &self.settings, now));
        let again_at = again_at
            .chain(contexts::again_at(view, &self.book))
            .chain(self.book.again_at(now))
            .chain(self.claims.again_at(&units, now))
            .filter(|at| *at > now)
            .min();
        Verdict { decisions, queue, again_at }
    }

    /// Moves the turns on until nothing more follows from it: one that goes makes room for the next.
    fn pass_turns(&mut self, units: &mut [Unit<'_>], now: Mono) {
        for _ in 0..=2 * units.len() {
            let before = self.turns.clone();
            self.turns.follow(units, &mut self.book, &self.settings, now);
            order::sort(units, &self.book, &self.settings, now);
            self.turns.assign(units, &mut self.book, &self.settings, now);
            if self.turns == before {
                break;
            }
        }
    }

    /// What is wished for each tenant, by memory first and then by turn.
    fn wishes<'a>(&mut self, view: &'a View, units: &[Unit<'a>], now: Mono) -> BTreeMap<&'a TenantKey, Wish> {
        let mut wishes = memory::wishes(view, &mut self.book, &self.settings, now);
        wishes.extend(contexts::wishes(view, &mut self.book, &self.settings, now));
        for unit in units {
            // One that came to be exempt, or whose gang did, is not left standing.
            let freedom = if unit.is_movable { self.turns.freedom(unit, units, now) } else { Ok(Reason::NoContention) };
            for tenant in &unit.members {
                let wish = match &freedom {
                    Ok(reason) => Wish::Free(with_its_gang(tenant).unwrap_or_else(|| reason.clone())),
                    Err(reason) => means::hold(tenant, &self.book, &self.settings)
                        .map_or(Wish::Free(Reason::NoContention), |means| Wish::Hold(means, reason.clone())),
                };
                wishes.entry(&tenant.key).or_insert(wish);
            }
        }
        wishes
    }

    fn decision(&mut self, tenant: &Tenant, wish: &Wish, now: Mono) -> Option<Decision> {
        let (action, reason) = match (wish, tenant.stand) {
            (_, Stand::Moving { .. } | Stand::ByPerson) => return None,
            (Wish::Free(reason), Stand::Gated { .. } | Stand::Held { .. }) => (Action::Release, reason),
            (Wish::Hold(means, reason), Stand::Free) => (Action::Hold(*means), reason),
            (Wish::Bar(reason), Stand::Free) => (Action::Bar, reason),
            (Wish::Hold(means @ Means::Park, reason), Stand::Gated { .. } | Stand::Held { .. }) => {
                (Action::Hold(*means), reason)
            }
            _ => return None,
        };
        let is_allowed = self.book.note(&tenant.key, action, &self.settings, now);
        is_allowed.then(|| Decision { tenant: tenant.key.clone(), action, reason: reason.clone() })
    }
}

/// For those of a gang that are let go because of another one's launch.
fn with_its_gang(tenant: &Tenant) -> Option<Reason> {
    let is_at_launch = matches!(tenant.activity, Activity::AtLaunch { .. });
    tenant.gang.clone().filter(|_| !is_at_launch).map(|gang| Reason::WithItsGang { gang })
}
