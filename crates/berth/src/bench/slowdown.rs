//! Whether being watched slows a tenant down.
//!
//! Two runs of one program differ by more than any slowdown worth finding, so one tenant works all the time while a daemon
//! comes and goes: windows of time with and without it alternate, and each watched window is compared with the two
//! unwatched ones beside it. A watched window begins when the daemon is started, so finding the tenant, attaching to it and
//! letting go of it are in it.
//!
//! Two tenants are measured, one after the other. One computes products, as most tenants do; its rate is the GPU's, which
//! is steady. One only launches, as fast as the driver takes it: nothing else could feel a probe sooner, but its rate is
//! that of a busy CPU and differs by a few percent from second to second.

use serde::Serialize;

use super::quantiles::median;

/// A stretch of time on the monotonic clock, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    pub from: u64,
    pub to: u64,
}

impl Window {
    /// Rounds per second, from the first to the last that was done in the window: a count would be off by up to one round.
    fn rate(self, done: &[u64]) -> Option<f64> {
        let inside: Vec<u64> = done.iter().copied().filter(|at| (self.from..self.to).contains(at)).collect();
        let (first, last) = (inside.first()?, inside.last()?);
        let rounds = u32::try_from(inside.len() - 1).ok().filter(|rounds| *rounds > 0)?;
        Some(f64::from(rounds) / std::time::Duration::from_nanos(last - first).as_secs_f64())
    }
}

/// What the measured tenant does all the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// One matrix product after another.
    Products,
    /// Kernels so small that the launch is most of the work.
    Launches,
}

impl Work {
    pub fn name(self) -> &'static str {
        match self {
            Work::Products => "products",
            Work::Launches => "launches",
        }
    }
}

/// What being watched costs a tenant that does one kind of work.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Slowdown {
    pub work: Work,
    pub pairs: usize,
    /// Median rate while unwatched.
    pub kernels_per_second: f64,
    /// Time per kernel, watched over unwatched, median over the pairs; 1 is no slowdown.
    pub watched_over_unwatched: f64,
    /// That median lies in here with 95 % confidence.
    pub low: f64,
    pub high: f64,
}

impl Slowdown {
    /// From windows that alternate, unwatched first and last, and the instants in order at which rounds of `kernels`
    /// kernels were done. `None` unless at least one round lies within each window.
    pub fn of(work: Work, windows: &[Window], done: &[u64], kernels: u32) -> Option<Self> {
        let rates: Vec<f64> =
            windows.iter().map(|window| Some(window.rate(done)? * f64::from(kernels))).collect::<Option<_>>()?;
        let triples = rates.windows(3).step_by(2);
        let mut ratios: Vec<f64> = triples.map(|beside| (beside[0] + beside[2]) / 2.0 / beside[1]).collect();
        ratios.sort_by(f64::total_cmp);
        let (low, high) = confidence_ranks(ratios.len());
        Some(Self {
            work,
            pairs: ratios.len(),
            kernels_per_second: median(&rates.into_iter().step_by(2).collect::<Vec<_>>())?,
            watched_over_unwatched: median(&ratios)?,
            low: *ratios.get(low)?,
            high: *ratios.get(high)?,
        })
    }
}

/// Indices of the sorted values between which the median lies with 95 % confidence, by the sign test's normal
/// approximation; the extremes where there are too few.
fn confidence_ranks(count: usize) -> (usize, usize) {
    let half = 0.98 * f64::sqrt(f64::from(u32::try_from(count).unwrap_or(u32::MAX)));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most count")]
    let spread = half.ceil() as usize;
    let middle = count / 2;
    (middle.saturating_sub(spread), (middle + spread).min(count.saturating_sub(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_tenant_half_as_fast_while_watched_is_slowed_down_twofold() {
        let windows: Vec<_> = (0..9).map(|n| Window { from: n * 1_000 * MS, to: (n + 1) * 1_000 * MS }).collect();
        let rounds = |n: u64| if n.is_multiple_of(2) { 100 } else { 50 };
        let done: Vec<u64> =
            (0..9).flat_map(|n| (0..rounds(n)).map(move |k| (1_000 * n + 1_000 / rounds(n) * k) * MS)).collect();
        let slowdown = Slowdown::of(Work::Launches, &windows, &done, 64).unwrap();
        assert_eq!((slowdown.pairs, slowdown.kernels_per_second), (4, 6_400.0));
        assert_eq!((slowdown.watched_over_unwatched, slowdown.low, slowdown.high), (2.0, 2.0, 2.0));
    }

    #[test]
    fn nothing_done_is_nothing_measured() {
        let windows = [0, 1, 2].map(|n| Window { from: n, to: n + 1 });
        assert_eq!(Slowdown::of(Work::Products, &windows, &[], 64), None);
    }

    #[test]
    fn a_rate_is_exact_even_where_few_rounds_fit_a_window() {
        let done: Vec<u64> = (0..40).map(|n| n * 300 * MS).collect();
        let window = |from: u64| Window { from: from * MS, to: (from + 1_000) * MS };
        let rates = [window(100), window(250), window(900)].map(|window| window.rate(&done).unwrap());
        assert!(rates.iter().all(|rate| (rate - 1.0 / 0.3).abs() < 1e-9), "{rates:?}");
    }

    #[test]
    fn more_pairs_give_a_narrower_interval() {
        assert_eq!(confidence_ranks(4), (0, 3));
        assert_eq!(confidence_ranks(25), (7, 17));
    }
}
