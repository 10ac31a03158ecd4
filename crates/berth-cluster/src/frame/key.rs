//! Keys: one of the cluster, from which each node's own is derived, and what they sign.
//!
//! A node knows its own key alone, so that a node that was broken into can speak for no other. The placer derives all of them from the
//! cluster's. Reading and writing files is others' work; here is only what stands in them.

use std::fmt;
use std::str::FromStr;

use berth_model::cluster::{InvalidNodeId, NodeId};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::Kind;

/// Bytes of a key, and of a signature.
pub const KEY_BYTES: usize = 32;
pub const MAC_BYTES: usize = 32;
pub const NONCE_BYTES: usize = 16;

/// What is signed begins with what it is, so that a signature of one thing is none of another. A frame begins with its own magic.
const NODE: &[u8] = b"berth node v1";
const ASK: &[u8] = b"berth ask v1";

const CLUSTER_FILE: &str = "berth-cluster-key-v1";
const NODE_FILE: &str = "berth-node-key-v1";

/// Of the whole cluster: who has it can speak for every node.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterKey([u8; KEY_BYTES]);

/// Of one node.
#[derive(Clone, PartialEq, Eq)]
pub struct NodeKey([u8; KEY_BYTES]);

/// Says which answer belongs to which question. Whoever asks draws a new one each time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Nonce(pub [u8; NONCE_BYTES]);

/// What a key file holds: one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyFile {
    Cluster(ClusterKey),
    Node { node: NodeId, key: NodeKey },
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKey {
    #[error("it is no key file of berth: it holds one line that begins with `{CLUSTER_FILE}` or `{NODE_FILE}`")]
    NotAKeyFile,
    #[error("its key is not {} hexadecimal digits", 2 * KEY_BYTES)]
    NotHexadecimal,
    #[error("it names no node")]
    Node(#[from] InvalidNodeId),
}

// === impl ClusterKey ===

impl ClusterKey {
    /// `bytes` are random.
    pub fn new(bytes: [u8; KEY_BYTES]) -> Self {
        Self(bytes)
    }

    /// The key of this node.
    pub fn node(&self, node: &NodeId) -> NodeKey {
        NodeKey(mac(&self.0, &[NODE, node.as_str().as_bytes()]).finalize().into_bytes().into())
    }
}

// === impl NodeKey ===

impl NodeKey {
    /// Signs a question.
    pub fn sign_ask(&self, kind: Kind, nonce: &Nonce) -> [u8; MAC_BYTES] {
        mac(&self.0, &[ASK, &[kind as u8], &nonce.0]).finalize().into_bytes().into()
    }

    /// Whether whoever asks has this key; takes as long whatever is wrong.
    pub fn is_ask(&self, kind: Kind, nonce: &Nonce, signature: &[u8]) -> bool {
        mac(&self.0, &[ASK, &[kind as u8], &nonce.0]).verify_slice(signature).is_ok()
    }

    pub(super) fn sign(&self, frame: &[u8]) -> [u8; MAC_BYTES] {
        mac(&self.0, &[frame]).finalize().into_bytes().into()
    }

    pub(super) fn is_signed(&self, frame: &[u8], signature: &[u8]) -> bool {
        mac(&self.0, &[frame]).verify_slice(signature).is_ok()
    }
}

fn mac(key: &[u8; KEY_BYTES], parts: &[&[u8]]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length will do");
    parts.iter().for_each(|part| mac.update(part));
    mac
}

// === impl KeyFile ===

impl FromStr for KeyFile {
    type Err = InvalidKey;

    fn from_str(text: &str) -> Result<Self, InvalidKey> {
        let words: Vec<&str> = text.split_whitespace().take(4).collect();
        match words[..] {
            [CLUSTER_FILE, key] => Ok(KeyFile::Cluster(ClusterKey(unhex(key).ok_or(InvalidKey::NotHexadecimal)?))),
            [NODE_FILE, node, key] => {
                let key = NodeKey(unhex(key).ok_or(InvalidKey::NotHexadecimal)?);
                Ok(KeyFile::Node { node: node.parse()?, key })
            }
            _ => Err(InvalidKey::NotAKeyFile),
        }
    }
}

/// Shows the key: for the file alone.
impl fmt::Display for KeyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyFile::Cluster(ClusterKey(key)) => writeln!(f, "{CLUSTER_FILE} {}", hex(key)),
            KeyFile::Node { node, key: NodeKey(key) } => writeln!(f, "{NODE_FILE} {node} {}", hex(key)),
        }
    }
}

