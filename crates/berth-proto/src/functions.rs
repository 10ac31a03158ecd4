//! Finding a driver function the way `cuGetProcAddress` does: by base name, version and kind of default stream.
//!
//! Pure: this says which symbol is meant; whoever owns the symbols has their addresses.

mod list;

/// One function of the driver API in one ABI version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DriverFunction {
    /// What `cuGetProcAddress` is asked for, without any suffix.
    pub name: &'static str,
    /// What it is called in the library's symbol table.
    pub symbol: &'static str,
    /// The CUDA version that brought this ABI, as 1000 × major + 10 × minor.
    pub since: u32,
    pub twin: Option<Twin>,
    /// Whether the simulated driver does something; otherwise it answers "not supported".
    pub implemented: bool,
}

/// The same function with stream 0 meaning the calling thread's own default stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Twin {
    pub symbol: &'static str,
    pub since: u32,
}

macro_rules! twin {
    () => {
        None
    };
    ($symbol:ident $since:literal) => {
        Some(Twin { symbol: stringify!($symbol), since: $since })
    };
}

macro_rules! tables {
    (
        implemented { $($name:ident $symbol:ident $since:literal $($twin:ident $twin_since:literal)?;)* }
        unsupported { $($stub:ident $stub_symbol:ident $stub_since:literal $($stub_twin:ident $stub_twin_since:literal)?;)* }
    ) => {
        /// The whole list, implemented functions first.
        pub static DRIVER_FUNCTIONS: &[DriverFunction] = &[
            $(DriverFunction {
                name: stringify!($name),
                symbol: stringify!($symbol),
                since: $since,
                twin: twin!($($twin $twin_since)?),
                implemented: true,
            },)*
            $(DriverFunction {
                name: stringify!($stub),
                symbol: stringify!($stub_symbol),
                since: $stub_since,
                twin: twin!($($stub_twin $stub_twin_since)?),
                implemented: false,
            },)*
        ];
    };
}

crate::driver_functions!(tables);

/// What a search for a driver function came to; the numbers are `CUdriverProcAddressQueryResult`'s.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    Symbol(&'static str),
    NoSuchName,
    /// The name exists, but no ABI as old as the version asked for.
    VersionTooOld,
}

/// Names that mean another function from a version on, as the header renames them.
const RENAMED: [(&str, u32, &str); 1] = [("cuGraphInstantiate", 12000, "cuGraphInstantiateWithFlags")];

/// The newest ABI of `name` that a program built for `cuda_version` knows; with `per_thread`, its twin where one exists.
pub fn resolve(name: &str, cuda_version: u32, per_thread: bool) -> Found {
    let renamed = RENAMED.iter().find(|(old, since, _)| *old == name && *since <= cuda_version);
    let name = renamed.map_or(name, |(_, _, new)| new);
    let named = || DRIVER_FUNCTIONS.iter().filter(|f| f.name == name);
    let newest = named().filter(|f| f.since <= cuda_version).max_by_key(|f| f.since);
    let Some(function) = newest else {
        return match named().next() {
            Some(_) => Found::VersionTooOld,
            None => Found::NoSuchName,
        };
    };
    match function.twin {
        Some(twin) if per_thread && twin.since <= cuda_version => Found::Symbol(twin.symbol),
        _ => Found::Symbol(function.symbol),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_newer_program_gets_the_newer_abi() {
        assert_eq!(resolve("cuCtxCreate", 2000, false), Found::Symbol("cuCtxCreate"));
        assert_eq!(resolve("cuCtxCreate", 3020, false), Found::Symbol("cuCtxCreate_v2"));
        assert_eq!(resolve("cuCtxCreate", 12050, false), Found::Symbol("cuCtxCreate_v4"));
        assert_eq!(resolve("cuGraphInstantiate", 11000, false), Found::Symbol("cuGraphInstantiate_v2"));
        assert_eq!(resolve("cuGraphInstantiate", 12000, false), Found::Symbol("cuGraphInstantiateWithFlags"));
        assert_eq!(resolve("cuGetProcAddress", 11030, false), Found::Symbol("cuGetProcAddress"));
        assert_eq!(resolve("cuGetProcAddress", 13000, false), Found::Symbol("cuGetProcAddress_v2"));
    }

    #[test]
    fn a_thread_stream_program_gets_the_twin_where_there_is_one() {
        assert_eq!(resolve("cuMemcpyHtoD", 12000, true), Found::Symbol("cuMemcpyHtoD_v2_ptds"));
        assert_eq!(resolve("cuLaunchKernel", 12000, true), Found::Symbol("cuLaunchKernel_ptsz"));
        assert_eq!(resolve("cuMemAlloc", 12000, true), Found::Symbol("cuMemAlloc_v2"));
        // Streams per thread came with CUDA 7: a program older than that gets the plain function.
        assert_eq!(resolve("cuLaunchKernel", 6050, true), Found::Symbol("cuLaunchKernel"));
    }

    #[test]
    fn an_unknown_name_and_a_too_old_version_are_told_apart() {
        assert_eq!(resolve("cuNoSuchThing", 13000, false), Found::NoSuchName);
        assert_eq!(resolve("", 13000, false), Found::NoSuchName);
        assert_eq!(resolve("cuMemAlloc_v2", 13000, false), Found::NoSuchName);
        assert_eq!(resolve("cuMemAllocAsync", 11000, false), Found::VersionTooOld);
    }

    #[test]
    fn no_symbol_is_listed_twice() {
        let mut seen = HashSet::new();
        for function in DRIVER_FUNCTIONS {
            assert!(seen.insert(function.symbol), "{}", function.symbol);
            if let Some(twin) = function.twin {
                assert!(seen.insert(twin.symbol), "{}", twin.symbol);
            }
        }
    }

    #[test]
    fn a_later_abi_of_a_name_has_a_later_version() {
        for a in DRIVER_FUNCTIONS {
            for b in DRIVER_FUNCTIONS.iter().filter(|b| b.name == a.name) {
                let longer = b.symbol.len() > a.symbol.len();
                assert!(!longer || b.since > a.since, "{} {}", a.symbol, b.symbol);
            }
        }
    }
}
