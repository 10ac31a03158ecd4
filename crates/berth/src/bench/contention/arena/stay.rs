//! What the daemon's history would keep of a tenant's stay: how long it computed, how long it was held, its memory.

use berth_model::bursts::Bursts;
use berth_model::{Bytes, Mono};
use berth_policy::Past;

use super::NS;

#[derive(Debug, Default)]
pub(super) struct Stay {
    pub(super) present: Watch,
    pub(super) computing: Watch,
    pub(super) held: Watch,
    pub(super) bursts: Bursts,
    pub(super) peak_memory: Option<Bytes>,
}

/// Counts the time in which something is so.
#[derive(Debug, Default)]
pub(super) struct Watch {
    since: Option<u64>,
    total_ns: u64,
}

impl Stay {
    /// `None` if nobody saw it compute: without that there is nothing to expect of the next one.
    pub(super) fn past(&self, now: u64) -> Option<Past> {
        let [present, active, held] =
            [&self.present, &self.computing, &self.held].map(|watch| watch.total_ns(now) as f64 / NS);
        let duty = (active / (present - held).max(active)).clamp(0.0, 1.0);
        (active > 0.0).then_some(Past {
            active_seconds: active,
            peak_memory: self.peak_memory,
            duty,
            burst_seconds: self.bursts.usual(Mono(now)),
        })
    }
}

impl Watch {
    pub(super) fn set(&mut self, is_so: bool, now: u64) {
        match (is_so, self.since) {
            (true, None) => self.since = Some(now),
            (false, Some(_)) => *self = Watch { since: None, total_ns: self.total_ns(now) },
            _ => {}
        }
    }

    fn total_ns(&self, now: u64) -> u64 {
        self.total_ns + self.since.map_or(0, |since| now.saturating_sub(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_held_is_no_part_of_the_share_a_tenant_computes() {
        let mut stay = Stay::default();
        let second = 1_000_000_000;
        stay.present.set(true, 0);
        stay.held.set(true, second);
        stay.held.set(false, 5 * second);
        stay.computing.set(true, 5 * second);
        stay.computing.set(true, 6 * second);
        stay.computing.set(false, 8 * second);
        stay.bursts.note(Some(1), Mono(5 * second));
        stay.bursts.note(None, Mono(8 * second));
        let past = Past { active_seconds: 3.0, peak_memory: None, duty: 0.5, burst_seconds: Some(3.0) };
        assert_eq!(stay.past(10 * second), Some(past));
        assert_eq!(Stay::default().past(second), None);
    }
}
