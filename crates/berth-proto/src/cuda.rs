//! C types of the driver API, as the simulated driver and its callers share them.
//!
//! Results are plain integers and handles plain 64-bit values: a value this list does not know must not be undefined
//! behaviour. Layouts are held to the official header's sizes by tests.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

/// What every driver function returns.
pub type CuResult = u32;

/// What `cuDriverGetVersion` says: CUDA 13.0.
pub const DRIVER_VERSION: u32 = 13000;

/// Flag of `cuGetProcAddress`: stream 0 is the calling thread's own.
pub const GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM: u64 = 2;

/// Stream handles that mean a kind of default stream.
pub const STREAM_LEGACY: u64 = 1;
pub const STREAM_PER_THREAD: u64 = 2;

macro_rules! results {
    ($($name:ident $value:literal $text:literal $words:literal;)*) => {
        /// `CUresult`, each under its official name without the prefix.
        pub mod result {
            $(pub const $name: u32 = $value;)*
        }

        /// A result's official name and what it means.
        pub fn describe(result: CuResult) -> Option<(&'static CStr, &'static CStr)> {
            match result {
                $($value => Some(($text, $words)),)*
                _ => None,
            }
        }
    };
}

results! {
    SUCCESS 0 c"CUDA_SUCCESS" c"no error";
    INVALID_VALUE 1 c"CUDA_ERROR_INVALID_VALUE" c"invalid value";
    OUT_OF_MEMORY 2 c"CUDA_ERROR_OUT_OF_MEMORY" c"out of memory";
    NOT_INITIALIZED 3 c"CUDA_ERROR_NOT_INITIALIZED" c"not initialized";
    DEINITIALIZED 4 c"CUDA_ERROR_DEINITIALIZED" c"deinitialized";
    PROFILER_DISABLED 5 c"CUDA_ERROR_PROFILER_DISABLED" c"profiler disabled";
    PROFILER_NOT_INITIALIZED 6 c"CUDA_ERROR_PROFILER_NOT_INITIALIZED" c"profiler not initialized";
    PROFILER_ALREADY_STARTED 7 c"CUDA_ERROR_PROFILER_ALREADY_STARTED" c"profiler already started";
    PROFILER_ALREADY_STOPPED 8 c"CUDA_ERROR_PROFILER_ALREADY_STOPPED" c"profiler already stopped";
    STUB_LIBRARY 34 c"CUDA_ERROR_STUB_LIBRARY" c"stub library";
    CALL_REQUIRES_NEWER_DRIVER 36 c"CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER" c"call requires newer driver";
    DEVICE_UNAVAILABLE 46 c"CUDA_ERROR_DEVICE_UNAVAILABLE" c"device unavailable";
    NO_DEVICE 100 c"CUDA_ERROR_NO_DEVICE" c"no device";
    INVALID_DEVICE 101 c"CUDA_ERROR_INVALID_DEVICE" c"invalid device";
    DEVICE_NOT_LICENSED 102 c"CUDA_ERROR_DEVICE_NOT_LICENSED" c"device not licensed";
    INVALID_IMAGE 200 c"CUDA_ERROR_INVALID_IMAGE" c"invalid image";
    INVALID_CONTEXT 201 c"CUDA_ERROR_INVALID_CONTEXT" c"invalid context";
    CONTEXT_ALREADY_CURRENT 202 c"CUDA_ERROR_CONTEXT_ALREADY_CURRENT" c"context already current";
    MAP_FAILED 205 c"CUDA_ERROR_MAP_FAILED" c"map failed";
    UNMAP_FAILED 206 c"CUDA_ERROR_UNMAP_FAILED" c"unmap failed";
    ARRAY_IS_MAPPED 207 c"CUDA_ERROR_ARRAY_IS_MAPPED" c"array is mapped";
    ALREADY_MAPPED 208 c"CUDA_ERROR_ALREADY_MAPPED" c"already mapped";
    NO_BINARY_FOR_GPU 209 c"CUDA_ERROR_NO_BINARY_FOR_GPU" c"no binary for gpu";
    ALREADY_ACQUIRED 210 c"CUDA_ERROR_ALREADY_ACQUIRED" c"already acquired";
    NOT_MAPPED 211 c"CUDA_ERROR_NOT_MAPPED" c"not mapped";
    NOT_MAPPED_AS_ARRAY 212 c"CUDA_ERROR_NOT_MAPPED_AS_ARRAY" c"not mapped as array";
    NOT_MAPPED_AS_POINTER 213 c"CUDA_ERROR_NOT_MAPPED_AS_POINTER" c"not mapped as pointer";
    ECC_UNCORRECTABLE 214 c"CUDA_ERROR_ECC_UNCORRECTABLE" c"ecc uncorrectable";
    UNSUPPORTED_LIMIT 215 c"CUDA_ERROR_UNSUPPORTED_LIMIT" c"unsupported limit";
    CONTEXT_ALREADY_IN_USE 216 c"CUDA_ERROR_CONTEXT_ALREADY_IN_USE" c"context already in use";
    PEER_ACCESS_UNSUPPORTED 217 c"CUDA_ERROR_PEER_ACCESS_UNSUPPORTED" c"peer access unsupported";
    INVALID_PTX 218 c"CUDA_ERROR_INVALID_PTX" c"invalid ptx";
    INVALID_GRAPHICS_CONTEXT 219 c"CUDA_ERROR_INVALID_GRAPHICS_CONTEXT" c"invalid graphics context";
    NVLINK_UNCORRECTABLE 220 c"CUDA_ERROR_NVLINK_UNCORRECTABLE" c"nvlink uncorrectable";
    JIT_COMPILER_NOT_FOUND 221 c"CUDA_ERROR_JIT_COMPILER_NOT_FOUND" c"jit compiler not found";
    UNSUPPORTED_PTX_VERSION 222 c"CUDA_ERROR_UNSUPPORTED_PTX_VERSION" c"unsupported ptx version";
    JIT_COMPILATION_DISABLED 223 c"CUDA_ERROR_JIT_COMPILATION_DISABLED" c"jit compilation disabled";
    UNSUPPORTED_EXEC_AFFINITY 224 c"CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY" c"unsupported exec affinity";
    UNSUPPORTED_DEVSIDE_SYNC 225 c"CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC" c"unsupported devside sync";
    CONTAINED 226 c"CUDA_ERROR_CONTAINED" c"contained";
    INVALID_SOURCE 300 c"CUDA_ERROR_INVALID_SOURCE" c"invalid source";
    FILE_NOT_FOUND 301 c"CUDA_ERROR_FILE_NOT_FOUND" c"file not found";
    SHARED_OBJECT_SYMBOL_NOT_FOUND 302 c"CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND" c"shared object symbol not found";
    SHARED_OBJECT_INIT_FAILED 303 c"CUDA_ERROR_SHARED_OBJECT_INIT_FAILED" c"shared object init failed";
    OPERATING_SYSTEM 304 c"CUDA_ERROR_OPERATING_SYSTEM" c"operating system";
    INVALID_HANDLE 400 c"CUDA_ERROR_INVALID_HANDLE" c"invalid handle";
    ILLEGAL_STATE 401 c"CUDA_ERROR_ILLEGAL_STATE" c"illegal state";
    LOSSY_QUERY 402 c"CUDA_ERROR_LOSSY_QUERY" c"lossy query";
    NOT_FOUND 500 c"CUDA_ERROR_NOT_FOUND" c"not found";
    NOT_READY 600 c"CUDA_ERROR_NOT_READY" c"not ready";
    ILLEGAL_ADDRESS 700 c"CUDA_ERROR_ILLEGAL_ADDRESS" c"illegal address";
    LAUNCH_OUT_OF_RESOURCES 701 c"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES" c"launch out of resources";
    LAUNCH_TIMEOUT 702 c"CUDA_ERROR_LAUNCH_TIMEOUT" c"launch timeout";
    LAUNCH_INCOMPATIBLE_TEXTURING 703 c"CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING" c"launch incompatible texturing";
    PEER_ACCESS_ALREADY_ENABLED 704 c"CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED" c"peer access already enabled";
    PEER_ACCESS_NOT_ENABLED 705 c"CUDA_ERROR_PEER_ACCESS_NOT_ENABLED" c"peer access not enabled";
    PRIMARY_CONTEXT_ACTIVE 708 c"CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE" c"primary context active";
    CONTEXT_IS_DESTROYED 709 c"CUDA_ERROR_CONTEXT_IS_DESTROYED" c"context is destroyed";
    ASSERT 710 c"CUDA_ERROR_ASSERT" c"assert";
    TOO_MANY_PEERS 711 c"CUDA_ERROR_TOO_MANY_PEERS" c"too many peers";
    HOST_MEMORY_ALREADY_REGISTERED 712 c"CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED" c"host memory already registered";
    HOST_MEMORY_NOT_REGISTERED 713 c"CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED" c"host memory not registered";
    HARDWARE_STACK_ERROR 714 c"CUDA_ERROR_HARDWARE_STACK_ERROR" c"hardware stack error";
    ILLEGAL_INSTRUCTION 715 c"CUDA_ERROR_ILLEGAL_INSTRUCTION" c"illegal instruction";
    MISALIGNED_ADDRESS 716 c"CUDA_ERROR_MISALIGNED_ADDRESS" c"misaligned address";
    INVALID_ADDRESS_SPACE 717 c"CUDA_ERROR_INVALID_ADDRESS_SPACE" c"invalid address space";
    INVALID_PC 718 c"CUDA_ERROR_INVALID_PC" c"invalid pc";
    LAUNCH_FAILED 719 c"CUDA_ERROR_LAUNCH_FAILED" c"launch failed";
    COOPERATIVE_LAUNCH_TOO_LARGE 720 c"CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE" c"cooperative launch too large";
    TENSOR_MEMORY_LEAK 721 c"CUDA_ERROR_TENSOR_MEMORY_LEAK" c"tensor memory leak";
    NOT_PERMITTED 800 c"CUDA_ERROR_NOT_PERMITTED" c"not permitted";
    NOT_SUPPORTED 801 c"CUDA_ERROR_NOT_SUPPORTED" c"not supported";
    SYSTEM_NOT_READY 802 c"CUDA_ERROR_SYSTEM_NOT_READY" c"system not ready";
    SYSTEM_DRIVER_MISMATCH 803 c"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH" c"system driver mismatch";
    COMPAT_NOT_SUPPORTED_ON_DEVICE 804 c"CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE" c"compat not supported on device";
    MPS_CONNECTION_FAILED 805 c"CUDA_ERROR_MPS_CONNECTION_FAILED" c"mps connection failed";
    MPS_RPC_FAILURE 806 c"CUDA_ERROR_MPS_RPC_FAILURE" c"mps rpc failure";
    MPS_SERVER_NOT_READY 807 c"CUDA_ERROR_MPS_SERVER_NOT_READY" c"mps server not ready";
    MPS_MAX_CLIENTS_REACHED 808 c"CUDA_ERROR_MPS_MAX_CLIENTS_REACHED" c"mps max clients reached";
    MPS_MAX_CONNECTIONS_REACHED 809 c"CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED" c"mps max connections reached";
    MPS_CLIENT_TERMINATED 810 c"CUDA_ERROR_MPS_CLIENT_TERMINATED" c"mps client terminated";
    CDP_NOT_SUPPORTED 811 c"CUDA_ERROR_CDP_NOT_SUPPORTED" c"cdp not supported";
    CDP_VERSION_MISMATCH 812 c"CUDA_ERROR_CDP_VERSION_MISMATCH" c"cdp version mismatch";
    STREAM_CAPTURE_UNSUPPORTED 900 c"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED" c"stream capture unsupported";
    STREAM_CAPTURE_INVALIDATED 901 c"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED" c"stream capture invalidated";
    STREAM_CAPTURE_MERGE 902 c"CUDA_ERROR_STREAM_CAPTURE_MERGE" c"stream capture merge";
    STREAM_CAPTURE_UNMATCHED 903 c"CUDA_ERROR_STREAM_CAPTURE_UNMATCHED" c"stream capture unmatched";
    STREAM_CAPTURE_UNJOINED 904 c"CUDA_ERROR_STREAM_CAPTURE_UNJOINED" c"stream capture unjoined";
    STREAM_CAPTURE_ISOLATION 905 c"CUDA_ERROR_STREAM_CAPTURE_ISOLATION" c"stream capture isolation";
    STREAM_CAPTURE_IMPLICIT 906 c"CUDA_ERROR_STREAM_CAPTURE_IMPLICIT" c"stream capture implicit";
    CAPTURED_EVENT 907 c"CUDA_ERROR_CAPTURED_EVENT" c"captured event";
    STREAM_CAPTURE_WRONG_THREAD 908 c"CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD" c"stream capture wrong thread";
    TIMEOUT 909 c"CUDA_ERROR_TIMEOUT" c"timeout";
    GRAPH_EXEC_UPDATE_FAILURE 910 c"CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE" c"graph exec update failure";
    EXTERNAL_DEVICE 911 c"CUDA_ERROR_EXTERNAL_DEVICE" c"external device";
    INVALID_CLUSTER_SIZE 912 c"CUDA_ERROR_INVALID_CLUSTER_SIZE" c"invalid cluster size";
    FUNCTION_NOT_LOADED 913 c"CUDA_ERROR_FUNCTION_NOT_LOADED" c"function not loaded";
    INVALID_RESOURCE_TYPE 914 c"CUDA_ERROR_INVALID_RESOURCE_TYPE" c"invalid resource type";
    INVALID_RESOURCE_CONFIGURATION 915 c"CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION" c"invalid resource configuration";
    KEY_ROTATION 916 c"CUDA_ERROR_KEY_ROTATION" c"key rotation";
    UNKNOWN 999 c"CUDA_ERROR_UNKNOWN" c"unknown";
}

