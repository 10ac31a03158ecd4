//! The bytes of the table: a header, then rows of one size. Only little-endian hosts, which is where GPUs are.
//!
//! [`RawHeader`] and [`RawRow`] are the one place that says where each field lies. They are never placed over memory:
//! bytes are put and taken at their `offset_of!`, so that no bit pattern in the file can be undefined behaviour.

use std::mem::{offset_of, size_of};
use std::time::Duration;

pub const MAGIC: [u8; 8] = *b"BERTHTBL";
/// Readers refuse any other.
pub const VERSION_MAJOR: u16 = 1;
/// Raised when fields, flags or codes are added; older readers skip what they do not know.
pub const VERSION_MINOR: u16 = 1;

/// More is surely a mistake: 24 MiB of rows.
pub const MAX_ROWS: u32 = 1 << 16;

/// How often a writer promises to show that it is alive.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);

/// Larger headers or rows than this are taken for garbage, not for a later version.
const MAX_PART_BYTES: u32 = 4096;

/// Room for text, in bytes of UTF-8. A container's id is the longest that containerd allows (76), or Docker's 64.
pub(crate) const CONTAINER_ID_BYTES: usize = 80;
pub(crate) const NAME_BYTES: usize = 64;
pub(crate) const OWNER_BYTES: usize = 32;
pub(crate) const GPU_UUID_BYTES: usize = 48;
/// Room for pids.
pub(crate) const PIDS: u32 = 16;

/// The first 192 bytes of the file. The comments in `docs/task-table.md` are the contract.
#[derive(Debug)]
#[repr(C)]
pub struct RawHeader {
    // Fixed while the file lives.
    pub magic: [u8; 8],
    pub version_major: u16,
    pub version_minor: u16,
    pub header_bytes: u32,
    pub row_bytes: u32,
    pub row_capacity: u32,
    pub writer_pid: u32,
    /// Bits of [`header_flag`].
    pub flags: u32,
    pub writer_start_ticks: u64,
    pub boot_id_hash: u64,
    pub writer_pid_namespace: u64,
    pub created_mono_ns: u64,

    // Single words, each atomic by itself.
    pub sequence: u64,
    pub heartbeat_mono_ns: u64,
    pub closed: u64,
    pub heartbeat_interval_ns: u64,
    pub reserved_words: [u64; 4],

    // From here to the end of the rows: only valid while `sequence` is even and unchanged.
    pub row_count: u32,
    pub rows_left_out: u32,
    pub updated_mono_ns: u64,
    pub updated_wall_ns: u64,
    pub reserved: [u64; 5],
}

/// One tenant on one GPU, 384 bytes.
#[derive(Debug)]
#[repr(C)]
pub struct RawRow {
    /// Bits of [`flag`]: which of the fields below are known.
    pub flags: u32,
    pub tenant_kind: u8,
    pub runtime: u8,
    pub state: u8,
    pub core_pct: u8,
    pub gpu_index: u32,
    /// All processes of the tenant, of which `pids` has the first.
    pub pid_count: u32,
    pub memory_bytes: u64,
    pub task_id: u64,
    pub task_started_mono_ns: u64,
    pub task_started_wall_ns: u64,
    pub uid: u32,
    pub process_kinds: u32,
    pub pids: [u32; PIDS as usize],
    pub container_id: [u8; CONTAINER_ID_BYTES],
    pub name: [u8; NAME_BYTES],
    pub owner: [u8; OWNER_BYTES],
    pub gpu_uuid: [u8; GPU_UUID_BYTES],
    // From here on since version 1.1.
    pub deadline_ns: u64,
    pub due_mono_ns: u64,
    pub last_float_ns: i64,
    pub hits: u32,
    pub misses: u32,
    pub unknown: u32,
    pub unit: u8,
    pub risk: u8,
    pub reserved: [u8; 2],
}

pub const HEADER_BYTES: usize = size_of::<RawHeader>();
pub const ROW_BYTES: usize = size_of::<RawRow>();
/// Where the sequence lock's data begins; the rows follow the header without a gap.
pub(crate) const LOCKED_OFFSET: usize = offset_of!(RawHeader, row_count);
/// The locked part of the header.
pub(crate) const LOCKED_HEAD_BYTES: usize = HEADER_BYTES - LOCKED_OFFSET;

