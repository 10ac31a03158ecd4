//! The driver's part in a hold: the four steps that [`berth_model::hold::next`] asks for.

use std::fmt;
use std::time::Duration;

use berth_model::hold::Held;
use berth_model::{ProcKey, StepFailure};

use super::{Driver, DriverError, Parking};

/// Steps on one process, each to be repeated without harm. They block, for a millisecond or for as long as memory moves.
pub trait DriverSteps: fmt::Debug + Send + Sync {
    /// Returns when nothing of the process runs on a GPU any more; else it is not locked.
    fn lock(&self, process: ProcKey) -> Result<(), StepFailure>;
    /// No error if it is not locked, or gone.
    fn unlock(&self, process: ProcKey) -> Result<(), StepFailure>;
    /// Moves a locked process's GPU memory out; else it is locked still.
    fn checkpoint(&self, process: ProcKey) -> Result<(), StepFailure>;
    /// Moves it back, or leaves it out. No error if it is back already, or gone. `needs` is what it needs, as whoever parked
    /// it wrote down; what this one saw itself counts more.
    fn restore(&self, process: ProcKey, needs: Option<Held>) -> Result<(), StepFailure>;
    /// What a process that was parked here needs back; worth writing down.
    fn needs_back(&self, process: ProcKey) -> Option<Held>;
}

/// Does them with a driver.
#[derive(Debug)]
pub struct DriverHands {
    pub driver: Driver,
    /// `None`: nothing is parked here.
    pub parking: Option<Parking>,
    /// How long a lock waits for the process's work to end.
    pub lock_timeout: Duration,
}

impl DriverHands {
    fn parking(&self, process: ProcKey) -> Result<&Parking, StepFailure> {
        let message = || format!("cannot move the GPU memory of process {}: parking is switched off", process.pid);
        self.parking.as_ref().ok_or_else(|| StepFailure { message: message(), is_passing: false })
    }
}

impl DriverSteps for DriverHands {
    fn lock(&self, process: ProcKey) -> Result<(), StepFailure> {
        self.driver.lock(process, self.lock_timeout).map_err(StepFailure::from)
    }

    fn unlock(&self, process: ProcKey) -> Result<(), StepFailure> {
        match self.driver.unlock(process) {
            // A daemon that died while it parked leaves that to come true, after the restore found nothing to do.
            Err(DriverError::WrongState { .. }) => {
                self.restore(process, None)?;
                self.driver.unlock(process).map_err(StepFailure::from)
            }
            outcome => outcome.map_err(StepFailure::from),
        }
    }

    fn checkpoint(&self, process: ProcKey) -> Result<(), StepFailure> {
        self.parking(process)?.checkpoint(process).map_err(StepFailure::from)
    }

    fn restore(&self, process: ProcKey, needs: Option<Held>) -> Result<(), StepFailure> {
        let parking = self.parking(process)?;
        if let Some(needs) = needs.filter(|_| parking.needs_back(process).is_none()) {
            parking.remember(process, needs);
        }
        parking.restore(process).map_err(StepFailure::from)
    }

    fn needs_back(&self, process: ProcKey) -> Option<Held> {
        self.parking.as_ref()?.needs_back(process)
    }
}
