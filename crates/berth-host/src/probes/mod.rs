//! Probes on the CUDA driver library: the moments of every process that uses a GPU, as they happen.
//!
//! eBPF programs on uprobes write a record when a process passes one of the driver's functions (`function.rs` lists
//! them); a thread reads the records and sends [`Event::Moment`]s. The process is not touched: no changed memory but the
//! kernel's own breakpoint, nothing left behind when the daemon dies, and no signal unless it is gated and the kernel is old.
//!
//! A hit costs a process 6–22 µs. Rare calls (opening the device, contexts coming and going) are probed in every
//! process that uses a watched library. Hot calls (allocations, launches, waits for the GPU) are probed process by process,
//! allocations and launches from its `cuInit` until the first of them was seen; `stay.rs` decides.
//!
//! The same probes are a gate: a process can be halted at its next launch ([`Probes::gate`]) or at an allocation that its GPU
//! has no room for ([`Probes::limit_allocations`]), before anything is submitted. Halted means that the call waits for a
//! fifth of a second, in which the daemon is to freeze the process's cgroup and to say so ([`Probes::freezing`]). Where the
//! kernel cannot keep a call waiting, and when that time is over, it is stopped by a signal. The gate ends with the daemon, as everything here
//! does; who is stopped by then stays stopped, and [`Probes::halted_map`] tells whoever cleans up.
//!
//! What this does not do: tell GPUs apart (the model knows from NVML where a process is), see kernels end, or see the
//! calls of a process whose library nobody has shown it yet (see [`Probes::attach_process`]). The first allocation or
//! launch of a process that makes it within the milliseconds attaching takes is told by the next one;
//! [`ProbeCounters::late`] counts such cases.

mod asm;
mod available;
mod elf;
mod error;
mod find;
mod function;
mod halted;
mod inbox;
mod kernel;
mod library;
mod maps;
mod program;
mod rule;
mod stay;
mod sys;
#[cfg(test)]
mod tests;
mod watcher;
mod worker;

use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use berth_model::snapshot::ProbeCounters;
use berth_model::{Bytes, Event, GpuIndex, ProcKey};

pub use available::{Available, available};
pub use elf::ElfError;
pub use error::ProbeError;
pub use halted::read_halted;

use crate::clock;
use inbox::{Inbox, Message};
use kernel::{Kernel, Way};
use library::Libraries;
use program::Halting;
use rule::Rule;
use watcher::{Ask, Counters, Parts, Watcher, Wish};
use worker::{Attacher, Order};

#[derive(Debug, Clone)]
pub struct Options {
    /// Driver libraries to watch from the start: paths, or names as the dynamic loader looks them up. They may appear
    /// or be replaced later.
    pub libraries: Vec<PathBuf>,
    /// Where the proc file system is mounted.
    pub proc_root: PathBuf,
    /// Use perf events even where the kernel can attach many probes at once, as kernels before 6.6 have to.
    pub perf_events: bool,
    /// Halt processes by signals even where the kernel can keep a call waiting, as kernels before 6.9 have to.
    pub signals: bool,
}

/// The running probes. Dropping them detaches everything and waits for that.
#[derive(Debug)]
pub struct Probes {
    multi: bool,
    halting: Halting,
    kernel: Arc<Kernel>,
    libraries: Arc<Mutex<Libraries>>,
    counters: Arc<Counters>,
    inbox: Inbox,
    event_tx: Sender<Event>,
    /// `None` while being dropped: the attaching thread ends when nobody can order any more.
    order_tx: Option<Sender<Order>>,
    threads: Vec<JoinHandle<()>>,
}

/// How the probes are doing. Counts are since the start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    /// Libraries being watched.
    pub libraries: Vec<PathBuf>,
    /// Kinds of hot calls now probed, over all processes.
    pub armed: u64,
    /// Kinds of hot calls no longer probed, the breakpoints gone.
    pub detached: u64,
    pub counters: ProbeCounters,
}

// === impl Options ===

impl Default for Options {
    fn default() -> Self {
        Self { libraries: vec!["libcuda.so.1".into()], proc_root: "/proc".into(), perf_events: false, signals: false }
    }
}

// === impl Probes ===

