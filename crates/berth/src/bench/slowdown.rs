//! Whether being watched slows a tenant down, from runs that alternate between watched and not.

use berth_load::TaskSummary;
use serde::Serialize;

use super::quantiles::median;

/// What one run took.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RunTimes {
    /// All launches and the waits for them.
    pub kernels_s: f64,
    /// From the first call to the driver to the last.
    pub stay_s: f64,
}

/// Tenants that launch small kernels as fast as they can.
#[derive(Debug, Clone, Serialize)]
pub struct Slowdown {
    pub pairs: usize,
    pub launches_per_run: u32,
    pub launches: Ratio,
    pub stay: Ratio,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Ratio {
    pub watched_s: f64,
    pub unwatched_s: f64,
    /// Of medians; 1 is no slowdown.
    pub watched_over_unwatched: f64,
    /// The same for two halves of the unwatched runs: what this measurement cannot tell apart.
    pub noise: f64,
}

impl RunTimes {
    /// `None` if the run did not get through.
    pub fn of(task: &TaskSummary) -> Option<Self> {
        let phases =
            [task.context_s, task.alloc_s, task.input_s, task.kernel_s, task.output_s, task.free_s, task.destroy_s];
        let stay_s = phases.into_iter().sum::<Option<f64>>()?;
        Some(Self { kernels_s: task.kernel_s?, stay_s })
    }
}

impl Slowdown {
    /// `None` without runs of both kinds.
    pub fn of(launches_per_run: u32, watched: &[RunTimes], unwatched: &[RunTimes]) -> Option<Self> {
        let ratio = |time: fn(&RunTimes) -> f64| {
            let times = |runs: &[RunTimes]| runs.iter().map(time).collect::<Vec<_>>();
            Ratio::of(&times(watched), &times(unwatched))
        };
        let launches = ratio(|run| run.kernels_s)?;
        let stay = ratio(|run| run.stay_s)?;
        Some(Self { pairs: watched.len(), launches_per_run, launches, stay })
    }
}

impl Ratio {
    fn of(watched: &[f64], unwatched: &[f64]) -> Option<Self> {
        let half = |skip: usize| median(&unwatched.iter().skip(skip).step_by(2).copied().collect::<Vec<_>>());
        let (watched_s, unwatched_s) = (median(watched)?, median(unwatched)?);
        let noise = half(0)? / half(1)?;
        Some(Self { watched_s, unwatched_s, watched_over_unwatched: watched_s / unwatched_s, noise })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_is_of_medians_and_the_noise_of_the_unwatched_halves() {
        let ratio = Ratio::of(&[2.0, 2.2, 9.0], &[2.0, 1.0, 2.0, 1.0]).unwrap();
        assert_eq!((ratio.watched_s, ratio.unwatched_s), (2.2, 1.0));
        assert_eq!((ratio.watched_over_unwatched, ratio.noise), (2.2, 2.0));
    }

    #[test]
    fn a_run_that_did_not_get_through_is_not_measured() {
        let done = TaskSummary { kernel_s: Some(2.0), ..TaskSummary::default() };
        assert_eq!(RunTimes::of(&done), None);
    }
}
