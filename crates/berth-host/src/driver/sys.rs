//! The driver's functions as they stand in `libcuda.so.1`, called with integers and checked for nothing.
//!
//! The three C structures are written out here: the simulator's crate of C types is no dependency of a mechanism for the
//! sake of 128 bytes. Results are integers, so that a code of a newer driver is no undefined behaviour.

use std::ffi::{CStr, c_char, c_int, c_uint};
use std::fmt;
use std::mem::ManuallyDrop;
use std::path::Path;

use libloading::Library;

use super::api::Api;

/// `CUresult`.
type Code = c_uint;
/// `CUcheckpointCheckpointArgs`, `CUcheckpointRestoreArgs` and `CUcheckpointUnlockArgs` with nothing asked for.
type Plain = [u64; 8];

/// `CUcheckpointLockArgs`.
#[repr(C)]
struct LockArgs {
    /// 0 waits for ever.
    timeout_ms: c_uint,
    reserved0: c_uint,
    reserved1: [u64; 7],
}

/// The loaded library. It stays loaded: the driver has threads of its own once it is initialised.
pub struct Cuda {
    init: unsafe extern "C" fn(c_uint) -> Code,
    get_state: unsafe extern "C" fn(c_int, *mut c_uint) -> Code,
    lock: unsafe extern "C" fn(c_int, *const LockArgs) -> Code,
    checkpoint: unsafe extern "C" fn(c_int, *const Plain) -> Code,
    restore: unsafe extern "C" fn(c_int, *const Plain) -> Code,
    unlock: unsafe extern "C" fn(c_int, *const Plain) -> Code,
    error_name: unsafe extern "C" fn(Code, *mut *const c_char) -> Code,
    _library: ManuallyDrop<Library>,
}

/// Why it cannot be used.
#[derive(Debug)]
pub enum OpenError {
    /// The loader's words.
    Load(String),
    Missing(&'static str),
}

impl Cuda {
    /// Initialises nothing: opening alone leaves no trace on any GPU.
    pub fn open(library: &Path) -> Result<Cuda, OpenError> {
        // SAFETY: loading runs the file's initialisers; the administrator named it as the driver's library.
        let library = unsafe { Library::new(library) }.map_err(|error| OpenError::Load(words(&error)))?;
        let library = ManuallyDrop::new(library);
        // SAFETY: the types are those of the functions of these names in the driver's header (CUDA 12.8 and newer).
        unsafe {
            Ok(Cuda {
                init: find(&library, "cuInit")?,
                get_state: find(&library, "cuCheckpointProcessGetState")?,
                lock: find(&library, "cuCheckpointProcessLock")?,
                checkpoint: find(&library, "cuCheckpointProcessCheckpoint")?,
                restore: find(&library, "cuCheckpointProcessRestore")?,
                unlock: find(&library, "cuCheckpointProcessUnlock")?,
                error_name: find(&library, "cuGetErrorName")?,
                _library: library,
            })
        }
    }
}

/// # Safety
/// `T` is the type of the function pointer of that name.
unsafe fn find<T: Copy>(library: &Library, name: &'static str) -> Result<T, OpenError> {
    // SAFETY: by the caller.
    unsafe { library.get::<T>(name) }.map(|symbol| *symbol).map_err(|_| OpenError::Missing(name))
}

/// What the loader said; the wrapper's own words only frame it.
fn words(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

impl Api for Cuda {
    fn init(&self) -> u32 {
        // SAFETY: takes no pointer; may be called any number of times, from any thread.
        unsafe { (self.init)(0) }
    }

    fn state(&self, pid: i32) -> Result<u32, u32> {
        let mut state = 0;
        // SAFETY: `state` is writable for the call.
        match unsafe { (self.get_state)(pid, &raw mut state) } {
            0 => Ok(state),
            code => Err(code),
        }
    }

    fn lock(&self, pid: i32, timeout_ms: u32) -> u32 {
        let args = LockArgs { timeout_ms, reserved0: 0, reserved1: [0; 7] };
        // SAFETY: `args` is valid for the call, its reserved fields are zero as demanded.
        unsafe { (self.lock)(pid, &raw const args) }
    }

    fn checkpoint(&self, pid: i32) -> u32 {
        // SAFETY: the arguments are valid for the call and all zero, which asks for nothing special.
        unsafe { (self.checkpoint)(pid, &raw const NOTHING) }
    }

    fn restore(&self, pid: i32) -> u32 {
        // SAFETY: as for `checkpoint`.
        unsafe { (self.restore)(pid, &raw const NOTHING) }
    }

    fn unlock(&self, pid: i32) -> u32 {
        // SAFETY: as for `checkpoint`.
        unsafe { (self.unlock)(pid, &raw const NOTHING) }
    }

    fn name(&self, code: u32) -> Option<String> {
        let mut name = std::ptr::null();
        // SAFETY: `name` is writable for the call.
        let found = unsafe { (self.error_name)(code, &raw mut name) };
        if found != 0 || name.is_null() {
            return None;
        }
        // SAFETY: the driver gives a string constant of its own.
        Some(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
    }
}

static NOTHING: Plain = [0; 8];

impl fmt::Debug for Cuda {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cuda")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_the_official_headers() {
        assert_eq!((size_of::<LockArgs>(), size_of::<Plain>()), (64, 64));
        assert_eq!(std::mem::offset_of!(LockArgs, reserved1), 8);
    }

    #[test]
    fn a_library_that_is_not_the_driver_is_told_by_what_it_lacks() {
        let lacks = Cuda::open(Path::new("libc.so.6")).unwrap_err();
        assert!(matches!(lacks, OpenError::Missing("cuInit")), "{lacks:?}");
    }
}
