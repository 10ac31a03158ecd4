//! The daemon's side: starts the guard, waits until it is in place, and starts another if it dies.

use std::ffi::OsString;
use std::io::{self, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use berth_engine::Guarded;
use berth_model::Settings;
use berth_store::{Holder, Role};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use super::link::{Plan, READY};

/// A guard is there within milliseconds; on a machine that starves it, within this.
const READY_WITHIN: Duration = Duration::from_secs(10);
/// How long a daemon that ends waits for a guard that has nothing to do.
const GONE_WITHIN: Duration = Duration::from_secs(2);
/// Between two attempts to start one.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    #[error("making a socket for the guard")]
    Socket { source: io::Error },
    #[error("starting the guard ({})", program.display())]
    Start { program: PathBuf, source: io::Error },
    #[error("telling the guard what to do")]
    Tell { source: io::Error },
    #[error("waiting for the guard to be in place (what it says is above)")]
    Ready { source: io::Error },
}

/// How a guard is started.
#[derive(Debug, Clone)]
pub struct Program {
    pub path: PathBuf,
    pub args: Vec<OsString>,
}

/// A guard, and the thread that replaces it. Lives as long as the daemon: when it hangs up the guard goes to work.
#[derive(Debug)]
pub struct Guard {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    program: Program,
    plan: Plan,
    state: Mutex<State>,
    is_over: AtomicBool,
    guarded: Guarded,
}

#[derive(Debug, Default)]
struct State {
    /// To the guard that is in place, which waits for it to hang up.
    link: Option<UnixStream>,
    /// Of that guard.
    pid: Option<u32>,
    /// What every guard is handed.
    descriptors: Vec<OwnedFd>,
}

impl Guard {
    /// Returns when the guard is in place: from then on holds may be made.
    pub fn start(program: Program, plan: Plan) -> Result<Guard, GuardError> {
        let shared = Arc::new(Shared::new(program, plan));
        let child = shared.launch()?;
        Guard::spawn(shared, Some(child))
    }

    /// Returns at once, and goes on trying to start one.
    pub fn keep_trying(program: Program, plan: Plan) -> Result<Guard, GuardError> {
        Guard::spawn(Arc::new(Shared::new(program, plan)), None)
    }

    fn spawn(shared: Arc<Shared>, child: Option<Child>) -> Result<Guard, GuardError> {
        let keeper = shared.clone();
        let thread = std::thread::Builder::new().name("berth-guard".into());
        let started = thread.spawn(move || keeper.keep(child));
        let failed = |source| GuardError::Start { program: shared.program.path.clone(), source };
        started.map_err(failed)?;
        Ok(Guard { shared })
    }

    /// Whether one is in place, from now on and at any time.
    pub fn guarded(&self) -> Guarded {
        self.shared.guarded.clone()
    }

    /// Hands a descriptor to the guard that is in place and to every later one, which keep it open beyond the daemon's end.
    /// The first is the gate's map of halted processes.
    pub fn hand_over(&self, descriptor: OwnedFd) {
        let mut state = self.shared.state();
        if let Some(Err(error)) = state.link.as_ref().map(|link| send_descriptor(link, descriptor.as_fd())) {
            // It has just died, then; the next one is handed everything.
            tracing::debug!(%error, "the guard took no descriptor");
        }
        state.descriptors.push(descriptor);
    }

    /// Of the guard that is in place; `None` while there is none, and nobody should be held anew.
    #[cfg(test)]
    pub fn pid(&self) -> Option<u32> {
        self.shared.state().pid
    }
}

impl Drop for Guard {
    /// The daemon ends: the guard sees what it left, and is not replaced. One that has nothing to do is gone at once, and
    /// waited for; one that has outlives the daemon.
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        self.shared.state().link = None;
        let deadline = Instant::now() + GONE_WITHIN;
        while self.shared.state().pid.is_some() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Shared {
    fn new(program: Program, plan: Plan) -> Self {
        let (state, is_over, guarded) = (Mutex::default(), AtomicBool::new(false), Guarded::default());
        Self { program, plan, state, is_over, guarded }
    }

    fn launch(&self) -> Result<Child, GuardError> {
        let (link, theirs) = UnixStream::pair().map_err(|source| GuardError::Socket { source })?;
        let Program { path, args } = &self.program;
        let mut command = Command::new(path);
        command.args(args).current_dir("/").stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::null());
        let mut child = command.spawn().map_err(|source| GuardError::Start { program: path.clone(), source })?;
        // Else our own copy of its end would keep it from ever hanging up.
        drop(command);
        if let Err(error) = self.instruct(link, child.id()) {
            // What is no guard is not left about; it may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
            return Err(error);
        }
        self.guarded.set(true);
        Ok(child)
    }

    /// Returns when it is in place.
    fn instruct(&self, link: UnixStream, pid: u32) -> Result<(), GuardError> {
        send_plan(&link, &self.plan).map_err(|source| GuardError::Tell { source })?;
        let mut state = self.state();
        for descriptor in &state.descriptors {
            send_descriptor(&link, descriptor.as_fd()).map_err(|source| GuardError::Tell { source })?;
        }
        wait_ready(&link, READY_WITHIN).map_err(|source| GuardError::Ready { source })?;
        (state.link, state.pid) = (Some(link), Some(pid));
        Ok(())
    }

    fn keep(&self, mut guard: Option<Child>) {
        while let Some(mut child) = guard.take().or_else(|| self.replace()) {
            let ended = child.wait();
            self.guarded.set(false);
            let mut state = self.state();
            (state.link, state.pid) = (None, None);
            drop(state);
            if !self.is_over.load(Ordering::Acquire) {
                tracing::warn!(?ended, "the guard has ended; starting another");
            }
        }
    }

    /// `None`: the daemon ends.
    fn replace(&self) -> Option<Child> {
        let mut told = None;
        while !self.is_over.load(Ordering::Acquire) {
            match self.launch() {
                Ok(child) => return Some(child),
                Err(error) => {
                    let error = berth_engine::describe(&error);
                    if told.as_ref() != Some(&error) {
                        tracing::error!(error, "no guard; trying on");
                    }
                    told = Some(error);
                }
            }
            std::thread::sleep(PAUSE);
        }
        None
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Plan {
    /// For a guard of this process.
    pub fn new(settings: &Settings) -> Self {
        let daemon = Holder::own(Role::Daemon, &settings.processes.proc_root).process();
        Self { daemon, settings: settings.clone() }
    }
}

pub fn send_plan(mut socket: &UnixStream, plan: &Plan) -> io::Result<()> {
    let mut line = serde_json::to_vec(plan)?;
    line.push(b'\n');
    socket.write_all(&line)
}

/// The guard keeps its own copy open for as long as it lives.
pub fn send_descriptor(socket: &UnixStream, descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [descriptor];
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    // A message needs a byte to travel with.
    sendmsg(socket, &[IoSlice::new(b"d")], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

pub fn wait_ready(mut socket: &UnixStream, patience: Duration) -> io::Result<()> {
    socket.set_read_timeout(Some(patience))?;
    socket.read_exact(&mut [0; READY.len()])
}
