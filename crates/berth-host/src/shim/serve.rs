//! The thread that accepts and reads. What it hears it tells; it waits for nobody.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use berth_model::ProcessFacts;
use berth_proto::shim::message::{Lane, MESSAGE_BYTES, Refusal};
use berth_proto::shim::{FromClient, FromDaemon, VERSION};
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SocketFlags, accept_with, recv};

use super::connection::Stage;
use super::gate::Gate;
use super::high::high;
use super::place::Place;
use super::table::{State, Table};
use super::{ClientClock, ClientId, Names, ShimError, Told};
use crate::clock;

const LISTENER: u64 = 0;
const STOP: u64 = 1;
const FIRST_CLIENT: u64 = 2;

/// Connections that are accepted before those who are here have their turn.
const ACCEPTS_PER_TURN: usize = 128;
/// When the next are accepted after a turn in which most were turned away: somebody connects as fast as it can, and others have to find the
/// kernel's queue empty. And after a connection could not be accepted.
const ACCEPT_SOON: Duration = Duration::from_millis(1);
const ACCEPT_AGAIN: Duration = Duration::from_millis(20);
/// Messages read from one connection before the others have their turn.
const MESSAGES_PER_TURN: usize = 8;

pub type Tell = Box<dyn Fn(Told) + Send>;

pub struct Server {
    epoll: OwnedFd,
    listener: OwnedFd,
    table: Arc<Table>,
    gate: Gate,
    tell: Tell,
    /// The listener is not watched for so long.
    rests: Option<Duration>,
    _stop: Arc<OwnedFd>,
}

/// What became of a connection that was read.
enum Read {
    Nothing,
    Message(FromClient),
    /// Hung up, or said what cannot be said.
    Over,
}

impl Server {
    pub fn new(
        place: &Place,
        table: Arc<Table>,
        stop: Arc<OwnedFd>,
        names: Names,
        tell: Tell,
    ) -> Result<Self, ShimError> {
        let listener = place.listener.try_clone();
        let listener =
            listener.map_err(|source| ShimError::Io { attempt: "share the socket with a thread", source })?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(ShimError::io("make an epoll"))?;
        for (fd, token) in [(&*stop, STOP), (&listener, LISTENER)] {
            let added = epoll::add(&epoll, fd, epoll::EventData::new_u64(token), epoll::EventFlags::IN);
            added.map_err(ShimError::io("watch the socket"))?;
        }
        Ok(Self { epoll, listener, table, gate: Gate::new(names), tell, rests: None, _stop: stop })
    }

    pub fn run(mut self) {
        let mut buffer = [MaybeUninit::<epoll::Event>::uninit(); 64];
        loop {
            let silent = self.table.lock().sweep(clock::now());
            let limit = silent.into_iter().chain(self.rests).min().map(timespec);
            let tokens: Vec<u64> = match epoll::wait(&self.epoll, &mut buffer, limit.as_ref()) {
                Ok((events, _)) => events.iter().map(|event| event.data.u64()).collect(),
                Err(Errno::INTR) => continue,
                Err(error) => {
                    tracing::error!(%error, "the socket for kernel-level clients ends; nobody can attach any more");
                    return;
                }
            };
            if tokens.contains(&STOP) {
                return;
            }
            if self.rests.is_some() || tokens.contains(&LISTENER) {
                self.accept();
            }
            for token in tokens.into_iter().filter(|token| *token >= FIRST_CLIENT) {
                self.read(ClientId(token - FIRST_CLIENT));
            }
        }
    }

