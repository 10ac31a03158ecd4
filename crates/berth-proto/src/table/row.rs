//! A row as plain Rust values, and its way to and from the bytes.
//!
//! Any `Row` can be stored: text that does not fit is cut at a character and marked as cut, pids beyond the first few
//! are counted. Any bytes can be read: codes of later versions become "not known", bytes that are no UTF-8 are replaced.

mod deadline;

use std::mem::offset_of;

pub use deadline::{Deadline, Due, Risk, Unit};

use super::layout::{
    CONTAINER_ID_BYTES, GPU_UUID_BYTES, NAME_BYTES, OWNER_BYTES, PIDS, ROW_BYTES, RawRow, flag, put, take_u32, take_u64,
};

/// One tenant on one GPU.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Row {
    pub tenant: Tenant,
    /// The container's name; for others the cgroup's path or the user's name.
    pub name: String,
    pub owner: Option<String>,
    /// `None` until the driver lists the tenant on a GPU.
    pub gpu_index: Option<u32>,
    pub gpu_uuid: Option<String>,
    pub memory_bytes: Option<u64>,
    /// Of this tenant, 0 to 100.
    pub core_pct: Option<u8>,
    /// `None`: a state this version does not know.
    pub state: Option<State>,
    pub task_id: Option<u64>,
    pub task_started: Option<Stamp>,
    /// `None` without one, and in tables before version 1.1.
    pub deadline: Option<Deadline>,
    pub process_kinds: ProcessKinds,
    /// All of them when publishing; when read, at most the first 16.
    pub pids: Vec<u32>,
    /// Pids that are not in `pids`.
    pub pids_left_out: u32,
    /// Some text was longer than its field and was cut. Set by publishing.
    pub text_cut: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Tenant {
    Container {
        /// `None`: which engine's it is could not be told.
        runtime: Option<Runtime>,
        /// In full. `None` only where a foreign writer left it out.
        id: Option<String>,
    },
    /// Its path is the row's name.
    Cgroup,
    User {
        uid: Option<u32>,
    },
    /// A kind this version does not know.
    #[default]
    Unknown,
}

/// Which container engine runs a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Runtime {
    Docker = 1,
    Podman = 2,
    Containerd = 3,
    Crio = 4,
    Lxc = 5,
}

/// What a tenant does on a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// Has opened the device; no context yet, so no task yet.
    Opening = 1,
    /// Holds memory; has not been seen computing.
    Loaded = 2,
    Computing = 3,
    /// Holds memory, has computed, and computes no more.
    Idle = 4,
    /// The GPU went away under it.
    Lost = 5,
}

/// One instant on both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stamp {
    /// `CLOCK_MONOTONIC`, for durations.
    pub mono_ns: u64,
    /// Since 1970, for people.
    pub wall_ns: u64,
}

/// Which kinds of processes the tenant has on the GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProcessKinds {
    pub compute: bool,
    pub graphics: bool,
    pub mps_server: bool,
    pub mps_client: bool,
}

// Tenant kinds in the file. 0 is none of them.
const CONTAINER: u8 = 1;
const CGROUP: u8 = 2;
const USER: u8 = 3;

/// In the field of an unknown index, beside the cleared flag: a reader that forgets the flag must not blame GPU 0.
const NO_GPU_INDEX: u32 = u32::MAX;

// === impl Row ===

