//! Who ran beside whom for as long as that did not change, and how fast each got on there: what interference is learned from.
//!
//! A window begins when the set of those who have work and may run changes. Work counts that was submitted after it began and was measured
//! before it ended; where it ran itself it says, and where the others did is known from the looks. It is held against what the like took alone,
//! with the same SMs where that was seen, else with all of them, less what fewer SMs cost by themselves.
//!
//! One piece of work in many is measured, and squads last milliseconds: so what is seen of the same company with the same SMs is put together
//! until it is enough to say something, however many windows that takes.

use std::collections::BTreeMap;

use berth_host::shim::ClientId;
use berth_model::Mono;
use berth_policy::kernels::{self, CoRun};

/// Fewer measured pieces say nothing.
const FEW: u32 = 4;
/// Companies of which too little was seen so far; of more, those of whoever comes with another are forgotten.
const MOST: usize = 256;

/// Those who ran together, with the SMs each was confined to.
type Companions = BTreeMap<ClientId, Option<u32>>;

#[derive(Debug, Default)]
pub(super) struct Windows {
    /// Who runs, with the SMs each is confined to.
    running: Companions,
    since: Mono,
    tallies: BTreeMap<(ClientId, Companions), Tally>,
}

/// Measured work of one client in one company.
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
    pub fn look(&mut self, running: Companions, now: Mono) {
        if !running.keys().eq(self.running.keys()) {
            self.since = now;
        }
        self.running = running;
    }

    /// The client is gone, and nothing is learned of it any more.
    pub fn forget(&mut self, client: ClientId) {
        self.tallies.retain(|(_, company), _| !company.contains_key(&client));
    }

    /// Of work that was submitted then and is done.
    pub fn company(&self, who: ClientId, submitted: Mono) -> Company {
        match self.running.len() {
            _ if submitted < self.since || !self.running.contains_key(&who) => Company::Unknown,
            1 => Company::Nobody,
            _ => Company::Others,
        }
    }

    /// Share of the GPU's `all` SMs that work had which ran on so many of them; 0: on all.
    pub fn share(&self, who: ClientId, sms: u32, all: u32, demand: &dyn Fn(ClientId) -> f64) -> f64 {
        share(&self.company_of(who, sms), who, all, demand)
    }

    /// Work that ran on so many SMs.
    pub fn add(&mut self, who: ClientId, sms: u32, expected_ns: f64, took_ns: f64) {
        if self.tallies.len() >= MOST {
            // Its own first: whatever one says it ran on, it is not to cost others what was learned of them.
            let before = self.tallies.len();
            self.tallies.retain(|(of, _), _| *of != who);
            if self.tallies.len() == before {
                self.tallies.clear();
            }
        }
        let tally = self.tallies.entry((who, self.company_of(who, sms))).or_default();
        tally.pieces += 1;
        tally.expected_ns += expected_ns;
        tally.took_ns += took_ns;
    }

    /// What is enough to say something; the rest is kept until it is.
    pub fn close(&mut self, sms: u32, demand: &dyn Fn(ClientId) -> f64) -> Vec<CoRun> {
        let enough = self.tallies.extract_if(.., |_, tally| tally.pieces >= FEW && tally.took_ns > 0.0);
        let each = enough.map(|((who, company), tally)| {
            let share = |one| share(&company, one, sms, demand);
            let others = company.keys().filter(|other| **other != who);
            CoRun {
                who: kernels::ClientId(who.0),
                share: share(who),
                speed: (tally.expected_ns / tally.took_ns).min(1.0),
                beside: others.map(|other| (kernels::ClientId(other.0), share(*other))).collect(),
            }
        });
        each.collect()
    }

    fn company_of(&self, who: ClientId, sms: u32) -> Companions {
        let mut company = self.running.clone();
        company.insert(who, (sms > 0).then_some(sms));
        company
    }
}

