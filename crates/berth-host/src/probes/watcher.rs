//! The thread that reads the ring and turns hits into moments, and moments into orders to attach and detach.
//!
//! It keeps a [`Stay`] for each process it has seen until that process exits (by pidfd). It never waits for anything
//! but its epoll.

mod holding;

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender};

use berth_model::{Event, Moment, Mono, ProcKey};
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::clock::{self, BootTicks};

use super::error::ProbeError;
use super::function::{Call, Cookie, Hot};
use super::inbox::{Inbox, Message};
use super::kernel::{Kernel, Links};
use super::library::LibraryId;
use super::program::{Record, What};
use super::rule::Rule;
use super::stay::{Action, Interest, Stay};
use super::sys::Ring;
use super::worker::{Detach, Order};

use holding::Waiting;
pub use holding::{Ask, Wish};

/// Counters shared with [`super::Probes::stats`].
#[derive(Debug, Default)]
pub struct Counters {
    pub hits: AtomicU64,
    pub unresolved: AtomicU64,
    pub late: AtomicU64,
    pub armed: AtomicU64,
    pub detached: AtomicU64,
    pub wasted_hits: AtomicU64,
}

pub struct Watcher<R> {
    kernel: Arc<Kernel>,
    ring: Ring,
    epoll: OwnedFd,
    inbox: Inbox,
    message_rx: Receiver<Message>,
    processes: HashMap<u32, Process>,
    resolve: R,
    event_tx: Sender<Event>,
    order_tx: Sender<Order>,
    detach_tx: Sender<Detach>,
    counters: Arc<Counters>,
}

/// A process that was seen, until it exits.
#[derive(Debug)]
struct Process {
    key: ProcKey,
    /// The library it was first seen with. One inode can be watched under two identities (overlay file systems show
    /// it under another device in each container); hits told twice are then taken once.
    library: Option<LibraryId>,
    stay: Stay,
    links: [Option<Links>; 3],
    /// The function of the last hit of each kind.
    hit: [u8; 3],
    /// What was asked about it before its library was known.
    asked: Vec<Ask>,
    /// Who waits for its calls to be probed.
    waiting: Vec<Waiting>,
    /// Readable when the process has exited.
    _pidfd: OwnedFd,
}

/// The daemon's own event channel is closed: nobody listens any more.
#[derive(Debug)]
struct NobodyListens;

/// Tokens of the epoll that are not pids.
const RING: u64 = u64::MAX;
const INBOX: u64 = u64::MAX - 1;

// === impl Watcher ===

/// What a watcher is given to work with.
pub struct Parts<R> {
    pub kernel: Arc<Kernel>,
    pub ring: Ring,
    pub inbox: Inbox,
    pub message_rx: Receiver<Message>,
    pub resolve: R,
    pub event_tx: Sender<Event>,
    pub order_tx: Sender<Order>,
    pub detach_tx: Sender<Detach>,
    pub counters: Arc<Counters>,
}

