//! The last values of a number, one per step; a step in which it was unknown stays a gap.

use std::collections::VecDeque;

/// Enough for a wide screen.
const LENGTH: usize = 240;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct History {
    /// Percent, oldest first.
    values: VecDeque<Option<u8>>,
}

impl History {
    pub fn push(&mut self, percent: Option<u8>) {
        if self.values.len() == LENGTH {
            self.values.pop_front();
        }
        self.values.push_back(percent);
    }

    /// The newest `count` values, oldest first.
    pub fn last(&self, count: usize) -> Vec<Option<u8>> {
        self.values.iter().skip(self.values.len().saturating_sub(count)).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_newest_are_kept_and_gaps_stay_gaps() {
        let mut history = History::default();
        (0..LENGTH).for_each(|_| history.push(Some(1)));
        history.push(None);
        history.push(Some(7));
        assert_eq!(history.last(3), [Some(1), None, Some(7)]);
        assert_eq!(history.last(10_000).len(), LENGTH);
    }
}
