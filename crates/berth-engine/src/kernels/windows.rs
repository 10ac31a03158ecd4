//! Who ran beside whom for as long as that did not change, and how fast each got on there: what interference is learned from.
//!
//! A window begins when the set of those who have work and may run changes, or the SMs that one of them has. Work counts that was submitted
//! after it began and was measured before it ended. It is held against what the like took alone, with the same SMs where that was seen, else
//! with all of them, less what fewer SMs cost by themselves. Every reading of samples is one window for the one who learns.

use std::collections::BTreeMap;

use berth_host::shim::ClientId;
use berth_model::Mono;
use berth_policy::kernels::{self, CoRun};

/// Fewer measured pieces say nothing of a window.
const FEW: u32 = 4;

#[derive(Debug, Default)]
pub(super) struct Windows {
    /// Who runs, with the SMs each is confined to.
    running: BTreeMap<ClientId, Option<u32>>,
    since: Mono,
    tallies: BTreeMap<ClientId, Tally>,
}

/// Measured work of one client in the window.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    pieces: u32,
    expected_ns: f64,
    took_ns: f64,
}

/// In whose company something ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Company {
    Nobody,
    Others,
    /// It changed meanwhile.
    Unknown,
}

impl Windows {
    /// Those who have work and may run now.
    pub fn look(&mut self, running: BTreeMap<ClientId, Option<u32>>, now: Mono) {
        if running != self.running {
            *self = Self { running, since: now, tallies: BTreeMap::new() };
        }
    }

    /// Of work that was submitted then and is done.
    pub fn company(&self, who: ClientId, submitted: Mono) -> Company {
        match self.running.len() {
            _ if submitted < self.since || !self.running.contains_key(&who) => Company::Unknown,
            1 => Company::Nobody,
            _ => Company::Others,
        }
    }

    /// SMs that it is confined to.
    pub fn sms(&self, who: ClientId) -> Option<u32> {
        self.running.get(&who).copied().flatten()
    }

    /// Share of the GPU's `sms` each has: what it is confined to, or its part of what all want.
    pub fn share(&self, who: ClientId, sms: u32, demand: &dyn Fn(ClientId) -> f64) -> f64 {
        match self.sms(who) {
            Some(own) if sms > 0 => (f64::from(own) / f64::from(sms)).min(1.0),
            _ => demand(who) / self.running.keys().map(|one| demand(*one)).sum::<f64>().max(1.0),
        }
    }

    pub fn add(&mut self, who: ClientId, expected_ns: f64, took_ns: f64) {
        let tally = self.tallies.entry(who).or_default();
        tally.pieces += 1;
        tally.expected_ns += expected_ns;
        tally.took_ns += took_ns;
    }

    /// What the window says, and the next begins with the same company.
    pub fn close(&mut self, sms: u32, demand: &dyn Fn(ClientId) -> f64) -> Vec<CoRun> {
        let tallies = std::mem::take(&mut self.tallies);
        let told = tallies.into_iter().filter(|(_, tally)| tally.pieces >= FEW && tally.took_ns > 0.0);
        let each = told.map(|(who, tally)| {
            let others = self.running.keys().filter(|other| **other != who);
            CoRun {
                who: kernels::ClientId(who.0),
                share: self.share(who, sms, demand),
                speed: (tally.expected_ns / tally.took_ns).min(1.0),
                beside: others.map(|other| (kernels::ClientId(other.0), self.share(*other, sms, demand))).collect(),
            }
        });
        each.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: ClientId = ClientId(1);
    const TWO: ClientId = ClientId(2);

    fn running(who: &[(ClientId, Option<u32>)]) -> BTreeMap<ClientId, Option<u32>> {
        who.iter().copied().collect()
    }

    #[test]
    fn only_work_of_one_unchanged_company_says_anything() {
        let mut windows = Windows::default();
        windows.look(running(&[(ONE, None)]), Mono(10));
        assert_eq!(windows.company(ONE, Mono(10)), Company::Nobody);
        assert_eq!(windows.company(ONE, Mono(9)), Company::Unknown, "submitted before");
        assert_eq!(windows.company(TWO, Mono(20)), Company::Unknown, "it does not run, as far as is known");
        windows.look(running(&[(ONE, None), (TWO, None)]), Mono(30));
        assert_eq!(
            (windows.company(ONE, Mono(29)), windows.company(ONE, Mono(30))),
            (Company::Unknown, Company::Others)
        );
        (0..9).for_each(|_| windows.add(ONE, 50.0, 100.0));
        windows.look(running(&[(ONE, Some(64)), (TWO, None)]), Mono(40));
        assert_eq!(windows.close(128, &|_| 1.0), [], "the SMs changed, and what was tallied is void");
    }

    #[test]
    fn a_speed_is_of_what_was_expected_and_shares_are_of_what_each_had() {
        let mut windows = Windows::default();
        windows.look(running(&[(ONE, Some(32)), (TWO, None)]), Mono(0));
        (0..3).for_each(|_| windows.add(ONE, 50.0, 100.0));
        assert_eq!(windows.close(128, &|_| 1.0), [], "too few");
        (0..4).for_each(|_| windows.add(ONE, 50.0, 100.0));
        let told = windows.close(128, &|_| 1.0);
        let (who, beside) = (kernels::ClientId(1), vec![(kernels::ClientId(2), 0.5)]);
        assert_eq!(told, [CoRun { who, share: 0.25, speed: 0.5, beside }]);
        assert_eq!(windows.close(128, &|_| 1.0), [], "once");
    }
}
