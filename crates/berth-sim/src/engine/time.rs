//! Conversions to whole nanoseconds of virtual time.

/// Rounds to whole nanoseconds; what does not fit saturates (five centuries away).
#[expect(clippy::cast_possible_truncation, reason = "float to integer casts saturate, which is what is wanted")]
pub(crate) fn nanos(ns: f64) -> u64 {
    ns.round() as u64
}

pub(crate) fn from_ms(ms: f64) -> u64 {
    nanos(ms * 1e6)
}

pub(crate) fn from_us(us: f64) -> u64 {
    nanos(us * 1e3)
}
