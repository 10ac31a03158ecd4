//! A context: its phase of life, its memory, its streams with their queues, and the calls that wait for them.

use std::collections::{BTreeMap, VecDeque};

use super::api::Ticket;

/// Device memory is given to a context in pieces this large.
const PAGE: u64 = 2 << 20;
/// Alignment of one allocation.
const ALIGN: u64 = 512;

/// The stream every context has.
pub(super) const DEFAULT_STREAM: u64 = 0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Before NVML lists it.
    Opening(Ticket),
    /// The driver works on it, by turns with others.
    Creating(Ticket),
    /// After that, not ready yet.
    Finishing(Ticket),
    Ready,
    /// To be torn down when its work is done; takes no more calls.
    Closing,
    /// Being torn down; the ticket is that of the call that destroys it, none when its process is gone.
    Dying(Option<Ticket>),
}

#[derive(Debug)]
pub(super) struct Context {
    pub(super) pid: u32,
    pub(super) gpu: usize,
    pub(super) phase: Phase,
    /// What the GPU's memory account holds for this context now: nothing before it is listed and while checkpointed.
    pub(super) charged: u64,
    pub(super) allocations: BTreeMap<u64, u64>,
    allocated: u64,
    pub(super) streams: BTreeMap<u64, Stream>,
    pub(super) events: BTreeMap<u64, Event>,
    pub(super) waiters: Vec<Waiter>,
    /// A sticky error: every later call of the context answers it.
    pub(super) error: Option<u32>,
}

#[derive(Debug, Default)]
pub(super) struct Stream {
    pub(super) queue: VecDeque<Op>,
    /// The head of the queue is on the hardware.
    pub(super) running: bool,
    enqueued: u64,
    completed: u64,
    /// Destroyed by the program; goes when its work is done.
    pub(super) closing: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Op {
    Kernel { work_ns: f64, demand: f64, memory_part: f64 },
    CopyIn { work_ns: f64 },
    CopyOut { work_ns: f64 },
    Record { event: u64 },
    Wait(Mark),
}

/// A point in a stream: passed once that many operations of it are complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    stream: u64,
    count: u64,
}

#[derive(Debug, Default)]
pub(super) struct Event {
    /// The latest record; none before the first.
    pub(super) mark: Option<Mark>,
    /// When the latest record was reached.
    pub(super) at: Option<u64>,
}

/// A call that is answered when all of `marks` are passed.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) ticket: Ticket,
    marks: Vec<Mark>,
    pub(super) then: Then,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    Answer,
    Free { pointer: u64 },
    Destroy,
}

impl Context {
    pub(super) fn new(pid: u32, gpu: usize, ticket: Ticket) -> Context {
        Context {
            pid,
            gpu,
            phase: Phase::Opening(ticket),
            charged: 0,
            allocations: BTreeMap::new(),
            allocated: 0,
            streams: BTreeMap::from([(DEFAULT_STREAM, Stream::default())]),
            events: BTreeMap::new(),
            waiters: Vec::new(),
            error: None,
        }
    }

    /// Device memory its allocations take with `more` bytes on top, whole pages; `None` when that is no number.
    pub(super) fn pages_with(&self, more: u64) -> Option<u64> {
        self.allocated.checked_add(more.checked_next_multiple_of(ALIGN)?)?.checked_next_multiple_of(PAGE)
    }

    pub(super) fn add_allocation(&mut self, pointer: u64, bytes: u64) {
        self.allocations.insert(pointer, bytes);
        self.allocated += bytes.next_multiple_of(ALIGN);
    }

    pub(super) fn remove_allocation(&mut self, pointer: u64) -> bool {
        let Some(bytes) = self.allocations.remove(&pointer) else { return false };
        self.allocated -= bytes.next_multiple_of(ALIGN);
        true
    }

    /// Appends to a stream that exists; the mark is passed when the operation is complete.
    pub(super) fn enqueue(&mut self, stream: u64, op: Op) -> Option<Mark> {
        let queue = self.streams.get_mut(&stream).filter(|stream| !stream.closing)?;
        queue.queue.push_back(op);
        queue.enqueued += 1;
        Some(Mark { stream, count: queue.enqueued })
    }

    /// The mark that is passed when all work now in `stream` is done.
    pub(super) fn end_of(&self, stream: u64) -> Option<Mark> {
        let queue = self.streams.get(&stream).filter(|stream| !stream.closing)?;
        Some(Mark { stream, count: queue.enqueued })
    }

    pub(super) fn ends(&self) -> Vec<Mark> {
        self.streams.iter().map(|(stream, queue)| Mark { stream: *stream, count: queue.enqueued }).collect()
    }

    pub(super) fn is_passed(&self, mark: Mark) -> bool {
        self.streams.get(&mark.stream).is_none_or(|stream| stream.completed >= mark.count)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.streams.values().all(|stream| stream.queue.is_empty())
    }

    pub(super) fn wait(&mut self, ticket: Ticket, marks: Vec<Mark>, then: Then) {
        self.waiters.push(Waiter { ticket, marks, then });
    }

    /// Takes the head of `stream` off its queue as done at `now`.
    pub(super) fn complete_head(&mut self, stream: u64, now: u64) {
        let Some(queue) = self.streams.get_mut(&stream) else { return };
        queue.running = false;
        queue.completed += 1;
        let done = Mark { stream, count: queue.completed };
        if let Some(Op::Record { event }) = queue.queue.pop_front()
            && let Some(event) = self.events.get_mut(&event)
            && event.mark == Some(done)
        {
            event.at = Some(now);
        }
    }

    /// Passes over what needs no hardware (records, waits that are over) and returns the operations to submit.
    pub(super) fn next_ops(&mut self, now: u64) -> Vec<(u64, Op)> {
        let mut submit = Vec::new();
        let ids: Vec<u64> = self.streams.keys().copied().collect();
        let mut progressed = true;
        while progressed {
            progressed = false;
            for id in &ids {
                let Some(stream) = self.streams.get_mut(id).filter(|stream| !stream.running) else { continue };
                match stream.queue.front().copied() {
                    Some(op @ (Op::Kernel { .. } | Op::CopyIn { .. } | Op::CopyOut { .. })) => {
                        stream.running = true;
                        submit.push((*id, op));
                    }
                    Some(Op::Wait(mark)) if !self.is_passed(mark) => {}
                    Some(Op::Record { .. } | Op::Wait(_)) => {
                        self.complete_head(*id, now);
                        progressed = true;
                    }
                    None => {}
                }
            }
        }
        self.streams.retain(|_, stream| !(stream.closing && stream.queue.is_empty()));
        submit
    }

    /// Takes out the calls whose wait is over.
    pub(super) fn take_ready_waiters(&mut self) -> Vec<Waiter> {
        let waiters = std::mem::take(&mut self.waiters);
        let (ready, waiting) =
            waiters.into_iter().partition(|waiter| waiter.marks.iter().all(|mark| self.is_passed(*mark)));
        self.waiters = waiting;
        ready
    }

    /// The context is broken: nothing queued will run, every later call answers `code`.
    pub(super) fn break_with(&mut self, code: u32) -> Vec<Waiter> {
        self.error = Some(code);
        for stream in self.streams.values_mut() {
            stream.completed = stream.enqueued;
            stream.running = false;
            stream.queue.clear();
        }
        std::mem::take(&mut self.waiters)
    }
}
