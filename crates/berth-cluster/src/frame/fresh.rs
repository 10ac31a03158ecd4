//! What tells a new frame from one that was recorded.

use std::time::Duration;

use berth_model::cluster::Stamp;

use super::{FrameError, Nonce};

/// Clocks of two hosts agree no better than this.
const MOST_AHEAD_MS: u64 = 2_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fresh {
    /// It signs the nonce of the question: no clock need be trusted.
    Answer(Nonce),
    /// It came unasked: its clock decides, and `last`, the stamp of the one before it.
    Unasked { now_ms: u64, stale_after: Duration, last: Option<Stamp> },
}

impl Fresh {
    /// `found`: the nonce in the frame; `None` where nobody asked for it.
    pub(super) fn is_expected(&self, found: Option<Nonce>) -> Result<(), FrameError> {
        match (self, found) {
            (Fresh::Answer(asked), Some(found)) if *asked == found => Ok(()),
            (Fresh::Answer(_), Some(_)) => Err(FrameError::Replayed),
            (Fresh::Answer(_), None) => Err(FrameError::Unasked),
            (Fresh::Unasked { .. }, Some(_)) => Err(FrameError::Asked),
            (Fresh::Unasked { .. }, None) => Ok(()),
        }
    }

    pub(super) fn judge(&self, stamp: &Stamp) -> Result<(), FrameError> {
        let Fresh::Unasked { now_ms, stale_after, last } = self else { return Ok(()) };
        let (ahead_ms, age_ms) = (stamp.at_ms.saturating_sub(*now_ms), now_ms.saturating_sub(stamp.at_ms));
        if ahead_ms > MOST_AHEAD_MS {
            return Err(FrameError::Future { ahead_ms });
        }
        if u128::from(age_ms) > stale_after.as_millis() {
            return Err(FrameError::Stale { age_ms });
        }
        let is_newer = |last: &Stamp| (stamp.started_ms, stamp.number) > (last.started_ms, last.number);
        if last.as_ref().is_none_or(is_newer) { Ok(()) } else { Err(FrameError::NotNewer) }
    }
}
