//! How many SMs a GPU has, by what each process says of it.
//!
//! Nobody but the processes knows: NVML does not tell. One that lies is one of several, and each tenant has one voice, so that a tenant of
//! many processes has no more say than one of one. Where no number has more voices than any other, it is not known, and nothing is divided.
//!
//! Pure.

use std::collections::{BTreeMap, BTreeSet};

use berth_model::TenantKey;

/// More no GPU has.
pub(super) const MOST: u32 = 4_096;

/// What a process says, as far as it can be.
pub(super) fn believed(claim: u32) -> u32 {
    claim.min(MOST)
}

/// 0: it is not known. Of a tenant what its first process says counts.
pub(super) fn agreed<'a>(claims: impl Iterator<Item = (&'a TenantKey, u32)>) -> u32 {
    let (mut heard, mut voices) = (BTreeSet::new(), BTreeMap::<u32, usize>::new());
    for (tenant, claim) in claims {
        if claim > 0 && heard.insert(tenant) {
            *voices.entry(believed(claim)).or_default() += 1;
        }
    }
    let most = voices.values().max().copied();
    let mut first = voices.into_iter().filter(|(_, count)| Some(*count) == most);
    match (first.next(), first.next()) {
        (Some((sms, _)), None) => sms,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(claims: &[(&str, u32)]) -> u32 {
        let claims: Vec<(TenantKey, u32)> =
            claims.iter().map(|(name, claim)| (TenantKey::Cgroup { path: (*name).into() }, *claim)).collect();
        agreed(claims.iter().map(|(tenant, claim)| (tenant, *claim)))
    }

    #[test]
    fn it_is_what_most_tenants_say_and_each_has_one_voice() {
        assert_eq!(of(&[("a", 132), ("b", 132), ("liar", u32::MAX)]), 132);
        assert_eq!(of(&[("liar", 1), ("liar", 1), ("liar", 1), ("a", 132), ("b", 132)]), 132);
        assert_eq!(of(&[("a", 132), ("a", 7)]), 132, "its first process");
    }

    #[test]
    fn what_nobody_knows_is_not_known() {
        assert_eq!(of(&[]), 0);
        assert_eq!(of(&[("a", 0)]), 0);
        assert_eq!(of(&[("liar", 1), ("a", 132)]), 0, "either may lie");
        assert_eq!(of(&[("a", u32::MAX)]), MOST);
    }
}
