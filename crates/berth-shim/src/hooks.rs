//! The C edge: the driver's functions that we stand before, each under its own symbol, and how they are found.
//!
//! What is hooked must be in the one list of driver functions, or it does not compile; a test holds that no ABI of a hooked function is
//! forgotten. The contract of all of them is the driver API's: every pointer is null or good for what the function does with it.
//! Each passes its arguments on as they came.
#![allow(non_snake_case, non_upper_case_globals)] // the driver API's names

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use berth_proto::cuda::{STREAM_LEGACY, STREAM_PER_THREAD};

use crate::sys::dl;

mod arrays;
mod context;
mod copy;
#[cfg(not(test))]
mod dlsym;
#[cfg(not(test))]
mod ioctl;
mod launch;
mod lookup;
mod memory;
mod pools;
mod stream;

/// One function that we stand before.
pub(crate) struct Hook {
    pub(crate) symbol: &'static CStr,
    /// Ours.
    pub(crate) address: *const c_void,
    /// The driver's, once it was found.
    real: &'static AtomicPtr<c_void>,
}

// SAFETY: the address is of code and is never written through.
unsafe impl Sync for Hook {}

/// What stream 0 means to a function.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Default {
    Legacy,
    PerThread,
}

impl Default {
    /// The handle that means the same to every function.
    #[inline]
    pub(crate) fn of(self, stream: u64) -> u64 {
        match (stream, self) {
            (0, Self::Legacy) => STREAM_LEGACY,
            (0, Self::PerThread) => STREAM_PER_THREAD,
            (named, _) => named,
        }
    }
}

const ALL: &[&[Hook]] = &[
    arrays::HOOKS,
    context::HOOKS,
    copy::HOOKS,
    launch::HOOKS,
    lookup::HOOKS,
    memory::HOOKS,
    pools::HOOKS,
    stream::HOOKS,
];

impl Hook {
    pub(crate) fn find(symbol: &CStr) -> Option<&'static Hook> {
        ALL.iter().copied().flatten().find(|hook| hook.symbol == symbol)
    }

    /// The driver has this function at `real`; what the program gets instead.
    pub(crate) fn replace(&self, real: *mut c_void) -> *mut c_void {
        if real.cast_const() != self.address {
            let _ = self.real.compare_exchange(std::ptr::null_mut(), real, Ordering::Relaxed, Ordering::Relaxed);
            dl::remember(real);
        }
        self.address.cast_mut()
    }
}

/// Looks for the driver's function when ours is called before anybody has asked for it, as in a program that is linked to the driver.
#[cold]
pub(crate) fn find_real(symbol: &CStr, slot: &AtomicPtr<c_void>) -> *mut c_void {
    let found = dl::driver_function(symbol);
    slot.store(found, Ordering::Relaxed);
    found
}

macro_rules! listed {
    (
        implemented { $($name:ident $symbol:ident $since:literal $($twin:ident $twin_since:literal)?;)* }
        unsupported { $($stub:ident $stub_symbol:ident $stub_since:literal $($stub_twin:ident $stub_twin_since:literal)?;)* }
    ) => {
        /// Every symbol of the one list.
        const LISTED: &[&str] = &[
            $(stringify!($symbol), $(stringify!($twin),)?)*
            $(stringify!($stub_symbol), $(stringify!($stub_twin),)?)*
        ];
    };
}

berth_proto::driver_functions!(listed);

/// Asked while compiling: naming a function that is not in the list is an error then.
pub(crate) const fn is_listed(symbol: &str) -> bool {
    let mut at = 0;
    while at < LISTED.len() {
        if is_same(LISTED[at].as_bytes(), symbol.as_bytes()) {
            return true;
        }
        at += 1;
    }
    false
}

