//! Whether goals can be kept at all: a search that knows everything beforehand.
//!
//! *The class that is searched*: all schedules of one GPU that run one request at a time, may leave off one for another at any instant, and leave out
//! as many requests of each tenant as its goal lets be late. In that class the search is exact. Without requests that are left out, what is due first
//! is best: if that misses, there is a stretch of time in which more is due than fits ([`overload`]), and one of the requests that are due in it has to be left
//! out, whatever else is done. Whose, is branched on. Of one tenant's, which all take as long, the last that comes is left out: it lies in every later
//! stretch in which an earlier one does. A search that is longer than [`NODES`] is given up, and says neither.
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
pub fn goals(tenants: &[Tenant], costs: Costs) -> Feasible {
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
    let may_miss = tenants.iter().map(Tenant::may_miss).collect();
    search(&asks, may_miss)
}

pub fn search(asks: &[Ask], may_miss: Vec<usize>) -> Feasible {
    let mut search = Search { asks, out: vec![false; asks.len()], may_miss, nodes: 0, seen: HashSet::new() };
    search.go_on()
}

struct Search<'a> {
    asks: &'a [Ask],
    /// Requests that are left out.
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
        let Some(Overload { mut due, excess_ns }) = overload(self.asks, &self.out) else { return Feasible::Yes };
        let mut room = self.may_miss.clone();
        due.retain(|one| {
            room[self.asks[*one].tenant].checked_sub(1).map(|left| room[self.asks[*one].tenant] = left).is_some()
        });
        let most: f64 = due.iter().map(|one| self.asks[*one].takes_ns).sum();
        if most + 1.0 < excess_ns {
            return Feasible::No;
        }
        // Of each tenant the one that comes last, and of these the longest first: what is left out makes room.
        let mut tenants = BTreeSet::new();
        due.retain(|one| tenants.insert(self.asks[*one].tenant));
        due.sort_by(|one, other| self.asks[*other].takes_ns.total_cmp(&self.asks[*one].takes_ns));
        for one in due {
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
}

/// Runs what is due first, and finds the first stretch of time in which more is due than fits; the requests that come and are due in it.
pub fn overload(asks: &[Ask], out: &[bool]) -> Option<Overload> {
    let mut left: Vec<f64> = asks.iter().map(|ask| ask.takes_ns).collect();
    let mut open: Vec<usize> = Vec::new();
    let mut next = 0;
    let mut now = 0.0_f64;
    // What ran when, the latest last: from when, and when that was due.
    let mut ran: Vec<(f64, f64)> = Vec::new();
    loop {
        while next < asks.len() && asks[next].comes_ns <= now {
            if !out[next] {
                open.push(next);
            }
            next += 1;
        }
        let Some(first) = open.iter().copied().min_by(|one, other| asks[*one].due_ns.total_cmp(&asks[*other].due_ns))
        else {
            let coming = asks.get(next)?;
            ran.clear();
            now = coming.comes_ns;
            continue;
        };
        let due = asks[first].due_ns;
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
            let inside = |ask: &Ask| ask.comes_ns >= from && ask.due_ns <= due;
            let among = asks.iter().enumerate().rev().filter(|(place, ask)| !out[*place] && inside(ask));
            let due: Vec<usize> = among.map(|(place, _)| place).collect();
            let excess_ns = due.iter().map(|one| asks[*one].takes_ns).sum::<f64>() - (asks[first].due_ns - from);
            return Some(Overload { due, excess_ns });
        }
        if left[first] <= 1e-3 {
            open.retain(|one| *one != first);
        }
    }
}
