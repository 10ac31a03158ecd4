//! Whether one that leads keeps to its share: how much of the time it kept others stopped who had work.
//!
//! A leader stops others by its own word, inline. One that keeps it raised on and on, by a goal it cannot keep or on purpose, would have
//! them wait for ever: it loses its lead for a while, longer each time, and is then one among equals.

use std::time::Duration;

use berth_model::Mono;

/// A smaller share is none.
const LEAST: f64 = 0.0001;
/// Over this long the share is taken.
const WINDOW: Duration = Duration::from_secs(2);
/// How long the lead is lost the first time; twice as long each further time.
const FIRST: Duration = Duration::from_secs(5);
const LONGEST: Duration = Duration::from_secs(60);
/// One that led for so long and kept to its share begins anew.
const FORGIVEN: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Lead {
    share: f64,
    /// When that was.
    at: Mono,
    lost_until: Option<Mono>,
    times: u32,
}

impl Lead {
    /// `stops`: it kept others stopped that have work, throughout `passed`. `most` of the time it may. Whether it loses its lead now.
    pub fn look(&mut self, stops: bool, most: f64, passed: Duration, now: Mono) -> bool {
        // Before that nobody looked, since it was not there.
        let away = now.since(self.at).saturating_sub(passed);
        let led = if stops { 1.0 - fades(passed) } else { 0.0 };
        (self.share, self.at) = (self.share * fades(away) * fades(passed) + led, now);
        if self.is_lost(now) || self.share <= most {
            return false;
        }
        let is_forgiven = self.lost_until.is_none_or(|until| now.since(until) > FORGIVEN);
        self.times = if is_forgiven { 0 } else { self.times + 1 };
        self.share = 0.0;
        self.lost_until = Some(now + FIRST.saturating_mul(1 << self.times.min(10)).min(LONGEST));
        true
    }

    /// Whether any of it could still make a difference. What it led fades.
    pub fn counts(&self, now: Mono) -> bool {
        self.share * fades(now.since(self.at)) >= LEAST || now <= self.counts_until()
    }

    /// Until then another loss is for longer.
    pub fn counts_until(&self) -> Mono {
        self.lost_until.map_or(Mono(0), |until| until + FORGIVEN)
    }

    pub fn is_lost(&self, now: Mono) -> bool {
        self.lost_until(now).is_some()
    }

    /// `None` while it has its lead.
    pub fn lost_until(&self, now: Mono) -> Option<Mono> {
        self.lost_until.filter(|until| *until > now)
    }
}

fn fades(passed: Duration) -> f64 {
    (-passed.as_secs_f64() / WINDOW.as_secs_f64()).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_millis(10);

    /// When it lost its lead in these seconds, in steps.
    fn losses(seconds: u64, stops: impl Fn(u64) -> bool) -> Vec<u64> {
        let mut lead = Lead::default();
        let steps = 0..seconds * 100;
        steps.filter(|step| lead.look(stops(*step), 0.95, STEP, Mono(step * 10_000_000))).collect()
    }

    #[test]
    fn one_that_never_lets_go_loses_its_lead_within_seconds_and_for_longer_each_time() {
        let lost = losses(120, |_| true);
        assert!((300..900).contains(&lost[0]), "{lost:?}");
        let gaps: Vec<u64> = lost.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(gaps.len() >= 3 && gaps.windows(2).all(|pair| pair[1] > pair[0]), "{lost:?}");
    }

    #[test]
    fn one_that_lets_others_have_a_tenth_of_the_time_keeps_it() {
        assert_eq!(losses(120, |step| step % 10 != 0), [0; 0]);
        assert_eq!(losses(120, |step| step % 100 < 90), [0; 0], "a tenth of each second");
    }

    #[test]
    fn a_burst_of_a_second_is_no_offence() {
        assert_eq!(losses(120, |step| step % 500 < 100), [0; 0]);
    }
}
