//! What is left of deadlines now: snapshots are older than that by up to a look.
//!
//! For people alone. What programs are told is what the snapshot says, at the time that it says.

use berth_model::deadline::Risk;
use berth_model::snapshot::WorkRow;
use berth_model::{Snapshot, TaskRow};
use jiff::Timestamp;

/// The time since the snapshot was taken, in seconds; none while a clock that was set back makes it of the future.
pub fn since(snapshot: &Snapshot, now: Timestamp) -> f64 {
    now.duration_since(snapshot.taken_at).as_secs_f64().max(0.0)
}

/// The row so many seconds later: whoever had less left than that is late.
pub fn after(row: &TaskRow, seconds: f64) -> TaskRow {
    let mut row = row.clone();
    if let Some(WorkRow { float_seconds, risk, .. }) = row.deadline.as_mut().and_then(|deadline| deadline.work.as_mut())
    {
        *float_seconds -= seconds;
        if *float_seconds < 0.0 {
            *risk = Risk::Late;
        }
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{at, due, empty, row};

    #[test]
    fn what_is_left_goes_on_falling_and_is_late_below_zero() {
        let row = due(row("a"), "9s", 1.5, Risk::Tight);
        let left = |seconds| {
            let work = after(&row, seconds).deadline.unwrap().work.unwrap();
            (work.float_seconds, work.risk)
        };
        assert_eq!((left(0.0), left(1.5), left(2.0)), ((1.5, Risk::Tight), (0.0, Risk::Tight), (-0.5, Risk::Late)));
    }

    #[test]
    fn a_snapshot_of_the_future_is_no_reason_to_count_up() {
        assert_eq!((since(&empty(), at(2)), since(&empty(), at(-3))), (2.0, 0.0));
    }
}
