//! Host memory the device can reach: pinned by the driver, or the program's own and registered.
//!
//! A device address of it is its host address. Nothing is really pinned.

use std::ffi::{c_uint, c_void};

use berth_proto::cuda::{host_register, result};

use crate::capture;
use crate::context;
use crate::edge::{Answer, Out};
use crate::objects::{self, HostMemory};
use crate::words;

/// All flags `cuMemHostRegister` knows.
const REGISTER_FLAGS: c_uint =
    host_register::PORTABLE | host_register::DEVICE_MAP | host_register::IO_MEMORY | host_register::READ_ONLY;

/// Pinned host memory is plain host memory here.
pub(crate) fn allocate(out: Out<*mut c_void>, bytes: usize, flags: c_uint) -> Answer {
    out.check()?;
    context::current()?;
    if bytes == 0 {
        return Err(result::INVALID_VALUE);
    }
    capture::forbid_unsafe()?;
    // SAFETY: plain allocation; the caller gives it back through `free`. Zeroed pages are as the driver's.
    let memory = unsafe { libc::calloc(1, bytes) };
    if memory.is_null() {
        return Err(result::OUT_OF_MEMORY);
    }
    objects::lock().host_memory.insert(memory as u64, HostMemory { bytes: bytes as u64, flags, is_registered: false });
    out.set(memory)
}

pub(crate) fn free(memory: *mut c_void) -> Answer {
    context::current()?;
    forget(memory as u64, false, result::INVALID_VALUE)?;
    // SAFETY: it was in the list of what `allocate` made, and is not any more.
    unsafe { libc::free(memory) };
    Ok(())
}

/// The program's own memory, from now on within the device's reach.
pub(crate) fn register(memory: *mut c_void, bytes: usize, flags: c_uint) -> Answer {
    context::current()?;
    let start = memory as u64;
    let end = start.checked_add(bytes as u64).ok_or(result::INVALID_VALUE)?;
    if start == 0 || bytes == 0 || flags & !REGISTER_FLAGS != 0 || !is_mapped(memory, bytes) {
        return Err(result::INVALID_VALUE);
    }
    capture::forbid_unsafe()?;
    let mut objects = objects::lock();
    let before = objects.host_memory.range(..end).next_back();
    if before.is_some_and(|(other, known)| other + known.bytes > start) {
        return Err(result::HOST_MEMORY_ALREADY_REGISTERED);
    }
    objects.host_memory.insert(start, HostMemory { bytes: bytes as u64, flags, is_registered: true });
    Ok(())
}

pub(crate) fn unregister(memory: *mut c_void) -> Answer {
    context::current()?;
    forget(memory as u64, true, result::HOST_MEMORY_NOT_REGISTERED)
}

/// Waits for what streams still do to the memory, as the driver does.
fn forget(start: u64, is_registered: bool, unknown: u32) -> Answer {
    let known = objects::lock().host_memory.get(&start).copied();
    let known = known.filter(|known| known.is_registered == is_registered).ok_or(unknown)?;
    capture::forbid_unsafe()?;
    words::settle(start..start + known.bytes);
    objects::lock().host_memory.remove(&start);
    Ok(())
}

pub(crate) fn device_pointer(out: Out<u64>, memory: *mut c_void, flags: c_uint) -> Answer {
    out.check()?;
    context::current()?;
    if flags != 0 {
        return Err(result::INVALID_VALUE);
    }
    objects::lock().reachable(memory as u64, 1).ok_or(result::INVALID_VALUE)?;
    out.set(memory as u64)
}

pub(crate) fn flags(out: Out<c_uint>, memory: *mut c_void) -> Answer {
    out.check()?;
    context::current()?;
    let known = objects::lock().reachable(memory as u64, 1).ok_or(result::INVALID_VALUE)?;
    out.set(known.flags)
}

/// Whether there is memory at all of these addresses.
fn is_mapped(memory: *mut c_void, bytes: usize) -> bool {
    const PAGE: usize = 4096;
    /// Asked about at a time.
    const PAGES: usize = 1 << 16;
    let (first, last) = (memory as usize / PAGE, (memory as usize + (bytes - 1)) / PAGE);
    let mut seen = vec![0; (last - first + 1).min(PAGES)];
    (first..=last).step_by(PAGES).all(|page| {
        let pages = (last - page + 1).min(PAGES);
        // SAFETY: asks about addresses without touching them; there is a byte for each page.
        unsafe { libc::mincore((page * PAGE) as *mut c_void, pages * PAGE, seen.as_mut_ptr()) == 0 }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_memory_that_is_there_is_mapped() {
        let mut memory = vec![0_u8; 3 << 20];
        let start: *mut c_void = memory.as_mut_ptr().cast();
        assert!(is_mapped(start, memory.len()));
        assert!(is_mapped(start, 1));
        assert!(!is_mapped(start, 1 << 46), "more than there is");
        assert!(!is_mapped(4096 as *mut c_void, 4096));
    }
}
