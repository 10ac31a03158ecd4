//! The calls the safe wrapper makes twice (once to count, once to read): at twenty processes each costs the driver
//! 0.3 ms, so they are made once, into a buffer that remembers how much was needed last time.

use std::path::Path;

use nvml_wrapper::error::{NvmlError as Code, nvml_sym, nvml_try};
use nvml_wrapper::gpm::GpmSample;
use nvml_wrapper::struct_wrappers::device::{ProcessInfo, ProcessUtilizationSample};
use nvml_wrapper::{Device, Nvml};
use nvml_wrapper_sys::bindings::{
    NvmlLib, nvmlGpmSample_t, nvmlProcessInfo_t, nvmlProcessUtilizationSample_t,
    nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE, nvmlReturn_t,
};

/// Room for this many more than were there last time; then a newcomer costs no second call.
const HEADROOM: usize = 16;

const INSUFFICIENT_SIZE: nvmlReturn_t = nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE;

/// How often to follow a list that grows while it is read.
const ATTEMPTS: usize = 5;

#[derive(Debug, Clone, Copy)]
pub enum List {
    Compute,
    Graphics,
    Mps,
}

/// Space the driver writes into, kept between calls.
#[derive(Debug, Default)]
pub struct Buffers {
    processes: Vec<nvmlProcessInfo_t>,
    samples: Vec<nvmlProcessUtilizationSample_t>,
}

/// A reading of a GPU's counters between two calls, when it cannot borrow the library it is of.
#[derive(Debug)]
pub struct KeptSample(nvmlGpmSample_t);

// SAFETY: a sample is memory of the library's, which any thread may use, one at a time.
unsafe impl Send for KeptSample {}

impl KeptSample {
    pub fn of(sample: GpmSample<'_>) -> Self {
        Self(sample.into_handle())
    }

    /// Of the library it was taken from, which whoever closes it does first.
    pub fn into_sample(self, nvml: &Nvml) -> GpmSample<'_> {
        // SAFETY: it was taken out of a sample of this library, and nobody else has it.
        unsafe { GpmSample::from_handle(nvml, self.0) }
    }
}

/// The first function berth cannot do without that `library` lacks; the loader's words if it cannot be loaded at all.
pub fn missing_symbol(library: &Path) -> Result<Option<&'static str>, String> {
    // SAFETY: loading runs the file's initialisers; the administrator named it as the driver's library.
    let lib = unsafe { NvmlLib::new(library) }.map_err(|error| error.to_string())?;
    let needed = [
        ("nvmlInit_v2", lib.nvmlInit_v2.is_err()),
        ("nvmlShutdown", lib.nvmlShutdown.is_err()),
        ("nvmlDeviceGetCount_v2", lib.nvmlDeviceGetCount_v2.is_err()),
        ("nvmlDeviceGetHandleByIndex_v2", lib.nvmlDeviceGetHandleByIndex_v2.is_err()),
        ("nvmlDeviceGetUUID", lib.nvmlDeviceGetUUID.is_err()),
        ("nvmlDeviceGetComputeRunningProcesses_v3", lib.nvmlDeviceGetComputeRunningProcesses_v3.is_err()),
    ];
    Ok(needed.into_iter().find_map(|(name, is_missing)| is_missing.then_some(name)))
}

pub fn processes(
    nvml: &Nvml,
    device: &Device<'_>,
    list: List,
    buffers: &mut Buffers,
) -> Result<Vec<ProcessInfo>, Code> {
    let lib = nvml.lib();
    let call = *nvml_sym(match list {
        List::Compute => lib.nvmlDeviceGetComputeRunningProcesses_v3.as_ref(),
        List::Graphics => lib.nvmlDeviceGetGraphicsRunningProcesses_v3.as_ref(),
        List::Mps => lib.nvmlDeviceGetMPSComputeRunningProcesses_v3.as_ref(),
    })?;
    // SAFETY: the handle is only passed to functions of the library it came from, while `device` borrows that library.
    let handle = unsafe { device.handle() };
    let empty = nvmlProcessInfo_t { pid: 0, usedGpuMemory: 0, gpuInstanceId: 0, computeInstanceId: 0 };
    let filled = fill(&mut buffers.processes, empty, |count, space| {
        // SAFETY: `space` has room for `count` entries; the driver writes at most that many and sets `count`.
        unsafe { call(handle, count, space) }
    })?;
    Ok(filled.iter().copied().map(ProcessInfo::from).collect())
}

