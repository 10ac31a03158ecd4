//! What persons have said about deadlines, and the thread that writes it down: whoever asks is answered when it is on disk, and the
//! loop waits for no disk.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread::JoinHandle;

use berth_model::deadline::Given;
use berth_model::{ContainerId, Event, Runtime, TenantKey};
use berth_store::deadlines::{Deadlines as Store, DeadlinesError, Override};

use crate::describe;

/// Said of what was on its way when the thread ended; why it did is in the log.
const NOBODY_WRITES: &str = "the thread that writes deadlines has ended; restart berth";

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
    counting: Counting,
    /// On its way to the disk: of whom, and what; `None` takes back.
    coming: BTreeMap<Ticket, (TenantKey, Option<Given>)>,
    keep: Keep,
    last: Ticket,
}

/// What counts, oldest first, and where in it each tenant's is.
#[derive(Debug, Default)]
struct Counting {
    overrides: Vec<Override>,
    places: BTreeMap<TenantKey, usize>,
}

impl Said {
    /// For one who keeps nothing on disk.
    pub fn in_memory() -> Self {
        Self { counting: Counting::default(), coming: BTreeMap::new(), keep: Keep::Memory, last: 0 }
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
        let counting = Counting::new(store.overrides().to_vec());
        match Scribe::start(store, event_tx) {
            Ok(scribe) => Self { counting, keep: Keep::Disk(scribe), ..Self::in_memory() },
            Err(error) => refused(&error),
        }
    }

    pub fn of(&self, tenant: &TenantKey) -> Option<Given> {
        self.counting.of(tenant).map(|said| said.given)
    }

    /// What counts of a tenant, and what will when it is on disk: any of it may be what is left if the disk takes only some.
    pub fn words(&self, tenant: &TenantKey) -> impl Iterator<Item = Given> {
        let coming = self.coming.values().filter(|(other, _)| other.is(tenant)).filter_map(|(_, given)| *given);
        self.of(tenant).into_iter().chain(coming)
    }

    pub fn all(&self) -> &[Override] {
        &self.counting.overrides
    }

    /// Of which containers something was said.
    pub fn containers(&self) -> impl Iterator<Item = &ContainerId> {
        self.counting.overrides.iter().filter_map(|said| said.tenant.docker_id())
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
        match &self.keep {
            Keep::Disk(scribe) => {
                self.coming.insert(self.last, (tenant.clone(), said.as_ref().map(|said| said.given)));
                scribe.order(Order { ticket: self.last, tenant, said });
                Some(self.last)
            }
            Keep::Memory | Keep::Refused { .. } => {
                let others = self.counting.overrides.iter().filter(|other| !other.tenant.is(&tenant));
                self.counting = Counting::new(others.cloned().chain(said).collect());
                None
            }
        }
    }

    /// Docker no longer has this container. What it never had, because it is another engine's, is kept.
    pub fn forget(&mut self, id: &ContainerId) {
        let gone = TenantKey::Container { runtime: Runtime::Docker, id: id.clone() };
        let is_coming = self.coming.values().any(|(tenant, given)| *tenant == gone && given.is_some());
        if is_coming || self.counting.of(&gone).is_some_and(|said| said.tenant == gone) {
            let others = self.counting.overrides.iter().filter(|said| said.tenant != gone);
            self.counting = Counting::new(others.cloned().collect());
            // If it cannot be written now, the next daemon finds out again that it is gone.
            self.say(gone, None);
        }
    }

    /// What has come of words since the last time, in the order they were said.
    pub fn done(&mut self) -> Vec<(Ticket, Result<(), String>)> {
        let Keep::Disk(scribe) = &self.keep else { return Vec::new() };
        let mut told = Vec::new();
        loop {
            match scribe.done_rx.try_recv() {
                Ok(Done { ticket, outcome }) => {
                    self.coming.remove(&ticket);
                    let outcome = outcome.map(|overrides| self.counting = Counting::new(overrides));
                    told.push((ticket, outcome));
                }
                Err(TryRecvError::Empty) => return told,
                Err(TryRecvError::Disconnected) => break,
            }
        }
        let unwritten = std::mem::take(&mut self.coming).into_keys();
        told.extend(unwritten.map(|ticket| (ticket, Err(NOBODY_WRITES.to_owned()))));
        told
    }
}

impl Counting {
    fn new(overrides: Vec<Override>) -> Self {
        let places = overrides.iter().enumerate().map(|(place, said)| (identity(&said.tenant), place)).collect();
        Self { overrides, places }
    }

    fn of(&self, tenant: &TenantKey) -> Option<&Override> {
        self.overrides.get(*self.places.get(&identity(tenant))?)
    }
}

/// The same for all keys that are the same tenant ([`TenantKey::is`]).
fn identity(tenant: &TenantKey) -> TenantKey {
    match tenant {
        TenantKey::Container { id, .. } => TenantKey::Container { runtime: Runtime::Unknown, id: id.clone() },
        TenantKey::Cgroup { .. } | TenantKey::User { .. } => tenant.clone(),
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
            // If the thread is gone, whoever asks what is done is told.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Gone before it is given the word, or with it.
    #[test]
    fn whoever_says_something_is_answered_though_the_thread_that_writes_is_gone() {
        for is_taken in [false, true] {
            let (order_tx, order_rx) = mpsc::channel();
            let (done_tx, done_rx) = mpsc::channel::<Done>();
            let keep = Keep::Disk(Scribe { order_tx: Some(order_tx), done_rx, thread: None });
            let mut said = Said { keep, ..Said::in_memory() };
            let mut thread = Some((order_rx, done_tx)).filter(|_| is_taken);
            let ticket = said.say(TenantKey::User { uid: 1 }, None).expect("it waits for the disk");
            if thread.take().is_some_and(|(order_rx, _)| order_rx.try_recv().is_err()) {
                panic!("the word was not handed on");
            }
            assert_eq!(said.done(), [(ticket, Err(NOBODY_WRITES.to_owned()))], "taken: {is_taken}");
            assert_eq!(said.done(), [], "once");
        }
    }
}
