//! Processes by an identity that outlasts their pid, and word of their end.
//!
//! A pid alone is no identity: the kernel hands it out again. For each process somebody asks about, the registry opens
//! a pidfd *before* it reads anything and looks at the pidfd again *after*: if the process still lives then, all that
//! was read belongs to it. The same pidfd tells of its exit at once, without a parent's help. Exits are watched by a
//! thread of its own, "berth-exits".
//!
//! It does not search: processes nobody names are never looked at.

mod error;
mod onlookers;
mod program;
pub(crate) mod read;
mod users;
mod watch;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use berth_model::{Event, Mono, ProcKey, ProcessFacts};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use error::IdentifyError;
pub use error::ProcsError;
pub use onlookers::whose_stop_would_be_seen;
use users::Users;
use watch::{Token, Watch};

const PASSWD: &str = "/etc/passwd";
/// How long the holder of a pid is remembered after its end, at least: longer than from one look to the next.
const REMEMBER: Duration = Duration::from_secs(10);

/// The processes that sources have named. Clones share one registry; the watch ends with the last of them.
#[derive(Debug, Clone)]
pub struct Registry {
    shared: Arc<Shared>,
    _watch: Arc<watch::Thread>,
}

#[derive(Debug)]
struct Shared {
    proc_root: PathBuf,
    event_tx: Sender<Event>,
    /// Another way for exits to reach the listener.
    exit_route: OnceLock<Route>,
    watch: Watch,
    /// Held while a process is read (about 0.1 ms), so that each is announced once and before its end.
    known: Mutex<Known>,
}

struct Route(Box<dyn Fn(Event) + Send + Sync>);

#[derive(Debug)]
struct Known {
    by_token: HashMap<Token, Entry>,
    by_pid: HashMap<u32, Token>,
    /// Who had a pid last, and until when. Of late, and no more than that until others end.
    ended: HashMap<u32, (ProcKey, Mono)>,
    next_token: Token,
    users: Users,
}

#[derive(Debug)]
struct Entry {
    facts: Arc<ProcessFacts>,
    pidfd: OwnedFd,
}

/// Who has a pid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    pub now: Now,
    /// Who was announced, had it until lately, and until when; `None` if somebody was announced since.
    pub before: Option<(ProcKey, Mono)>,
}

/// Who has a pid at this moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Now {
    Process(ProcKey),
    /// No process has it, or a zombie.
    Nobody,
    /// Somebody may have it: it could not be told this time, for want of a file descriptor for example.
    Untold,
}

// === impl Registry ===

impl Registry {
    /// Starts the watch. `proc_root` must show the pid namespace this process runs in: its pids are used in system calls.
    pub fn new(proc_root: &Path, event_tx: Sender<Event>) -> Result<Registry, ProcsError> {
        let shared = Arc::new(Shared::new(proc_root, event_tx)?);
        let thread = watch::Thread::start(shared.clone()).map_err(|source| ProcsError::Watch { source })?;
        Ok(Registry { shared, _watch: Arc::new(thread) })
    }

    /// Gives exits to `route` instead of the channel, for a source that has to put what it knows of a process before its
    /// end. The first route stays.
    pub fn route_exits(&self, route: impl Fn(Event) + Send + Sync + 'static) {
        // A second route would be a mistake of the caller without consequence.
        let _ = self.shared.exit_route.set(Route(Box::new(route)));
    }

    /// The identity of the process that has this pid now; `None` if there is none, or it is a zombie. Sends
    /// [`Event::Process`] the first time, before returning. Blocks for a few file reads at most.
    pub fn resolve(&self, pid: u32) -> Option<ProcKey> {
        self.facts(pid).map(|facts| facts.process)
    }

    /// Who has this pid, without announcing anybody: it may turn out not to be the one looked for.
    pub fn holder(&self, pid: u32) -> Holder {
        let known = self.shared.known.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = known.by_pid.get(&pid).and_then(|token| known.by_token.get(token));
        match entry {
            Some(entry) if is_alive(&entry.pidfd) => Holder { now: Now::Process(entry.facts.process), before: None },
            // Dead, though nobody has taken note yet.
            Some(entry) => {
                let before = Some((entry.facts.process, crate::clock::now()));
                Holder { now: self.shared.now(pid), before }
            }
            None => Holder { now: self.shared.now(pid), before: known.ended.get(&pid).copied() },
        }
    }

    /// As [`Registry::resolve`], with all that is known. Facts are those of the first look: a later exec or move to
    /// another cgroup does not show.
    pub fn facts(&self, pid: u32) -> Option<Arc<ProcessFacts>> {
        let mut known = self.shared.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(token) = known.by_pid.get(&pid).copied() {
            match known.by_token.get(&token) {
                Some(entry) if is_alive(&entry.pidfd) => return Some(entry.facts.clone()),
                _ => self.shared.retire(&mut known, token, crate::clock::now()),
            }
        }
        self.shared.admit(&mut known, pid)
    }
}