/// Per-process use since `last_seen_us` (0: as far back as the driver remembers).
pub fn utilisation(
    nvml: &Nvml,
    device: &Device<'_>,
    last_seen_us: u64,
    buffers: &mut Buffers,
) -> Result<Vec<ProcessUtilizationSample>, Code> {
    let call = *nvml_sym(nvml.lib().nvmlDeviceGetProcessUtilization.as_ref())?;
    // SAFETY: as in `processes`.
    let handle = unsafe { device.handle() };
    let empty = nvmlProcessUtilizationSample_t { pid: 0, timeStamp: 0, smUtil: 0, memUtil: 0, encUtil: 0, decUtil: 0 };
    let filled = fill(&mut buffers.samples, empty, |count, space| {
        // SAFETY: as in `processes`.
        unsafe { call(handle, space, count, last_seen_us) }
    })?;
    Ok(filled.iter().copied().map(ProcessUtilizationSample::from).collect())
}

/// Calls with growing space until everything fits.
fn fill<T: Copy>(
    buffer: &mut Vec<T>,
    empty: T,
    mut call: impl FnMut(*mut u32, *mut T) -> nvmlReturn_t,
) -> Result<&[T], Code> {
    if buffer.len() < HEADROOM {
        buffer.resize(HEADROOM, empty);
    }
    for _ in 0..ATTEMPTS {
        let mut count = u32::try_from(buffer.len()).unwrap_or(u32::MAX);
        match call(&raw mut count, buffer.as_mut_ptr()) {
            INSUFFICIENT_SIZE => {
                let needed = (count as usize).max(buffer.len());
                buffer.resize(needed + HEADROOM, empty);
            }
            code => {
                nvml_try(code)?;
                return Ok(&buffer[..(count as usize).min(buffer.len())]);
            }
        }
    }
    Err(Code::InsufficientSize(None))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nvml_wrapper_sys::bindings::nvmlReturn_enum_NVML_SUCCESS;

    /// A driver with `there` entries, as NVML behaves: too little space gives the count needed.
    fn answer(there: u32, count: *mut u32, space: *mut u32) -> nvmlReturn_t {
        // SAFETY: `fill` passes a valid count and space for that many.
        unsafe {
            let room = *count;
            *count = there;
            if room < there {
                return INSUFFICIENT_SIZE;
            }
            (0..there).for_each(|i| *space.add(i as usize) = i);
        }
        nvmlReturn_enum_NVML_SUCCESS
    }

    #[test]
    fn a_list_that_fits_takes_one_call() {
        let (mut buffer, mut calls) = (Vec::new(), 0);
        let read = fill(&mut buffer, 0, |count, space| {
            calls += 1;
            answer(3, count, space)
        });
        assert_eq!(read.unwrap(), [0, 1, 2]);
        assert_eq!(calls, 1);
    }

    #[test]
    fn a_list_that_grows_while_it_is_read_is_followed() {
        let (mut buffer, mut there) = (Vec::new(), 20);
        let read = fill(&mut buffer, 0, |count, space| {
            there += 20;
            answer(there, count, space)
        });
        assert!(read.is_err(), "it grows for ever");
        let read = fill(&mut buffer, 0, |count, space| answer(there, count, space)).unwrap();
        assert_eq!(read.len(), there as usize);
    }

    #[test]
    fn a_refusal_is_passed_on() {
        let mut buffer = vec![0u32];
        let refused = fill(&mut buffer, 0, |_, _| Code::NoPermission.into());
        assert!(matches!(refused, Err(Code::NoPermission)));
    }
}
