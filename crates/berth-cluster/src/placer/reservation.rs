//! A place that is kept for whoever is about to have a container made.

use std::sync::Arc;

use berth_model::cluster::api::{PlaceRequest, Reserved};
use berth_model::cluster::{Choice, NodeId, PlacementId};

use super::{NotPlaced, Placer, new_placement};

/// Kept until it is dropped, and then until the engine has had time to tell of a container that carries it.
#[derive(Debug)]
pub struct Reservation {
    placer: Arc<Placer>,
    id: PlacementId,
    /// Nobody has heard of it yet: dropped now, nothing can come of it.
    is_told: bool,
}

impl Reservation {
    pub fn id(&self) -> PlacementId {
        self.id
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let now = self.placer.now();
        match self.is_told {
            true => self.placer.book().hung_up(self.id, now),
            false => self.placer.book().release(self.id),
        }
    }
}

impl Placer {
    /// Chooses a node, keeps the place, and asks the node itself once more before it says so: one that does not answer, or would not take
    /// it any more, is passed over.
    pub async fn reserve(self: &Arc<Self>, request: &PlaceRequest) -> Result<(Reservation, Reserved), NotPlaced> {
        self.has_leave()?;
        let mut without: Vec<NodeId> = Vec::new();
        let mut kept = Reservation { placer: Arc::clone(self), id: new_placement(), is_told: false };
        loop {
            let answer = self.place(request)?;
            let chosen = self.book().reserve(kept.id, request, &without, self.now())?;
            let Some(choice) = chosen else {
                let answer = self.book().nobody(request, &without, self.now())?;
                return Err(NotPlaced::Nobody(Box::new(answer)));
            };
            let confirmed = self.confirmed(kept.id, &choice).await;
            // Nodes may have taken their time.
            self.has_leave()?;
            match confirmed {
                Some(choice) => {
                    kept.is_told = true;
                    let name = self.book().member(&choice.node).and_then(|member| member.name.clone());
                    let (candidates, refusals) = (answer.candidates, answer.refusals);
                    let reserved = Reserved { placement: kept.id, choice, name, candidates, refusals };
                    return Ok((kept, reserved));
                }
                None => without.push(choice.node),
            }
        }
    }

    /// A place for a container that was made for one: on the same node, if that takes it still, or anew when its place was not kept; else
    /// another. The node is asked once more, and nothing of what was known before counts.
    pub async fn settle(
        self: &Arc<Self>,
        id: PlacementId,
        request: &PlaceRequest,
        node: &NodeId,
    ) -> Result<(Reservation, Choice), NotPlaced> {
        self.has_leave()?;
        if self.ask_again(node).await {
            self.has_leave()?;
            let taken = self.book().take(id, request, node, self.now());
            if let Ok(choice) = taken {
                return Ok((Reservation { placer: Arc::clone(self), id, is_told: true }, choice));
            }
        }
        self.reserve(request).await.map(|(kept, reserved)| (kept, reserved.choice))
    }

    fn has_leave(&self) -> Result<(), NotPlaced> {
        self.why_idle().map_or(Ok(()), |because| Err(NotPlaced::NotActing { because }))
    }

    async fn confirmed(&self, id: PlacementId, choice: &Choice) -> Option<Choice> {
        let is_answered = self.ask_again(&choice.node).await;
        let mut book = self.book();
        match is_answered {
            true => book.confirm(id, self.now()),
            false => {
                book.release(id);
                None
            }
        }
    }
}
