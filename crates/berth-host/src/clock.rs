//! The daemon's clock: the one place where the time is read. Everything behind it gets time as a value.
//!
//! `CLOCK_MONOTONIC` is what eBPF's `ktime_get_ns`, workloads and the daemon share on one host, so instants from all
//! of them compare directly. It stands still while the machine sleeps.

use std::time::SystemTime;

use berth_model::{Anchor, Mono};
use jiff::Timestamp;
use rustix::time::{ClockId, Timespec, clock_gettime};

/// Now, on the host's monotonic clock.
pub fn now() -> Mono {
    Mono(nanos(clock_gettime(ClockId::Monotonic)))
}

/// Both clocks at one instant, as near as two readings can be.
pub fn anchor() -> Anchor {
    let before = now();
    // A system clock before 1970 or after 9999 is no time anyone wants shown; the epoch stands for it.
    let wall = Timestamp::try_from(SystemTime::now()).unwrap_or(Timestamp::UNIX_EPOCH);
    Anchor { mono: before + now().since(before) / 2, wall }
}

fn nanos(time: Timespec) -> u64 {
    let secs = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    secs.saturating_mul(1_000_000_000).saturating_add(nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_does_not_run_backwards() {
        let (first, second) = (now(), now());
        assert!(second >= first);
    }

    #[test]
    fn the_anchor_shows_now_as_the_wall_clock_does() {
        let shown = anchor().wall_at(now());
        let told = Timestamp::try_from(SystemTime::now()).unwrap();
        assert!(told.duration_since(shown).as_millis().abs() < 1_000, "{shown} against {told}");
    }
}
