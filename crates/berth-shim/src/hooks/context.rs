//! Contexts that go: what we have in them is not used again. A context of which others still have a share stays.

use std::cell::Cell;
use std::ffi::c_int;

use berth_proto::cuda::{CuResult, result};

use crate::state::{self, guarded};
use crate::told::{self, Awaited};

/// How a context goes.
enum Going {
    Context(u64),
    /// Lowers a count; the context goes with the last one.
    Release(c_int),
    /// Whoever still has a share of it.
    Reset(c_int),
}

fn goes(going: &Going, real: impl Fn() -> CuResult) -> CuResult {
    // Called once, whatever becomes of us.
    let told = Cell::new(None);
    let call = || {
        let answer = real();
        told.set(Some(answer));
        answer == result::SUCCESS
    };
    guarded(|| {
        let client = state::attached()?;
        match going {
            Going::Context(context) => client.destroy(Some(*context), call),
            Going::Release(device) => {
                client.destroy(client.driver.primary(*device), || call() && !client.driver.has_primary(*device));
            }
            Going::Reset(device) => client.destroy(client.driver.primary(*device), call),
        }
        Some(())
    });
    told.get().unwrap_or_else(real)
}

/// Waits for all that a context has.
fn wait(context: Option<u64>, real: impl Fn() -> CuResult) -> CuResult {
    let waiting = told::begin(Awaited::Context(context));
    let answer = real();
    told::end(waiting, answer == result::SUCCESS);
    answer
}

crate::hooks::hooks! {
    // SAFETY: the caller's own arguments, as in all of these.
    cuCtxSynchronize: () |real, _default| wait(None, || unsafe { real() });
    // SAFETY: as above.
    cuCtxSynchronize_v2: (context: u64) |real, _default| wait(Some(context), || unsafe { real(context) });
    // SAFETY: as above.
    cuCtxDestroy: (context: u64) |real, _default| goes(&Going::Context(context), || unsafe { real(context) });
    // SAFETY: as above.
    cuCtxDestroy_v2: (context: u64) |real, _default| goes(&Going::Context(context), || unsafe { real(context) });
    // SAFETY: as above.
    cuDevicePrimaryCtxRelease: (device: c_int) |real, _default| goes(&Going::Release(device), || unsafe { real(device) });
    // SAFETY: as above.
    cuDevicePrimaryCtxRelease_v2: (device: c_int) |real, _default| goes(&Going::Release(device), || unsafe { real(device) });
    // SAFETY: as above.
    cuDevicePrimaryCtxReset: (device: c_int) |real, _default| goes(&Going::Reset(device), || unsafe { real(device) });
    // SAFETY: as above.
    cuDevicePrimaryCtxReset_v2: (device: c_int) |real, _default| goes(&Going::Reset(device), || unsafe { real(device) });
}
