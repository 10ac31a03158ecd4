//! Holds in words: for one line, and for those who ask why.

use berth_model::control::{Explanation, PastHold, PastWhat, Standing};
use berth_model::fields::elapsed;
use berth_model::history::Before;
use berth_model::hold::Means;
use berth_model::settings::PolicyName;
use berth_model::snapshot::{HoldRow, HoldStage, Management, QueueRow, StandsAt};
use berth_store::Role;
use jiff::Timestamp;

use crate::columns::printable;
use crate::on_record::{Now, OnRecord, Recorded};

/// Why a tenant runs or does not, in one sentence without its name. `now` is when that was so.
pub fn sentence(told: &Explanation, now: Timestamp) -> String {
    match &told.hold {
        _ if told.is_paused_by_others => {
            "paused by someone else: berth leaves it alone until they let it go on".to_owned()
        }
        Some(hold) => held(hold, now),
        None => free(told, now),
    }
}

fn free(told: &Explanation, now: Timestamp) -> String {
    if told.policy == PolicyName::Off {
        return "free: the policy is off, so nobody but persons hold anybody".to_owned();
    }
    let left_alone = told.left_alone_until.map(|until| until.duration_since(now).as_secs_f64());
    if let Some(left) = left_alone.filter(|left| *left > 0.0) {
        return format!("free: holding it has failed, so policies leave it alone for {} more", seconds(left));
    }
    match told.computing_there.as_slice() {
        _ if !told.awaited_by.is_empty() => format!("free: it is its turn; {}", awaited(told)),
        _ if told.means.is_empty() => "free: there is nothing by which it could be held here".to_owned(),
        [] => "free: nobody else computes where it is".to_owned(),
        others => format!("free, beside {}", quoted(others)),
    }
}

/// `2 wait for it`.
fn awaited(told: &Explanation) -> String {
    let would = if told.dry_run { "would " } else { "" };
    match told.awaited_by.as_slice() {
        [only] if told.dry_run => format!("`{only}` {would}wait for it"),
        [only] => format!("`{only}` waits for it"),
        all => format!("{} {would}wait for it", all.len()),
    }
}

/// The same from its row alone.
pub fn held(hold: &HoldRow, now: Timestamp) -> String {
    let since = seconds(now.duration_since(hold.since).as_secs_f64());
    let means = hold.means.map(|means| means.as_str());
    match (hold.stage, hold.by_uid) {
        (HoldStage::Held, None) if hold.means == Some(Means::Park) => {
            let memory = "its GPU memory is kept in host memory";
            format!("parked for {since}, {memory}: {}{}", hold.reason, in_line(hold, now))
        }
        (HoldStage::Held, None) => {
            let wait = match hold.stands_at {
                Some(call) => format!("waiting {since} at {}", at_call(call)),
                None => format!("waiting {since} ({})", means.unwrap_or("held")),
            };
            format!("{wait}: {}{}", hold.reason, in_line(hold, now))
        }
        (HoldStage::Held, Some(uid)) => {
            let means = means.unwrap_or("hold");
            format!("held for {since} by {}, by {means}: {}", user(uid), hold.reason)
        }
        (HoldStage::Gated, _) => {
            format!("runs, and will be stopped at its next launch: {}{}", hold.reason, in_line(hold, now))
        }
        (HoldStage::Moving, _) => match means {
            Some(means) => format!("about to be held by {means}: {}", hold.reason),
            None => format!("about to be released: {}", hold.reason),
        },
        (HoldStage::Exempt, Some(_)) if hold.until.is_some_and(|until| until > now) => {
            let left = hold.until.map_or(0.0, |until| until.duration_since(now).as_secs_f64());
            format!("runs, and policies leave it alone for {} more: {}", seconds(left), hold.reason)
        }
        (HoldStage::Exempt, Some(uid)) => {
            format!("runs by the word of {}: policies leave it alone until its task ends ({})", user(uid), hold.reason)
        }
        (HoldStage::Exempt, None) => format!("runs, and policies leave it alone: {}", hold.reason),
        (HoldStage::WouldHold, _) => {
            let means = means.unwrap_or("hold");
            format!("runs, and would wait for {since} by now ({means}; dry run): {}{}", hold.reason, in_line(hold, now))
        }
        (HoldStage::WouldGate, _) => {
            format!("runs, and would be stopped at its next launch (dry run): {}{}", hold.reason, in_line(hold, now))
        }
    }
}

/// `; 2nd of 3, expected in about 20 s`.
fn in_line(hold: &HoldRow, now: Timestamp) -> String {
    let place = match (hold.place, hold.places) {
        (Some(1), Some(1)) => "; next in line".to_owned(),
        (Some(place), Some(places)) => format!("; {} of {places}", ordinal(place)),
        _ => String::new(),
    };
    let expected = hold.expected_at.map(|at| format!(", {}", expected(at, now))).unwrap_or_default();
    place + &expected
}

