//! The sequence lock: one writer, any number of readers, none of which waits for another.
//!
//! After Boehm, "Can seqlocks get along with programming language memory models?" (2012). The sequence is odd while
//! the data is being changed. The data itself is relaxed atomics, so that a reader that looks at the wrong moment reads
//! nonsense and throws it away, but there is never a data race. `loom` checks the orderings (see CONTRIBUTING.md); the
//! tests below are the model. Retrying, and giving up, is the caller's.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Where a reader gets the sequence and the data from.
pub(crate) trait Source {
    type Error;

    /// The sequence now. Relaxed: [`try_read`] adds the ordering.
    fn sequence(&mut self) -> Result<u64, Self::Error>;

    /// Copies the data aside. What it copies may be torn and must not be looked at before [`try_read`] approves.
    fn copy(&mut self) -> Result<(), Self::Error>;
}

/// Replaces the data's first words. Only ever called by the one writer, who begins with an even sequence.
pub(crate) fn write(sequence: &AtomicU64, words: &[AtomicU64], data: impl Iterator<Item = u64>) {
    let writing = sequence.load(Ordering::Relaxed).wrapping_add(1);
    sequence.store(writing, Ordering::Relaxed);
    // The odd sequence is seen before any of the data that follows.
    fence(Ordering::Release);
    for (word, value) in words.iter().zip(data) {
        word.store(value, Ordering::Relaxed);
    }
    sequence.store(writing.wrapping_add(1), Ordering::Release);
}

/// One attempt. `Some(sequence)`: the copy is the data as of that sequence. `None`: the writer was at it.
pub(crate) fn try_read<S: Source>(source: &mut S) -> Result<Option<u64>, S::Error> {
    let before = source.sequence()?;
    if before & 1 == 1 {
        return Ok(None);
    }
    // The data is read after `before`…
    fence(Ordering::Acquire);
    source.copy()?;
    // …and before `after`.
    fence(Ordering::Acquire);
    let after = source.sequence()?;
    Ok((before == after).then_some(before))
}

#[cfg(all(test, loom))]
mod loom_tests {
    use std::convert::Infallible;

    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    const WORDS: usize = 2;

    #[derive(Debug)]
    struct Memory {
        sequence: AtomicU64,
        words: [AtomicU64; WORDS],
    }

    impl Memory {
        fn new() -> Arc<Self> {
            Arc::new(Self { sequence: AtomicU64::new(0), words: [AtomicU64::new(0), AtomicU64::new(0)] })
        }

        fn publish(&self, value: u64) {
            write(&self.sequence, &self.words, std::iter::repeat_n(value, WORDS));
        }
    }

    struct Copy<'a> {
        memory: &'a Memory,
        copy: [u64; WORDS],
    }

    impl<'a> Copy<'a> {
        fn of(memory: &'a Memory) -> Self {
            Self { memory, copy: [u64::MAX; WORDS] }
        }
    }

    impl Source for Copy<'_> {
        type Error = Infallible;

        fn sequence(&mut self) -> Result<u64, Infallible> {
            Ok(self.memory.sequence.load(Ordering::Relaxed))
        }

        fn copy(&mut self) -> Result<(), Infallible> {
            for (to, from) in self.copy.iter_mut().zip(&self.memory.words) {
                *to = from.load(Ordering::Relaxed);
            }
            Ok(())
        }
    }

    #[test]
    fn loom_a_copy_that_is_approved_is_whole_and_belongs_to_its_sequence() {
        loom::model(|| {
            let memory = Memory::new();
            let writer = thread::spawn({
                let memory = memory.clone();
                move || (1..=2).for_each(|value| memory.publish(value))
            });
            let mut source = Copy::of(&memory);
            if let Ok(Some(sequence)) = try_read(&mut source) {
                assert_eq!(source.copy, [sequence / 2; WORDS]);
            }
            writer.join().unwrap();
        });
    }

    #[test]
    fn loom_a_later_copy_is_never_older() {
        loom::model(|| {
            let memory = Memory::new();
            let writer = thread::spawn({
                let memory = memory.clone();
                move || memory.publish(1)
            });
            let mut source = Copy::of(&memory);
            let (first, second) = (try_read(&mut source).unwrap(), try_read(&mut source).unwrap());
            if let (Some(first), Some(second)) = (first, second) {
                assert!(first <= second && source.copy == [second / 2; WORDS]);
            }
            writer.join().unwrap();
        });
    }

    /// Shows that the model can tell: without the second look at the sequence it finds a torn copy.
    #[test]
    #[should_panic(expected = "torn")]
    fn loom_finds_the_torn_copy_of_a_reader_that_looks_at_the_sequence_once() {
        loom::model(|| {
            let memory = Memory::new();
            let writer = thread::spawn({
                let memory = memory.clone();
                move || memory.publish(1)
            });
            let mut source = Copy::of(&memory);
            if source.sequence().unwrap() & 1 == 0 {
                fence(Ordering::Acquire);
                source.copy().unwrap();
                assert!(source.copy[0] == source.copy[1], "torn");
            }
            writer.join().unwrap();
        });
    }
}
