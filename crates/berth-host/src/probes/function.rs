//! The driver functions worth probing: the one list that says which, at which end, and for whom.
//!
//! Nothing here knows of the kernel. A [`Cookie`] is how the kernel tells back which row of the list was passed.

/// What passing a probe means for the process. The number is part of the cookie and of the key of the armed table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Call {
    Init = 1,
    /// A context is about to be created, which takes the driver hundreds of milliseconds.
    ContextWanted = 2,
    ContextCreated = 3,
    /// The primary context: counted by the driver, created by the first retain and gone with the last release.
    ContextRetained = 4,
    ContextDestroyed = 5,
    ContextReleased = 6,
    /// The primary context is gone, however often it was retained.
    ContextReset = 7,
    Allocation = 8,
    Launch = 9,
}

/// Where in the function the probe is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Entry,
    /// Told only if the function returned `CUDA_SUCCESS`.
    Return,
}

/// Calls a tenant makes all the time: only the first of a stay is wanted, so they are probed process by process
/// and no longer than needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Hot {
    Allocation,
    Launch,
}

/// A function of the driver and what passing its probes means.
#[derive(Debug, Clone, Copy)]
pub struct Function {
    pub name: &'static str,
    pub calls: &'static [Call],
}

/// What the kernel hands to the program with each hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cookie {
    pub library: u32,
    /// Row of [`FUNCTIONS`].
    pub function: u8,
    pub call: Call,
}

const CREATE: &[Call] = &[Call::ContextWanted, Call::ContextCreated];
const RETAIN: &[Call] = &[Call::ContextWanted, Call::ContextRetained];
const DESTROY: &[Call] = &[Call::ContextDestroyed];
const RELEASE: &[Call] = &[Call::ContextReleased];
const RESET: &[Call] = &[Call::ContextReset];
const ALLOCATE: &[Call] = &[Call::Allocation];
const LAUNCH: &[Call] = &[Call::Launch];

/// Newer drivers lack some of the older names and the other way round; what a library does not have is not probed.
pub const FUNCTIONS: &[Function] = &[
    Function { name: "cuInit", calls: &[Call::Init] },
    Function { name: "cuCtxCreate_v4", calls: CREATE },
    Function { name: "cuCtxCreate_v3", calls: CREATE },
    Function { name: "cuCtxCreate_v2", calls: CREATE },
    Function { name: "cuCtxCreate", calls: CREATE },
    Function { name: "cuDevicePrimaryCtxRetain", calls: RETAIN },
    Function { name: "cuCtxDestroy_v2", calls: DESTROY },
    Function { name: "cuCtxDestroy", calls: DESTROY },
    Function { name: "cuDevicePrimaryCtxRelease_v2", calls: RELEASE },
    Function { name: "cuDevicePrimaryCtxRelease", calls: RELEASE },
    Function { name: "cuDevicePrimaryCtxReset_v2", calls: RESET },
    Function { name: "cuDevicePrimaryCtxReset", calls: RESET },
    Function { name: "cuMemAlloc_v2", calls: ALLOCATE },
    Function { name: "cuMemAllocPitch_v2", calls: ALLOCATE },
    Function { name: "cuMemAllocManaged", calls: ALLOCATE },
    Function { name: "cuMemAllocAsync", calls: ALLOCATE },
    Function { name: "cuMemAllocAsync_ptsz", calls: ALLOCATE },
    Function { name: "cuMemAllocFromPoolAsync", calls: ALLOCATE },
    Function { name: "cuMemAllocFromPoolAsync_ptsz", calls: ALLOCATE },
    Function { name: "cuMemCreate", calls: ALLOCATE },
    Function { name: "cuLaunchKernel", calls: LAUNCH },
    Function { name: "cuLaunchKernel_ptsz", calls: LAUNCH },
    Function { name: "cuLaunchKernelEx", calls: LAUNCH },
    Function { name: "cuLaunchKernelEx_ptsz", calls: LAUNCH },
    Function { name: "cuLaunchCooperativeKernel", calls: LAUNCH },
    Function { name: "cuLaunchCooperativeKernel_ptsz", calls: LAUNCH },
    Function { name: "cuGraphLaunch", calls: LAUNCH },
    Function { name: "cuGraphLaunch_ptsz", calls: LAUNCH },
];

