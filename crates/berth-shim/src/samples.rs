//! Pieces of work that are being measured: pairs of timed events around a launch, read by our thread when the second is done.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use berth_proto::shim::{Ledger, SAMPLES, Sample};

use crate::estimate::{Estimates, Shape};
use crate::sys::driver::{Driver, Progress};

/// Pairs, and so pieces of work that are measured at the same time.
const PAIRS: usize = 64;

#[derive(Debug)]
pub(crate) struct Samples {
    pairs: Box<[Mutex<Pair>]>,
    pending: AtomicUsize,
    /// Where the search for a free pair begins.
    next: AtomicUsize,
    /// Counts contexts that were forgotten.
    forgotten: AtomicU64,
}

#[derive(Debug, Default)]
struct Pair {
    context: u64,
    start: u64,
    end: u64,
    state: State,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Free,
    /// The first event is recorded, the launch is under way.
    Begun,
    Pending(Shape, Sample),
}

/// A measurement that has begun.
#[derive(Debug)]
pub(crate) struct Measuring {
    pair: usize,
    forgotten: u64,
}

impl Samples {
    pub(crate) fn new() -> Self {
        let pairs = (0..PAIRS).map(|_| Mutex::default()).collect();
        Self { pairs, pending: AtomicUsize::new(0), next: AtomicUsize::new(0), forgotten: AtomicU64::new(0) }
    }

    pub(crate) fn are_pending(&self) -> bool {
        self.pending.load(Ordering::Relaxed) > 0
    }

    /// `None` if all pairs are in use, or the driver has no more events.
    pub(crate) fn begin(&self, driver: &Driver, context: u64, stream: u64) -> Option<Measuring> {
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        let forgotten = self.forgotten.load(Ordering::SeqCst);
        (0..PAIRS).map(|step| first.wrapping_add(step) % PAIRS).find_map(|pair| {
            let mut held = self.pairs[pair].try_lock().ok()?;
            if !matches!(held.state, State::Free) || !held.make_ready(driver, context) {
                return None;
            }
            if !driver.record(held.start, stream) {
                return None;
            }
            held.state = State::Begun;
            Some(Measuring { pair, forgotten })
        })
    }

    /// After the launch: `None` gives the pair back.
    pub(crate) fn end(&self, driver: &Driver, measuring: &Measuring, stream: u64, what: Option<(Shape, Sample)>) {
        if self.forgotten.load(Ordering::SeqCst) != measuring.forgotten {
            return;
        }
        let Ok(mut pair) = self.pairs[measuring.pair].lock() else { return };
        pair.state = match what {
            Some((shape, sample)) if driver.record(pair.end, stream) => {
                self.pending.fetch_add(1, Ordering::Relaxed);
                State::Pending(shape, sample)
            }
            _ => State::Free,
        };
    }

    /// Reads what is done, learns from it and writes it down.
    pub(crate) fn harvest(&self, driver: &Driver, estimates: &Estimates, ledger: &Ledger) {
        for pair in &self.pairs {
            let Ok(mut pair) = pair.try_lock() else { continue };
            let State::Pending(shape, sample) = pair.state else { continue };
            match driver.progress(pair.end, pair.context) {
                Progress::UnderWay => continue,
                Progress::Done => {
                    if let Some(took_ns) = driver.elapsed_ns(pair.start, pair.end, pair.context) {
                        write_down(estimates, ledger, shape, Sample { took_ns, ..sample });
                    }
                }
                Progress::Unknown => {}
            }
            pair.state = State::Free;
            self.pending.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Before a context is destroyed: its events go with it.
    pub(crate) fn forget(&self, is_gone: impl Fn(u64) -> bool) {
        self.forgotten.fetch_add(1, Ordering::SeqCst);
        for pair in &self.pairs {
            let Ok(mut pair) = pair.lock() else { continue };
            if pair.context != 0 && is_gone(pair.context) {
                if matches!(pair.state, State::Pending(..)) {
                    self.pending.fetch_sub(1, Ordering::Relaxed);
                }
                *pair = Pair::default();
            } else if matches!(pair.state, State::Begun) {
                // Its launch will find that something was forgotten and not come back.
                pair.state = State::Free;
            }
        }
    }
}

impl Pair {
    /// Events belong to a context.
    fn make_ready(&mut self, driver: &Driver, context: u64) -> bool {
        if self.context == context {
            return true;
        }
        if self.context != 0 {
            driver.destroy_event(self.start, self.context);
            driver.destroy_event(self.end, self.context);
            *self = Self::default();
        }
        let create = || driver.create_event(true);
        let Some(Some((start, end))) = driver.within(context, || Some((create()?, create()?))) else { return false };
        *self = Self { context, start, end, state: State::Free };
        true
    }
}

fn write_down(estimates: &Estimates, ledger: &Ledger, shape: Shape, sample: Sample) {
    if sample.sms == 0 {
        estimates.learn(shape, sample.took_ns);
    }
    let lane = &ledger.lanes[usize::from(sample.lane)];
    lane.measured_ns.fetch_add(sample.took_ns, Ordering::Relaxed);
    lane.estimated_ns.fetch_add(sample.estimated_ns, Ordering::Relaxed);
    let number = ledger.sampled.fetch_add(1, Ordering::AcqRel);
    #[allow(clippy::cast_possible_truncation)] // the remainder is small
    ledger.samples[(number % SAMPLES as u64) as usize].write(&sample);
}
