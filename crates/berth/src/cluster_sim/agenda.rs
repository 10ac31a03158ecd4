//! What is to happen when. Of what happens at the same instant, what was noted first comes first: that makes a run repeatable.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use berth_model::Mono;

#[derive(Debug)]
pub struct Agenda<E> {
    entries: BinaryHeap<Reverse<Entry<E>>>,
    noted: u64,
}

#[derive(Debug)]
struct Entry<E> {
    at: Mono,
    number: u64,
    event: E,
}

impl<E> Agenda<E> {
    pub fn new() -> Self {
        Self { entries: BinaryHeap::new(), noted: 0 }
    }

    pub fn note(&mut self, at: Mono, event: E) {
        self.noted += 1;
        self.entries.push(Reverse(Entry { at, number: self.noted, event }));
    }

    pub fn pop(&mut self) -> Option<(Mono, E)> {
        self.entries.pop().map(|Reverse(entry)| (entry.at, entry.event))
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_comes_first_and_of_one_instant_what_was_noted_first() {
        let mut agenda = Agenda::new();
        for (at, event) in [(5, 'c'), (1, 'a'), (5, 'd'), (2, 'b')] {
            agenda.note(Mono(at), event);
        }
        let order: String = std::iter::from_fn(|| agenda.pop()).map(|(_, event)| event).collect();
        assert_eq!(order, "abcd");
    }
}
