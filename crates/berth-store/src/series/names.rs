//! Which number stands for which series in the segment that is written now, and which series are not told apart.
//!
//! A tenant can be made anew as often as somebody likes: so only so many series are told apart at a time. Of more, the one that was
//! idle longest gives its place up, if it was idle at all; else the new one is counted with the others.

use std::collections::HashMap;

use berth_model::watch::series::Key;

/// A series that had no value for so long may give its place to another.
const IDLE_MS: i64 = 10 * 60 * 1_000;

#[derive(Debug)]
pub struct Names {
    known: HashMap<Key, Known>,
    next: u32,
    most: usize,
}

#[derive(Debug)]
struct Known {
    id: u32,
    last_ms: i64,
}

/// How a series is written.
#[derive(Debug, PartialEq)]
pub enum Named {
    Known(u32),
    /// It has to be named in the segment first.
    New(u32, Key),
}

impl Names {
    pub fn new(most: usize) -> Self {
        Self { known: HashMap::new(), next: 0, most: most.max(1) }
    }

    /// A new segment names its series itself.
    pub fn clear(&mut self) {
        self.known.clear();
        self.next = 0;
    }

    /// The number that the next new series will have.
    pub fn next(&self) -> u32 {
        self.next
    }

    /// Series from this number on are new again.
    pub fn forget_from(&mut self, id: u32) {
        self.known.retain(|_, known| known.id < id);
        self.next = id;
    }

    /// The number of a series, or of the others of its kind.
    pub fn name(&mut self, key: Key, at_ms: i64) -> Named {
        if let Some(known) = self.known.get_mut(&key) {
            known.last_ms = at_ms;
            return Named::Known(known.id);
        }
        if self.known.len() >= self.most && !self.forget_idle(at_ms) {
            let folded = key.folded();
            // One for each figure of each GPU: few, and past the limit.
            return match self.known.get(&folded) {
                Some(known) => Named::Known(known.id),
                None => self.add(folded, at_ms),
            };
        }
        self.add(key, at_ms)
    }

    fn add(&mut self, key: Key, at_ms: i64) -> Named {
        let id = self.next;
        self.next += 1;
        self.known.insert(key.clone(), Known { id, last_ms: at_ms });
        Named::New(id, key)
    }

    fn forget_idle(&mut self, at_ms: i64) -> bool {
        let oldest = self.known.iter().min_by_key(|(_, known)| (known.last_ms, known.id));
        let idle = oldest.filter(|(_, known)| at_ms.saturating_sub(known.last_ms) >= IDLE_MS);
        let Some(key) = idle.map(|(key, _)| key.clone()) else { return false };
        self.known.remove(&key).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::tests::key;

    #[test]
    fn a_newcomer_is_counted_with_the_others_while_nobody_is_idle() {
        let mut names = Names::new(2);
        assert_eq!(names.name(key(1), 0), Named::New(0, key(1)));
        assert_eq!(names.name(key(2), 0), Named::New(1, key(2)));
        assert_eq!(names.name(key(3), IDLE_MS - 1), Named::New(2, key(3).folded()));
        assert_eq!(names.name(key(4), IDLE_MS - 1), Named::Known(2));
        assert_eq!(names.name(key(1), IDLE_MS), Named::Known(0));
    }

    #[test]
    fn who_was_idle_longest_gives_its_place_up_and_no_other() {
        let mut names = Names::new(2);
        names.name(key(1), 0);
        names.name(key(2), 5);
        assert_eq!(names.name(key(3), IDLE_MS), Named::New(2, key(3)));
        assert_eq!(names.name(key(2), IDLE_MS), Named::Known(1));
        assert_eq!(names.name(key(1), IDLE_MS), Named::New(3, key(1).folded()));
    }
}
