//! The C edge: NVML's functions as far as monitors use them.
//!
//! The contract of all of them is NVML's: every pointer is null or good for what the function does with it. A function
//! that is not here is not found by a caller's `dlsym`, which every binding of NVML reports as what it is.
#![allow(non_snake_case)] // NVML's names

use std::ffi::{c_char, c_int, c_uint};

use berth_proto::nvml::{
    self, GpmMetricsGet, GpmSupport, Memory, MemoryV2, PciInfo, ProcessInfo, ProcessInfoV1, ProcessUtilization,
    Utilization,
};

use crate::edge::{Out, OutArray, OutText, Text, guard};
use crate::{device, gpm, processes, state, system};

/// NVML's words for a result.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlErrorString(code: c_uint) -> *const c_char {
    nvml::describe(code).as_ptr()
}

macro_rules! export {
    ($($symbol:ident ($($arg:ident: $type:ty),* $(,)?) => $answer:expr;)*) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $symbol($($arg: $type),*) -> c_uint {
                guard(|| $answer)
            }
        )*
    };
}

// The library and the machine.
export! {
    nvmlInit() => state::init();
    nvmlInit_v2() => state::init();
    nvmlInitWithFlags(_flags: c_uint) => state::init();
    nvmlShutdown() => state::shutdown();
    nvmlSystemGetDriverVersion(out: OutText, room: c_uint) => system::driver_version(out, room);
    nvmlSystemGetNVMLVersion(out: OutText, room: c_uint) => system::nvml_version(out, room);
    nvmlSystemGetCudaDriverVersion(out: Out<c_int>) => system::cuda_version(out);
    nvmlSystemGetCudaDriverVersion_v2(out: Out<c_int>) => system::cuda_version(out);
    nvmlSystemGetProcessName(pid: c_uint, out: OutText, room: c_uint) => system::process_name(pid, out, room);
}

// Finding GPUs.
export! {
    nvmlDeviceGetCount(out: Out<c_uint>) => device::count(out);
    nvmlDeviceGetCount_v2(out: Out<c_uint>) => device::count(out);
    nvmlDeviceGetHandleByIndex(index: c_uint, out: Out<u64>) => device::by_index(index, out);
    nvmlDeviceGetHandleByIndex_v2(index: c_uint, out: Out<u64>) => device::by_index(index, out);
    nvmlDeviceGetHandleByUUID(uuid: Text, out: Out<u64>) => device::by_uuid(uuid, out);
    nvmlDeviceGetHandleByPciBusId(bus_id: Text, out: Out<u64>) => device::by_bus_id(bus_id, out);
    nvmlDeviceGetHandleByPciBusId_v2(bus_id: Text, out: Out<u64>) => device::by_bus_id(bus_id, out);
}

// What a GPU is.
export! {
    nvmlDeviceGetName(device: u64, out: OutText, room: c_uint) => device::name(device, out, room);
    nvmlDeviceGetUUID(device: u64, out: OutText, room: c_uint) => device::uuid(device, out, room);
    nvmlDeviceGetIndex(device: u64, out: Out<c_uint>) => device::index(device, out);
    nvmlDeviceGetMinorNumber(device: u64, out: Out<c_uint>) => device::index(device, out);
    nvmlDeviceGetPciInfo_v3(device: u64, out: Out<PciInfo>) => device::pci_info(device, out);
    nvmlDeviceGetCudaComputeCapability(device: u64, major: Out<c_int>, minor: Out<c_int>) =>
        device::compute_capability(device, major, minor);
    nvmlDeviceGetArchitecture(device: u64, out: Out<c_uint>) => device::architecture(device, out);
    nvmlDeviceGetBrand(device: u64, out: Out<c_uint>) => device::brand(device, out);
    nvmlDeviceGetComputeMode(device: u64, out: Out<c_uint>) => device::fixed(device, out, 0);
    nvmlDeviceGetPersistenceMode(device: u64, out: Out<c_uint>) => device::fixed(device, out, 1);
    nvmlDeviceGetMigMode(device: u64, current: Out<c_uint>, pending: Out<c_uint>) =>
        device::mig_mode(device, current, pending);
    nvmlDeviceGetMaxMigDeviceCount(device: u64, out: Out<c_uint>) => device::fixed(device, out, 0);
    nvmlDeviceIsMigDeviceHandle(device: u64, out: Out<c_uint>) => device::fixed(device, out, 0);
}

