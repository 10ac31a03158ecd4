//! What the processes of a scenario do, as lists of steps.

use berth_proto::sim::{Direction, KernelCost, Request};

use crate::engine::{Rng, from_ms, nanos};
use crate::profile::Profile;

/// Edge of the square thread blocks.
const BLOCK_EDGE: u64 = 16;
const DEFAULT_STREAM: u64 = 0;

/// One process: on which device it works, when it is started, and what it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Program {
    pub device: u32,
    /// From the scenario's beginning; without meaning where processes start one after another.
    pub start_ns: u64,
    pub work: Work,
}

/// Everything computes square FP32 products, n × n, and keeps three matrices on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Two inputs, one product, one output.
    Product { n: u64 },
    /// Two inputs, `rounds` products with `gap_ns` on the host after each, one output.
    Training { n: u64, rounds: u32, gap_ns: u64 },
    /// `requests` times: one input, one product, one output, then on the host half to one and a half times `gap_ns`. Requests
    /// do not come like clockwork; when those of a process come follows from its start.
    Inference { n: u64, requests: u32, gap_ns: u64 },
    /// One product, then its memory is kept for `idle_ns` and nothing is computed.
    Notebook { n: u64, idle_ns: u64 },
    /// Two inputs, then on the host until `at_ns` from the scenario's beginning, one product, one output.
    Appointment { n: u64, at_ns: u64 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Not started yet.
    Arrival,
    /// Process start and filling the host arrays.
    Host,
    Context,
    Allocate,
    Input,
    /// Standing before a kernel: for the lock, where there is one, or because a manager stopped it there.
    Turn,
    Kernel,
    /// On the host, between kernels.
    Gap,
    Output,
    Free,
    Teardown,
}

/// What a process does next. Handles are filled in by the runner, which has them. `Until` is on the host too, for no time if
/// that is past.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Step {
    Host { ns: u64 },
    Until { at_ns: u64 },
    CreateContext { device: u32 },
    Allocate { bytes: u64 },
    Copy { direction: Direction, bytes: u64 },
    TakeTurn,
    Launch { cost: KernelCost },
    Synchronise,
    EndTurn,
    FreeLast,
    DestroyContext,
}

impl Program {
    pub fn product(n: u64) -> Program {
        Program::of(Work::Product { n })
    }

    /// On the first device, from the beginning.
    pub fn of(work: Work) -> Program {
        Program { device: 0, start_ns: 0, work }
    }

    pub fn matrix_bytes(&self) -> u64 {
        self.work.n().pow(2) * 4
    }

    pub fn kernel_cost(&self) -> KernelCost {
        let n = self.work.n() as f64;
        let edge = self.work.n().div_ceil(BLOCK_EDGE);
        KernelCost { flops: 2.0 * n * n * n, bytes: 3.0 * 4.0 * n * n, blocks: edge * edge }
    }

    /// Kernels it launches in all.
    pub fn kernels(&self) -> u32 {
        match self.work {
            Work::Product { .. } | Work::Notebook { .. } | Work::Appointment { .. } => 1,
            Work::Training { rounds, .. } => rounds,
            Work::Inference { requests, .. } => requests,
        }
    }

    pub(super) fn steps(&self, profile: &Profile, takes_turns: bool) -> Vec<(Phase, Step)> {
        let bytes = self.matrix_bytes();
        let host_ms = profile.host.process_start_ms + 2.0 * bytes as f64 / profile.host.init_gbps / 1e6;
        let mut steps = vec![
            (Phase::Host, Step::Host { ns: from_ms(host_ms) }),
            (Phase::Context, Step::CreateContext { device: self.device }),
        ];
        steps.extend([(Phase::Allocate, Step::Allocate { bytes }); 3]);
        steps.extend(self.computing(takes_turns));
        steps.extend([(Phase::Free, Step::FreeLast); 3]);
        steps.push((Phase::Teardown, Step::DestroyContext));
        steps
    }

    fn computing(&self, takes_turns: bool) -> Vec<(Phase, Step)> {
        let bytes = self.matrix_bytes();
        let input = [(Phase::Input, Step::Copy { direction: Direction::HostToDevice, bytes })];
        let output = [(Phase::Output, Step::Copy { direction: Direction::DeviceToHost, bytes })];
        let kernel = self.kernel(takes_turns);
        let gap = |ns| [(Phase::Gap, Step::Host { ns })];
        let inputs = [input, input].concat();
        match self.work {
            Work::Product { .. } => [&inputs, &kernel[..], &output].concat(),
            Work::Training { rounds, gap_ns, .. } => {
                let round = [&kernel[..], &gap(gap_ns)].concat();
                [&inputs, &round.repeat(rounds as usize)[..], &output].concat()
            }
            Work::Inference { requests, gap_ns, .. } => {
                let mut rng = Rng::new(self.start_ns);
                let request = |_| [&input, &kernel[..], &output, &gap(nanos(rng.spread(gap_ns as f64, 50.0)))].concat();
                (0..requests).flat_map(request).collect()
            }
            Work::Appointment { at_ns, .. } => {
                [&inputs[..], &[(Phase::Gap, Step::Until { at_ns })], &kernel, &output].concat()
            }
            Work::Notebook { idle_ns, .. } => [&inputs, &kernel[..], &output, &gap(idle_ns)].concat(),
        }
    }

    /// One kernel and the wait for it.
    fn kernel(&self, takes_turns: bool) -> Vec<(Phase, Step)> {
        let mut steps = Vec::from_iter(takes_turns.then_some((Phase::Turn, Step::TakeTurn)));
        steps.push((Phase::Kernel, Step::Launch { cost: self.kernel_cost() }));
        steps.push((Phase::Kernel, Step::Synchronise));
        steps.extend(takes_turns.then_some((Phase::Kernel, Step::EndTurn)));
        steps
    }
}

impl Work {
    /// Side of the matrices.
    pub fn n(self) -> u64 {
        match self {
            Work::Product { n } | Work::Training { n, .. } | Work::Inference { n, .. } => n,
            Work::Notebook { n, .. } | Work::Appointment { n, .. } => n,
        }
    }
}

impl Step {
    /// The call the step makes of the driver, if it makes one.
    pub(super) fn request(self, context: u64, last_pointer: u64) -> Option<Request> {
        let stream = DEFAULT_STREAM;
        match self {
            Step::Host { .. } | Step::Until { .. } | Step::TakeTurn | Step::EndTurn => None,
            Step::CreateContext { device } => Some(Request::ContextCreate { device }),
            Step::Allocate { bytes } => Some(Request::MemAlloc { context, bytes }),
            Step::Copy { direction, bytes } => Some(Request::Copy { context, stream, direction, bytes, wait: true }),
            Step::Launch { cost } => Some(Request::Launch { context, stream, cost }),
            Step::Synchronise => Some(Request::StreamSync { context, stream }),
            Step::FreeLast => Some(Request::MemFree { context, pointer: last_pointer }),
            Step::DestroyContext => Some(Request::ContextDestroy { context }),
        }
    }
}
