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
    use berth_model::{Change, Mono, TaskId, TenantKey};

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