/// `CUlaunchConfig`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct LaunchConfig {
    pub grid: [c_uint; 3],
    pub block: [c_uint; 3],
    pub shared_bytes: c_uint,
    pub stream: u64,
    pub attributes: *const c_void,
    pub attribute_count: c_uint,
}

/// `CUstreamBatchMemOpParams`: one operation on a word of memory, in a stream. What `operation` says is [`memory_op`]'s.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct BatchMemoryOp {
    pub operation: c_uint,
    pub address: u64,
    /// Of 32-bit operations the low half.
    pub value: u64,
    /// Of a wait: [`wait_value`]'s.
    pub flags: c_uint,
    pub alias: u64,
    pub reserved: u64,
}

/// `CUstreamBatchMemOpType`.
pub mod memory_op {
    pub const WAIT_VALUE_32: u32 = 1;
    pub const WRITE_VALUE_32: u32 = 2;
    pub const FLUSH_REMOTE_WRITES: u32 = 3;
    pub const WAIT_VALUE_64: u32 = 4;
    pub const WRITE_VALUE_64: u32 = 5;
    pub const BARRIER: u32 = 6;
}

/// `CUstreamWaitValue_flags`: what must hold of the word before the stream goes on.
pub mod wait_value {
    /// Not before the value, in a cyclic order.
    pub const GEQ: u32 = 0;
    pub const EQ: u32 = 1;
    /// Some bit of the value is set.
    pub const AND: u32 = 2;
    /// Some bit is clear in both.
    pub const NOR: u32 = 3;
    /// Beside one of the others: writes of other devices are seen first.
    pub const FLUSH: u32 = 1 << 30;
}

