//! The placer: asks the nodes of an engine what goes on there, and says where a container can go.
//!
//! [`Book`] is what it knows and decides, pure; here is the edge around it: the clock, the questions, and those who ask. What the engine
//! runs is told by the engine's own module ([`crate::swarm`], [`crate::kubernetes`]). It stores nothing: after a restart the same is
//! told again.

mod asking;
mod book;
mod claim;
pub mod client;
mod clock;
pub mod constraint;
mod error;
mod metrics;
mod pasts;
mod reservation;
mod routes;
mod signed;
#[cfg(test)]
pub mod testing;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use berth_model::Mono;
use berth_model::cluster::api::{Nodes, PlaceAnswer, PlaceRequest, Waiting};
use berth_model::cluster::{NodeId, PlacementId};
use berth_model::settings::{EngineName, PlacerSettings};
use berth_policy::nodes::NodesSettings;
use tokio::sync::Notify;

pub use asking::{AskNodes, Asked};
pub use book::{Book, Member, Placed, Question};
pub use claim::{Claim, Held, LASTS, RENEW_EVERY};
pub use clock::now;
pub use constraint::Facts;
pub use error::NotPlaced;
use metrics::Counters;
pub use reservation::Reservation;
pub use routes::{paths, serve};
pub use signed::Signed;

/// The own clock when the placer starts: what nodes say is older than the placer has its place on it, too.
const AT_START: Duration = Duration::from_hours(24);

/// Whether this placer places, or only answers questions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Acting {
    /// Nobody else could.
    Always,
    /// It has been given leave until then, by [`now`].
    Until(Mono),
    /// A clause: `n1 places for this swarm`.
    Not { because: String },
}

/// Shared by those who ask it, those who ask nodes, and the engine's module.
#[derive(Debug)]
pub struct Placer {
    engine: EngineName,
    settings: NodesSettings,
    book: Mutex<Book>,
    nodes: Box<dyn AskNodes>,
    acting: Mutex<Acting>,
    /// As the engine last told of it.
    waiting: Mutex<Vec<Waiting>>,
    counters: Counters,
    /// The list of nodes changed: somebody may have to be asked at once.
    woken: Notify,
    /// By the runtime's clock, which tests can turn.
    started: tokio::time::Instant,
}

impl Placer {
    pub fn new(settings: &PlacerSettings, nodes: Box<dyn AskNodes>) -> Arc<Self> {
        let list = NodesSettings {
            strategy: settings.strategy,
            order: settings.order,
            stale_after: settings.stale_after.get(),
            miss_window: settings.miss_window.get(),
            reservation_lasts: settings.reservation_lasts.get(),
        };
        Arc::new(Self {
            engine: settings.engine,
            settings: list,
            book: Mutex::new(Book::new(list, settings.ask_every.get())),
            nodes,
            acting: Mutex::new(Acting::Always),
            waiting: Mutex::default(),
            counters: Counters::default(),
            woken: Notify::new(),
            started: tokio::time::Instant::now(),
        })
    }

    /// All nodes the engine has.
    pub fn members(&self, members: BTreeMap<NodeId, Member>) {
        self.book().members(members, self.now());
        self.woken.notify_one();
    }

    /// All containers of the engine's that carry a placement and are not over.
    pub fn placed(&self, placed: Vec<Placed>) {
        let now = self.now();
        let mut book = self.book();
        book.placed(placed, now);
        book.expire(now);
    }

    /// All that is to run and has no place.
    pub fn waiting(&self, waiting: Vec<Waiting>) {
        *self.waiting.lock().unwrap_or_else(PoisonError::into_inner) = waiting;
    }

    /// Of several placers of one engine only one may act: its module says which.
    pub fn act(&self, acting: Acting) {
        *self.acting.lock().unwrap_or_else(PoisonError::into_inner) = acting;
    }

    /// Why it does not act; `None` if it does.
    pub fn why_idle(&self) -> Option<String> {
        match &*self.acting.lock().unwrap_or_else(PoisonError::into_inner) {
            Acting::Until(end) if clock::now() >= *end => Some("it could not renew its lease".to_owned()),
            Acting::Not { because } => Some(because.clone()),
            Acting::Always | Acting::Until(_) => None,
        }
    }

    /// How long it may act without having to ask again; `None` if it may not.
    pub fn acts_for(&self) -> Option<Duration> {
        match &*self.acting.lock().unwrap_or_else(PoisonError::into_inner) {
            Acting::Always => Some(Duration::MAX),
            Acting::Until(end) => Some(end.since(clock::now())).filter(|left| !left.is_zero()),
            Acting::Not { .. } => None,
        }
    }

    /// A report came by itself, and could be believed or not.
    pub fn has_heard(&self, is_believed: bool) {
        self.counters.asked(is_believed);
    }

    /// Something was given a place, or nobody would take it.
    pub fn has_placed(&self, is_placed: bool) {
        self.counters.reserved(is_placed);
    }

    /// Something that was placed has been given another place.
    pub fn has_moved(&self) {
        self.counters.moved();
    }

    pub fn nodes(&self, question: &PlaceRequest) -> Result<Nodes, NotPlaced> {
        let nodes = self.book().ranked(question, self.now())?;
        let (engine, strategy, idle) = (self.engine.as_str().to_owned(), self.settings.strategy, self.why_idle());
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Ok(Nodes { engine, strategy, idle, nodes, waiting })
    }

    /// Nothing is placed or reserved by it.
    pub fn place(&self, request: &PlaceRequest) -> Result<PlaceAnswer, NotPlaced> {
        let answer = self.book().place(request, self.now())?;
        Ok(PlaceAnswer { idle: self.why_idle(), ..answer })
    }

    /// With what is known, under one lock: what is asked of it fits together.
    pub fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// On this placer's own clock.
    pub fn now(&self) -> Mono {
        Mono(0) + AT_START + self.started.elapsed()
    }
}

/// Unlike any other, by the randomness that maps are seeded with.
fn new_placement() -> PlacementId {
    PlacementId(RandomState::new().hash_one(Instant::now()))
}
