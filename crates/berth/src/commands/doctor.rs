//! `berth doctor`: what this host can do, level by level and source by source; what is missing, why, and the remedy.

mod cluster;
mod kernels;

use std::process::ExitCode;

use anyhow::Result;
use berth_api::{Health, paths};
use berth_engine::describe;
use berth_host::levels::{self, Level, LevelReport, Status, Subject};
use berth_model::settings::History;
use berth_model::{Settings, Source};

use crate::asking::ask;
use crate::cli::Global;
use crate::columns::Columns;
use crate::on_record::OnRecord;
use crate::out::Stdout;
use crate::{logging, pods, settings, sight, table, words};

const EXAMPLES: &str = "\
Examples:
  berth doctor
  berth doctor --json | jq '.[] | select(.status == \"missing\")'
  sudo berth doctor                what root could do
  berth doctor --alive             whether the daemon works, for those who start it anew if not

Exit codes: 0 the GPUs can be observed, whatever else is missing, or with --alive the daemon works; 1 not.
Trying things out changes nothing on the host.";

/// Find out what this host can do, and how to get what is missing
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// JSON instead of text
    #[arg(long)]
    json: bool,
    /// Ask the daemon, and nothing else, whether it works
    #[arg(long, conflicts_with = "json")]
    alive: bool,
}

pub fn run(args: &Args, global: &Global) -> Result<ExitCode> {
    let settings = settings::load(global)?;
    logging::start_if_asked(global.log.is_some(), &settings.log)?;
    sight::widen(&settings);
    if args.alive {
        return alive(&settings);
    }
    let mut reports = levels::check(&settings);
    if settings.kubernetes.enabled {
        reports.push(LevelReport { subject: Subject::Source(Source::Kubernetes), status: kubernetes(&settings) });
    }
    reports.push(LevelReport { subject: Subject::History, status: history(&settings.history) });
    reports.push(LevelReport { subject: Subject::Holds, status: holds(&settings) });
    reports.push(LevelReport { subject: Subject::Kernels, status: kernels::check(&settings.kernels) });
    reports.extend(cluster::check(&settings));
    if args.json {
        Stdout::json(&reports)?;
    } else {
        Stdout::text(&text(&reports))?;
    }
    Ok(if can_observe(&reports) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// For whoever starts a daemon anew that hangs: it answers, and its loop turns.
fn alive(settings: &Settings) -> Result<ExitCode> {
    let health: Health = ask(settings, |client| async move { client.get(paths::HEALTH).await })??;
    Stdout::line(&format!("the daemon works: it last looked at {}", health.taken_at))?;
    Ok(ExitCode::SUCCESS)
}

/// The one level that everything else stands on.
fn can_observe(reports: &[LevelReport]) -> bool {
    reports.iter().any(|report| {
        report.subject == Subject::Level(Level::Observe) && matches!(report.status, Status::Available { .. })
    })
}

/// As the daemon of these settings would ask, with this process' rights.
fn kubernetes(settings: &Settings) -> Status {
    match pods::check(settings) {
        Ok(detail) => Status::Available { detail },
        Err(error) => Status::Missing { reason: format!("{error:#}") },
    }
}

/// Asked as this user, who may not be the daemon's.
fn history(settings: &History) -> Status {
    match berth_store::history::check(&settings.dir) {
        _ if !settings.enabled => Status::Off,
        Ok(detail) => Status::Available { detail },
        Err(error) => Status::Missing { reason: describe(&error) },
    }
}

/// The same of the journal: who is on record in it, and whether anybody looks after them.
fn holds(settings: &Settings) -> Status {
    let record = OnRecord::read(settings);
    let path = settings.hold.journal.display();
    let by = record.kept_by.as_ref().map(|by| format!(", kept by the {} (process {})", by.role, by.pid));
    match (record.unknown.as_slice(), record.holds.len()) {
        ([first, ..], _) => Status::Missing { reason: first.clone() },
        ([], 0) => Status::Available { detail: format!("nobody is on record in {path}{}", by.unwrap_or_default()) },
        ([], some) if by.is_some() => {
            Status::Available { detail: format!("{some} on record in {path}{}", by.unwrap_or_default()) }
        }
        ([], some) => {
            Status::Missing { reason: format!("{some} on record in {path}: {}", record.advice().unwrap_or_default()) }
        }
    }
}

fn text(reports: &[LevelReport]) -> String {
    let rows = |wanted: fn(&Subject) -> bool| {
        let wanted = reports.iter().filter(move |report| wanted(&report.subject));
        wanted
            .map(|report| vec![name(report.subject).to_owned(), mark(&report.status).to_owned(), words(&report.status)])
    };
    let levels = rows(|subject| matches!(subject, Subject::Level(_) | Subject::Kernels));
    let sources = rows(|subject| matches!(subject, Subject::Source(_)));
    let records = rows(|subject| matches!(subject, Subject::History | Subject::Holds));
    let part = |heading, rows: Vec<Vec<String>>| {
        table::render(Columns::new(&[heading, "STATUS", ""], &[false, false, false], rows))
    };
    let cluster: Vec<_> = rows(|subject| matches!(subject, Subject::Node | Subject::Placer)).collect();
    let mut parts =
        vec![part("LEVEL", levels.collect()), part("SOURCE", sources.collect()), part("RECORD", records.collect())];
    if !cluster.is_empty() {
        parts.push(part("CLUSTER", cluster));
    }
    parts.join("\n")
}

fn name(subject: Subject) -> &'static str {
    match subject {
        Subject::Source(source) => words::source(source),
        Subject::History => "history",
        Subject::Holds => "holds",
        Subject::Kernels => "kernels",
        Subject::Node => "this node",
        Subject::Placer => "placer",
        Subject::Level(Level::Observe) => "observe",
        Subject::Level(Level::Freeze) => "freeze",
        Subject::Level(Level::Lock) => "lock",
        Subject::Level(Level::Gate) => "gate",
        Subject::Level(Level::Park) => "park",
        Subject::Level(Level::Partition) => "partition",
    }
}

fn mark(status: &Status) -> &'static str {
    match status {
        Status::Available { .. } => "available",
        Status::Offered { .. } => "offered",
        Status::Missing { .. } => "missing",
        Status::Off => "off",
    }
}

