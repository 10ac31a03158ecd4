//! What a stream does to words of memory: waiting until something holds of one, and writing one.
//!
//! Words of host memory only: device memory has no contents here.

use std::ffi::c_uint;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use berth_proto::cuda::{BatchMemoryOp, host_register, memory_op, result, wait_value};

use crate::edge::{Answer, InArray};
use crate::objects;
use crate::process;
use crate::stream::StreamArgument;
use crate::words;

/// The most operations of one batch.
const MAX_BATCH: c_uint = 256;

/// One operation on one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WordOp {
    pub(crate) word: Word,
    pub(crate) action: Action,
}

/// Host memory that is within the device's reach, and aligned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Word {
    Short { address: u64 },
    Long { address: u64 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Wait { until: Until, value: u64 },
    Write { value: u64 },
}

/// What must hold of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    NotBefore,
    Equal,
    AnyBit,
    AnyBitClear,
}

impl Until {
    fn from_flags(flags: c_uint) -> Answer<Self> {
        match flags & !wait_value::FLUSH {
            wait_value::GEQ => Ok(Until::NotBefore),
            wait_value::EQ => Ok(Until::Equal),
            wait_value::AND => Ok(Until::AnyBit),
            wait_value::NOR => Ok(Until::AnyBitClear),
            _ => Err(result::INVALID_VALUE),
        }
    }

    /// Of words with this many bits; the order of values is cyclic.
    fn holds(self, word: u64, value: u64, bits: u32) -> bool {
        let unused = u64::BITS - bits;
        let kept = |number: u64| number << unused;
        match self {
            Until::NotBefore => kept(word.wrapping_sub(value)).cast_signed() >= 0,
            Until::Equal => kept(word) == kept(value),
            Until::AnyBit => kept(word & value) != 0,
            Until::AnyBitClear => kept(!(word | value)) != 0,
        }
    }
}

impl Word {
    /// For one that `writes`, memory that is registered as read-only will not do.
    fn at(address: u64, is_long: bool, writes: bool) -> Answer<Self> {
        let bytes = if is_long { 8 } else { 4 };
        let objects = objects::lock();
        let Some(memory) = objects.reachable(address, bytes) else {
            let on_device = objects.holding(address, bytes).is_some();
            return Err(if on_device { result::NOT_SUPPORTED } else { result::INVALID_VALUE });
        };
        let forbidden = writes && memory.is_registered && memory.flags & host_register::READ_ONLY != 0;
        if forbidden || !address.is_multiple_of(bytes) {
            return Err(result::INVALID_VALUE);
        }
        Ok(if is_long { Word::Long { address } } else { Word::Short { address } })
    }

    pub(crate) fn address(self) -> u64 {
        match self {
            Word::Short { address } | Word::Long { address } => address,
        }
    }

    fn bits(self) -> u32 {
        match self {
            Word::Short { .. } => u32::BITS,
            Word::Long { .. } => u64::BITS,
        }
    }

    fn load(self) -> u64 {
        // SAFETY: aligned, and within memory the program has given to the driver: whoever takes it back waits for this (`words::settle`).
        unsafe {
            match self {
                Word::Short { address } => AtomicU32::from_ptr(address as *mut u32).load(Ordering::Acquire).into(),
                Word::Long { address } => AtomicU64::from_ptr(address as *mut u64).load(Ordering::Acquire),
            }
        }
    }

    #[allow(clippy::cast_possible_truncation)] // a short word takes the low half, as the driver API says
    fn store(self, value: u64) {
        // SAFETY: as for `load`, and not registered as read-only.
        unsafe {
            match self {
                Word::Short { address } => {
                    AtomicU32::from_ptr(address as *mut u32).store(value as u32, Ordering::Release);
                }
                Word::Long { address } => AtomicU64::from_ptr(address as *mut u64).store(value, Ordering::Release),
            }
        }
    }
}

impl WordOp {
    /// Does what is to be done; `false` while what is waited for does not hold.
    pub(crate) fn is_done(self) -> bool {
        match self.action {
            Action::Wait { until, value } => until.holds(self.word.load(), value, self.word.bits()),
            Action::Write { value } => {
                self.word.store(value);
                true
            }
        }
    }
}

