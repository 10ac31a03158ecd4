//! What is known of a client's work on one GPU, from samples its library took: how long, how spread, how wide, how well predicted.
//!
//! By function and shape, and by how many pieces of work came before it in its stream since the program last waited for that, as far as requests go:
//! a library's product is launched with one shape for factors of several lengths. In tables of fixed size; what each takes while nobody else runs is kept
//! by itself, for each number of SMs it had.
//! Durations are capped, and old ones count for less and less, so that one forged sample or an earlier phase does not spoil an average for good.

use std::collections::HashMap;
use std::time::Duration;

use berth_policy::kernels::Profile;
use berth_proto::shim::{Sample, SampleKind};

/// Kinds of work that are told apart; what comes beyond is counted with all, and not by itself.
const MOST_KINDS: usize = 4_096;
/// Further on a piece of work is told apart by function and shape alone: who never waits has no place that comes again.
const MOST_POSITIONS: u32 = 1_024;
/// Nobody's work is reckoned with as longer by more than this part of what is expected.
const MOST_CAREFUL: f64 = 0.5;
/// Longer no piece of work is.
const LONGEST_NS: u64 = 10_000_000_000;
/// Weight of a new figure in an average that follows.
const FOLLOWS: f64 = 0.05;
/// The most a figure counts beside others, however long its work took.
const MOST_WEIGHT: f64 = 8.0;
/// So many samples an average is of, the latest most.
const REMEMBERED: u64 = 256;
/// The longest of late fades by this part with each sample.
const FADES: f64 = 0.002;
/// Threads an SM has room for, on every GPU since Volta but the smallest.
const THREADS_PER_SM: u64 = 2_048;
/// Fewer samples alone say nothing of how slow company is.
const FEW_ALONE: u64 = 3;

#[derive(Debug, Default)]
pub(super) struct Book {
    kinds: HashMap<Kind, Times>,
    /// While nobody else ran, by the SMs it was confined to (0: all of them).
    alone: HashMap<(Kind, u32), Times>,
    /// The same by place in the stream.
    alone_at: HashMap<(Kind, u32, u32), Times>,
    all: Times,
    longest_ns: f64,
    /// Share of the SMs, by the time it was wanted for.
    demand: Option<f64>,
    /// Mean of how far an estimate was from what was measured, as a part of the latter.
    error: Option<f64>,
    /// Mean of how much longer than estimated it took, as a natural logarithm: what errs to both sides alike is none.
    off: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Kind {
    kind: u8,
    function: u64,
    blocks: u32,
    threads_per_block: u32,
}

/// Mean and spread, by Welford; of many the latest count most.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Times {
    pub count: u64,
    pub mean_ns: f64,
    squares: f64,
}

impl Book {
    /// `sms` of the whole GPU. `is_alone`: nobody else ran meanwhile.
    pub fn add(&mut self, sample: &Sample, sms: u32, is_alone: bool) {
        let took_ns = took_ns(sample);
        if took_ns == 0.0 {
            return;
        }
        if sample.estimated_ns > 0 {
            let error = (sample.estimated_ns.min(LONGEST_NS) as f64 - took_ns).abs() / took_ns;
            follow(&mut self.error, error, FOLLOWS);
            let off = (took_ns / sample.estimated_ns.min(LONGEST_NS) as f64).ln();
            follow(&mut self.off, off, FOLLOWS);
        }
        if sample.kind == SampleKind::Copy {
            return;
        }
        self.all.add(took_ns);
        self.longest_ns = (self.longest_ns * (1.0 - FADES)).max(took_ns);
        let kind = Kind::of(sample);
        put(&mut self.kinds, kind, took_ns);
        if is_alone {
            put(&mut self.alone, (kind, sample.sms), took_ns);
            if sample.position < MOST_POSITIONS {
                put(&mut self.alone_at, (kind, sample.position, sample.sms), took_ns);
            }
        }
        if sample.kind == SampleKind::Kernel && sms > 0 {
            let weight = (took_ns / self.all.mean_ns).min(MOST_WEIGHT);
            follow(&mut self.demand, demand(sample, sms), (FOLLOWS * weight).min(1.0));
        }
    }

