//! Every conversation, and which process each belongs to.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::os::fd::OwnedFd;

use berth_proto::wire::Role;
use rustix::event::{PollFd, PollFlags};
use rustix::time::Timespec;

use super::client::Client;
use super::poll::{Interest, Poll, Token};
use super::sys::peer_pidfd;
use crate::Ticket;

/// A process with at least one conversation.
#[derive(Debug)]
struct Process {
    pidfd: OwnedFd,
    /// The pidfd's in the epoll.
    token: Token,
    uid: u32,
    /// Conversations that carry the process's life; the last to close takes it off the GPU.
    anchors: u32,
    /// Its threads' conversations.
    threads: BTreeSet<Token>,
}

#[derive(Debug, Default)]
pub(super) struct Clients {
    /// In order of arrival, so that the end of a process drops its conversations in a fixed order.
    clients: BTreeMap<Token, Client>,
    processes: HashMap<u32, Process>,
    exits: HashMap<Token, u32>,
    waiting: HashMap<Ticket, Token>,
}

impl Clients {
    pub(super) fn insert(&mut self, token: Token, client: Client) {
        self.clients.insert(token, client);
    }

    pub(super) fn get(&mut self, token: Token) -> Option<&mut Client> {
        self.clients.get_mut(&token)
    }

    /// Takes a conversation out for a while, without ending it.
    pub(super) fn take(&mut self, token: Token) -> Option<Client> {
        self.clients.remove(&token)
    }

    /// The process whose end this token reports.
    pub(super) fn exit_of(&self, token: Token) -> Option<u32> {
        self.exits.get(&token).copied()
    }

    /// The user a known process runs as.
    pub(super) fn uid_of(&self, pid: u32) -> Option<u32> {
        self.processes.get(&pid).map(|process| process.uid)
    }

    /// Whether a process with this pid was known and has ended since: a newcomer with its pid is another one.
    pub(super) fn has_ended(&self, pid: u32) -> bool {
        let Some(process) = self.processes.get(&pid) else { return false };
        let mut fds = [PollFd::new(&process.pidfd, PollFlags::IN)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        matches!(rustix::event::poll(&mut fds, Some(&at_once)), Ok(ready) if ready > 0)
    }

    /// Counts a conversation to its process; `fresh` names the process's end if it was not known yet.
    pub(super) fn join(&mut self, token: Token, role: Role, poll: &Poll, fresh: Token) -> io::Result<()> {
        let Some(client) = self.clients.get(&token) else { return Ok(()) };
        let peer = client.peer;
        if let std::collections::hash_map::Entry::Vacant(entry) = self.processes.entry(peer.pid) {
            let pidfd = peer_pidfd(client, peer.pid)?;
            poll.add(&pidfd, fresh, Interest::Read)?;
            entry.insert(Process { pidfd, token: fresh, uid: peer.uid, anchors: 0, threads: BTreeSet::new() });
            self.exits.insert(fresh, peer.pid);
        }
        let Some(process) = self.processes.get_mut(&peer.pid) else { return Ok(()) };
        match role {
            Role::Process => process.anchors += 1,
            Role::Thread => drop(process.threads.insert(token)),
        }
        Ok(())
    }

    /// The conversations of the process's other threads.
    pub(super) fn siblings(&mut self, token: Token) -> Vec<Token> {
        let Some(pid) = self.clients.get(&token).map(|client| client.peer.pid) else { return Vec::new() };
        let threads = self.processes.get(&pid).into_iter().flat_map(|process| &process.threads);
        threads.copied().filter(|other| *other != token).collect()
    }

    /// Remembers whose call a ticket is.
    pub(super) fn expect(&mut self, ticket: Ticket, token: Token) {
        self.waiting.insert(ticket, token);
    }

    pub(super) fn take_waiting(&mut self, ticket: Ticket) -> Option<Token> {
        self.waiting.remove(&ticket)
    }

    /// Ends a conversation. Says which process has left the GPU by it, if one has.
    pub(super) fn drop_client(&mut self, token: Token, poll: &Poll) -> Option<u32> {
        let client = self.clients.remove(&token)?;
        poll.remove(&client);
        if let Some(ticket) = client.ticket() {
            self.waiting.remove(&ticket);
        }
        let process = self.processes.get_mut(&client.peer.pid)?;
        process.threads.remove(&token);
        if client.role != Some(Role::Process) {
            return None;
        }
        process.anchors = process.anchors.saturating_sub(1);
        (process.anchors == 0).then_some(client.peer.pid)
    }

    /// Forgets a process and ends all its conversations.
    pub(super) fn drop_process(&mut self, pid: u32, poll: &Poll) {
        if let Some(process) = self.processes.remove(&pid) {
            poll.remove(&process.pidfd);
            self.exits.remove(&process.token);
        }
        let its: Vec<Token> =
            self.clients.iter().filter(|(_, client)| client.peer.pid == pid).map(|(token, _)| *token).collect();
        for token in its {
            self.drop_client(token, poll);
        }
    }
}
