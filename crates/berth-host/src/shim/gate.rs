//! Who connects, and whether its tenant may do so once more. A tenant that connects in a loop is turned away; the others come in beside it.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use berth_model::{Mono, ProcessFacts, TenantKey};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt;

use super::budget::Budget;
use super::serve::timespec;
use super::{Names, sys};

/// Connections of one tenant at once, and in a second.
const AT_ONCE: u32 = 128;
const PER_SECOND: u32 = 64;
/// A process that was turned away is so again for this long, without a look at who it is.
const TURNED_AWAY_FOR: Duration = Duration::from_secs(1);
/// Tenants and processes that are remembered; what is older than [`FORGOTTEN_AFTER`] is forgotten then.
const MOST: usize = 1_024;
/// By then a budget is full again.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(3);

pub struct Gate {
    names: Names,
    tenants: HashMap<TenantKey, (Budget, Mono)>,
    turned_away: HashMap<u32, Mono>,
}

impl Gate {
    pub fn new(names: Names) -> Self {
        Self { names, tenants: HashMap::new(), turned_away: HashMap::new() }
    }

    /// Who it is, by what the kernel says; `None`: it is to be turned away.
    pub fn lets_in(&mut self, socket: &OwnedFd, now: Mono) -> Option<Arc<ProcessFacts>> {
        let peer = sockopt::socket_peercred(socket).ok()?;
        let pid = u32::try_from(peer.pid.as_raw_nonzero().get()).ok()?;
        if self.turned_away.get(&pid).is_some_and(|at| now.since(*at) < TURNED_AWAY_FOR) {
            return None;
        }
        // Its pid could come to mean another before it is looked at, where the kernel gives no pidfd of it (before 6.5): then
        // the connection would have been hung up, unless a child has it.
        let pidfd = sys::peer_pidfd(socket).ok();
        let facts = (self.names)(pid)?;
        if pidfd.is_some_and(|pidfd| is_readable(&pidfd)) {
            return None;
        }
        if self.spend(&facts.tenant, now) {
            return Some(facts);
        }
        tracing::debug!(pid, tenant = %facts.tenant, "connects too often, and is turned away");
        forget(&mut self.turned_away, now, |at| *at);
        self.turned_away.insert(pid, now);
        None
    }

    fn spend(&mut self, tenant: &TenantKey, now: Mono) -> bool {
        forget(&mut self.tenants, now, |(_, at)| *at);
        let new = || (Budget::new(AT_ONCE, PER_SECOND, now), now);
        let (budget, at) = self.tenants.entry(tenant.clone()).or_insert_with(new);
        *at = now;
        budget.spend(now)
    }
}

fn forget<K, V>(known: &mut HashMap<K, V>, now: Mono, at: impl Fn(&V) -> Mono) {
    if known.len() >= MOST {
        known.retain(|_, value| now.since(at(value)) < FORGOTTEN_AFTER);
    }
}

/// A pidfd is readable from the moment its process has ended.
fn is_readable(pidfd: &OwnedFd) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(pidfd.as_fd(), PollFlags::IN)];
    !matches!(poll(&mut fds, Some(&timespec(Duration::ZERO))), Ok(0))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use berth_model::ProcKey;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    /// A gate to which this process is whoever is named, and a count of how often it was looked at.
    fn gate(whose: Arc<Mutex<&'static str>>, looks: Arc<Mutex<u32>>) -> Gate {
        Gate::new(Box::new(move |pid| {
            *looks.lock().unwrap() += 1;
            let (process, command) = (ProcKey { pid, start_ticks: 1 }, String::new());
            let tenant = TenantKey::Cgroup { path: (*whose.lock().unwrap()).into() };
            Some(Arc::new(ProcessFacts { process, tenant, uid: None, user: None, command, started: None }))
        }))
    }

    fn socket() -> OwnedFd {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap().0
    }

    #[test]
    fn a_tenant_that_connects_in_a_loop_is_turned_away_cheaply_and_others_are_not() {
        let (whose, looks) = (Arc::new(Mutex::new("/greedy")), Arc::new(Mutex::new(0)));
        let mut gate = gate(Arc::clone(&whose), Arc::clone(&looks));
        let (socket, now) = (socket(), Mono(0));
        let let_in = (0..10_000).filter(|_| gate.lets_in(&socket, now).is_some()).count();
        assert_eq!(let_in, AT_ONCE as usize);
        assert_eq!(*looks.lock().unwrap(), AT_ONCE + 1, "it is known who is turned away");
        // The next process of another tenant.
        *whose.lock().unwrap() = "/other";
        gate.turned_away.clear();
        assert!(gate.lets_in(&socket, now).is_some());
        *whose.lock().unwrap() = "/greedy";
        assert!(gate.lets_in(&socket, now).is_none());
        assert!(gate.lets_in(&socket, now + Duration::from_secs(2)).is_some(), "some every second");
    }

    #[test]
    fn however_many_come_few_are_remembered() {
        let mut gate = gate(Arc::new(Mutex::new("/a")), Arc::default());
        for number in 0..50_000u64 {
            let now = Mono(number * 5_000_000);
            gate.spend(&TenantKey::Cgroup { path: format!("/{number}") }, now);
        }
        assert!(gate.tenants.len() <= MOST, "{}", gate.tenants.len());
    }
}
