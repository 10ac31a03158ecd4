//! The driver's calls on another process as plain functions, so that tests can put a driver of their own in its place.

use std::fmt;

/// What the driver offers. Every call may block: a lock until the process has finished its work, moving memory for
/// seconds, and any of them for ever where the driver waits for a thread of the process that stands still.
pub trait Api: fmt::Debug + Send + Sync {
    /// `cuInit(0)`; again is cheap. 0 is success, here as in every code.
    fn init(&self) -> u32;
    /// `CUprocessState`, or the code of the refusal.
    fn state(&self, pid: i32) -> Result<u32, u32>;
    /// 0 milliseconds wait for ever.
    fn lock(&self, pid: i32, timeout_ms: u32) -> u32;
    fn checkpoint(&self, pid: i32) -> u32;
    fn restore(&self, pid: i32) -> u32;
    fn unlock(&self, pid: i32) -> u32;
    /// `CUDA_ERROR_…`; `None` for a code this driver does not have.
    fn name(&self, code: u32) -> Option<String>;
}

/// The codes that mean something here.
pub mod code {
    pub const INVALID_VALUE: u32 = 1;
    pub const OUT_OF_MEMORY: u32 = 2;
    pub const ILLEGAL_STATE: u32 = 401;
    /// What the driver's manual has a lock answer that could not be taken in time.
    pub const NOT_READY: u32 = 600;
    pub const NOT_PERMITTED: u32 = 800;
    pub const NOT_SUPPORTED: u32 = 801;
    pub const TIMEOUT: u32 = 909;
}

/// Where the driver has a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Running,
    /// Its driver calls wait, nothing of it runs.
    Locked,
    /// Its GPU memory is in host memory; locked too.
    Checkpointed,
    /// Moving its memory failed for good.
    Failed,
    /// On the way to or from `Checkpointed`, as newer drivers tell, or something newer still.
    Moving(u32),
}

impl State {
    /// From `CUprocessState`.
    pub fn new(value: u32) -> State {
        match value {
            0 => State::Running,
            1 => State::Locked,
            2 => State::Checkpointed,
            3 => State::Failed,
            other => State::Moving(other),
        }
    }
}

/// A code with the driver's name for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Code {
    pub number: u32,
    pub name: Option<String>,
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{name} ({})", self.number),
            None => write!(f, "CUDA error {}", self.number),
        }
    }
}
