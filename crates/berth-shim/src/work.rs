//! The way of one piece of work: a kernel, a graph, a copy. What comes before it is given to the driver, and what after.

use std::sync::atomic::Ordering;

use berth_proto::cuda::{CuResult, result};
use berth_proto::shim::{Sample, SampleKind};

use crate::capture::CAPTURES;
use crate::client::{Client, Seen};
use crate::counted::Counted;
use crate::estimate::{Place, Shape};
use crate::hold::{Held, hold_back};
use crate::long::{Moved, Part};
use crate::marks::{mark, record};
use crate::preempt;
use crate::samples::Measuring;
use crate::state::{self, WORK};
use crate::sys::process;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Work {
    pub(crate) shape: Shape,
    /// It can be launched into another stream: no graph, no copy, nothing that says that its blocks wait for each other.
    pub(crate) can_move: bool,
    /// Of a copy: to and from where.
    pub(crate) ends: Option<[End; 2]>,
}

/// One end of a copy.
#[derive(Debug, Clone, Copy)]
pub(crate) enum End {
    Host,
    Device,
    /// For the driver to say.
    At(u64),
}

/// Work that is about to be given to the driver, and of which more is wanted than to be counted.
struct Begun {
    client: &'static Client,
    seen: Seen,
    stream: u64,
    shape: Shape,
    estimate_ns: u64,
    known: bool,
    position: u32,
    pieces: u32,
    blocks_per_sm: u32,
    /// An event is to be recorded behind it.
    marks: bool,
    /// Nothing but the launch itself: its stream has begun to capture meanwhile.
    is_bare: bool,
    measuring: Option<Measuring>,
    moved: Option<Moved<'static>>,
}

impl Work {
    pub(crate) fn kernel(function: u64, grid: [u32; 3], block: [u32; 3], shared_bytes: u32, can_move: bool) -> Self {
        let all = |sizes: [u32; 3]| sizes.into_iter().fold(1, u32::saturating_mul);
        let (blocks, threads_per_block, bytes) = (all(grid), all(block), shared_bytes.into());
        let shape = Shape { kind: SampleKind::Kernel, function, blocks, threads_per_block, bytes };
        Self { shape, can_move, ends: None }
    }

    pub(crate) fn graph(graph: u64) -> Self {
        let shape = Shape { kind: SampleKind::Graph, function: graph, blocks: 0, threads_per_block: 0, bytes: 0 };
        Self { shape, can_move: false, ends: None }
    }

    /// `kind` tells directions apart.
    pub(crate) fn copy(kind: u64, bytes: u64, ends: [End; 2]) -> Self {
        let shape = Shape { kind: SampleKind::Copy, function: kind, blocks: 0, threads_per_block: 0, bytes };
        Self { shape, can_move: false, ends: Some(ends) }
    }

    /// Whether it goes through the host, whose share of the bus has a budget.
    pub(crate) fn is_of_host(&self, client: &Client) -> bool {
        let is_host = |end: &End| match end {
            End::Host => true,
            End::Device => false,
            End::At(address) => !client.driver.is_on_device(*address),
        };
        self.ends.as_ref().is_some_and(|ends| ends.iter().any(is_host))
    }
}

/// Gives work to the driver. `real` does so, in another stream if it is told one; what it answers is what the program gets.
#[inline]
pub(crate) fn submit(stream: u64, work: impl FnOnce() -> Work, real: impl Fn(Option<u64>) -> CuResult) -> CuResult {
    if !state::minds(WORK) {
        return real(None);
    }
    minded(stream, work(), real)
}

/// Most often there is nothing to do but to count.
fn minded(stream: u64, work: Work, real: impl Fn(Option<u64>) -> CuResult) -> CuResult {
    let Some(counted) = state::caught(|| Counted::of(state::client(WORK)?, stream, &work)) else { return real(None) };
    if !counted.is_plain(&work) {
        return managed(&counted, stream, &work, real);
    }
    let answer = real(None);
    counted.client.lanes[counted.seen.lane].finished.fetch_add(1, Ordering::SeqCst);
    answer
}

#[inline(never)]
fn managed(counted: &Counted, stream: u64, work: &Work, real: impl Fn(Option<u64>) -> CuResult) -> CuResult {
    // A panic has ended our part for good.
    let Some(mut begun) = state::guarded(|| Some(begin(counted, stream, work))) else { return real(None) };
    let answer = match &begun.moved {
        None => real(None),
        Some(moved) => match real(Some(moved.stream())) {
            result::SUCCESS => result::SUCCESS,
            _ => {
                begun.moved = None;
                real(None)
            }
        },
    };
    state::guarded(|| {
        begun.finish(answer == result::SUCCESS);
        Some(())
    });
    answer
}

fn begin(counted: &Counted, stream: u64, work: &Work) -> Begun {
    let Counted { client, seen, estimate_ns, was_idle, pieces, marks, .. } = *counted;
    let (lane, orders) = (&client.lanes[seen.lane], client.orders(seen.lane));
    let is_linked = lane.is_leading() || lane.is_yielding();
    let raises = lane.is_leading() && !lane.is_raised() && lane.raise(&client.readers.enter());
    if raises || is_linked && was_idle && seen.place.is_some() {
        client.ring();
    }
    if lane.is_leading() && !raises && counted.is_next {
        lane.raise_anew(&client.readers.enter());
    }
    let held = if counted.waits { stand(client, &seen, stream, pieces) } else { Held::default() };
    let preempt_ns = orders.preempt_ns.load(Ordering::Relaxed);
    if preempt_ns != 0 && estimate_ns >= preempt_ns.into() && lane.is_yielding() {
        preempt::note_long(client);
    }
    let waited_at = seen.place.map_or(0, |place| client.streams.get(place).waited_at.load(Ordering::Relaxed));
    let mut begun = Begun {
        client,
        seen,
        stream,
        shape: work.shape,
        estimate_ns,
        known: counted.known,
        position: pieces.wrapping_sub(waited_at).saturating_sub(1),
        pieces,
        blocks_per_sm: 0,
        // Whoever waits on its CPU has to know the end of what it submits.
        marks: marks || held.here,
        // Whoever waited on its CPU may find that its stream captures.
        is_bare: !held.on_gpu && CAPTURES.has(&client.driver, stream),
        measuring: None,
        moved: None,
    };
    if !begun.is_bare {
        begun.measure(work, counted.place, counted.due);
    }
    begun
}