/// Who waits for whom: a heading, and a line for each in order. `None` while nobody waits.
pub fn queue(management: &Management, now: Timestamp) -> Option<(String, Vec<String>)> {
    let (waits, dry) = if management.dry_run { ("would wait", ", dry run") } else { ("waits", "") };
    let line = |(index, waiting): (usize, &QueueRow)| {
        let since = seconds(now.duration_since(waiting.since).as_secs_f64());
        let behind = waiting.behind.as_ref().map_or_else(String::new, |behind| format!(" for {behind}"));
        let expected = waiting.expected_at.map_or_else(String::new, |at| format!(", {}", expected(at, now)));
        let why = if waiting.behind.is_none() { format!(": {}", waiting.reason) } else { String::new() };
        printable(&format!("{}. {} {waits}{behind}, {since} this time{expected}{why}", index + 1, waiting.name))
    };
    let lines: Vec<String> = management.queue.iter().enumerate().map(line).collect();
    let title = format!("Queue ({}, policy {}{dry})", lines.len(), management.policy.as_str());
    (!lines.is_empty()).then_some((title, lines))
}

/// What is on record without a daemon: a heading, and a line for each. `None` if nobody is.
pub fn on_record(record: &OnRecord, now: Timestamp) -> Option<(String, Vec<String>)> {
    let line = |hold: &Recorded| printable(&format!("{} {}", hold.name, recorded(hold, now)));
    let lines: Vec<String> = record.holds.iter().map(line).collect();
    let is_silent = record.kept_by.as_ref().is_some_and(|by| by.role == Role::Daemon);
    let title = if is_silent { "On record (the daemon does not answer)" } else { "On record (no daemon runs)" };
    (!lines.is_empty()).then(|| (title.to_owned(), lines))
}

/// One of them, in one sentence without its name.
pub fn recorded(hold: &Recorded, now: Timestamp) -> String {
    let means = hold.means.map_or_else(String::new, |means| format!(" by {}", means.as_str()));
    let who = hold.by_uid.map_or_else(String::new, |uid| format!(" by the word of {}", user(uid)));
    let since = hold
        .since
        .map_or_else(String::new, |since| format!(" for {}", seconds(now.duration_since(since).as_secs_f64())));
    let why = if hold.reason.is_empty() { String::new() } else { format!(": {}", hold.reason) };
    match &hold.now {
        Now::Held => format!("is held{since}{means}{who}{why}"),
        Now::Free => "runs: what is on record of it was undone, or never came about".to_owned(),
        Now::Gone { why } => format!("is gone: {why}, nobody is held by its record"),
    }
}

/// `expected in about 20 s`.
fn expected(at: Timestamp, now: Timestamp) -> String {
    match at.duration_since(now).as_secs_f64() {
        left if left < 1.0 => "expected any moment".to_owned(),
        left => format!("expected in about {}", seconds(left)),
    }
}

fn at_call(call: StandsAt) -> String {
    match call {
        StandsAt::Context => "the making of its context".to_owned(),
        StandsAt::FirstLaunch => "its first launch".to_owned(),
        StandsAt::Launch => "a launch".to_owned(),
        StandsAt::Allocation { bytes } => format!("an allocation of {bytes}"),
    }
}

/// What came of asking, for the one who asked to hold.
pub fn hold_done(standing: &Standing) -> String {
    let name = &standing.name;
    let by = standing.hold.as_ref().and_then(|hold| hold.means).map_or("hold", |means| means.as_str());
    match standing.hold.as_ref().map(|hold| hold.stage) {
        Some(HoldStage::Held) => format!("{name} is held, by {by}"),
        Some(HoldStage::Gated) => format!("{name} will be held at its next launch"),
        _ => format!("{name} is about to be held, by {by}: `berth explain {name}` tells when"),
    }
}

/// The same for a release, to the policy or from it.
pub fn release_done(standing: &Standing, to_policy: bool) -> String {
    let Standing { name, hold, is_settled, .. } = standing;
    match (hold, to_policy) {
        (None, true) => format!("{name} is left to the policy"),
        (Some(hold), true) => format!("{name} is left to the policy, which decides: {}", hold.reason),
        (Some(hold), false) if hold.stage == HoldStage::Exempt => {
            format!("{name} is released: policies leave it alone until its task ends")
        }
        (_, false) if *is_settled => format!("{name} is released: the policy decides about it"),
        (_, false) => format!("{name} is about to be released: `berth explain {name}` tells when"),
    }
}

/// Columns of the history of holds.
pub const PAST_HEADINGS: [&str; 5] = ["HELD AT", "FOR", "BY", "BECAUSE", "RELEASED BECAUSE"];

