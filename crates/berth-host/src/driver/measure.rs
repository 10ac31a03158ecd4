//! How long the driver's steps take, for `berth bench hold`. What is measured is what a hold does: checks, threads and all.

use std::time::{Duration, Instant};

use berth_model::{Bytes, ProcKey};
use serde::Serialize;

use super::{Driver, DriverError, ParkError, Parking, milliseconds};

/// Lock and unlock of an idle process, over many rounds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LockTimes {
    pub lock: Spread,
    pub unlock: Spread,
}

/// One way out and back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ParkTimes {
    /// On the GPU, before.
    pub bytes: Bytes,
    pub lock_us: u64,
    pub checkpoint_us: u64,
    pub restore_us: u64,
    pub unlock_us: u64,
}

/// How times are spread, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Spread {
    pub count: usize,
    pub p50_us: u64,
    pub p99_us: u64,
    pub max_us: u64,
}

impl Spread {
    /// `None` of no times.
    pub fn of(mut times: Vec<Duration>) -> Option<Spread> {
        times.sort_unstable();
        // The smallest that this share of all does not exceed.
        let at = |percent: usize| (times.len() * percent).div_ceil(100).saturating_sub(1);
        let (p50, p99, max) = (times.get(at(50))?, times.get(at(99))?, times.last()?);
        Some(Spread { count: times.len(), p50_us: us(*p50), p99_us: us(*p99), max_us: us(*max) })
    }
}

/// Locks and unlocks `rounds` times, at least once. The first call of all, which initialises the driver, is not counted. On an
/// error the process is not left locked.
pub fn lock_times(
    driver: &Driver,
    process: ProcKey,
    rounds: usize,
    timeout: Duration,
) -> Result<LockTimes, DriverError> {
    driver.state(process)?;
    let (mut lock, mut unlock) = (Vec::new(), Vec::new());
    for _ in 0..rounds.max(1) {
        lock.push(timed(|| driver.lock(process, timeout))?);
        unlock.push(timed(|| driver.unlock(process))?);
    }
    let spread = |times| Spread::of(times).expect("at least one round was made");
    Ok(LockTimes { lock: spread(lock), unlock: spread(unlock) })
}

/// Lock and unlock by the driver's calls alone, without the checks, the deadline and the thread of a hold: what cannot be
/// undercut. The driver is initialised before, by [`Driver::state`] for one, and not in the same breath: a process it has just
/// asked answers quicker. On an error the process is not left locked.
pub fn bare_lock(driver: &Driver, process: ProcKey, timeout: Duration) -> Result<(Duration, Duration), DriverError> {
    let target = driver.target(process)?;
    let answered = |verb, code| if code == 0 { Ok(()) } else { Err(driver.refusal(verb, &target, code)) };
    let api = &driver.shared.api;
    let lock = timed(|| answered("lock", api.lock(target.pid, milliseconds(timeout))))?;
    let unlock = timed(|| answered("unlock", api.unlock(target.pid)))?;
    Ok((lock, unlock))
}

/// Parks the process and brings it back.
pub fn park_times(parking: &Parking, process: ProcKey, timeout: Duration) -> Result<ParkTimes, ParkError> {
    let bytes = parking.check(&[process])?.iter().map(|held| held.bytes).sum();
    let driver = parking.driver();
    let lock = timed(|| driver.lock(process, timeout))?;
    let checkpoint = timed(|| parking.checkpoint(process)).inspect_err(|_| drop(driver.unlock(process)))?;
    let restore = timed(|| parking.restore(process))?;
    let unlock = timed(|| driver.unlock(process))?;
    Ok(ParkTimes {
        bytes,
        lock_us: us(lock),
        checkpoint_us: us(checkpoint),
        restore_us: us(restore),
        unlock_us: us(unlock),
    })
}

fn timed<E>(step: impl FnOnce() -> Result<(), E>) -> Result<Duration, E> {
    let begin = Instant::now();
    step().map(|()| begin.elapsed())
}

fn us(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_times_that_were_measured() {
        let of = |count: u64| Spread::of((1..=count).rev().map(Duration::from_micros).collect());
        assert_eq!(of(0), None);
        assert_eq!(of(1), Some(Spread { count: 1, p50_us: 1, p99_us: 1, max_us: 1 }));
        assert_eq!(of(200), Some(Spread { count: 200, p50_us: 100, p99_us: 198, max_us: 200 }));
    }
}
