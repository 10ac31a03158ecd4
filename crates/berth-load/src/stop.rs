//! Waiting that a signal cuts short.
//!
//! SIGTERM and SIGINT leave a byte in a socket pair that nobody reads, so "asked to stop" can neither be missed between
//! two waits nor forgotten after the first.

use std::io;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Woken {
    Elapsed,
    /// The run was asked to end; so will every later wait be.
    Stopped,
}

pub trait Pause {
    /// Returns after the given time, or at once when the run is asked to end. Zero only asks.
    fn wait(&self, time: Duration) -> Woken;
}

/// Waits for time or for the process's signals.
#[derive(Debug)]
pub struct SignalPause {
    stop_rx: UnixStream,
}

impl SignalPause {
    /// From here on SIGTERM and SIGINT no longer end the process by themselves.
    pub fn install() -> io::Result<Self> {
        let (stop_rx, stop_tx) = UnixStream::pair()?;
        pipe::register(SIGTERM, stop_tx.try_clone()?)?;
        pipe::register(SIGINT, stop_tx)?;
        Ok(Self { stop_rx })
    }
}

impl Pause for SignalPause {
    fn wait(&self, time: Duration) -> Woken {
        let deadline = Instant::now().checked_add(time);
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            // A wait too long to express, like one too long to have a deadline, has no end.
            let left = left.and_then(|left| Timespec::try_from(left).ok());
            let mut fds = [PollFd::new(&self.stop_rx, PollFlags::IN)];
            match poll(&mut fds, left.as_ref()) {
                Ok(0) => return Woken::Elapsed,
                Ok(_) => return Woken::Stopped,
                // The handler itself interrupts the poll; the byte is there the next time round.
                Err(_) => continue,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn wait_lasts_as_long_as_asked() {
        let (stop_rx, _stop_tx) = UnixStream::pair().unwrap();
        let begun = Instant::now();
        assert_eq!(SignalPause { stop_rx }.wait(Duration::from_millis(5)), Woken::Elapsed);
        assert!(begun.elapsed() >= Duration::from_millis(5));
    }

    #[test]
    fn stop_ends_a_wait_for_ever_and_every_later_one() {
        let (stop_rx, mut stop_tx) = UnixStream::pair().unwrap();
        stop_tx.write_all(&[0]).unwrap();
        let pause = SignalPause { stop_rx };
        assert_eq!(pause.wait(Duration::MAX), Woken::Stopped);
        assert_eq!(pause.wait(Duration::ZERO), Woken::Stopped);
    }
}