/// A hold of the past under [`PAST_HEADINGS`]. `at` is its time as it is to be shown.
pub fn past(past: &PastHold, at: String, now: Timestamp) -> Vec<String> {
    let dash = || "-".to_owned();
    match &past.what {
        PastWhat::Failed { message } => vec![at, dash(), dash(), format!("failed: {message}"), dash()],
        PastWhat::Held { means, by_uid, reason, released } => {
            let until = released.as_ref().map_or(now, |release| release.at);
            let lasted = elapsed(until.duration_since(past.at).as_secs_f64());
            let who = by_uid.map_or_else(|| "policy".to_owned(), user);
            let end = released.as_ref().map_or_else(|| "held now".to_owned(), |release| release.reason.clone());
            vec![at, lasted, format!("{who}, {}", means.as_str()), reason.clone(), end]
        }
    }
}

/// `fifo`; in a dry run that it is one.
pub fn policy(policy: PolicyName, dry_run: bool) -> String {
    let dry = if dry_run && policy != PolicyName::Off { " (dry run: it only says what it would do)" } else { "" };
    format!("{}{dry}", policy.as_str())
}

/// What tasks of the same program did: `computed for 5.2 s, took up to 13.4 GiB (median and most of 3 tasks)`.
pub fn before(before: &Before) -> String {
    let computed = before.active_seconds.map(|active| format!("computed for {}", seconds(active)));
    let took = before.peak_memory_bytes.map(|bytes| format!("took up to {bytes}"));
    let told: Vec<String> = computed.into_iter().chain(took).collect();
    if told.is_empty() {
        return "not known".to_owned();
    }
    let tasks = if before.tasks == 1 { "1 task".to_owned() } else { format!("{} tasks", before.tasks) };
    format!("{} ({tasks} of the same owner, image and command)", told.join(", "))
}

pub fn user(uid: u32) -> String {
    if uid == 0 { "root".to_owned() } else { format!("user {uid}") }
}

