//! Device memory, copies and fills.
//!
//! Device memory has an address and a size, no contents. Copies that wait do so as long as the modelled copy takes.
//! `cuMemAllocAsync` and `cuMemFreeAsync` act at once instead of in their stream's order.

use berth_proto::cuda::result;
use berth_proto::sim::{Direction, GraphWork, KernelCost, Reply, Request};

use crate::capture;
use crate::context;
use crate::edge::{Answer, Out};
use crate::objects::{self, Allocation, Stream};
use crate::process::{self, call, demand, obtain, post, unexpected};
use crate::stream::StreamArgument;

pub(crate) fn allocate(out: Out<u64>, bytes: usize, context: u64) -> Answer {
    out.check()?;
    if bytes == 0 {
        return Err(result::INVALID_VALUE);
    }
    capture::forbid_unsafe()?;
    let bytes = bytes as u64;
    let start = obtain(Request::MemAlloc { context, bytes })?;
    objects::lock().add_allocation(Allocation { start, bytes, context });
    out.set(start)
}

pub(crate) fn allocate_current(out: Out<u64>, bytes: usize) -> Answer {
    allocate(out, bytes, context::current()?)
}

pub(crate) fn allocate_async(out: Out<u64>, bytes: usize, stream: StreamArgument) -> Answer {
    let place = stream.place()?;
    capture::forbid_in(place)?;
    allocate(out, bytes, place.context)
}

/// Freeing nothing is allowed.
pub(crate) fn free(pointer: u64) -> Answer {
    process::get()?;
    if pointer == 0 {
        return Ok(());
    }
    let Allocation { context, .. } = objects::lock().allocation(pointer)?;
    capture::forbid_unsafe()?;
    demand(Request::MemFree { context, pointer })?;
    objects::lock().remove_allocation(pointer);
    Ok(())
}

pub(crate) fn free_async(pointer: u64, stream: StreamArgument) -> Answer {
    capture::forbid_in(stream.place()?)?;
    let Allocation { context, .. } = objects::lock().allocation(pointer)?;
    objects::lock().remove_allocation(pointer);
    post(Request::MemFree { context, pointer })
}

pub(crate) fn info(free: Out<usize>, total: Out<usize>) -> Answer {
    match call(Request::MemInfo { context: context::current()? })? {
        Reply::Memory { free: free_bytes, total: total_bytes } => {
            free.set(usize::try_from(free_bytes).unwrap_or(usize::MAX))?;
            total.set(usize::try_from(total_bytes).unwrap_or(usize::MAX))
        }
        reply => Err(unexpected(&reply)),
    }
}

pub(crate) fn address_range(base: Out<u64>, size: Out<usize>, pointer: u64) -> Answer {
    process::get()?;
    let allocation = objects::lock().holding(pointer, 0).ok_or(result::NOT_FOUND)?;
    base.set_if_wanted(allocation.start);
    size.set_if_wanted(usize::try_from(allocation.bytes).unwrap_or(usize::MAX));
    Ok(())
}

/// Where a copy starts and ends: device addresses, as far as the direction has them.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Ends {
    ToDevice { to: u64 },
    FromDevice { from: u64 },
    Within { to: u64, from: u64 },
}

impl Ends {
    /// Told apart by which address is the device's, for `cuMemcpy`.
    pub(crate) fn of(to: u64, from: u64) -> Answer<Self> {
        process::get()?;
        let objects = objects::lock();
        let on_device = |pointer| objects.holding(pointer, 0).is_some();
        match (on_device(to), on_device(from)) {
            (true, true) => Ok(Ends::Within { to, from }),
            (true, false) => Ok(Ends::ToDevice { to }),
            (false, true) => Ok(Ends::FromDevice { from }),
            (false, false) => Err(result::INVALID_VALUE),
        }
    }

    fn direction(self) -> Direction {
        match self {
            Ends::ToDevice { .. } => Direction::HostToDevice,
            Ends::FromDevice { .. } => Direction::DeviceToHost,
            Ends::Within { .. } => Direction::DeviceToDevice,
        }
    }

    fn check(self, bytes: u64) -> Answer {
        let objects = objects::lock();
        let inside = |pointer| objects.holding(pointer, bytes).map(drop).ok_or(result::INVALID_VALUE);
        match self {
            Ends::ToDevice { to } => inside(to),
            Ends::FromDevice { from } => inside(from),
            Ends::Within { to, from } => inside(to).and_then(|()| inside(from)),
        }
    }
}

/// A copy the caller waits for. One within the device is only queued, as the driver does it.
pub(crate) fn copy(ends: Ends, bytes: usize, stream: StreamArgument) -> Answer {
    if matches!(ends, Ends::Within { .. }) {
        return copy_async(ends, bytes, stream);
    }
    let place = stream.place()?;
    capture::forbid_in(place)?;
    capture::forbid_unsafe()?;
    if bytes == 0 {
        return Ok(());
    }
    let bytes = bytes as u64;
    ends.check(bytes)?;
    let Stream { context, stream, .. } = place;
    demand(Request::Copy { context, stream, direction: ends.direction(), bytes, wait: true })
}

pub(crate) fn copy_async(ends: Ends, bytes: usize, stream: StreamArgument) -> Answer {
    let place = stream.place()?;
    if bytes == 0 {
        return Ok(());
    }
    let bytes = bytes as u64;
    ends.check(bytes)?;
    capture::queue(place, GraphWork::Copy { direction: ends.direction(), bytes })
}

/// A fill is a kernel that only writes.
pub(crate) fn fill(pointer: u64, count: usize, unit: u64, stream: StreamArgument) -> Answer {
    let place = stream.place()?;
    let bytes = (count as u64).checked_mul(unit).ok_or(result::INVALID_VALUE)?;
    if bytes == 0 {
        return Ok(());
    }
    objects::lock().holding(pointer, bytes).ok_or(result::INVALID_VALUE)?;
    let cost = KernelCost { flops: 0.0, bytes: bytes as f64, blocks: bytes.div_ceil(FILL_BLOCK_BYTES) };
    capture::queue(place, GraphWork::Kernel(cost))
}

/// What one block of a fill writes.
const FILL_BLOCK_BYTES: u64 = 16 << 10;
