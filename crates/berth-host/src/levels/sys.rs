//! Asking a library what it has, the way programs find it: by the loader's own search.

use std::ffi::{CStr, CString, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A loaded library. Stays loaded: some, once in, do not take being unloaded well.
#[derive(Debug)]
pub struct Library {
    handle: *mut c_void,
}

impl Library {
    /// The loader's words if it cannot be loaded.
    pub fn open(name: &Path) -> Result<Library, String> {
        let name = CString::new(name.as_os_str().as_bytes()).map_err(|_| "the name holds a NUL byte".to_owned())?;
        // SAFETY: `name` is a C string; loading runs the library's initialisers, and the administrator named it.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
        if handle.is_null() { Err(last_error()) } else { Ok(Library { handle }) }
    }

    pub fn has(&self, symbol: &CStr) -> bool {
        // SAFETY: the handle came from dlopen and is never closed; `symbol` is a C string.
        !unsafe { libc::dlsym(self.handle, symbol.as_ptr()) }.is_null()
    }
}

fn last_error() -> String {
    // SAFETY: dlerror gives null or a C string that stays valid until this thread's next call of its family.
    let words = unsafe { libc::dlerror() };
    if words.is_null() {
        return "the loader does not say why".to_owned();
    }
    // SAFETY: not null, see above.
    unsafe { CStr::from_ptr(words) }.to_string_lossy().into_owned()
}
