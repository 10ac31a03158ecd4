//! Device memory: booked before it is allocated, refused beyond the cap, and told as the cap leaves it.

use std::ffi::{c_int, c_uint, c_ulonglong};
use std::sync::atomic::Ordering;

use berth_proto::cuda::{CuResult, result};

use crate::book::Room;
use crate::capture::CAPTURES;
use crate::client::Client;
use crate::pools;
use crate::state::{self, MEMORY, guarded};

/// `CUmemAllocationProp` and `CUmemPoolProps`, as far as they say where: `CU_MEM_LOCATION_TYPE_DEVICE` is 1.
#[repr(C)]
pub struct Properties {
    kind: c_int,
    handle_kinds: c_int,
    location_kind: c_int,
    location: c_int,
}

/// Rows of pitched memory are at least this far apart, as far as one can tell before.
const PITCH_BYTES: u64 = 512;

/// What is booked for an allocation that is about to be made.
enum Booked {
    /// Nobody minds.
    Not,
    Room(&'static Client, Room),
    Refused,
}

/// On which GPU memory is to be.
#[derive(Debug, Clone, Copy)]
pub(super) enum On {
    /// That of the thread's context.
    Current,
    Device(c_int),
    /// That of a stream. In one that captures it is a node of a graph, which is not counted.
    Stream(u64),
    /// That of a pool, in a stream.
    Pool {
        pool: u64,
        stream: u64,
    },
}

impl Properties {
    pub(super) fn device(&self) -> Option<c_int> {
        (self.location_kind == 1).then_some(self.location)
    }
}

fn book(bytes: u64, on: On) -> Booked {
    if !state::minds(MEMORY) {
        return Booked::Not;
    }
    let booked = guarded(|| {
        let client = state::client(MEMORY)?;
        let lane = match on {
            On::Current => client.current_lane()?,
            On::Device(device) => client.lane_of(device)?,
            On::Stream(stream) | On::Pool { stream, .. } if CAPTURES.has(&client.driver, stream) => return None,
            On::Stream(stream) => client.stream(stream)?.lane,
            On::Pool { pool, stream } => match client.pools.place(pool) {
                Some(place) => place?,
                None => client.stream(stream)?.lane,
            },
        };
        let limit = client.orders(lane).memory_bytes.load(Ordering::Relaxed);
        let pool = || match on {
            On::Current | On::Device(_) => None,
            On::Stream(_) => client.driver.current_pool(client.lanes[lane].device()?),
            On::Pool { pool, .. } => Some(pool),
        };
        let taken = pools::take(client, Room { lane, bytes }, limit, pool);
        if taken.is_none() {
            client.ledger(lane).memory_refused.fetch_add(1, Ordering::Relaxed);
        }
        Some(taken.map_or(Booked::Refused, |room| Booked::Room(client, room)))
    });
    booked.unwrap_or(Booked::Not)
}

impl Booked {
    /// Runs the allocation, unless it is refused; `done` writes down what became of it.
    fn run(self, allocate: impl FnOnce() -> CuResult, done: impl FnOnce(&Client, Room)) -> CuResult {
        let (client, room) = match self {
            Self::Not => return allocate(),
            Self::Refused => return result::OUT_OF_MEMORY,
            Self::Room(client, room) => (client, room),
        };
        let answer = allocate();
        guarded(|| {
            if answer == result::SUCCESS {
                done(client, room)
            } else {
                client.book().give_back(room)
            }
            tell(client, room.lane);
            Some(())
        });
        answer
    }
}

pub(super) fn tell(client: &Client, lane: usize) {
    client.ledger(lane).memory_bytes.store(client.allocated(lane), Ordering::Relaxed);
}

/// After memory is gone; `which` says on what GPU.
fn gone(answer: CuResult, which: impl FnOnce(&Client) -> Option<usize>) -> CuResult {
    if answer == result::SUCCESS && state::minds(MEMORY) {
        guarded(|| {
            let client = state::client(MEMORY)?;
            let lane = which(client)?;
            tell(client, lane);
            Some(())
        });
    }
    answer
}

/// Memory that is at an address of its own, or has a handle, which is one of the host's.
pub(super) fn allocate(out: *mut u64, bytes: usize, on: On, call: impl FnOnce() -> CuResult) -> CuResult {
    book(bytes as u64, on).run(call, |client, room| {
        let context = client.driver.current_context().unwrap_or(0);
        // SAFETY: the driver has succeeded, so the address is there.
        client.book().allocated(unsafe { *out }, room, room.bytes, context);
    })
}

/// What is to go is taken out of the book before the driver gives its address to another.
pub(super) fn free(address: u64, call: impl FnOnce() -> CuResult) -> CuResult {
    let take = || guarded(|| state::client(MEMORY)?.book().take_out(address));
    let taken = if state::minds(MEMORY) { take() } else { None };
    let answer = call();
    if let Some(taken) = taken {
        guarded(|| {
            let client = state::attached()?;
            match answer {
                result::SUCCESS => {
                    let lane = client.book().freed(taken);
                    tell(client, lane);
                }
                _ => client.book().put_back(taken),
            }
            Some(())
        });
    }
    answer
}

fn release(handle: u64, call: impl FnOnce() -> CuResult) -> CuResult {
    let take = || guarded(|| state::client(MEMORY)?.book().release(handle));
    let before = if state::minds(MEMORY) { take() } else { None };
    let answer = call();
    if let Some(before) = before {
        guarded(|| {
            let (client, lane) = (state::attached()?, before.1.lane());
            if answer != result::SUCCESS {
                client.book().unreleased(before);
            }
            tell(client, lane);
            Some(())
        });
    }
    answer
}

crate::hooks::hooks! {
    cuMemAlloc_v2: (out: *mut u64, bytes: usize) |real, _default|
        // SAFETY: the caller's own arguments, as in all of these.
        allocate(out, bytes, On::Current, || unsafe { real(out, bytes) });
    cuMemAllocManaged: (out: *mut u64, bytes: usize, flags: c_uint) |real, _default|
        // SAFETY: as above.
        allocate(out, bytes, On::Current, || unsafe { real(out, bytes, flags) });
    cuMemAllocAsync / cuMemAllocAsync_ptsz: (out: *mut u64, bytes: usize, stream: u64) |real, default|
        // SAFETY: as above.
        allocate(out, bytes, On::Stream(default.of(stream)), || unsafe { real(out, bytes, stream) });
    cuMemAllocFromPoolAsync / cuMemAllocFromPoolAsync_ptsz: (out: *mut u64, bytes: usize, pool: u64, stream: u64) |real, default|
        // SAFETY: as above.
        allocate(out, bytes, On::Pool { pool, stream: default.of(stream) }, || unsafe { real(out, bytes, pool, stream) });
    cuMemAllocPitch_v2: (out: *mut u64, pitch: *mut usize, width: usize, height: usize, element: c_uint) |real, _default| {
        let row = (width as u64).next_multiple_of(PITCH_BYTES);
        book(row.saturating_mul(height as u64), On::Current).run(
            // SAFETY: as above.
            || unsafe { real(out, pitch, width, height, element) },
            |client, room| {
                // SAFETY: the driver has succeeded, so address and pitch are there.
                let (address, pitch) = unsafe { (*out, *pitch) };
                let (bytes, context) = ((pitch as u64).saturating_mul(height as u64), client.driver.current_context());
                client.book().allocated(address, room, bytes, context.unwrap_or(0));
            },
        )
    };
    // SAFETY: as above.
    cuMemFree_v2: (address: u64) |real, _default| free(address, || unsafe { real(address) });
    cuMemFreeAsync / cuMemFreeAsync_ptsz: (address: u64, stream: u64) |real, _default|
        // SAFETY: as above.
        free(address, || unsafe { real(address, stream) });
    cuMemCreate: (out: *mut u64, bytes: usize, properties: *const Properties, flags: c_ulonglong) |real, _default| {
        // SAFETY: null or properties, by the driver API's contract.
        let device = unsafe { properties.as_ref() }.and_then(Properties::device);
        let booked = device.map_or(Booked::Not, |device| book(bytes as u64, On::Device(device)));
        // SAFETY: as above.
        booked.run(|| unsafe { real(out, bytes, properties, flags) }, |client, room| {
            // SAFETY: the driver has succeeded, so the handle is there.
            client.book().created(unsafe { *out }, room);
        })
    };
    // SAFETY: as above.
    cuMemRelease: (handle: u64) |real, _default| release(handle, || unsafe { real(handle) });
    cuMemMap: (address: u64, bytes: usize, offset: usize, handle: u64, flags: c_ulonglong) |real, _default|
        // SAFETY: as above.
        gone(unsafe { real(address, bytes, offset, handle, flags) }, |client| {
            client.book().mapped(address, handle);
            None
        });
    cuMemUnmap: (address: u64, bytes: usize) |real, _default|
        // SAFETY: as above.
        gone(unsafe { real(address, bytes) }, |client| client.book().unmapped(address, bytes as u64));
    cuMemRetainAllocationHandle: (out: *mut u64, address: u64) |real, _default|
        // SAFETY: as above.
        gone(unsafe { real(out, address) }, |client| {
            client.book().retained(address);
            None
        });
    cuMemGetInfo_v2: (free: *mut usize, total: *mut usize) |real, _default| {
        // SAFETY: as above.
        let answer = unsafe { real(free, total) };
        gone(answer, |client| {
            let lane = client.current_lane()?;
            let limit = usize::try_from(client.orders(lane).memory_bytes.load(Ordering::Relaxed)).ok().filter(|it| *it > 0)?;
            let used = usize::try_from(client.allocated(lane)).unwrap_or(usize::MAX);
            // SAFETY: the driver has succeeded; what is null is passed over.
            unsafe {
                if let Some(total) = total.as_mut() {
                    *total = limit.min(*total);
                }
                if let Some(free) = free.as_mut() {
                    *free = limit.saturating_sub(used).min(*free);
                }
            }
            None
        })
    };
}
