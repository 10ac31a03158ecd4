//! Stop words that calls may look at while our thread takes links away.
//!
//! A page must stay mapped for as long as anybody may look at it. Whoever looks has a [`Reading`]; the thread frees a page only when
//! everybody who was reading when it was taken out has gone. Readers never wait.

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use berth_proto::shim::Stop;
use berth_proto::shim::sys::Page;

/// Who reads, in two generations.
#[derive(Debug, Default)]
pub(crate) struct Readers {
    generation: AtomicU64,
    inside: [AtomicU64; 2],
}

/// While it lives, no page that was in a slot is unmapped.
#[derive(Debug)]
pub(crate) struct Reading<'a> {
    inside: &'a AtomicU64,
}

/// A place for the page of a link, or for none.
#[derive(Debug, Default)]
pub(crate) struct StopSlot(AtomicPtr<Stop>);

impl Readers {
    pub(crate) fn enter(&self) -> Reading<'_> {
        loop {
            let generation = self.generation.load(Ordering::SeqCst);
            let inside = &self.inside[usize::from(generation % 2 == 1)];
            inside.fetch_add(1, Ordering::SeqCst);
            if self.generation.load(Ordering::SeqCst) == generation {
                return Reading { inside };
            }
            inside.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// The generation that reads from now on. What was taken out before may go when [`Self::all_left`] says so of it.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    /// Begins a new generation, if the one before the last is all gone. Called by one thread only.
    pub(crate) fn turn(&self) {
        let generation = self.generation();
        if self.inside[usize::from(generation.is_multiple_of(2))].load(Ordering::SeqCst) == 0 {
            self.generation.store(generation + 1, Ordering::SeqCst);
        }
    }

    /// Whether everybody who could read in this generation or before has gone.
    pub(crate) fn all_left(&self, generation: u64) -> bool {
        // The turn to `generation + 2` had to wait for the readers of `generation`.
        self.generation() >= generation + 2
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }
}

impl StopSlot {
    pub(crate) fn get<'a>(&self, _reading: &'a Reading<'_>) -> Option<&'a Stop> {
        // SAFETY: the pointer is null or of a page that `put` was given; its owner keeps it mapped until all who read when it
        // was taken out have gone, and `_reading` is one of them.
        unsafe { self.0.load(Ordering::SeqCst).as_ref() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.load(Ordering::SeqCst).is_null()
    }

    /// The caller keeps the page until readers have gone.
    pub(crate) fn put(&self, page: &Page<Stop>) {
        self.0.store(page.address().cast(), Ordering::SeqCst);
    }

    pub(crate) fn take_out(&self) {
        self.0.store(std::ptr::null_mut(), Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_goes_only_when_all_who_could_see_it_have_gone() {
        let readers = Readers::default();
        let early = readers.enter();
        let taken_out_in = readers.generation();
        for _ in 0..10 {
            readers.turn();
            let _short = readers.enter();
        }
        assert!(!readers.all_left(taken_out_in), "one still reads");
        drop(early);
        readers.turn();
        readers.turn();
        assert!(readers.all_left(taken_out_in));
    }

    #[test]
    fn a_reader_of_the_next_generation_does_not_keep_what_was_taken_out_before() {
        let readers = Readers::default();
        let taken_out_in = readers.generation();
        readers.turn();
        let _late = readers.enter();
        readers.turn();
        readers.turn();
        assert!(readers.all_left(taken_out_in));
    }
}
