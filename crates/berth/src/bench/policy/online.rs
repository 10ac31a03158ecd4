//! What a rule keeps that knows what each request takes and how many of them may be late, and not what comes next.
//!
//! The world is that of the offline search (`feasible`): one request at a time, left off for another at any instant, with what acting costs on top of each. Of all that is there,
//! in its programs' queues too, what is due first runs. Where something would be late so, requests are given up until all others are in time: of those that are due
//! by then the one with the most left to do, of a tenant that may miss one more. What becomes of them is asked twice, as there ([`Late`]).
//!
//! So of a set that can be kept and this misses more has to be known than any policy can know, or who is given up chosen better; one that this keeps
//! and a policy misses is lost by what the policy is told, does, or costs.

use super::feasible::{Ask, Late};

/// One is in time if it is late by less.
const ROUNDED_NS: f64 = 1.0;

struct Run<'a> {
    asks: &'a [Ask],
    late: Late,
    left: Vec<f64>,
    given_up: Vec<bool>,
    /// That are there and not done, of each tenant in the order in which they came.
    open: Vec<Vec<usize>>,
    /// How many more each may miss.
    room: Vec<usize>,
}

/// How many requests of each tenant are late, in the order in which they come, where each may miss so many.
pub fn late(asks: &[Ask], may_miss: Vec<usize>, late: Late) -> Vec<usize> {
    let tenants = may_miss.len();
    let mut run = Run {
        asks,
        late,
        left: asks.iter().map(|ask| ask.takes_ns).collect(),
        given_up: vec![false; asks.len()],
        open: vec![Vec::new(); tenants],
        room: may_miss,
    };
    let mut missed = vec![0; tenants];
    let (mut now, mut coming) = (0.0_f64, 0);
    loop {
        while let Some(ask) = asks.get(coming).filter(|ask| ask.comes_ns <= now) {
            run.open[ask.tenant].push(coming);
            coming += 1;
        }
        let next_ns = asks.get(coming).map(|ask| ask.comes_ns);
        let Some(first) = run.first(now) else {
            let Some(next_ns) = next_ns else { break };
            now = next_ns;
            continue;
        };
        let until = next_ns.unwrap_or(f64::INFINITY).min(now + run.left[first]);
        run.left[first] -= until - now;
        now = until;
        if run.left[first] <= ROUNDED_NS {
            let Ask { tenant, due_ns, .. } = asks[first];
            run.open[tenant].retain(|one| *one != first);
            missed[tenant] += usize::from(now > due_ns + ROUNDED_NS);
        }
    }
    if late == Late::LeftOut {
        asks.iter().zip(run.given_up).filter(|(_, out)| *out).for_each(|(ask, _)| missed[ask.tenant] += 1);
    }
    missed
}

impl Run<'_> {
    /// Gives up what has to be, and says what runs.
    fn first(&mut self, now: f64) -> Option<usize> {
        loop {
            let due = self.due();
            let mut done = now;
            let overrun = due.iter().position(|(due_ns, one)| {
                done += self.left[*one];
                done > due_ns + ROUNDED_NS
            });
            let in_the_way = due.iter().take(overrun.map_or(0, |place| place + 1)).map(|(_, one)| *one);
            let may_be_late = in_the_way.filter(|one| !self.given_up[*one] && self.room[self.asks[*one].tenant] > 0);
            let Some(one) = may_be_late.max_by(|one, other| self.left[*one].total_cmp(&self.left[*other])) else {
                return due.first().map(|(_, one)| *one);
            };
            let tenant = self.asks[one].tenant;
            (self.given_up[one], self.room[tenant]) = (true, self.room[tenant] - 1);
            if self.late == Late::LeftOut {
                self.open[tenant].retain(|other| *other != one);
            }
        }
    }

    /// What is there by when it has to be done, the first before others: early enough for those that queue behind it.
    fn due(&self) -> Vec<(f64, usize)> {
        let mut all = Vec::new();
        for queue in &self.open {
            let mut before = f64::INFINITY;
            for one in queue.iter().rev() {
                let own = if self.given_up[*one] { f64::INFINITY } else { self.asks[*one].due_ns };
                let due_ns = own.min(before);
                all.push((due_ns, *one));
                before = due_ns - self.left[*one];
            }
        }
        all.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
        all
    }
}
