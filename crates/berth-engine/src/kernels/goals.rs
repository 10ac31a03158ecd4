//! How well the goals of one tenant on one GPU were kept: its requests as its libraries tell of them, its speed beside its speed alone, and
//! the time in which it got on.
//!
//! All processes of the tenant together. A request is told when it is done, however short it was; a job that never pauses has none, and its
//! speed is that of its launches.

use std::collections::VecDeque;
use std::time::Duration;

use berth_model::kernels::RequestFigures;
use berth_model::slo::Throughput;
use berth_model::{Mono, Slo};
use berth_policy::kernels::Attained;

/// Fewer requests than this say nothing of the next.
const FEW: usize = 20;
/// Of so many requests it is remembered how long they took.
const REMEMBERED: usize = 1_024;
/// Over this long throughput, speed and availability are taken.
const WINDOW: Duration = Duration::from_secs(5);
/// Work alone of less time says nothing of the speed alone.
const LEARNED: Duration = Duration::from_millis(200);

#[derive(Debug, Default)]
pub(super) struct Goals {
    /// How long those that ended took, and when they ended; the latest last.
    ended: VecDeque<(Mono, Duration)>,
    total: u64,
    /// Requests of the window, and the time it is about.
    rate: Speed,
    /// Launches while nobody else had work, and in all.
    alone: Speed,
    together: Speed,
    /// Time of the window in which it wanted the GPU, and in which it might run.
    wanted: f64,
    ran: f64,
}

/// Pieces in a time, both fading.
#[derive(Debug, Clone, Copy, Default)]
struct Speed {
    pieces: f64,
    seconds: f64,
}

/// What a tenant did between two looks.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Stretch {
    pub passed: Duration,
    /// It had work, and might run.
    pub busy: bool,
    pub may_run: bool,
    /// Nobody else had work.
    pub alone: bool,
    /// Kernels, graphs and copies it submitted.
    pub launches: u64,
    /// Requests that ended, as counted by its libraries.
    pub requests: u64,
}

impl Goals {
    /// A request has ended.
    pub fn ended(&mut self, at: Mono, took: Duration) {
        if self.ended.len() == REMEMBERED {
            self.ended.pop_front();
        }
        self.ended.push_back((at, took));
    }

    pub fn pass(&mut self, stretch: &Stretch) {
        let Stretch { passed, busy, may_run, alone, launches, requests } = *stretch;
        let (seconds, fades) = (passed.as_secs_f64(), fading(passed));
        self.total += requests;
        self.rate.add(requests, seconds, fades);
        self.wanted = self.wanted * fades + if busy { seconds } else { 0.0 };
        self.ran = self.ran * fades + if busy && may_run { seconds } else { 0.0 };
        if busy {
            self.together.add(launches, seconds, fades);
        }
        // Its speed alone does not fade while it has company.
        if busy && alone {
            self.alone.add(launches, seconds, fades);
        }
    }

    /// What is decided by: a first request that was late, as first ones are, says nothing of the next.
    pub fn attainment(&self, slo: &Slo) -> Option<f64> {
        let attained = self.attained(slo);
        Attained { latency: attained.latency.filter(|_| self.ended.len() >= FEW), ..attained }.combined()
    }

    /// How well the goals were kept of late.
    pub fn attained(&self, slo: &Slo) -> Attained {
        let latency = slo.latency.and_then(|latency| {
            let in_time = self.ended.iter().filter(|(_, took)| *took <= latency.within.get()).count();
            (!self.ended.is_empty()).then(|| in_time as f64 / self.ended.len() as f64)
        });
        let throughput = match slo.throughput {
            Some(Throughput::MilliPerSecond(rate)) => self.kept_rate(rate as f64 / 1e3),
            Some(Throughput::OfAlone(share)) => self.speed().map(|speed| (speed / share.get()).min(1.0)),
            None => None,
        };
        let availability = slo.availability.and_then(|share| Some((self.available()? / share.get()).min(1.0)));
        Attained { latency, throughput, availability }
    }

    /// Its speed of late over its speed alone; `None` until it was alone for a while.
    pub fn speed(&self) -> Option<f64> {
        Some((self.together.per_second()? / self.launches_alone()?).min(1.0))
    }

    /// Launches in a second of work while nobody else had any; `None` until it was alone for a while.
    pub fn launches_alone(&self) -> Option<f64> {
        let is_known = self.alone.seconds >= LEARNED.as_secs_f64() && self.alone.pieces > 0.0;
        self.alone.per_second().filter(|_| is_known)
    }

    /// Share of the time it wanted the GPU in which it might run.
    fn available(&self) -> Option<f64> {
        (self.wanted > 0.0).then(|| self.ran / self.wanted)
    }