impl Row {
    /// Writes the row over `bytes`.
    pub(crate) fn encode(&self, bytes: &mut [u8; ROW_BYTES]) {
        bytes.fill(0);
        let mut out = Encoder { bytes, flags: if self.text_cut { flag::TEXT_CUT } else { 0 } };
        out.tenant(&self.tenant);
        out.text(offset_of!(RawRow, name), NAME_BYTES, &self.name);
        out.optional_text(flag::OWNER, offset_of!(RawRow, owner), OWNER_BYTES, self.owner.as_deref());
        out.optional_text(flag::GPU_UUID, offset_of!(RawRow, gpu_uuid), GPU_UUID_BYTES, self.gpu_uuid.as_deref());
        let gpu_index = self.gpu_index.filter(|index| *index != NO_GPU_INDEX);
        out.put(offset_of!(RawRow, gpu_index), NO_GPU_INDEX.to_le_bytes());
        out.known(flag::GPU_INDEX, offset_of!(RawRow, gpu_index), gpu_index.map(u32::to_le_bytes));
        out.known(flag::MEMORY, offset_of!(RawRow, memory_bytes), self.memory_bytes.map(u64::to_le_bytes));
        out.known(flag::CORE_PCT, offset_of!(RawRow, core_pct), self.core_pct.map(|pct| [pct]));
        out.known(flag::TASK_ID, offset_of!(RawRow, task_id), self.task_id.map(u64::to_le_bytes));
        let started = self.task_started;
        let (mono, wall) = (started.map(|s| s.mono_ns.to_le_bytes()), started.map(|s| s.wall_ns.to_le_bytes()));
        out.known(flag::TASK_STARTED, offset_of!(RawRow, task_started_mono_ns), mono);
        out.known(flag::TASK_STARTED, offset_of!(RawRow, task_started_wall_ns), wall);
        if let Some(deadline) = self.deadline {
            deadline.encode(&mut out);
        }
        out.put(offset_of!(RawRow, state), [self.state.map_or(0, |state| state as u8)]);
        out.put(offset_of!(RawRow, process_kinds), self.process_kinds.bits().to_le_bytes());
        out.pids(&self.pids, self.pids_left_out);
        let flags = out.flags.to_le_bytes();
        out.put(offset_of!(RawRow, flags), flags);
    }

    /// Reads a row from its first [`ROW_BYTES`] bytes; later versions may have more.
    pub(crate) fn decode(bytes: &[u8; ROW_BYTES]) -> Self {
        let row = Decoder { bytes, flags: take_u32(bytes, offset_of!(RawRow, flags)) };
        let started = Stamp {
            mono_ns: take_u64(bytes, offset_of!(RawRow, task_started_mono_ns)),
            wall_ns: take_u64(bytes, offset_of!(RawRow, task_started_wall_ns)),
        };
        let (pids, pids_left_out) = row.pids();
        Self {
            tenant: row.tenant(),
            name: row.text(offset_of!(RawRow, name), NAME_BYTES),
            owner: row.known(flag::OWNER).then(|| row.text(offset_of!(RawRow, owner), OWNER_BYTES)),
            gpu_index: row.known(flag::GPU_INDEX).then(|| take_u32(bytes, offset_of!(RawRow, gpu_index))),
            gpu_uuid: row.known(flag::GPU_UUID).then(|| row.text(offset_of!(RawRow, gpu_uuid), GPU_UUID_BYTES)),
            memory_bytes: row.known(flag::MEMORY).then(|| take_u64(bytes, offset_of!(RawRow, memory_bytes))),
            core_pct: row.known(flag::CORE_PCT).then_some(bytes[offset_of!(RawRow, core_pct)]),
            state: State::from_code(bytes[offset_of!(RawRow, state)]),
            task_id: row.known(flag::TASK_ID).then(|| take_u64(bytes, offset_of!(RawRow, task_id))),
            task_started: row.known(flag::TASK_STARTED).then_some(started),
            deadline: Deadline::decode(&row),
            process_kinds: ProcessKinds::from_bits(take_u32(bytes, offset_of!(RawRow, process_kinds))),
            pids,
            pids_left_out,
            text_cut: row.known(flag::TEXT_CUT),
        }
    }
}

// === impl Encoder ===

struct Encoder<'a> {
    bytes: &'a mut [u8; ROW_BYTES],
    flags: u32,
}

