//! How long a piece of work takes, by function and shape, as far as it was measured.
//!
//! A fixed table without locks: a place is found by its key's hash. Where all that a key could have are taken, it gets that of one that was not
//! seen lately. A measurement may include time in which the GPU worked for others, so the estimate goes down at once and up slowly, unless one
//! measurement after the other says the same.
//!
//! Programs whose sizes differ from call to call launch each function in ever new shapes. One that was never measured is reckoned by the last of its
//! function that was, as their numbers of blocks are to each other.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use berth_proto::shim::SampleKind;

/// Places of the table; a power of two.
const PLACES: usize = 4096;
/// How far from its hash a key is looked for.
const REACH: usize = 8;
/// Functions of which the last measurement is kept.
const FUNCTIONS: usize = 1024;
/// The first so many pieces of a key are all measured.
const FIRST: u32 = 3;
/// One part in so many of a longer measurement is believed.
const SLOWLY: u64 = 32;
/// So many in a row that are twice as long or more are: the work has changed. They are made at once.
const CHANGED_AFTER: u32 = 4;

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
    functions: Box<[Latest]>,
}

/// What was last measured of a function.
#[derive(Debug, Default)]
struct Latest {
    function: AtomicU64,
    took_ns: AtomicU64,
    blocks: AtomicU32,
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
    /// Measurements in a row that were much longer, and the shortest of them.
    longer: AtomicU32,
    longer_ns: AtomicU64,
    /// Seen since somebody last looked for a place to take.
    is_used: AtomicBool,
    /// Blocks that fit on an SM, 0 until it was asked for, below a part of the key that it was asked for: the place may be another's by the time it is told.
    blocks_per_sm: AtomicU64,
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
        Self {
            places: (0..PLACES).map(|_| Place::default()).collect(),
            functions: (0..FUNCTIONS).map(|_| Latest::default()).collect(),
        }
    }

    /// The place of this kind of work; `None` where another thread is taking it.
    pub(crate) fn place(&self, shape: Shape) -> Option<&Place> {
        let key = shape.key();
        for place in self.reach(key) {
            match place.key.load(Ordering::Relaxed) {
                found if found == key => {
                    if !place.is_used.load(Ordering::Relaxed) {
                        place.is_used.store(true, Ordering::Relaxed);
                    }
                    return Some(place);
                }
                0 => return place.take(0, key),
                _ => {}
            }
        }
        self.evict(key)
    }

    /// What work takes of which nothing like it was measured.
    pub(crate) fn guess_ns(&self, shape: Shape) -> u64 {
        let assumed_ns = shape.assumed_ns();
        if shape.kind != SampleKind::Kernel {
            return assumed_ns;
        }
        let latest = self.latest(shape.function);
        let (took_ns, blocks) = (latest.took_ns.load(Ordering::Relaxed), latest.blocks.load(Ordering::Relaxed));
        if latest.function.load(Ordering::Relaxed) != shape.function || took_ns == 0 {
            return assumed_ns;
        }
        let scaled_ns = u128::from(took_ns) * u128::from(shape.blocks.max(1)) / u128::from(blocks.max(1));
        u64::try_from(scaled_ns).unwrap_or(u64::MAX).max(took_ns.min(assumed_ns))
    }

    /// Work of this shape took so long.
    pub(crate) fn learn(&self, shape: Shape, took_ns: u64) {
        if shape.kind == SampleKind::Kernel {
            let latest = self.latest(shape.function);
            latest.took_ns.store(took_ns.max(1), Ordering::Relaxed);
            latest.blocks.store(shape.blocks, Ordering::Relaxed);
            latest.function.store(shape.function, Ordering::Relaxed);
        }
        let key = shape.key();
        if let Some(place) = self.reach(key).find(|place| place.key.load(Ordering::Relaxed) == key) {
            place.learn(took_ns);
        }
    }

    /// The handle of a graph may mean another soon.
    pub(crate) fn forget_graph(&self, graph: u64) {
        let shape = Shape { kind: SampleKind::Graph, function: graph, blocks: 0, threads_per_block: 0, bytes: 0 };
        let key = shape.key();
        if let Some(place) = self.reach(key).find(|place| place.key.load(Ordering::Relaxed) == key) {
            place.clear();
        }
    }

    fn reach(&self, key: u64) -> impl Iterator<Item = &Place> {
        let start = place_of(key >> 1, PLACES);
        (0..REACH).map(move |step| &self.places[(start + step) % PLACES])
    }

    /// The place of another that was not seen lately, or of the first. What comes once and never again is seen no second time there, so it is the
    /// next to go.
    #[cold]
    fn evict(&self, key: u64) -> Option<&Place> {
        let is_unused = |place: &&Place| !place.is_used.swap(false, Ordering::Relaxed);
        let place = self.reach(key).find(is_unused).or_else(|| self.reach(key).next())?;
        place.take(place.key.load(Ordering::Relaxed), key)
    }

    fn latest(&self, function: u64) -> &Latest {
        &self.functions[place_of(mix(function) >> 1, FUNCTIONS)]
    }
}

