//! The C edge: finds the CUDA driver's functions in a library and calls them. The only unsafe code of the crate.
//!
//! No CUDA header is needed: the few functions used here have kept their ABI since CUDA 6 at the latest. Handles are opaque
//! newtypes that only the driver makes and that are given back by value, so safe code can neither invent nor reuse one.
//! Every method answers the driver's own code on failure; names and phases are the business of `driver`.
//! `work` has the further functions that only the programs in `roles` need.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::path::{Path, PathBuf};
use std::ptr;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::options::Lookup;

/// A `CUresult` other than success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code(pub u32);

/// The API version asked of `cuGetProcAddress`. With 11.3 every name used here resolves to the signature declared
/// below; from 11.4 on `cuCtxCreate` means one with other parameters.
const API_VERSION: c_int = 11_030;

type Handle = *mut c_void;

#[derive(Debug)]
pub struct Device(c_int);
#[derive(Debug)]
pub struct Context(Handle);
#[derive(Debug)]
pub struct Module(Handle);
/// Lives as long as its [`Module`].
#[derive(Debug)]
pub struct Function(Handle);
#[derive(Debug)]
pub struct Stream(Handle);
#[derive(Debug)]
pub struct Memory(u64);

/// The arguments of the product kernel, in its order.
#[derive(Debug)]
pub struct Arguments<'a> {
    pub a: &'a Memory,
    pub b: &'a Memory,
    pub c: &'a Memory,
    pub n: u32,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    #[error("cannot load the CUDA driver library {path}: {reason}", path = .path.display())]
    Library {
        path: PathBuf,
        /// The dynamic linker's own words, which name what it missed.
        reason: String,
    },
    #[error("{path} has no {symbol}: not a CUDA driver library, or one too old", path = .path.display())]
    Symbol { path: PathBuf, symbol: &'static str },
}

/// Declares the functions once: the field, the name for `cuGetProcAddress`, the exported symbol, the arguments.
macro_rules! functions {
    ($(#[$doc:meta])* $api:ident $($field:ident: $name:literal, $symbol:literal, ($($argument:ty),*);)*) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $api {
            $($field: unsafe extern "C" fn($($argument),*) -> u32,)*
        }

        impl $api {
            fn resolve(finder: &Finder<'_>) -> Result<Self, LoadError> {
                Ok(Self { $(
                    $field: {
                        let address = finder.find($name, $symbol)?;
                        // SAFETY: the driver gives the address of a function with this documented signature.
                        unsafe { std::mem::transmute::<*const c_void, unsafe extern "C" fn($($argument),*) -> u32>(address) }
                    },
                )* })
            }
        }
    };
}

functions! {
    /// The driver's functions. Never unloaded: a driver library does not survive that.
    Api
    init: c"cuInit", c"cuInit", (c_uint);
    driver_get_version: c"cuDriverGetVersion", c"cuDriverGetVersion", (*mut c_int);
    get_error_name: c"cuGetErrorName", c"cuGetErrorName", (u32, *mut *const c_char);
    device_get: c"cuDeviceGet", c"cuDeviceGet", (*mut c_int, c_int);
    device_get_name: c"cuDeviceGetName", c"cuDeviceGetName", (*mut c_char, c_int, c_int);
    device_total_mem: c"cuDeviceTotalMem", c"cuDeviceTotalMem_v2", (*mut usize, c_int);
    ctx_create: c"cuCtxCreate", c"cuCtxCreate_v2", (*mut Handle, c_uint, c_int);
    ctx_destroy: c"cuCtxDestroy", c"cuCtxDestroy_v2", (Handle);
    module_load_data: c"cuModuleLoadData", c"cuModuleLoadData", (*mut Handle, *const c_void);
    module_unload: c"cuModuleUnload", c"cuModuleUnload", (Handle);
    module_get_function: c"cuModuleGetFunction", c"cuModuleGetFunction", (*mut Handle, Handle, *const c_char);
    stream_create: c"cuStreamCreate", c"cuStreamCreate", (*mut Handle, c_uint);
    stream_destroy: c"cuStreamDestroy", c"cuStreamDestroy_v2", (Handle);
    stream_synchronize: c"cuStreamSynchronize", c"cuStreamSynchronize", (Handle);
    mem_alloc: c"cuMemAlloc", c"cuMemAlloc_v2", (*mut u64, usize);
    mem_free: c"cuMemFree", c"cuMemFree_v2", (u64);
    memcpy_htod: c"cuMemcpyHtoD", c"cuMemcpyHtoD_v2", (u64, *const c_void, usize);
    memcpy_dtoh: c"cuMemcpyDtoH", c"cuMemcpyDtoH_v2", (*mut c_void, u64, usize);
    launch_kernel: c"cuLaunchKernel", c"cuLaunchKernel",
        (Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void);
}

