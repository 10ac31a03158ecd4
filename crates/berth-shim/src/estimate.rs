//! How long a piece of work takes, by function and shape, as far as it was measured.
//!
//! A fixed table without locks: a place is found by its key's hash and never given back. Where the table is full a piece of
//! work has no place; it is then reckoned with what is assumed of its kind. A measurement may include time in which the GPU
//! worked for others, so the estimate goes down at once and up slowly.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use berth_proto::shim::SampleKind;

/// Places of the table; a power of two.
const PLACES: usize = 4096;
/// How far from its hash a key is looked for.
const REACH: usize = 32;
/// The first so many pieces of a key are all measured.
const FIRST: u32 = 3;
/// One part in so many of a longer measurement is believed.
const SLOWLY: u64 = 32;

/// Assumed of a kernel and of a graph of which nothing is known.
const KERNEL_NS: u64 = 20_000;
const GRAPH_NS: u64 = 200_000;
/// Assumed of a copy: what it takes to begin, and bytes per microsecond.
const COPY_NS: u64 = 2_000;
const COPY_BYTES_PER_US: u64 = 20_000;

/// What tells one piece of work from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) kind: SampleKind,
    /// A function, a graph, or a kind of copy.
    pub(crate) function: u64,
    pub(crate) blocks: u32,
    pub(crate) threads_per_block: u32,
    /// Of copies and fills; of kernels the shared memory that they ask for.
    pub(crate) bytes: u64,
}

#[derive(Debug)]
pub(crate) struct Estimates {
    places: Box<[Place]>,
}

/// What is known of one key.
#[derive(Debug, Default)]
pub(crate) struct Place {
    key: AtomicU64,
    /// 0 until it was measured.
    took_ns: AtomicU64,
    /// Pieces until the next is measured, and how many of the first were.
    left: AtomicU32,
    measured: AtomicU32,
    /// Blocks that fit on an SM; 0 until it was asked for.
    blocks_per_sm: AtomicU32,
}

/// Asked for, and the driver does not say.
const UNKNOWN_BLOCKS: u32 = u32::MAX;

// === impl Shape ===

impl Shape {
    /// Copies of about the same size are alike. Never 0.
    fn key(self) -> u64 {
        let size_class = match self.kind {
            SampleKind::Kernel => self.bytes << 8,
            _ => u64::from(64 - self.bytes.leading_zeros()),
        };
        let shape = u64::from(self.blocks) << 32 | u64::from(self.threads_per_block);
        let kind = u64::from(self.kind as u8) ^ size_class << 8;
        // Side by side, which takes a third of the time of one after the other.
        let function = self.function.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let shape = shape.wrapping_mul(0xbf58_476d_1ce4_e5b9).rotate_left(32);
        let kind = kind.wrapping_mul(0x94d0_49bb_1331_11eb).rotate_left(16);
        mix(function ^ shape ^ kind) | 1
    }

    /// What is assumed before anything was measured.
    pub(crate) fn assumed_ns(self) -> u64 {
        match self.kind {
            SampleKind::Kernel => KERNEL_NS,
            SampleKind::Graph => GRAPH_NS,
            SampleKind::Copy => COPY_NS.saturating_add(self.bytes / COPY_BYTES_PER_US * 1_000),
        }
    }
}

// === impl Estimates ===

impl Estimates {
    pub(crate) fn new() -> Self {
        Self { places: (0..PLACES).map(|_| Place::default()).collect() }
    }

    /// The place of this kind of work; `None` where the table is full.
    pub(crate) fn place(&self, shape: Shape) -> Option<&Place> {
        let key = shape.key();
        let start = place_of(key >> 1, PLACES);
        (0..REACH).map(|step| &self.places[(start + step) % PLACES]).find(|place| place.is(key))
    }
}

// === impl Place ===

impl Place {
    /// Is this the key's place, or can it become it?
    fn is(&self, key: u64) -> bool {
        match self.key.load(Ordering::Relaxed) {
            0 => match self.key.compare_exchange(0, key, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => true,
                Err(taken) => taken == key,
            },
            other => other == key,
        }
    }

    pub(crate) fn known_ns(&self) -> Option<u64> {
        Some(self.took_ns.load(Ordering::Relaxed)).filter(|took| *took > 0)
    }

    /// Counts a piece of work and says whether it is to be measured: the first ones, then one in `every`; none for 0. Two that count at once may
    /// count as one.
    pub(crate) fn is_due(&self, every: u32) -> bool {
        match self.left.load(Ordering::Relaxed) {
            0 if every == 0 => false,
            0 => {
                let measured = self.measured.load(Ordering::Relaxed) + 1;
                self.measured.store(measured.min(FIRST), Ordering::Relaxed);
                let left = match measured {
                    ..FIRST => 0,
                    FIRST => every.saturating_sub(FIRST),
                    _ => every - 1,
                };
                self.left.store(left, Ordering::Relaxed);
                true
            }
            left => {
                self.left.store(left - 1, Ordering::Relaxed);
                false
            }
        }
    }

