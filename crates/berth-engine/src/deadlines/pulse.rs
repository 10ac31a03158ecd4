//! What a tenant does where nobody sees its calls: as well as looks tell it.

use std::time::Duration;

use berth_model::deadline::Pulse;
use berth_model::{Mono, TaskRow, TaskState};

/// `idle_after`: how long one has not been seen computing when it is called idle.
pub(crate) fn by_looks(row: &TaskRow, idle_after: Duration, now: Mono) -> Pulse {
    match row.state {
        TaskState::Computing => Pulse::Computes { since: now, crowd: 1 },
        TaskState::Idle => {
            let idle = u64::try_from(idle_after.as_nanos()).unwrap_or(u64::MAX);
            Pulse::Quiet { since: Mono(now.0.saturating_sub(idle)) }
        }
        TaskState::Opening => Pulse::Loads,
        TaskState::Loaded if row.gpu_core_pct.is_some_and(|core| core.get() == 0) => Pulse::Loads,
        TaskState::Loaded | TaskState::Lost => Pulse::Unknown,
    }
}
