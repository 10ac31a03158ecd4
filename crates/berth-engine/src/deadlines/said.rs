//! What persons have said about deadlines, and the thread that writes it down: whoever asks is answered when it is on disk, and the
//! loop waits for no disk.

use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;

use berth_model::deadline::Given;
use berth_model::{ContainerId, Event, Runtime, TenantKey};
use berth_store::deadlines::{Deadlines as Store, DeadlinesError, Override};

use crate::describe;

/// Told apart by this.
pub(super) type Ticket = u64;

/// One word on its way to the disk.
#[derive(Debug)]
struct Order {
    ticket: Ticket,
    tenant: TenantKey,
    /// `None`: what was said is taken back.
    said: Option<Override>,
}

/// What came of it: all that counts from now on, or why nothing has changed.
#[derive(Debug)]
struct Done {
    ticket: Ticket,
    outcome: Result<Vec<Override>, String>,
}

/// Where words are kept.
#[derive(Debug)]
enum Keep {
    /// Nowhere: they count until this daemon ends.
    Memory,
    /// They cannot be, and so none is taken.
    Refused {
        reason: String,
    },
    Disk(Scribe),
}

#[derive(Debug)]
struct Scribe {
    /// `None` only while being dropped: its end is the sign to stop.
    order_tx: Option<Sender<Order>>,
    done_rx: Receiver<Done>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
pub(crate) struct Said {
    overrides: Vec<Override>,
    keep: Keep,
    last: Ticket,
}

impl Said {
    /// For one who keeps nothing on disk.
    pub fn in_memory() -> Self {
        Self { overrides: Vec::new(), keep: Keep::Memory, last: 0 }
    }

    /// For one who takes no word.
    pub fn refused(reason: String) -> Self {
        Self { keep: Keep::Refused { reason }, ..Self::in_memory() }
    }

    /// `event_tx` wakes the loop when something is written.
    pub fn on_disk(store: Result<Store, DeadlinesError>, event_tx: Sender<Event>) -> Self {
        let refused = |error: &dyn std::error::Error| {
            let reason = describe(error);
            tracing::error!(reason, "no deadlines are set, and none that were set count");
            Self::refused(reason)
        };
        let store = match store {
            Ok(store) => store,
            Err(error) => return refused(&error),
        };
        let overrides = store.overrides().to_vec();
        match Scribe::start(store, event_tx) {
            Ok(scribe) => Self { overrides, keep: Keep::Disk(scribe), last: 0 },
            Err(error) => refused(&error),
        }
    }

    pub fn of(&self, tenant: &TenantKey) -> Option<Given> {
        self.overrides.iter().find(|said| said.tenant.is(tenant)).map(|said| said.given)
    }

    pub fn all(&self) -> &[Override] {
        &self.overrides
    }

    /// Of which containers something was said.
    pub fn containers(&self) -> impl Iterator<Item = &ContainerId> {
        self.overrides.iter().filter_map(|said| said.tenant.docker_id())
    }

    pub fn is_durable(&self) -> bool {
        matches!(self.keep, Keep::Disk(_))
    }

    /// Why nothing can be said.
    pub fn refusal(&self) -> Option<&str> {
        match &self.keep {
            Keep::Refused { reason } => Some(reason),
            Keep::Memory | Keep::Disk(_) => None,
        }
    }

    /// Takes a word, or takes it back where there is none. It counts when it is done; `None`: it is already.
    pub fn say(&mut self, tenant: TenantKey, said: Option<Override>) -> Option<Ticket> {
        self.last += 1;
        let order = Order { ticket: self.last, tenant, said };
        match &self.keep {
            Keep::Disk(scribe) => {
                scribe.order(order);
                Some(self.last)
            }
            Keep::Memory | Keep::Refused { .. } => {
                self.overrides.retain(|other| !other.tenant.is(&order.tenant));
                self.overrides.extend(order.said);
                None
            }
        }
    }

    /// Docker no longer has this container. What it never had, because it is another engine's, is kept.
    pub fn forget(&mut self, id: &ContainerId) {
        let gone = TenantKey::Container { runtime: Runtime::Docker, id: id.clone() };
        if self.overrides.iter().any(|said| said.tenant == gone) {
            self.overrides.retain(|said| said.tenant != gone);
            // If it cannot be written now, the next daemon finds out again that it is gone.
            self.say(gone, None);
        }
    }

    /// What has come of words since the last time, in the order they were said.
    pub fn done(&mut self) -> Vec<(Ticket, Result<(), String>)> {
        let Keep::Disk(scribe) = &self.keep else { return Vec::new() };
        let mut told = Vec::new();
        for Done { ticket, outcome } in scribe.done_rx.try_iter() {
            let outcome = outcome.map(|overrides| self.overrides = overrides);
            told.push((ticket, outcome));
        }
        told
    }
}

impl Scribe {
    fn start(mut store: Store, event_tx: Sender<Event>) -> std::io::Result<Self> {
        let (order_tx, order_rx) = mpsc::channel::<Order>();
        let (done_tx, done_rx) = mpsc::channel();
        let write = move || {
            for Order { ticket, tenant, said } in order_rx {
                let written = match said {
                    Some(said) => store.set(said),
                    None => store.reset(&tenant),
                };
                let outcome = written.map(|()| store.overrides().to_vec()).map_err(|error| describe(&error));
                // Nobody listens any more when the daemon stops.
                if done_tx.send(Done { ticket, outcome }).is_ok() {
                    let _ = event_tx.send(Event::Asked);
                }
            }
        };
        let thread = std::thread::Builder::new().name("berth-deadlines".into()).spawn(write)?;
        Ok(Self { order_tx: Some(order_tx), done_rx, thread: Some(thread) })
    }

    fn order(&self, order: Order) {
        if let Some(order_tx) = &self.order_tx {
            // The thread is there for as long as this is.
            let _ = order_tx.send(order);
        }
    }
}

impl Drop for Scribe {
    fn drop(&mut self) {
        self.order_tx = None;
        if let Some(thread) = self.thread.take() {
            // A panic has been reported on its own thread.
            let _ = thread.join();
        }
    }
}
