//! Layouts of the shared memory. C layout, atomics only, sizes and offsets held by assertions.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// GPUs of one client that are told apart; work on others is passed on untouched.
pub const LANES: usize = 8;
/// Links of one client on one GPU: those on which it yields, and those on which others yield to it. A library has room for some more, since one that is taken
/// away keeps its place for a moment.
pub const MOST_YIELDS: usize = 12;
pub const MOST_LEADS: usize = 56;
/// Slots of the ring of measured work.
pub const SAMPLES: usize = 512;
/// Slots of the ring of finished requests.
pub const REQUESTS: usize = 256;

/// What the daemon wants of a client. The client can only read it.
#[derive(Debug)]
#[repr(C, align(4096))]
pub struct Orders {
    pub version: AtomicU32,
    /// Counts changes, for whoever wants to know whether anything did.
    pub changes: AtomicU32,
    _reserved: [AtomicU64; 7],
    pub lanes: [LaneOrders; LANES],
}

/// Of one GPU. Every 0 means: no such limit.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct LaneOrders {
    /// Estimated work after which a client that yields looks at its stops again.
    pub grain_ns: AtomicU32,
    /// How long a client that is yielded to keeps the others stopped after its last work is done.
    pub linger_ns: AtomicU32,
    /// Work that takes longer goes to a part of the GPU, whose first `long_sms` SMs are split from the others; `long_part` says which.
    pub long_ns: AtomicU32,
    pub long_sms: AtomicU32,
    /// The longest one raise of a word is obeyed; then the client goes on until the word changes, and says so in its ledger.
    pub longest_stop_ns: AtomicU64,
    /// Bytes that copies between host and device may move per second.
    pub copy_bytes_per_second: AtomicU64,
    /// Device memory the client may allocate.
    pub memory_bytes: AtomicU64,
    /// One piece of work in so many is measured; 0 measures none.
    pub sample_every: AtomicU32,
    /// 0: the first `long_sms` SMs. 1: the others. So two that are given the same split share no SM.
    pub long_part: AtomicU32,
    /// Not 0: no stop is obeyed there, whatever the words say, and the client keeps them at 0.
    pub free: AtomicU32,
    /// Work that takes longer is preempted while a stop is up.
    pub preempt_ns: AtomicU32,
    /// For how long the GPU runs this process before it turns to another one that has work: while it yields and has work that is preempted,
    /// and while it leads. 0 leaves it as the driver has it.
    pub yield_slice_us: AtomicU32,
    pub lead_slice_us: AtomicU32,
}

/// What a client tells the daemon. The daemon believes none of it further than that client's own good.
#[derive(Debug)]
#[repr(C, align(4096))]
pub struct Ledger {
    pub version: AtomicU32,
    pub lane_count: AtomicU32,
    _reserved: [AtomicU64; 7],
    pub lanes: [LaneLedger; LANES],
    /// Samples ever written; the next goes to this number modulo [`SAMPLES`].
    pub sampled: AtomicU64,
    _pad: [AtomicU64; 7],
    pub samples: [SampleSlot; SAMPLES],
    /// Requests ever written; the next goes to this number modulo [`REQUESTS`].
    pub requested: AtomicU64,
    _pad_requests: [AtomicU64; 7],
    pub requests: [RequestSlot; REQUESTS],
}

/// Of one GPU. Counters only grow.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct LaneLedger {
    /// The GPU's UUID, once `uuid_known` is 1.
    pub uuid: [AtomicU64; 2],
    pub uuid_known: AtomicU32,
    /// 1 while the client has work on the GPU, as far as it knows.
    pub busy: AtomicU32,
    /// When `busy` last changed.
    pub busy_since_ns: AtomicU64,
    /// Kernels, graphs and copies given to the driver.
    pub launches: AtomicU64,
    /// Estimated time of that work.
    pub submitted_ns: AtomicU64,
    /// Waits put into streams, and how often one was given up because it lasted too long.
    pub stops: AtomicU64,
    pub stops_given_up: AtomicU64,
    /// Bytes of copies between host and device, and how long they were held back for their budget.
    pub copied_bytes: AtomicU64,
    pub paced_ns: AtomicU64,
    /// Device memory allocated now, and allocations refused for `memory_bytes`.
    pub memory_bytes: AtomicU64,
    pub memory_refused: AtomicU64,
    /// Measured and estimated time of the samples' work: their difference is the estimate's error.
    pub measured_ns: AtomicU64,
    pub estimated_ns: AtomicU64,
    /// Finished requests, and how long they took together.
    pub requests: AtomicU64,
    pub request_ns: AtomicU64,
    /// Since when a stream stands at a stop, without having got on; 0 while none does.
    pub stopped_since_ns: AtomicU64,
    /// Since when streams have stood although every word they wait for was set to 0; 0 while none does. Then whoever raises
    /// `stuck_link` does not let go of it.
    pub stuck_since_ns: AtomicU64,
    pub stuck_link: AtomicU64,
    /// Words that were set to 0 here and were found raised when looked at again, though nobody had raised them anew rightly.
    pub words_fought: AtomicU64,
    /// Links whose stop is not obeyed because it lasted too long; each until its word changes.
    pub given_up: AtomicU32,
    _pad: AtomicU32,
    /// How often its work was preempted.
    pub preempted: AtomicU64,
    _reserved: [AtomicU64; 9],
}

