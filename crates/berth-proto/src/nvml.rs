//! C types of NVML, as the simulated library and its callers share them. Layouts are held to the official header by tests.

use std::ffi::{CStr, c_char, c_uint};

macro_rules! results {
    ($($name:ident $value:literal $words:literal;)*) => {
        /// `nvmlReturn_t`, each under its official name without the prefix.
        pub mod result {
            $(pub const $name: u32 = $value;)*
        }

        /// What `nvmlErrorString` says.
        pub fn describe(result: u32) -> &'static CStr {
            match result {
                $($value => $words,)*
                _ => c"Unknown Error",
            }
        }
    };
}

results! {
    SUCCESS 0 c"Success";
    UNINITIALIZED 1 c"Uninitialized";
    INVALID_ARGUMENT 2 c"Invalid Argument";
    NOT_SUPPORTED 3 c"Not Supported";
    NO_PERMISSION 4 c"Insufficient Permissions";
    NOT_FOUND 6 c"Not Found";
    INSUFFICIENT_SIZE 7 c"Insufficient Size";
    DRIVER_NOT_LOADED 9 c"Driver Not Loaded";
    TIMEOUT 10 c"Timeout";
    GPU_IS_LOST 15 c"GPU is lost";
    OPERATING_SYSTEM 17 c"GPU access blocked by the operating system";
    ARGUMENT_VERSION_MISMATCH 25 c"Argument version mismatch";
    UNKNOWN 999 c"Unknown Error";
}

/// Said instead of a number of bytes the caller may not know.
pub const VALUE_NOT_AVAILABLE: u64 = u64::MAX;

/// Said instead of a GPU or compute instance where there is no MIG.
pub const NO_INSTANCE: u32 = u32::MAX;

/// `nvmlMemory_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Memory {
    pub total: u64,
    pub free: u64,
    pub used: u64,
}

/// `nvmlMemory_v2_t`; `version` comes from the caller.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct MemoryV2 {
    pub version: c_uint,
    pub total: u64,
    pub reserved: u64,
    pub free: u64,
    pub used: u64,
}

impl MemoryV2 {
    /// The size with the struct's version in the top byte, as the header's macro makes it.
    pub const VERSION: u32 = 40 | (2 << 24);
}

/// `nvmlProcessInfo_v1_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct ProcessInfoV1 {
    pub pid: c_uint,
    pub used_bytes: u64,
}

/// `nvmlProcessInfo_v2_t`, also used by the `_v3` functions.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct ProcessInfo {
    pub pid: c_uint,
    pub used_bytes: u64,
    pub gpu_instance: c_uint,
    pub compute_instance: c_uint,
}

/// `nvmlPciInfo_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct PciInfo {
    pub bus_id_legacy: [c_char; 16],
    pub domain: c_uint,
    pub bus: c_uint,
    pub device: c_uint,
    pub device_id: c_uint,
    pub subsystem_id: c_uint,
    pub bus_id: [c_char; 32],
}

/// `nvmlUtilization_t`, in percent.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Utilization {
    pub gpu: c_uint,
    pub memory: c_uint,
}

/// `nvmlProcessUtilizationSample_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct ProcessUtilization {
    pub pid: c_uint,
    /// Microseconds since the epoch.
    pub time_us: u64,
    pub sm_pct: c_uint,
    pub memory_pct: c_uint,
    pub encoder_pct: c_uint,
    pub decoder_pct: c_uint,
}

/// `nvmlGpmSupport_t`; `version` comes from the caller.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct GpmSupport {
    pub version: c_uint,
    pub supported: c_uint,
}

/// `nvmlGpmMetric_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct GpmMetric {
    pub id: c_uint,
    pub result: c_uint,
    pub value: f64,
    /// Short name, long name, unit.
    pub words: [*const c_char; 3],
}

/// The head of `nvmlGpmMetricsGet_t`: `count` metrics come after it, of as many as that header has.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct GpmMetricsGet<S> {
    pub version: c_uint,
    pub count: c_uint,
    pub samples: [S; 2],
}

/// The structs' only version so far.
pub const GPM_VERSION: c_uint = 1;
/// `NVML_GPM_METRIC_DRAM_BW_UTIL`: percent of the memory's bandwidth that was used.
pub const GPM_DRAM_BANDWIDTH: c_uint = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_the_official_headers() {
        assert_eq!(size_of::<Memory>(), 24);
        assert_eq!(size_of::<MemoryV2>(), 40);
        assert_eq!(MemoryV2::VERSION, 0x0200_0028);
        assert_eq!(size_of::<ProcessInfoV1>(), 16);
        assert_eq!(size_of::<ProcessInfo>(), 24);
        assert_eq!(size_of::<PciInfo>(), 68);
        assert_eq!(size_of::<Utilization>(), 8);
        assert_eq!(size_of::<ProcessUtilization>(), 32);
        assert_eq!(size_of::<GpmSupport>(), 8);
        assert_eq!(size_of::<GpmMetric>(), 40);
        assert_eq!(size_of::<GpmMetricsGet<*mut u8>>(), 24);
    }
}
