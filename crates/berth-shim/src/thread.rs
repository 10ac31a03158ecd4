//! The library's own thread: hears the daemon, lowers words, frees who is stopped for too long, reads measurements.
//!
//! It sleeps until the socket has something or a call rings the bell, and looks more often the more there is to see. It is the only
//! one that adds and removes links. When the daemon hangs up it lets go of everything and ends once nothing waits any more.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use berth_proto::shim::sys::Page;
use berth_proto::shim::{FromDaemon, LANES};

use crate::client::Client;
use crate::lane::Side;
use crate::links::Links;
use crate::state;
use crate::streams::Stream;
use crate::sys::driver::Progress;
use crate::sys::socket::{self, Received};
use crate::sys::{current, process};

/// How often it looks while the client keeps others stopped,
const WHILE_RAISED: Duration = Duration::from_micros(25);
/// while the client has work and links, or stands at a stop,
const WHILE_LINKED: Duration = Duration::from_millis(1);
/// while something is being measured,
const WHILE_MEASURING: Duration = Duration::from_millis(10);
/// and otherwise, for new orders.
const OTHERWISE: Duration = Duration::from_millis(50);
/// How long after its last work a client without others to keep stopped is idle, its estimates being rough.
const IDLE_AFTER_NS: u64 = 1_000_000;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`: what this thread asks disturbs nobody's capture.
const RELAXED: i32 = 2;

/// What was last seen of a GPU.
#[derive(Debug, Clone, Copy)]
struct Watch {
    started: u64,
    last_busy_ns: u64,
    is_idle: bool,
}

struct Thread {
    client: &'static Client,
    links: Links,
    watches: [Watch; LANES],
    hung_up: bool,
}

pub(crate) fn run(client: &'static Client) {
    process::sleep_exactly();
    client.driver.set_capture_mode(RELAXED);
    let watch = Watch { started: 0, last_busy_ns: 0, is_idle: true };
    let thread = Thread { client, links: Links::default(), watches: [watch; LANES], hung_up: false };
    let done = state::guarded(|| {
        thread.run();
        Some(())
    });
    if done.is_none() {
        state::set(0);
    }
}

impl Thread {
    fn run(mut self) {
        while self.client.is_up() && (!self.hung_up || self.links.are_leaving()) {
            let socket = (!self.hung_up).then_some(&self.client.socket);
            let heard = socket::wait(socket, &self.client.bell, self.pause());
            self.client.bell.silence();
            if heard {
                self.hear();
            }
            self.look();
        }
    }

    fn pause(&self) -> Duration {
        let lanes = || self.client.lanes.iter().zip(&self.watches).filter(|(lane, _)| lane.device().is_some());
        if lanes().any(|(lane, _)| lane.is_raised()) {
            return WHILE_RAISED;
        }
        let linked = lanes().any(|(lane, watch)| !watch.is_idle && (lane.is_yielding() || lane.is_leading()));
        if linked || self.links.is_stopped() || self.links.are_leaving() {
            return WHILE_LINKED;
        }
        if self.client.samples.are_pending() { WHILE_MEASURING } else { OTHERWISE }
    }

    /// Everything the daemon has said.
    fn hear(&mut self) {
        loop {
            match self.client.socket.receive() {
                Ok(received) if received.length > 0 => self.take(&received),
                Err(why) if why.kind() == std::io::ErrorKind::WouldBlock => return,
                Err(why) if why.kind() == std::io::ErrorKind::Interrupted => {}
                Ok(_) | Err(_) => return self.let_go(),
            }
        }
    }

    /// What makes no sense is passed over.
    fn take(&mut self, received: &Received) {
        let Ok(message) = FromDaemon::from_bytes(&received.packet[..received.length]) else { return };
        match message {
            FromDaemon::Yield { link, lane } => self.link(link, lane, Side::Yields, received),
            FromDaemon::Lead { link, lane } => self.link(link, lane, Side::Leads, received),
            FromDaemon::Unlink { link } => self.links.remove(self.client, |id, _, _| id == link),
            FromDaemon::Refused(_) => self.let_go(),
            FromDaemon::Welcome { .. } => {}
        }
        if !self.hung_up {
            self.client.refresh_state();
        }
    }

    fn link(&mut self, id: u64, lane: u8, side: Side, received: &Received) {
        let page = received.files.first().and_then(|file| Page::open(file).ok());
        let added =
            page.is_some_and(|page| self.links.add(self.client, id, lane.into(), side, page, process::now_ns()));
        if !added {
            process::say(format_args!("link {id} counts for nothing: no page, no such GPU or too many"));
        }
    }

    fn let_go(&mut self) {
        state::set(0);
        self.hung_up = true;
        self.links.remove(self.client, |_, _, _| true);
        process::say(format_args!("goes on without berth: the daemon has hung up"));
    }

    fn look(&mut self) {
        let client = self.client;
        let Some(_events) = client.events() else { return };
        let now = process::now_ns();
        for index in 0..LANES {
            if client.lanes[index].device().is_some() {
                self.look_at(index, now);
            }
        }
        if client.samples.are_pending() {
            client.harvest();
        }
        let longest = |lane: usize| client.orders(lane).longest_stop_ns.load(Ordering::Relaxed);
        let watches = self.watches;
        let is_idle = |lane: usize| watches[lane].is_idle;
        while let Some(lane) = self.links.overdue(now, longest, is_idle) {
            client.ledger(lane).stops_given_up.fetch_add(1, Ordering::Relaxed);
            self.links.remove(client, |_, of, side| of == lane && side == Side::Yields);
        }
        self.links.sweep(client, |lane, round| has_passed(client, lane, round));
        if !self.hung_up && state::is_minded() && current::get().is_some() {
            client.refresh_state();
        }
    }

    /// Whether the client's work there is done, and what follows from it.
    fn look_at(&mut self, index: usize, now: u64) {
        let (client, lane, watch) = (self.client, &self.client.lanes[index], &mut self.watches[index]);
        let started = lane.started.load(Ordering::SeqCst);
        if started != watch.started || started != lane.finished.load(Ordering::SeqCst) {
            *watch = Watch { started, last_busy_ns: now, is_idle: false };
            return;
        }
        if watch.is_idle && !lane.is_raised() {
            return;
        }
        let is_under_way = |place: usize| {
            let stream = client.streams.get(place);
            let event = stream.event.load(Ordering::Acquire);
            let context = stream.context.load(Ordering::Relaxed);
            event != 0 && client.driver.progress(event, context) == Progress::UnderWay
        };
        if now < lane.blind_until_ns.load(Ordering::SeqCst) || client.streams.active(index).any(is_under_way) {
            watch.last_busy_ns = now;
            return;
        }
        let linger_ns = client.orders(index).linger_ns.load(Ordering::Relaxed).into();
        let after_ns = if lane.is_raised() { linger_ns } else { IDLE_AFTER_NS };
        if now.saturating_sub(watch.last_busy_ns) >= after_ns {
            watch.is_idle = rest(client, index, started);
        }
    }
}

/// Whether all streams of a GPU have passed what they had when the round began. What is behind a wait is done only after it.
fn has_passed(client: &Client, index: usize, round: u64) -> bool {
    let is_done = |event: &AtomicU64, context| match event.load(Ordering::Acquire) {
        0 => true,
        event => client.driver.progress(event, context) != Progress::UnderWay,
    };
    let has_passed = |place: usize| {
        let stream = client.streams.get(place);
        let context = stream.context.load(Ordering::Relaxed);
        is_done(&stream.event, context)
            || stream.round.load(Ordering::Acquire) == round && is_done(&stream.round_event, context)
    };
    !client.lanes[index].has_blind_waits.load(Ordering::SeqCst) && client.streams.active(index).all(has_passed)
}

/// The client has nothing left to do there; false if it has begun again meanwhile.
fn rest(client: &Client, index: usize, started: u64) -> bool {
    let (lane, ledger) = (&client.lanes[index], client.ledger(index));
    let stays = {
        let reading = client.readers.enter();
        !lane.is_raised() || lane.lower(&reading, started)
    };
    let places: Vec<usize> = client.streams.active(index).collect();
    for place in &places {
        client.streams.set_done(*place);
    }
    ledger.busy_since_ns.store(process::now_ns(), Ordering::Relaxed);
    ledger.busy.store(0, Ordering::Release);
    if stays && lane.started.load(Ordering::SeqCst) == started {
        let is_left = |stream: &Stream| stream.is_abandoned() && stream.lane.load(Ordering::Relaxed) as usize == index;
        for event in client.streams.forget(is_left) {
            client.driver.destroy_event(event);
        }
        return true;
    }
    for place in places {
        client.streams.set_active(place);
    }
    ledger.busy.store(1, Ordering::Release);
    false
}
