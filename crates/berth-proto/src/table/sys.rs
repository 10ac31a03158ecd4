//! The few things of the table that need `unsafe`: atomics over mapped memory, futexes, clocks.

use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::os::fd::AsRawFd;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use memmap2::{MmapOptions, MmapRaw};

use super::layout::{HEADER_BYTES, LOCKED_OFFSET, RawHeader};

/// The whole file, mapped for its one writer.
#[derive(Debug)]
pub(crate) struct WriterMap {
    map: MmapRaw,
    words: usize,
}

/// The header, mapped so that the kernel can find the sequence's futex. This process never reads through it: a page of
/// a file that was cut short would be a `SIGBUS`, whereas a futex call just fails.
#[derive(Debug)]
pub(crate) struct WaitMap {
    map: MmapRaw,
}

/// Whether a process is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    There,
    Gone,
}

// === impl WriterMap ===

impl WriterMap {
    /// Maps `bytes` of `file`, which must have that many: allocated ones, since a full tmpfs kills on first touch.
    pub fn new(file: &File, bytes: usize) -> io::Result<Self> {
        let map = MmapOptions::new().len(bytes).map_raw(file)?;
        Ok(Self { map, words: (bytes - LOCKED_OFFSET) / size_of::<u64>() })
    }

    pub fn sequence(&self) -> &AtomicU64 {
        self.word(offset_of!(RawHeader, sequence))
    }

    pub fn heartbeat(&self) -> &AtomicU64 {
        self.word(offset_of!(RawHeader, heartbeat_mono_ns))
    }

    pub fn closed(&self) -> &AtomicU64 {
        self.word(offset_of!(RawHeader, closed))
    }

    /// What the sequence protects.
    pub fn locked(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is writable, page aligned, lives as long as `self` and has `words` u64 after
        // `LOCKED_OFFSET`, a multiple of 8. This process touches it through atomics only.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().add(LOCKED_OFFSET).cast::<AtomicU64>(), self.words) }
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        debug_assert!(offset.is_multiple_of(8) && offset < HEADER_BYTES);
        // SAFETY: `offset` is that of a u64 field of the header, which `new` has mapped writable, page aligned, for as
        // long as `self` lives. This process touches it through atomics only.
        unsafe { &*self.map.as_ptr().add(offset).cast::<AtomicU64>() }
    }

    /// Wakes every reader that sleeps until the sequence changes.
    pub fn wake_readers(&self) {
        let word = std::ptr::from_ref(self.sequence()).cast::<u32>();
        // SAFETY: FUTEX_WAKE uses the address of a mapped word as a key and writes nothing.
        unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE, i32::MAX) };
    }
}

// === impl WaitMap ===

impl WaitMap {
    pub fn new(file: &File) -> io::Result<Self> {
        Ok(Self { map: MmapOptions::new().len(HEADER_BYTES).map_raw_read_only(file)? })
    }

    /// Sleeps until woken, for `timeout` at most, and not at all if the sequence's low half is no longer `low`.
    /// Comes back early for any reason, too: the caller looks again.
    pub fn wait(&self, low: u32, timeout: Duration) {
        let timeout = libc::timespec {
            tv_sec: timeout.as_secs().try_into().unwrap_or(libc::time_t::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        let sequence = offset_of!(RawHeader, sequence);
        // SAFETY: the word lies inside the mapping, which outlives the call; only the kernel reads it, and answers
        // EFAULT if the file no longer has that page. `timeout` lives across the call. Futexes are aligned to 4.
        unsafe {
            let word = self.map.as_ptr().add(sequence).cast::<u32>();
            libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAIT, low, &raw const timeout);
        }
    }
}

/// Gives `file` its `bytes` for good, or says why not, instead of failing at first touch.
pub(crate) fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    let bytes = libc::off_t::try_from(bytes).map_err(|_| io::ErrorKind::FileTooLarge)?;
    // SAFETY: the descriptor is open for as long as `file` is borrowed.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, bytes) } {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// Whether `pid` names a process here, even one of another user whose `/proc` entry is hidden.
pub(crate) fn presence(pid: u32) -> Presence {
    let Ok(pid @ 1..) = libc::pid_t::try_from(pid) else {
        return Presence::Gone;
    };
    // SAFETY: signal 0 is never delivered; `pid` is above 0, so no group is meant.
    let answer = unsafe { libc::kill(pid, 0) };
    let gone = answer != 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH);
    if gone { Presence::Gone } else { Presence::There }
}

/// The host's `CLOCK_MONOTONIC`, the clock of every `mono_ns` in the table.
pub fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a timespec to write to; CLOCK_MONOTONIC is always there.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    let (seconds, nanos) = (u64::try_from(now.tv_sec).unwrap_or(0), u64::try_from(now.tv_nsec).unwrap_or(0));
    seconds * 1_000_000_000 + nanos
}
