//! What every frame begins and ends with: what it is, which question it answers, and its signature.
//!
//! The signature is the last thing in a frame of any version, over all before it, so that it can be verified before anything is believed.

use std::time::Duration;

use super::bytes::Writer;
use super::{FrameError, Fresh, Kind, MAC_BYTES, NONCE_BYTES, NodeKey, Nonce};

pub(super) const VERSION: u8 = 1;
/// More than the largest report there may be.
pub const MOST_BYTES: usize = 2 << 20;

const MAGIC: &[u8; 4] = b"brth";
/// Magic, version, kind, whether it was asked for, a zero, its length, the nonce, its age.
const HEADER_BYTES: usize = 4 + 1 + 1 + 1 + 1 + 4 + NONCE_BYTES + 4;

/// A frame whose signature, kind, length and nonce are right.
#[derive(Debug)]
pub(super) struct Opened<'a> {
    pub age: Duration,
    pub body: &'a [u8],
}

pub(super) fn seal(
    kind: Kind,
    age: Duration,
    nonce: Option<&Nonce>,
    body: &[u8],
    key: &NodeKey,
) -> Result<Vec<u8>, FrameError> {
    let bytes = HEADER_BYTES + body.len() + MAC_BYTES;
    let length = u32::try_from(bytes).ok().filter(|_| bytes <= MOST_BYTES).ok_or(FrameError::TooLong { bytes })?;
    let mut frame = Writer::default();
    frame.raw(MAGIC);
    frame.u8(VERSION);
    frame.u8(kind as u8);
    frame.u8(nonce.is_some().into());
    frame.u8(0);
    frame.u32(length);
    frame.raw(&nonce.map_or([0; NONCE_BYTES], |nonce| nonce.0));
    frame.u32(u32::try_from(age.as_millis()).unwrap_or(u32::MAX));
    frame.raw(body);
    let mut frame = frame.done();
    frame.extend(key.sign(&frame));
    Ok(frame)
}

pub(super) fn open<'a>(frame: &'a [u8], wanted: Kind, key: &NodeKey, fresh: &Fresh) -> Result<Opened<'a>, FrameError> {
    let bytes = frame.len();
    if bytes > MOST_BYTES {
        return Err(FrameError::TooLong { bytes });
    }
    let too_short = FrameError::TooShort { bytes };
    let (signed, signature) = frame.split_last_chunk::<MAC_BYTES>().ok_or_else(|| too_short.clone())?;
    let (header, body) = signed.split_first_chunk::<HEADER_BYTES>().ok_or(too_short)?;
    if !header.starts_with(MAGIC) {
        return Err(FrameError::NotAFrame);
    }
    if !key.is_signed(signed, signature) {
        return Err(FrameError::Forged);
    }
    let [_, _, _, _, version, kind, is_asked, zero, rest @ ..] = header;
    let (length, rest) = rest.split_first_chunk().expect("a header has its length");
    let (nonce, age) = rest.split_first_chunk().expect("a header has its nonce");
    let age: &[u8; 4] = age.try_into().expect("a header ends with its age");
    if *version != VERSION {
        return Err(FrameError::Version { found: *version });
    }
    if *kind != wanted as u8 {
        return Err(FrameError::OtherKind { found: *kind, wanted });
    }
    let said = u32::from_le_bytes(*length);
    if usize::try_from(said) != Ok(bytes) {
        return Err(FrameError::OtherLength { said, found: bytes });
    }
    let nonce = match (is_asked, nonce) {
        (1, nonce) => Some(Nonce(*nonce)),
        (0, nonce) if *nonce == [0; NONCE_BYTES] => None,
        _ => return Err(FrameError::Impossible { what: "nonce" }),
    };
    if *zero != 0 {
        return Err(FrameError::Impossible { what: "header" });
    }
    fresh.is_expected(nonce)?;
    Ok(Opened { age: Duration::from_millis(u32::from_le_bytes(*age).into()), body })
}
