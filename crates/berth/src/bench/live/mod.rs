//! `berth bench live`: tenants that contend on a GPU, with a real daemon that manages them and without.
//!
//! All tenants of a cell are there from its beginning and compute one product each at the same word, again and again: once
//! with nobody managing, once in each other way, in turn, so that whatever drifts on the host drifts for all. Each run
//! is compared with the unmanaged one of its round.
//!
//! `sprinter` is the tenant, `round` makes one run, `timeline` says where its time went, `report` puts runs together, `goals`
//! judges them, `compare` sets them beside what `berth bench contention` predicts in virtual time.

pub mod compare;
pub mod goals;
pub mod mps;
pub mod report;
mod round;
pub mod sprinter;
pub mod timeline;
pub mod way;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use berth_model::Span;
use serde::Serialize;

use self::round::{Round, RunFailed};
use self::sprinter::workload_lines;
use self::timeline::Timeline;
use self::way::{Contender, Way};
use super::machine::Machine;
use crate::interrupt::Interrupt;
use crate::stage::{GpuChoice, GroundChoice, Launch, Stage, Tenant};

/// What to measure, and on what.
#[derive(Debug, Clone)]
pub struct Plan {
    pub cells: Vec<Cell>,
    /// Besides the unmanaged one.
    pub contenders: Vec<Contender>,
    pub rounds: u32,
    /// Begin no further round after this long.
    pub within: Option<Duration>,
    pub gpu: GpuChoice,
    pub ground: GroundChoice,
    pub docker_socket: PathBuf,
    /// Where to keep what daemons and tenants wrote.
    pub logs: Option<PathBuf>,
}

/// This many tenants, each with a product of this size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Cell {
    pub size: u32,
    pub tenants: u32,
    /// What each does on the host before it asks for the GPU.
    pub host_time: Span,
}

/// Everything that was measured so far.
#[derive(Debug, Clone)]
pub struct Measured {
    pub machine: Machine,
    pub cells: Vec<MeasuredCell>,
    /// What was left out, and why.
    pub notes: Vec<String>,
}

#[derive(Debug, Clone)]
pub struct MeasuredCell {
    pub cell: Cell,
    pub ways: Vec<MeasuredWay>,
}

#[derive(Debug, Clone)]
pub struct MeasuredWay {
    pub way: Way,
    pub runs: Vec<Run>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Run {
    pub round: u32,
    /// From the word to the last end.
    pub total_s: f64,
    /// From the word to a tenant's end; mean over tenants.
    pub mean_completion_s: f64,
    pub timeline: Option<Timeline>,
}

/// Measures; `say` is told what is going on, and `keep` what there is after every run, so that nothing is lost by an end in
/// the middle.
pub fn run(
    plan: &Plan,
    interrupt: &Interrupt,
    say: &dyn Fn(&str),
    keep: &mut dyn FnMut(&Measured) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let began = Instant::now();
    let mut stage = open(plan)?;
    let mps = mps::control().filter(|_| !stage.is_simulated());
    let asks_mps = plan.contenders.iter().any(|contender| contender.way == Way::Mps);
    let mut measured = Measured { machine: Machine::of(&stage)?, cells: Vec::new(), notes: Vec::new() };
    stage.shortcomings().iter().for_each(|why| say(why));
    say(&format!("tenants are {}", stage.ground()));
    let mut contenders = plan.contenders.clone();
    if asks_mps && mps.is_none() {
        let why = if stage.is_simulated() { "the simulated GPU has no server" } else { "no nvidia-cuda-mps-control" };
        measured.note(format!("mps is left out: {why}"), say);
        contenders.retain(|contender| contender.way != Way::Mps);
    } else if asks_mps {
        // Clients and server share memory.
        stage.share_ipc();
    }
    contenders.insert(0, Contender { way: Way::Unmanaged, rounds: None });
    let mut bench = Bench { plan, stage, mps, interrupt, say, began, contenders, measured };
    for cell in &plan.cells {
        bench.cell(*cell, keep)?;
    }
    Ok(())
}

/// Where every tenant can be told from the others, and held.
fn open(plan: &Plan) -> anyhow::Result<Stage> {
    let stage = Stage::open("berth-live", &plan.gpu, plan.ground, &plan.docker_socket);
    let stage = match plan.ground {
        GroundChoice::Docker => {
            stage.context("--set docker.socket=PATH names another engine, --ground cgroup needs none")?
        }
        _ => stage?,
    };
    if stage.is_bare() {
        let why: String = stage.shortcomings().iter().map(|line| format!("; {line}")).collect();
        bail!(
            "bare processes of one user are one tenant: run this as root, with --ground docker or cgroup, so that \
             tenants can be told apart{why}"
        );
    }
    Ok(stage)
}

struct Bench<'a> {
    plan: &'a Plan,
    stage: Stage,
    /// The control program.
    mps: Option<PathBuf>,
    interrupt: &'a Interrupt,
    say: &'a dyn Fn(&str),
    began: Instant,
    contenders: Vec<Contender>,
    measured: Measured,
}

