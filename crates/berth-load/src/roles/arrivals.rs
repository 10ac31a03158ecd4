//! What is drawn: when requests arrive, and how long the kernels of a step are. The same seed draws the same.

use std::time::Duration;

use crate::plan::mix;

/// Instants of a Poisson process since its beginning: requests come at this rate whether or not earlier ones are done.
#[derive(Debug, Clone)]
pub struct Arrivals {
    seed: u64,
    drawn: u64,
    per_second: f64,
    at_s: f64,
}

impl Arrivals {
    pub fn new(seed: u64, per_second: f64) -> Self {
        Self { seed, drawn: 0, per_second, at_s: 0.0 }
    }
}

impl Iterator for Arrivals {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let share = share(self.seed, self.drawn);
        self.drawn += 1;
        // An exponential gap; `share` is below 1, so the logarithm is of more than 0.
        self.at_s -= (1.0 - share).ln() / self.per_second;
        Duration::try_from_secs_f64(self.at_s).ok()
    }
}

/// Times of a step's kernels in microseconds: many short, few long, each length within the bounds equally likely on a scale of powers.
pub fn kernel_times_us(seed: u64, count: u32, (shortest, longest): (f64, f64)) -> Vec<f64> {
    let draw = |index| shortest * (longest / shortest).powf(share(seed ^ 0x6b65_726e, index));
    (0..u64::from(count)).map(draw).collect()
}

/// From 0 to below 1.
fn share(seed: u64, index: u64) -> f64 {
    // 53 bits fit a double exactly.
    (mix(mix(seed).wrapping_add(index)) >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_arrive_at_their_rate_and_irregularly() {
        let arrivals: Vec<f64> = Arrivals::new(1, 200.0).take(20_000).map(|at| at.as_secs_f64()).collect();
        let rate = arrivals.len() as f64 / arrivals[arrivals.len() - 1];
        assert!((rate - 200.0).abs() < 6.0, "{rate}");
        let gaps: Vec<f64> = arrivals.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        // The standard deviation of exponential gaps is their mean.
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.05, "{}", variance.sqrt() / mean);
    }

    #[test]
    fn the_same_seed_draws_the_same() {
        let draw = |seed| Arrivals::new(seed, 50.0).take(5).collect::<Vec<_>>();
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn kernels_are_within_their_bounds_and_mostly_short() {
        let times = kernel_times_us(1, 1_000, (10.0, 400.0));
        assert!(times.iter().all(|time| (10.0..400.0).contains(time)));
        let short = times.iter().filter(|time| **time < 63.2).count();
        assert!((450..550).contains(&short), "{short} of 1000 are below the geometric mean");
    }
}
