//! What shows in which order a GPU works: words of host memory that streams write, and streams that wait for each other.

use std::ffi::{c_int, c_uint, c_void};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use super::Event;
use crate::options::Lookup;
use crate::sys::{Code, Finder, Handle, LoadError, Stream, check};

/// The first in which `cuStreamWriteValue32` needs no module parameter of the driver's.
const API_VERSION: c_int = 11_070;
/// `CU_MEMHOSTREGISTER_DEVICEMAP`.
const DEVICE_MAP: c_uint = 2;

functions! {
    /// Never unloaded, as [`crate::sys::Api`].
    OrderApi
    mem_host_register: c"cuMemHostRegister", c"cuMemHostRegister_v2", (*mut c_void, usize, c_uint);
    stream_write_value: c"cuStreamWriteValue32", c"cuStreamWriteValue32_v2", (Handle, u64, u32, c_uint);
    stream_wait_event: c"cuStreamWaitEvent", c"cuStreamWaitEvent", (Handle, Handle, c_uint);
}

/// A page of words that streams write and anybody reads. Never freed.
#[derive(Debug)]
#[repr(C, align(4096))]
pub struct Words([AtomicU32; 1024]);

impl Words {
    pub fn get(&self, index: usize) -> u32 {
        self.0[index].load(Ordering::Acquire)
    }
}

impl OrderApi {
    pub fn load(path: &Path, lookup: Lookup) -> Result<Self, LoadError> {
        let library = crate::sys::open(path)?;
        let api = Self::resolve(&Finder::new(path, &library, lookup, API_VERSION)?)?;
        std::mem::forget(library);
        Ok(api)
    }

    /// Full of zeros, within reach of the current context's GPU.
    pub fn words(&self) -> Result<&'static Words, Code> {
        let words: &'static Words = Box::leak(Box::new(Words([const { AtomicU32::new(0) }; 1024])));
        let memory = std::ptr::from_ref(words).cast_mut().cast();
        // SAFETY: a page of our own that is never freed; whoever writes it does so as atomics allow.
        check(unsafe { (self.mem_host_register)(memory, size_of::<Words>(), DEVICE_MAP) })?;
        Ok(words)
    }

    /// The stream stores the value when it gets there.
    pub fn write(&self, stream: &Stream, words: &'static Words, index: usize, value: u32) -> Result<(), Code> {
        let address = std::ptr::from_ref(&words.0[index]) as u64;
        // SAFETY: the stream lives; the word lives for ever, and is an atomic.
        check(unsafe { (self.stream_write_value)(stream.0, address, value, 0) })
    }

    /// The stream goes on when what was before the event is done.
    pub fn wait(&self, stream: &Stream, event: &Event) -> Result<(), Code> {
        // SAFETY: both live.
        check(unsafe { (self.stream_wait_event)(stream.0, event.0, 0) })
    }
}
