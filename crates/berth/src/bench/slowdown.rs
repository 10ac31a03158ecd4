//! Whether being watched slows a tenant down.
//!
//! Two runs of one program differ by more than any slowdown worth finding, so one tenant launches kernels all the time
//! while a daemon comes and goes: windows of time with and without it alternate, and each watched window is compared with
//! the two unwatched ones beside it. A watched window begins when the daemon is started, so finding the tenant, attaching to it
//! and letting go of it are in it.

use serde::Serialize;

use super::quantiles::median;

/// A stretch of time on the monotonic clock, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    pub from: u64,
    pub to: u64,
}

/// Tenants that launch small kernels as fast as they can.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Slowdown {
    pub pairs: usize,
    /// Median rate while unwatched.
    pub launches_per_second: f64,
    /// Time per launch, watched over unwatched, median over the pairs; 1 is no slowdown.
    pub watched_over_unwatched: f64,
    /// That median lies in here with 95 % confidence.
    pub low: f64,
    pub high: f64,
}

impl Slowdown {
    /// From windows that alternate, unwatched first and last, and the instants at which rounds of `launches` kernels were
    /// done. `None` unless something was done in each.
    pub fn of(windows: &[Window], done: &[u64], launches: u32) -> Option<Self> {
        let rate = |window: &Window| {
            let rounds = done.iter().filter(|at| (window.from..window.to).contains(at)).count();
            let seconds = std::time::Duration::from_nanos(window.to - window.from).as_secs_f64();
            f64::from(u32::try_from(rounds).unwrap_or(u32::MAX)) * f64::from(launches) / seconds
        };
        let rates: Vec<f64> = windows.iter().map(rate).collect();
        if rates.contains(&0.0) {
            return None;
        }
        let triples = rates.windows(3).step_by(2);
        let mut ratios: Vec<f64> = triples.map(|beside| (beside[0] + beside[2]) / 2.0 / beside[1]).collect();
        ratios.sort_by(f64::total_cmp);
        let (low, high) = confidence_ranks(ratios.len());
        Some(Self {
            pairs: ratios.len(),
            launches_per_second: median(&rates.into_iter().step_by(2).collect::<Vec<_>>())?,
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
        let slowdown = Slowdown::of(&windows, &done, 64).unwrap();
        assert_eq!((slowdown.pairs, slowdown.launches_per_second), (4, 6_400.0));
        assert_eq!((slowdown.watched_over_unwatched, slowdown.low, slowdown.high), (2.0, 2.0, 2.0));
    }

    #[test]
    fn nothing_done_is_nothing_measured() {
        let windows = [0, 1, 2].map(|n| Window { from: n, to: n + 1 });
        assert_eq!(Slowdown::of(&windows, &[], 64), None);
    }

    #[test]
    fn more_pairs_give_a_narrower_interval() {
        assert_eq!(confidence_ranks(4), (0, 3));
        assert_eq!(confidence_ranks(25), (7, 17));
    }
}
