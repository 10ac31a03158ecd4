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
    /// 0 is nobody.
    streams: [AtomicU64; KEPT],
}

impl Captures {
    const fn new() -> Self {
        Self { under_way: AtomicU64::new(0), streams: [const { AtomicU64::new(0) }; KEPT] }
    }

    pub(crate) fn any(&self) -> bool {
        self.under_way.load(Ordering::Relaxed) != 0
    }

    /// Whether what is put into this stream goes into a graph, as far as one can tell.
    pub(crate) fn has(&self, driver: &Driver, stream: u64) -> bool {
        self.any() && driver.is_capturing(stream)
    }

    pub(crate) fn begun(&self, stream: u64) {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        self.exchange(0, stream);
    }

    pub(crate) fn ended(&self, stream: u64) {
        self.exchange(stream, 0);
        self.one_less();
    }

    /// Ends the capture of this stream, if it is known to capture.
    pub(crate) fn destroyed(&self, stream: u64) {
        if self.exchange(stream, 0) {
            self.one_less();
        }
    }

    /// A forked child captures nothing.
    pub(crate) fn clear(&self) {
        self.under_way.store(0, Ordering::Relaxed);
        for stream in &self.streams {
            stream.store(0, Ordering::Relaxed);
        }
    }

    fn one_less(&self) {
        let _ = self.under_way.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| count.checked_sub(1));
    }

    fn exchange(&self, from: u64, to: u64) -> bool {
        let change =
            |stream: &AtomicU64| stream.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        self.streams.iter().any(change)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_is_under_way_until_its_end_or_its_streams() {
        let captures = Captures::new();
        captures.begun(10);
        captures.begun(20);
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
            captures.begun(stream);
        }
        for stream in 1..=100 {
            assert!(captures.any());
            captures.ended(stream);
        }
        assert!(!captures.any());
    }
}
