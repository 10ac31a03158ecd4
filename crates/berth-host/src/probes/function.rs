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
    /// A call that waits for the GPU has returned.
    Drained = 10,
}

/// Where in the function the probe is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Entry,
    /// Told only if the function returned `CUDA_SUCCESS`.
    Return,
}

/// Calls a tenant makes all the time, so they are probed process by process and no longer than needed: until the first
/// of a stay was seen, or as long as the process is held or watched by them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Hot {
    Allocation,
    Launch,
    Drained,
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
const DRAIN: &[Call] = &[Call::Drained];

/// The row of [`FUNCTIONS`] that takes its size in two arguments, the third times the fourth. All others that allocate
/// take it in the second.
pub const PITCHED: u8 = 13;

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
    Function { name: "cuLaunchCooperativeKernelMultiDevice", calls: LAUNCH },
    Function { name: "cuGraphLaunch", calls: LAUNCH },
    Function { name: "cuGraphLaunch_ptsz", calls: LAUNCH },
    Function { name: "cuCtxSynchronize", calls: DRAIN },
    Function { name: "cuCtxSynchronize_v2", calls: DRAIN },
    Function { name: "cuStreamSynchronize", calls: DRAIN },
    Function { name: "cuStreamSynchronize_ptsz", calls: DRAIN },
    // Returns success only for a stream that is empty. Not so `cuEventQuery`: frameworks ask it of old events all the time.
    Function { name: "cuStreamQuery", calls: DRAIN },
    Function { name: "cuStreamQuery_ptsz", calls: DRAIN },
    Function { name: "cuEventSynchronize", calls: DRAIN },
    Function { name: "cuMemcpyDtoH_v2", calls: DRAIN },
    Function { name: "cuMemcpyDtoH_v2_ptds", calls: DRAIN },
];

// === impl Call ===

impl Call {
    pub const ALL: [Call; 10] = [
        Call::Init,
        Call::ContextWanted,
        Call::ContextCreated,
        Call::ContextRetained,
        Call::ContextDestroyed,
        Call::ContextReleased,
        Call::ContextReset,
        Call::Allocation,
        Call::Launch,
        Call::Drained,
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
            | Call::ContextReset
            | Call::Drained => Side::Return,
        }
    }

    pub fn hot(self) -> Option<Hot> {
        match self {
            Call::Allocation => Some(Hot::Allocation),
            Call::Launch => Some(Hot::Launch),
            Call::Drained => Some(Hot::Drained),
            _ => None,
        }
    }
}

// === impl Hot ===

impl Hot {
    pub const ALL: [Hot; 3] = [Hot::Allocation, Hot::Launch, Hot::Drained];
    /// Those whose first call of a stay is one of its moments.
    pub const FIRSTS: [Hot; 2] = [Hot::Allocation, Hot::Launch];

    pub fn call(self) -> Call {
        match self {
            Hot::Allocation => Call::Allocation,
            Hot::Launch => Call::Launch,
            Hot::Drained => Call::Drained,
        }
    }

    /// Position in arrays that hold something for each.
    pub fn index(self) -> usize {
        match self {
            Hot::Allocation => 0,
            Hot::Launch => 1,
            Hot::Drained => 2,
        }
    }
}

// === impl Cookie ===

impl Cookie {
    /// How the program finds the call in a cookie: the lowest byte.
    pub const CALL_MASK: i32 = 0xff;
    /// How the program finds the function in a cookie: the byte above.
    pub const FUNCTION_SHIFT: i32 = 8;

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
    fn what_may_be_stopped_is_seen_before_it_has_happened_and_what_is_waited_for_after() {
        for hot in Hot::FIRSTS {
            assert_eq!(hot.call().side(), Side::Entry);
        }
        assert_eq!(Call::Drained.side(), Side::Return);
        assert!(Hot::ALL.iter().all(|hot| hot.call().hot() == Some(*hot)));
    }

    #[test]
    fn the_one_function_with_a_size_in_two_arguments_is_known_by_its_row() {
        assert_eq!(FUNCTIONS[usize::from(PITCHED)].name, "cuMemAllocPitch_v2");
    }

    #[test]
    fn a_context_is_told_only_when_the_driver_said_yes() {
        for function in FUNCTIONS.iter().filter(|f| f.name.contains("Ctx") && f.calls != DRAIN) {
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