/// A log shows no key.
impl fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterKey(…)")
    }
}

impl fmt::Debug for NodeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NodeKey(…)")
    }
}

/// Lower-case digits, two for each byte.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `None` unless it is as many bytes, and nothing but digits.
pub fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    if text.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster() -> ClusterKey {
        ClusterKey::new([7; KEY_BYTES])
    }

    fn node(name: &str) -> NodeId {
        name.parse().unwrap()
    }

    /// HMAC-SHA256 by the first test case of RFC 4231, with a key of twenty bytes padded as the hash pads it.
    #[test]
    fn the_signature_is_the_one_everybody_else_makes() {
        let mut key = [0; KEY_BYTES];
        key[..20].fill(0x0b);
        let signed: [u8; MAC_BYTES] = mac(&key, &[b"Hi There"]).finalize().into_bytes().into();
        assert_eq!(hex(&signed), "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    }

    #[test]
    fn each_node_has_a_key_of_its_own() {
        assert_eq!(cluster().node(&node("a")), cluster().node(&node("a")));
        assert_ne!(cluster().node(&node("a")), cluster().node(&node("b")));
        assert_ne!(ClusterKey::new([8; KEY_BYTES]).node(&node("a")), cluster().node(&node("a")));
    }

    #[test]
    fn a_question_is_signed_for_one_node_one_kind_and_one_nonce() {
        let (key, nonce) = (cluster().node(&node("a")), Nonce([1; NONCE_BYTES]));
        let signed = key.sign_ask(Kind::Report, &nonce);
        assert!(key.is_ask(Kind::Report, &nonce, &signed));
        assert!(!key.is_ask(Kind::Pasts, &nonce, &signed));
        assert!(!key.is_ask(Kind::Report, &Nonce([2; NONCE_BYTES]), &signed));
        assert!(!cluster().node(&node("b")).is_ask(Kind::Report, &nonce, &signed));
        for wrong in [&signed[..31], &[], &[0; 33]] {
            assert!(!key.is_ask(Kind::Report, &nonce, wrong));
        }
    }

    #[test]
    fn a_key_file_is_read_as_it_is_written_and_shows_in_no_log() {
        let own = KeyFile::Node { node: node("worker-1"), key: cluster().node(&node("worker-1")) };
        for file in [KeyFile::Cluster(cluster()), own] {
            assert_eq!(file.to_string().parse(), Ok(file.clone()));
            let shown = format!("{file:?}");
            assert!(!shown.contains("07") && shown.contains('…'), "{shown}");
        }
    }

    #[test]
    fn what_is_no_key_file_says_why() {
        let told = |text: &str| text.parse::<KeyFile>().unwrap_err();
        let key = "07".repeat(KEY_BYTES);
        assert_eq!(told(""), InvalidKey::NotAKeyFile);
        assert_eq!(told(&format!("berth-cluster-key-v2 {key}")), InvalidKey::NotAKeyFile);
        assert_eq!(told(&format!("berth-cluster-key-v1 {key} {key}")), InvalidKey::NotAKeyFile);
        assert_eq!(told(&format!("berth-cluster-key-v1 {}", &key[1..])), InvalidKey::NotHexadecimal);
        assert_eq!(told(&format!("berth-cluster-key-v1 +{}", &key[1..])), InvalidKey::NotHexadecimal);
        assert!(matches!(told(&format!("berth-node-key-v1 a/b {key}")), InvalidKey::Node(_)));
    }
}
