//! How the simulated driver's messages look on a Unix stream socket.
//!
//! Every message is a frame: a little-endian `u32` length, then that many bytes. The first frame of a client is its
//! [`Hello`], the first of the server its [`Welcome`]; after that a client sends [`Call`]s and the server answers those
//! that want it with a [`Reply`], in order. Integers are little endian, enums one tag byte, text a `u16` length and
//! UTF-8. Nothing here reads or writes a socket, and no input, however wrong, makes a decoder panic.

mod message;
mod primitive;

pub use message::{Call, Hello, Role, Welcome};
pub(crate) use primitive::{Reader, Writer};

use crate::sim::{Reply, VERSION};

/// No message is longer; a frame that claims to be ends the conversation before anything is allocated for it.
pub const MAX_FRAME_BYTES: usize = 1024;

/// Bytes of the length before each frame.
const PREFIX_BYTES: usize = 4;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    #[error("message ends after {have} bytes where {need} more were expected")]
    Short { have: usize, need: usize },
    #[error("message has {extra} bytes after its end")]
    Trailing { extra: usize },
    #[error("frame of {bytes} bytes, at most {MAX_FRAME_BYTES} are allowed")]
    FrameTooLong { bytes: usize },
    #[error("text of {bytes} bytes does not fit in a message")]
    TextTooLong { bytes: usize },
    #[error("text is not UTF-8")]
    NotText,
    #[error("unknown {what} tag {tag}")]
    UnknownTag { what: &'static str, tag: u8 },
    #[error("the peer does not speak the simulator's protocol")]
    NotOurs,
    #[error("the peer speaks version {theirs} of the simulator's protocol, this side version {VERSION}")]
    Version { theirs: u32 },
}

/// A value that travels as one frame.
pub trait Message: Sized {
    fn write(&self, out: &mut Writer<'_>) -> Result<(), WireError>;
    fn read(from: &mut Reader<'_>) -> Result<Self, WireError>;

    /// Appends the whole frame to `out`; on an error `out` is as before.
    fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        let start = out.len();
        let written = write_frame(self, out);
        if written.is_err() {
            out.truncate(start);
        }
        written
    }

    /// Reads one frame's bytes, without the length before it.
    fn decode(frame: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(frame);
        let message = Self::read(&mut reader)?;
        reader.finish()?;
        Ok(message)
    }
}

fn write_frame<M: Message>(message: &M, out: &mut Vec<u8>) -> Result<(), WireError> {
    let start = out.len();
    out.extend_from_slice(&[0; PREFIX_BYTES]);
    message.write(&mut Writer::new(out))?;
    let bytes = out.len() - start - PREFIX_BYTES;
    let length = match u32::try_from(bytes) {
        Ok(length) if bytes <= MAX_FRAME_BYTES => length,
        _ => return Err(WireError::FrameTooLong { bytes }),
    };
    out[start..start + PREFIX_BYTES].copy_from_slice(&length.to_le_bytes());
    Ok(())
}

/// Cuts a byte stream into frames.
#[derive(Debug, Default)]
pub struct Frames {
    buffer: Vec<u8>,
    /// Bytes at the front of `buffer` already handed out.
    used: usize,
}

impl Frames {
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.used);
        self.used = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole frame, or `None` until more bytes come. After an error the stream cannot be followed any more.
    pub fn next_frame(&mut self) -> Result<Option<&[u8]>, WireError> {
        let rest = &self.buffer[self.used..];
        let Some((prefix, rest)) = rest.split_first_chunk::<PREFIX_BYTES>() else {
            return Ok(None);
        };
        let bytes = u32::from_le_bytes(*prefix) as usize;
        if bytes > MAX_FRAME_BYTES {
            return Err(WireError::FrameTooLong { bytes });
        }
        if rest.len() < bytes {
            return Ok(None);
        }
        let start = self.used + PREFIX_BYTES;
        self.used = start + bytes;
        Ok(Some(&self.buffer[start..self.used]))
    }

    /// Bytes received and not yet handed out.
    pub fn pending(&self) -> usize {
        self.buffer.len() - self.used
    }
}

/// Checks everything a server decodes, for fuzzers: must return for any bytes.
pub fn fuzz_decoders(bytes: &[u8]) {
    let _ = Hello::decode(bytes);
    let _ = Welcome::decode(bytes);
    let _ = Call::decode(bytes);
    let _ = Reply::decode(bytes);
    let mut frames = Frames::default();
    for chunk in bytes.chunks(7) {
        frames.push(chunk);
        while let Ok(Some(frame)) = frames.next_frame() {
            let _ = Call::decode(frame);
        }
    }
}

#[cfg(test)]
mod tests;
