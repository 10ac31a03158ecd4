//! Which containers to ask the engine about, and when: pure bookkeeping, no requests.
//!
//! A container asked about while it is being described is described once more afterwards, so that the last description
//! is never older than the last question. One forgotten meanwhile is not described at all.

use std::collections::{BTreeSet, HashSet, VecDeque};

use berth_model::ContainerId;

/// Requests at a time; an engine may take seconds to answer for one container and not for another.
const AT_ONCE: usize = 8;

#[derive(Debug, Default)]
pub struct Wanted {
    /// Everything asked about that is not known to be gone.
    known: BTreeSet<ContainerId>,
    queue: VecDeque<ContainerId>,
    in_flight: HashSet<ContainerId>,
    /// In flight, and asked about again since.
    again: HashSet<ContainerId>,
}

impl Wanted {
    pub fn ask(&mut self, id: ContainerId) {
        self.known.insert(id.clone());
        if self.in_flight.contains(&id) {
            self.again.insert(id);
        } else if !self.queue.contains(&id) {
            self.queue.push_back(id);
        }
    }

    /// Its end is to be told, though nobody asks about it now.
    pub fn know(&mut self, id: ContainerId) {
        self.known.insert(id);
    }

    /// The next to ask the engine about; it is in flight until [`Wanted::done`].
    pub fn next(&mut self) -> Option<ContainerId> {
        if self.in_flight.len() >= AT_ONCE {
            return None;
        }
        let id = self.queue.pop_front()?;
        self.in_flight.insert(id.clone());
        Some(id)
    }

    /// Whether anybody still wants the answer.
    pub fn done(&mut self, id: &ContainerId) -> bool {
        self.in_flight.remove(id);
        if self.again.remove(id) {
            self.queue.push_back(id.clone());
        }
        self.known.contains(id)
    }

    pub fn is_known(&self, id: &ContainerId) -> bool {
        self.known.contains(id)
    }

    /// The container is gone.
    pub fn forget(&mut self, id: &ContainerId) {
        self.known.remove(id);
        self.again.remove(id);
        self.queue.retain(|queued| queued != id);
    }

    /// After a connection was lost: nothing is in flight, and anything may have changed.
    pub fn start_over(&mut self) {
        self.in_flight.clear();
        self.again.clear();
        self.queue = self.known.iter().cloned().collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn id(text: &str) -> ContainerId {
        ContainerId(text.into())
    }

    #[test]
    fn asking_twice_is_asking_once_until_the_request_is_sent() {
        let mut wanted = Wanted::default();
        wanted.ask(id("a"));
        wanted.ask(id("a"));
        assert_eq!(wanted.next(), Some(id("a")));
        assert_eq!(wanted.next(), None);
    }

    #[test]
    fn a_question_during_the_request_is_answered_by_another() {
        let mut wanted = Wanted::default();
        wanted.ask(id("a"));
        wanted.next();
        wanted.ask(id("a"));
        assert_eq!(wanted.next(), None, "not two at once");
        assert!(wanted.done(&id("a")));
        assert_eq!(wanted.next(), Some(id("a")));
    }

    #[test]
    fn an_answer_about_a_container_that_is_gone_is_not_wanted() {
        let mut wanted = Wanted::default();
        wanted.ask(id("a"));
        wanted.next();
        wanted.ask(id("a"));
        wanted.forget(&id("a"));
        assert!(!wanted.done(&id("a")));
        assert_eq!(wanted.next(), None);
    }

    #[test]
    fn after_a_lost_connection_everything_known_is_asked_again() {
        let mut wanted = Wanted::default();
        for name in ["a", "b", "c"] {
            wanted.ask(id(name));
        }
        wanted.next();
        wanted.next();
        wanted.done(&id("b"));
        wanted.forget(&id("c"));
        wanted.start_over();
        assert_eq!((wanted.next(), wanted.next(), wanted.next()), (Some(id("a")), Some(id("b")), None));
    }

    #[derive(Debug, Clone)]
    enum Step {
        Ask(u8),
        Send,
        Done,
        Forget(u8),
        StartOver,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..12u8).prop_map(Step::Ask),
            Just(Step::Send),
            Just(Step::Done),
            (0..12u8).prop_map(Step::Forget),
            Just(Step::StartOver),
        ]
    }

    proptest! {
        /// Whatever happens, once requests run to their end everything asked about and not gone has been described
        /// since it was last asked about, and never two requests for one container are under way.
        #[test]
        fn no_question_is_lost(steps in proptest::collection::vec(step(), 0..100)) {
            let mut wanted = Wanted::default();
            let mut flying: Vec<ContainerId> = Vec::new();
            let mut unanswered = HashSet::new();
            let name = |n: u8| id(&n.to_string());
            let drain = std::iter::repeat_n([Step::Send, Step::Done], 30).flatten();
            for step in steps.into_iter().chain(drain) {
                match step {
                    Step::Ask(n) => {
                        wanted.ask(name(n));
                        unanswered.insert(name(n));
                    }
                    Step::Send => if let Some(next) = wanted.next() {
                        prop_assert!(!flying.contains(&next) && flying.len() < AT_ONCE);
                        unanswered.remove(&next);
                        flying.push(next);
                    },
                    Step::Done => if let Some(first) = flying.pop() {
                        prop_assert_eq!(wanted.done(&first), wanted.is_known(&first));
                    },
                    Step::Forget(n) => {
                        wanted.forget(&name(n));
                        unanswered.remove(&name(n));
                    }
                    Step::StartOver => {
                        flying.clear();
                        wanted.start_over();
                    }
                }
            }
            prop_assert_eq!(unanswered, HashSet::new());
        }
    }
}
