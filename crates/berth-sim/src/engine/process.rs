//! A process as the driver knows it: may its calls go on, and what is another process doing to it.

use std::collections::VecDeque;

use berth_proto::sim::Request;

use super::api::Ticket;

#[derive(Debug, Default)]
pub(super) struct Process {
    pub(super) state: State,
    /// It has opened the devices.
    pub(super) has_opened: bool,
    pub(super) operation: Option<Operation>,
    /// Calls that wait for the process to be unlocked, in order.
    pub(super) held: VecDeque<(Ticket, Request)>,
    /// Host work that streams have reached and the process has not been told of, in order.
    pub(super) reached: VecDeque<u64>,
    /// Its call that waits to be told.
    pub(super) listening: Option<Ticket>,
    /// As a client of MPS: its priority, the lower going first, and the most of the SMs it may have.
    pub(super) mps_priority: u32,
    pub(super) mps_percentage: Option<u32>,
    /// Its kernel is to fail.
    pub(super) faulty: bool,
}

/// As `CUprocessState`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum State {
    #[default]
    Running = 0,
    Locked = 1,
    Checkpointed = 2,
    Failed = 3,
}

/// A checkpoint call under way; there is at most one for a process.
#[derive(Debug, Clone, Copy)]
pub(super) struct Operation {
    pub(super) id: u64,
    pub(super) kind: OperationKind,
    /// Who asked, until it exits.
    pub(super) asker: Option<(u32, Ticket)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OperationKind {
    /// Locking, while something is still queued, running or being created.
    Drain,
    /// Locking, with nothing left to wait for.
    Lock,
    Save,
    Restore,
    Unlock,
}

impl Process {
    /// Whether the call has to wait for an unlock. Asking about devices, or acting on another process, does not, nor does host
    /// work: it is in a stream that a lock waits for. The calls of a failed process go on, to fail.
    pub(super) fn holds(&self, request: &Request) -> bool {
        let free = matches!(
            request,
            Request::DeviceCount
                | Request::Device { .. }
                | Request::Checkpoint { .. }
                | Request::HostWorkNext
                | Request::HostWorkDone { .. }
        );
        let goes_on = matches!(self.state, State::Running | State::Failed) && self.operation.is_none();
        !free && !goes_on
    }
}
