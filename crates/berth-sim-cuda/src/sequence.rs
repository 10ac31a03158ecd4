//! One capture: the streams that take part in it, what they were given, and who waits for whom.
//!
//! Each stream is a track of the graph to come. A track knows how much of every track it comes after (a clock): that is how an event says
//! what it stands for, and how the end knows whether all that was forked off came back. Pure.

use std::ffi::c_int;
use std::thread::ThreadId;

use berth_proto::cuda::result;
use berth_proto::sim::GraphWork;

use crate::edge::Answer;

/// A stream as the server knows it: its context and handle.
pub(crate) type Place = (u64, u64);

/// `CUstreamCaptureMode`: whose calls a capture forbids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Global,
    ThreadLocal,
    Relaxed,
}

impl Mode {
    pub(crate) fn from_number(number: c_int) -> Answer<Self> {
        match number {
            0 => Ok(Mode::Global),
            1 => Ok(Mode::ThreadLocal),
            2 => Ok(Mode::Relaxed),
            _ => Err(result::INVALID_VALUE),
        }
    }

    pub(crate) fn number(self) -> c_int {
        match self {
            Mode::Global => 0,
            Mode::ThreadLocal => 1,
            Mode::Relaxed => 2,
        }
    }
}

/// What was captured: steps in their order, each with its track.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Captured {
    pub(crate) tracks: u32,
    pub(crate) steps: Vec<(u32, GraphWork)>,
}

impl Captured {
    /// Kernels and copies.
    pub(crate) fn nodes(&self) -> usize {
        self.steps.iter().filter(|(_, work)| !matches!(work, GraphWork::After { .. })).count()
    }
}

/// Steps of each track, by its number; a track beyond the end has none.
type Clock = Vec<u32>;

/// A point in a capture that an event was recorded at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Point {
    pub(crate) sequence: u64,
    clock: Clock,
}

#[derive(Debug)]
struct Track {
    place: Place,
    /// What its next step comes after; its own entry is its length.
    clock: Clock,
    /// What its last step comes after: the rest of `clock` is to be waited for before the next.
    kept: Clock,
}

#[derive(Debug)]
pub(crate) struct Sequence {
    pub(crate) id: u64,
    pub(crate) mode: Mode,
    pub(crate) thread: ThreadId,
    /// The graph that is to be.
    pub(crate) graph: u64,
    /// The first is that of the stream the capture began with.
    tracks: Vec<Track>,
    pub(crate) is_valid: bool,
    captured: Captured,
}

impl Sequence {
    pub(crate) fn begin(id: u64, graph: u64, origin: Place, mode: Mode, thread: ThreadId) -> Self {
        let track = Track { place: origin, clock: vec![0], kept: vec![0] };
        let captured = Captured { tracks: 1, steps: Vec::new() };
        Self { id, mode, thread, graph, tracks: vec![track], is_valid: true, captured }
    }

    pub(crate) fn has(&self, place: Place) -> bool {
        self.track(place).is_some()
    }

    pub(crate) fn places(&self) -> impl Iterator<Item = Place> {
        self.tracks.iter().map(|track| track.place)
    }

    /// Captures a step of a stream that takes part.
    pub(crate) fn add(&mut self, place: Place, work: GraphWork) {
        let Some(track) = self.track(place) else { return };
        self.catch_up(track);
        self.step(track, work);
    }

    /// The point an event stands for that is recorded now.
    pub(crate) fn point(&self, place: Place) -> Option<Point> {
        let track = self.track(place)?;
        Some(Point { sequence: self.id, clock: self.tracks[track].clock.clone() })
    }

    /// The stream comes after the point, and takes part from now on.
    pub(crate) fn wait(&mut self, place: Place, point: &Point) {
        let track = self.track(place).unwrap_or_else(|| {
            self.tracks.push(Track { place, clock: Clock::new(), kept: Clock::new() });
            self.captured.tracks += 1;
            self.tracks.len() - 1
        });
        let clock = &mut self.tracks[track].clock;
        let length = clock.len().max(point.clock.len()).max(track + 1);
        clock.resize(length, 0);
        for (mine, theirs) in clock.iter_mut().zip(&point.clock) {
            *mine = (*mine).max(*theirs);
        }
    }

