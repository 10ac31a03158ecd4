//! Contexts, and which one is current in a thread.

use std::cell::RefCell;
use std::ffi::{c_int, c_uint};

use berth_proto::cuda::result;
use berth_proto::sim::Request;

use crate::capture;
use crate::device;
use crate::edge::{Answer, Out};
use crate::graph;
use crate::objects::{self, Context};
use crate::process::{self, demand, obtain};
use crate::words;

/// What `cuCtxGetApiVersion` says: the version that brought `cuCtxCreate_v2`.
const API_VERSION: c_uint = 3020;

thread_local! {
    /// The thread's stack of contexts; the last is current. 0 stands for "none".
    static STACK: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

fn with_stack<T>(work: impl FnOnce(&mut Vec<u64>) -> T) -> Answer<T> {
    STACK.try_with(|stack| work(&mut stack.borrow_mut())).map_err(|_| result::DEINITIALIZED)
}

/// The current context as the server knows it, alive.
pub(crate) fn current() -> Answer<u64> {
    current_handle().map(|(_, context)| context)
}

/// The program's handle of the current context, and the server's.
pub(crate) fn current_handle() -> Answer<(u64, u64)> {
    process::get()?;
    let top = with_stack(|stack| stack.last().copied())?;
    let handle = top.filter(|context| *context != 0).ok_or(result::INVALID_CONTEXT)?;
    let objects = objects::lock();
    let known = objects.contexts.get(&handle).ok_or(result::CONTEXT_IS_DESTROYED)?;
    Ok((handle, known.part_of.unwrap_or(handle)))
}

/// Makes a context on a device; its caller decides whether it becomes current.
pub(crate) fn make(device: c_int, flags: c_uint, is_primary: bool) -> Answer<u64> {
    let index = device::gpu(device)?.index;
    let context = obtain(Request::ContextCreate { device: index })?;
    objects::lock().contexts.insert(context, Context { device, flags, is_primary, part_of: None });
    Ok(context)
}

/// Takes a context and everything in it off the GPU.
pub(crate) fn unmake(context: u64) -> Answer {
    demand(Request::ContextDestroy { context })?;
    words::forget_context(context);
    capture::forget_context(context);
    graph::forget_context(context);
    objects::lock().forget_context(context);
    Ok(())
}

pub(crate) fn create(out: Out<u64>, flags: c_uint, device: c_int) -> Answer {
    out.check()?;
    let context = make(device, flags, false)?;
    with_stack(|stack| stack.push(context))?;
    out.set(context)
}

pub(crate) fn destroy(context: u64) -> Answer {
    process::get()?;
    let known = objects::lock().context(context)?;
    if known.is_primary {
        return Err(result::INVALID_CONTEXT);
    }
    unmake(context)?;
    with_stack(|stack| {
        if stack.last() == Some(&context) {
            stack.pop();
        }
    })
}

pub(crate) fn push(context: u64) -> Answer {
    process::get()?;
    objects::lock().context(context)?;
    with_stack(|stack| stack.push(context))
}

pub(crate) fn pop(out: Out<u64>) -> Answer {
    process::get()?;
    let context = with_stack(Vec::pop)?.ok_or(result::INVALID_CONTEXT)?;
    out.set_if_wanted(context);
    Ok(())
}

/// Replaces the current context; 0 takes it away.
pub(crate) fn set_current(context: u64) -> Answer {
    process::get()?;
    if context != 0 {
        objects::lock().context(context)?;
    }
    with_stack(|stack| {
        stack.pop();
        if context != 0 {
            stack.push(context);
        }
    })
}

pub(crate) fn get_current(out: Out<u64>) -> Answer {
    process::get()?;
    out.set(with_stack(|stack| stack.last().copied())?.unwrap_or(0))
}

/// As the server knows it; 0 means the current one.
pub(crate) fn or_current(context: u64) -> Answer<u64> {
    let handle = handle_or_current(context)?;
    Ok(objects::lock().context(handle)?.part_of.unwrap_or(handle))
}

/// As the program knows it; 0 means the current one.
pub(crate) fn handle_or_current(context: u64) -> Answer<u64> {
    if context == 0 {
        return current_handle().map(|(handle, _)| handle);
    }
    process::get()?;
    objects::lock().context(context).map(|_| context)
}

/// A number no other context of this driver has.
pub(crate) fn id(context: u64, out: Out<u64>) -> Answer {
    out.set(handle_or_current(context)?)
}

pub(crate) fn device(out: Out<c_int>, context: u64) -> Answer {
    let context = handle_or_current(context)?;
    let device = objects::lock().context(context)?.device;
    out.set(device)
}

pub(crate) fn synchronize(context: u64) -> Answer {
    let context = or_current(context)?;
    capture::forbid_in_context(context)?;
    capture::forbid_unsafe()?;
    demand(Request::ContextSync { context })
}

pub(crate) fn flags(out: Out<c_uint>) -> Answer {
    let (context, _) = current_handle()?;
    let flags = objects::lock().context(context)?.flags;
    out.set(flags)
}

pub(crate) fn api_version(context: u64, out: Out<c_uint>) -> Answer {
    or_current(context)?;
    out.set(API_VERSION)
}

/// The least and the greatest priority of a stream: the lower number goes first.
pub(crate) const PRIORITIES: (c_int, c_int) = (0, -5);

pub(crate) fn priority_range(least: Out<c_int>, greatest: Out<c_int>) -> Answer {
    current()?;
    least.set_if_wanted(PRIORITIES.0);
    greatest.set_if_wanted(PRIORITIES.1);
    Ok(())
}