/// Flags of `cuMemHostRegister`.
pub mod host_register {
    pub const PORTABLE: u32 = 1;
    pub const DEVICE_MAP: u32 = 2;
    pub const IO_MEMORY: u32 = 4;
    pub const READ_ONLY: u32 = 8;
}

/// `CUDA_GRAPH_INSTANTIATE_PARAMS`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct GraphInstantiateParams {
    pub flags: u64,
    pub upload_stream: u64,
    pub error_node: u64,
    /// `CUgraphInstantiateResult`, 0 for success.
    pub result: c_int,
}

/// `CUdevResource` of SMs. Which they are is in what the header calls internal.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DeviceResource {
    /// [`RESOURCE_SM`], or 0 for none.
    pub kind: c_uint,
    pub device: c_int,
    pub first_sm: c_uint,
    pub internal: [u8; 84],
    pub sm_count: c_uint,
    pub min_partition: c_uint,
    pub alignment: c_uint,
    pub reserved: [u8; 36],
}

/// `CU_DEV_RESOURCE_TYPE_SM`.
pub const RESOURCE_SM: c_uint = 1;

/// `CUctxCreateParams`; nothing in it is modelled.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ContextParams {
    pub affinity: *const c_void,
    pub affinity_count: c_int,
    pub cig: *const c_void,
}

