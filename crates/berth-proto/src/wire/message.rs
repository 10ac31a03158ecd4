//! Each message's own bytes: which tag is which variant, and the order of the fields.

use super::{Message, Reader, WireError, Writer};
use crate::sim::{CheckpointOp, Device, Direction, GraphWork, KernelCost, Reply, Request, Sms, VERSION};

/// First bytes of a conversation, so that a stray program is told apart from another version.
const MAGIC: [u8; 8] = *b"berthsim";

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Carries the process's life: when it closes (exit, exec), the process has left the GPU.
    Process,
    /// Carries one thread's calls, so that a thread that waits does not make the others wait.
    Thread,
}

/// A client's first message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    pub version: u32,
    pub role: Role,
}

impl Hello {
    pub fn new(role: Role) -> Self {
        Self { version: VERSION, role }
    }
}

impl Message for Hello {
    fn write(&self, out: &mut Writer<'_>) -> Result<(), WireError> {
        out.bytes(&MAGIC);
        out.u32(self.version);
        out.u8(match self.role {
            Role::Process => 0,
            Role::Thread => 1,
        });
        Ok(())
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, WireError> {
        if from.array()? != MAGIC {
            return Err(WireError::NotOurs);
        }
        // The version comes before everything else that could have changed with it.
        let version = from.u32()?;
        if version != VERSION {
            return Err(WireError::Version { theirs: version });
        }
        let role = match from.u8()? {
            0 => Role::Process,
            1 => Role::Thread,
            tag => return Err(WireError::UnknownTag { what: "role", tag }),
        };
        Ok(Self { version, role })
    }
}

/// The server's first message: its version, sent to everybody, and kept talking only to its equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Welcome {
    pub version: u32,
}

impl Message for Welcome {
    fn write(&self, out: &mut Writer<'_>) -> Result<(), WireError> {
        out.bytes(&MAGIC);
        out.u32(self.version);
        Ok(())
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, WireError> {
        if from.array()? != MAGIC {
            return Err(WireError::NotOurs);
        }
        match from.u32()? {
            VERSION => Ok(Self { version: VERSION }),
            theirs => Err(WireError::Version { theirs }),
        }
    }
}

/// A request, and whether its sender waits for the answer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Call {
    /// Without an answer an error is kept and comes back from this connection's next call that has one.
    pub wants_reply: bool,
    pub request: Request,
}

impl Message for Call {
    fn write(&self, out: &mut Writer<'_>) -> Result<(), WireError> {
        out.flag(self.wants_reply);
        self.request.write(out)
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self { wants_reply: from.flag()?, request: Request::read(from)? })
    }
}

