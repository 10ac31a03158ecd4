//! `berth events`: what changes, line by line, as it happens.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use berth_api::Notice;
use jiff::tz::TimeZone;

use crate::cli::Global;
use crate::columns::printable;
use crate::live::{Live, Origin, Update};
use crate::out::Stdout;
use crate::{logging, settings, table, words};

const EXAMPLES: &str = "\
Examples:
  berth events
  berth events --json | jq -r 'select(.change == \"task_ended\") | .name'
  berth events --json | jq -r 'select(.change == \"deadline_endangered\") | .name + \": \" + .reason'

Ends with Ctrl-C. A restarted daemon is found again; that changes may be missing then is said.";

/// Snapshots are not shown here; asking for few of them spares the daemon work.
const SNAPSHOTS: Duration = Duration::from_secs(60);

/// Print what changes on the GPUs as it happens
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// One JSON object per line
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args, global: &Global) -> Result<ExitCode> {
    let settings = settings::load(global)?;
    logging::start_if_asked(global.log.is_some(), &settings.log)?;
    let live = Live::open(&settings, SNAPSHOTS)?;
    if let Origin::OurOwn { because } = &live.origin {
        eprintln!("berth: {because}; watching without it");
    }
    let zone = TimeZone::system();
    for update in &live.update_rx {
        match update {
            Update::Change(notice) if args.json => Stdout::line(&serde_json::to_string(&notice)?)?,
            Update::Change(notice) => Stdout::line(&line(&notice, &zone))?,
            Update::Missed(Some(missed)) => eprintln!("berth: missed {missed} changes"),
            Update::Missed(None) => eprintln!("berth: the daemon was restarted; what happened meanwhile is not known"),
            Update::Lost(reason) => eprintln!("berth: {reason}; trying again"),
            Update::Connected => eprintln!("berth: following the daemon on {}", settings.api.socket.display()),
            Update::Snapshot(_) => {}
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn line(notice: &Notice, zone: &TimeZone) -> String {
    format!("{}  {}", table::time(notice.time, zone), printable(&words::change(&notice.change)))
}

#[cfg(test)]
mod tests {
    use berth_model::deadline::{Unit, Verdict};
    use berth_model::{Change, Deadline, Mono, TaskId, TenantKey};

    use super::*;
    use crate::testing::at;

    #[test]
    fn escape_sequences_in_names_do_not_reach_the_terminal() {
        let change = Change::MomentSeen {
            tenant: TenantKey::Cgroup { path: "/a\u{1b}[2J".into() },
            name: "/a\u{1b}[2J".into(),
            process: berth_model::ProcKey { pid: 7, start_ticks: 1 },
            moment: berth_model::Moment::DeviceOpen,
            at: Mono(1),
        };
        let line = line(&Notice { id: 1, time: at(0), change }, &TimeZone::UTC);
        assert!(!line.contains('\u{1b}') && line.ends_with("process 7 opened the device"), "{line:?}");
    }

    fn said(change: Change) -> String {
        let line = line(&Notice { id: 9, time: at(0), change }, &TimeZone::UTC);
        line.strip_prefix("2026-09-21 14:13:20  server: ").unwrap_or_else(|| panic!("{line}")).to_owned()
    }

    #[test]
    fn deadlines_are_told_with_what_was_left_and_why() {
        let (tenant, name) = (TenantKey::User { uid: 0 }, "server".to_owned());
        let (deadline, at): (Deadline, _) = ("2s".parse().unwrap(), Mono(1));
        let judged = |verdict, float_nanos, why: Option<&str>| {
            let (tenant, name, why) = (tenant.clone(), name.clone(), why.map(str::to_owned));
            said(Change::UnitJudged { tenant, name, unit: Unit::Burst, deadline, verdict, float_nanos, why, at })
        };
        assert_eq!(judged(Verdict::Hit, Some(700_000_000), None), "burst met its deadline of 2s, 700ms left");
        let missed = judged(Verdict::Miss, Some(-61_000_000_000), Some("it was held"));
        assert_eq!(missed, "burst missed its deadline of 2s by 1m01s: it was held");
        let unknown = judged(Verdict::Unknown, None, None);
        assert_eq!(unknown, "burst had a deadline of 2s; nobody saw whether it was met");
    }

    #[test]
    fn a_warning_a_bound_and_a_person_s_word_are_told_as_such() {
        let (tenant, name, at) = (TenantKey::User { uid: 0 }, "server".to_owned(), Mono(1));
        let deadline: Deadline = "9s".parse().unwrap();
        let reason = "others like it took 12.0s of GPU time".to_owned();
        let (tenant_, name_) = (tenant.clone(), name.clone());
        let unit = Unit::Task;
        let endangered =
            Change::DeadlineEndangered { tenant: tenant_, name: name_, unit, deadline, due: Mono(2), reason, at };
        let expected = "will probably miss its deadline of 9s: others like it took 12.0s of GPU time";
        assert_eq!(said(endangered), expected);
        let (asked, bound) = ("1s".parse().unwrap(), "everybody 9s..".to_owned());
        let (tenant_, name_) = (tenant.clone(), name.clone());
        let out = Change::DeadlineOutOfBounds { tenant: tenant_, name: name_, asked, counts: deadline, bound, at };
        assert_eq!(said(out), "a deadline of 1s is not allowed, 9s counts (`everybody 9s..`)");
        let (tenant_, name_) = (tenant.clone(), name.clone());
        let set = Change::DeadlineChanged { tenant: tenant_, name: name_, deadline: Some(deadline), by_uid: 0, at };
        assert_eq!(said(set), "has a deadline of 9s now, by root");
        let cleared = Change::DeadlineChanged { tenant, name, deadline: None, by_uid: 1000, at };
        assert_eq!(said(cleared), "has no deadline now, by user 1000");
    }

    #[test]
    fn a_line_says_when_who_and_what() {
        let change = Change::TaskEnded {
            task: TaskId(3),
            tenant: TenantKey::User { uid: 0 },
            name: "trainer".into(),
            at: Mono(1),
            nanos: 247_400_000_000,
        };
        let notice = Notice { id: 9, time: at(0), change };
        assert_eq!(line(&notice, &TimeZone::UTC), "2026-09-21 14:13:20  trainer: task 3 ended after 4m07s");
    }
}
