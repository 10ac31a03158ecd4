//! Hands for tests of what stands on them: they write down what is asked, and fail or wait when told to.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use berth_model::hold::Step;
use berth_model::{StepFailure, TenantKey};

use super::{Hands, Subject};

/// Does nothing to anybody.
#[derive(Debug, Default)]
pub struct FakeHands {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    steps: Vec<(TenantKey, Step)>,
    failures: VecDeque<(Step, StepFailure)>,
    /// Steps that do not return while they are in here.
    stuck: Vec<Step>,
}

impl FakeHands {
    /// Everything performed so far, in order, failed or not; a step that is stuck is among them.
    pub fn steps(&self) -> Vec<(TenantKey, Step)> {
        self.state().steps.clone()
    }

    /// The next time `step` is asked for, it fails.
    pub fn fail(&self, step: Step, message: &str, is_passing: bool) {
        self.state().failures.push_back((step, StepFailure { message: message.to_owned(), is_passing }));
    }

    /// `step` does not return until [`FakeHands::let_go`].
    pub fn hold_up(&self, step: Step) {
        self.state().stuck.push(step);
    }

    pub fn let_go(&self, step: Step) {
        self.state().stuck.retain(|stuck| *stuck != step);
        self.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hands for FakeHands {
    fn perform(&self, subject: &Subject, step: Step) -> Result<(), StepFailure> {
        let mut state = self.state();
        state.steps.push((subject.tenant.clone(), step));
        let waited = self.changed.wait_while(state, |state| state.stuck.contains(&step));
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        match state.failures.iter().position(|(failing, _)| *failing == step) {
            Some(at) => Err(state.failures.remove(at).expect("the position of an element").1),
            None => Ok(()),
        }
    }
}
