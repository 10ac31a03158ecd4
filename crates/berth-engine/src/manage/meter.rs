//! How long each tenant computed in its task, as far as that is known.
//!
//! Pure: what a tenant does, turn by turn, in; time out. The loop turns at every event, so what is said at one turn holds until
//! the next. Where nobody watches a tenant's calls the driver's own figure stands in: of a tenant alone on its GPU it is the
//! share of time in which something of it ran.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_model::bursts::Bursts;
use berth_model::history::Spent;
use berth_model::{Mono, Percent, TenantKey};

/// Of a task's time that must be known for anything to be said of it.
const LEAST_KNOWN: f64 = 0.8;
/// The driver's figure is up to 400 ms late: over less time than this it says nothing, or worse, that nothing was done.
const LEAST_SHARED: Duration = Duration::from_secs(2);

/// What a tenant does on its GPUs, for the one question whether it computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Doing {
    Computing,
    Nothing,
    /// As much as the driver says.
    Share(Percent),
    Unknown,
    /// Does not count: it would have done something else.
    Held,
}

#[derive(Debug, Default)]
pub(super) struct Meters {
    tenants: BTreeMap<TenantKey, Meter>,
}

#[derive(Debug)]
struct Meter {
    doing: Doing,
    since: Mono,
    computing: Duration,
    known: Duration,
    /// The same by the driver's figure alone.
    shared_computing: Duration,
    shared: Duration,
    bursts: Bursts,
}

impl Meters {
    /// `tenant` is in a task, and does this from now on; of those that compute on its GPU there are `crowd`.
    pub fn note(&mut self, tenant: &TenantKey, doing: Doing, crowd: u32, now: Mono) {
        let meter = match self.tenants.get_mut(tenant) {
            Some(meter) => {
                meter.turn(doing, now);
                meter
            }
            None => self.tenants.entry(tenant.clone()).or_insert(Meter::new(doing, now)),
        };
        meter.bursts.note((doing == Doing::Computing).then_some(crowd), now);
    }

    /// The task has ended after `seconds`, of which it was held for `held`.
    pub fn close(&mut self, tenant: &TenantKey, at: Mono, seconds: f64, held: Duration) -> Spent {
        let held_seconds = Some(held.as_secs_f64().min(seconds));
        let Some(mut meter) = self.tenants.remove(tenant) else {
            return Spent { active_seconds: None, held_seconds, burst_seconds: None };
        };
        meter.turn(Doing::Unknown, at);
        let stay = (seconds - held.as_secs_f64()).max(0.0);
        let active_seconds = meter.active_seconds(stay);
        let burst_seconds = meter.bursts.usual(at).filter(|_| active_seconds.is_some());
        Spent { active_seconds, held_seconds, burst_seconds }
    }
}

impl Meter {
    fn new(doing: Doing, since: Mono) -> Self {
        let none = Duration::ZERO;
        let bursts = Bursts::default();
        Self { doing, since, computing: none, known: none, shared_computing: none, shared: none, bursts }
    }

    fn turn(&mut self, doing: Doing, now: Mono) {
        let passed = now.since(self.since);
        match self.doing {
            Doing::Computing => {
                self.computing += passed;
                self.known += passed;
            }
            Doing::Nothing => self.known += passed,
            Doing::Share(share) => {
                self.shared_computing += passed.mul_f64(f64::from(share.get()) / 100.0);
                self.shared += passed;
            }
            Doing::Unknown | Doing::Held => {}
        }
        (self.doing, self.since) = (doing, now.max(self.since));
    }

    /// What is not known of the stay is taken to have been as the rest, if it is little.
    fn active_seconds(&self, stay: f64) -> Option<f64> {
        let (shared, shared_computing) =
            if self.shared < LEAST_SHARED { Default::default() } else { (self.shared, self.shared_computing) };
        let (known, computing) =
            ((self.known + shared).as_secs_f64(), (self.computing + shared_computing).as_secs_f64());
        let is_enough = known > 0.0 && known >= stay * LEAST_KNOWN;
        is_enough.then(|| computing * (stay / known).max(1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENANT: TenantKey = TenantKey::User { uid: 0 };

    /// Each for as many seconds, then the end; held as long as it says it was.
    fn active(course: &[(Doing, u64)]) -> Option<f64> {
        spent(course, 0).active_seconds
    }

    /// `unseen`: seconds of the task before anybody looked.
    fn spent(course: &[(Doing, u64)], unseen: u64) -> Spent {
        let (mut meters, mut second, mut held) = (Meters::default(), unseen, 0);
        for (doing, seconds) in course {
            meters.note(&TENANT, *doing, 1, Mono(second * 1_000_000_000));
            held += if *doing == Doing::Held { *seconds } else { 0 };
            second += seconds;
        }
        #[expect(clippy::cast_precision_loss, reason = "a few seconds")]
        meters.close(&TENANT, Mono(second * 1_000_000_000), second as f64, Duration::from_secs(held))
    }

    #[test]
    fn time_held_and_idle_is_not_time_it_computed() {
        let course = [(Doing::Nothing, 2), (Doing::Held, 10), (Doing::Computing, 5), (Doing::Nothing, 3)];
        let (active_seconds, held_seconds) = (Some(5.0), Some(10.0));
        assert_eq!(spent(&course, 0), Spent { active_seconds, held_seconds, burst_seconds: Some(5.0) });
    }

    #[test]
    fn where_nobody_watches_its_calls_the_driver_s_share_counts() {
        assert_eq!(active(&[(Doing::Nothing, 2), (Doing::Share(Percent::checked(25).unwrap()), 8)]), Some(2.0));
    }

    /// The figure still says what was before it launched.
    #[test]
    fn a_task_too_short_for_the_driver_s_figure_is_not_said_to_have_done_nothing() {
        assert_eq!(active(&[(Doing::Share(Percent::default()), 1)]), None);
        assert_eq!(active(&[(Doing::Share(Percent::default()), 2)]), Some(0.0));
    }

    #[test]
    fn what_is_mostly_unknown_is_not_made_up() {
        assert_eq!(active(&[(Doing::Unknown, 3), (Doing::Computing, 7)]), None);
        assert_eq!(active(&[(Doing::Unknown, 1), (Doing::Computing, 9)]), Some(10.0), "as the rest");
        assert_eq!(spent(&[(Doing::Computing, 10)], 100).active_seconds, None, "it was there before berth");
        assert_eq!(active(&[]), None);
        assert_eq!(active(&[(Doing::Held, 5)]), None, "nothing was seen of what it does");
    }

    #[test]
    fn a_second_task_begins_from_nothing() {
        let mut meters = Meters::default();
        meters.note(&TENANT, Doing::Computing, 1, Mono(0));
        assert_eq!(meters.close(&TENANT, Mono(1_000_000_000), 1.0, Duration::ZERO).active_seconds, Some(1.0));
        meters.note(&TENANT, Doing::Nothing, 1, Mono(5_000_000_000));
        assert_eq!(meters.close(&TENANT, Mono(7_000_000_000), 2.0, Duration::ZERO).active_seconds, Some(0.0));
    }
}
