//! The reading end of a BPF ring buffer, which the kernel shares by `mmap`.
//!
//! One page holds the reader's position, another the writer's; the data follows, mapped twice in a row so that a
//! record that wraps around can be read in one piece.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

#[derive(Debug)]
pub struct Ring {
    map: OwnedFd,
    /// Bytes of data; a power of two.
    len: usize,
    /// One page, written here.
    consumer: Mapping,
    /// The writer's page, then the data twice.
    producer: Mapping,
}

#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

/// The kernel is still writing this record.
const BUSY: u32 = 1 << 31;
/// The kernel gave this record up.
const DISCARDED: u32 = 1 << 30;
const HEADER_LEN: usize = 8;

// === impl Ring ===

impl Ring {
    /// Maps `map`, a ring of `len` bytes.
    pub fn new(map: OwnedFd, len: usize) -> io::Result<Self> {
        let page = page_size();
        let consumer = Mapping::new(&map, page, ProtFlags::READ | ProtFlags::WRITE, 0)?;
        let producer = Mapping::new(&map, page + 2 * len, ProtFlags::READ, page)?;
        Ok(Self { map, len, consumer, producer })
    }

    /// Hands over every complete record, oldest first, and gives its room back.
    pub fn drain(&mut self, mut take: impl FnMut(&[u8])) {
        // SAFETY: both positions are at the beginning of mapped, page-aligned pages that live as long as `self`.
        let (read, written) = unsafe {
            (&*self.consumer.start.as_ptr().cast::<AtomicUsize>(), &*self.producer.start.as_ptr().cast::<AtomicUsize>())
        };
        let mut at = read.load(Ordering::Relaxed);
        while at < written.load(Ordering::Acquire) {
            let record = self.data(at);
            // SAFETY: records are 8-byte aligned in the data; the kernel writes the header as one word.
            let header = unsafe { &*record.cast::<AtomicU32>() }.load(Ordering::Acquire);
            if header & BUSY != 0 {
                return;
            }
            let len = (header & !(BUSY | DISCARDED)) as usize;
            if header & DISCARDED == 0 {
                // SAFETY: the kernel has committed `len` bytes after the header, which the double mapping holds in one
                // piece, and does not touch them before the position below is moved.
                take(unsafe { slice::from_raw_parts(record.add(HEADER_LEN), len) });
            }
            at += (HEADER_LEN + len).next_multiple_of(8);
            read.store(at, Ordering::Release);
        }
    }

    fn data(&self, position: usize) -> *const u8 {
        let offset = page_size() + (position & (self.len - 1));
        // SAFETY: less than a page and `len` from the start of a mapping of a page and twice `len`.
        unsafe { self.producer.start.as_ptr().add(offset) }
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }
}

fn page_size() -> usize {
    // SAFETY: takes and returns numbers only.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).expect("every Linux has a page size")
}

// === impl Mapping ===

impl Mapping {
    fn new(map: &OwnedFd, len: usize, protection: ProtFlags, offset: usize) -> io::Result<Self> {
        let offset = u64::try_from(offset).expect("a page");
        // SAFETY: a new shared mapping at a place of the kernel's choice.
        let start = unsafe { mmap(ptr::null_mut(), len, protection, MapFlags::SHARED, map, offset) }?;
        let start = NonNull::new(start.cast()).expect("mmap gives no null without an error");
        Ok(Self { start, len })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: what `new` mapped; nothing refers to it once its owner is dropped. Failing would leave it mapped.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

// SAFETY: the mapping belongs to whoever owns this value, not to a thread.
unsafe impl Send for Mapping {}
