//! Between C and Rust: results as integers, pointers as types that say what they are for.
//!
//! The pointer types have no constructor on this side: a value exists only because a C caller passed it, and with it
//! the driver API's promise that a pointer is null or good for what the function does with it. That promise is what
//! every unsafe block here rests on. Handles are plain numbers and are looked up, never followed.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use berth_proto::cuda::{CuResult, result};

/// How every function behind the edge ends.
pub(crate) type Answer<T = ()> = Result<T, CuResult>;

/// Runs one exported function: whatever goes wrong inside becomes a result, never a panic in the caller's stack.
pub(crate) fn guard(call: impl FnOnce() -> Answer) -> CuResult {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => result::SUCCESS,
        Ok(Err(code)) => code,
        Err(_) => result::UNKNOWN,
    }
}

/// A device ordinal as C passes it.
pub(crate) fn ordinal(device: c_int) -> Answer<u32> {
    u32::try_from(device).map_err(|_| result::INVALID_DEVICE)
}

/// Where the caller wants a value.
#[repr(transparent)]
#[derive(Debug, Clone, Copy)]
pub struct Out<T>(*mut T);

impl<T> Out<T> {
    pub(crate) fn set(self, value: T) -> Answer {
        if self.0.is_null() {
            return Err(result::INVALID_VALUE);
        }
        self.set_if_wanted(value);
        Ok(())
    }

    /// For results the caller may leave out.
    pub(crate) fn set_if_wanted(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: not null, so the caller promised a place for a `T`; it may be unaligned or uninitialised.
            unsafe { self.0.write_unaligned(value) };
        }
    }

    pub(crate) fn check(self) -> Answer {
        if self.0.is_null() { Err(result::INVALID_VALUE) } else { Ok(()) }
    }
}

/// A value of the caller's that is read and written.
#[repr(transparent)]
#[derive(Debug, Clone, Copy)]
pub struct InOut<T>(*mut T);

impl<T: Copy> InOut<T> {
    pub(crate) fn get(self) -> Answer<T> {
        In(self.0.cast_const()).get().ok_or(result::INVALID_VALUE)
    }

    /// Nothing where there is no place.
    pub(crate) fn set(self, value: T) {
        Out(self.0).set_if_wanted(value);
    }
}

/// Where the caller wants several values, with room for the number it gives beside it.
#[repr(transparent)]
#[derive(Debug, Clone, Copy)]
pub struct OutArray<T>(*mut T);

impl<T: Copy> OutArray<T> {
    pub(crate) fn is_wanted(self) -> bool {
        !self.0.is_null()
    }

    /// `index` is below the number the caller gave.
    pub(crate) fn set(self, index: usize, value: T) {
        if self.is_wanted() {
            // SAFETY: not null, so the caller promised places for as many as it said.
            unsafe { self.0.add(index).write_unaligned(value) };
        }
    }
}

/// Where the caller wants a zero-terminated text, with room for the length it gives beside it.
#[repr(transparent)]
#[derive(Debug, Clone, Copy)]
pub struct OutText(*mut c_char);

impl OutText {
    /// Cut to fit, as the driver does.
    pub(crate) fn set(self, text: &str, room: c_int) -> Answer {
        let room = usize::try_from(room).unwrap_or(0);
        if self.0.is_null() || room == 0 {
            return Err(result::INVALID_VALUE);
        }
        let kept = text.len().min(room - 1);
        // SAFETY: the caller promised `room` bytes; `kept + 1` of them are written.
        unsafe {
            self.0.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), kept);
            self.0.add(kept).write(0);
        }
        Ok(())
    }
}

/// A value the caller wrote down for us.
#[repr(transparent)]
#[derive(Debug, Clone, Copy)]
pub struct In<T>(*const T);

impl<T: Copy> In<T> {
    pub(crate) fn get(self) -> Option<T> {
        // SAFETY: not null, so the caller promised a readable `T`.
        (!self.0.is_null()).then(|| unsafe { self.0.read_unaligned() })
    }
}

/// An array of values the caller wrote down for us, with a length it gives beside it.
#[repr(transparent)]
#[derive(Debug, Clone, Copy)]
pub struct InArray<T>(*const T);

impl<T: Copy> InArray<T> {
    /// `None` for a null pointer, unless nothing is asked of it.
    pub(crate) fn get(self, count: usize) -> Option<Vec<T>> {
        if self.0.is_null() {
            return (count == 0).then(Vec::new);
        }
        // SAFETY: not null, so the caller promised `count` readable values.
        Some((0..count).map(|index| unsafe { self.0.add(index).read_unaligned() }).collect())
    }
}

