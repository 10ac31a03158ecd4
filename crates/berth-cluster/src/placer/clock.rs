//! The clock that leave to act goes by.

use berth_model::Mono;
use rustix::time::{ClockId, clock_gettime};

/// Goes on while the machine sleeps: whoever wakes up has no leave any more.
pub fn now() -> Mono {
    let time = clock_gettime(ClockId::Boottime);
    let nanos = i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec);
    Mono::from_nanos(u64::try_from(nanos).unwrap_or(0))
}
