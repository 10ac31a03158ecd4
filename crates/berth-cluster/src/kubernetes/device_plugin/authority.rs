//! Lets kubelets in that name us by the path of our socket.
//!
//! In HTTP/2 a request says whom it is for (`:authority`). A kubelet whose gRPC library is old says the path of the socket, which is no name
//! of a host, and the HTTP library here ends such a connection as malformed. Nobody reads that name: what is said in its place is as long in
//! bytes and of letters only. Frames are read to the end and no further than the fields' lengths; no value is decoded.
//!
//! The other side counts the size of its table of past fields with the name it sent. Ours is shorter, so that nothing it refers to is
//! forgotten here first.

use std::io;
use std::ops::Range;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio::net::UnixStream;

/// What every client says first.
const PREFACE: usize = 24;
const FRAME_HEAD: usize = 9;
/// What a frame holds at most, as nobody here has allowed for more.
const LONGEST: usize = 1 << 14;
const HEADERS: u8 = 1;
/// Flags of a frame in which more than fields is: none that a kubelet sends.
const PADDED_OR_WITH_PRIORITY: u8 = 0x28;
/// Number of `:authority` in the table of known fields.
const AUTHORITY: usize = 1;
/// Of the byte in which a string's length begins.
const COMPRESSED: u8 = 0x80;
/// Bytes that are under way between both sides.
const UNDER_WAY: usize = 1 << 16;

/// The kubelet's connection with every request for a name that can be one. Ends with either side.
pub(super) fn named(kubelet: UnixStream) -> DuplexStream {
    let (ours, theirs) = tokio::io::duplex(UNDER_WAY);
    tokio::spawn(async move {
        let (requests, mut to_kubelet) = kubelet.into_split();
        let (mut answers, to_us) = tokio::io::split(theirs);
        // Who hangs up has nothing more to say.
        tokio::select! {
            _ = pass(requests, to_us) => {}
            _ = tokio::io::copy(&mut answers, &mut to_kubelet) => {}
        }
    });
    ours
}

async fn pass(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) -> io::Result<()> {
    let mut bytes = vec![0; PREFACE];
    from.read_exact(&mut bytes).await?;
    loop {
        to.write_all(&bytes).await?;
        bytes.resize(FRAME_HEAD, 0);
        from.read_exact(&mut bytes).await?;
        let length = u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]]) as usize;
        if length > LONGEST {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let (kind, flags) = (bytes[3], bytes[4]);
        bytes.resize(FRAME_HEAD + length, 0);
        from.read_exact(&mut bytes[FRAME_HEAD..]).await?;
        if kind == HEADERS && flags & PADDED_OR_WITH_PRIORITY == 0 {
            // What cannot be read is for the HTTP library to refuse.
            let _ = rename(&mut bytes[FRAME_HEAD..]);
        }
    }
}

/// Puts letters in place of the value of every `:authority` that is written out. `None` if the fields are not as they should be.
fn rename(fields: &mut [u8]) -> Option<()> {
    let mut at = 0;
    while let Some(first) = fields.get(at).copied() {
        // Of a number of a field or of a name, as many bits as the kind leaves.
        let (bits, has_value) = match first {
            0x80.. => (7, false),
            0x40.. => (6, true),
            0x20.. => (5, false),
            _ => (4, true),
        };
        let name = number(fields, &mut at, bits)?;
        if has_value && name == 0 {
            string(fields, &mut at)?;
        }
        if has_value {
            let head = at;
            let value = string(fields, &mut at)?;
            if name == AUTHORITY {
                fields[head] &= !COMPRESSED;
                fields[value].fill(b'a');
            }
        }
    }
    Some(())
}

/// The bytes of the next string.
fn string(fields: &[u8], at: &mut usize) -> Option<Range<usize>> {
    let length = number(fields, at, 7)?;
    let bytes = *at..at.checked_add(length)?;
    *at = bytes.end;
    fields.get(bytes.clone()).map(|_| bytes)
}

/// A number in the last `bits` of a byte; what does not fit goes on in the next ones, seven bits each.
fn number(fields: &[u8], at: &mut usize, bits: u32) -> Option<usize> {
    let most = (1 << bits) - 1;
    let mut number = usize::from(*fields.get(*at)?) & most;
    *at += 1;
    if number < most {
        return Some(number);
    }
    for shift in [0, 7, 14] {
        let byte = usize::from(*fields.get(*at)?);
        *at += 1;
        number += (byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// As kubelet 1.20.2 asks: POST, http, a path, the socket's path by Huffman's code, a content type.
    fn fields(authority: &[u8]) -> Vec<u8> {
        let length = u8::try_from(authority.len()).unwrap();
        [&[0x83, 0x86, 0x44, 3, b'/', b'a', b'b', 0x41, COMPRESSED | length], authority, &[0x5f, 1, b'x']].concat()
    }

    #[test]
    fn a_name_is_replaced_by_letters_and_nothing_else_is_touched() {
        let mut asked = fields(&[0x60, 0xd5, 0x48, 0x5f]);
        assert_eq!(rename(&mut asked), Some(()));
        let mut wanted = fields(b"aaaa");
        wanted[8] &= !COMPRESSED;
        assert_eq!(asked, wanted);
    }

    #[test]
    fn a_request_that_refers_to_an_earlier_one_stays_as_it_is() {
        let mut asked = [0x83, 0x86, 0xc1, 0xc0];
        assert_eq!(rename(&mut asked), Some(()));
        assert_eq!(asked, [0x83, 0x86, 0xc1, 0xc0]);
    }

    #[tokio::test]
    async fn frames_pass_in_order_with_their_lengths() {
        let headers = fields(b"/x");
        let length = u8::try_from(headers.len()).unwrap();
        let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
        let data = [0, 0, 2, 0, 1, 0, 0, 0, 1, 0x41, 0x81];
        let sent = [&[b'p'; PREFACE][..], &settings, &[0, 0, length, HEADERS, 4, 0, 0, 0, 1], &headers, &data].concat();
        let mut passed = Vec::new();
        let ended = pass(&sent[..], &mut passed).await.unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(passed.len(), sent.len());
        assert!(passed.ends_with(&data) && !passed.windows(2).any(|two| two == b"/x"));
    }

    proptest! {
        #[test]
        fn whatever_is_sent_is_read_without_harm(mut fields in prop::collection::vec(any::<u8>(), 0..80)) {
            let before = fields.len();
            let _ = rename(&mut fields);
            prop_assert_eq!(fields.len(), before);
        }
    }
}
