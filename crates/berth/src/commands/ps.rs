//! `berth ps`: who is on the GPUs, as a table or JSON. Asks the daemon, or looks once itself.

mod watch;

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use berth_api::{Client, ClientError, paths};
use berth_model::snapshot::{EndedTask, SourceView};
use berth_model::{GpuIndex, GpuView, Settings, Snapshot, Source, SourceStatus, Span, TaskRow};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Serialize;

use crate::cli::Global;
use crate::on_record::OnRecord;
use crate::out::{Stdout, colours_wanted};
use crate::table::{self, Style};
use crate::{countdown, engine, live, logging, settings, words};

const EXAMPLES: &str = "\
Examples:
  berth ps                         who is on the GPUs
  berth ps --gpu 0 --all           on one GPU, with those who left lately
  berth ps --watch 2s              again every two seconds
  berth ps --wide                  also why those who are held are, and whose word a deadline is
  berth ps --json | jq -r '.[] | select(.state == \"idle\") | .container_name'

With --json: an array with one object per tenant and GPU. With --all: an object with two arrays,
`tasks` and `ended`, and `on_record`, null while a daemon runs. With --watch: one line of that per
look, at most one per interval. Unknown is null.
HOLD is shown while anybody is held: held and how long in this task, its place in line (#2 of 3),
gated (runs until its next launch), or exempt (a person released it, or a rule says so). `dry` is
before what a dry run would do. Below it, who waits for whom. `berth explain` tells why.
DEADLINE, FLOAT and HITS are shown while anybody has a deadline. FLOAT is what is left until the
work under way is due: below zero it is late, and a dash is nothing under way. On a terminal it is
green, yellow if it ends in time only when it takes no longer than usual, red if it is expected to
be late or is. `12/14` is 12 met of 14. `set` is a person's word, which goes before the label;
`1s -> 5s` is what was asked for and what the settings allow.
What does not fit the terminal is left out, ids first; --wide and --no-trunc show all.
GPUs that are lost, cannot be looked at or are in MIG mode are told on standard error.
Without a daemon berth looks once itself, and says so; whom its records say to be held is shown as
far as this user may read them.

Exit codes: 0 the GPUs were looked at, also if nobody is there or some of them are lost;
3 nothing could be looked at, so that an empty answer means nothing (standard error says why);
1 any other failure.";

/// Nobody could look: told apart from failures, since a script may want to go on.
const NOTHING_SEEN: u8 = 3;

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
    /// Also why those who are held are, what deadlines are for and where they come from
    #[arg(long)]
    wide: bool,
}

impl Args {
    fn asked_for<'a>(&self, snapshot: &'a Snapshot) -> impl Iterator<Item = &'a GpuView> {
        let wanted = self.gpu.map(GpuIndex);
        snapshot.gpus.iter().filter(move |gpu| wanted.is_none_or(|wanted| gpu.index == wanted))
    }

    fn style(&self) -> Style {
        let colours = Stdout::is_terminal() && colours_wanted();
        Style { width: Stdout::width(), full: self.no_trunc, wide: self.wide, colours }
    }
}

pub fn run(args: &Args, global: &Global) -> Result<ExitCode> {
    let settings = settings::load(global)?;
    logging::start_if_asked(global.log.is_some(), &settings.log)?;
    if let Some(interval) = args.watch {
        watch::run(args, &settings, interval.get())?;
        return Ok(ExitCode::SUCCESS);
    }
    let (snapshot, record) = once(&settings)?;
    show(args, &snapshot, record.as_ref(), &mut Told::default())?;
    Ok(if Seen::of(args, &snapshot) == Seen::Nothing { ExitCode::from(NOTHING_SEEN) } else { ExitCode::SUCCESS })
}

