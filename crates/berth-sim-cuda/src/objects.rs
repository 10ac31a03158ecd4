//! What the process's handles mean, shared by its threads.
//!
//! Contexts and events carry the server's own handle. Streams carry it plus an offset, because small numbers mean kinds
//! of default stream; modules and kernels exist on this side only.

use std::collections::{BTreeMap, HashMap};
use std::ffi::c_uint;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use berth_proto::cuda::result;

use crate::edge::Answer;
use crate::ptx::Kernel;

/// Keeps a stream's handle apart from the handles that mean a default stream.
const STREAM_OFFSET: u64 = 0x1000;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Context {
    /// The program's ordinal of the device.
    pub(crate) device: i32,
    pub(crate) flags: c_uint,
    pub(crate) is_primary: bool,
    /// The server's context, if this is a green one within it.
    pub(crate) part_of: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Stream {
    pub(crate) context: u64,
    /// The server's handle.
    pub(crate) stream: u64,
    /// The program's; 0 for the default streams.
    pub(crate) handle: u64,
    pub(crate) flags: c_uint,
    pub(crate) priority: i32,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Event {
    pub(crate) context: u64,
    pub(crate) flags: c_uint,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Allocation {
    pub(crate) start: u64,
    pub(crate) bytes: u64,
    pub(crate) context: u64,
}

/// Host memory within the device's reach.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HostMemory {
    pub(crate) bytes: u64,
    pub(crate) flags: c_uint,
    /// The program's own, not the driver's.
    pub(crate) is_registered: bool,
}

/// A loaded image.
#[derive(Debug)]
pub(crate) struct Module {
    /// `None` for a library, which belongs to no context.
    pub(crate) context: Option<u64>,
    /// `None` for a binary: it is not looked into and has every kernel one asks for.
    pub(crate) kernels: Option<Vec<Arc<Kernel>>>,
}

#[derive(Debug, Clone)]
pub(crate) struct Function {
    pub(crate) module: u64,
    pub(crate) kernel: Arc<Kernel>,
}

#[derive(Debug, Default)]
pub(crate) struct Objects {
    pub(crate) contexts: HashMap<u64, Context>,
    streams: HashMap<u64, Stream>,
    pub(crate) events: HashMap<u64, Event>,
    allocations: BTreeMap<u64, Allocation>,
    /// By its first address; belongs to no context.
    pub(crate) host_memory: BTreeMap<u64, HostMemory>,
    pub(crate) modules: HashMap<u64, Module>,
    pub(crate) functions: HashMap<u64, Function>,
    last_handle: u64,
}

static OBJECTS: LazyLock<Mutex<Objects>> = LazyLock::new(Mutex::default);

/// Never held while waiting for the server.
pub(crate) fn lock() -> MutexGuard<'static, Objects> {
    OBJECTS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Objects {
    /// A handle for something that exists on this side only.
    pub(crate) fn fresh_handle(&mut self) -> u64 {
        self.last_handle += 0x10;
        STREAM_OFFSET + self.last_handle
    }

    pub(crate) fn context(&self, context: u64) -> Answer<Context> {
        self.contexts.get(&context).copied().ok_or(result::INVALID_CONTEXT)
    }

    pub(crate) fn add_stream(&mut self, stream: Stream) -> u64 {
        let handle = stream.stream.saturating_add(STREAM_OFFSET);
        self.streams.insert(handle, Stream { handle, ..stream });
        handle
    }

    pub(crate) fn stream(&self, handle: u64) -> Answer<Stream> {
        self.streams.get(&handle).copied().ok_or(result::INVALID_HANDLE)
    }

    pub(crate) fn remove_stream(&mut self, handle: u64) -> Answer<Stream> {
        self.streams.remove(&handle).ok_or(result::INVALID_HANDLE)
    }

    pub(crate) fn event(&self, handle: u64) -> Answer<Event> {
        self.events.get(&handle).copied().ok_or(result::INVALID_HANDLE)
    }

    pub(crate) fn add_allocation(&mut self, allocation: Allocation) {
        self.allocations.insert(allocation.start, allocation);
    }

    /// The allocation that starts at `pointer`.
    pub(crate) fn allocation(&self, pointer: u64) -> Answer<Allocation> {
        self.allocations.get(&pointer).copied().ok_or(result::INVALID_VALUE)
    }

    pub(crate) fn remove_allocation(&mut self, pointer: u64) {
        self.allocations.remove(&pointer);
    }

    /// The allocation that holds all of `bytes` from `pointer` on.
    pub(crate) fn holding(&self, pointer: u64, bytes: u64) -> Option<Allocation> {
        let (_, allocation) = self.allocations.range(..=pointer).next_back()?;
        let offset = pointer - allocation.start;
        (offset < allocation.bytes && bytes <= allocation.bytes - offset).then_some(*allocation)
    }

    /// The host memory that holds all of `bytes` from `address` on.
    pub(crate) fn reachable(&self, address: u64, bytes: u64) -> Option<HostMemory> {
        let (start, memory) = self.host_memory.range(..=address).next_back()?;
        let offset = address - start;
        (offset < memory.bytes && bytes <= memory.bytes - offset).then_some(*memory)
    }

    /// Forgets a context and everything in it.
    pub(crate) fn forget_context(&mut self, context: u64) {
        self.contexts.retain(|handle, known| *handle != context && known.part_of != Some(context));
        self.streams.retain(|_, stream| stream.context != context);
        self.events.retain(|_, event| event.context != context);
        self.allocations.retain(|_, allocation| allocation.context != context);
        let gone = |module: &Module| module.context == Some(context);
        let modules: Vec<u64> = self.modules.iter().filter(|(_, module)| gone(module)).map(|(id, _)| *id).collect();
        for module in modules {
            self.forget_module(module);
        }
    }

    pub(crate) fn forget_module(&mut self, module: u64) {
        self.modules.remove(&module);
        self.functions.retain(|_, function| function.module != module);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_found_only_if_all_of_it_is_inside() {
        let mut objects = Objects::default();
        objects.add_allocation(Allocation { start: 1000, bytes: 100, context: 1 });
        assert!(objects.holding(1000, 100).is_some());
        assert!(objects.holding(1050, 50).is_some());
        assert!(objects.holding(1050, 51).is_none());
        assert!(objects.holding(1100, 0).is_none());
        assert!(objects.holding(999, 1).is_none());
        assert!(objects.holding(1001, u64::MAX).is_none());
    }

    #[test]
    fn what_is_in_a_context_goes_with_it() {
        let mut objects = Objects::default();
        objects.contexts.insert(1, Context { device: 0, flags: 0, is_primary: false, part_of: None });
        let stream = objects.add_stream(Stream { context: 1, stream: 7, handle: 0, flags: 0, priority: 0 });
        objects.modules.insert(5, Module { context: Some(1), kernels: None });
        objects.modules.insert(6, Module { context: None, kernels: None });
        objects.forget_context(1);
        assert!(objects.context(1).is_err());
        assert!(objects.stream(stream).is_err());
        assert_eq!(objects.modules.keys().collect::<Vec<_>>(), [&6]);
    }
}
