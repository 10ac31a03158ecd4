//! `berth bench deadline`: containers with deadlines, watched from outside and judged, against timers inside.
//!
//! The published measurement again: containers that come and go at random times, each task with a matrix product, start, end and
//! run time as the monitor has them against the task's own, and what the monitor costs by the number of containers. Beside it,
//! which berth can be asked and the publication could not: whether each verdict is the one the timers give.
//!
//! `task` compares, `cost` measures the monitor, `report` judges, `text` prints, `plots` draws. The tenants and their truth are those of `detect`.

pub mod cost;
pub mod plots;
pub mod report;
pub mod task;
mod text;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use berth_api::{Client, DeadlineRequest, paths};
use berth_model::control::DeadlineStanding;
use berth_model::deadline::{Deadline, LABEL, UNIT_LABEL, UnitRule};
use berth_model::settings::Mode;

use self::cost::Sweep;
use self::report::{Container, Measured, Report};
use self::task::{Task, spread_over};
use super::daemon::Daemon;
use super::machine::Machine;
use super::tenants::{PATIENCE, Tenants, Work};
use crate::interrupt::Interrupt;
use crate::live;
use crate::stage::{GpuChoice, GroundChoice, Stage, Tenant};

/// Random pauses before a task are no longer than this.
const GAP_MS: u32 = 1_000;
/// Of containers whose verdicts are not looked at.
const USUAL_DEADLINE: Duration = Duration::from_secs(3);
/// Between two attempts to give somebody a deadline who has not come yet.
const ASK_EVERY: Duration = Duration::from_millis(2);

/// What to measure, and on what.
#[derive(Debug, Clone)]
pub struct Plan {
    pub containers: u32,
    /// Processes of each container, one after another; each has two tasks.
    pub rounds: u32,
    pub size: u32,
    /// Products of each task.
    pub repeats: u32,
    /// Given to the containers in turn; empty: chosen by a rehearsal.
    pub deadlines: Vec<Deadline>,
    /// Numbers of containers at which the monitor's cost is measured, ascending.
    pub counts: Vec<u32>,
    /// How long at each.
    pub window: Duration,
    pub gpu: GpuChoice,
    pub ground: GroundChoice,
    pub docker_socket: PathBuf,
    pub parts: Vec<Part>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Start, end, run time and verdict of every task against its own timers
    Tasks,
    /// CPU and memory of the monitor by the number of containers
    Cost,
}

/// Measures; `say` is told what is going on. Interrupted, it removes what it made before it returns.
pub fn run(plan: &Plan, interrupt: &Interrupt, say: &dyn Fn(&str)) -> anyhow::Result<Report> {
    if plan.window.is_zero() {
        bail!("--window must be more than 0: nothing would be measured");
    }
    let mut stage = Stage::open("berth-deadline", &plan.gpu, plan.ground, &plan.docker_socket)?;
    if stage.is_bare() {
        let why: String = stage.shortcomings().iter().map(|line| format!("; {line}")).collect();
        bail!("bare processes of one user are one tenant: run this as root, with --ground docker or cgroup{why}");
    }
    stage.shortcomings().iter().for_each(|why| say(why));
    say(&format!("tenants are {}", stage.ground()));
    let machine = Machine::of(&stage)?;
    let mut bench = Bench { plan, tenants: Tenants::on(&mut stage, interrupt), interrupt, say };
    let mut measured = Measured::new(machine, plan);
    if plan.parts.contains(&Part::Tasks) {
        measured.containers = bench.tasks()?;
    }
    if plan.parts.contains(&Part::Cost) {
        bench.cost(&mut measured)?;
    }
    Ok(Report::of(measured))
}

struct Bench<'a> {
    plan: &'a Plan,
    tenants: Tenants<'a>,
    interrupt: &'a Interrupt,
    say: &'a dyn Fn(&str),
}

impl<'b> Bench<'b> {
    /// Everything the host has to see by; a task is judged as a whole, whatever it does in between.
    fn daemon(&self) -> anyhow::Result<Daemon> {
        self.interrupt.check()?;
        let mut settings = self.tenants.stage.settings();
        settings.probes.mode = Mode::Required;
        settings.deadline.unit = UnitRule::Task;
        Daemon::start(&settings, self.tenants.stage.dir())
    }

