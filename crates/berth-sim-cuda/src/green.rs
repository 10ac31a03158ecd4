//! Parts of a device's SMs, and contexts that run on them.
//!
//! A green context is the device's primary one with some of its SMs: what is launched into its streams runs on those. It can be made
//! current ([`context_of`]); streams made then, and its default stream, are its own.

use std::collections::HashMap;
use std::ffi::{c_int, c_uint};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use berth_proto::cuda::{DeviceResource, RESOURCE_SM, result};
use berth_proto::sim::Sms;

use crate::context;
use crate::device;
use crate::edge::{Answer, In, InArray, InOut, Out, OutArray};
use crate::objects::{self, Context, Stream};
use crate::primary;
use crate::process;
use crate::stream::{self, NON_BLOCKING, StreamArgument};

/// `CU_GREEN_CTX_DEFAULT_STREAM`, without which there is no green context.
const DEFAULT_STREAM: c_uint = 1;
/// `CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING`, and all flags of a split.
const FINE: c_uint = 1;
const SPLIT_FLAGS: c_uint = 3;

#[derive(Debug, Clone, Copy)]
struct Green {
    /// The primary context it is part of.
    context: u64,
    device: c_int,
    sms: Sms,
    /// As a context that can be current.
    handle: u64,
}

#[derive(Debug, Default)]
struct Greens {
    /// What descriptions stand for.
    described: HashMap<u64, (c_int, Sms)>,
    greens: HashMap<u64, Green>,
    /// Which green context a stream is of.
    streams: HashMap<u64, u64>,
}

static GREENS: LazyLock<Mutex<Greens>> = LazyLock::new(Mutex::default);

/// Never held while waiting for the server.
fn lock() -> MutexGuard<'static, Greens> {
    GREENS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn resource(device: c_int, sms: Sms) -> Answer<DeviceResource> {
    let (min_partition, step) = grain(device::gpu(device)?.about.compute_capability.0);
    Ok(DeviceResource {
        kind: if sms.count > 0 { RESOURCE_SM } else { 0 },
        device,
        first_sm: sms.first,
        internal: [0; 84],
        sm_count: sms.count,
        min_partition,
        alignment: step,
        reserved: [0; 36],
    })
}

/// The fewest SMs of a part, and the steps it grows by, by the major compute capability.
fn grain(major: u32) -> (u32, u32) {
    match major {
        9.. => (8, 8),
        8 => (4, 2),
        _ => (2, 2),
    }
}

fn all(device: c_int) -> Answer<Sms> {
    Ok(Sms { first: 0, count: device::gpu(device)?.about.sm_count })
}

pub(crate) fn of_device(device: c_int, out: Out<DeviceResource>, kind: c_uint) -> Answer {
    give(device, all(device)?, out, kind)
}

pub(crate) fn of_context(context: u64, out: Out<DeviceResource>, kind: c_uint) -> Answer {
    let handle = context::handle_or_current(context)?;
    let known = objects::lock().context(handle)?;
    let green = lock().greens.values().find(|green| green.handle == handle).copied();
    give(known.device, green.map_or(all(known.device), |green| Ok(green.sms))?, out, kind)
}

pub(crate) fn of_green(green: u64, out: Out<DeviceResource>, kind: c_uint) -> Answer {
    let known = find(green)?;
    give(known.device, known.sms, out, kind)
}

fn give(device: c_int, sms: Sms, out: Out<DeviceResource>, kind: c_uint) -> Answer {
    if kind != RESOURCE_SM {
        return Err(result::INVALID_RESOURCE_TYPE);
    }
    out.set(resource(device, sms)?)
}

/// Where a split puts its groups and how many there is room for, and the rest.
pub(crate) struct Split {
    pub(crate) groups: OutArray<DeviceResource>,
    pub(crate) count: InOut<c_uint>,
    pub(crate) rest: Out<DeviceResource>,
}

/// Groups of at least `least` SMs each; without room for them only their number is told.
pub(crate) fn split(to: Split, from: In<DeviceResource>, flags: c_uint, least: c_uint) -> Answer {
    process::get()?;
    let from = from.get().filter(|from| from.kind == RESOURCE_SM).ok_or(result::INVALID_RESOURCE_TYPE)?;
    let major = device::gpu(from.device)?.about.compute_capability.0;
    if flags & !SPLIT_FLAGS != 0 || least > from.sm_count {
        return Err(result::INVALID_VALUE);
    }
    let is_whole = from.sm_count == all(from.device)?.count;
    let (size, there) = groups(from.sm_count, least, if flags & FINE != 0 { (2, 2) } else { grain(major) }, is_whole);
    if there == 0 {
        return Err(result::INVALID_RESOURCE_CONFIGURATION);
    }
    let made = if to.groups.is_wanted() { to.count.get()?.min(there) } else { there };
    for group in 0..made {
        let sms = Sms { first: from.first_sm + group * size, count: size };
        to.groups.set(group as usize, resource(from.device, sms)?);
    }
    to.count.set(made);
    let rest = Sms { first: from.first_sm + made * size, count: from.sm_count - made * size };
    to.rest.set_if_wanted(resource(from.device, rest)?);
    Ok(())
}

