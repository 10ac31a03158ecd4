//! Real time as the engine's time.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of `CLOCK_MONOTONIC`.
pub(super) fn monotonic_ns() -> u64 {
    nanos(ClockId::Monotonic)
}

fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// The engine's time starts at 0 with the server and runs `scale` times as fast as the real one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    started_ns: u64,
    started_epoch_us: u64,
    scale: f64,
}

impl Clock {
    pub(super) fn start(scale: f64) -> Self {
        Self { started_ns: monotonic_ns(), started_epoch_us: nanos(ClockId::Realtime) / 1000, scale }
    }

    /// The engine's time now.
    pub(super) fn now(&self) -> u64 {
        self.engine_at(monotonic_ns())
    }

    fn engine_at(&self, monotonic_ns: u64) -> u64 {
        scaled(monotonic_ns.saturating_sub(self.started_ns), self.scale)
    }

    /// When the engine's time will be `engine_ns`, rounded up: waking a nanosecond early would be for nothing.
    pub(super) fn monotonic_at(&self, engine_ns: u64) -> u64 {
        let mut at = self.started_ns.saturating_add(scaled(engine_ns, 1.0 / self.scale));
        while self.engine_at(at) < engine_ns && at < u64::MAX {
            at += 1;
        }
        at
    }

    /// The engine's time in microseconds since the epoch, as NVML's samples are dated.
    pub(super) fn epoch_us(&self, engine_ns: u64) -> u64 {
        self.started_epoch_us.saturating_add(self.real_us(engine_ns))
    }

    /// So much of the engine's time, as people's.
    pub(super) fn real_us(&self, engine_ns: u64) -> u64 {
        scaled(engine_ns, 1.0 / self.scale) / 1000
    }
}

/// A scale of 1 keeps every nanosecond; others keep 53 bits, a microsecond in a month.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a float cast saturates; both are positive
fn scaled(ns: u64, scale: f64) -> u64 {
    if scale == 1.0 { ns } else { (ns as f64 * scale) as u64 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_wake_up_is_never_early_and_hardly_late(engine_ns in 0_u64..1 << 50, scale in 0.1_f64..10.0) {
            let clock = Clock { started_ns: 1_000_000, started_epoch_us: 0, scale };
            let at = clock.monotonic_at(engine_ns);
            prop_assert!(clock.engine_at(at) >= engine_ns);
            prop_assert!(clock.engine_at(at.saturating_sub(1000)) <= engine_ns);
        }
    }
}
