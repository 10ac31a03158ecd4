//! What the API server tells: nodes, their reports, and pods that were placed.
//!
//! Each watch begins with a list of everything, also after a break: what is not in it any more is gone. Nothing is stored: a placer that
//! starts anew finds out by the same lists which places are taken.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use berth_model::cluster::NodeId;
use futures_util::StreamExt;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use super::node::Node;
use super::ready::Watched;
use crate::placer::Placer;

/// The API server ends a watch after this long, and is asked anew: one that is silent for longer leads nowhere.
pub(super) const WATCHED_FOR: Duration = Duration::from_secs(60);

/// How everything is watched.
pub(super) fn watched() -> watcher::Config {
    watcher::Config::default().timeout(u32::try_from(WATCHED_FOR.as_secs()).unwrap_or(u32::MAX))
}

/// What follows one kind of object.
pub(super) trait Follow<K> {
    /// It is there, or has changed.
    fn there(&mut self, object: K);
    /// It has gone.
    fn gone(&mut self, object: K);
    /// Everything there is has been told; what was not is gone.
    fn told_all(&mut self) {}
    /// Everything there is will be told anew.
    fn anew(&mut self) {}
}

/// For ever; a break is waited out.
pub(super) async fn follow<K>(api: Api<K>, config: watcher::Config, watched: Watched, mut who: impl Follow<K>)
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut events = watcher(api, config).default_backoff().boxed();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Apply(object) | Event::InitApply(object)) => who.there(object),
            Ok(Event::Delete(object)) => who.gone(object),
            Ok(Event::Init) => who.anew(),
            Ok(Event::InitDone) => {
                who.told_all();
                watched.has_told_all();
            }
            Err(error) => tracing::warn!(what = watched.what(), %error, "the API server does not tell"),
        }
    }
}

/// Which nodes there are, and which take anything.
pub(super) struct Nodes {
    placer: Arc<Placer>,
    told: BTreeSet<NodeId>,
}

impl Nodes {
    pub fn new(placer: Arc<Placer>) -> Self {
        Self { placer, told: BTreeSet::new() }
    }
}

impl Follow<Node> for Nodes {
    fn there(&mut self, node: Node) {
        let Ok(id) = node.name().parse::<NodeId>() else { return };
        self.placer.book().member_is(&id, node.member(), self.placer.now());
        self.told.insert(id);
    }

    fn gone(&mut self, node: Node) {
        let Ok(id) = node.name().parse() else { return };
        self.told.remove(&id);
        self.placer.book().member_is_gone(&id);
    }

    fn told_all(&mut self) {
        self.placer.book().members_are_only(&self.told);
    }

    fn anew(&mut self) {
        self.told.clear();
    }
}
