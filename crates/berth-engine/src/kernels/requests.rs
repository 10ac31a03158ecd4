//! Stretches of work of one client on one GPU, between two pauses: how long they took, and how well goals were kept.
//!
//! From what its ledger says at each look: two stretches between two looks count as one that lasted as long as both.

use std::collections::VecDeque;
use std::time::Duration;

use berth_model::slo::Throughput;
use berth_model::{Mono, Slo};
use berth_policy::kernels::{Attained, Work};

use super::reading::Doing;

/// Fewer requests than this say nothing of the next.
const FEW: usize = 20;
/// Of so many requests it is remembered whether they were in time.
const REMEMBERED: usize = 256;
/// Over this long throughput and availability are taken.
const WINDOW: Duration = Duration::from_secs(5);
/// Weight of the latest stretch in what one usually takes.
const FOLLOWS: f64 = 0.2;

#[derive(Debug, Default)]
pub(super) struct Requests {
    under_way: Option<UnderWay>,
    /// How long those that ended took, and when they ended; the latest last.
    ended: VecDeque<(Mono, Duration)>,
    /// GPU time a stretch usually takes.
    takes: Option<Duration>,
    /// Time of the window in which it wanted the GPU, and in which it might run.
    wanted: Fading,
    ran: Fading,
}

#[derive(Debug, Clone, Copy)]
struct UnderWay {
    began: Mono,
    served_ns: u64,
}

/// A sum of time that fades.
#[derive(Debug, Clone, Copy, Default)]
struct Fading(f64);

impl Requests {
    /// `served_ns`: GPU time it had so far. `passed` since the last look, in which it might run or not.
    pub fn look(&mut self, doing: Doing, served_ns: u64, may_run: bool, passed: Duration, now: Mono) {
        self.wanted.pass(passed, doing.busy);
        self.ran.pass(passed, doing.busy && may_run);
        let since = doing.since.unwrap_or(now);
        match (self.under_way, doing.busy) {
            (Some(one), false) => self.end(one, since, served_ns),
            (Some(one), true) if since > one.began => {
                self.end(one, since, served_ns);
                self.under_way = Some(UnderWay { began: since, served_ns });
            }
            (None, true) => self.under_way = Some(UnderWay { began: since, served_ns }),
            (Some(_), true) | (None, false) => {}
        }
    }

    fn end(&mut self, one: UnderWay, at: Mono, served_ns: u64) {
        self.under_way = None;
        if self.ended.len() == REMEMBERED {
            self.ended.pop_front();
        }
        self.ended.push_back((at, at.since(one.began)));
        let took = Duration::from_nanos(served_ns.saturating_sub(one.served_ns));
        let usual = self.takes.unwrap_or(took);
        self.takes = Some(usual.mul_f64(1.0 - FOLLOWS) + took.mul_f64(FOLLOWS));
    }

    /// GPU time a request usually takes.
    pub fn takes(&self) -> Option<Duration> {
        self.takes
    }

    pub fn work(&self, served_ns: u64) -> Option<Work> {
        let one = self.under_way?;
        let done = Duration::from_nanos(served_ns.saturating_sub(one.served_ns));
        Some(Work { began: one.began, done, takes: self.takes })
    }

    /// What is decided by: a first request that was late, as first ones are, says nothing of the next.
    pub fn attainment(&self, slo: &Slo, now: Mono) -> Option<f64> {
        let attained = self.attained(slo, now);
        Attained { latency: attained.latency.filter(|_| self.ended.len() >= FEW), ..attained }.combined()
    }

    /// How well the goals were kept of late.
    pub fn attained(&self, slo: &Slo, now: Mono) -> Attained {
        let share = |part: usize, whole: usize| (whole > 0).then(|| part as f64 / whole as f64);
        let latency = slo.latency.and_then(|latency| {
            let in_time = self.ended.iter().filter(|(_, took)| *took <= latency.within.get()).count();
            share(in_time, self.ended.len())
        });
        let throughput = match slo.throughput {
            Some(Throughput::MilliPerSecond(rate)) => self.kept_rate(rate, now),
            // Its speed alone is not known.
            Some(Throughput::OfAlone(_)) | None => None,
        };
        let availability = slo
            .availability
            .and_then(|share| (self.wanted.0 > 0.0).then(|| (self.ran.0 / self.wanted.0 / share.get()).min(1.0)));
        Attained { latency, throughput, availability }
    }