    fn accept(&mut self) {
        let mut turned_away = 0;
        for _ in 0..ACCEPTS_PER_TURN {
            match accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => match self.gate.lets_in(&socket, clock::now()) {
                    Some(facts) => self.add(high(socket), facts),
                    None => turned_away += 1,
                },
                Err(Errno::AGAIN) => return self.rest(None),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                // For want of descriptors, for example.
                Err(error) => {
                    tracing::warn!(%error, "a kernel-level client could not be accepted");
                    return self.rest(Some(ACCEPT_AGAIN));
                }
            }
        }
        self.rest((turned_away * 2 > ACCEPTS_PER_TURN).then_some(ACCEPT_SOON));
    }

    fn rest(&mut self, rests: Option<Duration>) {
        if self.rests.is_some() == rests.is_some() {
            self.rests = rests;
            return;
        }
        let flags = if rests.is_some() { epoll::EventFlags::empty() } else { epoll::EventFlags::IN };
        match epoll::modify(&self.epoll, &self.listener, epoll::EventData::new_u64(LISTENER), flags) {
            Ok(()) => self.rests = rests,
            Err(error) => tracing::warn!(%error, "cannot rest from accepting"),
        }
    }

    fn add(&self, socket: OwnedFd, facts: Arc<ProcessFacts>) {
        let mut state = self.table.lock();
        let client = state.add(socket, facts, clock::now());
        let socket = Arc::clone(&state.connections[&client].socket);
        let data = epoll::EventData::new_u64(FIRST_CLIENT + client.0);
        if let Err(error) = epoll::add(&self.epoll, &socket, data, epoll::EventFlags::IN) {
            tracing::warn!(%error, "a kernel-level client could not be watched");
            state.connections.remove(&client);
        }
    }

    fn read(&self, client: ClientId) {
        for _ in 0..MESSAGES_PER_TURN {
            // By itself: a guard in the `match` would be held throughout it.
            let read = next_message(&mut self.table.lock(), client);
            match read {
                Read::Nothing => return,
                Read::Over => return self.remove(client),
                Read::Message(FromClient::Attach { version, clock_ns }) => self.asks(client, version, clock_ns),
                Read::Message(FromClient::Lane(lane)) => self.lane(client, lane),
            }
        }
    }

    /// The client is told of as gone if it was told of before.
    fn remove(&self, client: ClientId) {
        let removed = self.table.lock().connections.remove(&client);
        if removed.is_some_and(|connection| connection.stage.has_asked()) {
            (self.tell)(Told::Gone { client });
        }
    }

    fn asks(&self, client: ClientId, version: u32, clock_ns: u64) {
        let clock = ClientClock::of(clock_ns, clock::now().0);
        let mut state = self.table.lock();
        let Some(facts) = state.connections.get(&client).map(|found| Arc::clone(&found.facts)) else { return };
        let has_room = state.has_room(&facts.tenant);
        let Some(connection) = state.connections.get_mut(&client) else { return };
        let facts = match facts {
            _ if connection.stage != Stage::Silent => return connection.hang_up(),
            _ if version != VERSION => Err(Refusal::Version),
            _ if !has_room => Err(Refusal::TooMany),
            facts => Ok(facts),
        };
        match facts {
            Ok(facts) => {
                connection.stage = Stage::Asking;
                drop(state);
                (self.tell)(Told::Asks { client, facts, clock });
            }
            Err(why) => {
                tracing::debug!(version, ?why, "a process is not let attach");
                connection.send(FromDaemon::Refused(why), &[]);
                connection.hang_up();
            }
        }
    }

    fn lane(&self, client: ClientId, lane: Lane) {
        let mut state = self.table.lock();
        let Some(connection) = state.connections.get_mut(&client) else { return };
        match &mut connection.stage {
            Stage::Attached { lanes } if *lanes & 1 << lane.lane == 0 => *lanes |= 1 << lane.lane,
            _ => return connection.hang_up(),
        }
        drop(state);
        (self.tell)(Told::Lane { client, lane });
    }
}

fn next_message(state: &mut State, client: ClientId) -> Read {
    let Some(connection) = state.connections.get_mut(&client) else { return Read::Nothing };
    let mut buffer = [0u8; MESSAGE_BYTES];
    // Descriptors that come with it are not taken: the kernel closes them.
    let received = recv(&*connection.socket, &mut buffer, RecvFlags::DONTWAIT | RecvFlags::TRUNC);
    let length = match received {
        Ok((_, 0)) => return Read::Over,
        Ok((_, length)) => length,
        Err(Errno::AGAIN | Errno::INTR) => return Read::Nothing,
        Err(_) => return Read::Over,
    };
    if matches!(connection.stage, Stage::Ending { .. }) || !connection.budget.spend(clock::now()) {
        return Read::Over;
    }
    match buffer.get(..length).map(FromClient::from_bytes) {
        Some(Ok(message)) => Read::Message(message),
        Some(Err(error)) => {
            tracing::debug!(client = client.0, %error, "a client is hung up on");
            Read::Over
        }
        None => Read::Over,
    }
}

pub fn timespec(duration: Duration) -> Timespec {
    let secs = i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    Timespec { tv_sec: secs, tv_nsec: duration.subsec_nanos().into() }
}
