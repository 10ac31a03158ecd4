//! The libraries' symbol tables: what the list says is there, each with code of its own, under the right soname.

use std::collections::HashMap;
use std::path::Path;

use berth_proto::functions::DRIVER_FUNCTIONS;
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
