//! One tenant on one GPU, all of its processes together: how its goals are kept, and what of its limits
//! each process gets. A tenant of eight processes has no more than one of one.

use std::time::Duration;

use berth_model::slo::{Share, Throughput};
use berth_model::{Bytes, Mono, Slo};

use super::client::Lane;
use super::goals::{Goals, Stretch};
use super::measure::Tally;

/// One that has copied within this copies.
const COPIES: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Guest {
    pub goals: Goals,
    /// Of the window under way.
    pub tally: Tally,
    /// Seconds in which it had work, and in which it had some and might not run, since it came.
    pub wanted: f64,
    pub stopped: f64,
    /// Sums at the last look.
    launches: u64,
    requests: u64,
}

/// What the processes of a tenant did between two looks.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Doings {
    pub busy: bool,
    pub may_run: bool,
    pub launches: u64,
    pub requests: u64,
    /// It kept others stopped that have work.
    pub stops: bool,
}

/// What all processes of a tenant take of its limits.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Crew {
    busy: usize,
    copying: usize,
}

/// What the other processes of the same tenant take of its limits.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Beside {
    pub busy: usize,
    pub copying: usize,
}

impl Guest {
    /// With what it did in the window before it was away.
    pub fn with(tally: Tally) -> Self {
        Self { tally, ..Self::default() }
    }

    /// `running`: tenants that had work and might run; `counted`: what the window under way has got longer by, if it is of it. Sums go back when a process
    /// is gone: what it did last is lost.
    pub fn pass(&mut self, doings: &Doings, alone: bool, running: usize, passed: Duration, counted: Option<Duration>) {
        let Doings { busy, may_run, launches, requests, .. } = *doings;
        let launched = launches.saturating_sub(self.launches);
        let ended = requests.saturating_sub(self.requests);
        // Totals that were forged in one jump are no speed.
        let (launched, ended) = (launched.min(MOST_AT_ONCE), ended.min(MOST_AT_ONCE));
        let stretch = Stretch { passed, busy, may_run, alone, launches: launched, requests: ended };
        self.goals.pass(&stretch);
        counted.into_iter().for_each(|counted| self.tally.pass(&stretch, running, counted));
        let seconds = passed.as_secs_f64();
        self.wanted += if busy { seconds } else { 0.0 };
        self.stopped += if busy && !may_run { seconds } else { 0.0 };
        (self.launches, self.requests) = (launches, requests);
    }
}

/// More than a process can submit between two looks.
const MOST_AT_ONCE: u64 = 1_000_000;

impl Crew {
    pub fn add(&mut self, lane: &Lane, now: Mono) {
        self.busy += usize::from(lane.doing.busy);
        self.copying += usize::from(copies(lane, now));
    }

    /// What those of them take that are not this one.
    pub fn without(&self, lane: &Lane, now: Mono) -> Beside {
        Beside {
            busy: self.busy.saturating_sub(usize::from(lane.doing.busy)),
            copying: self.copying.saturating_sub(usize::from(copies(lane, now))),
        }
    }
}

fn copies(lane: &Lane, now: Mono) -> bool {
    lane.copied_at.is_some_and(|at| now.since(at) < COPIES)
}

impl Beside {
    /// What one process gets of what its tenant was promised and may have.
    pub fn part_of(&self, slo: &Slo) -> Slo {
        let (busy, copying) = (self.busy + 1, self.copying + 1);
        let share = |share: Share| part(share, busy);
        let throughput = slo.throughput.map(|throughput| match throughput {
            Throughput::MilliPerSecond(rate) => Throughput::MilliPerSecond((rate / busy as u64).max(1)),
            Throughput::OfAlone(share) => Throughput::OfAlone(share),
        });
        let mut own = Slo { throughput, reserve: slo.reserve.map(share), ..slo.clone() };
        let limits = &mut own.constraints;
        limits.most = limits.most.map(share);
        limits.copy = limits.copy.map(|bytes| Bytes((bytes.0 / copying as u64).max(1)));
        own
    }
}

fn part(share: Share, among: usize) -> Share {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a million")]
    let millionths = (share.get() * 1e6 / among.max(1) as f64) as u32;
    Share::from_millionths(millionths.max(1)).unwrap_or(share)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn slo(labels: &[(&str, &str)]) -> Slo {
        let labels: BTreeMap<String, String> =
            labels.iter().map(|(key, value)| (format!("berth.slo.{key}"), (*value).to_owned())).collect();
        Slo::from_labels(&labels).0
    }

    #[test]
    fn eight_processes_have_together_what_one_would_have() {
        let whole = slo(&[("most", "80%"), ("reserve", "40%"), ("throughput", "800/s"), ("copy", "8GB/s")]);
        let one = Beside { busy: 7, copying: 7 }.part_of(&whole);
        let expected = slo(&[("most", "10%"), ("reserve", "5%"), ("throughput", "100/s"), ("copy", "1GB/s")]);
        assert_eq!(one, expected);
        assert_eq!(Beside::default().part_of(&whole), whole, "one alone has all of it");
    }
}