/// One piece of work that was measured, behind a sequence: odd while it is written.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct SampleSlot(Slot<7>);

/// One request that is done, behind a sequence likewise.
#[derive(Debug)]
#[repr(C, align(32))]
pub struct RequestSlot(Slot<3>);

/// Words behind a sequence.
#[derive(Debug)]
#[repr(C)]
struct Slot<const N: usize> {
    sequence: AtomicU64,
    words: [AtomicU64; N],
}

/// What was measured of one piece of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    pub kind: SampleKind,
    pub lane: u8,
    /// Tells functions, graphs and kinds of copies apart within a client; means nothing beyond.
    pub function: u64,
    pub blocks: u32,
    pub threads_per_block: u32,
    /// How many pieces of work were launched in this stream since its last wait for the GPU.
    pub position: u32,
    pub took_ns: u64,
    /// What had been estimated before; 0 if nothing was known.
    pub estimated_ns: u64,
    /// When it was submitted.
    pub at_ns: u64,
    /// SMs it had at least to itself; 0 is all of them.
    pub sms: u32,
    /// How many blocks of this function fit on an SM at once, at this size and with this shared memory; 0 is unknown.
    pub blocks_per_sm: u32,
}

/// A request: work of a client on one GPU, from the first that was submitted while it had none until all that was submitted by then
/// is done. What is submitted before that belongs to the same request, so requests that follow each other without a pause of the
/// GPU's are one. Who lingers with its words up does not make it longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    pub lane: u8,
    /// Kernels, graphs and copies of it.
    pub pieces: u32,
    pub began_ns: u64,
    pub took_ns: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum SampleKind {
    Kernel = 1,
    Graph = 2,
    Copy = 3,
}

/// The page of a link.
#[derive(Debug)]
#[repr(C, align(4096))]
pub struct Stop {
    /// Not 0: the one that yields begins no new work. Each raise has another value, so that it is told from the one before.
    pub word: AtomicU32,
    /// Not 0: the one that leads has mapped the page, so that nobody else need be able to.
    pub is_led: AtomicU32,
    /// Not 0: the one that leads does not raise the word, since nobody wants it to for now. Set by the daemon.
    pub muted: AtomicU32,
    /// Not 0: whoever raises the word wakes who waits for it, by a futex that is not private.
    pub listens: AtomicU32,
    _reserved: [AtomicU32; 12],
}

const _: () = {
    assert!(size_of::<Orders>() == 4096);
    assert!(size_of::<LaneOrders>() == 64);
    assert!(size_of::<LaneLedger>() == 256);
    assert!(size_of::<SampleSlot>() == 64);
    assert!(size_of::<RequestSlot>() == 32);
    assert!(size_of::<Ledger>() == 45_056);
    assert!(size_of::<Stop>() == 4096);
    assert!(std::mem::offset_of!(Orders, lanes) == 64);
    assert!(std::mem::offset_of!(Ledger, lanes) == 128);
    assert!(std::mem::offset_of!(Ledger, samples) == 2240);
    assert!(std::mem::offset_of!(Ledger, requests) == 35_072);
};

// === impl Slot ===

impl<const N: usize> Slot<N> {
    fn write(&self, words: [u64; N]) -> bool {
        let before = self.sequence.load(Ordering::Relaxed);
        if !before.is_multiple_of(2)
            || self.sequence.compare_exchange(before, before + 1, Ordering::Acquire, Ordering::Relaxed).is_err()
        {
            return false;
        }
        std::sync::atomic::fence(Ordering::Release);
        for (word, value) in self.words.iter().zip(words) {
            word.store(value, Ordering::Relaxed);
        }
        self.sequence.store(before.wrapping_add(2), Ordering::Release);
        true
    }

    fn read(&self) -> Option<[u64; N]> {
        let before = self.sequence.load(Ordering::Acquire);
        if before == 0 || !before.is_multiple_of(2) {
            return None;
        }
        let words = std::array::from_fn(|index| self.words[index].load(Ordering::Relaxed));
        std::sync::atomic::fence(Ordering::Acquire);
        (self.sequence.load(Ordering::Relaxed) == before).then_some(words)
    }
}

