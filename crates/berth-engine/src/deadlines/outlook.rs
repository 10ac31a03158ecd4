//! How a unit under way will end, by what is known of units like it.
//!
//! Pure. It needs what they usually computed, less what it has; from now on, or from its turn if it waits for one.

use std::time::Duration;

use berth_model::deadline::{Risk, Spread, Work};
use berth_model::fields::elapsed;
use berth_model::snapshot::{HoldRow, HoldStage};
use berth_model::{Anchor, Mono};

/// Where nothing is known of units like it, it is told when no more than this share of its time is left.
const LAST_SHARE: u32 = 10;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Outlook {
    /// Until it is due.
    pub float_seconds: f64,
    /// At its end.
    pub expected_float_seconds: Option<f64>,
    pub risk: Risk,
    /// Why it will probably be late, if it will.
    pub warning: Option<String>,
}

/// When to say that it may be late, where nothing is known of units like it.
pub(super) fn warn_at(started: Mono, due: Mono) -> Mono {
    started + due.since(started) / LAST_SHARE * (LAST_SHARE - 1)
}

pub(super) fn outlook(work: &Work, takes: Option<&Spread>, hold: Option<&HoldRow>, now: &Anchor) -> Outlook {
    let float_seconds = until(work.due, now.mono);
    let wait =
        hold.and_then(|hold| hold.expected_at).map_or(0.0, |at| at.duration_since(now.wall).as_secs_f64().max(0.0));
    let active = work.active.as_secs_f64();
    let left = |seconds: f64| float_seconds - wait - (seconds - active).max(0.0);
    let expected_float_seconds = takes.map(|takes| left(takes.median_seconds));
    let is_late = float_seconds < 0.0;
    let risk = match takes {
        _ if is_late => Risk::Late,
        Some(takes) if left(takes.median_seconds) < 0.0 => Risk::Likely,
        Some(takes) if left(takes.p90_seconds) < 0.0 => Risk::Tight,
        Some(_) => Risk::Safe,
        None if now.mono >= warn_at(work.started, work.due) => Risk::Likely,
        None => Risk::Safe,
    };
    let warning = (risk == Risk::Likely && work.quiet_since.is_none()).then(|| why(work, takes, hold, float_seconds));
    Outlook { float_seconds, expected_float_seconds, risk, warning }
}

fn why(work: &Work, takes: Option<&Spread>, hold: Option<&HoldRow>, float_seconds: f64) -> String {
    let whole = work.due.since(work.started).as_secs_f64();
    let held = hold.filter(|hold| matches!(hold.stage, HoldStage::Held | HoldStage::Moving));
    let behind = held.map(|hold| match &hold.behind {
        Some(behind) => format!(", and it waits for `{behind}`"),
        None => ", and it is held".to_owned(),
    });
    let behind = behind.unwrap_or_default();
    match takes {
        Some(takes) if takes.median_seconds > whole => {
            format!("others like it took {} of GPU time", elapsed(takes.median_seconds))
        }
        Some(takes) => {
            let needs = (takes.median_seconds - work.active.as_secs_f64()).max(0.0);
            format!("it needs about {} more and has {}{behind}", elapsed(needs), elapsed(float_seconds))
        }
        None => format!("it goes on and has {}{behind}", elapsed(float_seconds)),
    }
}

fn until(due: Mono, now: Mono) -> f64 {
    let seconds = |duration: Duration| duration.as_secs_f64();
    seconds(due.since(now)) - seconds(now.since(due))
}

#[cfg(test)]
mod tests {
    use berth_model::deadline::Unit;
    use jiff::Timestamp;

    use super::*;

    fn at(seconds: u64) -> Mono {
        Mono(seconds * 1_000_000_000)
    }

    /// A unit that began at 0, is due at 10, and has computed for so long.
    fn work(active: u64) -> Work {
        let active = Duration::from_secs(active);
        Work { unit: Unit::Task, started: at(0), due: at(10), active, quiet_since: None }
    }

    fn spread(median_seconds: f64, p90_seconds: f64) -> Spread {
        Spread { units: 9, median_seconds, p90_seconds, most_seconds: p90_seconds }
    }

    fn seen(active: u64, now: u64, takes: Option<Spread>) -> Outlook {
        let now = Anchor { mono: at(now), wall: Timestamp::UNIX_EPOCH };
        outlook(&work(active), takes.as_ref(), None, &now)
    }

    #[test]
    fn it_is_as_likely_to_be_late_as_units_like_it_are_long() {
        let risk = |median, p90| seen(2, 4, Some(spread(median, p90))).risk;
        assert_eq!((risk(5.0, 7.0), risk(7.0, 9.0), risk(9.0, 9.5)), (Risk::Safe, Risk::Tight, Risk::Likely));
        assert_eq!(seen(2, 4, Some(spread(5.0, 7.0))).expected_float_seconds, Some(3.0));
        assert_eq!(seen(2, 11, Some(spread(5.0, 7.0))).risk, Risk::Late);
    }

    #[test]
    fn one_that_cannot_make_it_is_said_so_at_once_and_once_it_is_late_nothing_is_left_to_warn_of() {
        let first = seen(0, 0, Some(spread(12.0, 13.0)));
        assert_eq!(first.warning.as_deref(), Some("others like it took 12.0s of GPU time"));
        assert_eq!(seen(2, 11, Some(spread(12.0, 13.0))).warning, None);
        assert_eq!(seen(2, 4, Some(spread(5.0, 7.0))).warning, None);
    }

    #[test]
    fn where_nothing_is_known_it_is_told_when_little_is_left() {
        assert_eq!((seen(2, 8, None).risk, seen(2, 9, None).risk), (Risk::Safe, Risk::Likely));
        assert_eq!(seen(2, 9, None).warning.as_deref(), Some("it goes on and has 1.0s"));
        assert_eq!(warn_at(at(0), at(10)), at(9));
    }

    #[test]
    fn what_it_waits_for_its_turn_counts() {
        let hold = HoldRow {
            stage: HoldStage::Held,
            means: None,
            by_uid: None,
            reason: String::new(),
            stands_at: None,
            since: Timestamp::UNIX_EPOCH,
            held_seconds: 0.0,
            place: None,
            places: None,
            behind: Some("b".into()),
            expected_at: Some(Timestamp::from_second(4).unwrap()),
            until: None,
        };
        let now = Anchor { mono: at(1), wall: Timestamp::UNIX_EPOCH };
        let seen = outlook(&work(0), Some(&spread(6.0, 6.0)), Some(&hold), &now);
        assert_eq!((seen.expected_float_seconds, seen.risk), (Some(-1.0), Risk::Likely));
        assert_eq!(seen.warning.as_deref(), Some("it needs about 6.0s more and has 9.0s, and it waits for `b`"));
    }
}
