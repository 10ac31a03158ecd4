//! On what terms a tenant may be held: what its labels say, and what can be done to it here.

use std::collections::{BTreeMap, BTreeSet};

use berth_model::Bytes;
use berth_model::hold::Means;

/// What a policy is told about a tenant besides what it does.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Terms {
    /// Empty: never held.
    pub means: BTreeSet<Means>,
    pub gang: Option<String>,
    pub needs: Option<Bytes>,
}

/// Never hold this container: `berth.hold=never`.
const HOLD: &str = "berth.hold";
/// GPU memory it will need in all: `berth.memory=20GiB`.
const MEMORY: &str = "berth.memory";
/// Containers that are held and released together: `berth.gang=job-7`.
const GANG: &str = "berth.gang";

/// `offered` is what the host can do to this tenant. A label that cannot be read is told and left out.
pub(super) fn terms(labels: Option<&BTreeMap<String, String>>, offered: BTreeSet<Means>) -> Terms {
    let label = |name: &str| labels.and_then(|labels| labels.get(name)).map(String::as_str);
    let is_exempt = label(HOLD).is_some_and(|value| value == "never");
    Terms {
        means: if is_exempt { BTreeSet::new() } else { offered },
        gang: label(GANG).filter(|gang| !gang.is_empty()).map(str::to_owned),
        needs: label(MEMORY).and_then(|text| text.parse().ok()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labelled(pairs: &[(&str, &str)]) -> Terms {
        let labels = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        terms(Some(&labels), BTreeSet::from([Means::Gate, Means::Freeze]))
    }

    #[test]
    fn a_container_says_what_it_needs_and_with_whom_it_goes() {
        let terms = labelled(&[("berth.memory", "20GiB"), ("berth.gang", "job-7")]);
        assert_eq!((terms.needs, terms.gang.as_deref()), (Some(Bytes(20 << 30)), Some("job-7")));
        assert_eq!(terms.means.len(), 2);
    }

    #[test]
    fn a_container_that_says_never_is_never_held() {
        assert!(labelled(&[("berth.hold", "never")]).means.is_empty());
        assert_eq!(labelled(&[("berth.hold", "perhaps")]).means.len(), 2);
    }
}
