//! The task table: which tenant is on which GPU, in one file of shared memory that any program may read.
//!
//! One [`Writer`] (the daemon) keeps it up to date, any number of [`Reader`]s copy it out. A sequence lock keeps the
//! two apart: readers take nothing, so that a slow, stopped or dead reader never holds up the writer.
//! `docs/task-table.md` describes the layout, `include/berth_table.h` is the same for C.
//!
//! It is a view, not a record: no history, no images or command lines, and only as many rows as the file has room for.

// loom's atomics cannot lie in a file: its builds have the sequence lock alone.
#[cfg(not(loom))]
mod freshness;
#[cfg(not(loom))]
mod layout;
#[cfg(not(loom))]
mod reader;
#[cfg(not(loom))]
mod row;
mod seqlock;
#[cfg(not(loom))]
mod sys;
#[cfg(not(loom))]
mod writer;

#[cfg(not(loom))]
pub use freshness::Freshness;
#[cfg(not(loom))]
pub use layout::{
    HEADER_BYTES, HEARTBEAT_INTERVAL, HeaderError, MAGIC, MAX_ROWS, ROW_BYTES, RawHeader, RawRow, VERSION_MAJOR,
    VERSION_MINOR, flag, header_flag,
};
#[cfg(not(loom))]
pub use reader::{ReadError, Reader, Table, Version};
#[cfg(not(loom))]
pub use row::{Deadline, Due, ProcessKinds, Risk, Row, Runtime, Stamp, State, Tenant, Unit};
#[cfg(not(loom))]
pub(crate) use sys::allocate;
#[cfg(not(loom))]
pub use sys::monotonic_ns;
#[cfg(not(loom))]
pub use writer::{Published, TableError, Writer};
