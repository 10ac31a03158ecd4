//! Memory that grows and grows.
//!
//! Problem: memory goes up and down with the work, and by a step when the work changes; a leak goes up all the time. Terms: the mean of
//! each [`WINDOW`] values; the last [`KEPT`] means; of all pairs of them, how many went up less how many went down (Mann and Kendall's
//! test), which depends on no shape of the noise.
//!
//! It is a drift while all means together go up more surely than [`SURELY`], and each third of them goes up too, when steps up are
//! left out. And it must matter: less than [`LEAST`] of what is used in that time is none.

use std::collections::VecDeque;
use std::time::Duration;

use super::finding::{Finding, Kind};
use crate::quantity::Bytes;
use crate::time::Mono;

const WINDOW: u32 = 8;
const KEPT: usize = 36;
const THIRDS: usize = 3;
/// In standard deviations of what chance brings.
const SURELY: f64 = 4.5;
const EACH_SURELY: f64 = 1.2;
const LEAST: f64 = 0.02;
/// Times the usual change from one mean to the next: more is a step.
const STEP: f64 = 3.0;

#[derive(Debug, Clone, Default)]
pub struct Drift {
    sum: f64,
    count: u32,
    began: Mono,
    means: VecDeque<(Mono, f64)>,
    found: Option<Found>,
}

#[derive(Debug, Clone, Copy)]
struct Found {
    since: Mono,
    surely: f64,
    bytes_per_second: f64,
    /// Until the limit, where there is one.
    left: Option<Duration>,
}

impl Drift {
    /// `limit` is what it may use, or what there is.
    pub fn observe(&mut self, at: Mono, used: Bytes, limit: Option<Bytes>) -> Option<Finding> {
        if self.count == 0 {
            self.began = at;
        }
        self.sum += float(used);
        self.count += 1;
        if self.count >= WINDOW {
            self.means.push_back((self.began, self.sum / f64::from(self.count)));
            (self.sum, self.count) = (0.0, 0);
            if self.means.len() > KEPT {
                self.means.pop_front();
            }
            self.found = self.test(at, limit);
        }
        self.finding()
    }

    /// Nothing was seen yet.
    pub fn is_new(&self) -> bool {
        self.count == 0 && self.means.is_empty()
    }

    fn test(&self, now: Mono, limit: Option<Bytes>) -> Option<Found> {
        if self.means.len() < KEPT {
            return None;
        }
        let means = without_steps(self.means.iter().map(|(_, mean)| *mean).collect());
        let surely = kendall(&means);
        let third = KEPT / THIRDS;
        let goes_up_throughout = means.chunks(third).all(|part| kendall(part) > EACH_SURELY);
        let (first, last) = (mean(&means[..third]), mean(&means[KEPT - third..]));
        let grown = last - first;
        let matters = grown > LEAST * last;
        if surely < SURELY || !goes_up_throughout || !matters {
            return None;
        }
        let began = self.means.front()?.0;
        let parts = u32::try_from(THIRDS).unwrap_or(1);
        let between = now.since(began).as_secs_f64() * f64::from(parts - 1) / f64::from(parts);
        let bytes_per_second = grown / between.max(1e-9);
        let used = self.means.back()?.1;
        let left = limit.map(|limit| ((float(limit) - used) / bytes_per_second).max(0.0));
        let left = left.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        Some(Found { since: self.found.map_or(began, |found| found.since), surely, bytes_per_second, left })
    }

    pub fn finding(&self) -> Option<Finding> {
        let Found { since, surely, bytes_per_second, left } = self.found?;
        let mut words = format!("its memory grows by {} an hour", bytes(bytes_per_second * 3_600.0));
        if let Some(left) = left {
            words += &format!("; at this pace what it may use is gone in {}", roughly(left));
        }
        let sure = 1.0 - (-surely * surely / 2.0).exp();
        Some(Finding { kind: Kind::MemoryDrift, since, sure, words })
    }
}

/// The same means without steps up, in whose place the usual change comes: what grows does so all the time. Steps down stay, since a
/// saw is nothing else.
fn without_steps(means: Vec<f64>) -> Vec<f64> {
    let mut changes: Vec<f64> = means.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let half = changes.len() / 2;
    let usual = *changes.clone().select_nth_unstable_by(half, f64::total_cmp).1;
    let mut sizes: Vec<f64> = changes.iter().map(|change| change.abs()).collect();
    let most = STEP * *sizes.select_nth_unstable_by(half, f64::total_cmp).1;
    changes.iter_mut().filter(|change| **change > most).for_each(|change| *change = usual);
    let mut level = means[0];
    std::iter::once(level)
        .chain(changes.into_iter().map(|change| {
            level += change;
            level
        }))
        .collect()
}

/// In standard deviations of what values without a trend bring.
fn kendall(values: &[f64]) -> f64 {
    let mut score = 0.0;
    for (place, later) in values.iter().enumerate() {
        score += values[..place].iter().map(|earlier| sign(later - earlier)).sum::<f64>();
    }
    let many = f64::from(u32::try_from(values.len()).unwrap_or(u32::MAX));
    score / (many * (many - 1.0) * (2.0 * many + 5.0) / 18.0).sqrt()
}

/// Unlike `signum`, 0 of 0: memory that stays the same goes neither way.
fn sign(value: f64) -> f64 {
    f64::from(i8::from(value > 0.0) - i8::from(value < 0.0))
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / f64::from(u32::try_from(values.len()).unwrap_or(u32::MAX))
}

#[expect(clippy::cast_precision_loss, reason = "bytes of a GPU, to be compared")]
fn float(bytes: Bytes) -> f64 {
    bytes.0 as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "shown with one decimal")]
fn bytes(bytes: f64) -> Bytes {
    Bytes(bytes.max(0.0) as u64)
}

fn roughly(left: Duration) -> String {
    match left.as_secs() {
        seconds if seconds < 120 => format!("{seconds} s"),
        seconds if seconds < 2 * 3_600 => format!("{} min", seconds / 60),
        seconds if seconds < 2 * 86_400 => format!("{} h", seconds / 3_600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn run(used: impl Fn(u64) -> u64) -> Option<Finding> {
        let mut drift = Drift::default();
        (0..1_200).find_map(|second| {
            let at = Mono(second * 1_000_000_000);
            drift.observe(at, Bytes(used(second) * MIB), Some(Bytes(40_000 * MIB)))
        })
    }

    #[test]
    fn a_leak_is_found_with_its_pace_and_how_long_that_can_go_on() {
        let found = run(|second| 8_000 + 3 * second + second * 31 % 50).unwrap();
        assert!(found.words.contains("10.5 GiB an hour") || found.words.contains("10.6 GiB an hour"), "{found:?}");
        assert!(found.words.contains("gone in 2 h") || found.words.contains("gone in 3 h"), "{found:?}");
    }

    #[test]
    fn steps_saws_and_steady_memory_are_none() {
        assert_eq!(run(|_| 8_000), None);
        assert_eq!(run(|second| if second < 500 { 8_000 } else { 16_000 } + second * 31 % 50), None, "a step");
        assert_eq!(run(|second| 8_000 + (second % 60) * 100), None, "a saw");
        assert_eq!(run(|second| 8_000 + second / 20), None, "too little to matter");
    }

    #[test]
    fn a_drift_ends_when_memory_stays() {
        let mut drift = Drift::default();
        let mut told = Vec::new();
        for second in 0..2_000 {
            let used = Bytes((8_000 + 3 * second.min(600)) * MIB);
            told.push(drift.observe(Mono(second * 1_000_000_000), used, None).is_some());
        }
        assert!(told[599] && !told[1_999]);
    }
}
