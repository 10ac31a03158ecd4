//! `berth demo`: tenants come, share simulated GPUs and go, and berth tells who was there, judged by their own clocks.

mod cast;
mod verdict;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use berth_engine::Engine;
use berth_model::Snapshot;

pub use self::cast::CAST;
use self::cast::Cue;
pub use self::verdict::Verdict;
use crate::interrupt::Interrupt;
use crate::stage::{Stage, Tenant};

/// Longest the play may last; on a slow machine the rest is cut.
const CURTAIN: Duration = Duration::from_secs(90);
/// After the last tenant has ended: time to see it go.
const EPILOGUE: Duration = Duration::from_millis(1_500);
const STEP: Duration = Duration::from_millis(50);

/// The newest snapshot of the engine, wherever it is shown.
pub type Latest = Arc<Mutex<Option<Arc<Snapshot>>>>;

/// The people behind the scene: starts tenants on cue, and ends the view when the last has gone.
pub struct Director {
    pub stage: Stage,
    /// Dropped at the end, which ends every view of it.
    pub engine: Engine,
    pub latest: Latest,
    /// The audience has left.
    pub stop: Arc<AtomicBool>,
    pub interrupt: Interrupt,
}

/// A tenant that has been started.
#[derive(Debug)]
pub struct Played {
    pub cue: &'static Cue,
    pub tenant: Tenant,
    pub exit_code: Option<i32>,
}

impl Director {
    /// Plays everything, then judges. Ends early when told to stop; what was seen until then counts. Tenants that are still
    /// there then are removed before this returns.
    pub fn play(mut self) -> Result<Verdict> {
        let played = self.perform()?;
        if !self.stopped() {
            std::thread::sleep(EPILOGUE);
        }
        let last = self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let verdict = Verdict::of(&played, last.as_deref());
        self.engine.stop();
        drop(self.stage);
        Ok(verdict)
    }

    fn perform(&mut self) -> Result<Vec<Played>> {
        let began = Instant::now();
        let mut waiting = CAST.iter().peekable();
        let mut played: Vec<Played> = Vec::new();
        while !self.stopped() && began.elapsed() < CURTAIN {
            while let Some(cue) = waiting.next_if(|cue| began.elapsed() >= cue.enters) {
                let tenant = self.stage.launch(&cue.launch()).with_context(|| format!("on {}'s cue", cue.name))?;
                played.push(Played { cue, tenant, exit_code: None });
            }
            for part in played.iter_mut().filter(|part| part.exit_code.is_none()) {
                part.exit_code = self.stage.exit_code(&part.tenant)?;
            }
            if waiting.peek().is_none() && played.iter().all(|part| part.exit_code.is_some()) {
                break;
            }
            std::thread::sleep(STEP);
        }
        Ok(played)
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.interrupt.noted().is_some()
    }
}