impl Probes {
    /// Starts watching. `resolve` names the process behind a pid of the host, `None` if it is gone; it is called on
    /// the probes' own thread, before the first event that names the process is sent.
    pub fn start(
        options: Options,
        resolve: impl Fn(u32) -> Option<ProcKey> + Send + 'static,
        event_tx: Sender<Event>,
    ) -> Result<Probes, ProbeError> {
        let available = available()?;
        let way = Way::choose(available, options.perf_events)?;
        let wanted = if available.unseen && !options.signals { Halting::Unseen } else { Halting::BySignal };
        let (halting, (kernel, ring)) = load_for(wanted, |halting| Kernel::load(way, halting))?;
        let (kernel, counters) = (Arc::new(kernel), Arc::new(Counters::default()));
        let libraries = Arc::new(Mutex::new(Libraries::default()));
        let (inbox, message_rx) = Inbox::new().map_err(thread_error)?;
        let attacher = Attacher {
            kernel: kernel.clone(),
            libraries: libraries.clone(),
            configured: options.libraries,
            proc_root: options.proc_root,
            inbox: inbox.clone(),
        };
        attacher.watch_configured();
        let (order_tx, attaching) = attacher.start().map_err(thread_error)?;
        let (detach_tx, detaching) = worker::start_detacher(inbox.clone()).map_err(thread_error)?;
        let own_event_tx = event_tx.clone();
        let parts = Parts {
            kernel: kernel.clone(),
            ring,
            inbox: inbox.clone(),
            message_rx,
            resolve,
            event_tx,
            order_tx: order_tx.clone(),
            detach_tx,
            counters: counters.clone(),
        };
        let watcher = Watcher::new(parts).map_err(thread_error)?;
        let watching =
            thread::Builder::new().name("berth-probes".into()).spawn(move || watcher.run()).map_err(thread_error)?;
        let threads = vec![watching, attaching, detaching];
        let order_tx = Some(order_tx);
        Ok(Probes {
            multi: way == Way::Multi,
            halting,
            kernel,
            libraries,
            counters,
            inbox,
            event_tx: own_event_tx,
            order_tx,
            threads,
        })
    }

    /// Whether many places are attached to at once, or each by a perf event.
    pub fn multi(&self) -> bool {
        self.multi
    }

    /// Whether a process is halted without anybody seeing it, or by a signal.
    pub fn is_unseen(&self) -> bool {
        self.halting == Halting::Unseen
    }

    /// Watches one more library; one that is watched already is left as it is. Waits until the probes are in place.
    pub fn watch_library(&self, library: &Path) -> Result<(), ProbeError> {
        let (reply, answer) = mpsc::channel();
        let order_tx = self.order_tx.as_ref().ok_or(ProbeError::Stopped)?;
        order_tx.send(Order::Watch { library: library.to_owned(), reply }).map_err(|_| ProbeError::Stopped)?;
        answer.recv().map_err(|_| ProbeError::Stopped)?.map(drop)
    }

    /// Watches a process that was found using a GPU, and the library it has loaded, which may be a container's own
    /// copy. Does not wait; costs nothing for a process that is known. Its first allocation and launch are then the
    /// first since it was found.
    pub fn attach_process(&self, pid: u32) {
        self.inbox.send(Message::Adopt { pid });
    }

    /// Halts the process at its next launch, before it is submitted, and at each one after: [`Event::Halted`]. Waits until
    /// that is in place: a fraction of a millisecond for a process that has not launched yet, else as long as attaching
    /// takes (milliseconds). May be called twice.
    ///
    /// Where it is [unseen](Probes::is_unseen), the launch waits until [`Probes::freezing`] or [`Probes::continued`], or until the
    /// process is let go. After a fifth of a second, and elsewhere at once, it is a SIGSTOP. A process that is continued goes on
    /// with the launch it stands at. A SIGCONT that somebody else sends in the microseconds until the stop takes effect undoes
    /// it: then it is told, and the launch is made all the same.
    pub fn gate(&self, process: ProcKey) -> Result<(), ProbeError> {
        self.ask(process, Wish::Gate(true))
    }

    /// As [`Probes::gate`], and halts the process at the making of its first context too, if it has not begun it yet.
    pub fn bar(&self, process: ProcKey) -> Result<(), ProbeError> {
        self.ask(process, Wish::Bar(true))?;
        self.gate(process)
    }

    /// Lets the process make contexts and launch again. It stays stopped if it is. Takes a fraction of a millisecond; the probes are taken
    /// away later. May be called twice, and for a process that is gone.
    pub fn ungate(&self, process: ProcKey) -> Result<(), ProbeError> {
        self.ask(process, Wish::Bar(false))?;
        self.ask(process, Wish::Gate(false))
    }

    /// Lets the process allocate out of the pool of a GPU, and halts it at each allocation that the pool has no room for, before
    /// it is made: [`Event::Halted`]. `None` lets all pass. Waits as [`Probes::gate`] and [`Probes::ungate`] do.
    ///
    /// What it stands at and makes when it is continued is not taken out of the pool.
    pub fn limit_allocations(&self, process: ProcKey, pool: Option<GpuIndex>) -> Result<(), ProbeError> {
        self.ask(process, Wish::Limit(pool))
    }

    /// What has been taken out of a GPU's pool since the start; it only grows. One system call.
    pub fn taken(&self, gpu: GpuIndex) -> Bytes {
        Bytes(self.kernel.number(gpu.0, Rule::Taken).unwrap_or(0))
    }

    /// What [`Probes::taken`] may come to from now on. A GPU of which this was never said has no bounds. Two system calls.
    pub fn allow(&self, gpu: GpuIndex, ceiling: Bytes) -> Result<(), ProbeError> {
        let refused = |source| ProbeError::Refused { attempted: "bound allocations", source };
        if self.kernel.number(gpu.0, Rule::Taken).is_none() {
            self.kernel.rule(gpu.0, Rule::Taken, 0).map_err(refused)?;
        }
        self.kernel.rule(gpu.0, Rule::Ceiling, ceiling.0).map_err(refused)
    }

