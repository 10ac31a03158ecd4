//! Integers, floats and text in and out of a message's bytes.

use super::{MAX_FRAME_BYTES, WireError};

/// Appends values to a message.
#[derive(Debug)]
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out }
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    pub(crate) fn u8(&mut self, value: u8) {
        self.out.push(value);
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    pub(crate) fn f64(&mut self, value: f64) {
        self.bytes(&value.to_le_bytes());
    }

    pub(crate) fn flag(&mut self, value: bool) {
        self.u8(u8::from(value));
    }

    pub(crate) fn text(&mut self, text: &str) -> Result<(), WireError> {
        let bytes = text.len();
        let length = match u16::try_from(bytes) {
            Ok(length) if bytes < MAX_FRAME_BYTES => length,
            _ => return Err(WireError::TextTooLong { bytes }),
        };
        self.bytes(&length.to_le_bytes());
        self.bytes(text.as_bytes());
        Ok(())
    }
}

/// Takes values off the front of a message.
#[derive(Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(rest: &'a [u8]) -> Self {
        Self { rest }
    }

    /// Nothing may be left over: a longer message is another version's.
    pub(crate) fn finish(self) -> Result<(), WireError> {
        match self.rest.len() {
            0 => Ok(()),
            extra => Err(WireError::Trailing { extra }),
        }
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (head, rest) =
            self.rest.split_first_chunk::<N>().ok_or(WireError::Short { have: self.rest.len(), need: N })?;
        self.rest = rest;
        Ok(*head)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, WireError> {
        let [byte] = self.array()?;
        Ok(byte)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, WireError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, WireError> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn f64(&mut self) -> Result<f64, WireError> {
        self.array().map(f64::from_le_bytes)
    }

    pub(crate) fn flag(&mut self) -> Result<bool, WireError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            tag => Err(WireError::UnknownTag { what: "flag", tag }),
        }
    }

    pub(crate) fn text(&mut self) -> Result<String, WireError> {
        let bytes = usize::from(self.array().map(u16::from_le_bytes)?);
        let (head, rest) =
            self.rest.split_at_checked(bytes).ok_or(WireError::Short { have: self.rest.len(), need: bytes })?;
        self.rest = rest;
        let text = std::str::from_utf8(head).map_err(|_| WireError::NotText)?;
        Ok(text.to_owned())
    }
}
