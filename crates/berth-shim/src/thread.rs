//! The thread that frees: hears the daemon, keeps the links, gives up stops that last too long, and looks for another daemon.
//!
//! It never calls the driver, nor waits for anybody who does: whatever the driver does, nobody stands for longer than is promised. It is
//! the only one that adds and removes links. It ends with the process.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use berth_proto::shim::sys::Page;
use berth_proto::shim::{FromDaemon, LANES};

use crate::attach::{self, AttachError, Connection};
use crate::client::Client;
use crate::environment;
use crate::lane::Side;
use crate::leaving;
use crate::links::{Found, Links, Standing};
use crate::state::{self, MEMORY};
use crate::sys::socket::{Received, Socket};
use crate::sys::{current, process};

/// How often it looks while a stop is up or was given up, or a page is to go,
const WHILE_STOPPED: Duration = Duration::from_millis(1);
/// while there is somebody who could raise one,
const WHILE_YIELDING: Duration = Duration::from_millis(5);
/// for new orders,
const OTHERWISE: Duration = Duration::from_millis(50);
/// and without a daemon.
const WITHOUT: Duration = Duration::from_millis(500);
/// How long after a hang-up another daemon is looked for, and how long at most between two tries.
const FIRST_TRY: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

struct Thread {
    client: &'static Client,
    path: PathBuf,
    links: Links,
    daemon: Daemon,
}

enum Daemon {
    There,
    /// It has hung up; the next is asked then.
    Gone {
        next_ns: u64,
        pause: Duration,
    },
    /// One was asked and has not answered.
    Asked {
        socket: Socket,
        until_ns: u64,
        pause: Duration,
    },
    /// For good.
    Never,
}

pub(crate) fn run(client: &'static Client, path: PathBuf) {
    process::sleep_exactly();
    let daemon = if client.connection().socket.is_some() { Daemon::There } else { later(FIRST_TRY) };
    let mut thread = Thread { client, path, links: Links::default(), daemon };
    while client.is_up() && !client.is_broken() && !thread.is_over() {
        state::guarded(|| {
            thread.step();
            Some(())
        });
    }
    if thread.is_over() {
        // Nor is there anything left to look at.
        client.set_broken();
    }
    // The process ends, or something of ours has failed: all are let go and kept so, and no more is done.
    loop {
        let mut found = [Found::default(); LANES];
        let now = process::now_ns();
        let freed = state::guarded(|| {
            thread.links.remove(client, |_, _, _| true, now);
            leaving::keep_free(client, &mut found, now);
            Some(())
        });
        if freed.is_none() || client.is_up() && client.leaving().is_empty() {
            return;
        }
        std::thread::sleep(WHILE_STOPPED);
    }
}

impl Thread {
    fn step(&mut self) {
        let pause = self.pause();
        let heard = match &self.daemon {
            Daemon::There => self.client.connection().socket.as_ref().is_none_or(|socket| socket.wait(pause)),
            Daemon::Asked { socket, .. } => socket.wait(pause),
            Daemon::Gone { .. } | Daemon::Never => {
                std::thread::sleep(pause);
                false
            }
        };
        // Who is to be let go is, before anything else.
        self.free();
        match (&self.daemon, heard) {
            (Daemon::There, true) => self.hear(),
            (Daemon::There | Daemon::Never, _) => {}
            (Daemon::Gone { .. } | Daemon::Asked { .. }, heard) => self.seek(heard),
        }
        if matches!(self.daemon, Daemon::There) && state::is_minded() && current::get().is_some() {
            self.client.refresh_state();
        }
    }

    /// There will be no daemon, and nothing is left of the last one.
    fn is_over(&self) -> bool {
        matches!(self.daemon, Daemon::Never) && self.client.leaving().is_empty()
    }

    fn pause(&self) -> Duration {
        if self.links.is_stopped() || !self.client.leaving().is_empty() {
            return WHILE_STOPPED;
        }
        match self.daemon {
            Daemon::There if self.links.are_yielding() => WHILE_YIELDING,
            Daemon::Asked { .. } => WHILE_YIELDING,
            Daemon::There | Daemon::Never => OTHERWISE,
            Daemon::Gone { .. } => WITHOUT,
        }
    }

    /// Everything the daemon has said.
    fn hear(&mut self) {
        let Some(socket) = &self.client.connection().socket else { return self.let_go(true) };
        while matches!(self.daemon, Daemon::There) {
            match socket.receive() {
                Ok(received) if received.length > 0 => self.take(&received),
                Err(why) if why.kind() == std::io::ErrorKind::WouldBlock => return,
                Err(why) if why.kind() == std::io::ErrorKind::Interrupted => {}
                Ok(_) | Err(_) => self.let_go(true),
            }
        }
    }

