//! How much of a GPU's time is not to be had, in 128 bytes: what GPUs are ranked by, and a bound that says at a glance that one will not do.
//!
//! For some instants after the report, each √2 times as far as the one before, stands in percent of the time until then what is missing
//! of it. Whether a newcomer fits is a matter of the least room at any instant from its deadline on, so that is what stands there, and
//! not the room at that very instant. What is kept for those without a deadline is missing, too. Everything is rounded down and
//! not every instant is looked at, so no less than that is missing; and as what is under way comes nearer, more is. Figure by figure the
//! least of several lines is a bound for all of them.

mod loads;

use berth_model::cluster::{GpuReport, LoadReport};

use super::index::Bound;
use loads::{Loads, Row};

/// Instants, and the figures of each kind: the last of a row is another's.
pub(super) const STEPS: usize = WIDTH - 1;
const WIDTH: usize = 32;
/// No end.
pub(super) const FULL: u8 = u8::MAX;

/// Which figure; of each step there is one of the first four.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Figure {
    /// Missing by this instant, if everybody takes no longer than usual.
    ByThen(usize),
    /// Missing at some instant from this one on, in percent of the time until this one, if everybody takes no longer than usual.
    Usual(usize),
    /// The same if everybody takes as long as nine in ten do; no end where that is not known.
    Worst(usize),
    /// The same with an assumption for what is not known, and with a share for everybody who has no deadline.
    Expected(usize),
    /// Missing in the long run, if everybody takes no longer than usual.
    UsualRate,
    /// The same as nine in ten do.
    WorstRate,
    /// The most that is expected to be missing at any instant: where it is high, one without a deadline gets little and is a burden. No end
    /// where its share makes somebody late.
    Crowd,
    /// How far its free memory is from the most there is in its class, of 254 parts.
    Memory,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(align(64))]
pub(super) struct Line([u8; 128]);

/// Seconds from the report: up to 17 minutes.
pub(super) const INSTANTS: [f64; STEPS] = {
    let mut instants = [0.0; STEPS];
    let mut step = 0;
    while step < STEPS {
        instants[step] = instant(step);
        step += 1;
    }
    instants
};

const fn instant(step: usize) -> f64 {
    let octaves = (1u64 << (step / 2)) as f64 / 32.0;
    if step.is_multiple_of(2) { octaves } else { octaves * std::f64::consts::SQRT_2 }
}

// === impl Figure ===

impl Figure {
    const fn place(self) -> usize {
        match self {
            Figure::ByThen(step) => step,
            Figure::UsualRate => STEPS,
            Figure::Usual(step) => WIDTH + step,
            Figure::WorstRate => WIDTH + STEPS,
            Figure::Worst(step) => 2 * WIDTH + step,
            Figure::Crowd => 2 * WIDTH + STEPS,
            Figure::Expected(step) => 3 * WIDTH + step,
            Figure::Memory => 3 * WIDTH + STEPS,
        }
    }
}

// === impl Line ===

impl Line {
    /// `coming` are those on their way, each with its load if it has a deadline. Whether it is open to those without one is asked only where
    /// there is little time.
    pub fn of(
        gpu: &GpuReport,
        coming: impl Iterator<Item = Option<LoadReport>>,
        is_open: impl FnOnce() -> bool,
    ) -> Self {
        let mut loads = Loads::default();
        gpu.loads.iter().for_each(|load| loads.add(load));
        let mut others = gpu.others;
        for load in coming {
            match load {
                Some(load) => loads.add(&load),
                None => others = others.saturating_add(1),
            }
        }
        loads.line(gpu.share, others, gpu.has_more, is_open)
    }

    /// No figure is above it but these.
    pub fn limits(limits: impl IntoIterator<Item = (Figure, u8)>) -> Self {
        let mut line = Self::NOTHING;
        limits.into_iter().for_each(|(figure, limit)| line.0[figure.place()] = limit);
        line
    }

    pub fn set_memory(&mut self, memory: u8) {
        self.0[Figure::Memory.place()] = memory;
    }

    /// Some figure is above its limit.
    pub fn exceeds(&self, limits: &Line) -> bool {
        self.0.iter().zip(&limits.0).fold(false, |exceeds, (figure, limit)| exceeds | (figure > limit))
    }

    /// [`Figure::ByThen`], [`Figure::Usual`], [`Figure::Worst`], [`Figure::Expected`].
    fn of_rows(rows: &[Row; 4]) -> Self {
        let mut line = Self::NOTHING;
        for (percents, row) in line.0.chunks_exact_mut(WIDTH).zip(rows) {
            for (percent, figure) in percents.iter_mut().zip(row) {
                *percent = rounded(*figure);
            }
        }
        line
    }

    /// `is_open`: to those without a deadline. They are a burden where there is least room, and get least there themselves.
    fn set_rest(&mut self, [usual_rate, worst_rate]: [f32; 2], is_open: bool) {
        let crowd = self.0[Figure::Expected(0).place()..].iter().copied().fold(0, u8::max);
        self.0[Figure::UsualRate.place()] = rounded(usual_rate);
        self.0[Figure::WorstRate.place()] = rounded(worst_rate);
        self.0[Figure::Crowd.place()] = if is_open { crowd } else { FULL };
    }

    /// How long somebody takes is not known.
    fn forget_worst(&mut self) {
        self.0[2 * WIDTH..Figure::Worst(STEPS).place()].fill(FULL);
        self.0[Figure::WorstRate.place()] = FULL;
    }

    pub fn get(&self, figure: Figure) -> u8 {
        self.0[figure.place()]
    }
}

/// Down, at a whole number maybe to the one below, and no more than anybody needs to know. Without a conversion, which would be done one by
/// one: so far from zero the last bits of a number are what is before its point.
#[expect(clippy::cast_possible_truncation, reason = "0 to 254")]
fn rounded(percent: f32) -> u8 {
    const FAR: f32 = 8_388_608.0;
    ((percent.clamp(0.0, f32::from(FULL - 1)) - 0.5).max(0.0) + FAR).to_bits() as u8
}

impl Bound for Line {
    const NOTHING: Line = Line([FULL; 128]);

    /// The lesser of each figure.
    fn add(&mut self, other: &Line) {
        for (figure, other) in self.0.iter_mut().zip(&other.0) {
            *figure = (*figure).min(*other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_rounded_down() {
        for percent in (-10..3_000).map(|tenths| tenths as f32 / 10.0) {
            let down = percent.clamp(0.0, 254.0).floor();
            let rounded = f32::from(rounded(percent));
            assert!(rounded == down || (rounded == down - 1.0 && down == percent), "{percent} to {rounded}");
        }
    }

    #[test]
    fn instants_reach_from_a_short_burst_to_a_quarter_of_an_hour() {
        assert!(INSTANTS.windows(2).all(|pair| (pair[1] / pair[0] - std::f64::consts::SQRT_2).abs() < 1e-9));
        assert_eq!((INSTANTS[0], INSTANTS[STEPS - 1]), (1.0 / 32.0, 1024.0));
    }
}