// What goes on there.
export! {
    nvmlDeviceGetMemoryInfo(device: u64, out: Out<Memory>) => device::memory(device, out);
    nvmlDeviceGetMemoryInfo_v2(device: u64, out: Out<MemoryV2>) => device::memory_v2(device, out);
    nvmlDeviceGetUtilizationRates(device: u64, out: Out<Utilization>) => device::utilization(device, out);
    nvmlDeviceGetComputeRunningProcesses(device: u64, count: Out<c_uint>, out: OutArray<ProcessInfoV1>) =>
        processes::compute_v1(device, count, out);
    nvmlDeviceGetComputeRunningProcesses_v2(device: u64, count: Out<c_uint>, out: OutArray<ProcessInfo>) =>
        processes::compute(device, count, out);
    nvmlDeviceGetComputeRunningProcesses_v3(device: u64, count: Out<c_uint>, out: OutArray<ProcessInfo>) =>
        processes::compute(device, count, out);
    nvmlDeviceGetGraphicsRunningProcesses_v2(device: u64, count: Out<c_uint>, out: OutArray<ProcessInfo>) =>
        processes::graphics(device, count, out);
    nvmlDeviceGetGraphicsRunningProcesses_v3(device: u64, count: Out<c_uint>, out: OutArray<ProcessInfo>) =>
        processes::graphics(device, count, out);
    nvmlDeviceGetMPSComputeRunningProcesses_v2(device: u64, count: Out<c_uint>, out: OutArray<ProcessInfo>) =>
        processes::mps(device, count, out);
    nvmlDeviceGetMPSComputeRunningProcesses_v3(device: u64, count: Out<c_uint>, out: OutArray<ProcessInfo>) =>
        processes::mps(device, count, out);
    nvmlDeviceGetProcessUtilization(
        device: u64, out: OutArray<ProcessUtilization>, count: Out<c_uint>, last_seen_us: u64,
    ) => processes::utilization(device, out, count, last_seen_us);
}

// Counters between two readings.
export! {
    nvmlGpmQueryDeviceSupport(device: u64, out: Out<GpmSupport>) => gpm::support(device, out);
    nvmlGpmQueryIfStreamingEnabled(device: u64, out: Out<c_uint>) => gpm::streaming(device, out);
    nvmlGpmSampleAlloc(out: Out<gpm::Held>) => gpm::alloc(out);
    nvmlGpmSampleFree(sample: gpm::Held) => gpm::free(sample);
    nvmlGpmSampleGet(device: u64, sample: gpm::Held) => gpm::read(device, sample);
    nvmlGpmMetricsGet(out: Out<GpmMetricsGet<gpm::Held>>) => gpm::metrics(out);
}

/// Functions of a GPU whose other arguments are never looked at.
macro_rules! absent {
    ($($symbol:ident)*) => {
        export! { $($symbol(device: u64) => device::not_supported(device);)* }
    };
}

// What this GPU does not have: sensors, clocks, fans, links, video, displays, error counters.
absent! {
    nvmlDeviceGetAccountingMode
    nvmlDeviceGetBAR1MemoryInfo
    nvmlDeviceGetClock
    nvmlDeviceGetClockInfo
    nvmlDeviceGetCurrPcieLinkGeneration
    nvmlDeviceGetCurrPcieLinkWidth
    nvmlDeviceGetCurrentClocksThrottleReasons
    nvmlDeviceGetDecoderUtilization
    nvmlDeviceGetDisplayActive
    nvmlDeviceGetDisplayMode
    nvmlDeviceGetDriverModel
    nvmlDeviceGetDriverModel_v2
    nvmlDeviceGetEccMode
    nvmlDeviceGetEncoderUtilization
    nvmlDeviceGetEnforcedPowerLimit
    nvmlDeviceGetFanSpeed
    nvmlDeviceGetMaxClockInfo
    nvmlDeviceGetMaxPcieLinkGeneration
    nvmlDeviceGetMaxPcieLinkWidth
    nvmlDeviceGetMemoryErrorCounter
    nvmlDeviceGetNvLinkState
    nvmlDeviceGetPcieThroughput
    nvmlDeviceGetPerformanceState
    nvmlDeviceGetPowerManagementLimit
    nvmlDeviceGetPowerManagementLimitConstraints
    nvmlDeviceGetPowerUsage
    nvmlDeviceGetSamples
    nvmlDeviceGetSerial
    nvmlDeviceGetTemperature
    nvmlDeviceGetTemperatureThreshold
    nvmlDeviceGetTotalEccErrors
    nvmlDeviceGetTotalEnergyConsumption
    nvmlDeviceGetVbiosVersion
}
