//! Which of the pairs that a plan wants can be linked.
//!
//! A library obeys so many words and raises so many, and making a link takes the daemon tens of microseconds. Whoever stays without one waits by the daemon's own
//! word, which every client has room for: half a millisecond later, and not at all less surely. Links that are there come first, so that nobody loses one to a newcomer.
//!
//! Pure.

use std::collections::{BTreeMap, BTreeSet};

use berth_host::shim::End;
use berth_model::TenantKey;
use berth_proto::shim::{MOST_LEADS, MOST_YIELDS};

use super::links::Pair;

/// Links on one GPU.
const MOST: usize = 2_048;
/// Those that one tenant leads on a GPU: a fourth, so that it cannot have all.
const MOST_OF_TENANT: usize = MOST / 4;
/// Links that are made for one plan. The next is made within milliseconds.
const MOST_AT_ONCE: usize = 64;

/// `wanted`: who yields to whom, and whose that one is.
pub(super) fn choose<'a>(
    wanted: impl IntoIterator<Item = (End, End, &'a TenantKey)>,
    is_there: &dyn Fn(&Pair) -> bool,
) -> BTreeSet<Pair> {
    let mut room = Room::default();
    let (there, new): (Vec<_>, Vec<_>) =
        wanted.into_iter().partition(|(yields, leads, _)| is_there(&(*yields, Some(*leads))));
    let mut chosen = BTreeSet::new();
    chosen.extend(there.into_iter().filter(|one| room.takes(one)).map(pair));
    chosen.extend(new.into_iter().filter(|one| room.takes(one)).map(pair).take(MOST_AT_ONCE));
    chosen
}

fn pair((yields, leads, _): (End, End, &TenantKey)) -> Pair {
    (yields, Some(leads))
}

#[derive(Debug, Default)]
struct Room<'a> {
    all: usize,
    yields: BTreeMap<End, usize>,
    leads: BTreeMap<End, usize>,
    tenants: BTreeMap<&'a TenantKey, usize>,
}

impl<'a> Room<'a> {
    fn takes(&mut self, (yields, leads, tenant): &(End, End, &'a TenantKey)) -> bool {
        let own = self.yields.entry(*yields).or_default();
        let led = self.leads.entry(*leads).or_default();
        let tenants = self.tenants.entry(tenant).or_default();
        // One place is the daemon's.
        let has_room = self.all < MOST && *own + 1 < MOST_YIELDS && *led < MOST_LEADS && *tenants < MOST_OF_TENANT;
        if has_room {
            [&mut self.all, own, led, tenants].into_iter().for_each(|count| *count += 1);
        }
        has_room
    }
}

#[cfg(test)]
mod tests {
    use berth_host::shim::ClientId;

    use super::*;

    fn end(client: u64) -> End {
        End { client: ClientId(client), lane: 0 }
    }

    fn tenant(name: &str) -> TenantKey {
        TenantKey::Cgroup { path: name.into() }
    }

    #[test]
    fn nobody_has_more_links_than_its_library_takes_and_one_place_is_the_daemons() {
        let server = tenant("server");
        let all = (0..20).flat_map(|yields| (100..130).map(move |leads| (end(yields), end(leads))));
        let chosen = choose(all.map(|(yields, leads)| (yields, leads, &server)), &|_| true);
        for yields in 0..20 {
            assert_eq!(chosen.iter().filter(|pair| pair.0 == end(yields)).count(), MOST_YIELDS - 1);
        }
        let led = (0..80).map(|yields| (end(yields), end(100), &server));
        assert_eq!(choose(led, &|_| true).len(), MOST_LEADS);
    }

    #[test]
    fn links_that_are_there_stay_and_few_are_made_at_once() {
        let (server, is_there) = (tenant("server"), |pair: &Pair| pair.0.client.0 >= 300);
        let many = (0..400).map(|yields| (end(yields), end(1_000 + yields / 4), &server));
        let chosen = choose(many, &is_there);
        assert_eq!(chosen.iter().filter(|pair| is_there(pair)).count(), 100);
        assert_eq!(chosen.len(), 100 + MOST_AT_ONCE);
    }

    #[test]
    fn one_tenant_cannot_have_all() {
        let (greedy, other) = (tenant("greedy"), tenant("other"));
        let many = (0..4_000).map(|yields| (end(yields), end(10_000 + yields / 8), &greedy));
        let few = (0..10).map(|yields| (end(20_000 + yields), end(30_000), &other));
        let chosen = choose(many.chain(few), &|_| true);
        assert_eq!(chosen.len(), MOST_OF_TENANT + 10);
    }
}
