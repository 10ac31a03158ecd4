//! The sequence lock: one writer, readers that never make it wait and never see half of a write.

use std::sync::atomic::{Ordering, fence};

use super::sys::Words;

/// Tries before a reader gives up; a live writer is never in its critical section for so many.
const TRIES: u32 = 100_000;

/// The body was being written at every try: its writer died half-way, or never stops writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the snapshot could not be read whole in {TRIES} tries")]
pub struct Busy;

/// Writes `body` from word `start` on. A sequence left odd by a dead writer is taken over.
pub(super) fn write(words: &Words, sequence: usize, start: usize, body: &[u64]) {
    let odd = words[sequence].load(Ordering::Relaxed) | 1;
    words[sequence].store(odd, Ordering::Relaxed);
    // The odd sequence becomes visible before any word of the new body.
    fence(Ordering::Release);
    for (word, value) in words[start..].iter().zip(body) {
        word.store(*value, Ordering::Relaxed);
    }
    words[sequence].store(odd.wrapping_add(1), Ordering::Release);
}

/// Fills `out` from word `start` on, all of one write.
pub(super) fn read(words: &Words, sequence: usize, start: usize, out: &mut [u64]) -> Result<(), Busy> {
    for _ in 0..TRIES {
        let before = words[sequence].load(Ordering::Acquire);
        if before.is_multiple_of(2) {
            for (value, word) in out.iter_mut().zip(&words[start..]) {
                *value = word.load(Ordering::Relaxed);
            }
            // Every word is read before the sequence is looked at again.
            fence(Ordering::Acquire);
            if words[sequence].load(Ordering::Relaxed) == before {
                return Ok(());
            }
        }
        std::hint::spin_loop();
    }
    Err(Busy)
}
