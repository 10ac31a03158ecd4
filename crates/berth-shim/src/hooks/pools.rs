//! Memory pools: which there are, and which of them keep what is freed.

use std::ffi::{c_int, c_void};

use berth_proto::cuda::result;

use crate::client::Client;
use crate::hooks::memory::{Properties, tell};
use crate::state::{self, MEMORY, guarded};
use crate::sys::driver::POOL_THRESHOLD;

/// The GPU whose default pool this is.
fn of_default(client: &Client, pool: u64) -> Option<usize> {
    client.lanes.iter().position(|lane| lane.device().and_then(|it| client.driver.default_pool(it)) == Some(pool))
}

fn made(pool: u64, device: Option<c_int>) {
    if state::minds(MEMORY) {
        guarded(|| {
            let client = state::client(MEMORY)?;
            let lane = device.map(|device| client.lane_of(device));
            // Of a GPU that is not minded nothing is counted either.
            client.pools.made(pool, lane.flatten());
            Some(())
        });
    }
}

fn keeps(pool: u64, bytes: u64) {
    if state::minds(MEMORY) {
        guarded(|| {
            let client = state::client(MEMORY)?;
            // The default pool of a GPU may be told to keep before the GPU is used.
            client.current_lane();
            client.pools.set_keeps(pool, bytes > 0, || of_default(client, pool));
            Some(())
        });
    }
}

crate::hooks::hooks! {
    cuMemPoolCreate: (out: *mut u64, properties: *const Properties) |real, _default| {
        // SAFETY: the caller's own arguments, as in all of these.
        let answer = unsafe { real(out, properties) };
        if answer == result::SUCCESS {
            // SAFETY: the driver has succeeded, so both are there.
            let (pool, wanted) = unsafe { (*out, &*properties) };
            made(pool, wanted.device());
        }
        answer
    };
    cuMemPoolSetAttribute: (pool: u64, attribute: c_int, value: *mut c_void) |real, _default| {
        // SAFETY: as above.
        let answer = unsafe { real(pool, attribute, value) };
        if answer == result::SUCCESS && attribute == POOL_THRESHOLD && !value.is_null() {
            // SAFETY: the driver has succeeded; a number of 64 bits, by its contract.
            keeps(pool, unsafe { value.cast::<u64>().read_unaligned() });
        }
        answer
    };
    cuMemPoolDestroy: (pool: u64) |real, _default| {
        let taken = guarded(|| state::attached()?.pools.take_out(pool));
        // SAFETY: as above.
        let answer = unsafe { real(pool) };
        if let Some(taken) = taken.filter(|_| answer != result::SUCCESS) {
            guarded(|| {
                state::attached()?.pools.put_back(taken);
                Some(())
            });
        }
        answer
    };
    cuMemPoolTrimTo: (pool: u64, keep: usize) |real, _default| {
        // SAFETY: as above.
        let answer = unsafe { real(pool, keep) };
        if state::minds(MEMORY) {
            guarded(|| {
                let client = state::client(MEMORY)?;
                (0..client.lanes.len()).filter(|lane| client.lanes[*lane].device().is_some()).for_each(|lane| tell(client, lane));
                Some(())
            });
        }
        answer
    };
}