    /// Tells when the process's calls that wait for the GPU return, and when it launches again: [`Event::Drained`] and
    /// [`Event::Launched`], each only if the other one, or none, was told before. Each launch and each wait costs the
    /// process a hit meanwhile. Waits as [`Probes::gate`] and [`Probes::ungate`] do.
    ///
    /// A wait that has begun before this returns is not told: watch a process before it computes.
    pub fn watch_drains(&self, process: ProcKey, is_watched: bool) -> Result<(), ProbeError> {
        self.ask(process, Wish::Watch(is_watched))
    }

    /// Which processes the gate has stopped and nobody has continued, for [`read_halted`]. Whoever is handed the
    /// descriptor can still read it when the daemon is dead.
    pub fn halted_map(&self) -> BorrowedFd<'_> {
        self.kernel.halted()
    }

    /// Never stops the process by a signal: someone would see it. A call about which nobody decides in time is made. Does not
    /// wait; holds before whatever is asked for the process from now on.
    pub fn keep_unseen(&self, process: ProcKey) {
        self.inbox.send(Message::KeepUnseen(process));
    }

    /// A freeze of the process's cgroup is under way, or no longer: it has taken effect, or has failed. Meanwhile calls do not
    /// wait, since they get no further than the freezer. To be called *after* the freezer was told and before it is waited for, and
    /// again before anything of it can run.
    pub fn freezing(&self, process: ProcKey, is_under_way: bool) {
        let until = if is_under_way { u64::MAX } else { clock::now().0 };
        if let Err(error) = self.kernel.change(process.pid, Rule::Go, until) {
            tracing::warn!(%process, %error, "its calls wait though it is being frozen");
        }
    }

    /// The process goes on, or will when it is thawed: it is no longer listed as halted, and a halt from now on is told. To be
    /// called *before* SIGCONT is sent. Returns whether that is needed: not where its calls only waited. May be called
    /// twice, and for a process that is gone.
    pub fn continued(&self, process: ProcKey) -> bool {
        let was_stopped = sys::map_delete(self.kernel.halted(), &process.pid.to_ne_bytes()).is_ok();
        let has_waited = self.kernel.revoke(process.pid, Rule::Waiting).is_some();
        if self.is_unseen() {
            self.freezing(process, false);
        }
        was_stopped || !has_waited
    }

    /// A way to send events of other sources behind all hits that happened before them: an exit must not overtake what
    /// the process did last. Outlives the probes; then events go straight on.
    pub fn behind(&self) -> impl Fn(Event) + Send + Sync + use<> {
        let (inbox, event_tx) = (self.inbox.clone(), self.event_tx.clone());
        move |event| {
            if let Err(Message::PassOn(event)) = inbox.try_send(Message::PassOn(event)) {
                // Nobody listens any more when the daemon stops.
                let _ = event_tx.send(event);
            }
        }
    }

    pub fn stats(&self) -> Stats {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            libraries: self.libraries.lock().unwrap_or_else(PoisonError::into_inner).paths(),
            armed: count(&self.counters.armed),
            detached: count(&self.counters.detached),
            counters: self.counters(),
        }
    }

    fn ask(&self, process: ProcKey, wish: Wish) -> Result<(), ProbeError> {
        let (reply, answer) = mpsc::channel();
        let ask = Message::Ask(Ask { process, wish, reply });
        self.inbox.try_send(ask).map_err(|_| ProbeError::Stopped)?;
        answer.recv().map_err(|_| ProbeError::Stopped)?
    }

    /// Cheap enough for every snapshot: one system call, no lock.
    pub fn counters(&self) -> ProbeCounters {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ProbeCounters {
            hits: count(&self.counters.hits),
            lost: self.kernel.lost(),
            unresolved: count(&self.counters.unresolved),
            late: count(&self.counters.late),
            wasted: count(&self.counters.wasted_hits),
        }
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        self.inbox.send(Message::Stop);
        self.order_tx = None;
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so; its links are closed with it.
            let _ = thread.join();
        }
    }
}

/// Loads programs that halt as `wanted`, or else by signals: what the kernel was tried with is a part of them.
fn load_for<T>(wanted: Halting, load: impl Fn(Halting) -> Result<T, ProbeError>) -> Result<(Halting, T), ProbeError> {
    match load(wanted) {
        Err(error) if wanted == Halting::Unseen => {
            tracing::warn!(%error, "no call can be kept waiting: processes are halted by signals");
            load(Halting::BySignal).map(|loaded| (Halting::BySignal, loaded))
        }
        loaded => loaded.map(|loaded| (wanted, loaded)),
    }
}

fn thread_error(source: std::io::Error) -> ProbeError {
    ProbeError::Refused { attempted: "start a thread", source }
}