impl<R: Fn(u32) -> Option<ProcKey>> Watcher<R> {
    pub fn new(parts: Parts<R>) -> io::Result<Self> {
        let Parts { kernel, ring, inbox, message_rx, resolve, event_tx, order_tx, detach_tx, counters } = parts;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &ring, epoll::EventData::new_u64(RING), epoll::EventFlags::IN)?;
        epoll::add(&epoll, inbox.as_fd(), epoll::EventData::new_u64(INBOX), epoll::EventFlags::IN)?;
        let processes = HashMap::new();
        Ok(Self { kernel, ring, epoll, inbox, message_rx, processes, resolve, event_tx, order_tx, detach_tx, counters })
    }

    /// Until told to stop, or nobody listens.
    pub fn run(mut self) {
        let mut ready = Vec::with_capacity(64);
        loop {
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut ready), None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return tracing::error!(%error, "probes ended: wait for hits"),
            }
            // Hits first: those of a process that has just exited are still its own.
            if self.read_ring().is_err() {
                return;
            }
            for event in ready.drain(..) {
                match event.data.u64() {
                    RING => {}
                    INBOX => {
                        if self.read_inbox().is_err() {
                            return;
                        }
                    }
                    pid => self.exited(u32::try_from(pid).expect("pids are what was registered")),
                }
            }
        }
    }

    fn read_ring(&mut self) -> Result<(), NobodyListens> {
        let mut records = Vec::new();
        self.ring.drain(|bytes| records.extend(Record::parse(bytes)));
        records.into_iter().try_for_each(|record| self.on_record(record))
    }

    fn read_inbox(&mut self) -> Result<(), NobodyListens> {
        self.inbox.acknowledge();
        while let Ok(message) = self.message_rx.try_recv() {
            match message {
                Message::Adopt { pid } => self.adopt(pid),
                Message::Located { pid, library } => self.on_located(pid, library)?,
                Message::Attached { process, hot, links } => self.on_attached(process, hot, links)?,
                Message::Detached { process, hot } => self.on_detached(process, hot),
                Message::Ask(ask) => self.on_ask(ask)?,
                Message::KeepUnseen(process) => self.keep_unseen(process),
                Message::PassOn(event) => {
                    // What the process did last was in the ring before its end was known to anybody.
                    self.read_ring()?;
                    self.event_tx.send(event).map_err(|_| NobodyListens)?;
                }
                Message::Stop => return Err(NobodyListens),
            }
        }
        Ok(())
    }

    fn on_record(&mut self, record: Record) -> Result<(), NobodyListens> {
        let Some(cookie) = Cookie::decode(record.cookie) else { return Ok(()) };
        // The daemon is nobody's tenant: it calls the driver to lock and park others.
        if record.tgid == std::process::id() {
            return Ok(());
        }
        self.counters.hits.fetch_add(1, Ordering::Relaxed);
        let Some(process) = self.process(record.tgid, Some(Mono(record.at))) else {
            self.counters.unresolved.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        };
        let is_twin = *process.library.get_or_insert(LibraryId(cookie.library)) != LibraryId(cookie.library);
        // A halt is told once by the programs themselves, by whichever of the twins is first.
        if is_twin && record.what != What::Halted {
            return Ok(());
        }
        if let Some(hot) = cookie.call.hot() {
            process.hit[hot.index()] = cookie.function;
        }
        let (key, at) = (process.key, Mono(record.at));
        match (record.what, cookie.call) {
            (What::Halted, call) => self.halted(key, call, record),
            (What::Resumed, _) => self.send(Event::Launched { process: key, at }),
            (What::Passed, Call::Drained) => self.send(Event::Drained { process: key, at }),
            (What::Passed, call) => {
                let actions = process.stay.on_call(call);
                if actions.contains(&Action::Report(Moment::ContextReady)) {
                    // Only the first one is waited for.
                    self.kernel.revoke(record.tgid, Interest::Bar.rule());
                }
                self.perform(record.tgid, actions, at)
            }
        }
    }

    /// Asks for the library of a process not seen before. The answer is [`Message::Located`].
    fn adopt(&mut self, pid: u32) {
        if !self.processes.contains_key(&pid) && self.process(pid, None).is_some() {
            let _ = self.order_tx.send(Order::Locate { pid });
        }
    }

    fn on_located(&mut self, pid: u32, library: Option<LibraryId>) -> Result<(), NobodyListens> {
        let Some(process) = self.processes.get_mut(&pid) else { return Ok(()) };
        // A hit that came first knew better.
        if process.library.is_none() && library.is_some() {
            process.library = library;
            let actions = process.stay.on_adopted();
            self.perform(pid, actions, Mono(0))?;
        }
        self.on_library_known(pid)
    }

    fn on_attached(&mut self, key: ProcKey, hot: Hot, links: Result<Links, ProbeError>) -> Result<(), NobodyListens> {
        let Some(process) = self.processes.get_mut(&key.pid).filter(|p| p.key == key) else {
            // It has exited meanwhile.
            self.detach(key, hot, links.ok(), 0);
            return Ok(());
        };
        let links = match links {
            Ok(links) => links,
            Err(error) => return self.on_attach_failed(key, hot, &error),
        };
        if process.stay.may_have_missed(hot) {
            self.counters.late.fetch_add(1, Ordering::Relaxed);
        }
        process.links[hot.index()] = Some(links);
        self.counters.armed.fetch_add(1, Ordering::Relaxed);
        let actions = process.stay.on_attached(hot);
        self.perform(key.pid, actions, Mono(0))?;
        self.answer_waiting(key.pid);
        Ok(())
    }

    fn on_detached(&mut self, key: ProcKey, hot: Hot) {
        self.counters.detached.fetch_add(1, Ordering::Relaxed);
        let still_counting = self.processes.get(&key.pid).is_some_and(|p| p.key != key || !p.stay.is_off(hot));
        if still_counting {
            return;
        }
        if let Some(hits) = self.kernel.revoke(key.pid, Rule::First(hot.call())) {
            self.counters.wasted_hits.fetch_add(hits.saturating_sub(1), Ordering::Relaxed);
        }
    }

    /// Does what a process's stay asks for. `at` is when the call behind it happened; attaching happens whenever.
    fn perform(&mut self, pid: u32, actions: Vec<Action>, at: Mono) -> Result<(), NobodyListens> {
        let Some(process) = self.processes.get_mut(&pid) else { return Ok(()) };
        let key = process.key;
        for action in actions {
            match action {
                Action::Report(moment) => report(&self.event_tx, key, moment, at)?,
                Action::Expect(hot) => {
                    if let Err(error) = self.kernel.rule(pid, Rule::First(hot.call()), 0) {
                        tracing::warn!(process = %key, %error, "first {hot:?} will not be seen");
                    }
                }
                Action::Attach(hot) => {
                    let library = process.library.expect("known since the process was seen");
                    let _ = self.order_tx.send(Order::Attach { process: key, library, hot });
                }
                Action::Detach(hot) => {
                    if let Some(links) = process.links[hot.index()].take() {
                        self.counters.armed.fetch_sub(1, Ordering::Relaxed);
                        let hit = process.hit[hot.index()];
                        let _ = self.detach_tx.send(Detach { process: key, hot, links, hit });
                    }
                }
            }
        }
        Ok(())
    }

    fn exited(&mut self, pid: u32) {
        let Some(mut process) = self.processes.remove(&pid) else { return };
        for hot in Hot::ALL {
            let links = process.links[hot.index()].take();
            if links.is_some() {
                self.counters.armed.fetch_sub(1, Ordering::Relaxed);
            } else {
                self.kernel.revoke(pid, Rule::First(hot.call()));
            }
            self.detach(process.key, hot, links, process.hit[hot.index()]);
        }
        self.release(&mut process);
    }

    fn send(&self, event: Event) -> Result<(), NobodyListens> {
        self.event_tx.send(event).map_err(|_| NobodyListens)
    }

    fn detach(&self, process: ProcKey, hot: Hot, links: Option<Links>, hit: u8) {
        if let Some(links) = links {
            let _ = self.detach_tx.send(Detach { process, hot, links, hit });
        }
    }

    /// The process that had `pid` at `at` (now, if that is not told), registered if it is new. `None`: it is gone, and was
    /// not known. One that is known and gone still has its hits: its exit is taken in after them.
    fn process(&mut self, pid: u32, at: Option<Mono>) -> Option<&mut Process> {
        let now = (self.resolve)(pid);
        if let Some(known) = self.processes.get(&pid).map(|process| process.key) {
            let is_newcomer = |key: &ProcKey| {
                *key != known && at.is_none_or(|at| at >= clock::at_boot_ticks(BootTicks(key.start_ticks)))
            };
            if !now.as_ref().is_some_and(is_newcomer) {
                return self.processes.get_mut(&pid);
            }
            self.exited(pid);
        }
        let key = now?;
        if !self.processes.contains_key(&pid) {
            let pidfd = self.watch_exit(pid).ok()?;
            // The key is that of the process behind the pidfd only if it is still the same.
            if (self.resolve)(pid)? != key {
                return None;
            }
            self.processes.insert(pid, Process::new(key, pidfd));
            self.expect_freezes(key);
        }
        self.processes.get_mut(&pid)
    }

    fn watch_exit(&self, pid: u32) -> io::Result<OwnedFd> {
        let pid_number = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
        let pidfd = pidfd_open(pid_number, PidfdFlags::empty())?;
        epoll::add(&self.epoll, &pidfd, epoll::EventData::new_u64(u64::from(pid)), epoll::EventFlags::IN)?;
        Ok(pidfd)
    }
}

// === impl Process ===

impl Process {
    fn new(key: ProcKey, pidfd: OwnedFd) -> Self {
        let (stay, links) = (Stay::default(), [None, None, None]);
        let (asked, waiting) = (Vec::new(), Vec::new());
        Self { key, library: None, stay, links, hit: [0; 3], asked, waiting, _pidfd: pidfd }
    }
}

fn report(event_tx: &Sender<Event>, process: ProcKey, moment: Moment, at: Mono) -> Result<(), NobodyListens> {
    tracing::debug!(%process, ?moment, at_ns = at.0, "moment");
    event_tx.send(Event::Moment { process, moment, at }).map_err(|_| NobodyListens)
}
