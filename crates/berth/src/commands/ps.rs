//! `berth ps`: who is on the GPUs, as a table or JSON. Asks the daemon, or looks once itself.

mod watch;

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use berth_api::{Client, ClientError, paths};
use berth_model::snapshot::EndedTask;
use berth_model::{GpuIndex, Settings, Snapshot, Source, SourceStatus, Span, TaskRow};
use jiff::tz::TimeZone;
use serde::Serialize;

use crate::cli::Global;
use crate::out::Stdout;
use crate::table::{self, Style};
use crate::{engine, live, logging, settings};

const EXAMPLES: &str = "\
Examples:
  berth ps                         who is on the GPUs
  berth ps --gpu 0 --all           on one GPU, with those who left lately
  berth ps --watch 2s              again every two seconds
  berth ps --json | jq -r '.[] | select(.state == \"idle\") | .container_name'

With --json: an array with one object per tenant and GPU. With --all: an object with two arrays,
`tasks` and `ended`. With --watch: one line of that per look, at most one per interval.
Unknown is null.
GPUs that are lost, cannot be looked at or are in MIG mode are told on standard error.
Without a daemon berth looks once itself, and says so.";

/// A daemon that has only just started gets this long for its first look: waking a driver can take seconds.
const FIRST_LOOK_WITHIN: Duration = Duration::from_secs(10);
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// Show who is on the GPUs: container, owner, memory, use, since when
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// JSON instead of a table
    #[arg(long)]
    json: bool,
    /// Show it again and again [default interval: 1s, at least 100ms]
    #[arg(long, value_name = "INTERVAL", num_args = 0..=1, default_missing_value = "1s", value_parser = live::interval)]
    watch: Option<Span>,
    /// Only this GPU
    #[arg(long, value_name = "INDEX")]
    gpu: Option<u32>,
    /// Also tasks that ended lately
    #[arg(long)]
    all: bool,
    /// Do not shorten names and ids
    #[arg(long)]
    no_trunc: bool,
}

pub fn run(args: &Args, global: &Global) -> Result<ExitCode> {
    let settings = settings::load(global)?;
    logging::start_if_asked(global.log.is_some(), &settings.log)?;
    match args.watch {
        Some(interval) => watch::run(args, &settings, interval.get())?,
        None => show(args, &once(&settings)?, &mut Told::default())?,
    }
    Ok(ExitCode::SUCCESS)
}

