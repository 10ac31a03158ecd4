//! Waiting for keys, the end of the terminal, or a signal to go, whichever is first.
//!
//! crossterm reads a terminal that was closed for ever, so it is asked only when there is something to read.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::{Context, Result};
use crossterm::event::{self, Event, KeyEvent, KeyEventKind};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::{pipe, unregister};

/// crossterm can leave the rest of a long paste unread until the next key; asking again at once would be a busy loop.
const UNREAD_REST: Duration = Duration::from_millis(50);

#[derive(Debug, PartialEq, Eq)]
pub enum Input {
    Keys(Vec<KeyEvent>),
    /// The terminal is gone, or a signal asks to end.
    Ended,
}

/// Takes the signals that would end us, so that the terminal is given back first.
#[derive(Debug)]
pub struct Inputs {
    signal_rx: UnixStream,
    signals: Vec<SigId>,
}

impl Inputs {
    pub fn open() -> Result<Self> {
        let (signal_rx, signal_tx) = UnixStream::pair().context("making a pipe for signals")?;
        let mut inputs = Self { signal_rx, signals: Vec::new() };
        for signal in [SIGTERM, SIGINT, SIGHUP] {
            let signal_tx = signal_tx.try_clone().context("sharing the pipe for signals")?;
            inputs.signals.push(pipe::register(signal, signal_tx).context("taking signals")?);
        }
        Ok(inputs)
    }

    /// Keys pressed until now, or the first within `timeout`; none if there were none or the size changed.
    pub fn next(&self, timeout: Duration) -> Result<Input> {
        let stdin = std::io::stdin();
        match wait(stdin.as_fd(), self.signal_rx.as_fd(), timeout)? {
            Woken::ToEnd => Ok(Input::Ended),
            Woken::ByTime => Ok(Input::Keys(pressed()?)),
            Woken::ByInput => {
                if !event::poll(Duration::ZERO)? {
                    std::thread::sleep(UNREAD_REST);
                }
                Ok(Input::Keys(pressed()?))
            }
        }
    }

    /// Whether there is still somebody to draw for.
    pub fn has_ended(&self) -> bool {
        let stdin = std::io::stdin();
        !matches!(wait(stdin.as_fd(), self.signal_rx.as_fd(), Duration::ZERO), Ok(Woken::ByTime | Woken::ByInput))
    }
}

impl Drop for Inputs {
    fn drop(&mut self) {
        for signal in self.signals.drain(..) {
            unregister(signal);
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Woken {
    ByInput,
    /// Nothing came, or a signal such as a change of the size was first.
    ByTime,
    ToEnd,
}

fn wait(terminal: impl AsFd, signals: impl AsFd, timeout: Duration) -> Result<Woken> {
    // Longer than anybody waits, if it does not fit.
    let timeout = Timespec::try_from(timeout).unwrap_or(Timespec { tv_sec: i64::from(i32::MAX), tv_nsec: 0 });
    let mut fds = [PollFd::new(&terminal, PollFlags::IN), PollFd::new(&signals, PollFlags::IN)];
    match poll(&mut fds, Some(&timeout)) {
        Ok(_) => {}
        Err(Errno::INTR) => return Ok(Woken::ByTime),
        Err(error) => return Err(error).context("waiting for keys"),
    }
    let (keys, signals) = (fds[0].revents(), fds[1].revents());
    if !signals.is_empty() || keys.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
        return Ok(Woken::ToEnd);
    }
    if !keys.contains(PollFlags::IN) {
        return Ok(Woken::ByTime);
    }
    // Readable with nothing to read is the end of a file.
    let readable = rustix::io::ioctl_fionread(&terminal).unwrap_or(0);
    Ok(if readable == 0 { Woken::ToEnd } else { Woken::ByInput })
}

fn pressed() -> Result<Vec<KeyEvent>> {
    let mut keys = Vec::new();
    while event::poll(Duration::ZERO).context("asking for keys")? {
        match event::read().context("reading keys")? {
            Event::Key(key) if key.kind != KeyEventKind::Release => keys.push(key),
            // Resizing needs nothing but another drawing, which follows anyway.
            _ => {}
        }
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::time::Instant;

    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn a_terminal_that_closes_ends_the_wait_at_once_and_every_time() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (signal_rx, _signal_tx) = UnixStream::pair().unwrap();
        assert_eq!(wait(&ours, &signal_rx, Duration::ZERO).unwrap(), Woken::ByTime);
        (&theirs).write_all(b"q").unwrap();
        assert_eq!(wait(&ours, &signal_rx, LONG).unwrap(), Woken::ByInput);
        drop(theirs);
        let begin = Instant::now();
        assert_eq!(wait(&ours, &signal_rx, LONG).unwrap(), Woken::ToEnd);
        assert_eq!(wait(&ours, &signal_rx, LONG).unwrap(), Woken::ToEnd);
        assert!(begin.elapsed() < LONG);
    }

    #[test]
    fn the_end_of_a_file_is_an_end_without_a_hangup() {
        let (signal_rx, _signal_tx) = UnixStream::pair().unwrap();
        let empty = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(wait(&empty, &signal_rx, LONG).unwrap(), Woken::ToEnd);
    }

    #[test]
    fn a_signal_ends_the_wait_though_no_key_comes() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let (signal_rx, signal_tx) = UnixStream::pair().unwrap();
        (&signal_tx).write_all(b"X").unwrap();
        assert_eq!(wait(&ours, &signal_rx, LONG).unwrap(), Woken::ToEnd);
    }
}
