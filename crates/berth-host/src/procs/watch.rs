//! The thread that waits for processes to end: one epoll over all their pidfds.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::Errno;

use super::Shared;
use crate::clock;

/// Names one watched process. Never used twice, so an exit told late cannot be taken for a later process's.
pub type Token = u64;

const STOP: Token = 0;
pub const FIRST_TOKEN: Token = 1;

/// What the thread waits on. Adding is allowed while it waits.
#[derive(Debug)]
pub struct Watch {
    epoll: OwnedFd,
    stop: OwnedFd,
}

/// The running thread; dropping it stops the thread and waits for it.
#[derive(Debug)]
pub struct Thread {
    shared: Arc<Shared>,
    handle: Option<JoinHandle<()>>,
}

impl Watch {
    pub fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &stop, epoll::EventData::new_u64(STOP), epoll::EventFlags::IN)?;
        Ok(Self { epoll, stop })
    }

    pub fn add(&self, pidfd: &OwnedFd, token: Token) -> io::Result<()> {
        // Once: the pidfd stays readable until it is closed, which the registry does when it takes note.
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ONESHOT;
        Ok(epoll::add(&self.epoll, pidfd, epoll::EventData::new_u64(token), flags)?)
    }

    /// Blocks until processes have ended; `None` when asked to stop.
    fn wait(&self) -> io::Result<Option<Vec<Token>>> {
        let mut buffer = [MaybeUninit::<epoll::Event>::uninit(); 64];
        let (events, _) = match epoll::wait(&self.epoll, &mut buffer, None) {
            Err(Errno::INTR) => return Ok(Some(Vec::new())),
            other => other?,
        };
        let tokens: Vec<Token> = events.iter().map(|event| event.data.u64()).collect();
        Ok((!tokens.contains(&STOP)).then_some(tokens))
    }
}

impl Thread {
    pub fn start(shared: Arc<Shared>) -> io::Result<Self> {
        let watched = shared.clone();
        let handle = std::thread::Builder::new().name("berth-exits".into()).spawn(move || run(&watched))?;
        Ok(Self { shared, handle: Some(handle) })
    }
}

#[cfg(test)]
impl Thread {
    /// A thread that never hears of an exit.
    pub fn withheld(shared: Arc<Shared>) -> Self {
        Self { shared, handle: None }
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        if let Err(error) = rustix::io::write(&self.shared.watch.stop, &1u64.to_ne_bytes()) {
            tracing::error!(%error, "cannot stop the thread berth-exits");
            return;
        }
        if let Some(handle) = self.handle.take() {
            let _ = handle.join();
        }
    }
}

fn run(shared: &Shared) {
    loop {
        match shared.watch.wait() {
            Ok(Some(ended)) => shared.retire_all(&ended, clock::now()),
            Ok(None) => return,
            Err(error) => {
                tracing::error!(%error, "the watch for process exits ends; exits will be seen at the next look");
                return;
            }
        }
    }
}
