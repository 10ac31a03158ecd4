//! Where in a library's file a function begins: what the kernel wants to know to probe it.
//!
//! Only the dynamic symbols are read, piece by piece: a driver library is about 100 MB.

use object::read::ReadRef;
use object::read::elf::ElfFile64;
use object::{Architecture, Endianness, Object, ObjectSegment, ObjectSymbol};

use super::function::FUNCTIONS;

/// A place in a file and the row of [`FUNCTIONS`] that begins there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    pub offset: u64,
    pub function: u8,
}

#[derive(Debug, thiserror::Error)]
pub enum ElfError {
    #[error("no 64-bit ELF file: {0}")]
    Malformed(#[from] object::read::Error),
    #[error("made for another machine ({0:?})")]
    Foreign(Architecture),
    #[error("has none of the driver's functions")]
    NoFunctions,
    #[error("has none of the functions to be probed in one process")]
    NoSuchFunctions,
}

const NATIVE: Architecture = if cfg!(target_arch = "aarch64") { Architecture::Aarch64 } else { Architecture::X86_64 };

/// The probed functions that this library defines. Two names of one place are one point, under the first name.
pub fn points<'data, R: ReadRef<'data>>(file: R) -> Result<Vec<Point>, ElfError> {
    let elf = ElfFile64::<Endianness, R>::parse(file)?;
    if elf.architecture() != NATIVE {
        return Err(ElfError::Foreign(elf.architecture()));
    }
    let mut points: Vec<Point> = Vec::new();
    for symbol in elf.dynamic_symbols().filter(|s| s.is_definition()) {
        let Some(function) = symbol.name().ok().and_then(row) else { continue };
        let segments = elf.segments().map(|s| (s.address(), s.file_range()));
        if let Some(offset) = file_offset(symbol.address(), segments) {
            points.push(Point { offset, function });
        }
    }
    points.sort_by_key(|p| (p.offset, p.function));
    points.dedup_by_key(|p| p.offset);
    if points.is_empty() { Err(ElfError::NoFunctions) } else { Ok(points) }
}

fn row(name: &str) -> Option<u8> {
    FUNCTIONS.iter().position(|f| f.name == name).and_then(|row| u8::try_from(row).ok())
}

/// Which byte of the file is loaded at `address`. Segments are (address, (offset in the file, bytes in the file)).
fn file_offset(address: u64, segments: impl Iterator<Item = (u64, (u64, u64))>) -> Option<u64> {
    segments.into_iter().find_map(|(start, (offset, len))| {
        let within = address.checked_sub(start)?;
        (within < len).then(|| offset + within)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_found_through_the_segment_that_loads_it() {
        let segments = [(0, (0, 0x500)), (0x2000, (0x1000, 0x300)), (0x4000, (0x1300, 0x10))];
        let offset = |address| file_offset(address, segments.into_iter());
        assert_eq!(offset(0x2010), Some(0x1010));
        assert_eq!(offset(0x20), Some(0x20));
        assert_eq!(offset(0x2300), None, "beyond what the file holds: zeroed memory");
        assert_eq!(offset(0x1000), None, "between segments");
    }

    #[test]
    fn what_is_no_elf_file_is_refused() {
        assert!(matches!(points(&b"#!/bin/sh\necho libcuda\n"[..]), Err(ElfError::Malformed(_))));
    }
}
