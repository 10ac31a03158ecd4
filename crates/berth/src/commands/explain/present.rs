//! One whom no record of a hold names, and whom a look without a daemon finds on the GPUs.

use anyhow::Result;
use berth_model::control::{Refusal, find_named};
use berth_model::fields::elapsed;
use berth_model::history::Record;
use berth_model::{Settings, TaskRow, TenantKey};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Serialize;

use super::left;
use crate::columns::printable;
use crate::engine;
use crate::out::{Stdout, say};

/// The JSON.
#[derive(Debug, Serialize)]
pub(super) struct Present {
    tenant: TenantKey,
    name: String,
    /// Never, to tell it from the answer about one who is not there.
    has_left: bool,
    /// `None`: what is on record of holds cannot be read.
    is_held: Option<bool>,
    /// One for each GPU it is on.
    rows: Vec<TaskRow>,
    /// Newest first.
    records: Vec<Record>,
}

/// `Ok(None)` also if nothing can be looked at. `is_record_known`: the records of holds could be read, and name it nowhere.
pub(super) fn find(settings: &Settings, whom: &str, is_record_known: bool) -> Result<Option<Present>, Refusal> {
    let Ok(snapshot) = engine::sample_once(settings) else { return Ok(None) };
    let named = snapshot.tasks.iter().map(|row| (&row.tenant, row.container_name.as_str()));
    let tenant = match find_named(whom, named) {
        Err(Refusal::NoSuchTenant { .. }) => return Ok(None),
        found => found?.clone(),
    };
    let rows: Vec<TaskRow> = snapshot.tasks.into_iter().filter(|row| row.tenant == tenant).collect();
    let name = rows.first().map_or_else(|| tenant.to_string(), |row| row.container_name.clone());
    let mut records = left::in_files(settings, whom);
    records.retain(|record| record.tenant == tenant);
    let is_held = is_record_known.then_some(false);
    Ok(Some(Present { tenant, name, has_left: false, is_held, rows, records }))
}

impl Present {
    pub(super) fn tell(&self, json: bool) -> Result<()> {
        say("no daemon answers: this is what one look shows, and what is on record");
        if json { Stdout::json(self) } else { Stdout::text(&self.text(Timestamp::now(), &TimeZone::system())) }
    }

    fn text(&self, now: Timestamp, zone: &TimeZone) -> String {
        let sentence = match self.is_held {
            Some(_) => "free: no hold of it is on record, and no daemon runs",
            None => "is there; whether it is held is not known, and no daemon runs",
        };
        let mut lines = vec![format!("{}: {sentence}", self.name), String::new()];
        let fact = |what: &str, value: &str| format!("  {what:<10}  {value}");
        lines.push(fact("tenant", &self.tenant.to_string()));
        lines.push(fact("owner", self.rows.iter().find_map(|row| row.owner.as_deref()).unwrap_or("-")));
        lines.extend(self.rows.iter().map(|row| fact("on", &on(row))));
        lines.extend(self.rows.first().map(|row| fact("command", &row.command)));
        let text: String = lines.into_iter().map(|line| printable(&line) + "\n").collect();
        text + &super::past(&left::holds(&self.records), now, zone)
    }
}

fn on(row: &TaskRow) -> String {
    let gpu = row.gpu_index.map_or_else(|| "no GPU yet".to_owned(), |gpu| format!("GPU {gpu}"));
    let since = row.task_seconds.map_or_else(String::new, |seconds| format!(" for {}", elapsed(seconds)));
    let memory = row.gpu_memory_bytes.map_or_else(String::new, |bytes| format!(", {bytes}"));
    format!("{gpu}{since}{memory}; now {}", row.state.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{at, busy};

    #[test]
    fn one_who_is_there_is_not_told_as_gone_nor_as_free_where_nobody_knows() {
        let rows = vec![busy().tasks[0].clone()];
        let (tenant, name) = (rows[0].tenant.clone(), rows[0].container_name.clone());
        let present = |is_held| Present { tenant, name, has_left: false, is_held, rows, records: Vec::new() };
        let mut present = present(Some(false));
        let text = present.text(at(0), &TimeZone::UTC);
        assert!(text.contains(": free: no hold of it is on record") && text.contains("GPU 0 for "), "{text}");
        present.is_held = None;
        let text = present.text(at(0), &TimeZone::UTC);
        assert!(!text.contains("free") && text.contains("is not known"), "{text}");
    }
}
