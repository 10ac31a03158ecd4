//! Whether any stream of the process captures a graph. While one does, the driver is asked of each stream whether it takes part; what is put
//! into such a one is passed on untouched.
//!
//! Counted from the start of the process, attached or not. A captured stream that is destroyed never ends its capture, so
//! the streams are kept by name where there is room.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::sys::driver::Driver;

/// Captures at the same time that are told apart.
const KEPT: usize = 64;

pub(crate) static CAPTURES: Captures = Captures::new();

#[derive(Debug)]
pub(crate) struct Captures {
    under_way: AtomicU64,
    kept: [Capture; KEPT],
    /// Those for which there was no room.
    others: AtomicU64,
}

/// 0 is nobody.
#[derive(Debug)]
struct Capture {
    stream: AtomicU64,
    context: AtomicU64,
}

impl Captures {
    const fn new() -> Self {
        let kept = [const { Capture { stream: AtomicU64::new(0), context: AtomicU64::new(0) } }; KEPT];
        Self { under_way: AtomicU64::new(0), kept, others: AtomicU64::new(0) }
    }

    pub(crate) fn any(&self) -> bool {
        self.under_way.load(Ordering::Relaxed) != 0
    }

    /// Whether what is put into this stream goes into a graph, as far as one can tell.
    pub(crate) fn has(&self, driver: &Driver, stream: u64) -> bool {
        self.any() && driver.is_capturing(stream)
    }

    /// `context`: with which it goes, if that is known.
    pub(crate) fn begun(&self, stream: u64, context: u64) {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        match self.exchange(0, stream) {
            Some(kept) => kept.context.store(context, Ordering::Relaxed),
            None => _ = self.others.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Ends the capture of this stream, if one is under way.
    pub(crate) fn ended(&self, stream: u64) {
        if self.exchange(stream, 0).is_some() || take_one(&self.others) {
            take_one(&self.under_way);
        }
    }

    /// The stream goes, and with it its capture.
    pub(crate) fn destroyed(&self, stream: u64) {
        if self.exchange(stream, 0).is_some() {
            take_one(&self.under_way);
        }
    }

    /// So does a context, with all captures in it.
    pub(crate) fn lost(&self, context: u64) {
        for kept in self.kept.iter().filter(|kept| kept.context.load(Ordering::Relaxed) == context) {
            if kept.stream.swap(0, Ordering::Relaxed) != 0 {
                take_one(&self.under_way);
            }
        }
    }

    /// A forked child captures nothing.
    pub(crate) fn clear(&self) {
        self.under_way.store(0, Ordering::Relaxed);
        self.others.store(0, Ordering::Relaxed);
        for kept in &self.kept {
            kept.stream.store(0, Ordering::Relaxed);
        }
    }

    fn exchange(&self, from: u64, to: u64) -> Option<&Capture> {
        let change =
            |kept: &&Capture| kept.stream.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        self.kept.iter().find(change)
    }
}

fn take_one(count: &AtomicU64) -> bool {
    count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| count.checked_sub(1)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_is_under_way_until_its_end_or_its_streams() {
        let captures = Captures::new();
        captures.begun(10, 1);
        captures.begun(20, 1);
        captures.ended(10);
        captures.destroyed(10);
        assert!(captures.any(), "the other one goes on");
        captures.destroyed(20);
        assert!(!captures.any());
    }

    #[test]
    fn an_end_without_a_beginning_and_more_captures_than_are_kept_are_survived() {
        let captures = Captures::new();
        captures.ended(5);
        assert!(!captures.any());
        for stream in 1..=100 {
            captures.begun(stream, 1);
        }
        for stream in 1..=100 {
            assert!(captures.any());
            captures.ended(stream);
        }
        assert!(!captures.any());
    }

    #[test]
    fn a_context_takes_its_captures_with_it_and_an_end_of_none_takes_nobodys() {
        let captures = Captures::new();
        captures.begun(10, 1);
        captures.begun(20, 2);
        captures.ended(30);
        captures.lost(1);
        captures.ended(10);
        assert!(captures.any(), "the one in the other context goes on");
        captures.lost(2);
        assert!(!captures.any());
    }
}