/// What the daemon says; without one what a look shows, and what is on record about holds.
fn once(settings: &Settings) -> Result<(Snapshot, Option<OnRecord>)> {
    let client = Client::new(&settings.api.socket);
    let deadline = Instant::now() + FIRST_LOOK_WITHIN;
    loop {
        match live::ask(&client, paths::SNAPSHOT)? {
            Ok(snapshot) => return Ok((snapshot, None)),
            Err(error) if error.is_not_ready() && Instant::now() < deadline => std::thread::sleep(ASK_AGAIN),
            Err(error @ (ClientError::Absent { .. } | ClientError::Connect { .. })) => return look(settings, &error),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Without a daemon. What one look cannot know is said, so that nobody takes it for nothing.
fn look(settings: &Settings, because: &ClientError) -> Result<(Snapshot, Option<OnRecord>)> {
    eprintln!("berth: {}; looked once without it,", live::describe(because));
    eprintln!("berth: so starts are those of the processes, and who is idle or has left is not known");
    let mut snapshot = engine::sample_once(settings)?;
    let record = OnRecord::read(settings);
    record.mark(&mut snapshot);
    Ok((snapshot, Some(record)))
}

fn show(args: &Args, snapshot: &Snapshot, record: Option<&OnRecord>, told: &mut Told) -> Result<()> {
    let shown = Shown::of(args, snapshot, record);
    let note = nobody(args, snapshot).filter(|_| !args.json && shown.tasks.is_empty());
    let recorded = record.into_iter().flat_map(|record| record.unknown.iter().cloned().chain(record.advice()));
    for warning in told.news(warnings(args, snapshot).into_iter().chain(note).chain(recorded).collect()) {
        eprintln!("berth: {warning}");
    }
    if args.json {
        return shown.print_json(args);
    }
    let passed = countdown::since(snapshot, Timestamp::now());
    let rows: Vec<TaskRow> = shown.tasks.iter().map(|row| countdown::after(row, passed)).collect();
    let mut text = table::of_tasks(&rows, args.style());
    // The line is the host's, not one GPU's.
    let management = snapshot.management.as_ref().filter(|_| args.gpu.is_none());
    let queue = management.and_then(|all| words::hold::queue(all, snapshot.taken_at));
    let recorded = record.and_then(|record| words::hold::on_record(record, snapshot.taken_at));
    let kernels = snapshot.kernels.as_ref().and_then(words::kernels::listed);
    for (title, lines) in queue.into_iter().chain(kernels).chain(recorded) {
        text += &format!("\n{title}\n{}", lines.into_iter().map(|line| line + "\n").collect::<String>());
    }
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
    /// `None` where a daemon was asked.
    on_record: Option<&'a OnRecord>,
}

impl<'a> Shown<'a> {
    fn of(args: &Args, snapshot: &'a Snapshot, on_record: Option<&'a OnRecord>) -> Self {
        let is_wanted = |gpu: Option<GpuIndex>| args.gpu.is_none_or(|wanted| gpu == Some(GpuIndex(wanted)));
        // An ended task may have been on no known GPU: it is left out only if somebody asked for one.
        let was_wanted = |task: &&EndedTask| args.gpu.is_none() || task.gpus.iter().any(|gpu| is_wanted(Some(*gpu)));
        Self {
            tasks: snapshot.tasks.iter().filter(|row| is_wanted(row.gpu_index)).collect(),
            ended: snapshot.ended.iter().map(AsRef::as_ref).filter(was_wanted).collect(),
            on_record,
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

/// How much of what was asked for could be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    All,
    Some,
    Nothing,
}

impl Seen {
    fn of(args: &Args, snapshot: &Snapshot) -> Self {
        let is_blind =
            |view: &SourceView| view.source == Source::Nvml && matches!(view.status, SourceStatus::Down { .. });
        let asked: Vec<bool> = args.asked_for(snapshot).map(|gpu| gpu.lost.is_none() && gpu.blind.is_none()).collect();
        // A host without GPUs has been looked at, one without the GPU that was asked for has not.
        let is_missing = args.gpu.is_some() && asked.is_empty();
        if snapshot.sources.iter().any(is_blind) || is_missing {
            return Seen::Nothing;
        }
        match asked.iter().filter(|is_seen| **is_seen).count() {
            seen if seen == asked.len() => Seen::All,
            0 => Seen::Nothing,
            _ => Seen::Some,
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

/// For an empty table; `None` where nothing was seen, which the warnings tell.
fn nobody(args: &Args, snapshot: &Snapshot) -> Option<String> {
    match (Seen::of(args, snapshot), args.gpu) {
        (Seen::Nothing, _) => None,
        (Seen::All, _) if snapshot.gpus.is_empty() => Some("the driver lists no GPU".to_owned()),
        (Seen::All, Some(gpu)) => Some(format!("nobody uses GPU {gpu}")),
        (Seen::All, None) => Some("nobody uses the GPUs".to_owned()),
        (Seen::Some, _) => Some("nobody uses the others".to_owned()),
    }
}

/// An empty table must not be taken for an empty GPU when nobody could look, nor an id for a name.
fn warnings(args: &Args, snapshot: &Snapshot) -> Vec<String> {
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
    let is_missing = !snapshot.gpus.is_empty() && args.asked_for(snapshot).next().is_none();
    let missing = args.gpu.filter(|_| is_missing).map(|wanted| {
        let there: Vec<String> = snapshot.gpus.iter().map(|gpu| gpu.index.to_string()).collect();
        format!("there is no GPU {wanted} (there are: {})", there.join(", "))
    });
    blind.chain(lost).chain(unlisted).chain(divided).chain(missing).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use clap::Parser;

    use super::*;
    use crate::testing::{busy, empty, ended, gpu, lost};

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
        let count = |line: &[&str]| Shown::of(&args(line), &snapshot, None).ended.len();
        assert_eq!((count(&["--all"]), count(&["--all", "--gpu", "1"]), count(&["--all", "--gpu", "7"])), (2, 1, 0));
    }

    #[test]
    fn a_warning_is_said_once_while_it_lasts_and_again_when_it_comes_back() {
        let (mut told, warnings) = (Told::default(), warnings(&args(&[]), &lost()));
        assert!(warnings.iter().any(|warning| warning.starts_with("GPU 0 is lost")), "{warnings:?}");
        assert_eq!(told.news(warnings.clone()), warnings);
        assert_eq!(told.news(warnings.clone()), Vec::<String>::new());
        assert_eq!(told.news(vec![]), Vec::<String>::new());
        assert_eq!(told.news(warnings.clone()), warnings);
    }

    #[test]
    fn a_gpu_in_mig_mode_is_told_and_no_other() {
        let mut snapshot = busy();
        let warnings = |snapshot: &Snapshot| warnings(&args(&[]), snapshot);
        assert_eq!(warnings(&snapshot), Vec::<String>::new());
        (snapshot.gpus[0].mig, snapshot.gpus[1].mig) = (Some(true), None);
        let [warning] = &warnings(&snapshot)[..] else { panic!("{:?}", warnings(&snapshot)) };
        assert!(warning.starts_with("GPU 0 is in MIG mode"), "{warning}");
    }

    #[test]
    fn whoever_could_not_look_says_nothing_was_seen_and_not_that_nobody_is_there() {
        let told = |line: &[&str], snapshot: &Snapshot| {
            let args = args(line);
            (Seen::of(&args, snapshot), nobody(&args, snapshot))
        };
        let says = |words: &str| Some(words.to_owned());
        let mut host = empty();
        host.gpus.push(gpu(1, 0, 0));
        assert_eq!(told(&[], &host), (Seen::All, says("nobody uses the GPUs")));
        assert_eq!(told(&["--gpu", "1"], &host), (Seen::All, says("nobody uses GPU 1")));
        assert_eq!(told(&["--gpu", "7"], &host), (Seen::Nothing, None));
        assert_eq!(warnings(&args(&["--gpu", "7"]), &host), ["there is no GPU 7 (there are: 0, 1)"]);
        host.gpus[0].lost = says("XID 79");
        assert_eq!(told(&[], &host), (Seen::Some, says("nobody uses the others")));
        assert_eq!(told(&["--gpu", "0"], &host), (Seen::Nothing, None));
        host.gpus[1].blind = says("unknown error");
        assert_eq!(told(&[], &host), (Seen::Nothing, None));
        host.gpus.clear();
        assert_eq!(told(&[], &host), (Seen::All, says("the driver lists no GPU")));
        host.sources[0].status = SourceStatus::Down { reason: "no driver".into() };
        assert_eq!(told(&[], &host), (Seen::Nothing, None));
    }
}
