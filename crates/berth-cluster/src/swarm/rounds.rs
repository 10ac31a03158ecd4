//! The placer's rounds: what the swarm's manager says goes into the book, and what has lost its place gets another.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use berth_model::cluster::{Choice, Engine, NotHere, PLACEMENT_LABEL};
use serde_json::Value;

use super::engine::{EngineError, Manager, with_label};
use super::lease::Lease;
use super::node::Node;
use super::service::{Service, Stage, Task};
use crate::placer::{Acting, Held, NotPlaced, Placed, Placer, Reservation};

/// A manager tells of changes of nodes and services, but not of tasks: all are asked for.
const ROUND_EVERY: Duration = Duration::from_millis(500);
/// How long it waits for nodes that have never been asked, after its start: those that answer are known long before.
const ASKS_FOR: Duration = Duration::from_secs(10);

/// A swarm, by one of its managers.
#[derive(Debug)]
pub struct Swarm {
    manager: Manager,
    placer: Arc<Placer>,
    lease: Lease,
    /// On which daemons listen.
    port: u16,
    /// Who acts, where this one does not.
    holder: Option<String>,
    /// Since when it waits for the nodes to have been asked once; `None` when they have.
    asks_since: Option<Instant>,
}

impl Swarm {
    /// `place`: where the placer is, for people. Nothing is placed before the swarm was read and its
    /// nodes were asked once: what was placed by another, or before a restart, has to be known first.
    pub fn new(manager: Manager, placer: Arc<Placer>, place: &str, port: u16) -> Self {
        placer.act(Acting::Not { because: "it has not read the swarm yet".to_owned() });
        Self { manager, placer, lease: Lease::new(place), port, holder: None, asks_since: Some(Instant::now()) }
    }

    /// Until it is to stop; then another may act at once. A manager that does not answer is asked again; meanwhile the last it said goes
    /// stale with the reports.
    pub async fn run(mut self, stop: impl Future<Output = ()>) {
        tokio::select! {
            never = self.rounds() => match never {},
            () = stop => {}
        }
        self.placer.act(Acting::Not { because: "it is stopping".to_owned() });
        if let Err(error) = self.lease.give_up(&self.manager).await {
            tracing::warn!(why = chain(&error), "the next placer waits until the lease is over");
        }
    }

