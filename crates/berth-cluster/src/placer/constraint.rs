//! Constraints on nodes, in the words of Docker Swarm: `node.labels.rack==a`, `node.role!=manager`.
//!
//! Pure. Read and judged as Swarm does it, so that a node which is ranked is one that the engine would take: values are compared
//! without regard to case, names of labels with it; a label that is not there is as good as an empty one; `node.ip` takes a network too.

use core::net::IpAddr;
use std::collections::BTreeMap;
use std::str::FromStr;

const NODE_LABELS: &str = "node.labels.";
const ENGINE_LABELS: &str = "engine.labels.";
const IP: &str = "node.ip";
/// What a constraint may be about, besides labels.
const KEYS: [&str; 6] = ["node.id", "node.hostname", IP, "node.role", "node.platform.os", "node.platform.arch"];

/// What the engine says of a node, by the names constraints have for it: `node.hostname`, `node.labels.rack`.
pub type Facts = BTreeMap<String, String>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Constraint {
    /// As in [`Facts`].
    key: String,
    is_equal: bool,
    value: String,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidConstraint {
    #[error("constraint `{text}`: write KEY==VALUE or KEY!=VALUE")]
    Shape { text: String },
    #[error(
        "constraint `{text}`: a node has {}, {NODE_LABELS}NAME and {ENGINE_LABELS}NAME, no `{key}`",
        KEYS.join(", ")
    )]
    Key { text: String, key: String },
}

impl Constraint {
    /// One that only this node meets.
    pub fn node(id: &str) -> Self {
        Self { key: KEYS[0].to_owned(), is_equal: true, value: id.to_owned() }
    }

    pub fn is_met(&self, facts: &Facts) -> bool {
        let fact = facts.get(&self.key).map_or("", String::as_str);
        let matches = fact.eq_ignore_ascii_case(&self.value) || (self.key == IP && is_within(fact, &self.value));
        matches == self.is_equal
    }
}

impl FromStr for Constraint {
    type Err = InvalidConstraint;

    fn from_str(text: &str) -> Result<Self, InvalidConstraint> {
        // An error does not repeat a megabyte.
        let shown = || text.chars().take(64).collect();
        // Swarm looks for the one, then for the other.
        let parts = text.split_once("==").map(|parts| (parts, true));
        let parts = parts.or_else(|| text.split_once("!=").map(|parts| (parts, false)));
        let ((key, value), is_equal) = parts.ok_or_else(|| InvalidConstraint::Shape { text: shown() })?;
        let (key, value) = (key.trim(), value.trim());
        if value.is_empty() {
            return Err(InvalidConstraint::Shape { text: shown() });
        }
        let invalid = || InvalidConstraint::Key { text: shown(), key: key.chars().take(64).collect() };
        let key = canonical(key).ok_or_else(invalid)?;
        Ok(Self { key, is_equal, value: value.to_owned() })
    }
}

/// The key in small letters, but for the name of a label. `None` if there is no such.
fn canonical(key: &str) -> Option<String> {
    let known = KEYS.iter().find(|known| known.eq_ignore_ascii_case(key)).map(|known| (*known).to_owned());
    let labelled = |prefix: &str| {
        let (start, name) = key.split_at_checked(prefix.len())?;
        (start.eq_ignore_ascii_case(prefix) && !name.is_empty()).then(|| format!("{prefix}{name}"))
    };
    known.or_else(|| labelled(NODE_LABELS)).or_else(|| labelled(ENGINE_LABELS))
}

/// `10.0.0.7` is within `10.0.0.0/24`.
fn is_within(address: &str, network: &str) -> bool {
    let Some((base, length)) = network.split_once('/') else { return false };
    let (Ok(address), Ok(base), Ok(length)) = (address.parse::<IpAddr>(), base.parse(), length.parse::<u32>()) else {
        return false;
    };
    match (address, base) {
        (IpAddr::V4(address), IpAddr::V4(base)) if length <= 32 => {
            let mask = u32::MAX.checked_shl(32 - length).unwrap_or(0);
            address.to_bits() & mask == base.to_bits() & mask
        }
        (IpAddr::V6(address), IpAddr::V6(base)) if length <= 128 => {
            let mask = u128::MAX.checked_shl(128 - length).unwrap_or(0);
            address.to_bits() & mask == base.to_bits() & mask
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> Facts {
        let facts = [
            ("node.id", "24ifsmvkjbyhk9xkblj1w4s2u"),
            ("node.hostname", "n2"),
            ("node.ip", "10.201.0.2"),
            ("node.role", "worker"),
            ("node.platform.os", "linux"),
            ("node.labels.rack", "a"),
            ("node.labels.Rack", "b"),
            ("engine.labels.storage", "ssd"),
        ];
        facts.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
    }

    fn met(text: &str) -> bool {
        text.parse::<Constraint>().unwrap().is_met(&facts())
    }

    #[test]
    fn a_constraint_is_judged_as_the_engine_judges_it() {
        for text in [
            "node.hostname==n2",
            "Node.Hostname == N2",
            "node.role!=manager",
            "node.labels.rack==A",
            "node.labels.Rack==b",
            "node.labels.gone!=x",
            "engine.labels.storage==ssd",
            "node.platform.os==linux",
            "node.ip==10.201.0.2",
            "node.ip==10.201.0.0/24",
            "node.ip!=10.202.0.0/24",
            "node.ip==0.0.0.0/0",
        ] {
            assert!(met(text), "{text}");
        }
        for text in ["node.hostname!=n2", "node.labels.gone==x", "node.labels.RACK==a", "node.ip==10.201.0.3/32"] {
            assert!(!met(text), "{text}");
        }
        assert!(Constraint::node("24ifsmvkjbyhk9xkblj1w4s2u").is_met(&facts()));
    }

    #[test]
    fn what_the_engine_would_refuse_is_refused_by_name() {
        for text in ["", "node.id", "node.id=x", "node.id==", "node.labels.==a", "node.colour==red", "rack==a"] {
            text.parse::<Constraint>().unwrap_err();
        }
        let told = "node.colour==red".parse::<Constraint>().unwrap_err().to_string();
        assert!(told.contains("no `node.colour`") && told.contains("node.hostname"), "{told}");
        let long = format!("{}==x", "k".repeat(1 << 20));
        assert!(long.parse::<Constraint>().unwrap_err().to_string().len() < 400);
    }
}