/// How large groups are and how many there are. Of the whole device there is one group of the least size less than would fit: measured
/// on an H200 (132 SMs: 15 of 8, 8 of 16, 4 of 32).
fn groups(sms: u32, least: u32, (min, step): (u32, u32), is_whole: bool) -> (u32, u32) {
    let size = least.max(min).next_multiple_of(step);
    let fit = sms / size;
    let is_odd_one = is_whole && size == min && size > 2 && !sms.is_multiple_of(size);
    (size, if is_odd_one { fit.saturating_sub(1) } else { fit })
}

/// Several parts are one if they lie side by side.
pub(crate) fn describe(out: Out<u64>, parts: InArray<DeviceResource>, count: c_uint) -> Answer {
    process::get()?;
    out.check()?;
    let mut parts = parts.get(count as usize).filter(|parts| !parts.is_empty()).ok_or(result::INVALID_VALUE)?;
    parts.sort_by_key(|part| part.first_sm);
    let apart = |pair: &[DeviceResource]| {
        pair[0].device != pair[1].device || pair[0].first_sm + pair[0].sm_count != pair[1].first_sm
    };
    if parts.iter().any(|part| part.kind != RESOURCE_SM) {
        return Err(result::INVALID_RESOURCE_TYPE);
    }
    if parts.windows(2).any(apart) {
        return Err(result::INVALID_RESOURCE_CONFIGURATION);
    }
    let sms = Sms { first: parts[0].first_sm, count: parts.iter().map(|part| part.sm_count).sum() };
    let description = objects::lock().fresh_handle();
    lock().described.insert(description, (parts[0].device, sms));
    out.set(description)
}

pub(crate) fn create(out: Out<u64>, description: u64, device: c_int, flags: c_uint) -> Answer {
    process::get()?;
    out.check()?;
    let (of, sms) = lock().described.get(&description).copied().ok_or(result::INVALID_VALUE)?;
    if of != device || flags != DEFAULT_STREAM {
        return Err(result::INVALID_VALUE);
    }
    let context = primary::hold(device)?;
    let mut objects = objects::lock();
    let (green, handle) = (objects.fresh_handle(), objects.fresh_handle());
    objects.contexts.insert(handle, Context { device, flags: 0, is_primary: true, part_of: Some(context) });
    drop(objects);
    lock().greens.insert(green, Green { context, device, sms, handle });
    out.set(green)
}

pub(crate) fn destroy(green: u64) -> Answer {
    process::get()?;
    let gone = lock().greens.remove(&green).ok_or(result::INVALID_VALUE)?;
    lock().streams.retain(|_, of| *of != green);
    objects::lock().contexts.remove(&gone.handle);
    primary::release(gone.device)
}

pub(crate) fn context_of(out: Out<u64>, green: u64) -> Answer {
    process::get()?;
    out.set(find(green)?.handle)
}

pub(crate) fn create_stream(out: Out<u64>, green: u64, flags: c_uint, priority: c_int) -> Answer {
    process::get()?;
    out.check()?;
    let Green { context, sms, .. } = find(green)?;
    if flags != NON_BLOCKING {
        return Err(result::INVALID_VALUE);
    }
    let stream = stream::make(context, flags, priority, sms)?;
    lock().streams.insert(stream, green);
    out.set(stream)
}

/// 0 for a stream of no green context.
pub(crate) fn of_stream(stream: StreamArgument, out: Out<u64>) -> Answer {
    let Stream { handle, .. } = stream.place()?;
    out.set(lock().streams.get(&handle).copied().unwrap_or(0))
}

/// The SMs of a context that is current; all of them of one that is not green.
pub(crate) fn sms_of(handle: u64) -> Sms {
    lock().greens.values().find(|green| green.handle == handle).map_or(Sms::ALL, |green| green.sms)
}

fn find(green: u64) -> Answer<Green> {
    lock().greens.get(&green).copied().ok_or(result::INVALID_VALUE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_h200_divides_as_measured() {
        for (least, size, count) in
            [(1, 8, 15), (8, 8, 15), (9, 16, 8), (16, 16, 8), (32, 32, 4), (72, 72, 1), (132, 136, 0)]
        {
            assert_eq!(groups(132, least, grain(9), true), (size, count), "{least}");
        }
        assert_eq!(groups(132, 60, (2, 2), true), (60, 2), "without SMs that are scheduled together");
        assert_eq!(groups(16, 8, grain(9), false), (8, 2), "of a part all that fits");
    }
}
