//! Device memory: allocations out of what really is there.

use berth_proto::sim::{Reply, cu};

use super::context::Then;
use super::{Answer, Engine, Ticket};

/// Distance of two pointers, so that arithmetic on one never reaches the next.
const POINTER_STEP: u64 = 2 << 20;

impl Engine {
    pub(super) fn allocate(&mut self, pid: u32, id: u64, bytes: u64) -> Answer {
        let context = self.usable(pid, id)?;
        if bytes == 0 {
            return Err(cu::INVALID_VALUE);
        }
        let pages = context.pages_with(bytes).ok_or(cu::OUT_OF_MEMORY)?;
        let wanted = pages.checked_add(self.own_memory()).ok_or(cu::OUT_OF_MEMORY)?;
        if !self.set_charge(id, wanted) {
            return Err(cu::OUT_OF_MEMORY);
        }
        let pointer = self.next_pointer;
        self.next_pointer += bytes.next_multiple_of(POINTER_STEP);
        self.usable(pid, id)?.add_allocation(pointer, bytes);
        Ok(Some(Reply::Handle(pointer)))
    }

    /// Like the real call, waits for the context's work first: a kernel may still use the memory.
    pub(super) fn free(&mut self, pid: u32, ticket: Ticket, id: u64, pointer: u64) -> Answer {
        let context = self.usable(pid, id)?;
        if !context.allocations.contains_key(&pointer) {
            return Err(cu::INVALID_VALUE);
        }
        let marks = context.ends();
        self.wait_for(id, ticket, marks, Then::Free { pointer })
    }

    pub(super) fn release(&mut self, id: u64, pointer: u64) -> Reply {
        let own = self.own_memory();
        let Some(context) = self.contexts.get_mut(&id) else { return Reply::Error(cu::INVALID_CONTEXT) };
        if !context.remove_allocation(pointer) {
            return Reply::Error(cu::INVALID_VALUE);
        }
        let pages = context.pages_with(0).unwrap_or_default();
        self.set_charge(id, own + pages);
        Reply::Done
    }

    pub(super) fn memory_info(&mut self, pid: u32, id: u64) -> Answer {
        let gpu = self.usable(pid, id)?.gpu;
        let gpu = &self.gpus[gpu];
        Ok(Some(Reply::Memory { free: gpu.free(), total: gpu.device.total_memory }))
    }

    /// Charges the context `bytes` in all; `false`, and nothing changed, when they are not there.
    pub(super) fn set_charge(&mut self, id: u64, bytes: u64) -> bool {
        let Some(context) = self.contexts.get_mut(&id) else { return false };
        let fits = self.gpus[context.gpu].recharge(context.charged, bytes);
        if fits {
            context.charged = bytes;
        }
        fits
    }
}