/// Which fields of a row hold something.
pub mod flag {
    pub const CONTAINER_ID: u32 = 1 << 0;
    pub const OWNER: u32 = 1 << 1;
    pub const GPU_INDEX: u32 = 1 << 2;
    pub const GPU_UUID: u32 = 1 << 3;
    pub const MEMORY: u32 = 1 << 4;
    pub const CORE_PCT: u32 = 1 << 5;
    pub const TASK_ID: u32 = 1 << 6;
    pub const TASK_STARTED: u32 = 1 << 7;
    pub const UID: u32 = 1 << 8;
    /// Its unit and its counts, too.
    pub const DEADLINE: u32 = 1 << 9;
    /// Its risk, too.
    pub const DUE: u32 = 1 << 10;
    pub const LAST_FLOAT: u32 = 1 << 11;
    /// Some text was longer than its field and was cut.
    pub const TEXT_CUT: u32 = 1 << 16;
}

/// Which fields of the header hold something.
pub mod header_flag {
    pub const START_TICKS: u32 = 1 << 0;
    pub const BOOT_ID: u32 = 1 << 1;
    pub const PID_NAMESPACE: u32 = 1 << 2;
}

// Every field at its natural alignment and nothing between them, so that other languages need no padding rules.
const _: () = {
    assert!(cfg!(target_endian = "little"), "the table's layout is that of little-endian hosts");
    assert!(HEADER_BYTES == 192 && ROW_BYTES == 384);
    assert!(offset_of!(RawHeader, writer_start_ticks) == 32);
    assert!(offset_of!(RawHeader, sequence) == 64);
    assert!(offset_of!(RawHeader, heartbeat_interval_ns) == 88);
    assert!(LOCKED_OFFSET == 128);
    assert!(offset_of!(RawHeader, reserved) + 40 == HEADER_BYTES);
    assert!(offset_of!(RawRow, gpu_index) == 8);
    assert!(offset_of!(RawRow, memory_bytes) == 16);
    assert!(offset_of!(RawRow, pids) == 56);
    assert!(offset_of!(RawRow, container_id) == 120);
    assert!(offset_of!(RawRow, name) == 200);
    assert!(offset_of!(RawRow, owner) == 264);
    assert!(offset_of!(RawRow, gpu_uuid) == 296);
    assert!(offset_of!(RawRow, deadline_ns) == 344);
    assert!(offset_of!(RawRow, hits) == 368);
    assert!(offset_of!(RawRow, reserved) == 382 && ROW_BYTES == 382 + 2);
};

/// Why a file is no table this program can read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    #[error("has {bytes} bytes, a task table has at least {HEADER_BYTES}")]
    Short { bytes: u64 },
    #[error("starts with {}, a task table with {}", .found.escape_ascii(), MAGIC.escape_ascii())]
    Magic { found: [u8; 8] },
    #[error("has layout version {major}.{minor}, this program reads {VERSION_MAJOR}.x")]
    Version { major: u16, minor: u16 },
    #[error("says {field} is {value}, allowed is {least} to {most}")]
    Field { field: &'static str, value: u32, least: u32, most: u32 },
    #[error("has {bytes} bytes, its header says {expected}: cut off?")]
    Truncated { bytes: u64, expected: u64 },
}

/// The part of the header that never changes, checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub header_bytes: u32,
    pub row_bytes: u32,
    pub row_capacity: u32,
    pub writer: WriterId,
    pub created_mono_ns: u64,
    pub heartbeat_interval_ns: u64,
}

/// Who writes the table; `None` for what the writer could not find out about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WriterId {
    pub pid: u32,
    pub start_ticks: Option<u64>,
    pub boot_id_hash: Option<u64>,
    pub pid_namespace: Option<u64>,
}

impl Shape {
    /// Reads and checks the header of a file of `file_bytes` bytes.
    pub fn decode(header: &[u8], file_bytes: u64) -> Result<Self, HeaderError> {
        if header.len() < HEADER_BYTES {
            return Err(HeaderError::Short { bytes: file_bytes });
        }
        let magic = take(header, offset_of!(RawHeader, magic));
        if magic != MAGIC {
            return Err(HeaderError::Magic { found: magic });
        }
        let major = u16::from_le_bytes(take(header, offset_of!(RawHeader, version_major)));
        let minor = u16::from_le_bytes(take(header, offset_of!(RawHeader, version_minor)));
        if major != VERSION_MAJOR {
            return Err(HeaderError::Version { major, minor });
        }
        let shape = Self::fields(header);
        shape.check(file_bytes)?;
        Ok(shape)
    }

