//! Device memory: booked before it is allocated, refused beyond the cap, and told as the cap leaves it.

use std::ffi::{c_int, c_uint, c_ulonglong};
use std::sync::atomic::Ordering;

use berth_proto::cuda::{CuResult, result};

use crate::book::Room;
use crate::capture::CAPTURES;
use crate::client::Client;
use crate::state::{self, MEMORY, guarded};

/// `CUmemAllocationProp`, as far as it says where: `CU_MEM_LOCATION_TYPE_DEVICE` is 1.
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

fn book(bytes: u64, device: Option<c_int>) -> Booked {
    if !state::minds(MEMORY) || CAPTURES.any() {
        return Booked::Not;
    }
    let booked = guarded(|| {
        let client = state::client(MEMORY)?;
        let lane = device.map_or_else(|| client.current_lane(), |device| client.lane_of(device))?;
        let limit = client.orders(lane).memory_bytes.load(Ordering::Relaxed);
        let taken = client.book().take(Room { lane, bytes }, limit);
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

fn tell(client: &Client, lane: usize) {
    client.ledger(lane).memory_bytes.store(client.book().used(lane), Ordering::Relaxed);
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

/// Memory that is at an address of its own.
fn allocate(out: *mut u64, bytes: usize, call: impl FnOnce() -> CuResult) -> CuResult {
    book(bytes as u64, None).run(call, |client, room| {
        let context = client.driver.current_context().unwrap_or(0);
        // SAFETY: the driver has succeeded, so the address is there.
        client.book().allocated(unsafe { *out }, room, room.bytes, context);
    })
}

fn freed(address: u64) -> impl FnOnce(&Client) -> Option<usize> {
    move |client| client.book().freed(address)
}

crate::hooks::hooks! {
    cuMemAlloc_v2: (out: *mut u64, bytes: usize) |real, _default|
        // SAFETY: the caller's own arguments, as in all of these.
        allocate(out, bytes, || unsafe { real(out, bytes) });
    cuMemAllocManaged: (out: *mut u64, bytes: usize, flags: c_uint) |real, _default|
        // SAFETY: as above.
        allocate(out, bytes, || unsafe { real(out, bytes, flags) });
    cuMemAllocAsync / cuMemAllocAsync_ptsz: (out: *mut u64, bytes: usize, stream: u64) |real, _default|
        // SAFETY: as above.
        allocate(out, bytes, || unsafe { real(out, bytes, stream) });
    cuMemAllocFromPoolAsync / cuMemAllocFromPoolAsync_ptsz: (out: *mut u64, bytes: usize, pool: u64, stream: u64) |real, _default|
        // SAFETY: as above.
        allocate(out, bytes, || unsafe { real(out, bytes, pool, stream) });
    cuMemAllocPitch_v2: (out: *mut u64, pitch: *mut usize, width: usize, height: usize, element: c_uint) |real, _default| {
        let row = (width as u64).next_multiple_of(PITCH_BYTES);
        book(row.saturating_mul(height as u64), None).run(
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
    cuMemFree_v2: (address: u64) |real, _default| gone(unsafe { real(address) }, freed(address));
    cuMemFreeAsync / cuMemFreeAsync_ptsz: (address: u64, stream: u64) |real, _default|
        // SAFETY: as above.
        gone(unsafe { real(address, stream) }, freed(address));
    cuMemCreate: (out: *mut u64, bytes: usize, properties: *const Properties, flags: c_ulonglong) |real, _default| {
        // SAFETY: null or properties, by the driver API's contract.
        let device = unsafe { properties.as_ref() }.filter(|it| it.location_kind == 1).map(|it| it.location);
        let booked = device.map_or(Booked::Not, |device| book(bytes as u64, Some(device)));
        // SAFETY: as above.
        booked.run(|| unsafe { real(out, bytes, properties, flags) }, |client, room| {
            // SAFETY: the driver has succeeded, so the handle is there.
            client.book().created(unsafe { *out }, room);
        })
    };
    // SAFETY: as above.
    cuMemRelease: (handle: u64) |real, _default| gone(unsafe { real(handle) }, |client| client.book().released(handle));
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
            let used = usize::try_from(client.book().used(lane)).unwrap_or(usize::MAX);
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