/// Has the stream wait while any stop is up. An event comes directly behind the wait: the call that follows may not return before the GPU has
/// passed it, and until there is one nobody could tell that it has not.
fn stand(client: &'static Client, seen: &Seen, stream: u64, pieces: u32) -> Held {
    let reading = client.readers.enter();
    let held = hold_back(client, seen, stream, &reading);
    if held.on_gpu {
        match seen.place.map(|place| client.streams.get(place)) {
            Some(known) => {
                if record(client, seen.context, &known.event, stream) {
                    known.marked_at.store(pieces.wrapping_sub(1), Ordering::Release);
                }
            }
            None => {
                let round = client.lanes[seen.lane].round.load(Ordering::SeqCst);
                client.blind.mark(&client.driver, seen.lane, seen.context, stream, round);
            }
        }
    }
    held
}

impl Begun {
    /// Has it measured if it is due, and launched elsewhere if it is to be.
    fn measure(&mut self, work: &Work, place: Option<&Place>, due: bool) {
        let (client, seen, shape) = (self.client, self.seen, self.shape);
        let ask = || client.driver.blocks_per_sm(shape.function, shape.threads_per_block, shape.bytes);
        let blocks_per_sm = match place {
            Some(place) if due && shape.kind == SampleKind::Kernel => place.ask_blocks_per_sm(shape, ask),
            Some(place) => place.blocks_per_sm(shape),
            None => None,
        };
        self.blocks_per_sm = blocks_per_sm.unwrap_or(0);
        // What is moved is not learned from, so a guess that is too long would move it for good.
        let estimate_ns = if self.known { self.estimate_ns } else { shape.assumed_ns() };
        if work.can_move {
            self.moved = move_long(client, &seen, self.stream, estimate_ns, shape.blocks, blocks_per_sm);
        }
        let measured_in = self.moved.as_ref().map_or(self.stream, Moved::stream);
        self.measuring = due.then(|| client.samples.begin(&client.driver, seen.context, measured_in)).flatten();
    }

    fn finish(self, went_well: bool) {
        let Self { client, seen, .. } = self;
        let sms = self.moved.as_ref().map_or(0, |moved| moved.sms);
        if let Some(measuring) = &self.measuring {
            let measured_in = self.moved.as_ref().map_or(self.stream, Moved::stream);
            let sample = went_well.then(|| (self.shape, self.sample(sms)));
            client.samples.end(&client.driver, measuring, measured_in, sample);
        }
        let (stream, marks, estimate_ns, pieces) = (self.stream, self.marks, self.estimate_ns, self.pieces);
        let is_bare = self.is_bare;
        if let Some(moved) = self.moved {
            moved.end(&client.driver, stream);
        }
        let lane = &client.lanes[seen.lane];
        match seen.place {
            Some(place) if !is_bare => mark(client, &seen, place, stream, marks.then_some(pieces)),
            Some(_) => {}
            None => {
                let until = process::now_ns().saturating_add(estimate_ns);
                lane.blind_until_ns.fetch_max(until, Ordering::SeqCst);
            }
        }
        lane.finished.fetch_add(1, Ordering::SeqCst);
    }

    fn sample(&self, sms: u32) -> Sample {
        Sample {
            kind: self.shape.kind,
            lane: u8::try_from(self.seen.lane).unwrap_or(0),
            function: self.shape.function,
            blocks: self.shape.blocks,
            threads_per_block: self.shape.threads_per_block,
            position: self.position,
            took_ns: 0,
            estimated_ns: if self.known { self.estimate_ns } else { 0 },
            at_ns: process::now_ns(),
            sms,
            blocks_per_sm: self.blocks_per_sm,
        }
    }
}

/// Where a long kernel goes instead, if it is long and there is a part of the GPU for such. Blocks may wait for each other as long as all
/// of them run at once; so only a grid of which that cannot be is moved to where fewer do.
fn move_long(
    client: &'static Client,
    seen: &Seen,
    stream: u64,
    estimate_ns: u64,
    blocks: u32,
    blocks_per_sm: Option<u32>,
) -> Option<Moved<'static>> {
    let (lane, orders) = (&client.lanes[seen.lane], client.orders(seen.lane));
    let (long_ns, sms) = (orders.long_ns.load(Ordering::Relaxed), orders.long_sms.load(Ordering::Relaxed));
    if long_ns == 0 || sms == 0 || estimate_ns < long_ns.into() || !lane.divides.load(Ordering::Relaxed) {
        return None;
    }
    let at_once = u64::from(blocks_per_sm?) * u64::from(lane.sm_count.load(Ordering::Relaxed));
    if at_once == 0 || u64::from(blocks) <= at_once {
        return None;
    }
    let device = lane.device()?;
    // Events of another context do not order work in a green one.
    client.driver.is_in_primary(device).then_some(())?;
    let part = Part { sms, others: orders.long_part.load(Ordering::Relaxed) != 0 };
    Moved::begin(&lane.long, client, device, part, stream, seen.key)
}
