//! A context: its phase of life, its memory, its streams with their queues, and the calls that wait for them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::api::Ticket;
use super::graph::Graph;

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
    /// Streams whose head may go on: a context may have thousands that have nothing to do.
    active: BTreeSet<u64>,
    pub(super) events: BTreeMap<u64, Event>,
    pub(super) graphs: BTreeMap<u64, Graph>,
    pub(super) waiters: Vec<Waiter>,
    /// Kernels that have run to their end.
    pub(super) kernels_done: u64,
    /// A sticky error: every later call of the context answers it.
    pub(super) error: Option<u32>,
}

#[derive(Debug, Default)]
pub(super) struct Stream {
    pub(super) queue: VecDeque<Op>,
    /// The head of the queue is on the hardware, or in its process's hands.
    pub(super) running: bool,
    enqueued: u64,
    completed: u64,
    /// Destroyed by the program; goes when its work is done.
    pub(super) closing: bool,
    /// The lower goes first.
    pub(super) priority: i32,
    /// The SMs its kernels may run on, from and to, as parts of all; none for all.
    pub(super) sms: Option<(f64, f64)>,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Op {
    Kernel(Kernel),
    CopyIn {
        work_ns: f64,
    },
    CopyOut {
        work_ns: f64,
    },
    Record {
        event: u64,
    },
    Wait(Mark),
    /// Done by the process itself, which is told when the stream is there.
    Host {
        token: u64,
    },
}

/// A kernel's work alone, and what of the GPU it uses.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kernel {
    pub(super) work_ns: f64,
    /// Part of the SMs its blocks can fill.
    pub(super) demand: f64,
    /// Parts of its time on all SMs that memory accesses and arithmetic take; one of them is 1.
    pub(super) memory_part: f64,
    pub(super) compute_part: f64,
    /// How long a wave of its blocks takes.
    pub(super) wave_ns: f64,
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

impl Stream {
    pub(super) fn with(priority: i32, sms: Option<(f64, f64)>) -> Stream {
        Stream { priority, sms, ..Stream::default() }
    }
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
            active: BTreeSet::new(),
            events: BTreeMap::new(),
            graphs: BTreeMap::new(),
            waiters: Vec::new(),
            kernels_done: 0,
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
        self.active.insert(stream);
        Some(Mark { stream, count: queue.enqueued })
    }

    /// Takes no more work, and goes when what it has is done. `false` if there is no such stream to close.
    pub(super) fn close(&mut self, stream: u64) -> bool {
        let Some(known) = self.streams.get_mut(&stream).filter(|known| !known.closing) else { return false };
        known.closing = true;
        self.active.insert(stream);
        true
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
        self.active.insert(stream);
        let done = Mark { stream, count: queue.completed };
        match queue.queue.pop_front() {
            Some(Op::Kernel(_)) => self.kernels_done += 1,
            Some(Op::Record { event }) => {
                if let Some(event) = self.events.get_mut(&event).filter(|event| event.mark == Some(done)) {
                    event.at = Some(now);
                }
            }
            _ => {}
        }
    }

    /// Whether the stream stands at this host work.
    pub(super) fn stands_at(&self, stream: u64, token: u64) -> bool {
        let stream = self.streams.get(&stream).filter(|stream| stream.running);
        stream.is_some_and(|stream| matches!(stream.queue.front(), Some(Op::Host { token: head }) if *head == token))
    }

    /// Passes over what takes no time (records, waits that are over) and returns the operations to begin.
    pub(super) fn next_ops(&mut self, now: u64) -> Vec<(u64, Op)> {
        let mut submit = Vec::new();
        let mut progressed = true;
        while progressed {
            progressed = false;
            let active: Vec<u64> = self.active.iter().copied().collect();
            for id in active {
                match self.head(id) {
                    Some(op @ (Op::Kernel(_) | Op::CopyIn { .. } | Op::CopyOut { .. } | Op::Host { .. })) => {
                        self.begin_head(id);
                        submit.push((id, op));
                    }
                    Some(Op::Wait(mark)) if !self.is_passed(mark) => {}
                    Some(Op::Record { .. } | Op::Wait(_)) => {
                        self.complete_head(id, now);
                        progressed = true;
                    }
                    None => self.rest(id),
                }
            }
        }
        submit
    }

    fn head(&self, stream: u64) -> Option<Op> {
        self.streams.get(&stream).filter(|stream| !stream.running)?.queue.front().copied()
    }

    fn begin_head(&mut self, id: u64) {
        self.active.remove(&id);
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.running = true;
        }
    }

    /// The stream has nothing to begin; one that is closed goes.
    fn rest(&mut self, id: u64) {
        self.active.remove(&id);
        if self.streams.get(&id).is_some_and(|stream| stream.closing && stream.queue.is_empty()) {
            self.streams.remove(&id);
        }
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
