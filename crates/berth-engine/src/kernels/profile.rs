//! What is known of a client's work on one GPU, from samples its library took: how long, how spread, how wide, how well predicted.
//!
//! By function and shape, in a table of fixed size. Durations are capped, so that one forged sample does not spoil an average for good.

use std::collections::HashMap;
use std::time::Duration;

use berth_policy::kernels::Profile;
use berth_proto::shim::{Sample, SampleKind};

/// Kinds of work that are told apart; what comes beyond is counted with all, and not by itself.
const MOST_KINDS: usize = 4_096;
/// Longer no piece of work is.
const LONGEST_NS: u64 = 10_000_000_000;
/// Weight of a new figure in an average that follows.
const FOLLOWS: f64 = 0.05;
/// The longest of late fades by this part with each sample.
const FADES: f64 = 0.002;
/// Threads an SM has room for, on every GPU since Volta but the smallest.
const THREADS_PER_SM: f64 = 2_048.0;

#[derive(Debug, Default)]
pub(super) struct Book {
    kinds: HashMap<Kind, Times>,
    all: Times,
    longest_ns: f64,
    /// Share of the SMs, by the time it was wanted for.
    demand: Option<f64>,
    /// Mean of how far an estimate was from what was measured, as a part of the latter.
    error: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Kind {
    kind: u8,
    function: u64,
    blocks: u32,
    threads_per_block: u32,
}

/// Mean and spread, by Welford.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Times {
    pub count: u64,
    pub mean_ns: f64,
    squares: f64,
}

impl Book {
    /// `sms` of the whole GPU.
    pub fn add(&mut self, sample: &Sample, sms: u32) {
        let took_ns = sample.took_ns.min(LONGEST_NS) as f64;
        if took_ns == 0.0 {
            return;
        }
        if sample.estimated_ns > 0 {
            let error = (sample.estimated_ns.min(LONGEST_NS) as f64 - took_ns).abs() / took_ns;
            follow(&mut self.error, error);
        }
        if sample.kind == SampleKind::Copy {
            return;
        }
        self.all.add(took_ns);
        self.longest_ns = (self.longest_ns * (1.0 - FADES)).max(took_ns);
        let kind = Kind {
            kind: sample.kind as u8,
            function: sample.function,
            blocks: sample.blocks,
            threads_per_block: sample.threads_per_block,
        };
        if self.kinds.len() < MOST_KINDS || self.kinds.contains_key(&kind) {
            self.kinds.entry(kind).or_default().add(took_ns);
        }
        if sample.kind == SampleKind::Kernel && sms > 0 {
            let threads = f64::from(sample.blocks) * f64::from(sample.threads_per_block);
            follow(&mut self.demand, (threads / (f64::from(sms) * THREADS_PER_SM)).min(1.0));
        }
    }

    /// `request`: a usual one, which samples do not tell.
    pub fn profile(&self, request: Option<Duration>) -> Profile {
        let known = self.all.count > 0;
        Profile {
            request,
            kernel: known.then(|| Duration::from_secs_f64(self.all.mean_ns / 1e9)),
            longest: known.then(|| Duration::from_secs_f64(self.longest_ns / 1e9)),
            demand: self.demand,
            bandwidth: None,
        }
    }

    pub fn error(&self) -> Option<f64> {
        self.error
    }

    pub fn samples(&self) -> u64 {
        self.all.count
    }

    /// Kinds of work that were told apart.
    pub fn kinds(&self) -> usize {
        self.kinds.len()
    }

    /// How far its times lie apart within one kind of work, as a part of their mean: what no estimate by kind can know.
    pub fn spread(&self) -> Option<f64> {
        let repeated = self.kinds.values().filter(|times| times.count > 1);
        let (sum, weight) = repeated.fold((0.0, 0.0), |(sum, weight), times| {
            let all_ns = times.mean_ns * times.count as f64;
            (sum + times.spread() * all_ns, weight + all_ns)
        });
        (weight > 0.0).then(|| sum / weight)
    }
}

impl Times {
    fn add(&mut self, took_ns: f64) {
        self.count += 1;
        let from_mean = took_ns - self.mean_ns;
        self.mean_ns += from_mean / self.count as f64;
        self.squares += from_mean * (took_ns - self.mean_ns);
    }

    /// Standard deviation over mean.
    fn spread(&self) -> f64 {
        if self.count < 2 || self.mean_ns <= 0.0 {
            return 0.0;
        }
        (self.squares / (self.count - 1) as f64).sqrt() / self.mean_ns
    }
}

fn follow(average: &mut Option<f64>, figure: f64) {
    *average = Some(average.map_or(figure, |average| average + FOLLOWS * (figure - average)));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample(function: u64, took_ns: u64, estimated_ns: u64) -> Sample {
        let (blocks, threads_per_block, position, at_ns, sms, blocks_per_sm) = (132, 1_024, 0, 0, 0, 0);
        let kind = SampleKind::Kernel;
        let lane = 0;
        Sample {
            kind,
            lane,
            function,
            blocks,
            threads_per_block,
            position,
            took_ns,
            estimated_ns,
            at_ns,
            sms,
            blocks_per_sm,
        }
    }

    #[test]
    fn kinds_are_told_apart_and_their_spread_is_their_own() {
        let mut book = Book::default();
        for _ in 0..10 {
            book.add(&sample(1, 10_000, 0), 132);
            book.add(&sample(2, 90_000, 0), 132);
        }
        assert_eq!((book.kinds(), book.spread()), (2, Some(0.0)), "two steady kinds");
        assert_eq!(book.profile(None).kernel, Some(Duration::from_nanos(50_000)));
        assert_eq!(book.profile(None).demand, Some(0.5));
        (0..10).for_each(|round| book.add(&sample(1, 10_000 + 10_000 * (round % 2), 0), 132));
        assert!(book.spread().unwrap() > 0.0);
    }

    #[test]
    fn the_error_is_of_estimates_that_were_made() {
        let mut book = Book::default();
        book.add(&sample(1, 100, 0), 132);
        assert_eq!(book.error(), None);
        book.add(&sample(1, 100, 150), 132);
        assert_eq!(book.error(), Some(0.5));
        (0..1_000).for_each(|_| book.add(&sample(1, 100, 100), 132));
        assert!(book.error().unwrap() < 0.01, "it follows");
    }

    proptest! {
        #[test]
        fn whatever_is_forged_figures_stay_figures_and_the_table_small(
            samples in prop::collection::vec(any::<(u64, u64, u64, u32, u32)>(), 0..200), sms: u32,
        ) {
            let mut book = Book::default();
            for (function, took, estimated, blocks, threads) in samples {
                book.add(&Sample { blocks, threads_per_block: threads, ..sample(function, took, estimated) }, sms);
            }
            let profile = book.profile(None);
            prop_assert!(profile.longest.unwrap_or_default() <= Duration::from_secs(10));
            prop_assert!(profile.demand.is_none_or(|demand| (0.0..=1.0).contains(&demand)));
            prop_assert!(book.error().is_none_or(f64::is_finite) && book.spread().is_none_or(f64::is_finite));
            prop_assert!(book.kinds() <= MOST_KINDS);
        }
    }
}
