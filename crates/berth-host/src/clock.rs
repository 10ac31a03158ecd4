//! The daemon's clock: the one place where the time is read. Everything behind it gets time as a value.
//!
//! `CLOCK_MONOTONIC` is what eBPF's `ktime_get_ns`, workloads and the daemon share on one host, so instants from all
//! of them compare directly. It stands still while the machine sleeps.

use std::time::{Duration, SystemTime};

use berth_model::{Anchor, Mono};
use jiff::Timestamp;
use rustix::time::{ClockId, Timespec, clock_gettime};

/// An instant as process start times are counted: ticks of 10 ms since boot, sleep of the machine included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BootTicks(pub u64);

/// `USER_HZ`, by which the kernel shows times to programs: 100 on every architecture there is an NVIDIA driver for.
const NANOS_PER_TICK: u64 = 10_000_000;

/// Which boot the monotonic clock counts in; `None` where the kernel does not tell.
pub fn boot() -> Option<String> {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok().map(|id| id.trim().to_owned())
}

/// Now, on the host's monotonic clock.
pub fn now() -> Mono {
    Mono(nanos(clock_gettime(ClockId::Monotonic)))
}

/// Now, on the clock of field 22 of `/proc/PID/stat`.
pub fn boot_ticks() -> BootTicks {
    BootTicks(nanos(clock_gettime(ClockId::Boottime)) / NANOS_PER_TICK)
}

/// The monotonic instant of a process start time, to a tick; the monotonic clock's zero for one before it.
pub fn at_boot_ticks(ticks: BootTicks) -> Mono {
    let slept = nanos(clock_gettime(ClockId::Boottime)).saturating_sub(now().0);
    Mono(ticks.0.saturating_mul(NANOS_PER_TICK).saturating_sub(slept))
}

/// CPU time the calling thread has used.
pub fn thread_cpu() -> Duration {
    Duration::from_nanos(nanos(clock_gettime(ClockId::ThreadCPUTime)))
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
    fn ticks_are_those_of_process_start_times() {
        let before = boot_ticks();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let process = crate::procs::read::key("/proc".as_ref(), child.id()).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let started = BootTicks(process.start_ticks);
        assert!(before <= started && started <= boot_ticks(), "{before:?} {started:?}");
    }

    #[test]
    fn the_anchor_shows_now_as_the_wall_clock_does() {
        let shown = anchor().wall_at(now());
        let told = Timestamp::try_from(SystemTime::now()).unwrap();
        assert!(told.duration_since(shown).as_millis().abs() < 1_000, "{shown} against {told}");
    }
}
