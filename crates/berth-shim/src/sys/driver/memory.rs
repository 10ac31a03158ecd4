//! Memory: pages of the host that the GPU is shown, where addresses are, what pools keep.

use std::ffi::{c_int, c_uint};

use berth_proto::cuda::result;

use super::{Driver, ask};

/// `CU_MEMHOSTREGISTER_PORTABLE | …_DEVICEMAP`
const PORTABLE_AND_MAPPED: c_uint = 3;
/// `CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT`, `…_USED_MEM_CURRENT`
const POOL_RESERVED: c_int = 5;
const POOL_USED: c_int = 7;
/// `CU_MEMPOOL_ATTR_RELEASE_THRESHOLD`
pub(crate) const POOL_THRESHOLD: c_int = 4;
/// `CU_POINTER_ATTRIBUTE_MEMORY_TYPE`, and the answer `CU_MEMORYTYPE_DEVICE`
const MEMORY_TYPE: c_int = 2;
const DEVICE_MEMORY: c_uint = 2;

impl Driver {
    /// Makes host memory known to the GPU; the address it has there. In the current context.
    pub(crate) fn register(&self, memory: *mut u8, bytes: usize) -> Option<u64> {
        let (register, pointer) = (self.host_register?, self.host_device_pointer?);
        // SAFETY: the memory is a page of a link, mapped until after it was unregistered.
        if unsafe { register(memory.cast(), bytes, PORTABLE_AND_MAPPED) } != result::SUCCESS {
            return None;
        }
        // SAFETY: as above; the driver writes one address.
        let address = ask(|out| unsafe { pointer(out, memory.cast(), 0) });
        if address.is_none() {
            self.unregister(memory, 0);
        }
        address
    }

    /// `context`: in which it was registered.
    pub(crate) fn unregister(&self, memory: *mut u8, context: u64) {
        if let Some(unregister) = self.host_unregister {
            // SAFETY: the driver looks the address up and refuses what it does not know.
            self.by_any_thread(context, || unsafe { unregister(memory.cast()) });
        }
    }

    /// Whether an address is of device memory. What the driver does not know is the host's.
    pub(crate) fn is_on_device(&self, address: u64) -> bool {
        let Some(function) = self.pointer_attribute else { return false };
        // SAFETY: the driver writes one number, and refuses addresses that it does not know.
        ask(|out: *mut c_uint| unsafe { function(out.cast(), MEMORY_TYPE, address) }) == Some(DEVICE_MEMORY)
    }

    /// What a pool has of the GPU's memory without anything in it.
    pub(crate) fn kept_by_pool(&self, pool: u64) -> u64 {
        let Some(function) = self.pool_attribute else { return 0 };
        // SAFETY: the pool lives (see `pools.rs`); the driver writes one number.
        let told = |attribute| ask(|out: *mut u64| unsafe { function(pool, attribute, out.cast()) }).unwrap_or(0);
        self.relaxed(|| told(POOL_RESERVED).saturating_sub(told(POOL_USED)))
    }

    /// How much a pool is told to keep.
    pub(crate) fn pool_threshold(&self, pool: u64) -> u64 {
        let Some(function) = self.pool_attribute else { return 0 };
        // SAFETY: as above.
        self.relaxed(|| ask(|out: *mut u64| unsafe { function(pool, POOL_THRESHOLD, out.cast()) })).unwrap_or(0)
    }

    /// Gives back what a pool keeps.
    pub(crate) fn trim_pool(&self, pool: u64) {
        if let Some(trim) = self.pool_trim {
            // SAFETY: as above.
            self.relaxed(|| unsafe { trim(pool, 0) });
        }
    }

    /// The pool that a device has from the beginning,
    pub(crate) fn default_pool(&self, device: c_int) -> Option<u64> {
        let function = self.pool_default?;
        // SAFETY: the driver writes one handle.
        ask(|out| unsafe { function(out, device) })
    }

    /// and the one that allocations in its streams come from.
    pub(crate) fn current_pool(&self, device: c_int) -> Option<u64> {
        let function = self.pool_current?;
        // SAFETY: as above.
        ask(|out| unsafe { function(out, device) })
    }
}
