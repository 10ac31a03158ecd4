//! One that asks to take part at the level of kernels, is on a GPU, and does not: nobody has given it the library.
//!
//! A label alone mounts nothing. Who comes late is waited for: a program attaches when it makes its context.

use std::time::Duration;

use super::finding::{Finding, Kind};
use crate::time::Mono;

const WAIT: Duration = Duration::from_secs(15);

#[derive(Debug, Clone, Copy, Default)]
pub struct NotAttached {
    since: Option<Mono>,
}

impl NotAttached {
    /// `is_missed`: it asks for it, is on a GPU, and none of its processes has attached.
    pub fn observe(&mut self, at: Mono, is_missed: bool) {
        self.since = is_missed.then(|| self.since.unwrap_or(at));
    }

    pub fn finding(&self, now: Mono) -> Option<Finding> {
        let since = self.since.filter(|since| now.since(*since) >= WAIT)?;
        let words = "it asks for the level of kernels and has not attached: start it by `berth run --kernel-level`, or mount and \
                     preload berth's library yourself (an image with musl cannot load it)";
        Some(Finding { kind: Kind::NotAttached, since, sure: 1.0, words: words.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_attaches_in_time_is_not_told_and_who_does_not_is_until_it_does() {
        let (mut late, second) = (NotAttached::default(), 1_000_000_000);
        (0..15).for_each(|at| late.observe(Mono(at * second), true));
        assert_eq!(late.finding(Mono(14 * second)), None);
        assert_eq!(late.finding(Mono(15 * second)).map(|found| found.since), Some(Mono(0)));
        late.observe(Mono(16 * second), false);
        assert_eq!(late.finding(Mono(40 * second)), None);
    }
}
