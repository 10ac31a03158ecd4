//! Numbers and texts as bytes, little end first. A reader takes nothing it was not given and makes room for nothing it has not seen.

use super::FrameError;

/// Seconds beyond this are no measurement: three hundred years.
pub(super) const MOST_SECONDS: f64 = 1e10;

#[derive(Debug, Default)]
pub(super) struct Writer {
    bytes: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

// === impl Writer ===

impl Writer {
    pub fn done(self) -> Vec<u8> {
        self.bytes
    }

    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub fn u8(&mut self, value: u8) {
        self.bytes.push(value);
    }

    pub fn u32(&mut self, value: u32) {
        self.raw(&value.to_le_bytes());
    }

    pub fn u64(&mut self, value: u64) {
        self.raw(&value.to_le_bytes());
    }

    /// `what` is named if it is no number, or beyond [`MOST_SECONDS`].
    pub fn seconds(&mut self, seconds: f64, what: &'static str) -> Result<(), FrameError> {
        self.raw(&sane(seconds, what)?.to_le_bytes());
        Ok(())
    }

    /// How many follow, in two bytes.
    pub fn count(&mut self, count: usize, most: usize, what: &'static str) -> Result<(), FrameError> {
        let fits = u16::try_from(count).ok().filter(|_| count <= most);
        self.raw(&fits.ok_or(FrameError::TooMany { what, count, most })?.to_le_bytes());
        Ok(())
    }

    /// Its length in two bytes, then itself.
    pub fn text(&mut self, text: &str, most: usize, what: &'static str) -> Result<(), FrameError> {
        self.count(text.len(), most, what)?;
        self.raw(text.as_bytes());
        Ok(())
    }
}

// === impl Reader ===

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub fn end(&self) -> Result<(), FrameError> {
        let bytes = self.rest.len();
        if bytes == 0 { Ok(()) } else { Err(FrameError::Trailing { bytes }) }
    }

    pub fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], FrameError> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(FrameError::Cut { what })?;
        self.rest = rest;
        Ok(*taken)
    }

    pub fn u8(&mut self, what: &'static str) -> Result<u8, FrameError> {
        self.array(what).map(|[byte]| byte)
    }

    pub fn u32(&mut self, what: &'static str) -> Result<u32, FrameError> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub fn u64(&mut self, what: &'static str) -> Result<u64, FrameError> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// Bits beyond `known` are refused.
    pub fn flags(&mut self, known: u8, what: &'static str) -> Result<u8, FrameError> {
        let flags = self.u8(what)?;
        if flags & !known == 0 { Ok(flags) } else { Err(FrameError::Impossible { what }) }
    }

    pub fn seconds(&mut self, what: &'static str) -> Result<f64, FrameError> {
        sane(self.array(what).map(f64::from_le_bytes)?, what)
    }

    /// As many of them as it says, each at least `least` bytes long: a number that could not follow is refused before room is made.
    pub fn count(&mut self, most: usize, least: usize, what: &'static str) -> Result<usize, FrameError> {
        let count = usize::from(self.array(what).map(u16::from_le_bytes)?);
        if count > most {
            return Err(FrameError::TooMany { what, count, most });
        }
        if count * least > self.rest.len() {
            return Err(FrameError::Cut { what });
        }
        Ok(count)
    }

    pub fn text(&mut self, most: usize, what: &'static str) -> Result<&'a str, FrameError> {
        let count = self.count(most, 1, what)?;
        let (text, rest) = self.rest.split_at(count);
        self.rest = rest;
        std::str::from_utf8(text).map_err(|_| FrameError::Impossible { what })
    }
}

fn sane(seconds: f64, what: &'static str) -> Result<f64, FrameError> {
    // No number is within anything.
    if seconds.abs() <= MOST_SECONDS { Ok(seconds) } else { Err(FrameError::Impossible { what }) }
}