fn quoted(names: &[String]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// `14 s`; from a minute on as elsewhere.
pub fn seconds(seconds: f64) -> String {
    match seconds.max(0.0) {
        seconds if seconds < 9.95 => format!("{seconds:.1} s"),
        seconds if seconds < 60.0 => format!("{seconds:.0} s"),
        seconds => elapsed(seconds),
    }
}

fn ordinal(place: u32) -> String {
    let ending = match (place % 10, place % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{place}{ending}")
}

#[cfg(test)]
mod tests {
    use berth_model::Bytes;
    use berth_model::control::PastRelease;

    use super::*;
    use crate::testing::{at, contended, explained, waiting};

    #[test]
    fn who_waits_is_told_how_long_for_whom_and_until_when() {
        let told = explained(Some(HoldRow { stands_at: Some(StandsAt::FirstLaunch), ..waiting() }));
        let expected =
            "waiting 14 s at its first launch: `train-7` computes on GPU 0; 2nd of 3, expected in about 20 s";
        assert_eq!(sentence(&told, at(0)), expected);
    }

    #[test]
    fn who_has_the_turn_is_told_who_waits_for_it() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let told = |waiting: &[&str]| Explanation { awaited_by: names(waiting), ..explained(None) };
        assert_eq!(sentence(&told(&["b"]), at(0)), "free: it is its turn; `b` waits for it");
        assert_eq!(sentence(&told(&["b", "c"]), at(0)), "free: it is its turn; 2 wait for it");
        let dry = Explanation { dry_run: true, ..told(&["b", "c"]) };
        assert_eq!(sentence(&dry, at(0)), "free: it is its turn; 2 would wait for it");
    }

    #[test]
    fn what_is_not_known_is_left_out() {
        let hold = HoldRow { place: None, places: None, expected_at: None, ..waiting() };
        assert_eq!(sentence(&explained(Some(hold)), at(0)), "waiting 14 s (gate): `train-7` computes on GPU 0");
        let alone = HoldRow { place: Some(1), places: Some(1), expected_at: Some(at(-3)), ..waiting() };
        let call = StandsAt::Allocation { bytes: Bytes::from_mib(2048) };
        assert_eq!(
            held(&HoldRow { stands_at: Some(call), ..alone }, at(0)),
            "waiting 14 s at an allocation of 2.0 GiB: `train-7` computes on GPU 0; next in line, expected any moment"
        );
    }

    #[test]
    fn a_person_s_hold_names_the_person_and_a_release_says_how_long_it_counts() {
        let hold = HoldRow { by_uid: Some(1000), means: Some(Means::Freeze), reason: "a demo".into(), ..waiting() };
        assert_eq!(held(&hold, at(0)), "held for 14 s by user 1000, by freeze: a demo");
        let exempt =
            HoldRow { stage: HoldStage::Exempt, by_uid: Some(0), reason: "root released it".into(), ..waiting() };
        assert!(held(&exempt, at(0)).starts_with("runs by the word of root: policies leave it alone"));
    }

    #[test]
    fn a_rule_that_exempts_is_named_and_a_parked_tenant_is_told_where_its_memory_is() {
        let reason = "`hold.never_names` lists `db-*`".to_owned();
        let exempt = HoldRow { stage: HoldStage::Exempt, reason, ..waiting() };
        assert_eq!(held(&exempt, at(0)), "runs, and policies leave it alone: `hold.never_names` lists `db-*`");
        let parked = HoldRow { means: Some(Means::Park), reason: "it makes room for `b` on GPU 0".into(), ..waiting() };
        let told = held(&parked, at(0));
        assert!(told.starts_with("parked for 14 s, its GPU memory is kept in host memory: it makes room"), "{told}");
    }

    #[test]
    fn what_a_dry_run_would_do_is_never_told_as_done() {
        let would = HoldRow { stage: HoldStage::WouldHold, ..waiting() };
        assert_eq!(
            held(&would, at(0)),
            "runs, and would wait for 14 s by now (gate; dry run): `train-7` computes on GPU 0; 2nd of 3, expected in about 20 s"
        );
        let would = HoldRow { stage: HoldStage::WouldGate, place: None, expected_at: None, ..waiting() };
        let told = held(&would, at(0));
        assert_eq!(told, "runs, and would be stopped at its next launch (dry run): `train-7` computes on GPU 0");
    }

    #[test]
    fn who_is_free_is_told_why_nobody_holds_it() {
        let mut told = explained(None);
        assert_eq!(sentence(&told, at(0)), "free, beside `train-7`");
        told.computing_there.clear();
        assert_eq!(sentence(&told, at(0)), "free: nobody else computes where it is");
        told.left_alone_until = Some(at(25));
        let expected = "free: holding it has failed, so policies leave it alone for 25 s more";
        assert_eq!(
            (sentence(&told, at(0)).as_str(), sentence(&told, at(30)).starts_with("free: nobody")),
            (expected, true)
        );
        told.means.clear();
        told.left_alone_until = None;
        assert_eq!(sentence(&told, at(0)), "free: there is nothing by which it could be held here");
        told.policy = PolicyName::Off;
        assert!(sentence(&told, at(0)).contains("the policy is off"));
        told.is_paused_by_others = true;
        assert!(sentence(&told, at(0)).starts_with("paused by someone else"));
    }

    #[test]
    fn holds_of_the_past_say_how_long_and_why_they_ended() {
        let released = Some(PastRelease { at: at(-90), by_uid: None, reason: "it is its turn".into() });
        let what = PastWhat::Held { means: Means::Gate, by_uid: None, reason: "`b` computes".into(), released };
        let row = past(&PastHold { at: at(-100), what }, "then".into(), at(0));
        assert_eq!(row, ["then", "10.0s", "policy, gate", "`b` computes", "it is its turn"]);
        let what = PastWhat::Failed { message: "no cgroup".into() };
        assert_eq!(past(&PastHold { at: at(0), what }, "then".into(), at(0))[3], "failed: no cgroup");
    }

    #[test]
    fn what_the_same_program_did_before_is_told_as_far_as_it_is_known() {
        let told = Before {
            tasks: 3,
            active_seconds: Some(5.24),
            duty: None,
            peak_memory_bytes: Some(Bytes::from_mib(2048)),
            burst_seconds: None,
        };
        assert_eq!(
            before(&told),
            "computed for 5.2 s, took up to 2.0 GiB (3 tasks of the same owner, image and command)"
        );
    }

    #[test]
    fn the_line_says_for_whom_each_waits_or_else_why_and_that_a_dry_run_is_one() {
        let mut management = contended().management.unwrap();
        management.queue[2].behind = None;
        management.queue[2].reason = "GPU 0 has 2.0 GiB left, `train-7` has 60.0 GiB".into();
        let (title, lines) = queue(&management, at(0)).unwrap();
        assert_eq!(title, "Queue (3, policy fifo)");
        assert_eq!(lines[0], "1. train-8 waits for train-7, 14 s this time, expected in about 10 s");
        assert_eq!(lines[2], "3. train-10 waits, 14 s this time: GPU 0 has 2.0 GiB left, `train-7` has 60.0 GiB");
        management.dry_run = true;
        let (title, lines) = queue(&management, at(0)).unwrap();
        assert_eq!(title, "Queue (3, policy fifo, dry run)");
        assert!(lines[0].starts_with("1. train-8 would wait for train-7"), "{lines:?}");
        management.queue.clear();
        assert_eq!(queue(&management, at(0)), None);
    }

    #[test]
    fn ordinals_end_as_people_say_them() {
        let said = [1, 2, 3, 4, 11, 12, 13, 21, 102].map(ordinal);
        assert_eq!(said, ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "102nd"]);
    }
}
