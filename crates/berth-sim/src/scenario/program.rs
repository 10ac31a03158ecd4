//! The matrix product as a list of steps.

use berth_proto::sim::{Direction, KernelCost, Request};

use crate::engine::from_ms;
use crate::profile::Profile;

/// Edge of the square thread blocks.
const BLOCK_EDGE: u64 = 16;
const DEFAULT_STREAM: u64 = 0;

/// An n × n FP32 product on one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Program {
    pub n: u64,
    pub device: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Process start and filling the host arrays.
    Host,
    Context,
    Allocate,
    Input,
    /// Waiting for the lock, where there is one.
    Turn,
    Kernel,
    Output,
    Free,
    Teardown,
}

/// What a process does next. Handles are filled in by the runner, which has them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Step {
    Host { ns: u64 },
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
    pub fn matrix_bytes(&self) -> u64 {
        self.n * self.n * 4
    }

    pub fn kernel_cost(&self) -> KernelCost {
        let n = self.n as f64;
        let edge = self.n.div_ceil(BLOCK_EDGE);
        KernelCost { flops: 2.0 * n * n * n, bytes: 3.0 * 4.0 * n * n, blocks: edge * edge }
    }

    pub(super) fn steps(&self, profile: &Profile, takes_turns: bool) -> Vec<(Phase, Step)> {
        let bytes = self.matrix_bytes();
        let host_ms = profile.host.process_start_ms + 2.0 * bytes as f64 / profile.host.init_gbps / 1e6;
        let input = (Phase::Input, Step::Copy { direction: Direction::HostToDevice, bytes });
        let mut steps = vec![
            (Phase::Host, Step::Host { ns: from_ms(host_ms) }),
            (Phase::Context, Step::CreateContext { device: self.device }),
        ];
        steps.extend([(Phase::Allocate, Step::Allocate { bytes }); 3]);
        steps.extend([input; 2]);
        steps.extend(takes_turns.then_some((Phase::Turn, Step::TakeTurn)));
        steps.push((Phase::Kernel, Step::Launch { cost: self.kernel_cost() }));
        steps.push((Phase::Kernel, Step::Synchronise));
        steps.extend(takes_turns.then_some((Phase::Kernel, Step::EndTurn)));
        steps.push((Phase::Output, Step::Copy { direction: Direction::DeviceToHost, bytes }));
        steps.extend([(Phase::Free, Step::FreeLast); 3]);
        steps.push((Phase::Teardown, Step::DestroyContext));
        steps
    }
}

impl Step {
    /// The call the step makes of the driver, if it makes one.
    pub(super) fn request(self, context: u64, last_pointer: u64) -> Option<Request> {
        let stream = DEFAULT_STREAM;
        match self {
            Step::Host { .. } | Step::TakeTurn | Step::EndTurn => None,
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