impl Bench<'_> {
    fn cell(&mut self, cell: Cell, keep: &mut dyn FnMut(&Measured) -> anyhow::Result<()>) -> anyhow::Result<()> {
        if self.is_over() {
            return Ok(());
        }
        let in_rounds =
            |contender: &Contender| contender.rounds.map_or(self.plan.rounds, |most| most.min(self.plan.rounds));
        let most_runs = self.contenders.iter().map(in_rounds).sum();
        (self.say)(&format!("{cell}: {most_runs} runs"));
        let tenants = self.start(cell, most_runs)?;
        let ways = self.contenders.iter().map(|contender| MeasuredWay { way: contender.way, runs: Vec::new() });
        self.measured.cells.push(MeasuredCell { cell, ways: ways.collect() });
        let mut left_out = vec![false; self.contenders.len()];
        let mut number = 0;
        for round in 0..self.plan.rounds {
            if round > 0 && self.is_over() {
                self.measured.note(format!("{cell}: {round} rounds, then the time was over"), self.say);
                break;
            }
            for (index, is_left_out) in left_out.iter_mut().enumerate() {
                if *is_left_out || !self.contenders[index].is_in(round) {
                    continue;
                }
                *is_left_out = !self.one(cell, &tenants, Turn { index, round, number })?;
                keep(&self.measured)?;
                number += 1;
            }
        }
        self.clear(&tenants)
    }

    /// Whether it went well: a way in which a tenant failed is left out from then on, the unmanaged one excepted.
    fn one(&mut self, cell: Cell, tenants: &[Tenant], turn: Turn) -> anyhow::Result<bool> {
        let way = self.contenders[turn.index].way;
        let progress = |text: &str| (self.say)(&format!("{cell}, {}: {text}", way.name()));
        let (interrupt, say) = (self.interrupt, &progress);
        let round = Round { stage: &self.stage, mps: self.mps.as_deref(), tenants, interrupt, say };
        let run = round.run(way, turn.round, turn.number);
        if let (Way::Managed(_), Some(dir)) = (way, &self.plan.logs) {
            let name = format!("{}x{}-{}-{}.log", cell.tenants, cell.size, way.name(), turn.number);
            keep_file(&self.stage.dir().join("daemon.log"), dir, &name)?;
        }
        match run {
            Ok(run) => {
                let (total, mean) = (run.total_s, run.mean_completion_s);
                (self.say)(&format!("{cell}, {}: {total:.3} s, mean {mean:.3} s", way.name()));
                if let Some(measured) = self.measured.cells.last_mut() {
                    measured.ways[turn.index].runs.push(run);
                }
                Ok(true)
            }
            Err(RunFailed::Way(error)) if way != Way::Unmanaged => {
                let why = format!("{cell}, {} is left out from round {} on: {error:#}", way.name(), turn.round + 1);
                self.measured.note(why, self.say);
                Ok(false)
            }
            Err(RunFailed::Way(error) | RunFailed::Measurement(error)) => Err(error),
        }
    }

    fn is_over(&self) -> bool {
        self.plan.within.is_some_and(|within| self.began.elapsed() > within)
    }

    fn start(&mut self, cell: Cell, runs: u32) -> anyhow::Result<Vec<Tenant>> {
        let args = ["bench", "sprinter", "--size", &cell.size.to_string(), "--runs", &runs.to_string()];
        let args: Vec<String> = args.into_iter().map(str::to_owned).collect();
        let args = [args, vec!["--host-time".to_owned(), cell.host_time.to_string()]].concat();
        let name = |number| format!("n{}-t{number}", cell.size);
        let launch = |number| Launch { name: name(number), args: args.clone(), ..Launch::default() };
        (0..cell.tenants).map(|number| self.stage.launch(&launch(number))).collect()
    }

    /// Ends the tenants and removes the words that were given.
    fn clear(&mut self, tenants: &[Tenant]) -> anyhow::Result<()> {
        for tenant in tenants {
            if let Some(dir) = &self.plan.logs {
                keep_file(&workload_lines(&tenant.lines), dir, &format!("{}.jsonl", tenant.name()))?;
            }
            self.stage.end(tenant)?;
        }
        let out = self.stage.dir().join("out");
        std::fs::remove_dir_all(&out)
            .and_then(|()| std::fs::create_dir(&out))
            .context("clearing the tenants' directory")
    }
}

/// Which contender, in which round, in which run of the cell.
#[derive(Clone, Copy)]
struct Turn {
    index: usize,
    round: u32,
    number: u32,
}

impl Measured {
    fn note(&mut self, note: String, say: &dyn Fn(&str)) {
        say(&note);
        self.notes.push(note);
    }
}

impl std::fmt::Display for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} × {}²", self.tenants, self.size)
    }
}

fn keep_file(file: &Path, dir: &Path, name: &str) -> anyhow::Result<()> {
    std::fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
    let name = name.replace('/', "_");
    std::fs::copy(file, dir.join(&name)).with_context(|| format!("keeping {} as {name}", file.display()))?;
    Ok(())
}
