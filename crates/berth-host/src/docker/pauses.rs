//! Which containers the engine has paused, as far as others were told: pure bookkeeping.
//!
//! Events are the word that counts. A description may be older than an event that was read before it, so it is believed
//! only about containers no event has told of on this connection.

use std::collections::BTreeSet;

use berth_model::ContainerId;

#[derive(Debug, Default)]
pub struct Pauses {
    /// Told of by an event since the connection was made.
    heard: BTreeSet<ContainerId>,
    /// Others were told that these are paused.
    paused: BTreeSet<ContainerId>,
}

impl Pauses {
    /// An event; whether it is news.
    pub fn heard(&mut self, id: &ContainerId, paused: bool) -> bool {
        self.heard.insert(id.clone());
        self.set(id, paused)
    }

    /// A description; whether it is news.
    pub fn described(&mut self, id: &ContainerId, paused: bool) -> bool {
        !self.heard.contains(id) && self.set(id, paused)
    }

    /// After a connection was lost: what was heard may no longer be so.
    pub fn start_over(&mut self) {
        self.heard.clear();
    }

    /// The container is gone.
    pub fn forget(&mut self, id: &ContainerId) {
        self.heard.remove(id);
        self.paused.remove(id);
    }

    fn set(&mut self, id: &ContainerId, paused: bool) -> bool {
        match paused {
            true => self.paused.insert(id.clone()),
            false => self.paused.remove(id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_news_once() {
        let (mut pauses, id) = (Pauses::default(), ContainerId("a".into()));
        assert!(!pauses.heard(&id, false), "nobody was told otherwise");
        assert!(pauses.heard(&id, true));
        assert!(!pauses.heard(&id, true));
        assert!(pauses.heard(&id, false));
    }

    #[test]
    fn a_description_is_believed_until_an_event_tells_more() {
        let (mut pauses, id) = (Pauses::default(), ContainerId("a".into()));
        assert!(pauses.described(&id, true), "paused before anybody listened");
        assert!(pauses.heard(&id, false));
        assert!(!pauses.described(&id, true), "older than the event");
        pauses.start_over();
        assert!(pauses.described(&id, true), "paused while the connection was lost");
        pauses.forget(&id);
        assert!(!pauses.described(&id, false));
    }
}
