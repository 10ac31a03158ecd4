//! Who belongs to whom among the clients of a scene, counted once for a plan: whose turn it is among equals, and what an equal part is.
//!
//! Users share alike, then their tenants, then the processes of each. A tenant that belongs to nobody is a user by itself.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::time::Duration;

use berth_model::{Mono, TenantKey};

use super::{Client, ClientId, Scene};

/// Below this a newcomer's part says nothing.
const YOUNG: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub struct Crowd<'a> {
    now: Mono,
    users: BTreeMap<User<'a>, Own>,
    tenants: BTreeMap<(User<'a>, &'a TenantKey), Own>,
    /// Users that want the GPU.
    busy: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum User<'a> {
    Named(&'a str),
    Itself(&'a TenantKey),
}

/// What a user's tenants, or a tenant's processes, have together.
#[derive(Debug, Clone, Copy, Default)]
struct Own {
    part: f64,
    /// Those that want the GPU.
    busy: usize,
}

/// Orders equals, the lesser first: whose user has had the least of the GPU since it came, then which of its tenants, then which of that one's processes, then
/// who came first.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Turn {
    parts: [f64; 3],
    came: (Mono, ClientId),
}

impl<'a> Crowd<'a> {
    pub fn of(scene: &Scene<'a>) -> Self {
        let mut crowd = Self { now: scene.now, users: BTreeMap::new(), tenants: BTreeMap::new(), busy: 0 };
        for client in scene.clients {
            let user = User::of(client);
            let (own, part) = (usize::from(client.busy), part(client, scene.now));
            let tenant = crowd.tenants.entry((user, &client.tenant)).or_default();
            let is_new = own > 0 && tenant.busy == 0;
            (tenant.part, tenant.busy) = (tenant.part + part, tenant.busy + own);
            let user = crowd.users.entry(user).or_default();
            crowd.busy += usize::from(is_new && user.busy == 0);
            (user.part, user.busy) = (user.part + part, user.busy + usize::from(is_new));
        }
        crowd
    }

    pub fn turn(&self, client: &Client) -> Turn {
        let (user, tenant) = self.own(client);
        Turn { parts: [user.part, tenant.part, part(client, self.now)], came: (client.arrived, client.id) }
    }

    /// Parts an equal division makes of the GPU for this client, among those who want it.
    pub fn equals(&self, client: &Client) -> f64 {
        let (user, tenant) = self.own(client);
        [self.busy, user.busy, tenant.busy].into_iter().map(|count| count.max(1) as f64).product()
    }

    fn own(&self, client: &Client) -> (Own, Own) {
        let user = User::of(client);
        let tenant = self.tenants.get(&(user, &client.tenant)).copied();
        (self.users.get(&user).copied().unwrap_or_default(), tenant.unwrap_or_default())
    }
}

impl<'a> User<'a> {
    fn of(client: &'a Client) -> Self {
        client.owner.as_deref().map_or(Self::Itself(&client.tenant), Self::Named)
    }
}

impl Eq for Turn {}

impl Ord for Turn {
    fn cmp(&self, other: &Self) -> Ordering {
        let mut parts = self.parts.iter().zip(&other.parts).map(|(own, other)| own.total_cmp(other));
        parts.find(|order| order.is_ne()).unwrap_or_else(|| self.came.cmp(&other.came))
    }
}

impl PartialOrd for Turn {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Part of the GPU that a client has had since it came, over what it counts.
fn part(client: &Client, now: Mono) -> f64 {
    let had = Duration::from_nanos(client.served_ns).as_secs_f64();
    had / now.since(client.arrived).max(YOUNG).as_secs_f64() / client.weight()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{PLACE, client};
    use super::super::{Learned, Voice};
    use super::*;

    /// Of one user, the first two processes of one tenant; milliseconds each has had of the GPU.
    fn three(had_ms: [u64; 3]) -> [Client; 3] {
        let mut all = [client(1), client(2), client(3)];
        for (client, had) in all.iter_mut().zip(had_ms) {
            client.owner = Some("ann".to_owned());
            client.arrived = Mono(0);
            client.served_ns = had * 1_000_000;
        }
        all[1].tenant = all[0].tenant.clone();
        all
    }

    fn order(clients: &[Client]) -> Vec<u64> {
        let learned = Learned::default();
        let now = Mono(0) + Duration::from_millis(100);
        let scene = Scene { now, gpu: PLACE, clients, learned: &learned };
        let mut all: Vec<&Client> = clients.iter().collect();
        let crowd = Crowd::of(&scene);
        all.sort_by_key(|client| crowd.turn(client));
        all.into_iter().map(|client| client.id.0).collect()
    }

    fn parts(clients: &[Client]) -> Vec<f64> {
        let learned = Learned::default();
        let scene = Scene { now: Mono(1), gpu: PLACE, clients, learned: &learned };
        let crowd = Crowd::of(&scene);
        clients.iter().map(|client| crowd.equals(client)).collect()
    }

    #[test]
    fn several_processes_of_a_tenant_count_as_one() {
        assert_eq!(order(&three([10, 10, 15])), [3, 1, 2], "the two have had 20 together");
        assert_eq!(order(&three([10, 2, 15])), [2, 1, 3], "and share that between them");
        assert_eq!(parts(&three([0, 0, 0])), [4.0, 4.0, 2.0], "half of the GPU is for the two");
    }

    #[test]
    fn users_share_alike_whatever_they_run_and_tenants_of_nobody_are_users_by_themselves() {
        let mut clients = three([0, 0, 0]).to_vec();
        clients.push(client(4));
        assert_eq!(parts(&clients), [8.0, 8.0, 4.0, 2.0]);
        clients.iter_mut().for_each(|client| client.owner = None);
        assert_eq!(parts(&clients), [6.0, 6.0, 3.0, 3.0]);
        clients[3].tenant = TenantKey::Cgroup { path: "/else".to_owned() };
        clients[3].busy = false;
        assert_eq!(parts(&clients)[..3], [4.0, 4.0, 2.0], "who wants nothing takes no part");
    }

    #[test]
    fn whose_owner_calls_it_slow_has_had_less_than_its_equals() {
        let mut clients = [client(1), client(2)];
        clients.iter_mut().for_each(|client| (client.arrived, client.served_ns) = (Mono(0), 10_000_000));
        assert_eq!(order(&clients), [1, 2]);
        clients[1].voice = Voice::new(1.2);
        assert_eq!(order(&clients), [2, 1]);
    }
}
