//! The context each device shares among the libraries of a process, counted by who holds it.

use std::collections::HashMap;
use std::ffi::{c_int, c_uint};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use berth_proto::cuda::result;

use crate::context;
use crate::device;
use crate::edge::{Answer, Out};

#[derive(Debug, Default)]
struct Primary {
    context: Option<u64>,
    holders: u32,
    flags: c_uint,
}

static PRIMARIES: LazyLock<Mutex<HashMap<c_int, Primary>>> = LazyLock::new(Mutex::default);

/// Held while a primary context is made or ended: a second thread that wants it has to wait for it anyway.
fn lock() -> MutexGuard<'static, HashMap<c_int, Primary>> {
    PRIMARIES.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn retain(out: Out<u64>, device: c_int) -> Answer {
    out.check()?;
    out.set(hold(device)?)
}

/// The context, held once more.
pub(crate) fn hold(device: c_int) -> Answer<u64> {
    device::gpu(device)?;
    let mut primaries = lock();
    let primary = primaries.entry(device).or_default();
    let context = match primary.context {
        Some(context) => context,
        None => context::make(device, primary.flags, true)?,
    };
    primary.context = Some(context);
    primary.holders += 1;
    Ok(context)
}

pub(crate) fn release(device: c_int) -> Answer {
    device::gpu(device)?;
    let mut primaries = lock();
    let primary = primaries.entry(device).or_default();
    let context = primary.context.ok_or(result::INVALID_CONTEXT)?;
    primary.holders = primary.holders.saturating_sub(1);
    if primary.holders > 0 {
        return Ok(());
    }
    primary.context = None;
    context::unmake(context)
}

pub(crate) fn reset(device: c_int) -> Answer {
    device::gpu(device)?;
    let mut primaries = lock();
    let primary = primaries.entry(device).or_default();
    primary.holders = 0;
    match primary.context.take() {
        Some(context) => context::unmake(context),
        None => Ok(()),
    }
}

pub(crate) fn state(device: c_int, flags: Out<c_uint>, active: Out<c_int>) -> Answer {
    device::gpu(device)?;
    let mut primaries = lock();
    let primary = primaries.entry(device).or_default();
    flags.set(primary.flags)?;
    active.set(primary.context.is_some().into())
}

pub(crate) fn set_flags(device: c_int, flags: c_uint) -> Answer {
    device::gpu(device)?;
    lock().entry(device).or_default().flags = flags;
    Ok(())
}