#[cfg(feature = "cli")]
mod past;
#[cfg(feature = "cli")]
pub mod work;

type GetProcAddress = unsafe extern "C" fn(*const c_char, *mut *const c_void, c_int, u64) -> u32;
type GetProcAddressV2 = unsafe extern "C" fn(*const c_char, *mut *const c_void, c_int, u64, *mut c_int) -> u32;

/// The two ways into a driver library.
struct Finder<'a> {
    path: &'a Path,
    library: &'a Library,
    entry: Option<Entry>,
    dlsym: bool,
    /// Asked of `cuGetProcAddress`.
    version: c_int,
    /// What `cuLaunchKernel` is, if it is not to be looked for.
    launch: Option<*const c_void>,
}

enum Entry {
    V1(GetProcAddress),
    V2(GetProcAddressV2),
}

impl<'a> Finder<'a> {
    fn new(path: &'a Path, library: &'a Library, lookup: Lookup, version: c_int) -> Result<Self, LoadError> {
        let entry = if lookup == Lookup::Dlsym { None } else { find_entry(library) };
        if lookup == Lookup::ProcAddress && entry.is_none() {
            return Err(LoadError::Symbol { path: path.to_owned(), symbol: "cuGetProcAddress" });
        }
        Ok(Self { path, library, entry, dlsym: lookup != Lookup::ProcAddress, version, launch: None })
    }

    fn find(&self, name: &'static CStr, symbol: &'static CStr) -> Result<*const c_void, LoadError> {
        if let Some(launch) = self.launch.filter(|_| symbol == c"cuLaunchKernel") {
            return Ok(launch);
        }
        let by_entry = self.entry.as_ref().and_then(|entry| entry.find(name, self.version));
        let found = by_entry.or_else(|| if self.dlsym { exported(self.library, symbol) } else { None });
        let missing = if self.dlsym { symbol } else { name };
        found.ok_or_else(|| LoadError::Symbol {
            path: self.path.to_owned(),
            symbol: missing.to_str().unwrap_or("a symbol"),
        })
    }
}

impl Entry {
    fn find(&self, name: &CStr, version: c_int) -> Option<*const c_void> {
        let mut address = ptr::null();
        let mut status = 0;
        // SAFETY: the name ends in NUL, both results are ours to be written; flags 0 ask for the legacy default stream.
        let code = unsafe {
            match self {
                Self::V1(get) => get(name.as_ptr(), &raw mut address, version, 0),
                Self::V2(get) => get(name.as_ptr(), &raw mut address, version, 0, &raw mut status),
            }
        };
        (code == 0 && !address.is_null()).then_some(address)
    }
}

fn open(path: &Path) -> Result<Library, LoadError> {
    // SAFETY: loading runs the library's own initialisers; the path is the user's choice of a driver.
    let opened = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) };
    opened.map_err(|error| LoadError::Library { path: path.to_owned(), reason: reason(&error) })
}

fn find_entry(library: &Library) -> Option<Entry> {
    if let Some(address) = exported(library, c"cuGetProcAddress_v2") {
        // SAFETY: the symbol of this name has this signature since CUDA 12.0.
        return Some(Entry::V2(unsafe { std::mem::transmute::<*const c_void, GetProcAddressV2>(address) }));
    }
    let address = exported(library, c"cuGetProcAddress")?;
    // SAFETY: the symbol of this name has this signature since CUDA 11.3.
    Some(Entry::V1(unsafe { std::mem::transmute::<*const c_void, GetProcAddress>(address) }))
}