    fn fields(header: &[u8]) -> Self {
        let flags = take_u32(header, offset_of!(RawHeader, flags));
        let known = |bit: u32, offset: usize| (flags & bit != 0).then(|| take_u64(header, offset));
        Self {
            header_bytes: take_u32(header, offset_of!(RawHeader, header_bytes)),
            row_bytes: take_u32(header, offset_of!(RawHeader, row_bytes)),
            row_capacity: take_u32(header, offset_of!(RawHeader, row_capacity)),
            writer: WriterId {
                pid: take_u32(header, offset_of!(RawHeader, writer_pid)),
                start_ticks: known(header_flag::START_TICKS, offset_of!(RawHeader, writer_start_ticks)),
                boot_id_hash: known(header_flag::BOOT_ID, offset_of!(RawHeader, boot_id_hash)),
                pid_namespace: known(header_flag::PID_NAMESPACE, offset_of!(RawHeader, writer_pid_namespace)),
            },
            created_mono_ns: take_u64(header, offset_of!(RawHeader, created_mono_ns)),
            heartbeat_interval_ns: take_u64(header, offset_of!(RawHeader, heartbeat_interval_ns)),
        }
    }

    /// Later minor versions may have longer headers and rows; nothing may be shorter or absurd.
    fn check(&self, file_bytes: u64) -> Result<(), HeaderError> {
        #[expect(clippy::cast_possible_truncation, reason = "192 and 384")]
        let parts = [
            ("header_bytes", self.header_bytes, HEADER_BYTES as u32, MAX_PART_BYTES),
            ("row_bytes", self.row_bytes, ROW_BYTES as u32, MAX_PART_BYTES),
            ("row_capacity", self.row_capacity, 1, MAX_ROWS),
        ];
        for (field, value, least, most) in parts {
            if !(least..=most).contains(&value) {
                return Err(HeaderError::Field { field, value, least, most });
            }
        }
        let expected = self.file_bytes();
        if file_bytes < expected {
            return Err(HeaderError::Truncated { bytes: file_bytes, expected });
        }
        Ok(())
    }

    pub fn file_bytes(&self) -> u64 {
        u64::from(self.header_bytes) + u64::from(self.row_bytes) * u64::from(self.row_capacity)
    }

    /// The header of a new table: no rows, sequence 0, alive since its creation.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        let mut flags = 0;
        let mut known = |header: &mut [u8], bit: u32, offset: usize, value: Option<u64>| {
            flags |= if value.is_some() { bit } else { 0 };
            put(header, offset, &value.unwrap_or(0).to_le_bytes());
        };
        let WriterId { pid, start_ticks, boot_id_hash, pid_namespace } = self.writer;
        known(&mut header, header_flag::START_TICKS, offset_of!(RawHeader, writer_start_ticks), start_ticks);
        known(&mut header, header_flag::BOOT_ID, offset_of!(RawHeader, boot_id_hash), boot_id_hash);
        known(&mut header, header_flag::PID_NAMESPACE, offset_of!(RawHeader, writer_pid_namespace), pid_namespace);
        put(&mut header, offset_of!(RawHeader, magic), &MAGIC);
        put(&mut header, offset_of!(RawHeader, version_major), &VERSION_MAJOR.to_le_bytes());
        put(&mut header, offset_of!(RawHeader, version_minor), &VERSION_MINOR.to_le_bytes());
        put(&mut header, offset_of!(RawHeader, header_bytes), &self.header_bytes.to_le_bytes());
        put(&mut header, offset_of!(RawHeader, row_bytes), &self.row_bytes.to_le_bytes());
        put(&mut header, offset_of!(RawHeader, row_capacity), &self.row_capacity.to_le_bytes());
        put(&mut header, offset_of!(RawHeader, writer_pid), &pid.to_le_bytes());
        put(&mut header, offset_of!(RawHeader, flags), &flags.to_le_bytes());
        put(&mut header, offset_of!(RawHeader, created_mono_ns), &self.created_mono_ns.to_le_bytes());
        put(&mut header, offset_of!(RawHeader, heartbeat_mono_ns), &self.created_mono_ns.to_le_bytes());
        put(&mut header, offset_of!(RawHeader, heartbeat_interval_ns), &self.heartbeat_interval_ns.to_le_bytes());
        header
    }
}

pub(crate) fn put(bytes: &mut [u8], offset: usize, value: &[u8]) {
    bytes[offset..offset + value.len()].copy_from_slice(value);
}

pub(crate) fn take<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    let mut value = [0; N];
    value.copy_from_slice(&bytes[offset..offset + N]);
    value
}

pub(crate) fn take_u32(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(take(bytes, offset))
}

pub(crate) fn take_u64(bytes: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(take(bytes, offset))
}

#[cfg(test)]
mod tests;
