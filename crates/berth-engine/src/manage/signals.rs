//! Whom someone wants to end while they stand still: by `kill`, by a service manager, by an engine that shuts down.
//!
//! A frozen process cannot take a signal, and nobody tells when one is sent to it; so those who stand still are looked at now and
//! then. What is sent by a container's engine while it answers is known earlier, from its events.

use std::time::Duration;

use berth_model::{Mono, TenantKey};

use super::Manager;

/// Between two looks.
const EVERY: Duration = Duration::from_millis(500);

impl Manager {
    /// Lets those go who are to end. When to look again, if anybody stands still.
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
            // Whoever may signal somebody's process is them, or as good as root.
            if self.places.get(&tenant).is_some_and(|place| self.ground.is_asked_to_end(place)) {
                self.keeper.signalled(&tenant, 0, now);
            }
        }
        self.signals_at = Some(now + EVERY);
        self.signals_at
    }
}
