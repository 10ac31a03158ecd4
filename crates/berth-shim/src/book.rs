//! Which device memory a client has, and on which of its GPUs.
//!
//! Pure. Room is booked before the driver is asked, so that two threads cannot both take the last of it. Memory made by
//! `cuMemCreate` counts until its handle is released and its last mapping is gone. What the book does not know (memory of others,
//! of graphs, arrays) it neither counts nor frees.

use std::collections::{BTreeMap, HashMap};

use berth_proto::shim::LANES;

#[derive(Debug, Default)]
pub(crate) struct Book {
    used: [u64; LANES],
    allocations: HashMap<u64, Allocation>,
    handles: HashMap<u64, Handle>,
    /// Mappings of handles, by address.
    mappings: BTreeMap<u64, u64>,
}

/// Room on one GPU, booked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) lane: usize,
    pub(crate) bytes: u64,
}

/// Memory that goes with its context.
#[derive(Debug)]
pub(crate) struct Allocation {
    room: Room,
    context: u64,
}

/// Memory made by `cuMemCreate`.
#[derive(Debug, Clone)]
pub(crate) struct Handle {
    room: Room,
    /// Releases and unmappings until it is gone.
    holds: u32,
}

impl Book {
    pub(crate) fn used(&self, lane: usize) -> u64 {
        self.used[lane]
    }

    /// `None` if it would be more than `limit`; 0 is no limit.
    pub(crate) fn take(&mut self, room: Room, limit: u64) -> Option<Room> {
        let used = self.used[room.lane].checked_add(room.bytes)?;
        if limit > 0 && used > limit {
            return None;
        }
        self.used[room.lane] = used;
        Some(room)
    }

    pub(crate) fn give_back(&mut self, room: Room) {
        self.used[room.lane] = self.used[room.lane].saturating_sub(room.bytes);
    }

    /// What was booked is now at this address, in truth with so many bytes.
    pub(crate) fn allocated(&mut self, address: u64, booked: Room, bytes: u64, context: u64) {
        self.give_back(booked);
        let room = Room { bytes, ..booked };
        self.used[room.lane] = self.used[room.lane].saturating_add(bytes);
        if let Some(forgotten) = self.allocations.insert(address, Allocation { room, context }) {
            self.give_back(forgotten.room);
        }
    }

    /// Before it is freed, since another may have its address the moment it is.
    pub(crate) fn take_out(&mut self, address: u64) -> Option<(u64, Allocation)> {
        Some((address, self.allocations.remove(&address)?))
    }

    /// It is gone. The GPU it was on.
    pub(crate) fn freed(&mut self, (_, gone): (u64, Allocation)) -> usize {
        self.give_back(gone.room);
        gone.room.lane
    }

    /// It is there still.
    pub(crate) fn put_back(&mut self, (address, stays): (u64, Allocation)) {
        self.allocations.insert(address, stays);
    }

    pub(crate) fn created(&mut self, handle: u64, booked: Room) {
        if let Some(forgotten) = self.handles.insert(handle, Handle { room: booked, holds: 1 }) {
            self.give_back(forgotten.room);
        }
    }

    pub(crate) fn mapped(&mut self, address: u64, handle: u64) {
        if let Some(known) = self.handles.get_mut(&handle) {
            known.holds = known.holds.saturating_add(1);
            self.mappings.insert(address, handle);
        }
    }

    /// Another handle for memory that is mapped at this address.
    pub(crate) fn retained(&mut self, address: u64) {
        let handle = self.mappings.range(..=address).next_back().map(|(_, handle)| *handle);
        if let Some(known) = handle.and_then(|handle| self.handles.get_mut(&handle)) {
            known.holds = known.holds.saturating_add(1);
        }
    }

    /// Before it is released, since another may have its handle the moment it is. What it was, for [`Self::unreleased`].
    pub(crate) fn release(&mut self, handle: u64) -> Option<(u64, Handle)> {
        let before = self.handles.get(&handle)?.clone();
        self.released(handle);
        Some((handle, before))
    }

    /// It was not released: one hold more again. Where it was the last of it, its room is taken again.
    pub(crate) fn unreleased(&mut self, (handle, before): (u64, Handle)) {
        let room = before.room;
        let known = self.handles.entry(handle).or_insert_with(|| {
            self.used[room.lane] = self.used[room.lane].saturating_add(room.bytes);
            Handle { holds: 0, ..before }
        });
        known.holds = known.holds.saturating_add(1);
    }

    /// The GPU it was on, if that was the last of it.
    fn released(&mut self, handle: u64) -> Option<usize> {
        let known = self.handles.get_mut(&handle)?;
        known.holds = known.holds.saturating_sub(1);
        if known.holds > 0 {
            return None;
        }
        let room = self.handles.remove(&handle)?.room;
        self.give_back(room);
        Some(room.lane)
    }

    /// All mappings that begin in there.
    pub(crate) fn unmapped(&mut self, address: u64, bytes: u64) -> Option<usize> {
        let gone: Vec<u64> =
            self.mappings.range(address..address.saturating_add(bytes)).map(|(address, _)| *address).collect();
        let handles: Vec<u64> = gone.iter().filter_map(|address| self.mappings.remove(address)).collect();
        handles.into_iter().filter_map(|handle| self.released(handle)).last()
    }