    /// A rate is missed only by one that is kept from it: who had time left had nothing more to do.
    fn kept_rate(&self, promised: f64) -> Option<f64> {
        if self.rate.seconds < WINDOW.as_secs_f64() / 5.0 {
            return None;
        }
        let kept = (self.rate.per_second()? / promised).min(1.0);
        let had_time_left = self.wanted < self.rate.seconds * 0.95;
        Some(if had_time_left { 1.0 } else { kept })
    }

    pub fn figures(&self) -> RequestFigures {
        let mut took: Vec<Duration> = self.ended.iter().map(|(_, took)| *took).collect();
        took.sort_unstable();
        let percentile = |percent: usize| {
            let place = (took.len() * percent).div_ceil(100);
            took.get(place.saturating_sub(1)).map(Duration::as_secs_f64)
        };
        RequestFigures {
            requests: self.total,
            requests_per_second: self.rate.per_second().filter(|_| self.total > 0),
            request_p50_seconds: percentile(50),
            request_p99_seconds: percentile(99),
            speed_of_alone: self.speed(),
        }
    }
}

impl Speed {
    fn add(&mut self, pieces: u64, seconds: f64, fades: f64) {
        self.pieces = self.pieces * fades + pieces as f64;
        self.seconds = self.seconds * fades + seconds;
    }

    fn per_second(&self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.pieces / self.seconds)
    }
}

fn fading(passed: Duration) -> f64 {
    (-passed.as_secs_f64() / WINDOW.as_secs_f64()).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK: Duration = Duration::from_millis(2);

    fn slo(label: &str, value: &str) -> Slo {
        let (slo, wrong) = Slo::from_labels(&[(format!("berth.slo.{label}"), value.to_owned())].into());
        assert!(wrong.is_empty(), "{wrong:?}");
        slo
    }

    fn busy(launches: u64, requests: u64) -> Stretch {
        Stretch { passed: LOOK, busy: true, may_run: true, alone: false, launches, requests }
    }

    #[test]
    fn requests_between_two_looks_count_each_and_their_percentiles_are_theirs() {
        let mut goals = Goals::default();
        (1..=100).for_each(|ms| goals.ended(Mono(ms), Duration::from_millis(ms)));
        let latency = |value| goals.attained(&slo("latency", value)).latency;
        assert_eq!((latency("p99:100ms"), latency("p99:25ms")), (Some(1.0), Some(0.25)));
        let figures = goals.figures();
        assert_eq!((figures.request_p50_seconds, figures.request_p99_seconds), (Some(0.05), Some(0.099)));
        let mut one = Goals::default();
        one.ended(Mono(0), LOOK);
        assert_eq!(one.attainment(&slo("latency", "p99:1ms")), None, "one late request is too few to decide by");
    }

    #[test]
    fn a_rate_is_missed_by_one_that_has_no_time_left_and_kept_by_one_that_has() {
        let rate = slo("throughput", "1000/s");
        let (mut kept_from, mut at_leisure) = (Goals::default(), Goals::default());
        for _ in 0..3_000 {
            // One request in 2 ms.
            kept_from.pass(&busy(5, 1));
            at_leisure.pass(&busy(5, 1));
            at_leisure.pass(&Stretch { passed: LOOK, ..Stretch::default() });
        }
        let missed = kept_from.attained(&rate).throughput.unwrap();
        assert!((0.45..0.55).contains(&missed), "{missed}");
        assert_eq!(at_leisure.attained(&rate).throughput, Some(1.0));
        let shown = at_leisure.figures();
        let per_second = shown.requests_per_second.unwrap();
        assert!((240.0..260.0).contains(&per_second) && shown.requests == 3_000, "{shown:?}");
    }

    #[test]
    fn a_share_of_its_speed_alone_is_known_from_when_nobody_else_had_work() {
        let mut goals = Goals::default();
        let promise = slo("throughput", "80%");
        (0..2_000).for_each(|_| goals.pass(&busy(3, 0)));
        assert_eq!(goals.attained(&promise).throughput, None, "it was never alone");
        (0..2_000).for_each(|_| goals.pass(&Stretch { alone: true, ..busy(10, 0) }));
        (0..20_000).for_each(|_| goals.pass(&busy(4, 0)));
        let half = goals.attained(&promise).throughput.unwrap();
        assert!((0.48..0.53).contains(&half), "two fifths of what it does alone: {half}");
    }

    #[test]
    fn availability_is_of_the_time_in_which_it_wants_something() {
        let mut goals = Goals::default();
        for step in 0..1_000u64 {
            goals.pass(&Stretch { may_run: step % 2 == 0, ..busy(1, 0) });
            goals.pass(&Stretch { passed: LOOK, ..Stretch::default() });
        }
        let half = goals.attained(&slo("availability", "100%")).availability.unwrap();
        assert!((0.45..0.55).contains(&half), "{half}");
        assert_eq!(goals.attained(&slo("availability", "40%")).availability, Some(1.0));
    }
}
