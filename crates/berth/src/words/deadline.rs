//! Deadlines in words: what became of a unit of work, and why.

use berth_model::Deadline;
use berth_model::deadline::Verdict;
use berth_model::fields::elapsed;
use berth_model::history::Judgement;

/// `met its deadline of 9s, 1.2s left`; of one that was late, by how much and why.
pub fn judged(deadline: Deadline, verdict: Verdict, float_nanos: Option<i64>, why: Option<&str>) -> String {
    #[expect(clippy::cast_precision_loss, reason = "shown to a tenth of a second")]
    let by = elapsed(float_nanos.unwrap_or(0).unsigned_abs() as f64 / 1e9);
    match verdict {
        Verdict::Hit => format!("met its deadline of {deadline}, {by} left"),
        Verdict::Miss => {
            let why = why.map(|why| format!(": {why}")).unwrap_or_default();
            format!("missed its deadline of {deadline} by {by}{why}")
        }
        Verdict::Unknown => format!("had a deadline of {deadline}; nobody saw whether it was met"),
    }
}

/// What happened, and the details, of a line of the history.
pub fn story(judgement: &Judgement) -> (String, String) {
    let Judgement { unit, deadline, float_seconds, seconds, .. } = judgement;
    let by = float_seconds.map(|float| elapsed(float.abs())).unwrap_or_default();
    let what = match judgement.verdict() {
        Verdict::Hit => format!("deadline met, {by} left"),
        Verdict::Miss => format!("deadline missed by {by}"),
        Verdict::Unknown => "deadline: not known".to_owned(),
    };
    let took = seconds.map(|seconds| format!(", took {}", elapsed(seconds))).unwrap_or_default();
    let why = judgement.why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    (what, format!("{} of {deadline}{took}{why}", unit.as_str()))
}
