//! Who is let in: so many connections at a time, and of those so many from one host, so that no one host can keep others out.
//!
//! Several together can, so some places are for hosts that have shown who they are, by a key or a certificate: they get in, however many
//! knock who have none.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Hosts that are remembered for having shown who they are: placers and schedulers are few.
const MOST_KNOWN: usize = 8;

/// How many are let in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// At a time.
    pub connections: usize,
    /// Of those, from one host.
    pub per_host: usize,
    /// Of those, for hosts alone that have shown who they are.
    pub for_known: usize,
}

/// Shared by those who have one.
#[derive(Debug, Clone)]
pub(crate) struct Places(Arc<Mutex<Taken>>);

#[derive(Debug)]
struct Taken {
    limits: Limits,
    by_host: BTreeMap<IpAddr, usize>,
    /// Who has shown who they are, the latest last.
    known: VecDeque<IpAddr>,
}

/// Left when it is dropped, whatever happens to whoever has it.
#[derive(Debug)]
pub(crate) struct Place {
    places: Places,
    host: IpAddr,
}

impl Places {
    pub fn new(limits: Limits) -> Self {
        Self(Arc::new(Mutex::new(Taken { limits, by_host: BTreeMap::new(), known: VecDeque::new() })))
    }

    /// `None`: there is no room, or this host has its share.
    pub fn take(&self, host: IpAddr) -> Option<Place> {
        let mut taken = self.lock();
        let Limits { connections, per_host, for_known } = taken.limits;
        let most = if taken.known.contains(&host) { connections } else { connections - for_known };
        let all: usize = taken.by_host.values().sum();
        let own = taken.by_host.get(&host).copied().unwrap_or_default();
        if all >= most || own >= per_host {
            return None;
        }
        taken.by_host.insert(host, own + 1);
        Some(Place { places: self.clone(), host })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        // Nothing in here panics half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Whoever has it has shown who they are.
    pub fn is_known(&self) {
        let mut taken = self.places.lock();
        if taken.known.back() == Some(&self.host) {
            return;
        }
        taken.known.retain(|host| *host != self.host);
        taken.known.push_back(self.host);
        if taken.known.len() > MOST_KNOWN {
            taken.known.pop_front();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        if let Some(own) = taken.by_host.get_mut(&self.host) {
            *own -= 1;
            if *own == 0 {
                taken.by_host.remove(&self.host);
            }
        }
    }
}

/// Of IPv6 the network: a host has as many addresses in it as it likes.
pub(crate) fn host_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { connections: 64, per_host: 8, for_known: 16 };

    fn host(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    #[test]
    fn a_host_is_one_however_many_addresses_it_has() {
        let host = |text: &str| host_of(text.parse().unwrap());
        assert_eq!(host("2001:db8::1"), host("2001:db8::ffff:2"));
        assert_ne!(host("2001:db8::1"), host("2001:db8:0:1::1"));
        assert_eq!(host("::ffff:192.0.2.1"), host("192.0.2.1"));
        assert_ne!(host("192.0.2.1"), host("192.0.2.2"));
    }

    #[test]
    fn each_host_has_its_share_and_all_together_no_more_than_there_is() {
        let places = Places::new(LIMITS);
        let mut own: Vec<Place> = (0..20).filter_map(|_| places.take(host(1))).collect();
        assert_eq!(own.len(), LIMITS.per_host);
        own.pop();
        own.extend(places.take(host(1)));
        assert!(own.len() == LIMITS.per_host && places.take(host(1)).is_none(), "one has left, and one has come");
        let others: Vec<Place> = (2..=255).filter_map(|last| places.take(host(last))).collect();
        assert_eq!(others.len(), 64 - 16 - 8);
    }

    #[test]
    fn who_has_shown_who_it_is_gets_in_however_many_knock_who_have_not() {
        let places = Places::new(LIMITS);
        places.take(host(1)).unwrap().is_known();
        let strangers: Vec<Place> = (2..=255).filter_map(|last| places.take(host(last))).collect();
        assert!(places.take(host(255)).is_none(), "there is no room for one more of them");
        let own: Vec<Place> = (0..20).filter_map(|_| places.take(host(1))).collect();
        assert_eq!(own.len(), LIMITS.per_host);
        drop((strangers, own));
        for last in 2..=255 {
            places.take(host(last)).unwrap().is_known();
        }
        assert_eq!(places.lock().known.len(), MOST_KNOWN, "no more are remembered");
        assert!(places.lock().by_host.is_empty());
    }
}
