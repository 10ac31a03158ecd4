//! Who stands still: a process that is stopped or frozen, by whomever, neither works nor lets go of what it keeps stopped.
//!
//! What berth itself holds is told by the loop, before it is done. All else is looked for, of those who have work, every few milliseconds.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use berth_host::shim::{self, ClientId};
use berth_model::Mono;

use super::client::Client;

/// Between two looks: followers of one that is stopped from outside stand for no longer.
const EVERY: Duration = Duration::from_millis(5);
/// Processes looked at in a round; the others have their turn in the next.
const AT_ONCE: usize = 16;

#[derive(Debug)]
pub(super) struct Still {
    files: shim::Still,
    looked_at: Option<Mono>,
    last: Option<ClientId>,
    still: BTreeSet<ClientId>,
}

impl Still {
    pub fn new(proc_root: &Path) -> Self {
        Self { files: shim::Still::new(proc_root), looked_at: None, last: None, still: BTreeSet::new() }
    }

    pub fn is_so(&self, client: ClientId) -> bool {
        self.still.contains(&client)
    }

    /// Whether a process is neither stopped nor gone, now.
    pub fn runs(&self, pid: u32) -> bool {
        self.files.runs(pid)
    }

    /// Looks at those who say that they have work, and at those who stood still.
    pub fn look(&mut self, clients: &BTreeMap<ClientId, Client>, now: Mono) {
        if self.looked_at.is_some_and(|at| now.since(at) < EVERY) {
            return;
        }
        self.looked_at = Some(now);
        self.still.retain(|client| clients.contains_key(client));
        let of_interest = |id: &ClientId, client: &Client| {
            client.takes_part && (self.still.contains(id) || client.lanes.values().any(|lane| lane.doing.busy))
        };
        let all: Vec<(ClientId, u32)> = clients
            .iter()
            .filter(|(id, client)| of_interest(id, client))
            .map(|(id, client)| (*id, client.facts.process.pid))
            .collect();
        let from = all.iter().position(|(id, _)| Some(*id) > self.last).unwrap_or(0);
        for (id, pid) in all.iter().cycle().skip(from).take(all.len().min(AT_ONCE)) {
            self.last = Some(*id);
            if self.files.is_so(*pid) {
                self.still.insert(*id)
            } else {
                self.still.remove(id)
            };
        }
    }
}