/// What one is confined to, or its part of what all want.
fn share(company: &Companions, who: ClientId, sms: u32, demand: &dyn Fn(ClientId) -> f64) -> f64 {
    match company.get(&who).copied().flatten() {
        Some(own) if sms > 0 => (f64::from(own) / f64::from(sms)).min(1.0),
        _ => demand(who) / company.keys().map(|one| demand(*one)).sum::<f64>().max(1.0),
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
        windows.look(running(&[(ONE, Some(64)), (TWO, Some(64))]), Mono(40));
        assert_eq!(windows.company(ONE, Mono(39)), Company::Others, "where it ran it says itself");
    }

    #[test]
    fn what_ran_with_other_sms_is_put_together_with_its_like_only() {
        let mut windows = Windows::default();
        for turn in 0..4 {
            windows.look(running(&[(ONE, Some(64)), (TWO, Some(64))]), Mono(turn));
            windows.add(ONE, 64, 50.0, 100.0);
            windows.look(running(&[(ONE, None), (TWO, None)]), Mono(turn));
            windows.add(ONE, 0, 30.0, 100.0);
            if turn < 3 {
                assert_eq!(windows.close(128, &|_| 1.0), [], "one in many is measured");
            }
        }
        let told: Vec<(f64, f64)> = windows.close(128, &|_| 1.0).iter().map(|seen| (seen.share, seen.speed)).collect();
        assert_eq!(told, [(0.5, 0.3), (0.5, 0.5)], "half of what both want, and half of the SMs");
    }

    #[test]
    fn few_pieces_at_a_time_are_enough_in_the_end_also_over_several_windows_and_not_of_one_that_is_gone() {
        let both = running(&[(ONE, None), (TWO, None)]);
        let mut windows = Windows::default();
        for turn in 0..3 {
            windows.look(both.clone(), Mono(turn));
            windows.add(ONE, 0, 50.0, 100.0);
            windows.look(running(&[(ONE, None)]), Mono(turn));
            assert_eq!(windows.close(128, &|_| 1.0), []);
        }
        windows.look(both.clone(), Mono(9));
        windows.add(ONE, 0, 50.0, 100.0);
        assert_eq!(windows.close(128, &|_| 1.0).len(), 1);
        (0..4).for_each(|_| windows.add(ONE, 0, 50.0, 100.0));
        windows.forget(TWO);
        assert_eq!(windows.close(128, &|_| 1.0), []);
    }

    #[test]
    fn one_that_says_it_ran_on_ever_other_sms_costs_nobody_else_what_was_learned() {
        let mut windows = Windows::default();
        windows.look(running(&[(ONE, None), (TWO, None)]), Mono(1));
        (0..FEW - 1).for_each(|_| windows.add(ONE, 0, 100.0, 200.0));
        (1..1_000).for_each(|sms| windows.add(TWO, sms, 100.0, 100.0));
        windows.add(ONE, 0, 100.0, 200.0);
        assert!(windows.close(132, &|_| 0.5).iter().any(|seen| seen.who.0 == ONE.0));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut windows = Windows::default();
        (0..10_000).for_each(|sms| windows.add(ONE, sms, 50.0, 100.0));
        assert!(windows.tallies.len() <= MOST);
    }

    #[test]
    fn a_speed_is_of_what_was_expected_and_shares_are_of_what_each_had() {
        let mut windows = Windows::default();
        windows.look(running(&[(ONE, Some(32)), (TWO, None)]), Mono(0));
        (0..3).for_each(|_| windows.add(ONE, 32, 50.0, 100.0));
        assert_eq!(windows.close(128, &|_| 1.0), [], "too few");
        (0..4).for_each(|_| windows.add(ONE, 32, 50.0, 100.0));
        let told = windows.close(128, &|_| 1.0);
        let (who, beside) = (kernels::ClientId(1), vec![(kernels::ClientId(2), 0.5)]);
        assert_eq!(told, [CoRun { who, share: 0.25, speed: 0.5, beside }]);
        assert_eq!(windows.close(128, &|_| 1.0), [], "once");
    }
}
