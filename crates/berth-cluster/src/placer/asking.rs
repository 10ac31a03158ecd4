//! Asking nodes: each at its time, so many at once, none for long.

use std::fmt::Debug;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use berth_model::cluster::{NodeId, Past, Report};
use tokio::task::JoinSet;

use super::{Placer, Question};
use crate::frame::Told;

/// Questions that are under way at a time; each costs a descriptor.
const AT_ONCE: usize = 512;
/// How long an answer is waited for while there is room, and while many others wait for their turn: when a whole row of nodes is lost at
/// once, those that are left go stale if each of the lost ones is waited for at length.
const PATIENCE: Duration = Duration::from_secs(1);
const IN_A_CROWD: Duration = Duration::from_millis(200);
/// Places end, and reports go stale, whether or not anybody is asked.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// What comes of a question; an error in words for people.
pub type Asked<'a, T> = Pin<Box<dyn Future<Output = Result<T, String>> + Send + 'a>>;

/// Asks a node's daemon. Answers that cannot be believed are errors.
pub trait AskNodes: Debug + Send + Sync {
    /// With how old it was when it was signed.
    fn report<'a>(&'a self, question: &'a Question) -> Asked<'a, Told<Report>>;

    fn pasts<'a>(&'a self, question: &'a Question) -> Asked<'a, Vec<Past>>;
}

impl Placer {
    /// Asks the nodes, for ever.
    pub async fn ask_nodes(self: Arc<Self>) {
        let mut under_way = JoinSet::new();
        let mut expired = self.now();
        loop {
            let now = self.now();
            let room = AT_ONCE.saturating_sub(under_way.len());
            for question in self.book().questions(room, now) {
                let patience = if under_way.len() < AT_ONCE / 2 { PATIENCE } else { IN_A_CROWD };
                let turn = Turn { placer: Arc::clone(&self), question };
                under_way.spawn(async move { turn.take(patience).await });
            }
            let next = self.book().next_question().filter(|_| under_way.len() < AT_ONCE);
            let sleep = next.map_or(LONGEST_SLEEP, |at| at.since(self.now()).min(LONGEST_SLEEP));
            tokio::select! {
                () = tokio::time::sleep(sleep) => {}
                () = self.woken.notified() => {}
                Some(_) = under_way.join_next() => {}
            }
            // A look at all nodes, so not with every answer: who is asked for a place looks at the age of reports itself.
            if self.now().since(expired) >= LONGEST_SLEEP {
                expired = self.now();
                self.book().expire(expired);
            }
        }
    }

    /// Asks one node now. Whether it has answered since, and could be believed.
    pub(super) async fn ask(&self, question: &Question, patience: Duration) -> bool {
        let asked = self.now();
        let answer = tokio::time::timeout(patience, self.nodes.report(question)).await;
        let answer = answer.unwrap_or_else(|_| Err(format!("it has not answered within {patience:?}")));
        self.counters.asked(answer.is_ok());
        if let Err(why) = &answer {
            tracing::debug!(node = %question.node, why, "no report");
        }
        let mut book = self.book();
        book.answered(&question.node, asked, answer, self.now());
        book.has_answered(&question.node, asked)
    }

    /// What the node knows of the past, if that has changed.
    pub(super) async fn ask_pasts(&self, question: &Question, patience: Duration) {
        let version = {
            let book = self.book();
            book.pasts_version(&question.node).filter(|_| book.wants_pasts(&question.node))
        };
        let Some(version) = version else { return };
        match tokio::time::timeout(patience, self.nodes.pasts(question)).await {
            Ok(Ok(pasts)) => self.book().pasts(&question.node, version, pasts),
            Ok(Err(why)) => tracing::debug!(node = %question.node, why, "its past is not told"),
            Err(_) => tracing::debug!(node = %question.node, "its past is not told in time"),
        }
    }

    /// Asks a node out of its turn. `false` if there is no such node, or it does not answer. Of the past it is asked in its turn: whoever
    /// waits for a place does not wait for that.
    pub(crate) async fn ask_again(&self, node: &NodeId) -> bool {
        let question = self.book().question(node);
        match question {
            Some(question) => self.ask(&question, PATIENCE).await,
            None => false,
        }
    }
}

/// Of a node that is being asked. It gets its next one whatever comes of this.
struct Turn {
    placer: Arc<Placer>,
    question: Question,
}

impl Turn {
    async fn take(&self, patience: Duration) {
        if self.placer.ask(&self.question, patience).await {
            self.placer.ask_pasts(&self.question, patience).await;
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let now = self.placer.now();
        self.placer.book().unanswered(&self.question.node, now);
    }
}

#[cfg(test)]
mod tests;