impl Encoder<'_> {
    fn put<const N: usize>(&mut self, offset: usize, value: [u8; N]) {
        put(self.bytes, offset, &value);
    }

    fn known<const N: usize>(&mut self, bit: u32, offset: usize, value: Option<[u8; N]>) {
        if let Some(value) = value {
            self.flags |= bit;
            self.put(offset, value);
        }
    }

    /// Ends at the first NUL, which is where readers in C would end it too.
    fn text(&mut self, offset: usize, width: usize, text: &str) {
        let whole = text.split('\0').next().unwrap_or_default();
        let kept = &whole[..whole.floor_char_boundary(width)];
        if kept.len() < text.len() {
            self.flags |= flag::TEXT_CUT;
        }
        put(self.bytes, offset, kept.as_bytes());
    }

    fn optional_text(&mut self, bit: u32, offset: usize, width: usize, text: Option<&str>) {
        if let Some(text) = text {
            self.flags |= bit;
            self.text(offset, width, text);
        }
    }

    fn tenant(&mut self, tenant: &Tenant) {
        let kind = match tenant {
            Tenant::Container { runtime, id } => {
                self.put(offset_of!(RawRow, runtime), [runtime.map_or(0, |runtime| runtime as u8)]);
                self.optional_text(
                    flag::CONTAINER_ID,
                    offset_of!(RawRow, container_id),
                    CONTAINER_ID_BYTES,
                    id.as_deref(),
                );
                CONTAINER
            }
            Tenant::Cgroup => CGROUP,
            Tenant::User { uid } => {
                self.known(flag::UID, offset_of!(RawRow, uid), uid.map(u32::to_le_bytes));
                USER
            }
            Tenant::Unknown => 0,
        };
        self.put(offset_of!(RawRow, tenant_kind), [kind]);
    }

    fn pids(&mut self, pids: &[u32], left_out: u32) {
        let count = u32::try_from(pids.len()).unwrap_or(u32::MAX).saturating_add(left_out);
        self.put(offset_of!(RawRow, pid_count), count.to_le_bytes());
        for (slot, pid) in pids.iter().take(PIDS as usize).enumerate() {
            self.put(offset_of!(RawRow, pids) + 4 * slot, pid.to_le_bytes());
        }
    }
}

// === impl Decoder ===

struct Decoder<'a> {
    bytes: &'a [u8; ROW_BYTES],
    flags: u32,
}

impl Decoder<'_> {
    fn known(&self, bit: u32) -> bool {
        self.flags & bit != 0
    }

    fn text(&self, offset: usize, width: usize) -> String {
        let field = &self.bytes[offset..offset + width];
        let end = field.iter().position(|byte| *byte == 0).unwrap_or(width);
        String::from_utf8_lossy(&field[..end]).into_owned()
    }

    fn tenant(&self) -> Tenant {
        match self.bytes[offset_of!(RawRow, tenant_kind)] {
            CONTAINER => Tenant::Container {
                runtime: Runtime::from_code(self.bytes[offset_of!(RawRow, runtime)]),
                id: self
                    .known(flag::CONTAINER_ID)
                    .then(|| self.text(offset_of!(RawRow, container_id), CONTAINER_ID_BYTES)),
            },
            CGROUP => Tenant::Cgroup,
            USER => Tenant::User { uid: self.known(flag::UID).then(|| take_u32(self.bytes, offset_of!(RawRow, uid))) },
            _ => Tenant::Unknown,
        }
    }

    fn pids(&self) -> (Vec<u32>, u32) {
        let count = take_u32(self.bytes, offset_of!(RawRow, pid_count));
        let stored = count.min(PIDS) as usize;
        let pids = (0..stored).map(|slot| take_u32(self.bytes, offset_of!(RawRow, pids) + 4 * slot)).collect();
        (pids, count.saturating_sub(PIDS))
    }
}

// === codes ===

impl State {
    fn from_code(code: u8) -> Option<Self> {
        [Self::Opening, Self::Loaded, Self::Computing, Self::Idle, Self::Lost].into_iter().find(|s| *s as u8 == code)
    }
}

impl Runtime {
    fn from_code(code: u8) -> Option<Self> {
        let all = [Self::Docker, Self::Podman, Self::Containerd, Self::Crio, Self::Lxc];
        all.into_iter().find(|runtime| *runtime as u8 == code)
    }
}

impl ProcessKinds {
    fn bits(self) -> u32 {
        [self.compute, self.graphics, self.mps_server, self.mps_client]
            .into_iter()
            .enumerate()
            .map(|(bit, set)| u32::from(set) << bit)
            .sum()
    }

    fn from_bits(bits: u32) -> Self {
        let set = |bit: u32| bits & (1 << bit) != 0;
        Self { compute: set(0), graphics: set(1), mps_server: set(2), mps_client: set(3) }
    }
}

#[cfg(test)]
mod tests;
