//! The host's own means, put together: freezer, engine, signals, driver, probes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use berth_model::hold::{Freezer as By, Held, Step};
use berth_model::{ContainerId, ProcKey, StepFailure};

use super::gate::Gate;
use super::pin::Pin;
use super::signal::continue_process;
use super::{Hands, Subject, hand_over, pause};
use crate::docker::Pauser;
use crate::driver::DriverSteps;
use crate::freezer::{CgroupDir, Freezer, FreezerError};

/// Performs steps on this host. What is missing here fails by name; what it would have set free is free without it.
#[derive(Debug)]
pub struct HostHands {
    proc_root: PathBuf,
    freezer: Arc<Freezer>,
    pauser: Option<Pauser>,
    driver: Option<Arc<dyn DriverSteps>>,
    gate: Option<Arc<dyn Gate>>,
    /// Processes that were thawed to be locked, their threads kept at the driver calls they stood at.
    pins: Mutex<BTreeMap<ProcKey, Pin>>,
}

impl HostHands {
    pub fn new(proc_root: &Path, freezer: Arc<Freezer>) -> HostHands {
        HostHands {
            proc_root: proc_root.to_owned(),
            freezer,
            pauser: None,
            driver: None,
            gate: None,
            pins: Mutex::default(),
        }
    }

    pub fn with_docker(self, pauser: Pauser) -> HostHands {
        HostHands { pauser: Some(pauser), ..self }
    }

    pub fn with_driver(self, driver: Arc<dyn DriverSteps>) -> HostHands {
        HostHands { driver: Some(driver), ..self }
    }

    pub fn with_gate(self, gate: Arc<dyn Gate>) -> HostHands {
        HostHands { gate: Some(gate), ..self }
    }

    fn freeze(&self, subject: &Subject, by: By) -> Result<(), StepFailure> {
        let dir = self
            .dir(subject)?
            .ok_or_else(|| missing(format!("{} has no cgroup of its own, or no more", subject.tenant)))?;
        match by {
            By::Cgroup => self.freeze_cgroup(subject, &dir),
            By::Shelter => self.freeze_sheltered(subject, &dir),
            By::Docker => {
                let (pauser, id) = self.engine(subject)?;
                let told = |is_under_way| self.freezing(subject, is_under_way);
                Ok(pause::pause(pauser, &self.freezer, id, &dir, told)?)
            }
        }
    }

    fn freeze_cgroup(&self, subject: &Subject, dir: &CgroupDir) -> Result<(), StepFailure> {
        let told = |is_under_way| self.freezing(subject, is_under_way);
        self.freezer.freeze_telling(dir, told).map_err(failure)
    }

    /// One that cannot go into the shelter stands still all the same.
    fn freeze_sheltered(&self, subject: &Subject, dir: &CgroupDir) -> Result<(), StepFailure> {
        let told = |is_under_way| self.freezing(subject, is_under_way);
        match self.freezer.freeze_sheltered(dir, told) {
            Err(error) if !error.is_gone() && !matches!(error, FreezerError::HeldByOthers { .. }) => {
                tracing::debug!(cgroup = %dir.path().display(), %error, "frozen where it is: its engine cannot check its health");
                // Never both: whoever thaws it tells by the shelter which of the two it was.
                self.freezer.unshelter(dir).map_err(failure)?;
                self.freeze_cgroup(subject, dir)
            }
            frozen => frozen.map_err(failure),
        }
    }

    /// Its calls that wait for a freeze go on, as far as the freezer.
    fn freezing(&self, subject: &Subject, is_under_way: bool) {
        if let Some(gate) = &self.gate {
            subject.processes.iter().for_each(|process| gate.freezing(*process, is_under_way));
        }
    }

    fn thaw(&self, subject: &Subject, by: By) -> Result<(), StepFailure> {
        for process in &subject.standing {
            let pin = Pin::put(&self.proc_root, *process);
            let pin = pin.map_err(|error| StepFailure { message: error.to_string(), is_passing: false })?;
            self.pins().insert(*process, pin);
        }
        let dir = match self.dir(subject) {
            Err(failed) if by != By::Docker => return Err(failed),
            dir => dir.ok().flatten(),
        };
        match (by, self.engine(subject)) {
            (By::Docker, Ok((pauser, id))) => Ok(pause::unpause(pauser, &self.freezer, id, dir.as_ref())?),
            (By::Shelter, _) => dir.map_or(Ok(()), |dir| self.freezer.thaw_sheltered(&dir).map_err(failure)),
            // Without the engine that froze it, the tenant is still to run.
            _ => dir.map_or(Ok(()), |dir| self.freezer.thaw(&dir).map_err(failure)),
        }
    }