impl Message for Request {
    fn write(&self, out: &mut Writer<'_>) -> Result<(), WireError> {
        match *self {
            Request::DeviceCount => out.u8(0),
            Request::Device { device } => {
                out.u8(1);
                out.u32(device);
            }
            Request::ContextCreate { device } => {
                out.u8(2);
                out.u32(device);
            }
            Request::ContextDestroy { context } => words(out, 3, [context]),
            Request::MemAlloc { context, bytes } => words(out, 4, [context, bytes]),
            Request::MemFree { context, pointer } => words(out, 5, [context, pointer]),
            Request::MemInfo { context } => words(out, 6, [context]),
            Request::StreamCreate { context } => words(out, 7, [context]),
            Request::StreamDestroy { context, stream } => words(out, 8, [context, stream]),
            Request::EventCreate { context } => words(out, 9, [context]),
            Request::EventDestroy { context, event } => words(out, 10, [context, event]),
            Request::Copy { context, stream, direction, bytes, wait } => {
                words(out, 11, [context, stream, bytes]);
                out.u8(direction_tag(direction));
                out.flag(wait);
            }
            Request::Launch { context, stream, cost } => {
                words(out, 12, [context, stream, cost.blocks]);
                out.f64(cost.flops);
                out.f64(cost.bytes);
            }
            Request::EventRecord { context, stream, event } => words(out, 13, [context, stream, event]),
            Request::StreamWait { context, stream, event } => words(out, 14, [context, stream, event]),
            Request::StreamSync { context, stream } => words(out, 15, [context, stream]),
            Request::StreamQuery { context, stream } => words(out, 16, [context, stream]),
            Request::ContextSync { context } => words(out, 17, [context]),
            Request::EventSync { context, event } => words(out, 18, [context, event]),
            Request::EventQuery { context, event } => words(out, 19, [context, event]),
            Request::EventElapsed { context, start, end } => words(out, 20, [context, start, end]),
            Request::Init => out.u8(22),
            Request::HostWork { context, stream, token } => words(out, 23, [context, stream, token]),
            Request::HostWorkNext => out.u8(24),
            Request::HostWorkDone { context, stream, token } => words(out, 25, [context, stream, token]),
            Request::GraphCreate { context, tracks } => {
                words(out, 26, [context]);
                out.u32(tracks);
            }
            Request::GraphAdd { context, graph, track, work } => {
                words(out, 27, [context, graph]);
                out.u32(track);
                write_graph_work(out, work);
            }
            Request::GraphLaunch { context, stream, graph } => words(out, 28, [context, stream, graph]),
            Request::GraphDestroy { context, graph } => words(out, 29, [context, graph]),
            Request::StreamCreateWith { context, priority, sms } => {
                words(out, 30, [context]);
                out.u32(priority.cast_unsigned());
                out.u32(sms.first);
                out.u32(sms.count);
            }
            Request::MpsClient { percentage, priority } => {
                out.u8(31);
                out.u32(percentage);
                out.u32(priority);
            }
            Request::Checkpoint { pid, op } => {
                out.u8(21);
                out.u32(pid);
                write_checkpoint(out, op);
            }
        }
        Ok(())
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, WireError> {
        let tag = from.u8()?;
        match tag {
            0 => Ok(Request::DeviceCount),
            1 => from.u32().map(|device| Request::Device { device }),
            2 => from.u32().map(|device| Request::ContextCreate { device }),
            3..=10 | 15..=20 | 29 => read_handles(tag, from),
            11..=14 | 23 | 25 | 28 => read_queued(tag, from),
            22 => Ok(Request::Init),
            24 => Ok(Request::HostWorkNext),
            26 => Ok(Request::GraphCreate { context: from.u64()?, tracks: from.u32()? }),
            27 => Ok(Request::GraphAdd {
                context: from.u64()?,
                graph: from.u64()?,
                track: from.u32()?,
                work: read_graph_work(from)?,
            }),
            21 => Ok(Request::Checkpoint { pid: from.u32()?, op: read_checkpoint(from)? }),
            30 => Ok(Request::StreamCreateWith {
                context: from.u64()?,
                priority: from.u32()?.cast_signed(),
                sms: Sms { first: from.u32()?, count: from.u32()? },
            }),
            31 => Ok(Request::MpsClient { percentage: from.u32()?, priority: from.u32()? }),
            tag => Err(WireError::UnknownTag { what: "request", tag }),
        }
    }
}

fn words<const N: usize>(out: &mut Writer<'_>, tag: u8, values: [u64; N]) {
    out.u8(tag);
    for value in values {
        out.u64(value);
    }
}

/// Requests that are a context and at most two more handles.
fn read_handles(tag: u8, from: &mut Reader<'_>) -> Result<Request, WireError> {
    let context = from.u64()?;
    Ok(match tag {
        3 => Request::ContextDestroy { context },
        4 => Request::MemAlloc { context, bytes: from.u64()? },
        5 => Request::MemFree { context, pointer: from.u64()? },
        6 => Request::MemInfo { context },
        7 => Request::StreamCreate { context },
        8 => Request::StreamDestroy { context, stream: from.u64()? },
        9 => Request::EventCreate { context },
        10 => Request::EventDestroy { context, event: from.u64()? },
        15 => Request::StreamSync { context, stream: from.u64()? },
        16 => Request::StreamQuery { context, stream: from.u64()? },
        17 => Request::ContextSync { context },
        18 => Request::EventSync { context, event: from.u64()? },
        19 => Request::EventQuery { context, event: from.u64()? },
        20 => Request::EventElapsed { context, start: from.u64()?, end: from.u64()? },
        29 => Request::GraphDestroy { context, graph: from.u64()? },
        tag => {
            return Err(WireError::UnknownTag { what: "request", tag });
        }
    })
}

/// Requests about something in a stream.
fn read_queued(tag: u8, from: &mut Reader<'_>) -> Result<Request, WireError> {
    let (context, stream, third) = (from.u64()?, from.u64()?, from.u64()?);
    Ok(match tag {
        11 => Request::Copy { context, stream, bytes: third, direction: read_direction(from)?, wait: from.flag()? },
        12 => Request::Launch {
            context,
            stream,
            cost: KernelCost { blocks: third, flops: from.f64()?, bytes: from.f64()? },
        },
        13 => Request::EventRecord { context, stream, event: third },
        23 => Request::HostWork { context, stream, token: third },
        25 => Request::HostWorkDone { context, stream, token: third },
        28 => Request::GraphLaunch { context, stream, graph: third },
        _ => Request::StreamWait { context, stream, event: third },
    })
}

fn write_graph_work(out: &mut Writer<'_>, work: GraphWork) {
    match work {
        GraphWork::Kernel(cost) => {
            words(out, 0, [cost.blocks]);
            out.f64(cost.flops);
            out.f64(cost.bytes);
        }
        GraphWork::Copy { direction, bytes } => {
            words(out, 1, [bytes]);
            out.u8(direction_tag(direction));
        }
        GraphWork::After { track, steps } => {
            out.u8(2);
            out.u32(track);
            out.u32(steps);
        }
    }
}

fn read_graph_work(from: &mut Reader<'_>) -> Result<GraphWork, WireError> {
    match from.u8()? {
        0 => {
            let (blocks, flops, bytes) = (from.u64()?, from.f64()?, from.f64()?);
            Ok(GraphWork::Kernel(KernelCost { flops, bytes, blocks }))
        }
        1 => Ok(GraphWork::Copy { bytes: from.u64()?, direction: read_direction(from)? }),
        2 => Ok(GraphWork::After { track: from.u32()?, steps: from.u32()? }),
        tag => Err(WireError::UnknownTag { what: "graph work", tag }),
    }
}

fn direction_tag(direction: Direction) -> u8 {
    match direction {
        Direction::HostToDevice => 0,
        Direction::DeviceToHost => 1,
        Direction::DeviceToDevice => 2,
    }
}

fn read_direction(from: &mut Reader<'_>) -> Result<Direction, WireError> {
    match from.u8()? {
        0 => Ok(Direction::HostToDevice),
        1 => Ok(Direction::DeviceToHost),
        2 => Ok(Direction::DeviceToDevice),
        tag => Err(WireError::UnknownTag { what: "direction", tag }),
    }
}

fn write_checkpoint(out: &mut Writer<'_>, op: CheckpointOp) {
    match op {
        CheckpointOp::GetState => out.u8(0),
        CheckpointOp::Lock { timeout_ms } => {
            out.u8(1);
            out.u32(timeout_ms);
        }
        CheckpointOp::Checkpoint => out.u8(2),
        CheckpointOp::Restore => out.u8(3),
        CheckpointOp::Unlock => out.u8(4),
    }
}

fn read_checkpoint(from: &mut Reader<'_>) -> Result<CheckpointOp, WireError> {
    match from.u8()? {
        0 => Ok(CheckpointOp::GetState),
        1 => from.u32().map(|timeout_ms| CheckpointOp::Lock { timeout_ms }),
        2 => Ok(CheckpointOp::Checkpoint),
        3 => Ok(CheckpointOp::Restore),
        4 => Ok(CheckpointOp::Unlock),
        tag => Err(WireError::UnknownTag { what: "checkpoint", tag }),
    }
}

impl Message for Reply {
    fn write(&self, out: &mut Writer<'_>) -> Result<(), WireError> {
        match self {
            Reply::Done => out.u8(0),
            Reply::Error(code) => {
                out.u8(1);
                out.u32(*code);
            }
            Reply::Count(count) => {
                out.u8(2);
                out.u32(*count);
            }
            Reply::Handle(handle) => words(out, 3, [*handle]),
            Reply::Memory { free, total } => words(out, 4, [*free, *total]),
            Reply::Nanos(nanos) => words(out, 5, [*nanos]),
            Reply::ProcessState(state) => {
                out.u8(6);
                out.u32(*state);
            }
            Reply::Device(device) => {
                out.u8(7);
                write_device(out, device)?;
            }
        }
        Ok(())
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, WireError> {
        match from.u8()? {
            0 => Ok(Reply::Done),
            1 => from.u32().map(Reply::Error),
            2 => from.u32().map(Reply::Count),
            3 => from.u64().map(Reply::Handle),
            4 => Ok(Reply::Memory { free: from.u64()?, total: from.u64()? }),
            5 => from.u64().map(Reply::Nanos),
            6 => from.u32().map(Reply::ProcessState),
            7 => read_device(from).map(|device| Reply::Device(Box::new(device))),
            tag => Err(WireError::UnknownTag { what: "reply", tag }),
        }
    }
}

fn write_device(out: &mut Writer<'_>, device: &Device) -> Result<(), WireError> {
    out.text(&device.name)?;
    out.bytes(&device.uuid);
    out.u64(device.total_memory);
    out.u32(device.sm_count);
    out.u32(device.compute_capability.0);
    out.u32(device.compute_capability.1);
    out.u32(device.max_threads_per_sm);
    out.flag(device.has_mps);
    Ok(())
}

fn read_device(from: &mut Reader<'_>) -> Result<Device, WireError> {
    Ok(Device {
        name: from.text()?,
        uuid: from.array()?,
        total_memory: from.u64()?,
        sm_count: from.u32()?,
        compute_capability: (from.u32()?, from.u32()?),
        max_threads_per_sm: from.u32()?,
        has_mps: from.flag()?,
    })
}