impl Registry {
    /// Whether this process runs the program of that name that the host's administrator has installed. A few file reads.
    pub fn runs_host_program(&self, process: ProcKey, name: &str) -> bool {
        program::is_of_host(&self.shared.proc_root, process.pid, name)
            && self.holder(process.pid).now == Now::Process(process)
    }
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Route")
    }
}

// === impl Shared ===

impl Shared {
    fn new(proc_root: &Path, event_tx: Sender<Event>) -> Result<Self, ProcsError> {
        check_namespace(proc_root)?;
        open(std::process::id())
            .and_then(|own| own.ok_or(io::ErrorKind::NotFound.into()))
            .map_err(|source| ProcsError::NoPidfd { source })?;
        let known = Known {
            by_token: HashMap::new(),
            by_pid: HashMap::new(),
            ended: HashMap::new(),
            next_token: watch::FIRST_TOKEN,
            users: Users::new(PASSWD),
        };
        let watch = Watch::new().map_err(|source| ProcsError::Watch { source })?;
        Ok(Self { proc_root: proc_root.into(), event_tx, exit_route: OnceLock::new(), watch, known: Mutex::new(known) })
    }

    fn now(&self, pid: u32) -> Now {
        match self.identify(pid) {
            Ok(Some(process)) => Now::Process(process),
            Ok(None) => Now::Nobody,
            Err(error) => {
                tracing::warn!(pid, %error, "cannot tell who has the pid; the next look tries again");
                Now::Untold
            }
        }
    }

    /// `Ok(None)` if there is no such process; an error says nothing about whether there is.
    fn identify(&self, pid: u32) -> Result<Option<ProcKey>, IdentifyError> {
        let Some(pidfd) = open(pid).map_err(|source| IdentifyError::Pidfd { pid, source })? else { return Ok(None) };
        let process = read::key(&self.proc_root, pid);
        if is_alive(&pidfd) { Ok(Some(process?)) } else { Ok(None) }
    }

    /// A process not known yet: read it, announce it, watch it.
    fn admit(&self, known: &mut Known, pid: u32) -> Option<Arc<ProcessFacts>> {
        let pidfd = match open(pid) {
            Ok(pidfd) => pidfd?,
            Err(error) => {
                tracing::warn!(pid, %error, "cannot open a pidfd; the process is left out");
                return None;
            }
        };
        let read = read::facts(&self.proc_root, pid, &mut known.users);
        if !is_alive(&pidfd) {
            return None;
        }
        let facts = match read {
            Ok(facts) => Arc::new(facts),
            Err(error) => {
                tracing::warn!(%error, "the process is left out");
                return None;
            }
        };
        let token = known.next_token;
        known.next_token += 1;
        // Nobody listens any more when the daemon stops; then nothing needs to be told.
        let _ = self.event_tx.send(Event::Process(ProcessFacts::clone(&facts)));
        if let Err(error) = self.watch.add(&pidfd, token) {
            tracing::warn!(pid, %error, "cannot watch for the exit; it will be seen at the next look");
        }
        known.by_token.insert(token, Entry { facts: facts.clone(), pidfd });
        known.by_pid.insert(pid, token);
        Some(facts)
    }

    /// Tells of the end, once, whoever notices it first.
    fn retire(&self, known: &mut Known, token: Token, at: Mono) {
        let Some(entry) = known.by_token.remove(&token) else { return };
        let process = entry.facts.process;
        if known.by_pid.get(&process.pid) == Some(&token) {
            known.by_pid.remove(&process.pid);
        }
        known.ended.retain(|_, (_, ended_at)| at.since(*ended_at) < REMEMBER);
        known.ended.insert(process.pid, (process, at));
        let exited = Event::ProcessExited { process, at };
        match self.exit_route.get() {
            Some(Route(route)) => route(exited),
            None => drop(self.event_tx.send(exited)),
        }
    }

    fn retire_all(&self, tokens: &[Token], at: Mono) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        for token in tokens {
            self.retire(&mut known, *token, at);
        }
    }
}

/// `Ok(None)` if no process has this pid. The id of a thread is not one.
fn open(pid: u32) -> io::Result<Option<OwnedFd>> {
    use rustix::io::Errno;
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Ok(None) };
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => Ok(Some(pidfd)),
        Err(Errno::SRCH | Errno::INVAL | Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// A pidfd is readable from the moment the last thread has exited, zombie or reaped.
fn is_alive(pidfd: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
    matches!(poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(0))
}

/// Pids read from a proc file system of another namespace would name strangers in system calls.
fn check_namespace(proc_root: &Path) -> Result<(), ProcsError> {
    let path = || proc_root.to_owned();
    let own =
        std::fs::read_link(proc_root.join("self")).map_err(|source| ProcsError::NotProc { path: path(), source })?;
    let shown = own.to_string_lossy().into_owned();
    let pid = std::process::id();
    if shown != pid.to_string() {
        return Err(ProcsError::OtherNamespace { path: path(), shown, pid });
    }
    Ok(())
}
