//! Whether a tenant can be parked, found out beforehand on a thread of its own.
//!
//! A park that turns out to be impossible halfway lets the tenant go on where it stood, and that may be an allocation for which
//! there is no room. So a policy is offered the means only for those of whom it is known that it can work. Finding out asks the
//! driver and reads files of the tenant's processes, which may take its time.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use berth_host::driver::DriverHands;
use berth_model::ProcKey;

use crate::describe;

/// How long what was found out is believed.
const FRESH_FOR: Duration = Duration::from_secs(2);
/// How long it is remembered while it is being found out again.
const KEPT_FOR: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Checks {
    ask_tx: Sender<BTreeSet<ProcKey>>,
    found: Arc<Mutex<Found>>,
}

#[derive(Debug, Default)]
struct Found {
    answers: BTreeMap<BTreeSet<ProcKey>, (Instant, Result<(), String>)>,
    asked: BTreeSet<BTreeSet<ProcKey>>,
}

impl Checks {
    /// The thread ends with this.
    pub fn start(driver: Arc<DriverHands>) -> io::Result<Checks> {
        let (ask_tx, ask_rx) = mpsc::channel::<BTreeSet<ProcKey>>();
        let found: Arc<Mutex<Found>> = Arc::default();
        let filled = found.clone();
        std::thread::Builder::new().name("berth-checks".into()).spawn(move || {
            for processes in ask_rx {
                let Some(parking) = &driver.parking else { return };
                let asked: Vec<ProcKey> = processes.iter().copied().collect();
                let answer = parking.check(&asked).map(drop).map_err(|error| describe(&error));
                lock(&filled).answer(processes, answer);
            }
        })?;
        Ok(Checks { ask_tx, found })
    }

    /// What is known; asks for what is not, or no longer.
    pub fn ask(&self, processes: &BTreeSet<ProcKey>) -> Option<Result<(), String>> {
        let mut found = lock(&self.found);
        let known = found.answers.get(processes).cloned();
        let is_fresh = known.as_ref().is_some_and(|(at, _)| at.elapsed() < FRESH_FOR);
        if !is_fresh && found.asked.insert(processes.clone()) {
            // The thread ends only with this sender.
            let _ = self.ask_tx.send(processes.clone());
        }
        known.map(|(_, answer)| answer)
    }
}

impl Found {
    fn answer(&mut self, processes: BTreeSet<ProcKey>, answer: Result<(), String>) {
        self.answers.retain(|_, (at, _)| at.elapsed() < KEPT_FOR);
        self.asked.remove(&processes);
        self.answers.insert(processes, (Instant::now(), answer));
    }
}

fn lock(found: &Mutex<Found>) -> MutexGuard<'_, Found> {
    found.lock().unwrap_or_else(PoisonError::into_inner)
}
