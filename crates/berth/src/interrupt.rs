//! Asked to end in the middle: for commands that have made things which must be gone when they are.
//!
//! The first signal is noted and nothing else happens: whoever runs looks now and then, returns [`Interrupted`], and what
//! was made is removed on the way out.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::signal_name;

/// The longest a sleeper takes to notice.
const STEP: Duration = Duration::from_millis(50);
const NONE: usize = 0;

/// Which signal came, if any: Ctrl-C, a service manager or `timeout`, a terminal that is closed.
#[derive(Debug, Clone)]
pub struct Interrupt {
    signal: Arc<AtomicUsize>,
}

/// A command was told to end before it was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("ended by {}", signal_name(*signal).unwrap_or("a signal"))]
pub struct Interrupted {
    signal: i32,
}

impl Interrupted {
    /// As a shell counts it: 128 and the signal's number.
    pub fn exit_code(self) -> u8 {
        u8::try_from(128 + self.signal).unwrap_or(u8::MAX)
    }
}

impl Interrupt {
    /// From now on these signals end nothing by themselves.
    pub fn listen() -> Result<Self> {
        let signal = Arc::new(AtomicUsize::new(NONE));
        for (number, noted) in [(SIGINT, 2), (SIGTERM, 15), (SIGHUP, 1)] {
            signal_hook::flag::register_usize(number, Arc::clone(&signal), noted).context("taking signals")?;
        }
        Ok(Self { signal })
    }

    pub fn noted(&self) -> Option<Interrupted> {
        let signal = self.signal.load(Ordering::Relaxed);
        i32::try_from(signal).ok().filter(|_| signal != NONE).map(|signal| Interrupted { signal })
    }

    pub fn check(&self) -> Result<(), Interrupted> {
        self.noted().map_or(Ok(()), Err)
    }

    /// Sleeps this long, or until interrupted.
    pub fn sleep(&self, duration: Duration) -> Result<(), Interrupted> {
        let end = Instant::now() + duration;
        loop {
            self.check()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(STEP));
        }
    }

    /// What came of something that may have been interrupted. Ctrl-C reaches every process of a terminal, so that what
    /// failed may have failed of it.
    pub fn outcome<T>(&self, result: Result<T>) -> Result<T> {
        match self.noted() {
            Some(interrupted) => Err(interrupted.into()),
            None => result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(signal: usize) -> Interrupt {
        Interrupt { signal: Arc::new(AtomicUsize::new(signal)) }
    }

    #[test]
    fn what_fails_while_interrupted_is_told_as_the_interruption() {
        let failed = || Err(anyhow::anyhow!("a tenant failed with 130"));
        let error = after(2).outcome::<()>(failed()).unwrap_err();
        assert_eq!(error.downcast_ref::<Interrupted>().map(|told| told.exit_code()), Some(130));
        assert_eq!(error.to_string(), "ended by SIGINT");
        assert_eq!(after(NONE).outcome::<()>(failed()).unwrap_err().to_string(), "a tenant failed with 130");
    }

    #[test]
    fn a_sleeper_that_is_interrupted_does_not_sleep_on() {
        let began = Instant::now();
        assert_eq!(after(15).sleep(Duration::from_secs(60)), Err(Interrupted { signal: 15 }));
        assert!(began.elapsed() < Duration::from_secs(30));
        assert_eq!(after(NONE).sleep(Duration::from_millis(1)), Ok(()));
    }
}
