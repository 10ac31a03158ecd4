//! Whether goals can be kept at all: a search that knows everything beforehand.
//!
//! *The class that is searched*: all schedules of one GPU that run one request at a time, may leave off one for another at any instant, and let as many
//! requests of each tenant be late as its goal allows. What becomes of those is asked twice ([`Late`]): they are never run, which no program does but which
//! bounds what can be, or they are run before the next of their tenant, as programs do.
//!
//! In each class the search is exact. With nobody late, what is due first is best, where each is due early enough for the next of its tenant to be in time
//! after it; if that misses, there is a stretch of time in which more is due than fits ([`overload`]), and one of the requests that are due in it has to be
//! due later, whatever else is done. Whose, is branched on. Of one tenant's, which are due in the order in which they come, it is the last at any rate: it lies
//! in the stretch if one before it does. It is due then for its own sake, or for the next of its tenant's that is still to be in time ([`Search::holds`]). A
//! search that is longer than [`NODES`] is given up, and says neither.
//!
//! Schedules that run two side by side are not in the class.

use std::collections::{BTreeSet, HashSet};

use super::world::Tenant;

/// Choices that are tried.
const NODES: usize = 4_000;

/// One request: when it comes, what it takes, when it is due, and whose it is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ask {
    pub tenant: usize,
    pub comes_ns: f64,
    pub takes_ns: f64,
    pub due_ns: f64,
}

/// What acting costs each request, beside what it takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Costs {
    /// From its coming until anything can be done about it.
    pub late_ns: f64,
    /// On top of what it takes: as a part of that, and each time.
    pub part: f64,
    pub each_ns: f64,
}

/// What becomes of requests that are late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Late {
    /// They are never run.
    LeftOut,
    /// They are run before the next of their tenant, as programs do.
    Run,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Feasible {
    Yes,
    No,
    /// The search was given up.
    Unknown,
}

impl Costs {
    pub const NONE: Costs = Costs { late_ns: 0.0, part: 0.0, each_ns: 0.0 };
}

/// Of all tenants with a goal for single requests.
pub fn goals(tenants: &[Tenant], costs: Costs, late: Late) -> Feasible {
    search(&asks(tenants, costs), may_miss(tenants), late)
}

/// Their requests, in the order in which they come.
pub fn asks(tenants: &[Tenant], costs: Costs) -> Vec<Ask> {
    let with_goals = || tenants.iter().enumerate().filter(|(_, tenant)| tenant.slo.within().is_some());
    let asks = with_goals().flat_map(|(place, tenant)| {
        let within = tenant.slo.within().unwrap_or_default().as_nanos() as f64;
        tenant.program.requests.iter().map(move |request| Ask {
            tenant: place,
            comes_ns: request.at_ns as f64 + costs.late_ns,
            takes_ns: request.alone_ns() as f64 * (1.0 + costs.part) + costs.each_ns,
            due_ns: request.at_ns as f64 + within,
        })
    });
    let mut asks: Vec<Ask> = asks.collect();
    asks.sort_by(|one, other| one.comes_ns.total_cmp(&other.comes_ns));
    asks
}

pub fn may_miss(tenants: &[Tenant]) -> Vec<usize> {
    tenants.iter().map(Tenant::may_miss).collect()
}

pub fn search(asks: &[Ask], may_miss: Vec<usize>, late: Late) -> Feasible {
    let mut search = Search { asks, late, out: vec![false; asks.len()], may_miss, nodes: 0, seen: HashSet::new() };
    search.go_on()
}

struct Search<'a> {
    asks: &'a [Ask],
    late: Late,
    /// Requests that are late.
    out: Vec<bool>,
    may_miss: Vec<usize>,
    nodes: usize,
    /// What was left out in each try.
    seen: HashSet<Vec<usize>>,
}

/// Requests that come and are due in a stretch of time, the last first, and what they take more than it has.
#[derive(Debug, Clone, PartialEq)]
pub struct Overload {
    pub due: Vec<usize>,
    /// The end of the stretch.
    pub until_ns: f64,
    pub excess_ns: f64,
}