    /// What the like of it takes alone with those SMs, in nanoseconds, at its place if that is known; `None` until it was seen often enough.
    pub fn alone_ns(&self, sample: &Sample, sms: u32) -> Option<f64> {
        let kind = Kind::of(sample);
        let often = |times: &&Times| times.count >= FEW_ALONE;
        let here = self.alone_at.get(&(kind, sample.position, sms)).filter(often);
        let times = here.or_else(|| self.alone.get(&(kind, sms)).filter(often))?;
        Some(times.mean_ns)
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

    pub fn off(&self) -> Option<f64> {
        self.off
    }

    /// By how much longer than expected its work is reckoned with where it is misjudged: by as much as estimates are off, within a bound.
    pub fn careful(&self) -> f64 {
        1.0 + self.error.map_or(0.0, |error| error.clamp(0.0, MOST_CAREFUL))
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

impl Kind {
    fn of(sample: &Sample) -> Self {
        let Sample { kind, function, blocks, threads_per_block, .. } = *sample;
        Self { kind: kind as u8, function, blocks, threads_per_block }
    }
}

impl Times {
    fn add(&mut self, took_ns: f64) {
        self.count += 1;
        let (weight, from_mean) = (self.count.min(REMEMBERED) as f64, took_ns - self.mean_ns);
        if self.count > REMEMBERED {
            self.squares *= 1.0 - 1.0 / weight;
        }
        self.mean_ns += from_mean / weight;
        self.squares += from_mean * (took_ns - self.mean_ns);
    }

    /// Standard deviation over mean.
    fn spread(&self) -> f64 {
        if self.count < 2 || self.mean_ns <= 0.0 {
            return 0.0;
        }
        (self.squares / (self.count.min(REMEMBERED) - 1) as f64).max(0.0).sqrt() / self.mean_ns
    }
}

pub(super) fn took_ns(sample: &Sample) -> f64 {
    sample.took_ns.min(LONGEST_NS) as f64
}

/// Share of the SMs it can use: by how many of its blocks fit on one, or by its threads where that is not known.
fn demand(sample: &Sample, sms: u32) -> f64 {
    let wanted = match sample.blocks_per_sm {
        0 => u64::from(sample.blocks).saturating_mul(sample.threads_per_block.into()).div_ceil(THREADS_PER_SM),
        fit => u64::from(sample.blocks).div_ceil(fit.into()),
    };
    wanted.clamp(1, sms.into()) as f64 / f64::from(sms)
}

fn put<K: std::hash::Hash + Eq>(table: &mut HashMap<K, Times>, kind: K, took_ns: f64) {
    if table.len() < MOST_KINDS || table.contains_key(&kind) {
        table.entry(kind).or_default().add(took_ns);
    }
}

fn follow(average: &mut Option<f64>, figure: f64, part: f64) {
    *average = Some(average.map_or(figure, |average| average + part * (figure - average)));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample(function: u64, took_ns: u64, estimated_ns: u64) -> Sample {
        let (blocks, threads_per_block, position, at_ns, sms) = (132, 1_024, 0, 0, 0);
        let (kind, blocks_per_sm) = (SampleKind::Kernel, 2);
        Sample {
            kind,
            lane: 0,
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
            book.add(&sample(1, 10_000, 0), 132, true);
            book.add(&sample(2, 90_000, 0), 132, true);
        }
        assert_eq!((book.kinds(), book.spread()), (2, Some(0.0)), "two steady kinds");
        assert_eq!(book.profile(None).kernel, Some(Duration::from_nanos(50_000)));
        (0..10).for_each(|round| book.add(&sample(1, 10_000 + 10_000 * (round % 2), 0), 132, true));
        assert!(book.spread().unwrap() > 0.0);
    }

    #[test]
    fn the_sms_wanted_are_those_its_blocks_fill() {
        let of = |blocks, threads_per_block, blocks_per_sm| {
            let mut book = Book::default();
            book.add(&Sample { blocks, threads_per_block, blocks_per_sm, ..sample(1, 10, 0) }, 132, true);
            book.profile(None).demand
        };
        assert_eq!(of(132, 1_024, 2), Some(0.5), "two fit on each");
        assert_eq!(of(132, 128, 1), Some(1.0), "few threads, and all the shared memory there is");
        assert_eq!(of(33, 128, 1), Some(0.25));
        assert_eq!(of(1 << 20, 1_024, 2), Some(1.0));
        assert_eq!(of(132, 1_024, 0), Some(0.5), "by threads where nobody knows");
    }

    #[test]
    fn a_change_of_phase_is_followed() {
        let mut book = Book::default();
        (0..10_000).for_each(|_| book.add(&sample(1, 1_000, 0), 132, true));
        (0..1_000).for_each(|_| book.add(&sample(1, 100_000, 0), 132, true));
        let kernel = book.profile(None).kernel.unwrap();
        assert!(kernel > Duration::from_micros(90), "{kernel:?}");
    }

    #[test]
    fn what_it_takes_alone_is_of_when_it_was_alone_and_had_those_sms() {
        let mut book = Book::default();
        for _ in 0..3 {
            book.add(&sample(1, 100, 0), 132, true);
            book.add(&sample(1, 900, 0), 132, false);
            book.add(&Sample { sms: 64, ..sample(1, 200, 0) }, 132, true);
        }
        let one = sample(1, 0, 0);
        assert_eq!((book.alone_ns(&one, 0), book.alone_ns(&one, 64)), (Some(100.0), Some(200.0)));
        assert_eq!((book.alone_ns(&one, 32), book.alone_ns(&sample(2, 0, 0), 0)), (None, None));
    }

    #[test]
    fn one_shape_that_takes_longer_at_another_place_is_known_by_its_place() {
        let mut book = Book::default();
        let at = |position, took_ns| Sample { position, ..sample(1, took_ns, 0) };
        for _ in 0..3 {
            book.add(&at(4, 100), 132, true);
            book.add(&at(9, 700), 132, true);
        }
        assert_eq!((book.alone_ns(&at(4, 0), 0), book.alone_ns(&at(9, 0), 0)), (Some(100.0), Some(700.0)));
        assert_eq!(book.alone_ns(&at(5, 0), 0), Some(400.0), "at a place that was never seen as everywhere");
        assert_eq!(book.alone_ns(&at(u32::MAX, 0), 0), Some(400.0));
    }

    #[test]
    fn the_error_is_of_estimates_that_were_made() {
        let mut book = Book::default();
        book.add(&sample(1, 100, 0), 132, true);
        assert_eq!(book.error(), None);
        book.add(&sample(1, 100, 150), 132, true);
        assert_eq!(book.error(), Some(0.5));
        (0..1_000).for_each(|_| book.add(&sample(1, 100, 100), 132, true));
        assert!(book.error().unwrap() < 0.01, "it follows");
    }

    #[test]
    fn errors_to_both_sides_cancel_out_and_one_that_is_misjudged_is_reckoned_with_within_a_bound() {
        let mut book = Book::default();
        assert!((book.careful() - 1.0).abs() < 1e-9, "nothing is known");
        (0..1_000).for_each(|at| book.add(&sample(1, if at % 2 == 0 { 200 } else { 100 }, 141), 132, true));
        assert!(book.off().unwrap().abs() < 0.05 && book.error().unwrap() > 0.2, "{book:?}");
        assert!((1.2..1.5).contains(&book.careful()), "{}", book.careful());
        (0..1_000).for_each(|_| book.add(&sample(1, 100, 1_000), 132, true));
        assert!((book.careful() - 1.5).abs() < 1e-9 && book.off().unwrap() < -2.0, "{book:?}");
    }

    proptest! {
        #[test]
        fn whatever_is_forged_figures_stay_figures_and_the_table_small(
            samples in prop::collection::vec(any::<(u64, u64, u64, u32, u32, u32, u32, bool)>(), 0..200), sms: u32,
        ) {
            let mut book = Book::default();
            for (function, took, estimated, blocks, threads_per_block, blocks_per_sm, position, alone) in samples {
                let forged = Sample { blocks, threads_per_block, blocks_per_sm, position, ..sample(function, took, estimated) };
                book.add(&forged, sms, alone);
            }
            let profile = book.profile(None);
            prop_assert!(profile.longest.unwrap_or_default() <= Duration::from_secs(10));
            prop_assert!(profile.demand.is_none_or(|demand| (0.0..=1.0).contains(&demand)));
            prop_assert!(book.error().is_none_or(f64::is_finite) && book.spread().is_none_or(f64::is_finite));
            prop_assert!(book.kinds() <= MOST_KINDS);
        }
    }
}