fn words(status: &Status) -> String {
    match status {
        Status::Available { detail } => detail.clone(),
        Status::Offered { detail } => format!("{detail} (this version of berth does not use it)"),
        Status::Missing { reason } => reason.clone(),
        Status::Off => "switched off by the settings".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(subject: Subject, status: Status) -> LevelReport {
        LevelReport { subject, status }
    }

    #[test]
    fn only_observing_decides_the_exit_code() {
        let available = Status::Available { detail: "1 GPU".into() };
        let missing = Status::Missing { reason: "no driver: install it".into() };
        let observe = Subject::Level(Level::Observe);
        let freeze = Subject::Level(Level::Freeze);
        assert!(can_observe(&[report(observe, available.clone()), report(freeze, missing.clone())]));
        assert!(!can_observe(&[report(observe, missing), report(freeze, available)]));
    }

    #[test]
    fn what_is_missing_says_why_and_what_is_off_says_so() {
        let reports = [
            report(Subject::Level(Level::Observe), Status::Available { detail: "2 GPUs, driver 570.1".into() }),
            report(Subject::Level(Level::Park), Status::Offered { detail: "libcuda.so.1 can move memory out".into() }),
            report(Subject::Level(Level::Park), Status::Missing { reason: "too old: install driver 570".into() }),
            report(
                Subject::Source(Source::Docker),
                Status::Missing { reason: "permission denied: join docker".into() },
            ),
            report(Subject::Source(Source::Probes), Status::Off),
            report(
                Subject::History,
                Status::Missing { reason: "nothing can be written in /var/lib: it is read-only".into() },
            ),
        ];
        insta::assert_snapshot!(text(&reports));
    }
}