    /// What was allocated in this context is gone with it.
    pub(crate) fn forget(&mut self, context: u64) {
        let used = &mut self.used;
        self.allocations.retain(|_, gone| {
            if gone.context == context {
                used[gone.room.lane] = used[gone.room.lane].saturating_sub(gone.room.bytes);
            }
            gone.context != context
        });
    }
}

impl Handle {
    pub(crate) fn lane(&self) -> usize {
        self.room.lane
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn room(lane: usize, bytes: u64) -> Room {
        Room { lane, bytes }
    }

    fn free(book: &mut Book, address: u64) -> Option<usize> {
        let taken = book.take_out(address)?;
        Some(book.freed(taken))
    }

    #[test]
    fn memory_whose_address_is_given_to_another_while_it_is_freed_is_counted_for_that_one() {
        let mut book = Book::default();
        let first = book.take(room(0, 10), 0).unwrap();
        book.allocated(1, first, 10, 1);
        let going = book.take_out(1).unwrap();
        let second = book.take(room(0, 7), 0).unwrap();
        book.allocated(1, second, 7, 1);
        book.freed(going);
        assert_eq!(book.used(0), 7);
        assert_eq!(free(&mut book, 1), Some(0));
        let made = book.take(room(0, 5), 0).unwrap();
        book.created(9, made);
        let before = book.release(9).unwrap();
        assert_eq!(book.used(0), 0);
        book.unreleased(before);
        assert_eq!(book.used(0), 5, "it could not be released");
        book.release(9);
        assert_eq!(book.used(0), 0);
    }

    #[test]
    fn what_would_go_beyond_the_limit_is_refused_and_costs_nothing() {
        let mut book = Book::default();
        let taken = book.take(room(1, 60), 100).unwrap();
        book.allocated(0x1000, taken, 60, 1);
        assert_eq!(book.take(room(1, 41), 100), None);
        assert_eq!((book.used(1), book.used(0)), (60, 0));
        assert!(book.take(room(1, 40), 100).is_some());
        assert!(book.take(room(0, u64::MAX), 0).is_some(), "0 is no limit");
        assert_eq!(book.take(room(0, 1), 0), None, "there is no such number");
    }

    #[test]
    fn memory_that_is_larger_than_asked_counts_as_it_is() {
        let mut book = Book::default();
        let taken = book.take(room(0, 100), 0).unwrap();
        book.allocated(1, taken, 512, 1);
        assert_eq!(book.used(0), 512);
        let taken = book.take_out(1).unwrap();
        book.put_back(taken);
        assert_eq!(book.used(0), 512, "it could not be freed");
        assert_eq!(free(&mut book, 1), Some(0));
        assert_eq!(book.used(0), 0);
        assert_eq!(free(&mut book, 1), None, "it was freed before");
    }

    #[test]
    fn created_memory_counts_until_its_last_mapping_is_gone() {
        let mut book = Book::default();
        let taken = book.take(room(0, 1 << 21), 0).unwrap();
        book.created(7, taken);
        book.mapped(0x10_0000, 7);
        assert_eq!(book.released(7), None);
        assert_eq!(book.used(0), 1 << 21, "it is still mapped");
        assert_eq!(book.unmapped(0x10_0000, 1 << 21), Some(0));
        assert_eq!(book.used(0), 0);
        assert_eq!((book.released(7), book.unmapped(0x10_0000, 1)), (None, None));
    }

    #[test]
    fn a_retained_handle_keeps_memory_like_the_first_one() {
        let mut book = Book::default();
        let taken = book.take(room(0, 10), 0).unwrap();
        book.created(7, taken);
        book.mapped(100, 7);
        book.retained(104);
        assert_eq!(book.unmapped(0, u64::MAX), None);
        assert_eq!(book.released(7), None);
        assert_eq!(book.released(7), Some(0));
    }

    #[test]
    fn a_context_takes_its_allocations_with_it_but_not_created_memory() {
        let mut book = Book::default();
        let (a, b) = (book.take(room(2, 10), 0).unwrap(), book.take(room(2, 5), 0).unwrap());
        book.allocated(1, a, 10, 77);
        book.created(7, b);
        let other = book.take(room(2, 3), 0).unwrap();
        book.allocated(2, other, 3, 78);
        book.forget(77);
        assert_eq!(book.used(2), 8, "nor what another context has on the same GPU");
        assert_eq!((free(&mut book, 1), free(&mut book, 2)), (None, Some(2)));
    }

    proptest! {
        #[test]
        fn what_is_freed_in_any_order_leaves_nothing(mut sizes in prop::collection::vec(1u64..1 << 40, 1..40), seed in any::<u64>()) {
            let mut book = Book::default();
            for (address, bytes) in sizes.iter().enumerate() {
                let taken = book.take(room(3, *bytes), 0).unwrap();
                book.allocated(address as u64, taken, *bytes, 1);
            }
            prop_assert_eq!(book.used(3), sizes.iter().sum::<u64>());
            let mut addresses: Vec<u64> = (0..sizes.len() as u64).collect();
            addresses.sort_by_key(|address| crate::estimate::mix(address ^ seed));
            for address in addresses {
                free(&mut book, address);
            }
            sizes.clear();
            prop_assert_eq!(book.used(3), 0);
        }
    }
}
