//! What a simulated driver asks of the simulated GPU, and what it answers.
//!
//! The same two enums are the interface of the pure engine (`berth-sim`), of the server that owns one in real time,
//! and of the thin `libcuda.so.1` that talks to that server. Nothing here has a clock or a socket.
//!
//! A *process* is known by its host pid. Contexts, pointers, streams and events are opaque 64-bit handles given out by
//! the engine; stream 0 is the context's default stream. Work in one stream runs in order.

/// Version of this vocabulary on the wire; a server refuses another one by name.
pub const VERSION: u32 = 5;

/// `CUresult` values the simulated GPU answers with. Plain integers: an unknown value must not be undefined behaviour.
pub mod cu {
    pub const SUCCESS: u32 = 0;
    pub const INVALID_VALUE: u32 = 1;
    pub const OUT_OF_MEMORY: u32 = 2;
    pub const NOT_INITIALIZED: u32 = 3;
    pub const NO_DEVICE: u32 = 100;
    pub const INVALID_DEVICE: u32 = 101;
    pub const INVALID_CONTEXT: u32 = 201;
    pub const INVALID_HANDLE: u32 = 400;
    pub const ILLEGAL_STATE: u32 = 401;
    pub const NOT_READY: u32 = 600;
    pub const LAUNCH_FAILED: u32 = 719;
    pub const NOT_PERMITTED: u32 = 800;
    pub const NOT_SUPPORTED: u32 = 801;
    pub const SYSTEM_NOT_READY: u32 = 802;
    /// A locked process: its calls wait; a lock that runs out of time answers this.
    pub const TIMEOUT: u32 = 909;
    pub const UNKNOWN: u32 = 999;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    HostToDevice,
    DeviceToHost,
    DeviceToDevice,
}

/// What a kernel costs: the documented convention turned into numbers by whoever launches it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KernelCost {
    /// Arithmetic operations of the whole grid.
    pub flops: f64,
    /// Bytes of device memory moved by the whole grid.
    pub bytes: f64,
    /// Thread blocks in the grid: fewer than the SMs can hold leave room for others of the same process.
    pub blocks: u64,
}

/// A row of SMs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sms {
    pub first: u32,
    /// 0 for all there are.
    pub count: u32,
}

impl Sms {
    pub const ALL: Sms = Sms { first: 0, count: 0 };
}

/// One step of a graph. Steps of a track run in their order, tracks side by side.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum GraphWork {
    Kernel(KernelCost),
    Copy {
        direction: Direction,
        bytes: u64,
    },
    /// Waits until so many steps of another track are done.
    After {
        track: u32,
        steps: u32,
    },
}

/// The driver's process-checkpoint calls, on another process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckpointOp {
    GetState,
    /// Refuse new work and answer when the queue has drained, or `cu::TIMEOUT`. 0 waits for ever.
    Lock {
        timeout_ms: u32,
    },
    Checkpoint,
    Restore,
    Unlock,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Request {
    /// Opens the devices for the process; answered when they are there. Who makes a context without it opens its device then.
    Init,
    /// Devices and limits; answered at once with [`Reply::Count`].
    DeviceCount,
    Device {
        device: u32,
    },
    /// Answered when the context is ready ([`Reply::Handle`]).
    ContextCreate {
        device: u32,
    },
    /// Answered when everything it held is gone.
    ContextDestroy {
        context: u64,
    },
    MemAlloc {
        context: u64,
        bytes: u64,
    },
    MemFree {
        context: u64,
        pointer: u64,
    },
    MemInfo {
        context: u64,
    },
    StreamCreate {
        context: u64,
    },
    /// A stream whose kernels go before those of a higher number, and only to some SMs.
    StreamCreateWith {
        context: u64,
        priority: i32,
        sms: Sms,
    },
    /// What the process's environment says of it as a client of MPS; without MPS it means nothing.
    MpsClient {
        /// The most of the SMs its kernels have at a time.
        percentage: u32,
        /// Its kernels go before those of clients with a higher number.
        priority: u32,
    },
    StreamDestroy {
        context: u64,
        stream: u64,
    },
    EventCreate {
        context: u64,
    },
    EventDestroy {
        context: u64,
        event: u64,
    },
    /// Queued on the stream; with `wait`, answered when the copy is done (and everything before it).
    Copy {
        context: u64,
        stream: u64,
        direction: Direction,
        bytes: u64,
        wait: bool,
    },
    /// Queued on the stream; never waits. An error is sticky and comes back from the next waiting call.
    Launch {
        context: u64,
        stream: u64,
        cost: KernelCost,
    },
    EventRecord {
        context: u64,
        stream: u64,
        event: u64,
    },
    /// The stream waits for the event.
    StreamWait {
        context: u64,
        stream: u64,
        event: u64,
    },
    /// Answered when the stream is empty.
    StreamSync {
        context: u64,
        stream: u64,
    },
    /// `cu::SUCCESS` or `cu::NOT_READY`, at once.
    StreamQuery {
        context: u64,
        stream: u64,
    },
    ContextSync {
        context: u64,
    },
    EventSync {
        context: u64,
        event: u64,
    },
    EventQuery {
        context: u64,
        event: u64,
    },
    /// Answered with [`Reply::Nanos`].
    EventElapsed {
        context: u64,
        start: u64,
        end: u64,
    },
    Checkpoint {
        pid: u32,
        op: CheckpointOp,
    },
    /// Queued on the stream, which stands still at it until the client's side has done it: what the GPU does to words of host memory,
    /// which only the client can reach. `token` is the client's own name for it, never given twice.
    HostWork {
        context: u64,
        stream: u64,
        token: u64,
    },
    /// Answered with the token of the next host work of this process that a stream has reached, in the order they are reached.
    HostWorkNext,
    /// An empty graph of so many tracks, to be filled by [`Request::GraphAdd`]. Answered with its handle.
    GraphCreate {
        context: u64,
        tracks: u32,
    },
    /// The next step of a track.
    GraphAdd {
        context: u64,
        graph: u64,
        track: u32,
        work: GraphWork,
    },
    /// Queued on the stream as one piece: begins when the stream comes to it, and the stream goes on when all tracks are done. Launches
    /// of one graph do not overlap.
    GraphLaunch {
        context: u64,
        stream: u64,
        graph: u64,
    },
    /// What is launched still runs.
    GraphDestroy {
        context: u64,
        graph: u64,
    },
    /// The host work at the head of the stream is done: the stream goes on.
    HostWorkDone {
        context: u64,
        stream: u64,
        token: u64,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    Done,
    Error(u32),
    Count(u32),
    Handle(u64),
    Memory {
        free: u64,
        total: u64,
    },
    Nanos(u64),
    /// 0 running, 1 locked, 2 checkpointed, 3 failed, as in `CUprocessState`.
    ProcessState(u32),
    Device(Box<Device>),
}

/// What a program may ask about a simulated device.
#[derive(Debug, Clone, PartialEq)]
pub struct Device {
    pub name: String,
    pub uuid: [u8; 16],
    pub total_memory: u64,
    pub sm_count: u32,
    pub compute_capability: (u32, u32),
    pub max_threads_per_sm: u32,
    /// Processes share it through MPS.
    pub has_mps: bool,
}
