//! Signals to those who stand still: by `kill`, by a service manager, by an engine.
//!
//! A frozen process cannot take a signal, and nobody tells when one is sent to it; so those who stand still are looked at now and
//! then. What is sent by a container's engine while it answers is known earlier, from its events. What follows from a signal, and
//! for how long, is said in `berth_model::hold::leave`.

use std::time::Duration;

use berth_model::hold::{Sent, Signal};
use berth_model::{Mono, TenantKey};

use super::Manager;

/// Between two looks.
const EVERY: Duration = Duration::from_millis(500);

impl Manager {
    /// Someone has sent it a signal.
    pub(super) fn signalled(&mut self, tenant: &TenantKey, signal: Option<Signal>, at: Mono) {
        let stop = self.pausing.stop_of(tenant).filter(|stop| signal == Some(stop.signal));
        let sent = Sent { signal, kills_after: stop.map(|stop| stop.kills_after) };
        // Whoever may signal somebody's process is them, or as good as root.
        self.keeper.signalled(tenant, sent, 0, at);
    }

    /// Lets those go who are to take a signal. When to look again, if anybody stands still.
    pub(super) fn heed_signals(&mut self, now: Mono) -> Option<Mono> {
        let stands = |tenant: &&TenantKey| self.keeper.note(tenant).is_some_and(|note| note.grip.is_still());
        let still: Vec<TenantKey> = self.keeper.gripped().filter(stands).cloned().collect();
        if still.is_empty() {
            return None;
        }
        if self.signals_at.is_some_and(|at| now < at) {
            return self.signals_at;
        }
        for tenant in still {
            let processes = self.activities.processes_of(&tenant);
            let awaited = self.places.get(&tenant).and_then(|place| self.ground.awaited_signal(place, &processes));
            if awaited.is_some() {
                self.signalled(&tenant, awaited, now);
            }
        }
        self.signals_at = Some(now + EVERY);
        self.signals_at
    }
}
