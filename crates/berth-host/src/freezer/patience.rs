//! Waiting for the kernel: without rest at first, since most freezes take microseconds; then with longer and longer rests.
//!
//! The kernel's own notice (poll on `cgroup.events`) is rate-limited and comes milliseconds late.

use std::time::{Duration, Instant};

const SPIN: Duration = Duration::from_micros(200);
const SHORT_REST: Duration = Duration::from_micros(50);
const SHORT_RESTS: Duration = Duration::from_millis(5);
const LONG_REST: Duration = Duration::from_millis(1);

/// One wait, from its making until its deadline.
#[derive(Debug)]
pub struct Patience {
    began: Instant,
    within: Duration,
}

impl Patience {
    pub fn new(within: Duration) -> Self {
        Self { began: Instant::now(), within }
    }

    pub fn waited(&self) -> Duration {
        self.began.elapsed()
    }

    /// Rests; `false` if the time is over, without resting.
    pub fn rest(&self) -> bool {
        let waited = self.waited();
        if waited >= self.within {
            return false;
        }
        match waited {
            waited if waited < SPIN => std::hint::spin_loop(),
            waited if waited < SHORT_RESTS => std::thread::sleep(SHORT_REST),
            _ => std::thread::sleep(LONG_REST),
        }
        true
    }
}
