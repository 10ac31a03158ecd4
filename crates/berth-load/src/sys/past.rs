//! The driver's own launch, past whatever a preloaded library has put before it, so that both can be timed in one process.
//!
//! A preloaded library may answer for the dynamic linker and for the driver's own look-up. So the address is reckoned: from that of a function
//! that nobody stands before, and from where both are in the library's file.

use std::ffi::c_void;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::ptr;

use object::read::ReadCache;
use object::read::elf::ElfFile64;
use object::{Endianness, Object as _, ObjectSymbol as _};

use super::{exported, open};

/// A part of a file that can be executed, and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Code64 {
    from: u64,
    to: u64,
    file: PathBuf,
}

/// The driver's own `cuLaunchKernel`, in the library at this path, which the process uses. `None` where it cannot be told.
pub(super) fn launch(library: &Path) -> Option<*const c_void> {
    let known = exported(&open(library).ok()?, c"cuDriverGetVersion")?.addr() as u64;
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let code: Vec<Code64> = maps.lines().filter_map(Code64::of).collect();
    let within = |address: u64| code.iter().find(|code| (code.from..code.to).contains(&address));
    let file = &within(known)?.file;
    let (known_in_file, launch_in_file) = places(file)?;
    let launch = known.wrapping_sub(known_in_file).wrapping_add(launch_in_file);
    within(launch).filter(|code| code.file == *file)?;
    Some(ptr::with_exposed_provenance(usize::try_from(launch).ok()?))
}

/// Where a file has the known function and the launch.
fn places(file: &Path) -> Option<(u64, u64)> {
    let reading = ReadCache::new(File::open(file).ok()?);
    let elf = ElfFile64::<Endianness, _>::parse(&reading).ok()?;
    let place = |name: &str| {
        let mut symbols = elf.dynamic_symbols().filter(|symbol| symbol.is_definition());
        symbols.find(|symbol| symbol.name() == Ok(name)).map(|symbol| symbol.address())
    };
    Some((place("cuDriverGetVersion")?, place("cuLaunchKernel")?))
}

impl Code64 {
    /// A line of `/proc/PID/maps`.
    fn of(line: &str) -> Option<Self> {
        let (range, rest) = line.split_once(' ')?;
        let (rights, rest) = rest.split_once(' ')?;
        let (from, to) = range.split_once('-')?;
        let file = rest.splitn(4, ' ').nth(3)?.trim_start();
        let number = |text| u64::from_str_radix(text, 16).ok();
        let found = Self { from: number(from)?, to: number(to)?, file: file.into() };
        (rights.contains('x') && file.starts_with('/')).then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_of_files_is_told_from_all_else() {
        let code =
            Code64::of("7f10a000-7f10c000 r-xp 00002000 fe:01 1234                       /usr/lib/lib cuda.so.1")
                .unwrap();
        assert_eq!((code.from, code.to), (0x7f10_a000, 0x7f10_c000));
        assert_eq!(code.file, PathBuf::from("/usr/lib/lib cuda.so.1"));
        for other in [
            "7f10a000-7f10c000 r--p 00000000 fe:01 1234  /usr/lib/libcuda.so.1",
            "7ffc0000-7ffc2000 r-xp 00000000 00:00 0     [vdso]",
            "7ffc0000-7ffc2000 rwxp 00000000 00:00 0 ",
            "nonsense",
        ] {
            assert_eq!(Code64::of(other), None, "{other}");
        }
    }

    #[test]
    fn there_is_nothing_past_a_library_that_is_no_driver() {
        assert!(launch(Path::new("libc.so.6")).is_none());
        assert!(launch(Path::new("/nowhere/libcuda.so.1")).is_none());
    }
}
