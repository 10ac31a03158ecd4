//! Between C and Rust: results as integers, pointers as types that say what they are for.
//!
//! As in the simulated driver, the pointer types have no constructor on this side: a value exists only because a C
//! caller passed it, and with it NVML's promise that a pointer is null or good for what the function does with it.

use std::ffi::{CStr, c_char, c_uint};
use std::panic::{AssertUnwindSafe, catch_unwind};

use berth_proto::nvml::result;

/// How every function behind the edge ends.
pub(crate) type Answer<T = ()> = Result<T, u32>;

pub(crate) fn guard(call: impl FnOnce() -> Answer) -> u32 {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => result::SUCCESS,
        Ok(Err(code)) => code,
        Err(_) => result::UNKNOWN,
    }
}

/// Where the caller wants a value.
#[repr(transparent)]
#[derive(Debug, Clone, Copy)]
pub struct Out<T>(*mut T);

impl<T> Out<T> {
    pub(crate) fn set(self, value: T) -> Answer {
        if self.0.is_null() {
            return Err(result::INVALID_ARGUMENT);
        }
        // SAFETY: not null, so the caller promised a place for a `T`; it may be uninitialised.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }
}

impl<T: Copy> Out<T> {
    /// For values that go both ways.
    pub(crate) fn get(self) -> Answer<T> {
        if self.0.is_null() {
            return Err(result::INVALID_ARGUMENT);
        }
        // SAFETY: not null, so the caller promised a readable `T`.
        Ok(unsafe { self.0.read_unaligned() })
    }
}

impl<T> Out<T> {
    /// What lies right after it, where the caller promised that more does.
    pub(crate) fn after<U>(self) -> Out<U> {
        Out(self.0.wrapping_add(1).cast())
    }

    /// The place after so many, likewise.
    pub(crate) fn at(self, number: c_uint) -> Self {
        Self(self.0.wrapping_add(number as usize))
    }
}

/// Something made for the caller, who passes it back until it frees it.
#[repr(transparent)]
#[derive(Debug)]
pub struct Owned<T>(*mut T);

impl<T> Clone for Owned<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Owned<T> {}

impl<T: Copy> Owned<T> {
    pub(crate) fn of(value: T) -> Self {
        Self(Box::into_raw(Box::new(value)))
    }

    pub(crate) fn get(self) -> Answer<T> {
        Out(self.0).get()
    }

    pub(crate) fn set(self, value: T) -> Answer {
        Out(self.0).set(value)
    }

    pub(crate) fn free(self) -> Answer {
        if self.0.is_null() {
            return Err(result::INVALID_ARGUMENT);
        }
        // SAFETY: not null, so it is what `of` made, and the caller passes it for the last time.
        drop(unsafe { Box::from_raw(self.0) });
        Ok(())
    }
}

/// Where the caller wants a zero-terminated text.
#[repr(transparent)]
#[derive(Debug, Clone, Copy)]
pub struct OutText(*mut c_char);

impl OutText {
    /// A text that does not fit is an error, as in NVML.
    pub(crate) fn set(self, text: &str, room: c_uint) -> Answer {
        if self.0.is_null() {
            return Err(result::INVALID_ARGUMENT);
        }
        if text.len() >= room as usize {
            return Err(result::INSUFFICIENT_SIZE);
        }
        // SAFETY: the caller promised `room` bytes; one more than the text's are written.
        unsafe {
            self.0.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), text.len());
            self.0.add(text.len()).write(0);
        }
        Ok(())
    }
}

/// Where the caller wants several values; how many fit is told beside it.
#[repr(transparent)]
#[derive(Debug, Clone, Copy)]
pub struct OutArray<T>(*mut T);

impl<T: Copy> OutArray<T> {
    /// NVML's two-step protocol: if all of `values` fit they are written and `count` says how many; if not (or there is
    /// no array), `count` says how many there are.
    pub(crate) fn fill(self, count: Out<c_uint>, values: &[T]) -> Answer {
        let room = count.get()? as usize;
        count.set(c_uint::try_from(values.len()).unwrap_or(c_uint::MAX))?;
        if values.is_empty() {
            return Ok(());
        }
        if self.0.is_null() || room < values.len() {
            return Err(result::INSUFFICIENT_SIZE);
        }
        // SAFETY: not null, so the caller promised room for as many as it said, which is enough.
        unsafe { self.0.copy_from_nonoverlapping(values.as_ptr(), values.len()) };
        Ok(())
    }
}

/// A zero-terminated text from the caller.
#[repr(transparent)]
#[derive(Debug, Clone, Copy)]
pub struct Text(*const c_char);

impl Text {
    pub(crate) fn get(&self) -> Answer<&str> {
        if self.0.is_null() {
            return Err(result::INVALID_ARGUMENT);
        }
        // SAFETY: not null, so the caller promised a zero-terminated text that lives during the call.
        let text = unsafe { CStr::from_ptr(self.0) };
        text.to_str().map_err(|_| result::INVALID_ARGUMENT)
    }
}
