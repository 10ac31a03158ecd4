//! What a row says about a tenant's deadline: everything that does not change by itself, so that a countdown is no news.
//!
//! What is left is for the reader to compute: `due_mono_ns` minus the monotonic clock. When the work under way began is `due_mono_ns`
//! minus `deadline_ns`.

use std::mem::offset_of;

use super::{Decoder, Encoder};
use crate::table::layout::{RawRow, flag, take_u32, take_u64};

/// How long a unit of work may take, and how it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Deadline {
    pub deadline_ns: u64,
    /// What it is for; `None`: something this version does not know.
    pub unit: Option<Unit>,
    /// Of the work under way; `None` between bursts.
    pub due: Option<Due>,
    /// Units that were judged, as far back as the daemon remembers.
    pub hits: u32,
    pub misses: u32,
    /// Units of which nobody saw whether they were in time.
    pub unknown: u32,
    /// What was left in the last unit that was seen to end; below zero it was late.
    pub last_float_ns: Option<i64>,
}

/// The end of the time that work under way has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Due {
    /// `CLOCK_MONOTONIC`.
    pub mono_ns: u64,
    /// When the row was written; `None`: one this version does not know.
    pub risk: Option<Risk>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Unit {
    /// One stay on the GPUs.
    Task = 1,
    /// One stretch of activity inside a stay.
    Burst = 2,
}

/// How likely work under way is to be late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Risk {
    Safe = 1,
    /// In time if it takes no longer than usual.
    Tight = 2,
    Likely = 3,
    Late = 4,
}

impl Deadline {
    pub(super) fn encode(self, out: &mut Encoder<'_>) {
        out.known(flag::DEADLINE, offset_of!(RawRow, deadline_ns), Some(self.deadline_ns.to_le_bytes()));
        out.put(offset_of!(RawRow, unit), [self.unit.map_or(0, |unit| unit as u8)]);
        out.put(offset_of!(RawRow, hits), self.hits.to_le_bytes());
        out.put(offset_of!(RawRow, misses), self.misses.to_le_bytes());
        out.put(offset_of!(RawRow, unknown), self.unknown.to_le_bytes());
        out.known(flag::DUE, offset_of!(RawRow, due_mono_ns), self.due.map(|due| due.mono_ns.to_le_bytes()));
        let risk = self.due.and_then(|due| due.risk);
        out.put(offset_of!(RawRow, risk), [risk.map_or(0, |risk| risk as u8)]);
        out.known(flag::LAST_FLOAT, offset_of!(RawRow, last_float_ns), self.last_float_ns.map(i64::to_le_bytes));
    }

    pub(super) fn decode(row: &Decoder<'_>) -> Option<Self> {
        let bytes = row.bytes;
        row.known(flag::DEADLINE).then(|| Self {
            deadline_ns: take_u64(bytes, offset_of!(RawRow, deadline_ns)),
            unit: Unit::from_code(bytes[offset_of!(RawRow, unit)]),
            due: row.known(flag::DUE).then(|| Due {
                mono_ns: take_u64(bytes, offset_of!(RawRow, due_mono_ns)),
                risk: Risk::from_code(bytes[offset_of!(RawRow, risk)]),
            }),
            hits: take_u32(bytes, offset_of!(RawRow, hits)),
            misses: take_u32(bytes, offset_of!(RawRow, misses)),
            unknown: take_u32(bytes, offset_of!(RawRow, unknown)),
            last_float_ns: row
                .known(flag::LAST_FLOAT)
                .then(|| take_u64(bytes, offset_of!(RawRow, last_float_ns)).cast_signed()),
        })
    }
}

impl Unit {
    fn from_code(code: u8) -> Option<Self> {
        [Self::Task, Self::Burst].into_iter().find(|unit| *unit as u8 == code)
    }
}

impl Risk {
    fn from_code(code: u8) -> Option<Self> {
        [Self::Safe, Self::Tight, Self::Likely, Self::Late].into_iter().find(|risk| *risk as u8 == code)
    }
}
