//! Those with a deadline on one GPU, added up to its line.
//!
//! This is done for every report, so it is written to be done side by side for all instants, in single precision. What that may be off
//! by is taken off in the end: a line never says that more is missing than is.

use berth_model::cluster::LoadReport;
use berth_model::deadline::Unit;

use super::{Line, WIDTH};
use crate::admit::{By, left};

/// Of work of which it is not known how long it takes, this much of the time until it is due is expected.
const UNKNOWN_TAKES: f64 = 0.5;
/// Percent of a GPU's time that is expected of one without a deadline: others go first, but it takes all they leave, and its share. Of
/// what was tried on simulated clusters (`berth bench placement`) 5 makes thrice as many late at high load; 20 to 50 are alike.
const OTHERS_PCT: f32 = 30.0;
/// Of how many the own instants are looked at, beside those of the line.
const MOST: usize = 8;
/// Percent that sums of many may be off by.
const OFF_PCT: f32 = 0.01;
/// Of a count of bursts, what it may be off by.
const OFF: f32 = 1e-6;

/// A figure for every instant.
pub(super) type Row = [f32; WIDTH];

/// If everybody takes no longer than usual, and if everybody takes as long as nine in ten do.
type Either<T> = [T; 2];

/// Seconds.
const INSTANTS: Row = {
    let mut instants = [0.0; WIDTH];
    let mut step = 0;
    while step < WIDTH {
        #[expect(clippy::cast_possible_truncation, reason = "what that may be off by is taken off")]
        let instant = super::instant(step) as f32;
        instants[step] = instant;
        step += 1;
    }
    instants
};

/// What makes seconds a share of the time until each instant.
const PERCENT: Row = {
    let mut percent = INSTANTS;
    let mut step = 0;
    while step < WIDTH {
        percent[step] = 100.0 / percent[step];
        step += 1;
    }
    percent
};

#[derive(Debug, Default)]
pub(super) struct Loads {
    /// GPU time that is due by each instant.
    due: Either<Row>,
    /// Something under way: when it is due and what it has left. Of the first few.
    pieces: Few<(f32, Either<f32>)>,
    streams: Few<Stream>,
    /// GPU time per second in the long run.
    rates: Either<f32>,
    /// Those of whom it is not known how long they take.
    unknown: u16,
}

#[derive(Debug, Clone, Copy, Default)]
struct Stream {
    begins: f32,
    per_second: f32,
    takes: Either<f32>,
}

#[derive(Debug, Default)]
struct Few<T> {
    count: usize,
    items: [T; MOST],
}

impl Loads {
    #[expect(clippy::cast_possible_truncation, reason = "what that may be off by is taken off")]
    pub fn add(&mut self, load: &LoadReport) {
        let known = |seconds: f64, until: f64| if seconds.is_finite() { seconds } else { UNKNOWN_TAKES * until } as f32;
        let worst = left(load, By::Worst);
        let is_burst = load.unit == Unit::Burst;
        self.unknown += u16::from(worst.is_infinite() && (is_burst || load.under_way.is_some()));
        let due = load.under_way.map(|work| work.due_in_seconds);
        if let Some(due) = due {
            self.add_piece(due as f32, [left(load, By::Usual) as f32, known(worst, due.max(0.0))]);
        }
        if is_burst {
            let worst = By::Worst.takes(load.takes, 0.0);
            let takes = [By::Usual.takes(load.takes, 0.0) as f32, known(worst, load.deadline_seconds)];
            let per_second = (1.0 / load.deadline_seconds) as f32 * (1.0 - OFF);
            self.add_stream(Stream { begins: due.map_or(0.0, |due| due.max(0.0) as f32), per_second, takes });
        }
    }

    fn add_piece(&mut self, due: f32, left: Either<f32>) {
        self.pieces.push((due, left));
        let is_due = INSTANTS.map(|instant| if due * (1.0 + OFF) <= instant { 1.0 } else { 0.0 });
        self.add_each(&is_due, left);
    }

    fn add_stream(&mut self, stream: Stream) {
        self.streams.push(stream);
        for by in [0, 1] {
            self.rates[by] += stream.takes[by] * stream.per_second;
        }
        self.add_each(&INSTANTS.map(|instant| stream.bursts(instant)), stream.takes);
    }