/// `CUuuid`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Uuid {
    pub bytes: [u8; 16],
}

/// `CUcheckpointLockArgs`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct CheckpointLockArgs {
    /// 0 waits for ever.
    pub timeout_ms: c_uint,
    pub reserved0: c_uint,
    pub reserved1: [u64; 7],
}

/// `CUcheckpointRestoreArgs`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CheckpointRestoreArgs {
    pub gpu_pairs: *const c_void,
    pub gpu_pair_count: c_uint,
    pub reserved: [c_char; 44],
    pub reserved1: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_the_official_headers() {
        assert_eq!(size_of::<LaunchConfig>(), 56);
        assert_eq!(std::mem::offset_of!(LaunchConfig, stream), 32);
        assert_eq!(std::mem::offset_of!(LaunchConfig, attribute_count), 48);
        assert_eq!(size_of::<GraphInstantiateParams>(), 32);
        assert_eq!(size_of::<DeviceResource>(), 144);
        assert_eq!(std::mem::offset_of!(DeviceResource, sm_count), 96);
        assert_eq!(size_of::<BatchMemoryOp>(), 48);
        assert_eq!(std::mem::offset_of!(BatchMemoryOp, address), 8);
        assert_eq!(std::mem::offset_of!(BatchMemoryOp, value), 16);
        assert_eq!(std::mem::offset_of!(BatchMemoryOp, flags), 24);
        assert_eq!(size_of::<ContextParams>(), 24);
        assert_eq!(size_of::<Uuid>(), 16);
        assert_eq!(size_of::<CheckpointLockArgs>(), 64);
        assert_eq!(size_of::<CheckpointRestoreArgs>(), 64);
    }

    #[test]
    fn the_vocabulary_and_the_header_agree_on_numbers() {
        use crate::sim::cu;
        assert_eq!(cu::OUT_OF_MEMORY, result::OUT_OF_MEMORY);
        assert_eq!(cu::NOT_SUPPORTED, result::NOT_SUPPORTED);
        assert_eq!(cu::TIMEOUT, result::TIMEOUT);
        assert_eq!(cu::ILLEGAL_STATE, result::ILLEGAL_STATE);
        assert_eq!(cu::SYSTEM_NOT_READY, result::SYSTEM_NOT_READY);
    }

    #[test]
    fn every_result_has_a_name_and_no_other_has() {
        assert_eq!(describe(2).unwrap().0, c"CUDA_ERROR_OUT_OF_MEMORY");
        assert_eq!(describe(12345), None);
    }
}