    /// The graph, if all that was forked off came back to the first stream.
    pub(crate) fn end(mut self, place: Place) -> Answer<Captured> {
        if self.track(place) != Some(0) {
            return Err(result::STREAM_CAPTURE_UNMATCHED);
        }
        if !self.is_valid {
            return Err(result::STREAM_CAPTURE_INVALIDATED);
        }
        let joined = |(number, track): (usize, &Track)| of(&self.tracks[0].clock, number) >= of(&track.clock, number);
        if !self.tracks.iter().enumerate().all(joined) {
            return Err(result::STREAM_CAPTURE_UNJOINED);
        }
        self.catch_up(0);
        Ok(self.captured)
    }

    fn track(&self, place: Place) -> Option<usize> {
        self.tracks.iter().position(|track| track.place == place)
    }

    /// Has the track wait for what its last step did not come after and its next does.
    fn catch_up(&mut self, track: usize) {
        for other in (0..self.tracks.len()).filter(|other| *other != track) {
            let steps = of(&self.tracks[track].clock, other);
            if steps > of(&self.tracks[track].kept, other) {
                self.step(track, GraphWork::After { track: number(other), steps });
            }
        }
        self.tracks[track].kept = self.tracks[track].clock.clone();
    }

    fn step(&mut self, track: usize, work: GraphWork) {
        self.captured.steps.push((number(track), work));
        let clock = &mut self.tracks[track].clock;
        let length = clock.len().max(track + 1);
        clock.resize(length, 0);
        clock[track] += 1;
    }
}

fn of(clock: &Clock, track: usize) -> u32 {
    clock.get(track).copied().unwrap_or(0)
}

fn number(track: usize) -> u32 {
    u32::try_from(track).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use berth_proto::sim::KernelCost;

    use super::*;

    const A: Place = (1, 10);
    const B: Place = (1, 11);

    fn kernel() -> GraphWork {
        GraphWork::Kernel(KernelCost { flops: 1.0, bytes: 0.0, blocks: 1 })
    }

    fn sequence() -> Sequence {
        Sequence::begin(1, 2, A, Mode::Global, std::thread::current().id())
    }

    #[test]
    fn one_stream_is_one_track() {
        let mut sequence = sequence();
        sequence.add(A, kernel());
        sequence.add(A, kernel());
        let captured = sequence.end(A).unwrap();
        assert_eq!(captured, Captured { tracks: 1, steps: vec![(0, kernel()), (0, kernel())] });
    }

    #[test]
    fn a_stream_that_is_forked_off_runs_beside_and_is_waited_for() {
        let mut sequence = sequence();
        sequence.add(A, kernel());
        let fork = sequence.point(A).unwrap();
        sequence.wait(B, &fork);
        sequence.add(B, kernel());
        sequence.add(A, kernel());
        let join = sequence.point(B).unwrap();
        sequence.wait(A, &join);
        sequence.add(A, kernel());
        let captured = sequence.end(A).unwrap();
        let after = |track, steps| GraphWork::After { track, steps };
        let wanted =
            vec![(0, kernel()), (1, after(0, 1)), (1, kernel()), (0, kernel()), (0, after(1, 2)), (0, kernel())];
        assert_eq!(captured, Captured { tracks: 2, steps: wanted });
        assert_eq!(captured.nodes(), 4);
    }

    #[test]
    fn what_is_forked_off_must_come_back() {
        let mut sequence = sequence();
        let fork = sequence.point(A).unwrap();
        sequence.wait(B, &fork);
        sequence.add(B, kernel());
        assert_eq!(sequence.end(A), Err(result::STREAM_CAPTURE_UNJOINED));
    }

    #[test]
    fn a_stream_that_was_given_nothing_need_not_come_back() {
        let mut sequence = sequence();
        sequence.add(A, kernel());
        let fork = sequence.point(A).unwrap();
        sequence.wait(B, &fork);
        assert!(sequence.end(A).is_ok());
    }

    #[test]
    fn an_early_event_does_not_bring_back_what_came_later() {
        let mut sequence = sequence();
        let fork = sequence.point(A).unwrap();
        sequence.wait(B, &fork);
        let early = sequence.point(B).unwrap();
        sequence.add(B, kernel());
        sequence.wait(A, &early);
        assert_eq!(sequence.end(A), Err(result::STREAM_CAPTURE_UNJOINED));
    }

    #[test]
    fn only_the_first_stream_ends_a_capture() {
        let mut sequence = sequence();
        let fork = sequence.point(A).unwrap();
        sequence.wait(B, &fork);
        assert_eq!(sequence.end(B), Err(result::STREAM_CAPTURE_UNMATCHED));
    }
}