/// A zero-terminated text from the caller.
#[repr(transparent)]
#[derive(Debug, Clone, Copy)]
pub struct Text(*const c_char);

impl Text {
    pub(crate) fn get(&self) -> Answer<&str> {
        if self.0.is_null() {
            return Err(result::INVALID_VALUE);
        }
        // SAFETY: not null, so the caller promised a zero-terminated text that lives during the call.
        let text = unsafe { CStr::from_ptr(self.0) };
        text.to_str().map_err(|_| result::INVALID_VALUE)
    }
}

/// A module's image: text (PTX), or a binary that says its own length and is not looked into.
#[repr(transparent)]
#[derive(Debug, Clone, Copy)]
pub struct Image(*const c_void);

/// First bytes of the binary images: an ELF file, a fat binary, and its wrapper.
const BINARIES: [[u8; 4]; 3] = [*b"\x7fELF", [0x50, 0xed, 0x55, 0xba], [0xb1, 0x43, 0x62, 0x46]];

impl Image {
    /// `None` for a binary.
    pub(crate) fn ptx(&self) -> Answer<Option<&str>> {
        if self.0.is_null() {
            return Err(result::INVALID_VALUE);
        }
        if BINARIES.iter().any(|magic| self.starts_with(*magic)) {
            return Ok(None);
        }
        let text = Text(self.0.cast());
        // SAFETY: as for `Text`: what is no binary is a zero-terminated text that lives during the call.
        let text = unsafe { CStr::from_ptr(text.0) };
        text.to_str().map(Some).map_err(|_| result::INVALID_IMAGE)
    }

    /// Byte by byte, so that nothing behind a short text's end is read.
    fn starts_with(&self, magic: [u8; 4]) -> bool {
        (0..magic.len()).all(|index| {
            // SAFETY: all bytes before this one were equal to a magic's, none of which has a zero, so the image goes on.
            let byte = unsafe { self.0.cast::<u8>().add(index).read() };
            byte == magic[index]
        })
    }
}

/// A kernel's arguments as `cuLaunchKernel` gets them: an array of pointers, or a packed buffer in `extra`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arguments {
    pub(crate) pointers: Pointers,
    pub(crate) extra: Pointers,
}

/// A C array of pointers, or null.
#[repr(transparent)]
#[derive(Debug, Clone, Copy)]
pub struct Pointers(*const *const c_void);

/// `CU_LAUNCH_PARAM_END` and `CU_LAUNCH_PARAM_BUFFER_POINTER` in an `extra` list.
const EXTRA_END: usize = 0;
const EXTRA_BUFFER: usize = 1;
/// An `extra` list has at most the buffer, its size and the end.
const EXTRA_MAX: usize = 3;

impl Pointers {
    pub(crate) const NONE: Pointers = Pointers(std::ptr::null());

    fn at(self, index: usize) -> *const c_void {
        // SAFETY: callers below stay within the array the driver API describes.
        unsafe { self.0.add(index).read() }
    }

    /// The packed buffer of an `extra` list.
    fn buffer(self) -> Option<*const u8> {
        if self.0.is_null() {
            return None;
        }
        (0..EXTRA_MAX)
            .map(|n| n * 2)
            .map_while(|at| {
                let key = self.at(at) as usize;
                (key != EXTRA_END).then(|| (key, self.at(at + 1)))
            })
            .find(|(key, _)| *key == EXTRA_BUFFER)
            .map(|(_, buffer)| buffer.cast())
    }
}

impl Arguments {
    /// The `bytes` (at most eight) of the argument at `index`, `offset` bytes into a packed buffer, zero-extended.
    pub(crate) fn read(&self, index: usize, offset: usize, bytes: usize) -> Option<[u8; 8]> {
        let source = match self.pointers.0.is_null() {
            false => self.pointers.at(index).cast::<u8>(),
            // SAFETY: the kernel has this argument, so the buffer reaches at least to its end.
            true => unsafe { self.extra.buffer()?.add(offset) },
        };
        if source.is_null() {
            return None;
        }
        let mut value = [0; 8];
        // SAFETY: the kernel declares an argument of this size here, so the caller passed one.
        unsafe { value.as_mut_ptr().copy_from_nonoverlapping(source, bytes.min(8)) };
        Some(value)
    }
}
