//! The driver's part in a hold: the four steps that [`berth_model::hold::next`] asks for.

use std::fmt;
use std::time::Duration;

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
    /// Moves it back, or leaves it out. No error if it is back already, or gone.
    fn restore(&self, process: ProcKey) -> Result<(), StepFailure>;
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
                self.restore(process)?;
                self.driver.unlock(process).map_err(StepFailure::from)
            }
            outcome => outcome.map_err(StepFailure::from),
        }
    }

    fn checkpoint(&self, process: ProcKey) -> Result<(), StepFailure> {
        self.parking(process)?.checkpoint(process).map_err(StepFailure::from)
    }

    fn restore(&self, process: ProcKey) -> Result<(), StepFailure> {
        self.parking(process)?.restore(process).map_err(StepFailure::from)
    }
}