impl Search<'_> {
    fn left_out(&self, also: usize) -> Vec<usize> {
        let out = |place: &usize| self.out[*place] || *place == also;
        (0..self.asks.len()).filter(out).collect()
    }

    fn go_on(&mut self) -> Feasible {
        self.nodes += 1;
        if self.nodes > NODES {
            return Feasible::Unknown;
        }
        let due_ns = self.due_ns();
        let Some(Overload { due, until_ns, excess_ns }) = overload(self.asks, &due_ns) else { return Feasible::Yes };
        let mut room = self.may_miss.clone();
        let mut most = 0.0;
        for one in &due {
            let ask = &self.asks[*one];
            // One that is in it only for the next of its tenant goes with that one.
            let goes_along = self.out[*one] || ask.due_ns > until_ns;
            let has_room = room[ask.tenant] > 0;
            most += if has_room || (goes_along && self.may_miss[ask.tenant] > 0) { ask.takes_ns } else { 0.0 };
            room[ask.tenant] -= usize::from(has_room && !goes_along);
        }
        if most + 1.0 < excess_ns {
            return Feasible::No;
        }
        // Of each tenant the one that comes last, and of these the longest first: what is left out makes room.
        let mut tenants = BTreeSet::new();
        let last = due.into_iter().filter(|one| tenants.insert(self.asks[*one].tenant));
        let mut choices: Vec<usize> = last.filter_map(|one| self.holds(one, &due_ns)).collect();
        choices.retain(|one| self.may_miss[self.asks[*one].tenant] > 0);
        choices.sort_by(|one, other| self.asks[*other].takes_ns.total_cmp(&self.asks[*one].takes_ns));
        for one in choices {
            if !self.seen.insert(self.left_out(one)) {
                continue;
            }
            let tenant = self.asks[one].tenant;
            (self.out[one], self.may_miss[tenant]) = (true, self.may_miss[tenant] - 1);
            let found = self.go_on();
            if found != Feasible::No {
                return found;
            }
            (self.out[one], self.may_miss[tenant]) = (false, self.may_miss[tenant] + 1);
        }
        Feasible::No
    }

    /// When each has to be done at the latest; infinite where it need not be. One that is late and run is to be done in time for the next of its tenant.
    fn due_ns(&self) -> Vec<f64> {
        let own = self.asks.iter().zip(&self.out).map(|(ask, out)| if *out { f64::INFINITY } else { ask.due_ns });
        let mut due: Vec<f64> = own.collect();
        if self.late == Late::Run {
            for (one, next) in self.in_a_row() {
                due[one] = due[one].min(due[next] - self.asks[next].takes_ns);
            }
        }
        due
    }

    /// Each with the next of its tenant, the last first.
    fn in_a_row(&self) -> impl Iterator<Item = (usize, usize)> {
        let next_of =
            |one: usize| (one + 1..self.asks.len()).find(|next| self.asks[*next].tenant == self.asks[one].tenant);
        (0..self.asks.len()).rev().filter_map(move |one| Some((one, next_of(one)?)))
    }

    /// The one for whose sake this has to be done by then: itself, or one that comes after it.
    fn holds(&self, one: usize, due_ns: &[f64]) -> Option<usize> {
        let mut one = one;
        while self.out[one] || due_ns[one] < self.asks[one].due_ns {
            one = (one + 1..self.asks.len()).find(|next| self.asks[*next].tenant == self.asks[one].tenant)?;
        }
        Some(one)
    }
}

/// Runs what is due first, and finds the first stretch of time in which more is due than fits; the requests that come and are due in it.
pub fn overload(asks: &[Ask], due_ns: &[f64]) -> Option<Overload> {
    let mut left: Vec<f64> = asks.iter().map(|ask| ask.takes_ns).collect();
    let mut open: Vec<usize> = Vec::new();
    let mut next = 0;
    let mut now = 0.0_f64;
    // What ran when, the latest last: from when, and when that was due.
    let mut ran: Vec<(f64, f64)> = Vec::new();
    loop {
        while next < asks.len() && asks[next].comes_ns <= now {
            if due_ns[next].is_finite() {
                open.push(next);
            }
            next += 1;
        }
        let Some(first) = open.iter().copied().min_by(|one, other| due_ns[*one].total_cmp(&due_ns[*other])) else {
            let coming = asks.get(next)?;
            ran.clear();
            now = coming.comes_ns;
            continue;
        };
        let due = due_ns[first];
        if ran.last().is_none_or(|(_, last)| *last != due) {
            ran.push((now, due));
        }
        let until = asks.get(next).map_or(f64::INFINITY, |ask| ask.comes_ns).min(now + left[first]);
        left[first] -= until - now;
        now = until;
        if now > due + 1e-3 {
            // The stretch begins when something that is due later last ran, or nothing did.
            let later = ran.iter().rposition(|(_, other)| *other > due);
            let from =
                later.map_or(ran.first().map_or(now, |(at, _)| *at), |at| ran.get(at + 1).map_or(now, |(at, _)| *at));
            let inside = |place: &usize| asks[*place].comes_ns >= from && due_ns[*place] <= due;
            let among: Vec<usize> = (0..asks.len()).rev().filter(inside).collect();
            let excess_ns = among.iter().map(|one| asks[*one].takes_ns).sum::<f64>() - (due - from).max(0.0);
            return Some(Overload { due: among, until_ns: due, excess_ns });
        }
        if left[first] <= 1e-3 {
            open.retain(|one| *one != first);
        }
    }
}
