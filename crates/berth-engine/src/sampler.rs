//! The thread that looks at the GPUs, at the pace the model wishes.
//!
//! A driver that is not there is a state, not an error: the thread tries again, ever more rarely, and says so once. A GPU
//! that vanishes, or was lost before the first look, stays under its index, for the probe to find again; when all are
//! back, stock is taken anew.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use berth_host::nvml::{GpuProbe, Listings, NvmlError, NvmlProbe};
use berth_host::procs::Registry;
use berth_model::monitor::Wish;
use berth_model::{Event, GpuIndex, GpuReading, Sample, Source, SourceStatus};

use crate::describe::describe;

const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(30);

/// Handle of the thread; dropping it ends the thread after the look in progress.
#[derive(Debug)]
pub(crate) struct Sampler {
    slot: Arc<Slot>,
    thread: Option<JoinHandle<()>>,
}

/// The newest wish, and whether to go on at all.
#[derive(Debug)]
struct Slot {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    wish: Wish,
    stop: bool,
}

struct Thread {
    library: PathBuf,
    registry: Registry,
    event_tx: Sender<Event>,
    slot: Arc<Slot>,
}

impl Sampler {
    pub fn start(library: PathBuf, registry: Registry, event_tx: Sender<Event>) -> std::io::Result<Self> {
        let wish = Wish { look_in: Duration::ZERO, per_process_core: false, bandwidth: false };
        let slot = Arc::new(Slot { state: Mutex::new(State { wish, stop: false }), changed: Condvar::new() });
        let thread = Thread { library, registry, event_tx, slot: slot.clone() };
        let thread = std::thread::Builder::new().name("berth-nvml".into()).spawn(move || thread.run())?;
        Ok(Self { slot, thread: Some(thread) })
    }

    /// Replaces the wish; wakes the thread only if it is to look sooner.
    pub fn look(&self, wish: Wish) {
        let mut state = self.slot.state.lock().unwrap_or_else(PoisonError::into_inner);
        let sooner = wish.look_in < state.wish.look_in;
        state.wish = wish;
        if sooner {
            self.slot.changed.notify_one();
        }
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.slot.state.lock().unwrap_or_else(PoisonError::into_inner).stop = true;
        self.slot.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Slot {
    /// Waits until `since` plus the wish's time has passed, whichever wish is newest; `None` to stop.
    fn wait_for_wish(&self, since: Instant) -> Option<Wish> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if state.stop {
                return None;
            }
            let left = state.wish.look_in.saturating_sub(since.elapsed());
            if left.is_zero() {
                // An instant look is granted once; the model wishes anew after it.
                let wish = state.wish.clone();
                state.wish.look_in = state.wish.look_in.max(LEAST_PAUSE);
                return Some(wish);
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits out `pause`; false to stop.
    fn wait(&self, pause: Duration) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(state, pause, |state| !state.stop);
        !waited.unwrap_or_else(PoisonError::into_inner).0.stop
    }
}

/// The least time of which use of bandwidth is a mean.
const COUNT_EVERY: Duration = Duration::from_millis(900);
/// Between an instant look and the next, until the model has taken in the first.
const LEAST_PAUSE: Duration = Duration::from_millis(1);

impl Thread {
    fn run(self) {
        let mut retry = FIRST_RETRY;
        loop {
            match NvmlProbe::open(&self.library) {
                Ok(mut probe) => {
                    retry = FIRST_RETRY;
                    if !self.watch(&mut probe) {
                        return;
                    }
                }
                Err(error) => self.say(SourceStatus::Down { reason: describe(&error) }),
            }
            if !self.slot.wait(retry) {
                return;
            }
            retry = (retry * 2).min(LAST_RETRY);
        }
    }

    /// Looks until told to stop (false) or until the library must be opened anew (true).
    fn watch(&self, probe: &mut dyn GpuProbe) -> bool {
        let mut described = match self.take_stock(probe) {
            Ok(described) => described,
            Err(error) => {
                self.say(SourceStatus::Down { reason: describe(&error) });
                return true;
            }
        };
        self.say(SourceStatus::Up);
        let (mut looked_at, mut listings) = (Instant::now(), Listings::default());
        let (mut was_any_lost, mut counted_at) = (false, None);
        while let Some(wish) = self.slot.wait_for_wish(looked_at) {
            let sample = probe.look(wish.per_process_core).resolve(&self.registry, &mut listings);
            looked_at = Instant::now();
            if wish.bandwidth && counted_at.is_none_or(|at: Instant| at.elapsed() >= COUNT_EVERY) {
                counted_at = Some(looked_at);
                // Nobody listens any more only when the daemon stops.
                let _ = self.event_tx.send(Event::Bandwidth(probe.bandwidth()));
            }
            let is_any_lost = is_any_lost(&sample);
            let is_any_unknown = sample.gpus.iter().any(|gpu| !described.contains(&gpu.index));
            if self.event_tx.send(Event::Sample(sample)).is_err() {
                return false;
            }
            // Not while one is lost: what is known of it would be forgotten, for no inventory can describe it now.
            if (was_any_lost || is_any_unknown) && !is_any_lost {
                match self.take_stock(probe) {
                    Ok(now) => described = now,
                    Err(_) => return true,
                }
            }
            was_any_lost = is_any_lost;
        }
        false
    }

    /// Tells which GPUs there are; the answer is which of them could be described.
    fn take_stock(&self, probe: &mut dyn GpuProbe) -> Result<BTreeSet<GpuIndex>, NvmlError> {
        let gpus = probe.inventory()?;
        let described = gpus.iter().map(|gpu| gpu.index).collect();
        // Nobody listens any more only when the daemon stops.
        let _ = self.event_tx.send(Event::Gpus(gpus));
        Ok(described)
    }

    fn say(&self, status: SourceStatus) {
        let _ = self.event_tx.send(Event::Source { source: Source::Nvml, status });
    }
}

fn is_any_lost(sample: &Sample) -> bool {
    sample.gpus.iter().any(|gpu| matches!(gpu.reading, GpuReading::Lost { .. }))
}
