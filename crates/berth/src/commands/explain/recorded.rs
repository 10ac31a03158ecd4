//! Without a daemon: what is on record of a hold, what one look shows, or what is written down of one who has left.

use anyhow::Result;
use berth_model::Settings;
use berth_model::control::Refusal;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Serialize;

use super::{left, present};
use crate::asking::AskError;
use crate::columns::printable;
use crate::on_record::{KeptBy, OnRecord, Recorded};
use crate::out::{Stdout, say};
use crate::{table, words};

/// The JSON, told by `on_record` from the answer of a daemon.
#[derive(Debug, Serialize)]
struct Told<'a> {
    on_record: &'a Recorded,
    kept_by: Option<&'a KeptBy>,
}

/// `absent` is why the daemon was not asked: told if nothing else can be.
pub(super) fn tell(settings: &Settings, whom: &str, json: bool, absent: AskError) -> Result<()> {
    let record = OnRecord::read(settings);
    record.unknown.iter().for_each(|unknown| say(unknown));
    match record.find(whom) {
        Ok(hold) => {
            say("no daemon answers: this is what is on record");
            let told = Told { on_record: hold, kept_by: record.kept_by.as_ref() };
            if json {
                Stdout::json(&told)?
            } else {
                Stdout::text(&text(hold, Timestamp::now(), &TimeZone::system()))?
            }
            record.advice().iter().for_each(|advice| say(advice));
            Ok(())
        }
        Err(Refusal::NoSuchTenant { .. }) => match present::find(settings, whom, record.unknown.is_empty()) {
            Ok(Some(present)) => present.tell(json),
            Ok(None) => from_history(settings, whom, json, absent),
            Err(refusal) => Err(refused(&refusal).into()),
        },
        Err(refusal) => Err(refused(&refusal).into()),
    }
}

fn refused(refusal: &Refusal) -> AskError {
    AskError::Refused { code: refusal.code().to_owned(), message: refusal.to_string() }
}

fn from_history(settings: &Settings, whom: &str, json: bool, absent: AskError) -> Result<()> {
    match left::find_in_files(settings, whom) {
        Some(left) if json => Stdout::json(&left),
        Some(left) => Stdout::text(&left.text(Timestamp::now(), &TimeZone::system())),
        None => {
            say(&format!("of `{}` nothing is on record that this user may read", printable(whom)));
            Err(absent.into())
        }
    }
}

fn text(hold: &Recorded, now: Timestamp, zone: &TimeZone) -> String {
    let since = hold.since.map_or_else(|| "not known".to_owned(), |since| table::time(since, zone));
    let facts = [("tenant", hold.tenant.to_string()), ("recorded", since)];
    let facts = facts.into_iter().map(|(what, value)| format!("  {what:<10}  {value}"));
    let lines = [format!("{} {}", hold.name, words::hold::recorded(hold, now)), String::new()];
    lines.into_iter().chain(facts).map(|line| printable(&line) + "\n").collect()
}