fn exported(library: &Library, symbol: &CStr) -> Option<*const c_void> {
    // SAFETY: only the address is taken here; whoever calls it states the signature.
    let found = unsafe { library.get::<*const c_void>(symbol) }.ok()?;
    let address = found.as_raw_ptr().cast_const();
    (!address.is_null()).then_some(address)
}

/// The innermost cause: the outer error only says that `dlopen` failed.
fn reason(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

fn check(code: u32) -> Result<(), Code> {
    if code == 0 { Ok(()) } else { Err(Code(code)) }
}

impl Api {
    /// Loads the library and finds every function, or says which one is missing.
    pub fn load(path: &Path, lookup: Lookup) -> Result<Self, LoadError> {
        let library = open(path)?;
        let api = Self::resolve(&Finder::new(path, &library, lookup, API_VERSION)?)?;
        std::mem::forget(library);
        Ok(api)
    }

    /// The same, but for a launch past whatever a preloaded library has put before the driver's; `None` if that cannot be told.
    #[cfg(feature = "cli")]
    pub fn load_past(path: &Path, lookup: Lookup) -> Result<Option<Self>, LoadError> {
        let Some(launch) = past::launch(path) else { return Ok(None) };
        let library = open(path)?;
        let finder = Finder { launch: Some(launch), ..Finder::new(path, &library, lookup, API_VERSION)? };
        let api = Self::resolve(&finder)?;
        std::mem::forget(library);
        Ok(Some(api))
    }

    pub fn init(&self) -> Result<(), Code> {
        // SAFETY: no pointers; 0 is the only flag there is.
        check(unsafe { (self.init)(0) })
    }

    pub fn version(&self) -> Result<i32, Code> {
        let mut version = 0;
        // SAFETY: the result is ours to be written.
        check(unsafe { (self.driver_get_version)(&raw mut version) })?;
        Ok(version)
    }

    /// The driver's own name of a code, if it has one.
    pub fn error_name(&self, code: Code) -> Option<String> {
        let mut name = ptr::null();
        // SAFETY: the result is ours to be written; the driver's names are static strings.
        let found = unsafe { (self.get_error_name)(code.0, &raw mut name) };
        if found != 0 || name.is_null() {
            return None;
        }
        // SAFETY: not null, and a NUL-terminated static string by the driver's contract.
        Some(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
    }

    pub fn device(&self, ordinal: u32) -> Result<Device, Code> {
        let mut device = 0;
        let ordinal = c_int::try_from(ordinal).unwrap_or(c_int::MAX);
        // SAFETY: the result is ours to be written.
        check(unsafe { (self.device_get)(&raw mut device, ordinal) })?;
        Ok(Device(device))
    }

    pub fn device_name(&self, device: &Device) -> Result<String, Code> {
        let mut name = [0u8; 128];
        // SAFETY: the driver writes at most the length it is given, NUL included.
        check(unsafe { (self.device_get_name)(name.as_mut_ptr().cast(), 128, device.0) })?;
        let name = CStr::from_bytes_until_nul(&name).unwrap_or(c"");
        Ok(name.to_string_lossy().into_owned())
    }

    pub fn device_memory(&self, device: &Device) -> Result<u64, Code> {
        let mut bytes = 0usize;
        // SAFETY: the result is ours to be written.
        check(unsafe { (self.device_total_mem)(&raw mut bytes, device.0) })?;
        Ok(bytes as u64)
    }

    /// Makes a context and leaves it current on this thread. Waiting for the device sleeps rather than spins.
    pub fn create_context(&self, device: &Device) -> Result<Context, Code> {
        const BLOCKING_SYNC: c_uint = 4;
        let mut context = ptr::null_mut();
        // SAFETY: the result is ours to be written.
        check(unsafe { (self.ctx_create)(&raw mut context, BLOCKING_SYNC, device.0) })?;
        Ok(Context(context))
    }

    pub fn destroy_context(&self, context: Context) -> Result<(), Code> {
        // SAFETY: the handle came from the driver and is given up here.
        check(unsafe { (self.ctx_destroy)(context.0) })
    }

    pub fn load_module(&self, text: &CStr) -> Result<Module, Code> {
        let mut module = ptr::null_mut();
        // SAFETY: PTX is passed as a NUL-terminated string; the result is ours to be written.
        check(unsafe { (self.module_load_data)(&raw mut module, text.as_ptr().cast()) })?;
        Ok(Module(module))
    }

    pub fn unload_module(&self, module: Module) -> Result<(), Code> {
        // SAFETY: the handle came from the driver and is given up here.
        check(unsafe { (self.module_unload)(module.0) })
    }

    pub fn function(&self, module: &Module, entry: &CStr) -> Result<Function, Code> {
        let mut function = ptr::null_mut();
        // SAFETY: the module is loaded, the name ends in NUL, the result is ours to be written.
        check(unsafe { (self.module_get_function)(&raw mut function, module.0, entry.as_ptr()) })?;
        Ok(Function(function))
    }

    /// A stream that does not wait for the default one.
    pub fn create_stream(&self) -> Result<Stream, Code> {
        const NON_BLOCKING: c_uint = 1;
        let mut stream = ptr::null_mut();
        // SAFETY: the result is ours to be written.
        check(unsafe { (self.stream_create)(&raw mut stream, NON_BLOCKING) })?;
        Ok(Stream(stream))
    }

    pub fn destroy_stream(&self, stream: Stream) -> Result<(), Code> {
        // SAFETY: the handle came from the driver and is given up here.
        check(unsafe { (self.stream_destroy)(stream.0) })
    }

    pub fn synchronize(&self, stream: &Stream) -> Result<(), Code> {
        // SAFETY: the stream lives.
        check(unsafe { (self.stream_synchronize)(stream.0) })
    }

    pub fn alloc(&self, bytes: u64) -> Result<Memory, Code> {
        let mut memory = 0;
        // More than the address space is as much out of memory as anything else.
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        // SAFETY: the result is ours to be written.
        check(unsafe { (self.mem_alloc)(&raw mut memory, bytes) })?;
        Ok(Memory(memory))
    }

    pub fn free(&self, memory: Memory) -> Result<(), Code> {
        // SAFETY: the pointer came from the driver and is given up here.
        check(unsafe { (self.mem_free)(memory.0) })
    }

    pub fn copy_in(&self, to: &Memory, from: &[f32]) -> Result<(), Code> {
        // SAFETY: the driver reads exactly the slice; a device range that is too small is its error, not ours.
        check(unsafe { (self.memcpy_htod)(to.0, from.as_ptr().cast(), size_of_val(from)) })
    }

    pub fn copy_out(&self, to: &mut [f32], from: &Memory) -> Result<(), Code> {
        // SAFETY: the driver writes exactly the slice, and any bit pattern is a valid f32.
        check(unsafe { (self.memcpy_dtoh)(to.as_mut_ptr().cast(), from.0, size_of_val(to)) })
    }

    pub fn launch(
        &self,
        function: &Function,
        stream: &Stream,
        (grid, block): (u32, u32),
        arguments: &Arguments<'_>,
    ) -> Result<(), Code> {
        let (mut a, mut b, mut c, mut n) = (arguments.a.0, arguments.b.0, arguments.c.0, arguments.n);
        let mut pointers: [*mut c_void; 4] =
            [(&raw mut a).cast(), (&raw mut b).cast(), (&raw mut c).cast(), (&raw mut n).cast()];
        let pointers = pointers.as_mut_ptr();
        // SAFETY: the four pointers match the kernel's parameters in order and size and are read before this returns.
        let code = unsafe {
            (self.launch_kernel)(function.0, grid, grid, 1, block, block, 1, 0, stream.0, pointers, ptr::null_mut())
        };
        check(code)
    }
}