    fn work(&self, rounds: u32, deadline: Option<Deadline>) -> Work {
        let Plan { size, repeats, .. } = *self.plan;
        let deadline = deadline.map(|deadline| (LABEL.to_owned(), deadline.to_string()));
        let labels = deadline.into_iter().chain([(UNIT_LABEL.to_owned(), "task".to_owned())]).collect();
        Work { rounds, size, repeats, gap_ms: GAP_MS, labels }
    }

    fn tasks(&mut self) -> anyhow::Result<Vec<Container>> {
        let Plan { containers, rounds, .. } = *self.plan;
        let daemon = self.daemon()?;
        let deadlines = self.deadlines(&daemon)?;
        (self.say)(&format!("{containers} containers with deadlines, {rounds} processes each"));
        let work: Vec<Work> = deadlines.iter().map(|deadline| self.work(rounds, Some(*deadline))).collect();
        let (has_labels, interrupt) = (self.tenants.stage.has_labels(), self.interrupt);
        let outcome = self.tenants.observe(daemon.client(), &work, |tenants| {
            if has_labels { Ok(()) } else { set_deadlines(&daemon.client(), tenants, &deadlines, interrupt) }
        })?;
        let of_each = outcome.stays.iter().zip(deadlines);
        let of_each = of_each.map(|((tenant, stays), deadline)| {
            let key = tenant.key().context("a tenant that cannot be told from others")?;
            let tasks = Task::all(stays, &outcome.reports, key, deadline);
            Ok(Container::of(tenant.name(), deadline, tasks))
        });
        of_each.collect()
    }

    /// One for each container. Where nobody named any, they are spread over the run times of a rehearsal, so that there are hits and
    /// misses on any GPU.
    fn deadlines(&mut self, daemon: &Daemon) -> anyhow::Result<Vec<Deadline>> {
        let count = self.plan.containers as usize;
        if !self.plan.deadlines.is_empty() {
            return Ok(self.plan.deadlines.iter().copied().cycle().take(count).collect());
        }
        (self.say)("rehearsal, for the deadlines");
        let work = vec![self.work(1, None); count];
        let outcome = self.tenants.observe(daemon.client(), &work, |_| Ok(()))?;
        let run_times: Vec<f64> =
            outcome.stays.iter().flat_map(|(_, stays)| stays).filter_map(task::run_seconds).collect();
        spread_over(&run_times, count).context("no task of the rehearsal has told its own run time")
    }

    fn cost(&mut self, measured: &mut Measured) -> anyhow::Result<()> {
        // What judging costs is part of it.
        let deadline = self.plan.deadlines.first().copied().or(Deadline::new(USUAL_DEADLINE));
        let work = self.work(cost::ROUNDS, deadline);
        measured.cost = self.sweep(&work).unwatched()?;
        let daemon = self.daemon()?;
        let (watched, samples) = self.sweep(&work).watched(&daemon)?;
        measured.cost.extend(watched);
        measured.samples = samples;
        Ok(())
    }

    fn sweep<'s>(&'s mut self, work: &'s Work) -> Sweep<'s, 'b> {
        let Plan { counts, window, .. } = self.plan;
        Sweep { tenants: &mut self.tenants, interrupt: self.interrupt, work, counts, window: *window, say: self.say }
    }
}

/// Tenants without labels are given theirs as `berth deadline set` does it: as soon as they come to the GPU, nobody knows them before.
fn set_deadlines(
    client: &Client,
    tenants: &[Tenant],
    deadlines: &[Deadline],
    interrupt: &Interrupt,
) -> anyhow::Result<()> {
    let (runtime, end) = (live::runtime()?, Instant::now() + PATIENCE);
    let mut left: Vec<(&Tenant, Deadline)> = tenants.iter().zip(deadlines.iter().copied()).collect();
    while let Some((tenant, deadline)) = left.pop() {
        let request = DeadlineRequest {
            tenant: tenant.name().to_owned(),
            deadline: Some(deadline),
            ..DeadlineRequest::default()
        };
        let asked = runtime.block_on(client.post::<DeadlineStanding>(paths::DEADLINE, &request));
        match asked {
            Ok(_) => {}
            Err(error) if error.code() == Some("no_such_tenant") && Instant::now() < end => {
                left.insert(0, (tenant, deadline));
                interrupt.sleep(ASK_EVERY)?;
            }
            Err(error) => return Err(error).with_context(|| format!("giving {} its deadline", tenant.name())),
        }
    }
    Ok(())
}
