//! The file as a slice of atomic words. All unsafe code of the snapshot is here.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Deref;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};

/// A shared mapping of `len` words. A mapping made by [`Words::open`] must only be loaded from.
#[derive(Debug)]
pub(super) struct Words {
    map: MmapRaw,
    len: usize,
}

impl Words {
    /// Maps the file for writing; makes it or makes it longer if needed, never shorter, so that readers of an older
    /// writer keep their pages.
    pub(super) fn create(path: &Path, len: usize) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o644).open(path)?;
        let bytes = (len * 8) as u64;
        if file.metadata()?.len() < bytes {
            file.set_len(bytes)?;
        }
        let map = MmapOptions::new().len(len * 8).map_raw(&file)?;
        Ok(Self { map, len })
    }

    /// Maps the file for reading; a file too short is refused, because touching the missing part would be fatal.
    pub(super) fn open(path: &Path, len: usize) -> io::Result<Self> {
        let file = File::open(path)?;
        if file.metadata()?.len() < (len * 8) as u64 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        }
        let map = MmapOptions::new().len(len * 8).map_raw_read_only(&file)?;
        Ok(Self { map, len })
    }

    pub(super) fn load(&self, index: usize) -> u64 {
        self[index].load(Ordering::Acquire)
    }

    pub(super) fn store(&self, index: usize, value: u64) {
        self[index].store(value, Ordering::Release);
    }
}

impl Deref for Words {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is page-aligned, at least `len` words long, and lives as long as `self`; everybody who
        // maps the file touches it through atomics only. Nobody shortens the file.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().cast::<AtomicU64>(), self.len) }
    }
}
