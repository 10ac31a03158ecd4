//! Everybody who is connected, for the thread that reads and for those who send.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use berth_model::{Mono, ProcessFacts, TenantKey};
use berth_proto::shim::message::Refusal;
use berth_proto::shim::sys::{Page, Writers};
use berth_proto::shim::{FromDaemon, VERSION};

use super::connection::{Connection, Stage};
use super::link::{End, Link};
use super::{CLIENTS, CLIENTS_PER_TENANT, ClientId, Pages};

/// Connections of one tenant that have said nothing yet.
const SILENT: usize = 16;
/// How long a connection may be silent.
const SPEAK_WITHIN: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub struct Table {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
pub struct State {
    pub connections: HashMap<ClientId, Connection>,
    last_client: u64,
    last_link: u64,
}

impl Table {
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn welcome(&self, client: ClientId) -> Option<Arc<Pages>> {
        let mut state = self.lock();
        let connection = state.connections.get_mut(&client)?;
        if connection.stage != Stage::Asking {
            return None;
        }
        let (pages, [ledger, orders]) = match make_pages() {
            Ok(made) => made,
            Err(error) => {
                tracing::warn!(%error, "no memory to share with a client; it goes on without");
                connection.hang_up();
                return None;
            }
        };
        connection.stage = Stage::Attached { lanes: 0 };
        let welcome = FromDaemon::Welcome { version: VERSION, client: client.0 };
        connection.send(welcome, &[ledger.as_fd(), orders.as_fd()]).then(|| Arc::new(pages))
    }

    pub fn refuse(&self, client: ClientId, why: Refusal) {
        if let Some(connection) = self.lock().connections.get_mut(&client) {
            connection.send(FromDaemon::Refused(why), &[]);
            connection.hang_up();
        }
    }

    pub fn hang_up(&self, client: ClientId) {
        if let Some(connection) = self.lock().connections.get_mut(&client) {
            connection.hang_up();
        }
    }

    pub fn link(&self, yields: End, leads: Option<End>) -> Option<Link> {
        let (page, file) = Page::create(c"berth-stop", Writers::All)
            .inspect_err(|error| tracing::warn!(%error, "no page for a link; nobody yields on it"))
            .ok()?;
        let mut state = self.lock();
        state.last_link += 1;
        let id = state.last_link;
        let link = Link::new(id, yields, leads, page);
        // The one that leads hears it first: who yields is to find a page that is led.
        if let Some(end) = leads
            && !state.send(end, FromDaemon::Lead { link: id, lane: end.lane }, &file)
        {
            return None;
        }
        let yielded = state.send(yields, FromDaemon::Yield { link: id, lane: yields.lane }, &file);
        if let (false, Some(end)) = (yielded, leads) {
            state.tell(end, FromDaemon::Unlink { link: id });
        }
        yielded.then_some(link)
    }

    /// The one that leads hears it first, so that it does not raise what nobody looks at. Whatever it raises until then, the library of the
    /// one that yields lowers again, for as long as anything waits for it.
    pub fn unlink(&self, link: &Link) {
        link.mute(true);
        let mut state = self.lock();
        for end in link.leads.into_iter().chain([link.yields]) {
            state.tell(end, FromDaemon::Unlink { link: link.id });
        }
        drop(state);
        link.lower();
    }

    pub fn clear(&self) {
        self.lock().connections.clear();
    }
}

impl State {
    /// Of too many of a tenant that say nothing the one that has for longest is hung up on: who means it speaks at once.
    pub fn add(&mut self, socket: OwnedFd, facts: Arc<ProcessFacts>, now: Mono) -> ClientId {
        let is_its =
            |connection: &Connection| connection.stage == Stage::Silent && connection.facts.tenant == facts.tenant;
        let silent = self.connections.iter_mut().filter(|(_, connection)| is_its(connection));
        let mut silent: Vec<_> = silent.collect();
        if silent.len() >= SILENT
            && let Some((_, longest)) = silent.iter_mut().min_by_key(|(client, _)| **client)
        {
            longest.hang_up();
        }
        self.last_client += 1;
        let client = ClientId(self.last_client);
        self.connections.insert(client, Connection::new(socket, facts, now));
        client
    }

    /// Whether one more of this tenant may attach. Who was hung up on has no place any more; of a tenant whose hang-ups are still to be heard
    /// there are only so many, too.
    pub fn has_room(&self, tenant: &TenantKey) -> bool {
        let told = self.connections.values().filter(|connection| connection.stage.has_asked());
        let (ending, here): (Vec<_>, Vec<_>) = told.partition(|connection| connection.stage.is_ending());
        let own = |all: &[&Connection]| all.iter().filter(|other| other.facts.tenant.is(tenant)).count();
        here.len() < CLIENTS && own(&here) < CLIENTS_PER_TENANT && own(&ending) < CLIENTS_PER_TENANT
    }

    /// Hangs up on those who connected and said nothing; when to look again, if anybody is left.
    pub fn sweep(&mut self, now: Mono) -> Option<Duration> {
        let mut next = None;
        for connection in self.connections.values_mut().filter(|connection| connection.stage == Stage::Silent) {
            match SPEAK_WITHIN.checked_sub(now.since(connection.since)) {
                Some(left) if !left.is_zero() => next = Some(next.map_or(left, |next: Duration| next.min(left))),
                _ => connection.hang_up(),
            }
        }
        next
    }

    fn send(&mut self, end: End, message: FromDaemon, file: &File) -> bool {
        let connection = self.connections.get_mut(&end.client);
        connection.is_some_and(|connection| connection.has(end.lane) && connection.send(message, &[file.as_fd()]))
    }

    /// Those who are gone need not be told.
    fn tell(&mut self, end: End, message: FromDaemon) {
        if let Some(connection) = self.connections.get_mut(&end.client) {
            connection.send(message, &[]);
        }
    }
}

fn make_pages() -> io::Result<(Pages, [File; 2])> {
    let (ledger, ledger_file) = Page::create(c"berth-ledger", Writers::All)?;
    let (orders, orders_file) = Page::create(c"berth-orders", Writers::SoFar)?;
    let pages = Pages { ledger, orders };
    pages.orders.version.store(VERSION, Ordering::Release);
    Ok((pages, [ledger_file, orders_file]))
}

#[cfg(test)]
mod tests {
    use berth_model::ProcKey;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    /// One that has asked. The other end of its connection lives as long as what is returned.
    fn asks(state: &mut State, tenant: &TenantKey) -> (ClientId, OwnedFd) {
        let (process, command) = (ProcKey { pid: 7, start_ticks: 1 }, String::new());
        let tenant = tenant.clone();
        let facts = ProcessFacts { process, tenant, uid: None, user: None, command, started: None };
        let (own, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let client = state.add(own, Arc::new(facts), Mono(0));
        state.connections.get_mut(&client).unwrap().stage = Stage::Asking;
        (client, other)
    }

    #[test]
    fn who_was_refused_has_no_place_though_its_hang_up_is_not_heard_yet() {
        let (table, tenant) = (Table::default(), TenantKey::Cgroup { path: "/a".into() });
        let all: Vec<_> = (0..CLIENTS_PER_TENANT).map(|_| asks(&mut table.lock(), &tenant)).collect();
        assert!(!table.lock().has_room(&tenant));
        table.refuse(all[0].0, Refusal::NotAsked);
        assert!(table.lock().has_room(&tenant));
        all.iter().for_each(|(client, _)| table.refuse(*client, Refusal::NotAsked));
        assert!(!table.lock().has_room(&tenant), "each still has its descriptor");
        table.lock().connections.remove(&all[0].0);
        assert!(table.lock().has_room(&tenant));
    }
}