    async fn rounds(&mut self) -> Infallible {
        let mut failed = None;
        let mut rounds = tokio::time::interval(ROUND_EVERY);
        rounds.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            rounds.tick().await;
            let told = self.round().await.err().map(|error| chain(&error));
            match (&told, &failed) {
                (Some(why), None) => tracing::warn!(why, "the swarm's manager does not tell"),
                (None, Some(_)) => tracing::info!("the swarm's manager tells again"),
                _ => {}
            }
            if let Some(why) = told.as_ref().filter(|_| self.placer.why_idle().is_some()) {
                self.placer.act(Acting::Not { because: format!("the swarm's manager does not tell: {why}") });
            }
            failed = told;
        }
    }

    /// Reads once, and mends. If it fails, leave to act ends with the lease.
    pub async fn round(&mut self) -> Result<(), EngineError> {
        if self.lease.is_due() {
            self.renew().await?;
        }
        let nodes: Vec<Node> = self.manager.get("/nodes").await?;
        let members = nodes.iter().filter_map(|node| Some((node.node_id()?, node.member(self.port))));
        self.placer.members(members.collect());
        let services = self.services().await?;
        self.placer.placed(services.iter().filter_map(Service::placed).collect());
        self.placer.waiting(services.iter().filter_map(Service::waiting).collect());
        let Some(end) = self.lease.acts_until() else { return Ok(()) };
        if !self.has_asked() {
            self.placer.act(Acting::Not { because: "it has not asked the nodes yet".to_owned() });
            return Ok(());
        }
        self.placer.act(Acting::Until(end));
        for service in services.iter().filter(|service| service.stage != Stage::Over) {
            // A long round is not to outlast its leave.
            if !self.may_still_act().await? {
                break;
            }
            match self.mend(service, &nodes).await {
                // Of one service: the others are mended all the same.
                Err(error) if error.is_refusal() => {
                    tracing::warn!(service = service.name, why = chain(&error), "cannot be placed again");
                }
                outcome => outcome?,
            }
        }
        Ok(())
    }

    async fn may_still_act(&mut self) -> Result<bool, EngineError> {
        if self.lease.is_due() {
            self.renew().await?;
        }
        let end = self.lease.acts_until();
        end.into_iter().for_each(|end| self.placer.act(Acting::Until(end)));
        Ok(end.is_some())
    }

    async fn renew(&mut self) -> Result<(), EngineError> {
        let holder = match self.lease.take(&self.manager).await? {
            Held::Ours => None,
            Held::By(holder) => Some(holder),
        };
        match &holder {
            None if self.holder.take().is_some() => tracing::info!("this placer acts for the swarm now"),
            None => {}
            Some(holder) => {
                let because = format!("{holder} places for this swarm; it takes over when that is gone");
                self.placer.act(Acting::Not { because });
                if self.holder.replace(holder.clone()).is_none() {
                    tracing::warn!(%holder, "another placer acts for the swarm; this one answers questions");
                }
            }
        }
        Ok(())
    }

    async fn services(&self) -> Result<Vec<Service>, EngineError> {
        let services: Vec<Value> = self.manager.get(&with_label("/services", PLACEMENT_LABEL)).await?;
        if services.is_empty() {
            return Ok(Vec::new());
        }
        // After the services: a task that is told of belongs to what was read of its service, or to what it was before.
        let tasks: Vec<Task> = self.manager.get(&with_label("/tasks", PLACEMENT_LABEL)).await?;
        Ok(services.into_iter().filter_map(|service| Service::read(service, &tasks)).collect())
    }

    /// Whether every node was asked once, or has had the time to be.
    fn has_asked(&mut self) -> bool {
        self.asks_since =
            self.asks_since.filter(|since| since.elapsed() < ASKS_FOR && !self.placer.book().has_asked_all());
        self.asks_since.is_none()
    }

    /// Starts what was made, where its place is still its own; another place for one that cannot have its own, or why there is none.
    async fn mend(&self, service: &Service, nodes: &[Node]) -> Result<(), EngineError> {
        let node = nodes.iter().find(|node| node.id == service.choice.node.as_str());
        if service.placed().is_some() && node.is_none_or(Node::is_lost) {
            // Nobody tells that the old container has ended: the manager would wait a minute for that before it starts another. What is
            // not to run at all it starts anew at once, and that is in the next round.
            return self.update(service, &service.withdrawn()).await.map(drop);
        }
        if node.is_some_and(Node::is_unknown) && service.pending().is_none() {
            // After an election the manager has not heard of it yet, and of no other node either.
            return Ok(());
        }
        let (why, request) = (self.why_not_there(service, nodes), &service.request);
        let place = match (service.stage, &why) {
            (Stage::Made, None) => self.placer.settle(service.placement, request, &service.choice.node).await,
            (_, None) => {
                return match service.unmarked() {
                    Some(spec) => self.update(service, &spec).await.map(drop),
                    None => Ok(()),
                };
            }
            (_, Some(_)) => self.placer.reserve(request).await.map(|(kept, reserved)| (kept, reserved.choice)),
        };
        let why = why.unwrap_or_else(|| "it was made".to_owned());
        match place {
            Ok((kept, choice)) => self.put(service, &kept, choice, &why).await,
            Err(NotPlaced::Nobody(answer)) => {
                // Without how many: that changes with every report, and each time would be a write to the swarm's storage.
                let words: Vec<&str> = answer.refusals.0.keys().map(String::as_str).collect();
                let told = format!("nobody takes it: {}", words.join(", "));
                if service.pending() != Some(&told) && self.update(service, &service.told_why(&told)).await? {
                    self.placer.book().release(service.placement);
                    tracing::warn!(service = service.name, %why, told, "has no place");
                }
                Ok(())
            }
            // Leave to act has ended in the middle of the round.
            Err(NotPlaced::NotActing { .. }) => Ok(()),
            Err(error @ NotPlaced::Constraint(_)) => {
                tracing::warn!(service = service.name, %error, "cannot be placed again");
                Ok(())
            }
        }
    }

    /// Has the engine start it there. What it had before is another's from then on.
    async fn put(&self, service: &Service, kept: &Reservation, choice: Choice, why: &str) -> Result<(), EngineError> {
        let (id, from, to) = (kept.id(), &service.choice.node, choice.node.clone());
        let updated = self.update(service, &service.moved(id, &choice)).await;
        match &updated {
            Ok(true) => {
                let mut book = self.placer.book();
                if id != service.placement {
                    book.release(service.placement);
                }
                book.stands(
                    Placed { id, request: service.request.clone(), choice, is_started: false },
                    self.placer.now(),
                );
                drop(book);
                if *from != to {
                    self.placer.has_moved();
                }
                tracing::info!(service = service.name, %from, %to, why, "placed");
            }
            Ok(false) => self.placer.book().release(id),
            Err(error) if error.is_refusal() => self.placer.book().release(id),
            // Whether it was changed, the next round tells.
            Err(_) => {}
        }
        updated.map(drop)
    }

    /// Whether the engine took it. If somebody else has changed the service since, it is looked at anew in the next round.
    async fn update(&self, service: &Service, spec: &Value) -> Result<bool, EngineError> {
        let path = format!("/services/{}/update?version={}", service.id, service.version());
        match self.manager.post(&path, spec).await {
            Ok(_) => Ok(true),
            Err(error) if error.is_out_of_date() || error.is_missing() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// `None` if it may stay where it was placed.
    fn why_not_there(&self, service: &Service, nodes: &[Node]) -> Option<String> {
        if service.pending().is_some() {
            return Some("it has no place".to_owned());
        }
        let Some(node) = nodes.iter().find(|node| node.id == service.choice.node.as_str()) else {
            return Some("its node has left the swarm".to_owned());
        };
        if node.is_lost() {
            return Some("its node is down".to_owned());
        }
        if node.is_drained() {
            return Some("its node is drained".to_owned());
        }
        if !self.placer.book().meets(&service.choice.node, &service.request.constraints) {
            return Some("its node does not meet its constraints any more".to_owned());
        }
        match service.stage {
            Stage::Waiting => self.why_not_started(service),
            Stage::Displaced => Some("its node did not meet its constraints".to_owned()),
            _ => None,
        }
    }

    /// Nothing is started on a node of which nobody knows how it stands, or where another has its place by now.
    fn why_not_started(&self, service: &Service) -> Option<String> {
        match self.placer.book().why_not_start(service.placement, self.placer.now())? {
            NotHere::Engine { engine: Engine::Paused } => Some("its node is paused".to_owned()),
            why => Some(why.to_string()),
        }
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    std::iter::successors(Some(error), |error| error.source()).map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests;
