//! Finding functions the way the runtime library does, and the twins with a default stream per thread.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};

use berth_proto::cuda::result;
use berth_proto::functions::DRIVER_FUNCTIONS;
use libloading::Library;

use crate::support::{Sim, libraries};

type GetProcAddress = unsafe extern "C" fn(*const c_char, *mut *const c_void, c_int, u64, *mut c_int) -> u32;

/// Address, result and status.
fn lookup(library: &Library, name: &str, version: c_int, flags: u64) -> (*const c_void, u32, c_int) {
    let name = CString::new(name).unwrap();
    let (mut address, mut status) = (std::ptr::null(), -1);
    // SAFETY: the type is that of the driver API's header.
    let code = unsafe {
        let function: libloading::Symbol<GetProcAddress> = library.get(b"cuGetProcAddress_v2").unwrap();
        function(name.as_ptr(), &mut address, version, flags, &mut status)
    };
    (address, code, status)
}

fn symbol(library: &Library, name: &str) -> *const c_void {
    // SAFETY: only the address is taken.
    unsafe { *library.get::<*const c_void>(name.as_bytes()).unwrap() }
}

fn driver() -> Library {
    // SAFETY: the library under test has no constructor.
    unsafe { Library::new(libraries().cuda) }.unwrap()
}

#[test]
fn a_lookup_gives_the_abi_of_the_version_asked_for() {
    let library = driver();
    for (name, version, flags, wanted) in [
        ("cuCtxCreate", 3020, 0, "cuCtxCreate_v2"),
        ("cuCtxCreate", 13000, 0, "cuCtxCreate_v4"),
        ("cuMemAlloc", 13000, 2, "cuMemAlloc_v2"),
        ("cuMemcpyHtoD", 13000, 2, "cuMemcpyHtoD_v2_ptds"),
        ("cuLaunchKernel", 13000, 0, "cuLaunchKernel"),
        ("cuLaunchKernel", 13000, 1, "cuLaunchKernel"),
        ("cuLaunchKernel", 13000, 2, "cuLaunchKernel_ptsz"),
        ("cuInit", 2000, 0, "cuInit"),
    ] {
        let (address, code, status) = lookup(&library, name, version, flags);
        assert_eq!((code, status), (0, 0), "{name}");
        assert_eq!(address, symbol(&library, wanted), "{name} {version} {flags}");
    }
}

#[test]
fn a_lookup_that_finds_nothing_says_why_and_gives_null() {
    let library = driver();
    for (name, version, status) in [("cuNoSuchThing", 13000, 1), ("", 13000, 1), ("cuMemAllocAsync", 11000, 2)] {
        let found = lookup(&library, name, version, 0);
        assert_eq!(found, (std::ptr::null(), result::NOT_FOUND, status), "{name}");
    }
    assert_eq!(lookup(&library, "cuInit", 13000, 64).1, result::INVALID_VALUE);
}

#[test]
fn every_function_is_found_by_its_name() {
    let library = driver();
    for function in DRIVER_FUNCTIONS {
        let version = c_int::try_from(function.since).unwrap();
        assert_eq!(lookup(&library, function.name, version, 0).0, symbol(&library, function.symbol));
    }
}

/// In the client: the twin's work goes into the thread's own stream, which waiting for the legacy one does not cover.
pub fn in_client(library: &Library, kernel: u64) -> u32 {
    type Launch = unsafe extern "C" fn(
        u64,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        u64,
        *mut *mut u64,
        *mut *mut c_void,
    ) -> u32;
    type OfStream = unsafe extern "C" fn(u64) -> u32;
    let mut giga_flops = 1000_u64;
    let mut pointers = [std::ptr::from_mut(&mut giga_flops)];
    // SAFETY: the types are those of the driver API's header.
    unsafe {
        let launch: libloading::Symbol<Launch> = library.get(b"cuLaunchKernel_ptsz").unwrap();
        let plain: libloading::Symbol<OfStream> = library.get(b"cuStreamQuery").unwrap();
        let twin: libloading::Symbol<OfStream> = library.get(b"cuStreamQuery_ptsz").unwrap();
        let wait: libloading::Symbol<OfStream> = library.get(b"cuStreamSynchronize_ptsz").unwrap();
        let launched = launch(kernel, 10_000, 1, 1, 256, 1, 1, 0, 0, pointers.as_mut_ptr(), std::ptr::null_mut());
        let results = [launched, plain(0), twin(0), wait(0), twin(0)];
        if results == [0, 0, result::NOT_READY, 0, 0] { 0 } else { results[2].max(1) }
    }
}

#[test]
fn the_twins_have_a_stream_of_their_own() {
    let sim = Sim::with(|options| options.time_scale = 1.0);
    sim.client().ready().must("ptsz");
}