    /// What makes no sense is passed over.
    fn take(&mut self, received: &Received) {
        let Ok(message) = FromDaemon::from_bytes(&received.packet[..received.length]) else { return };
        match message {
            FromDaemon::Yield { link, lane } => self.link(link, lane, Side::Yields, received),
            FromDaemon::Lead { link, lane } => self.link(link, lane, Side::Leads, received),
            FromDaemon::Unlink { link } => {
                self.links.remove(self.client, |id, _, _| id == link, process::now_ns());
            }
            FromDaemon::Refused(why) => self.let_go(AttachError::Refused(why).may_pass()),
            FromDaemon::Welcome { .. } => {}
        }
    }

    fn link(&mut self, id: u64, lane: u8, side: Side, received: &Received) {
        let file = received.files.first().and_then(|file| file.try_clone().ok());
        let page = file.and_then(|file| Some((Page::open(&file).ok()?, file)));
        let now = process::now_ns();
        let added = page.is_some_and(|page| self.links.add(self.client, id, lane.into(), side, page, now));
        if !added {
            process::say(format_args!("link {id} counts for nothing: no page, no such GPU or too many"));
        }
    }

    /// The daemon is gone: what it has given is not looked at any more.
    fn let_go(&mut self, may_come_again: bool) {
        // Memory is counted on.
        state::set(if may_come_again { MEMORY } else { 0 });
        let now = process::now_ns();
        self.links.remove(self.client, |_, _, _| true, now);
        if let Some(socket) = &self.client.connection().socket {
            socket.close();
        }
        process::say(format_args!("goes on without berth: the daemon has hung up"));
        self.daemon = Daemon::Never;
        match Connection::none() {
            Ok(none) if may_come_again => {
                self.client.exchange(none);
                self.daemon = later(FIRST_TRY);
            }
            _ => state::set(0),
        }
    }

    /// Asks the next daemon when it is time, or hears its answer.
    fn seek(&mut self, heard: bool) {
        let now = process::now_ns();
        self.daemon = match std::mem::replace(&mut self.daemon, Daemon::Never) {
            Daemon::Gone { next_ns, pause } if now >= next_ns => match attach::ask(&self.path) {
                Ok(socket) => Daemon::Asked { socket, until_ns: now.saturating_add(nanos(environment::wait())), pause },
                Err(_) => later(pause.saturating_mul(2)),
            },
            Daemon::Asked { socket, pause, .. } if heard => match attach::welcome(socket) {
                Ok(connection) => {
                    self.client.exchange(connection);
                    process::say(format_args!("has attached to another daemon"));
                    Daemon::There
                }
                Err(why) if why.may_pass() => later(pause.saturating_mul(2)),
                Err(why) => {
                    process::say(format_args!("goes on without berth: {why}"));
                    state::set(0);
                    Daemon::Never
                }
            },
            Daemon::Asked { until_ns, pause, .. } if now >= until_ns => later(pause.saturating_mul(2)),
            waits => waits,
        };
    }

    fn free(&mut self) {
        let (client, now) = (self.client, process::now_ns());
        let standing = |lane: usize| {
            let (orders, known) = (client.orders(lane), &client.lanes[lane]);
            let ledger = client.ledger(lane);
            let is_idle = ledger.busy.load(Ordering::Acquire) == 0;
            let got_on_ns = known.passed_at_ns.load(Ordering::SeqCst).max(ledger.busy_since_ns.load(Ordering::Relaxed));
            Standing {
                longest_ns: orders.longest_stop_ns.load(Ordering::Relaxed),
                is_freed: orders.free.load(Ordering::Relaxed) != 0,
                is_idle,
                got_on_ns,
            }
        };
        let mut found = self.links.look(client, standing, now);
        leaving::keep_free(client, &mut found, now);
        for (index, found) in found.iter().enumerate().filter(|(index, _)| client.lanes[*index].device().is_some()) {
            tell(client, index, found);
        }
    }
}

fn tell(client: &Client, lane: usize, found: &Found) {
    let ledger = client.ledger(lane);
    let (link, since) = found.stuck.unwrap_or((0, 0));
    ledger.stopped_since_ns.store(found.stopped_since_ns, Ordering::Relaxed);
    ledger.given_up.store(found.given_up, Ordering::Relaxed);
    ledger.stuck_link.store(link, Ordering::Relaxed);
    ledger.stuck_since_ns.store(since, Ordering::Release);
    ledger.stops_given_up.fetch_add(found.newly_given_up, Ordering::Relaxed);
    ledger.words_fought.fetch_add(found.fought, Ordering::Relaxed);
}

fn later(pause: Duration) -> Daemon {
    let pause = pause.min(LONGEST_PAUSE);
    Daemon::Gone { next_ns: process::now_ns().saturating_add(nanos(pause)), pause }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