    fn add_each(&mut self, counts: &Row, seconds: Either<f32>) {
        for (row, seconds) in self.due.iter_mut().zip(seconds) {
            row.iter_mut().zip(counts).for_each(|(due, count)| *due += count * seconds);
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "what that may be off by is taken off")]
    /// `share`: what they may have beside others. `is_open`: to those, asked where somebody is late with that share.
    pub fn line(&self, share: f64, others: u32, has_more: bool, is_open: impl FnOnce() -> bool) -> Line {
        let others_pct = 100.0 * (1.0 - share as f32);
        let (share, others) = (if others > 0 { share as f32 } else { 1.0 }, others.min(1_000) as f32);
        let mut rows = [[0.0; WIDTH]; 4];
        let [by_then, usual, most, expected] = &mut rows;
        *by_then = self.room(0, share);
        *usual = *by_then;
        *most = self.room(1, share);
        self.look_at_pieces(usual, most, share);
        least_from_here(usual);
        least_from_here(most);
        [&mut *by_then, &mut *usual, &mut *most].into_iter().for_each(missing);
        *expected = most.map(|missing| missing + OTHERS_PCT * others);
        let is_late = usual.iter().fold(false, |is_late, missing| is_late | (missing + others_pct > 100.0));
        let rates = self.rates.map(|rate| 100.0 * (1.0 - share + rate) - OFF_PCT);
        let is_open = others > 0.0 || !(is_late || rates[0] + others_pct > 100.0) || is_open();
        let mut line = Line::of_rows(&rows);
        line.set_rest(rates, is_open);
        if self.unknown > 0 || has_more {
            line.forget_worst();
        }
        line
    }

    /// At each instant.
    fn room(&self, by: usize, share: f32) -> Row {
        let mut room = INSTANTS.map(|instant| share * instant);
        room.iter_mut().zip(self.due[by]).for_each(|(room, due)| *room -= due);
        room
    }

    /// Takes down the room at the instants before something is due to what there is when it is.
    fn look_at_pieces(&self, usual: &mut Row, most: &mut Row, share: f32) {
        for (at, _) in self.pieces.iter() {
            let Some(step) = step_until(*at) else { continue };
            let mut room = [share * at; 2];
            for (_, left) in self.pieces.iter().filter(|(due, _)| due <= at) {
                room = [room[0] - left[0], room[1] - left[1]];
            }
            for stream in self.streams.iter() {
                let bursts = stream.bursts(*at);
                room = [room[0] - bursts * stream.takes[0], room[1] - bursts * stream.takes[1]];
            }
            usual[step] = lesser(usual[step], room[0]);
            most[step] = lesser(most[step], room[1]);
        }
    }
}

/// Makes of the room at each instant the least from there on: of itself and the next, then of those two and the next two, and so on.
fn least_from_here(room: &mut Row) {
    least_within::<1>(room);
    least_within::<2>(room);
    least_within::<4>(room);
    least_within::<8>(room);
    least_within::<16>(room);
}

fn least_within<const DISTANCE: usize>(room: &mut Row) {
    for step in 0..WIDTH - DISTANCE {
        room[step] = lesser(room[step], room[step + DISTANCE]);
    }
}

/// As one instruction for several: none of these is no number, which `f32::min` looks for.
fn lesser(one: f32, other: f32) -> f32 {
    if one < other { one } else { other }
}

/// Makes of the room what is missing, in percent of the time until each instant.
fn missing(row: &mut Row) {
    for (room, percent) in row.iter_mut().zip(PERCENT) {
        *room = 100.0 - *room * percent - OFF_PCT;
    }
}

/// The last instant up to then.
fn step_until(seconds: f32) -> Option<usize> {
    /// The fraction of √2.
    const HALF_OCTAVE: u32 = 0x0035_04f3;
    let bits = (seconds * 32.0).to_bits();
    let octave = (seconds * 32.0 >= 1.0).then(|| (bits >> 23) as usize - 127)?;
    let step = 2 * octave + usize::from(bits & 0x007f_ffff >= HALF_OCTAVE);
    Some(step.min(WIDTH - 1))
}

impl Stream {
    /// Whole bursts that are due by then, or one less.
    fn bursts(&self, at: f32) -> f32 {
        /// From here on a number of single precision has no fraction.
        const WHOLE: f32 = 8_388_608.0;
        let bursts = ((at - self.begins) * self.per_second).clamp(0.0, WHOLE);
        let near = (bursts + WHOLE) - WHOLE;
        if near > bursts { near - 1.0 } else { near }
    }
}

impl<T> Few<T> {
    /// What is too much is left out.
    fn push(&mut self, item: T) {
        if let Some(free) = self.items.get_mut(self.count) {
            *free = item;
            self.count += 1;
        }
    }

    fn iter(&self) -> std::slice::Iter<'_, T> {
        self.items[..self.count].iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_instant_before_another_is_found_at_once() {
        for at in (0..20_000).map(|tenths| tenths as f32 / 10.0) {
            let steps = INSTANTS.partition_point(|instant| *instant <= at);
            assert_eq!(step_until(at), steps.checked_sub(1), "{at}");
        }
        assert_eq!(step_until(f32::MAX), Some(WIDTH - 1));
        assert_eq!((step_until(-1.0), step_until(0.0)), (None, None));
    }
}