const fn is_same(a: &[u8], b: &[u8]) -> bool {
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

/// Functions in a list: `symbol / twin: (arguments) |real, default| answer;`. The twin, where there is one, is the same function
/// with stream 0 meaning the calling thread's own. `real` is the driver's function, `default` what stream 0 means.
macro_rules! hooks {
    ($($symbol:ident $(/ $twin:ident)?: $arguments:tt |$real:ident, $default:ident| $answer:expr;)*) => {
        $(
            $crate::hooks::hook! { $symbol Legacy $arguments |$real, $default| $answer }
            $($crate::hooks::hook! { $twin PerThread $arguments |$real, $default| $answer })?
        )*

        pub(super) static HOOKS: &[$crate::hooks::Hook] = &[
            $(
                $crate::hooks::entry!($symbol),
                $($crate::hooks::entry!($twin),)?
            )*
        ];
    };
}

macro_rules! hook {
    ($symbol:ident $kind:ident ($($arg:ident: $type:ty),* $(,)?) |$real:ident, $default:ident| $answer:expr) => {
        const _: () = assert!($crate::hooks::is_listed(stringify!($symbol)));

        /// The driver's function of this name.
        pub(super) mod $symbol {
            pub(crate) static REAL: std::sync::atomic::AtomicPtr<std::ffi::c_void> =
                std::sync::atomic::AtomicPtr::new(std::ptr::null_mut());
        }

        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $symbol($($arg: $type),*) -> berth_proto::cuda::CuResult {
            type Real = unsafe extern "C" fn($($type),*) -> berth_proto::cuda::CuResult;
            let mut address = $symbol::REAL.load(std::sync::atomic::Ordering::Relaxed);
            if address.is_null() {
                address = $crate::hooks::find_real($crate::hooks::symbol!($symbol), &$symbol::REAL);
                if address.is_null() {
                    return berth_proto::cuda::result::SHARED_OBJECT_SYMBOL_NOT_FOUND;
                }
            }
            // SAFETY: the driver's function of this name has these parameters.
            let $real = unsafe { std::mem::transmute::<*mut std::ffi::c_void, Real>(address) };
            let $default = $crate::hooks::Default::$kind;
            $answer
        }
    };
}

macro_rules! symbol {
    ($symbol:ident) => {
        // SAFETY: the text ends with a zero, and an identifier has none.
        const { unsafe { std::ffi::CStr::from_bytes_with_nul_unchecked(concat!(stringify!($symbol), "\0").as_bytes()) } }
    };
}

macro_rules! entry {
    ($symbol:ident) => {
        $crate::hooks::Hook {
            symbol: $crate::hooks::symbol!($symbol),
            address: $symbol as *const std::ffi::c_void,
            real: &$symbol::REAL,
        }
    };
}

pub(crate) use {entry, hook, hooks, symbol};

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use berth_proto::functions::DRIVER_FUNCTIONS;

    use super::*;

    fn is_hooked(symbol: &str) -> bool {
        Hook::find(&CString::new(symbol).unwrap()).is_some()
    }

    /// The ABI of before CUDA 3.2, with sizes of 32 bits, is used by nobody on a 64-bit system.
    fn is_ancient(function: &berth_proto::functions::DriverFunction) -> bool {
        function.since < 3020 && DRIVER_FUNCTIONS.iter().any(|other| other.name == function.name && other.since >= 3020)
    }

    #[test]
    fn no_abi_and_no_twin_of_a_hooked_function_is_forgotten() {
        for hooked in DRIVER_FUNCTIONS.iter().filter(|function| is_hooked(function.symbol)) {
            for other in DRIVER_FUNCTIONS.iter().filter(|other| other.name == hooked.name && !is_ancient(other)) {
                assert!(is_hooked(other.symbol), "{} but not {}", hooked.symbol, other.symbol);
                if let Some(twin) = other.twin {
                    assert!(is_hooked(twin.symbol), "{} but not {}", hooked.symbol, twin.symbol);
                }
            }
        }
    }

    #[test]
    fn no_function_is_hooked_twice_under_one_address() {
        let hooks: Vec<&Hook> = ALL.iter().copied().flatten().collect();
        for (index, hook) in hooks.iter().enumerate() {
            assert!(!hooks[..index].iter().any(|other| other.symbol == hook.symbol), "{:?}", hook.symbol);
        }
    }

    #[test]
    fn a_default_stream_is_told_by_the_function_that_is_called() {
        assert_eq!(Default::Legacy.of(0), STREAM_LEGACY);
        assert_eq!(Default::PerThread.of(0), STREAM_PER_THREAD);
        assert_eq!(Default::PerThread.of(1), STREAM_LEGACY);
        assert_eq!(Default::Legacy.of(0x7f00), 0x7f00);
    }
}
