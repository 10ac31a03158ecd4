//! What berth's eyes and hands cost, in one place. Measured on one H200 host (driver 580, Linux 6.18, cgroup v2) where
//! nothing else is said; the driver's lock is in the simulated GPU's profile.

use std::time::Duration;

use serde::Serialize;

const fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Costs {
    /// From a process's first driver call until a breakpoint on its launches is in place. Attaching a probe took 8 to 24 ms;
    /// a context takes 0.2 to 0.4 s, so this is early enough.
    pub arm: Duration,
    /// What a hit of a probe costs the process that hits it: 6.4 µs.
    pub hit: Duration,
    /// From a hit until the daemon knows: through the ring buffer, to a thread that sleeps in a wait for it.
    pub notice: Duration,
    /// Writing one entry of the map that says who is stopped at its next launch: one system call.
    pub flip: Duration,
    /// Freezing and confirming. The cgroup freezer took 0.02 to 0.6 ms, rarely 3; Docker's API 13 ms; the published system
    /// says 60 ms for its pause.
    pub freeze: Duration,
    /// The same back: from the decision until the process runs.
    pub thaw: Duration,
    /// Sending SIGCONT.
    pub resume: Duration,
}

impl Costs {
    /// Holds by gate and the cgroup freezer.
    pub const CGROUP: Costs = Costs {
        arm: us(24_000),
        hit: Duration::from_nanos(6_400),
        notice: us(50),
        flip: us(10),
        freeze: us(1_000),
        thaw: us(1_000),
        resume: us(10),
    };

    /// From the first driver call until whoever is to stand before its context does.
    pub fn until_barred(&self) -> Duration {
        self.notice + 2 * self.flip
    }

    /// From the end of a tenant's kernel until one that stands at its launch goes on: it is known, and that one is let
    /// through and thawed.
    pub fn handover(&self) -> Duration {
        self.notice + self.flip + self.thaw
    }

    /// [`Costs::CGROUP`] with Docker's pause and unpause through its API.
    pub const DOCKER: Costs = Costs { freeze: us(13_000), thaw: us(13_000), ..Costs::CGROUP };

    /// Docker's command-line tool and a query by `nvidia-smi`, as published.
    pub const PUBLISHED: Costs = Costs { freeze: us(60_000), thaw: us(60_000), ..Costs::CGROUP };

    /// Perfect hands.
    #[cfg(test)]
    pub const NONE: Costs = Costs {
        arm: Duration::ZERO,
        hit: Duration::ZERO,
        notice: Duration::ZERO,
        flip: Duration::ZERO,
        freeze: Duration::ZERO,
        thaw: Duration::ZERO,
        resume: Duration::ZERO,
    };
}

/// A monitor's turn in the published system: a query and a pause, 60 ms each.
pub const PUBLISHED_TURN: Duration = us(120_000);
