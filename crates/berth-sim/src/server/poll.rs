//! The one place where the server waits: an epoll and a timer.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

/// Names a source of events; never used twice.
pub(super) type Token = u64;

/// What a source is watched for. Its end is always reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interest {
    Nothing,
    Read,
    Write,
}

impl Interest {
    fn flags(self) -> EventFlags {
        match self {
            Interest::Nothing => EventFlags::empty(),
            Interest::Read => EventFlags::IN,
            Interest::Write => EventFlags::OUT,
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Ready {
    pub(super) token: Token,
    /// The other end is gone for good; what it sent before may still be read.
    pub(super) hung_up: bool,
}

#[derive(Debug)]
pub(super) struct Poll {
    epoll: OwnedFd,
    timer: OwnedFd,
}

/// Reported by the timer itself, which nobody needs to handle.
const TIMER: Token = u64::MAX;
const EVENTS_AT_ONCE: usize = 256;

impl Poll {
    pub(super) fn new() -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        let flags = EventFlags::IN | EventFlags::ET;
        epoll::add(&epoll, &timer, EventData::new_u64(TIMER), flags)?;
        Ok(Self { epoll, timer })
    }

    pub(super) fn add(&self, source: impl AsFd, token: Token, interest: Interest) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, source, EventData::new_u64(token), interest.flags())?)
    }

    pub(super) fn change(&self, source: impl AsFd, token: Token, interest: Interest) -> io::Result<()> {
        Ok(epoll::modify(&self.epoll, source, EventData::new_u64(token), interest.flags())?)
    }

    /// A descriptor that a forked client still holds stays in the epoll when it is closed here: take it out.
    pub(super) fn remove(&self, source: impl AsFd) {
        // Failing means that it is not in there.
        let _ = epoll::delete(&self.epoll, source);
    }

    /// Waits until something is ready or `CLOCK_MONOTONIC` reads `until_ns`. A signal ends the wait early.
    pub(super) fn wait(&self, until_ns: u64) -> io::Result<Vec<Ready>> {
        self.arm(until_ns)?;
        let mut events: Vec<Event> = Vec::with_capacity(EVENTS_AT_ONCE);
        match epoll::wait(&self.epoll, spare_capacity(&mut events), None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let ready = events.iter().map(|event| Ready {
            token: event.data.u64(),
            hung_up: { event.flags }.intersects(EventFlags::HUP | EventFlags::ERR),
        });
        Ok(ready.filter(|ready| ready.token != TIMER).collect())
    }

    /// Setting a timer anew also takes back an expiry nobody read.
    fn arm(&self, until_ns: u64) -> io::Result<()> {
        // A time of zero would switch the timer off.
        let at = until_ns.max(1);
        let value = Timespec {
            tv_sec: i64::try_from(at / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(at % 1_000_000_000).unwrap_or(0),
        };
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let setting = Itimerspec { it_interval: never, it_value: value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &setting)?;
        Ok(())
    }
}