    /// A rate is missed only by one that still has work: without, nothing more was asked of it.
    fn kept_rate(&self, milli_per_second: u64, now: Mono) -> Option<f64> {
        let (first, _) = self.ended.front()?;
        let over = now.since(*first).min(WINDOW);
        if over < WINDOW / 5 {
            return None;
        }
        if self.under_way.is_none() {
            return Some(1.0);
        }
        let done = self.ended.iter().filter(|(at, _)| now.since(*at) <= over).count();
        let promised = milli_per_second as f64 / 1e3 * over.as_secs_f64();
        Some((done as f64 / promised).min(1.0))
    }
}

impl Fading {
    fn pass(&mut self, passed: Duration, counts: bool) {
        let passed = passed.as_secs_f64();
        self.0 *= (-passed / WINDOW.as_secs_f64()).exp();
        if counts {
            self.0 += passed;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn busy(since: u64) -> Doing {
        Doing { busy: true, since: Some(Mono(since * MS)) }
    }

    fn idle(since: u64) -> Doing {
        Doing { busy: false, since: Some(Mono(since * MS)) }
    }

    fn slo(label: &str, value: &str) -> Slo {
        let (slo, wrong) = Slo::from_labels(&[(format!("berth.slo.{label}"), value.to_owned())].into());
        assert!(wrong.is_empty(), "{wrong:?}");
        slo
    }

    /// Looks every 2 ms at what is said, by the instant in ms.
    fn looked(says: impl Fn(u64) -> Doing, until: u64) -> Requests {
        let mut requests = Requests::default();
        for at in (0..until).step_by(2) {
            requests.look(says(at), at * MS / 2, true, Duration::from_millis(2), Mono(at * MS));
        }
        requests
    }

    #[test]
    fn a_request_took_from_its_beginning_to_its_end_whenever_it_was_looked_at() {
        let requests = looked(
            |at| {
                if at < 5 {
                    idle(0)
                } else if at < 13 {
                    busy(5)
                } else {
                    idle(13)
                }
            },
            20,
        );
        assert_eq!(requests.ended, [(Mono(13 * MS), Duration::from_millis(8))]);
        let latency = |value| requests.attained(&slo("latency", value), Mono(20 * MS)).latency;
        assert_eq!((latency("p99:8ms"), latency("p99:7ms")), (Some(1.0), Some(0.0)));
        let decided = requests.attainment(&slo("latency", "p99:7ms"), Mono(20 * MS));
        assert_eq!(decided, None, "one late request is too few to decide by");
        assert_eq!(requests.work(99), None);
    }

    #[test]
    fn one_that_begins_again_between_two_looks_has_ended_before() {
        let requests = looked(|at| if at < 11 { busy(1) } else { busy(11) }, 20);
        assert_eq!(requests.ended, [(Mono(11 * MS), Duration::from_millis(10))]);
        assert_eq!(requests.work(20 * MS).unwrap().began, Mono(11 * MS));
    }

    #[test]
    fn a_rate_is_missed_by_one_that_has_work_and_kept_by_one_that_has_none() {
        // One request in 20 ms, of 10 ms each.
        let one_in_20 = |at: u64| if at % 20 < 10 { busy(at - at % 20) } else { idle(at - at % 20 + 10) };
        let rate = slo("throughput", "100/s");
        let missed = looked(one_in_20, 4_009).attained(&rate, Mono(4_009 * MS)).throughput.unwrap();
        assert!((0.45..0.55).contains(&missed), "{missed}");
        assert_eq!(looked(one_in_20, 4_019).attained(&rate, Mono(4_019 * MS)).throughput, Some(1.0));
    }

    #[test]
    fn availability_is_of_the_time_in_which_it_wants_something() {
        let mut requests = Requests::default();
        for step in 0..1_000u64 {
            let now = Mono(step * 2 * MS);
            requests.look(busy(0), 0, step % 2 == 0, Duration::from_millis(2), now);
        }
        let half = requests.attained(&slo("availability", "100%"), Mono(2_000 * MS)).availability.unwrap();
        assert!((0.45..0.55).contains(&half), "{half}");
        assert_eq!(requests.attained(&slo("availability", "40%"), Mono(2_000 * MS)).availability, Some(1.0));
    }
}
