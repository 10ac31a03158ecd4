//! What a hold needs of the probes: halting a process at its next launch, and letting it go on from there.

use std::fmt;

use berth_model::{ProcKey, StepFailure};

use crate::probes::{ProbeError, Probes};

/// Steps on one process, each to be repeated without harm. They block for milliseconds.
pub trait Gate: fmt::Debug + Send + Sync {
    /// From now on the process stops at its next launch.
    fn gate(&self, process: ProcKey) -> Result<(), StepFailure>;
    /// From now on the process stops at the making of its first context, if it has none yet, and at its next launch.
    fn bar(&self, process: ProcKey) -> Result<(), StepFailure>;
    /// It goes on freely. No error if it is gone.
    fn ungate(&self, process: ProcKey) -> Result<(), StepFailure>;
    /// A freeze of its cgroup is under way, or no longer.
    fn freezing(&self, process: ProcKey, is_under_way: bool);
    /// It goes on, or will when it is thawed. Whether it takes a SIGCONT for that.
    fn continued(&self, process: ProcKey) -> bool;
}

impl Gate for Probes {
    fn gate(&self, process: ProcKey) -> Result<(), StepFailure> {
        Probes::gate(self, process).map_err(failure)
    }

    fn bar(&self, process: ProcKey) -> Result<(), StepFailure> {
        Probes::bar(self, process).map_err(failure)
    }

    fn ungate(&self, process: ProcKey) -> Result<(), StepFailure> {
        match Probes::ungate(self, process) {
            // What is gone, or was stopped with the probes themselves, launches freely.
            Err(ProbeError::Gone { .. } | ProbeError::NoDriver { .. } | ProbeError::Stopped) => Ok(()),
            ungated => ungated.map_err(failure),
        }
    }

    fn freezing(&self, process: ProcKey, is_under_way: bool) {
        if self.is_unseen() {
            Probes::freezing(self, process, is_under_way);
        }
    }

    fn continued(&self, process: ProcKey) -> bool {
        Probes::continued(self, process)
    }
}

fn failure(error: ProbeError) -> StepFailure {
    // The driver may yet be loaded, a mapping yet be readable; the end of who is gone is told by another way, in a moment.
    let is_passing = matches!(
        error,
        ProbeError::NoDriver { .. } | ProbeError::Unattached { .. } | ProbeError::Rule { .. } | ProbeError::Gone { .. }
    );
    StepFailure { message: error.to_string(), is_passing }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_has_ended_meanwhile_is_no_failure_to_tell_at_once() {
        let process = ProcKey { pid: 7, start_ticks: 1 };
        assert!(failure(ProbeError::Gone { process }).is_passing);
        assert!(!failure(ProbeError::Stopped).is_passing);
    }
}