// === impl SampleSlot ===

impl SampleSlot {
    /// Only one thread may write a slot at a time; others that try at the same time are turned away.
    pub fn write(&self, sample: &Sample) -> bool {
        self.0.write(sample.to_words())
    }

    /// `None` while it is written, before it ever was, and where it makes no sense.
    pub fn read(&self) -> Option<Sample> {
        self.0.read().and_then(|words| Sample::from_words(&words))
    }
}

// === impl RequestSlot ===

impl RequestSlot {
    /// As with samples.
    pub fn write(&self, request: &Request) -> bool {
        self.0.write([u64::from(request.lane) | u64::from(request.pieces) << 32, request.began_ns, request.took_ns])
    }

    pub fn read(&self) -> Option<Request> {
        let [tag, began_ns, took_ns] = self.0.read()?;
        let lane = u8::try_from(tag & 0xffff_ffff).ok().filter(|lane| usize::from(*lane) < LANES)?;
        Some(Request { lane, pieces: (tag >> 32) as u32, began_ns, took_ns })
    }
}

// === impl Sample ===

impl Sample {
    fn to_words(self) -> [u64; 7] {
        [
            u64::from(self.kind as u8) | u64::from(self.lane) << 8 | u64::from(self.sms) << 32,
            self.function,
            u64::from(self.blocks) | u64::from(self.threads_per_block) << 32,
            u64::from(self.position) | u64::from(self.blocks_per_sm) << 32,
            self.took_ns,
            self.estimated_ns,
            self.at_ns,
        ]
    }

    fn from_words(words: &[u64; 7]) -> Option<Self> {
        let [tag, function, shape, position, took_ns, estimated_ns, at_ns] = *words;
        let (low, high) = (|word: u64| (word & 0xffff_ffff) as u32, |word: u64| (word >> 32) as u32);
        let kind = match tag & 0xff {
            1 => SampleKind::Kernel,
            2 => SampleKind::Graph,
            3 => SampleKind::Copy,
            _ => return None,
        };
        let lane = (tag >> 8 & 0xff) as u8;
        (usize::from(lane) < LANES).then_some(Self {
            kind,
            lane,
            function,
            blocks: low(shape),
            threads_per_block: high(shape),
            position: low(position),
            took_ns,
            estimated_ns,
            at_ns,
            sms: high(tag),
            blocks_per_sm: high(position),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: Sample = Sample {
        kind: SampleKind::Graph,
        lane: 3,
        function: 0xdead_beef_0bad_cafe,
        blocks: 4096,
        threads_per_block: 256,
        position: 7,
        took_ns: 20_000_000,
        estimated_ns: 0,
        at_ns: u64::MAX,
        sms: 72,
        blocks_per_sm: 8,
    };

    fn slot<const N: usize>() -> Slot<N> {
        Slot { sequence: AtomicU64::new(0), words: [const { AtomicU64::new(0) }; N] }
    }

    #[test]
    fn a_sample_is_read_as_it_was_written() {
        let slot = SampleSlot(slot());
        assert_eq!(slot.read(), None, "nothing was written yet");
        assert!(slot.write(&SAMPLE));
        assert_eq!(slot.read(), Some(SAMPLE));
    }

    #[test]
    fn a_request_is_read_as_it_was_written_and_garbage_is_none() {
        let slot = RequestSlot(slot());
        let request = Request { lane: 7, pieces: u32::MAX, began_ns: 5, took_ns: u64::MAX };
        assert_eq!(slot.read(), None, "nothing was written yet");
        assert!(slot.write(&request));
        assert_eq!(slot.read(), Some(request));
        slot.0.words[0].store(8, Ordering::Relaxed);
        assert_eq!(slot.read(), None, "there is no such GPU");
    }

    #[test]
    fn a_slot_that_is_being_written_is_neither_read_nor_written_by_another() {
        let slot = SampleSlot(slot());
        slot.write(&SAMPLE);
        slot.0.sequence.store(3, Ordering::Relaxed);
        assert_eq!(slot.read(), None);
        assert!(!slot.write(&SAMPLE));
    }

    #[test]
    fn garbage_is_no_sample() {
        let slot = SampleSlot(slot());
        slot.0.sequence.store(2, Ordering::Relaxed);
        for tag in [0, 4, 0xff, 1 | 8 << 8, u64::MAX] {
            slot.0.words[0].store(tag, Ordering::Relaxed);
            assert_eq!(slot.read(), None, "{tag:#x}");
        }
    }
}