fn once(settings: &Settings) -> Result<Snapshot> {
    let client = Client::new(&settings.api.socket);
    let deadline = Instant::now() + FIRST_LOOK_WITHIN;
    loop {
        match live::ask(&client, paths::SNAPSHOT)? {
            Ok(snapshot) => return Ok(snapshot),
            Err(error) if error.is_not_ready() && Instant::now() < deadline => std::thread::sleep(ASK_AGAIN),
            Err(error @ (ClientError::Absent { .. } | ClientError::Connect { .. })) => return look(settings, &error),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Without a daemon. What one look cannot know is said, so that nobody takes it for nothing.
fn look(settings: &Settings, because: &ClientError) -> Result<Snapshot> {
    eprintln!("berth: {}; looked once without it,", live::describe(because));
    eprintln!("berth: so starts are those of the processes, and who is idle or has left is not known");
    engine::sample_once(settings)
}

fn show(args: &Args, snapshot: &Snapshot, told: &mut Told) -> Result<()> {
    let shown = Shown::of(args, snapshot);
    for warning in told.news(warnings(snapshot)) {
        eprintln!("berth: {warning}");
    }
    if args.json {
        return shown.print_json(args);
    }
    let mut text = table::of_tasks(shown.tasks, Style { width: Stdout::width(), full: args.no_trunc });
    if args.all {
        text += &format!("\nEnded\n{}", table::of_ended(shown.ended, &TimeZone::system()));
    }
    Stdout::text(&text)
}

/// What the options leave of a snapshot; with `--all` this is the JSON.
#[derive(Debug, Serialize)]
struct Shown<'a> {
    tasks: Vec<&'a TaskRow>,
    ended: Vec<&'a EndedTask>,
}

impl<'a> Shown<'a> {
    fn of(args: &Args, snapshot: &'a Snapshot) -> Self {
        let is_wanted = |gpu: Option<GpuIndex>| args.gpu.is_none_or(|wanted| gpu == Some(GpuIndex(wanted)));
        // An ended task may have been on no known GPU: it is left out only if somebody asked for one.
        let was_wanted = |task: &&EndedTask| args.gpu.is_none() || task.gpus.iter().any(|gpu| is_wanted(Some(*gpu)));
        Self {
            tasks: snapshot.tasks.iter().filter(|row| is_wanted(row.gpu_index)).collect(),
            ended: snapshot.ended.iter().map(AsRef::as_ref).filter(was_wanted).collect(),
        }
    }

    fn print_json(&self, args: &Args) -> Result<()> {
        match (args.all, args.watch.is_some()) {
            (true, true) => Stdout::line(&serde_json::to_string(self)?),
            (true, false) => Stdout::json(self),
            (false, true) => Stdout::line(&serde_json::to_string(&self.tasks)?),
            (false, false) => Stdout::json(&self.tasks),
        }
    }
}

/// Warnings somebody can still read: they are not said again while they last.
#[derive(Debug, Default)]
struct Told(BTreeSet<String>);

impl Told {
    fn news(&mut self, warnings: Vec<String>) -> Vec<String> {
        let before = std::mem::replace(&mut self.0, warnings.iter().cloned().collect());
        warnings.into_iter().filter(|warning| !before.contains(warning)).collect()
    }
}

/// An empty table must not be taken for an empty GPU when nobody could look, nor an id for a name.
fn warnings(snapshot: &Snapshot) -> Vec<String> {
    let nameless = snapshot.tasks.iter().any(|row| row.container_id.is_some() && row.image.is_none());
    let blind = snapshot.sources.iter().filter_map(|view| match (view.source, &view.status) {
        (Source::Nvml, SourceStatus::Down { reason }) => {
            Some(format!("no GPU can be seen: {reason}; `berth doctor` tells more"))
        }
        (Source::Docker, SourceStatus::Down { reason }) if nameless => {
            Some(format!("containers are shown without their names: {reason}"))
        }
        _ => None,
    });
    let lost = snapshot.gpus.iter().filter_map(|gpu| {
        let reason = gpu.lost.as_ref()?;
        Some(format!("GPU {} is lost: {reason}", gpu.index))
    });
    let unlisted = snapshot.gpus.iter().filter_map(|gpu| {
        let reason = gpu.blind.as_ref()?;
        Some(format!("GPU {}: its processes cannot be listed: {reason}", gpu.index))
    });
    let divided = snapshot.gpus.iter().filter(|gpu| gpu.mig == Some(true)).map(|gpu| {
        format!("GPU {} is in MIG mode: its instances are not told apart, tenants are shown by GPU", gpu.index)
    });
    blind.chain(lost).chain(unlisted).chain(divided).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use clap::Parser;

    use super::*;
    use crate::testing::{busy, ended, lost};

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn args(line: &[&str]) -> Args {
        Line::parse_from(["ps"].iter().chain(line)).args
    }

    #[test]
    fn a_task_that_ended_on_no_known_gpu_is_left_out_only_if_one_is_asked_for() {
        let mut nowhere = ended().remove(0);
        nowhere.gpus.clear();
        let mut snapshot = busy();
        snapshot.ended.push(Arc::new(nowhere));
        let count = |line: &[&str]| Shown::of(&args(line), &snapshot).ended.len();
        assert_eq!((count(&["--all"]), count(&["--all", "--gpu", "1"]), count(&["--all", "--gpu", "7"])), (2, 1, 0));
    }

    #[test]
    fn a_warning_is_said_once_while_it_lasts_and_again_when_it_comes_back() {
        let (mut told, warnings) = (Told::default(), warnings(&lost()));
        assert!(warnings.iter().any(|warning| warning.starts_with("GPU 0 is lost")), "{warnings:?}");
        assert_eq!(told.news(warnings.clone()), warnings);
        assert_eq!(told.news(warnings.clone()), Vec::<String>::new());
        assert_eq!(told.news(vec![]), Vec::<String>::new());
        assert_eq!(told.news(warnings.clone()), warnings);
    }

    #[test]
    fn a_gpu_in_mig_mode_is_told_and_no_other() {
        let mut snapshot = busy();
        assert_eq!(warnings(&snapshot), Vec::<String>::new());
        (snapshot.gpus[0].mig, snapshot.gpus[1].mig) = (Some(true), None);
        let [warning] = &warnings(&snapshot)[..] else { panic!("{:?}", warnings(&snapshot)) };
        assert!(warning.starts_with("GPU 0 is in MIG mode"), "{warning}");
    }
}