// === impl Call ===

impl Call {
    pub const ALL: [Call; 9] = [
        Call::Init,
        Call::ContextWanted,
        Call::ContextCreated,
        Call::ContextRetained,
        Call::ContextDestroyed,
        Call::ContextReleased,
        Call::ContextReset,
        Call::Allocation,
        Call::Launch,
    ];

    pub fn code(self) -> u8 {
        self as u8
    }

    pub fn side(self) -> Side {
        match self {
            Call::Init | Call::ContextWanted | Call::Allocation | Call::Launch => Side::Entry,
            Call::ContextCreated
            | Call::ContextRetained
            | Call::ContextDestroyed
            | Call::ContextReleased
            | Call::ContextReset => Side::Return,
        }
    }

    pub fn hot(self) -> Option<Hot> {
        match self {
            Call::Allocation => Some(Hot::Allocation),
            Call::Launch => Some(Hot::Launch),
            _ => None,
        }
    }
}

// === impl Hot ===

impl Hot {
    pub const ALL: [Hot; 2] = [Hot::Allocation, Hot::Launch];

    pub fn call(self) -> Call {
        match self {
            Hot::Allocation => Call::Allocation,
            Hot::Launch => Call::Launch,
        }
    }

    /// Position in arrays that hold something for each.
    pub fn index(self) -> usize {
        match self {
            Hot::Allocation => 0,
            Hot::Launch => 1,
        }
    }
}

// === impl Cookie ===

impl Cookie {
    /// How the program finds the call in a cookie: the lowest byte.
    pub const CALL_MASK: i32 = 0xff;

    pub fn encode(self) -> u64 {
        u64::from(self.library) << 32 | u64::from(self.function) << 8 | u64::from(self.call.code())
    }

    /// `None` for a number no cookie encodes to.
    pub fn decode(cookie: u64) -> Option<Self> {
        let [call, function, 0, 0, library @ ..] = cookie.to_le_bytes() else { return None };
        let call = Call::ALL.into_iter().find(|c| c.code() == call)?;
        Some(Self { library: u32::from_le_bytes(library), function, call })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_function_is_named_once_and_fits_the_cookie() {
        let names: HashSet<_> = FUNCTIONS.iter().map(|f| f.name).collect();
        assert_eq!(names.len(), FUNCTIONS.len());
        assert!(FUNCTIONS.len() <= usize::from(u8::MAX));
    }

    #[test]
    fn a_hot_call_is_seen_at_its_entry_before_it_has_happened() {
        for hot in Hot::ALL {
            assert_eq!(hot.call().side(), Side::Entry);
            assert_eq!(hot.call().hot(), Some(hot));
        }
    }

    #[test]
    fn a_context_is_told_only_when_the_driver_said_yes() {
        for function in FUNCTIONS.iter().filter(|f| f.name.contains("Ctx")) {
            let told = function.calls.iter().filter(|c| **c != Call::ContextWanted);
            assert!(told.clone().count() == 1 && told.clone().all(|c| c.side() == Side::Return), "{}", function.name);
        }
    }

    proptest! {
        #[test]
        fn a_cookie_survives_the_kernel(library: u32, function: u8, call in prop::sample::select(&Call::ALL[..])) {
            let cookie = Cookie { library, function, call };
            prop_assert_eq!(Cookie::decode(cookie.encode()), Some(cookie));
            prop_assert_eq!(cookie.encode() & 0xff, u64::from(call.code()));
        }

        #[test]
        fn what_no_cookie_encodes_to_is_refused(number: u64) {
            if let Some(cookie) = Cookie::decode(number) {
                prop_assert_eq!(cookie.encode(), number);
            }
        }
    }
}