    /// How many blocks fit on an SM, if that is known.
    pub(crate) fn blocks_per_sm(&self) -> Option<u32> {
        Some(self.blocks_per_sm.load(Ordering::Relaxed)).filter(|blocks| !matches!(*blocks, 0 | UNKNOWN_BLOCKS))
    }

    /// Asks for it, the first time.
    pub(crate) fn ask_blocks_per_sm(&self, ask: impl FnOnce() -> Option<u32>) -> Option<u32> {
        if self.blocks_per_sm.load(Ordering::Relaxed) == 0 {
            let told = ask().filter(|blocks| *blocks > 0).unwrap_or(UNKNOWN_BLOCKS);
            self.blocks_per_sm.store(told, Ordering::Relaxed);
        }
        self.blocks_per_sm()
    }

    pub(crate) fn learn(&self, took_ns: u64) {
        self.took_ns.store(follow(self.known_ns(), took_ns), Ordering::Relaxed);
    }
}

/// The estimate after one more measurement: down at once, up slowly.
fn follow(known_ns: Option<u64>, took_ns: u64) -> u64 {
    let took_ns = took_ns.max(1);
    match known_ns {
        Some(known) if took_ns > known => known + ((took_ns - known) / SLOWLY).max(1),
        _ => took_ns,
    }
}

/// Where in a table of so many places a hash points to.
#[allow(clippy::cast_possible_truncation)] // the remainder is small
pub(crate) fn place_of(hash: u64, places: usize) -> usize {
    (hash % places as u64) as usize
}

/// Spreads a number over all bits.
pub(crate) fn mix(number: u64) -> u64 {
    let number = (number ^ number >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (number ^ number >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ number >> 32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn kernel(function: u64) -> Shape {
        Shape { kind: SampleKind::Kernel, function, blocks: 128, threads_per_block: 256, bytes: 0 }
    }

    #[test]
    fn the_same_work_has_the_same_place_and_other_work_another() {
        let estimates = Estimates::new();
        let place = |shape| std::ptr::from_ref(estimates.place(shape).unwrap());
        assert_eq!(place(kernel(7)), place(kernel(7)));
        assert_ne!(place(kernel(7)), place(kernel(8)));
        assert_ne!(place(kernel(7)), place(Shape { blocks: 64, ..kernel(7) }));
        assert_ne!(place(kernel(7)), place(Shape { kind: SampleKind::Graph, ..kernel(7) }));
    }

    #[test]
    fn how_many_blocks_fit_is_asked_once_for_each_shape() {
        let estimates = Estimates::new();
        let place = estimates.place(kernel(7)).unwrap();
        assert_eq!(place.blocks_per_sm(), None);
        assert_eq!(place.ask_blocks_per_sm(|| Some(4)), Some(4));
        assert_eq!(place.ask_blocks_per_sm(|| panic!("it is known")), Some(4));
        let other = estimates.place(Shape { bytes: 1, ..kernel(7) }).unwrap();
        assert_eq!(other.ask_blocks_per_sm(|| None), None, "with other shared memory it is another shape");
        assert_eq!(other.ask_blocks_per_sm(|| panic!("the driver does not say")), None);
    }

    #[test]
    fn copies_of_about_the_same_size_are_alike() {
        let copy = |bytes| Shape { kind: SampleKind::Copy, function: 1, blocks: 0, threads_per_block: 0, bytes };
        assert_eq!(copy(1 << 20).key(), copy((1 << 20) + 4096).key());
        assert_ne!(copy(1 << 20).key(), copy(1 << 22).key());
        assert!(copy(1 << 30).assumed_ns() > 40_000_000);
        assert!(copy(u64::MAX).assumed_ns() > 0);
    }

    #[test]
    fn a_full_table_turns_work_away_and_keeps_what_it_has() {
        let estimates = Estimates::new();
        let with_place = (0..20_000).filter(|function| estimates.place(kernel(*function)).is_some()).count();
        assert!((PLACES * 9 / 10..=PLACES).contains(&with_place), "{with_place}");
        assert!(estimates.place(kernel(0)).is_some());
    }

    #[test]
    fn the_first_few_are_measured_then_one_in_so_many_and_none_where_none_is_wanted() {
        let place = Place::default();
        let due: Vec<u32> = (0..100).filter(|_| place.is_due(32)).collect();
        assert_eq!(due, [0, 1, 2, 32, 64, 96]);
        assert!(!Place::default().is_due(0));
    }

    proptest! {
        #[test]
        fn an_estimate_lies_between_the_shortest_and_the_longest_measurement(took in prop::collection::vec(1u64..1 << 40, 1..50)) {
            let place = Place::default();
            for ns in &took {
                place.learn(*ns);
            }
            let known = place.known_ns().unwrap();
            prop_assert!(took.iter().min().unwrap() <= &known && &known <= took.iter().max().unwrap());
        }

        #[test]
        fn one_long_measurement_hardly_counts_and_a_shorter_one_at_once(known in 1_000u64..1 << 40, factor in 2u64..1000) {
            prop_assert!(follow(Some(known), known.saturating_mul(factor)) <= known + known * factor / SLOWLY + 1);
            prop_assert_eq!(follow(Some(known), known / factor), (known / factor).max(1));
        }
    }
}
