//! Who is who in a cluster.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A node by the name its engine has for it: Swarm's node id, or Kubernetes' node name. A clone is no copy of the name: a placer's lists name
/// each node many times.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NodeId(Arc<str>);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` names no node: 1 to {} letters, digits, `.`, `-` and `_`", NodeId::LONGEST)]
pub struct InvalidNodeId {
    text: String,
}

/// One container that was placed, told apart from every other for as long as it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PlacementId(pub u64);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no placement: 16 hexadecimal digits are")]
pub struct InvalidPlacementId {
    text: String,
}

// === impl NodeId ===

impl NodeId {
    /// As long as a DNS name may be.
    pub const LONGEST: usize = 253;

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for NodeId {
    type Err = InvalidNodeId;

    fn from_str(text: &str) -> Result<Self, InvalidNodeId> {
        let is_right = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
        let is_valid = (1..=Self::LONGEST).contains(&text.len()) && text.bytes().all(is_right);
        // An error does not repeat a megabyte.
        let shown = || text.chars().take(64).collect();
        is_valid.then(|| Self(text.into())).ok_or_else(|| InvalidNodeId { text: shown() })
    }
}

impl TryFrom<String> for NodeId {
    type Error = InvalidNodeId;

    fn try_from(text: String) -> Result<Self, InvalidNodeId> {
        text.parse()
    }
}

impl From<NodeId> for String {
    fn from(node: NodeId) -> String {
        node.0.as_ref().to_owned()
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

// === impl PlacementId ===

impl FromStr for PlacementId {
    type Err = InvalidPlacementId;

    fn from_str(text: &str) -> Result<Self, InvalidPlacementId> {
        let is_right = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let id = is_right.then(|| u64::from_str_radix(text, 16).ok()).flatten();
        id.map(Self).ok_or_else(|| InvalidPlacementId { text: text.chars().take(64).collect() })
    }
}

impl TryFrom<String> for PlacementId {
    type Error = InvalidPlacementId;

    fn try_from(text: String) -> Result<Self, InvalidPlacementId> {
        text.parse()
    }
}

impl From<PlacementId> for String {
    fn from(id: PlacementId) -> String {
        id.to_string()
    }
}

impl fmt::Display for PlacementId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_engines_are_nodes_and_nothing_else_is() {
        for name in ["worker-1", "24ifsmvkjbyhk9xkblj1w4s2u", "ip-10-0-0-1.ec2.internal", "a_b"] {
            assert_eq!(name.parse::<NodeId>().unwrap().as_str(), name);
        }
        for name in ["", "a b", "a/b", "a\n", "é", &"x".repeat(254)] {
            let error = name.parse::<NodeId>().unwrap_err().to_string();
            assert!(error.len() < 200, "{error}");
        }
    }

    #[test]
    fn a_placement_is_read_as_it_is_written() {
        for id in [0, 1, u64::MAX, 0xfeed] {
            assert_eq!(PlacementId(id).to_string().parse(), Ok(PlacementId(id)));
        }
        for text in ["", "1", "+00000000000000f", "000000000000000g", "00000000000000000"] {
            text.parse::<PlacementId>().unwrap_err();
        }
    }
}
