//! Memory files with one page layout in them, mapped. All unsafe code of the shared pages is here.

use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::ops::Deref;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};

use memmap2::{MmapOptions, MmapRaw};

use super::pages::{Ledger, Orders, Stop};
use crate::table::allocate;

/// Layouts that are nothing but atomics: any bytes are a value of theirs.
pub trait Shared: sealed::Sealed {}

impl Shared for Orders {}
impl Shared for Ledger {}
impl Shared for Stop {}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Orders {}
    impl Sealed for super::Ledger {}
    impl Sealed for super::Stop {}
}

/// Who may write through a mapping that is made later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writers {
    /// Everybody who has the descriptor, until [`close_to_others`].
    All,
    /// Nobody but who has mapped it before.
    SoFar,
}

/// A mapped page layout. One that was mapped read-only must only be loaded from.
#[derive(Debug)]
pub struct Page<T> {
    map: MmapRaw,
    layout: PhantomData<T>,
}

impl<T: Shared> Page<T> {
    /// A new memory file full of zeros, mapped here for writing. Its size never changes.
    pub fn create(name: &std::ffi::CStr, writers: Writers) -> io::Result<(Self, File)> {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: `name` is a C string that outlives the call.
        let descriptor = checked(unsafe { libc::memfd_create(name.as_ptr(), flags) })?;
        // SAFETY: the kernel has just given this descriptor to nobody else.
        let file = unsafe { File::from_raw_fd(descriptor) };
        allocate(&file, size_of::<T>() as u64)?;
        let page = Self::open(&file)?;
        seal(&file, libc::F_SEAL_SHRINK | libc::F_SEAL_GROW)?;
        if writers == Writers::SoFar {
            close_to_others(&file)?;
        }
        Ok((page, file))
    }

    /// Full of zeros, and this process's own: there is no file.
    pub fn private() -> io::Result<Self> {
        Ok(Self { map: MmapOptions::new().len(size_of::<T>()).map_anon()?.into(), layout: PhantomData })
    }

    /// Maps for writing.
    pub fn open(file: &File) -> io::Result<Self> {
        check_size::<T>(file)?;
        Ok(Self { map: MmapOptions::new().len(size_of::<T>()).map_raw(file)?, layout: PhantomData })
    }

    pub fn open_read_only(file: &File) -> io::Result<Self> {
        check_size::<T>(file)?;
        Ok(Self { map: MmapOptions::new().len(size_of::<T>()).map_raw_read_only(file)?, layout: PhantomData })
    }

    /// Where it is mapped, for the driver to register.
    pub fn address(&self) -> *mut u8 {
        self.map.as_mut_ptr()
    }
}

impl<T: Shared> Deref for Page<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the mapping is page-aligned, as large as `T`, and lives as long as `self`. `T` consists of atomics, for which any
        // bytes are a value, and everybody touches the file through atomics only. Its size was checked, and is
        // sealed by whoever made it.
        unsafe { &*self.map.as_ptr().cast::<T>() }
    }
}

/// From now on nobody can map the file for writing who has not yet, nor write to it by its descriptor. Nor can anybody put other
/// memory in the place of what is mapped: the kernel refuses to punch a hole (`fallocate`, `MADV_REMOVE`) into a file with
/// `F_SEAL_FUTURE_WRITE`. Without, a GPU that has the old memory pinned would go on looking at it while all others see the new.
/// `F_SEAL_WRITE` would need that nobody can write at all.
pub fn close_to_others(file: &File) -> io::Result<()> {
    seal(file, libc::F_SEAL_FUTURE_WRITE | libc::F_SEAL_SEAL)
}

fn seal(file: &File, seals: libc::c_int) -> io::Result<()> {
    // SAFETY: the descriptor is open, and the call takes integers only.
    checked(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) }).map(drop)
}

/// Touching what is not there would be fatal.
fn check_size<T>(file: &File) -> io::Result<()> {
    let has = file.metadata()?.len();
    if has < size_of::<T>() as u64 {
        return Err(io::Error::other(format!("a memory file of {has} bytes, and {} are needed", size_of::<T>())));
    }
    Ok(())
}

fn checked(answer: RawFd) -> io::Result<RawFd> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn what_one_stores_the_other_loads() {
        let (page, file) = Page::<Stop>::create(c"stop", Writers::All).unwrap();
        let other = Page::<Stop>::open(&file).unwrap();
        other.word.store(7, Ordering::Release);
        assert_eq!(page.word.load(Ordering::Acquire), 7);
    }

    #[test]
    fn orders_cannot_be_written_by_who_gets_them_however_it_opens_them() {
        let (page, file) = Page::<Orders>::create(c"orders", Writers::SoFar).unwrap();
        let given = Page::<Orders>::open_read_only(&file).unwrap();
        page.lanes[1].grain_ns.store(50_000, Ordering::Release);
        assert_eq!(given.lanes[1].grain_ns.load(Ordering::Acquire), 50_000);
        assert!(Page::<Orders>::open(&file).is_err());
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let again = File::options().read(true).write(true).open(path);
        assert!(again.is_err() || Page::<Orders>::open(&again.unwrap()).is_err());
        assert!(std::os::unix::fs::FileExt::write_at(&file, b"forged", 0).is_err());
    }

    #[test]
    fn memory_that_is_closed_to_others_cannot_be_exchanged_by_one_who_can_write_it() {
        let (page, file) = Page::<Stop>::create(c"stop", Writers::All).unwrap();
        let leader = Page::<Stop>::open(&file).unwrap();
        // SAFETY: both calls take what was mapped above, and leave it mapped.
        let exchange = || unsafe {
            let hole = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            let punched = libc::fallocate(file.as_raw_fd(), hole, 0, 4096) == 0;
            punched | (libc::madvise(leader.address().cast(), 4096, libc::MADV_REMOVE) == 0)
        };
        page.word.store(5, Ordering::SeqCst);
        assert!(exchange() && leader.word.load(Ordering::SeqCst) == 0, "anybody can before");
        close_to_others(&file).unwrap();
        page.word.store(5, Ordering::SeqCst);
        assert!(!exchange() && leader.word.load(Ordering::SeqCst) == 5);
        leader.word.store(6, Ordering::SeqCst);
        assert_eq!(page.word.load(Ordering::SeqCst), 6, "who has mapped it goes on as before");
        assert!(Page::<Stop>::open(&file).is_err());
    }

    #[test]
    fn a_size_is_for_good_and_a_file_too_short_is_refused() {
        let (_page, file) = Page::<Ledger>::create(c"ledger", Writers::All).unwrap();
        assert!(file.set_len(0).is_err() && file.set_len(1 << 20).is_err());
        let (_page, file) = Page::<Stop>::create(c"stop", Writers::All).unwrap();
        let refused = Page::<Ledger>::open(&file).unwrap_err().to_string();
        assert_eq!(refused, "a memory file of 4096 bytes, and 45056 are needed");
    }
}
