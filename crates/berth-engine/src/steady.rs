//! A wall clock that does not tremble: instants shown twice must read the same twice.
//!
//! Wall times are derived from monotonic ones by an anchor. A new anchor at every snapshot would move each start time by
//! the nanoseconds between two clock readings, and make every row look changed. So one anchor is kept for as long as the
//! wall clock agrees with it; a jump, or drift beyond the tolerance, replaces it.

use std::time::Duration;

use berth_model::Anchor;

const TOLERANCE: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(crate) struct Steady {
    base: Anchor,
}

impl Steady {
    pub fn new(read: Anchor) -> Self {
        Self { base: read }
    }

    /// The instant of `read`, dated by the kept anchor if that is still right.
    pub fn date(&mut self, read: Anchor) -> Anchor {
        let wall = self.base.wall_at(read.mono);
        if wall.duration_since(read.wall).unsigned_abs() > TOLERANCE {
            self.base = read;
            return read;
        }
        Anchor { mono: read.mono, wall }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_model::Mono;
    use jiff::Timestamp;

    fn read(mono_ms: u64, wall_ns: i128) -> Anchor {
        Anchor { mono: Mono(mono_ms * 1_000_000), wall: Timestamp::from_nanosecond(wall_ns).unwrap() }
    }

    #[test]
    fn a_start_time_reads_the_same_at_every_snapshot() {
        let mut steady = Steady::new(read(1_000, 50_000_000_000));
        let first = steady.date(read(2_000, 51_000_000_007)).wall_at(Mono(1_500_000_000));
        let second = steady.date(read(3_000, 52_000_900_000)).wall_at(Mono(1_500_000_000));
        assert_eq!(first, second);
    }

    #[test]
    fn a_clock_that_jumps_is_followed() {
        let mut steady = Steady::new(read(1_000, 50_000_000_000));
        let jumped = read(2_000, 9_000_000_000_000);
        assert_eq!(steady.date(jumped), jumped);
        assert_eq!(
            steady.date(read(3_000, 9_001_000_000_001)).wall,
            Timestamp::from_nanosecond(9_001_000_000_000).unwrap()
        );
    }
}