// === impl Place ===

impl Place {
    /// From whom it was to whom it is; `None` if another thread was faster, with another key.
    fn take(&self, before: u64, key: u64) -> Option<&Self> {
        match self.key.compare_exchange(before, key, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => self.clear(),
            Err(taken) if taken != key => return None,
            Err(_) => {}
        }
        Some(self)
    }

    fn clear(&self) {
        self.took_ns.store(0, Ordering::Relaxed);
        self.longer_ns.store(0, Ordering::Relaxed);
        self.blocks_per_sm.store(0, Ordering::Relaxed);
        for number in [&self.left, &self.measured, &self.longer] {
            number.store(0, Ordering::Relaxed);
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

    /// How many blocks of this fit on an SM, if that is known.
    pub(crate) fn blocks_per_sm(&self, shape: Shape) -> Option<u32> {
        self.told_blocks(shape).filter(|blocks| *blocks != UNKNOWN_BLOCKS)
    }

    /// Asks for it, the first time.
    pub(crate) fn ask_blocks_per_sm(&self, shape: Shape, ask: impl FnOnce() -> Option<u32>) -> Option<u32> {
        if self.told_blocks(shape).is_none() {
            let told = ask().filter(|blocks| *blocks > 0).unwrap_or(UNKNOWN_BLOCKS);
            self.blocks_per_sm.store(shape.key() >> 32 << 32 | u64::from(told), Ordering::Relaxed);
        }
        self.blocks_per_sm(shape)
    }

    fn told_blocks(&self, shape: Shape) -> Option<u32> {
        let told = self.blocks_per_sm.load(Ordering::Relaxed);
        #[allow(clippy::cast_possible_truncation)] // the lower half
        let blocks = told as u32;
        (blocks != 0 && told >> 32 == shape.key() >> 32).then_some(blocks)
    }

    fn learn(&self, took_ns: u64) {
        let known_ns = self.known_ns();
        let is_longer = known_ns.is_some_and(|known_ns| took_ns >= known_ns.saturating_mul(2));
        let longer = if is_longer { self.longer.load(Ordering::Relaxed) + 1 } else { 0 };
        let shortest_ns = if longer > 1 { self.longer_ns.load(Ordering::Relaxed).min(took_ns) } else { took_ns };
        let has_changed = longer >= CHANGED_AFTER;
        let next_ns = if has_changed { shortest_ns } else { follow(known_ns, took_ns) };
        self.took_ns.store(next_ns, Ordering::Relaxed);
        self.longer_ns.store(shortest_ns, Ordering::Relaxed);
        self.longer.store(if has_changed { 0 } else { longer }, Ordering::Relaxed);
        if longer > 0 && !has_changed {
            // The next says more.
            self.left.store(0, Ordering::Relaxed);
        }
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
mod tests;