    /// From here on the driver keeps its calls waiting.
    fn lock(&self, process: ProcKey) -> Result<(), StepFailure> {
        self.driver("lock", process)?.lock(process)?;
        self.pins().remove(&process);
        Ok(())
    }

    fn unlock(&self, process: ProcKey) -> Result<(), StepFailure> {
        self.pins().remove(&process);
        self.driver("unlock", process)?.unlock(process)
    }

    fn pins(&self) -> MutexGuard<'_, BTreeMap<ProcKey, Pin>> {
        self.pins.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hand_over(&self, subject: &Subject) -> Result<(), StepFailure> {
        let (pauser, id) = self.engine(subject)?;
        let dir = self.dir(subject)?.ok_or_else(|| missing(format!("the cgroup of {} is gone", subject.tenant)))?;
        hand_over::to_engine(pauser, &self.freezer, id, &dir).map_err(|error| {
            tracing::warn!(container = %id, %error, "its engine does not take over; held by its cgroup as before");
            StepFailure::from(error)
        })
    }

    fn unshelter(&self, subject: &Subject) -> Result<(), StepFailure> {
        let dir = self.dir(subject)?;
        dir.map_or(Ok(()), |dir| self.freezer.unshelter(&dir).map_err(failure))
    }

    /// `None` if the tenant has none, or had one that is gone.
    fn dir(&self, subject: &Subject) -> Result<Option<CgroupDir>, StepFailure> {
        let Some(path) = &subject.cgroup else { return Ok(None) };
        match self.freezer.open(path) {
            Err(error) if error.is_gone() => Ok(None),
            dir => dir.map(Some).map_err(failure),
        }
    }

    fn engine<'a>(&'a self, subject: &'a Subject) -> Result<(&'a Pauser, &'a ContainerId), StepFailure> {
        let no_engine = || missing(format!("cannot pause {}: no Docker Engine is used", subject.tenant));
        let no_container = || missing(format!("cannot pause {}: it is no container of Docker", subject.tenant));
        let pauser = self.pauser.as_ref().ok_or_else(no_engine)?;
        Ok((pauser, subject.container.as_ref().ok_or_else(no_container)?))
    }

    fn resume(&self, process: ProcKey) -> Result<(), StepFailure> {
        // Without a gate of our own, another daemon's may have stopped it.
        if self.gate.as_ref().is_some_and(|gate| !gate.continued(process)) {
            return Ok(());
        }
        let continued = continue_process(&self.proc_root, process);
        continued.map_err(|error| StepFailure { message: error.to_string(), is_passing: false })
    }

    fn driver(&self, attempt: &str, process: ProcKey) -> Result<&dyn DriverSteps, StepFailure> {
        let missing = || missing(format!("cannot {attempt} process {}: no CUDA driver is used", process.pid));
        self.driver.as_deref().ok_or_else(missing)
    }
}

impl Hands for HostHands {
    fn perform(&self, subject: &Subject, step: Step) -> Result<(), StepFailure> {
        match (step, &self.gate) {
            (Step::Freeze(by), _) => self.freeze(subject, by),
            (Step::Thaw(by), _) => self.thaw(subject, by),
            (Step::HandOver, _) => self.hand_over(subject),
            (Step::Unshelter, _) => self.unshelter(subject),
            (Step::Continue(process), _) => self.resume(process),
            (Step::Lock(process), _) => self.lock(process),
            (Step::Unlock(process), _) => self.unlock(process),
            (Step::Checkpoint(process), _) => self.driver("park", process)?.checkpoint(process),
            (Step::Restore(process), _) => {
                let needs = subject.needs_back.get(&process).copied();
                self.driver("restore", process)?.restore(process, needs)
            }
            (Step::Gate(process), Some(gate)) => gate.gate(process),
            (Step::Bar(process), Some(gate)) => gate.bar(process),
            (Step::Ungate(process), Some(gate)) => gate.ungate(process),
            (Step::Gate(process) | Step::Bar(process), None) => {
                Err(missing(format!("cannot stop process {} at its launches: no probes are used", process.pid)))
            }
            // Probes end with the daemon that had them.
            (Step::Ungate(_), None) => Ok(()),
        }
    }

    fn needs_back(&self, process: ProcKey) -> Option<Held> {
        self.driver.as_ref()?.needs_back(process)
    }
}

fn missing(message: String) -> StepFailure {
    StepFailure { message, is_passing: false }
}

fn failure(error: FreezerError) -> StepFailure {
    StepFailure { is_passing: error.is_passing(), message: error.to_string() }
}
