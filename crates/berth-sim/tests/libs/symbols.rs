//! The libraries' symbol tables: what the list says is there, each with code of its own, under the right soname.

use std::collections::HashMap;
use std::path::Path;

use berth_proto::functions::{DRIVER_FUNCTIONS, DriverFunction};
use berth_proto::sim::Request;
use berth_proto::wire::Message;
use object::read::elf::ElfFile64;
use object::{Object, ObjectSymbol};

use crate::support::libraries;

fn exported(path: &Path) -> HashMap<String, u64> {
    let bytes = std::fs::read(path).unwrap();
    let file = ElfFile64::<object::Endianness>::parse(&*bytes).unwrap();
    let symbols = file.dynamic_symbols().filter(|symbol| symbol.is_definition());
    symbols.map(|symbol| (symbol.name().unwrap().to_owned(), symbol.address())).collect()
}

#[test]
fn every_function_of_the_list_is_exported_with_code_of_its_own() {
    let exported = exported(&libraries().cuda);
    let symbols = DRIVER_FUNCTIONS.iter().flat_map(|f| std::iter::once(f.symbol).chain(f.twin.map(|twin| twin.symbol)));
    let mut seen = HashMap::new();
    for symbol in symbols {
        let address = exported.get(symbol).unwrap_or_else(|| panic!("{symbol} is not exported"));
        if let Some(other) = seen.insert(address, symbol) {
            panic!("{symbol} and {other} share their code");
        }
    }
    let ours = exported.keys().filter(|name| name.starts_with("cu"));
    assert_eq!(ours.count(), seen.len(), "a cu* symbol is exported that is not in the list");
}

/// Which functions of the driver ask the engine for this. Without a wildcard: a new request must name its own.
fn functions_of(request: Request) -> &'static [&'static str] {
    match request {
        Request::DeviceCount => &["cuDeviceGetCount"],
        Request::Device { .. } => &["cuDeviceGetName", "cuDeviceTotalMem_v2", "cuDeviceGetAttribute"],
        Request::Init => &["cuInit"],
        Request::ContextCreate { .. } => &["cuCtxCreate_v2", "cuCtxCreate_v4", "cuDevicePrimaryCtxRetain"],
        Request::ContextDestroy { .. } => &["cuCtxDestroy_v2", "cuDevicePrimaryCtxRelease_v2"],
        Request::MemAlloc { .. } => &["cuMemAlloc_v2", "cuMemAllocAsync"],
        Request::MemFree { .. } => &["cuMemFree_v2", "cuMemFreeAsync"],
        Request::MemInfo { .. } => &["cuMemGetInfo_v2"],
        Request::StreamCreate { .. } => &["cuStreamCreate", "cuStreamCreateWithPriority"],
        Request::StreamCreateWith { .. } => &["cuStreamCreateWithPriority", "cuGreenCtxStreamCreate"],
        Request::MpsClient { .. } => &["cuInit"],
        Request::StreamDestroy { .. } => &["cuStreamDestroy_v2"],
        Request::EventCreate { .. } => &["cuEventCreate"],
        Request::EventDestroy { .. } => &["cuEventDestroy_v2"],
        Request::Copy { .. } => &["cuMemcpyHtoD_v2", "cuMemcpyDtoHAsync_v2", "cuMemcpyDtoD_v2", "cuMemcpy"],
        Request::Launch { .. } => &["cuLaunchKernel", "cuLaunchKernelEx", "cuLaunchCooperativeKernel"],
        Request::EventRecord { .. } => &["cuEventRecord"],
        Request::StreamWait { .. } => &["cuStreamWaitEvent"],
        Request::StreamSync { .. } => &["cuStreamSynchronize"],
        Request::StreamQuery { .. } => &["cuStreamQuery"],
        Request::ContextSync { .. } => &["cuCtxSynchronize"],
        Request::EventSync { .. } => &["cuEventSynchronize"],
        Request::EventQuery { .. } => &["cuEventQuery"],
        Request::EventElapsed { .. } => &["cuEventElapsedTime"],
        Request::Checkpoint { .. } => &["cuCheckpointProcessLock", "cuCheckpointProcessRestore"],
        Request::GraphCreate { .. } | Request::GraphAdd { .. } => {
            &["cuStreamBeginCapture_v2", "cuStreamEndCapture", "cuGraphInstantiateWithFlags"]
        }
        Request::GraphLaunch { .. } => &["cuGraphLaunch", "cuGraphLaunch_ptsz"],
        Request::GraphDestroy { .. } => &["cuGraphExecDestroy", "cuGraphDestroy"],
        Request::HostWork { .. } | Request::HostWorkNext | Request::HostWorkDone { .. } => {
            &["cuStreamWaitValue32_v2", "cuStreamWriteValue32_v2", "cuStreamBatchMemOp_v2"]
        }
    }
}

#[test]
fn what_the_engine_can_do_a_program_can_ask_for() {
    // One of each kind, read back from the wire, which numbers them without a gap.
    let requests = (0..=u8::MAX).map_while(|tag| {
        let bytes: Vec<u8> = std::iter::once(tag).chain([0; 64]).collect();
        (1..=bytes.len()).find_map(|length| Request::decode(&bytes[..length]).ok())
    });
    let requests: Vec<Request> = requests.collect();
    assert_eq!(requests.len(), 32);
    for symbol in requests.into_iter().flat_map(functions_of) {
        let is_it = |function: &&DriverFunction| {
            function.symbol == *symbol || function.twin.is_some_and(|twin| twin.symbol == *symbol)
        };
        let function = DRIVER_FUNCTIONS.iter().find(is_it);
        assert!(function.is_some_and(|function| function.implemented), "{symbol} is a stub");
    }
}

#[test]
fn the_libraries_go_by_their_real_names() {
    for (path, soname) in [(libraries().cuda, "libcuda.so.1"), (libraries().nvml, "libnvidia-ml.so.1")] {
        let bytes = std::fs::read(path).unwrap();
        let wanted = format!("{soname}\0");
        assert!(bytes.windows(wanted.len()).any(|window| window == wanted.as_bytes()), "{soname}");
    }
}

#[test]
fn nvml_has_what_monitors_ask_for() {
    let exported = exported(&libraries().nvml);
    for name in [
        "nvmlInit_v2",
        "nvmlInitWithFlags",
        "nvmlShutdown",
        "nvmlErrorString",
        "nvmlSystemGetDriverVersion",
        "nvmlDeviceGetCount_v2",
        "nvmlDeviceGetHandleByIndex_v2",
        "nvmlDeviceGetHandleByUUID",
        "nvmlDeviceGetHandleByPciBusId_v2",
        "nvmlDeviceGetPciInfo_v3",
        "nvmlDeviceGetMemoryInfo_v2",
        "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlDeviceGetProcessUtilization",
    ] {
        assert!(exported.contains_key(name), "{name}");
    }
}
