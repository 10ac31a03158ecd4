//! Whether one more process may attach, by whose it is.
//!
//! There are so many places, and a tenant has so many at most (`berth_host::shim`). A user may have many tenants, so each owner gets no more than
//! half of what the others have left: whoever comes later finds a place. A tenant of which no owner is known is an owner by itself.
//!
//! Pure.

use berth_host::shim::CLIENTS;

/// `all`: whose those are that are here already.
pub(super) fn has_place<'a>(owner: &str, all: impl Iterator<Item = &'a str>) -> bool {
    let (own, others) = all.fold((0, 0), |(own, others), other| match other == owner {
        true => (own + 1, others),
        false => (own, others + 1),
    });
    own < CLIENTS.saturating_sub(others).div_ceil(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As many as get in.
    fn attach(all: &mut Vec<String>, owner: &str) -> usize {
        let before = all.len();
        while has_place(owner, all.iter().map(String::as_str)) {
            all.push(owner.to_owned());
        }
        all.len() - before
    }

    #[test]
    fn each_owner_gets_half_of_what_is_left_and_the_next_finds_some() {
        let mut all = Vec::new();
        let each: Vec<usize> = ["ann", "bob", "cay", "dan", "eve"].map(|owner| attach(&mut all, owner)).into();
        assert_eq!(each, [256, 128, 64, 32, 16]);
        all.retain(|owner| owner != "ann");
        assert_eq!(attach(&mut all, "fay"), 136, "places come free");
    }

    #[test]
    fn when_there_are_none_nobody_gets_one() {
        let all: Vec<String> = (0..CLIENTS).map(|number| number.to_string()).collect();
        assert!(!has_place("new", all.iter().map(String::as_str)));
    }
}
