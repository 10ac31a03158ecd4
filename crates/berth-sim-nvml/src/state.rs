//! Whether NVML is initialised, and the snapshot it answers from.

use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use berth_proto::nvml::result;
use berth_proto::nvml_state::{self, Area, Gpu, Host, MAX_GPUS, Reader};
use berth_proto::sim_dir;

use crate::edge::Answer;

/// How often NVML was initialised more than it was shut down.
static HOLDERS: AtomicU32 = AtomicU32::new(0);
/// The mapped snapshot. A mapping is kept for ever, so that no reader can lose it; there is a new one only after the
/// old one's simulator died.
static READER: AtomicPtr<Reader> = AtomicPtr::new(std::ptr::null_mut());

/// Device handles are this plus the index, so that neither null nor a number somebody made up is one.
const HANDLE_BASE: u64 = 0x6265_7274_6800;

pub(crate) fn init() -> Answer {
    let reader = match current().filter(|reader| is_alive(reader)) {
        Some(reader) => reader,
        None => open()?,
    };
    if let Some(code) = host_of(reader)?.fault(Area::Init) {
        return Err(code);
    }
    HOLDERS.fetch_add(1, Ordering::AcqRel);
    Ok(())
}

pub(crate) fn shutdown() -> Answer {
    let left = HOLDERS.fetch_update(Ordering::AcqRel, Ordering::Acquire, |holders| holders.checked_sub(1));
    left.map(drop).map_err(|_| result::UNINITIALIZED)
}

fn open() -> Answer<&'static Reader> {
    let dir = sim_dir::find(open as *const c_void).ok_or(result::DRIVER_NOT_LOADED)?;
    let reader = Reader::open(&dir.join(nvml_state::FILE_NAME)).map_err(|_| result::DRIVER_NOT_LOADED)?;
    if !is_alive(&reader) {
        return Err(result::DRIVER_NOT_LOADED);
    }
    let reader: &'static Reader = Box::leak(Box::new(reader));
    READER.store(std::ptr::from_ref(reader).cast_mut(), Ordering::Release);
    Ok(reader)
}

fn current() -> Option<&'static Reader> {
    // SAFETY: only ever null or a leaked box, which is never written again.
    unsafe { READER.load(Ordering::Acquire).as_ref() }
}

fn is_alive(reader: &Reader) -> bool {
    reader.is_alive(monotonic_ns())
}

/// Nanoseconds of `CLOCK_MONOTONIC`, which the simulator's sign of life is told in.
pub(crate) fn monotonic_ns() -> u64 {
    nanos(libc::CLOCK_MONOTONIC)
}

/// Microseconds since the epoch, which samples are dated in.
pub(crate) fn epoch_us() -> u64 {
    nanos(libc::CLOCK_REALTIME) / 1000
}

fn nanos(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the answer; these clocks always exist.
    unsafe { libc::clock_gettime(clock, &mut time) };
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

fn reader() -> Answer<&'static Reader> {
    if HOLDERS.load(Ordering::Acquire) == 0 {
        return Err(result::UNINITIALIZED);
    }
    current().ok_or(result::UNINITIALIZED)
}

/// A snapshot that cannot be read whole lost its writer half-way.
fn host_of(reader: &Reader) -> Answer<Host> {
    reader.host().map_err(|_| result::GPU_IS_LOST)
}

/// What holds for the machine, known even when the simulator is gone.
pub(crate) fn host() -> Answer<Host> {
    host_of(reader()?)
}

/// As [`host`], for a function of `area`: fails when that area is broken or the simulator is gone.
pub(crate) fn host_for(area: Area) -> Answer<Host> {
    let reader = reader()?;
    if !is_alive(reader) {
        return Err(result::GPU_IS_LOST);
    }
    let host = host_of(reader)?;
    host.fault(area).map_or(Ok(host), Err)
}

pub(crate) fn handle(index: u32) -> u64 {
    HANDLE_BASE + u64::from(index)
}

pub(crate) fn index_of(device: u64) -> Answer<u32> {
    let index = device.checked_sub(HANDLE_BASE).and_then(|index| u32::try_from(index).ok());
    index.filter(|index| (*index as usize) < MAX_GPUS).ok_or(result::INVALID_ARGUMENT)
}

/// The GPU behind a handle, for a function of `area`.
pub(crate) fn gpu(device: u64, area: Area) -> Answer<(Host, Gpu)> {
    let host = host_for(area)?;
    let index = index_of(device)?;
    if index >= host.gpu_count {
        return Err(result::INVALID_ARGUMENT);
    }
    let gpu = gpu_at(index)?;
    if gpu.lost { Err(result::GPU_IS_LOST) } else { Ok((host, gpu)) }
}

/// The GPU at an index, lost or not.
pub(crate) fn gpu_at(index: u32) -> Answer<Gpu> {
    reader()?.gpu(index as usize).map_err(|_| result::GPU_IS_LOST)
}
