//! A report on the wire: versioned, signed, compact. `docs/report-format.md` describes it byte by byte.
//!
//! Pure: bytes in, facts or the reason why they are not believed out. Nothing of a frame is looked at before its signature is; what is
//! signed by a node that was broken into is still kept within bounds. [`report`](encode_report) and [`pasts`](encode_pasts) are the two
//! kinds; [`Fresh`] says what tells a new frame from one that was recorded.

mod bytes;
mod fresh;
#[cfg(any(test, fuzzing))]
mod fuzz;
mod header;
mod key;
mod pasts;
mod report;
#[cfg(test)]
mod tests;

use std::time::Duration;

use berth_model::cluster::report::{Impossible, MOST_PASTS};
use berth_model::cluster::{NodeId, Past, Report, Stamp};

pub use fresh::Fresh;
#[cfg(any(test, fuzzing))]
pub use fuzz::fuzz;
pub use header::MOST_BYTES;
pub use key::{ClusterKey, InvalidKey, KEY_BYTES, KeyFile, MAC_BYTES, NONCE_BYTES, NodeKey, Nonce, hex, unhex};

use bytes::{Reader, Writer};

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    Report = 1,
    Pasts = 2,
}

/// What came in a frame, and how old it was when it was signed.
#[derive(Debug, Clone, PartialEq)]
pub struct Told<T> {
    pub what: T,
    pub age: Duration,
}

/// What a node remembers, and of which of its reports.
#[derive(Debug, Clone, PartialEq)]
pub struct Pasts {
    pub node: NodeId,
    pub stamp: Stamp,
    /// As in [`Report::pasts`].
    pub number: u32,
    pub pasts: Vec<Past>,
}

/// Why a frame is not believed, or cannot be made.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum FrameError {
    #[error("it is too short for a frame: {bytes} bytes")]
    TooShort { bytes: usize },
    #[error("it is too long for a frame: {bytes} bytes, at most {MOST_BYTES} are read")]
    TooLong { bytes: usize },
    #[error("it is no frame of berth")]
    NotAFrame,
    #[error(
        "its signature is not by the key of this node: it was changed or cut on the way, or node and placer have different keys"
    )]
    Forged,
    #[error("it is of version {found}, and this berth knows up to {}", header::VERSION)]
    Version { found: u8 },
    #[error("it is of kind {found}, and {} was asked for", *wanted as u8)]
    OtherKind { found: u8, wanted: Kind },
    #[error("it says it has {said} bytes, and has {found}")]
    OtherLength { said: u32, found: usize },
    #[error("it answers another question: it was recorded and sent again")]
    Replayed,
    #[error("it was asked for by nobody, and an answer is expected")]
    Unasked,
    #[error("it is the answer to somebody else's question")]
    Asked,
    #[error("it is of node `{found}`")]
    OtherNode { found: NodeId },
    #[error("it is {ahead_ms} ms ahead of this host's clock")]
    Future { ahead_ms: u64 },
    #[error("it is {age_ms} ms old")]
    Stale { age_ms: u64 },
    #[error("it is not newer than the one before it")]
    NotNewer,
    #[error("it ends in the middle of {what}")]
    Cut { what: &'static str },
    #[error("{bytes} bytes follow its end")]
    Trailing { bytes: usize },
    #[error("it has {count} {what}, and at most {most} are read")]
    TooMany { what: &'static str, count: usize, most: usize },
    #[error("its {what} cannot be")]
    Impossible { what: &'static str },
    #[error("what it says cannot be")]
    Untrue(#[from] Impossible),
}

/// `age`: how old the facts are. `nonce`: of the question it answers; `None` where nobody asked.
pub fn encode_report(
    report: &Report,
    age: Duration,
    nonce: Option<&Nonce>,
    key: &NodeKey,
) -> Result<Vec<u8>, FrameError> {
    let mut body = Writer::default();
    report::write(report, &mut body)?;
    header::seal(Kind::Report, age, nonce, &body.done(), key)
}

/// `node` is whose report is expected, and `key` its key.
pub fn decode_report(frame: &[u8], node: &NodeId, key: &NodeKey, fresh: &Fresh) -> Result<Told<Report>, FrameError> {
    let opened = header::open(frame, Kind::Report, key, fresh)?;
    let mut body = Reader::new(opened.body);
    let report = report::read(&mut body)?;
    body.end()?;
    is_of(node, &report.node)?;
    fresh.judge(&report.stamp)?;
    Ok(Told { what: report, age: opened.age })
}

/// The same of what a node remembers.
pub fn encode_pasts(pasts: &Pasts, age: Duration, nonce: Option<&Nonce>, key: &NodeKey) -> Result<Vec<u8>, FrameError> {
    let mut body = Writer::default();
    pasts::write(pasts, &mut body)?;
    header::seal(Kind::Pasts, age, nonce, &body.done(), key)
}

pub fn decode_pasts(frame: &[u8], node: &NodeId, key: &NodeKey, fresh: &Fresh) -> Result<Told<Pasts>, FrameError> {
    let opened = header::open(frame, Kind::Pasts, key, fresh)?;
    let mut body = Reader::new(opened.body);
    let pasts = pasts::read(&mut body)?;
    body.end()?;
    is_of(node, &pasts.node)?;
    fresh.judge(&pasts.stamp)?;
    Ok(Told { what: pasts, age: opened.age })
}

/// Leaves out what has no place in a frame.
pub fn tellable(pasts: Vec<Past>) -> Vec<Past> {
    pasts.into_iter().filter(pasts::is_tellable).take(MOST_PASTS).collect()
}

fn is_of(node: &NodeId, found: &NodeId) -> Result<(), FrameError> {
    if found == node { Ok(()) } else { Err(FrameError::OtherNode { found: found.clone() }) }
}

// === impl FrameError ===

impl FrameError {
    /// One word per reason, for metrics.
    pub fn word(&self) -> &'static str {
        match self {
            FrameError::TooShort { .. } | FrameError::Cut { .. } => "truncated",
            FrameError::TooLong { .. } | FrameError::TooMany { .. } => "too-much",
            FrameError::NotAFrame
            | FrameError::OtherKind { .. }
            | FrameError::OtherLength { .. }
            | FrameError::Trailing { .. } => "malformed",
            FrameError::Forged => "forged",
            FrameError::Version { .. } => "version",
            FrameError::Replayed | FrameError::Asked | FrameError::Unasked | FrameError::NotNewer => "replayed",
            FrameError::OtherNode { .. } => "other-node",
            FrameError::Future { .. } => "future",
            FrameError::Stale { .. } => "stale",
            FrameError::Impossible { .. } | FrameError::Untrue(_) => "impossible",
        }
    }
}