/// The stream goes on when the condition in `flags` holds of the word.
pub(crate) fn wait(stream: StreamArgument, address: u64, value: u64, flags: c_uint, is_long: bool) -> Answer {
    process::get()?;
    words::submit(stream.place()?, vec![waits(address, value, flags, is_long)?])
}

/// `flags` is about the order of other memory accesses, which is always kept here.
pub(crate) fn write(stream: StreamArgument, address: u64, value: u64, _flags: c_uint, is_long: bool) -> Answer {
    process::get()?;
    words::submit(stream.place()?, vec![writes(address, value, is_long)?])
}

fn waits(address: u64, value: u64, flags: c_uint, is_long: bool) -> Answer<WordOp> {
    let until = Until::from_flags(flags)?;
    Ok(WordOp { word: Word::at(address, is_long, false)?, action: Action::Wait { until, value } })
}

fn writes(address: u64, value: u64, is_long: bool) -> Answer<WordOp> {
    Ok(WordOp { word: Word::at(address, is_long, true)?, action: Action::Write { value } })
}

/// Several at once, in their order. One that is wrong keeps all from being queued.
pub(crate) fn batch(stream: StreamArgument, count: c_uint, ops: InArray<BatchMemoryOp>, flags: c_uint) -> Answer {
    process::get()?;
    if flags != 0 || count > MAX_BATCH {
        return Err(result::INVALID_VALUE);
    }
    let place = stream.place()?;
    let all = ops.get(count as usize).ok_or(result::INVALID_VALUE)?;
    let all: Vec<WordOp> = all.into_iter().filter_map(|op| read(op).transpose()).collect::<Answer<_>>()?;
    if all.is_empty() { Ok(()) } else { words::submit(place, all) }
}

/// `None` for what only orders memory accesses.
fn read(op: BatchMemoryOp) -> Answer<Option<WordOp>> {
    let BatchMemoryOp { operation, address, value, flags, .. } = op;
    match operation {
        memory_op::WAIT_VALUE_32 | memory_op::WAIT_VALUE_64 => {
            waits(address, value, flags, operation == memory_op::WAIT_VALUE_64).map(Some)
        }
        memory_op::WRITE_VALUE_32 | memory_op::WRITE_VALUE_64 => {
            writes(address, value, operation == memory_op::WRITE_VALUE_64).map(Some)
        }
        memory_op::FLUSH_REMOTE_WRITES | memory_op::BARRIER => Ok(None),
        _ => Err(result::INVALID_VALUE),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn conditions_are_the_driver_apis() {
        for (until, word, value, holds) in [
            (Until::Equal, 5, 5, true),
            (Until::Equal, 6, 5, false),
            (Until::NotBefore, 6, 5, true),
            (Until::NotBefore, 4, 5, false),
            (Until::NotBefore, 2, u64::from(u32::MAX), true),
            (Until::AnyBit, 6, 2, true),
            (Until::AnyBit, 6, 1, false),
            (Until::AnyBitClear, 0xffff_fff0, 0xf, false),
            (Until::AnyBitClear, 0xffff_fff0, 7, true),
        ] {
            assert_eq!(until.holds(word, value, 32), holds, "{until:?} {word} {value}");
        }
    }

    proptest! {
        #[test]
        fn the_high_half_of_a_value_does_not_matter_to_a_short_word(word: u32, value: u32, high: u32) {
            let more = u64::from(value) | u64::from(high) << 32;
            for until in [Until::NotBefore, Until::Equal, Until::AnyBit, Until::AnyBitClear] {
                prop_assert_eq!(until.holds(word.into(), more, 32), until.holds(word.into(), value.into(), 32));
            }
        }

        #[test]
        fn a_written_word_is_what_a_wait_for_it_waits_for(value: u64, is_long: bool) {
            let mut memory = [0_u64; 2];
            let address = &raw mut memory as u64;
            let word = if is_long { Word::Long { address } } else { Word::Short { address } };
            let is_done = |action| WordOp { word, action }.is_done();
            let wait = |value| Action::Wait { until: Until::Equal, value };
            let results = [Action::Write { value }, wait(value), wait(value ^ 1)].map(is_done);
            prop_assert_eq!(results, [true, true, false]);
            prop_assert_eq!(memory[1], 0);
        }
    }
}
