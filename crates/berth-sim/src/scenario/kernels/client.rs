//! One program: the requests it has, and what of them is on the GPU.

use std::collections::BTreeMap;

use berth_proto::sim::{Reply, Request as Call, Sms};

use super::{Account, Confined, Done, Machine, Program, SAMPLE_EVERY, Sample, Seen};
use crate::engine::{Engine, Outcome, Ticket};

pub(super) struct Client<'a> {
    pub pid: u32,
    context: u64,
    /// Streams by the SMs they are on.
    streams: BTreeMap<(u32, u32), u64>,
    /// The part of the SMs that it has a context for: one at a time, as berth's library has it.
    ready_for: Option<(u32, u32)>,
    program: &'a Program,
    /// The request under way or next, when it was begun, and kernels of it that were launched.
    request: usize,
    began: Option<u64>,
    place: u64,
    piece: Option<Piece>,
    pieces: u64,
    /// The next request can be begun from then on; so can the next piece of work.
    next_from: u64,
    pub goes_on_at: u64,
    pub is_stopped: bool,
    /// Since when it has work and nothing of it is on the GPU.
    waits_since: Option<u64>,
    /// When it last had work, for those who yield to it.
    pub last_busy: Option<u64>,
    pub seen: Seen,
    pub account: Account,
}

/// Kernels on the GPU, of which one call waits for the last.
#[derive(Debug, Clone, Copy)]
struct Piece {
    ticket: Ticket,
    began: u64,
    alone_ns: u64,
    demand: f64,
}

impl<'a> Client<'a> {
    pub fn new(pid: u32, context: u64, program: &'a Program) -> Self {
        Self {
            pid,
            context,
            streams: BTreeMap::new(),
            ready_for: None,
            program,
            request: 0,
            began: None,
            place: 0,
            piece: None,
            pieces: 0,
            next_from: 0,
            goes_on_at: 0,
            is_stopped: false,
            waits_since: None,
            last_busy: None,
            seen: Seen::default(),
            account: Account::default(),
        }
    }

    pub fn is_done(&self) -> bool {
        self.request == self.program.requests.len()
    }

    /// It has work, and nothing of it is on the GPU.
    pub fn waits(&self) -> bool {
        self.seen.busy && self.piece.is_none()
    }

    /// When its next request is begun; `None` while one is under way and after the last.
    pub fn next_request_at(&self) -> Option<u64> {
        let next = self.program.requests.get(self.request).filter(|_| self.began.is_none())?;
        Some(next.at_ns.max(self.next_from))
    }

    /// Begins the next request if its time has come.
    pub fn come(&mut self, now: u64) {
        if self.next_request_at().is_some_and(|at| at <= now) {
            (self.began, self.waits_since) = (Some(now), Some(now));
            (self.seen.busy, self.seen.since_ns) = (true, now);
        }
        if self.seen.busy {
            self.last_busy = Some(now);
        }
    }

    /// Launches the next piece of work, on SMs where it has been before; else it makes itself ready for them. `lost`: a kernel of it that never comes to the GPU.
    pub fn launch(&mut self, engine: &mut Engine, machine: &Machine, now: u64, on: Option<Confined>, all: &mut u64) {
        let Some(stream) = self.stream(engine, on) else { return };
        let part = on.map(|on| (on.first, on.count));
        if part.is_some() && part != self.ready_for {
            self.ready_for = part;
            if machine.split_ns > 0 {
                self.goes_on_at = now + machine.split_ns;
                return;
            }
        }
        let request = &self.program.requests[self.request];
        let (mut alone_ns, mut demand) = (0, 0.0);
        while let Some(kernel) = request.kernel(self.place) {
            if alone_ns > 0 && alone_ns + kernel.alone_ns > machine.grain_ns {
                break;
            }
            *all += 1;
            if machine.loses != Some(*all) {
                let cost = kernel.cost(&machine.profile);
                engine.request(self.pid, Call::Launch { context: self.context, stream, cost });
            }
            self.account.launched += 1;
            self.place += 1;
            demand += kernel.demand * kernel.alone_ns as f64;
            alone_ns += kernel.alone_ns;
        }
        let waited = self.waits_since.take().map_or(0, |since| now - since);
        self.account.longest_wait_ns = self.account.longest_wait_ns.max(waited);
        let ticket = match engine.request(self.pid, Call::StreamSync { context: self.context, stream }) {
            Outcome::Later(ticket) => ticket,
            // Nothing is there to wait for: its only kernel was lost.
            Outcome::Now(_) => return self.piece_done(machine, now, false),
        };
        self.piece = Some(Piece { ticket, began: now, alone_ns, demand: demand / alone_ns.max(1) as f64 });
    }

    fn stream(&mut self, engine: &mut Engine, on: Option<Confined>) -> Option<u64> {
        let sms = on.map_or((0, 0), |on| (on.first, on.count));
        if let Some(stream) = self.streams.get(&sms) {
            return Some(*stream);
        }
        let row = Sms { first: sms.0, count: sms.1 };
        let made = engine.request(self.pid, Call::StreamCreateWith { context: self.context, priority: 0, sms: row });
        let Outcome::Now(Reply::Handle(stream)) = made else { return None };
        self.streams.insert(sms, stream);
        Some(stream)
    }

    pub fn answered(&mut self, machine: &Machine, ticket: Ticket, now: u64, has_stops: bool) {
        if self.piece.is_some_and(|piece| piece.ticket == ticket) {
            self.piece_done(machine, now, has_stops);
        }
    }

    fn piece_done(&mut self, machine: &Machine, now: u64, has_stops: bool) {
        if let Some(piece) = self.piece.take() {
            self.pieces += 1;
            self.account.served_ns += piece.alone_ns;
            if self.pieces % SAMPLE_EVERY == 1 {
                let (began_ns, took_ns) = (piece.began, now - piece.began);
                self.seen.samples.push(Sample { began_ns, took_ns, alone_ns: piece.alone_ns, demand: piece.demand });
            }
        }
        self.goes_on_at = now + if has_stops { machine.stop_ns } else { 0 };
        self.waits_since = Some(now);
        self.last_busy = Some(now);
        let request = &self.program.requests[self.request];
        if self.place == request.kernel_count() {
            let began_ns = self.began.take().unwrap_or(now);
            let done = Done { request: self.request, came_ns: request.at_ns, began_ns, done_ns: now };
            self.seen.finished.push(done);
            self.account.finished.push(done);
            (self.seen.busy, self.seen.since_ns, self.waits_since) = (false, now, None);
            (self.request, self.place, self.next_from) = (self.request + 1, 0, now + machine.gap_ns);
            self.goes_on_at = now;
        }
    }
}
