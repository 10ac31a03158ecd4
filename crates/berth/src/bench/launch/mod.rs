//! `berth bench launch`: what a launch costs with berth's library in the program, beside the bare driver.
//!
//! One program per way, all there at once, each with a context of its own; they launch empty kernels in turn, a batch each, so that
//! whatever drifts drifts for all. What counts is the time of the thread that launches. One process differs from the next by more than the
//! library costs, so each also launches past the library, by the driver's own function: that difference is the library's alone. What else it does to
//! a process shows beside a bare one, in rounds with other processes; a second bare program shows what two differ by. `host` is the
//! library's other end; `torch` does the same for a real training: its rate, and whether its results are the same.

pub mod host;
pub mod report;
mod torch;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use berth_load::roles::words::Said;
use berth_model::settings::KernelSettings;
use berth_proto::shim::SOCKET_VARIABLE;
use serde::Serialize;

use self::host::{Counted, Host, Part};
use self::report::Report;
use self::torch::Training;
use super::colocate::around;
use super::colocate::pair::probe_torch;
use super::colocate::program::{Invocation, Program, Start};
use super::colocate::session::ready;
use super::live::sprinter::Environment;
use super::machine::Machine;
use crate::interrupt::Interrupt;
use crate::stage::{GpuChoice, GroundChoice, Stage};

/// A batch takes milliseconds.
const ANSWERS_WITHIN: Duration = Duration::from_secs(60);
const LINKED_WITHIN: Duration = Duration::from_secs(10);

#[derive(Debug, Clone)]
pub struct Plan {
    pub gpu: GpuChoice,
    pub shim: Option<PathBuf>,
    /// Each with programs of its own.
    pub rounds: u32,
    /// Of a round.
    pub batches: u32,
    /// Of a batch.
    pub launches: u32,
    /// The directory of the PyTorch programs, if there are to be any.
    pub torch: Option<PathBuf>,
    /// Of each turn of a training.
    pub seconds: u32,
}

/// What is in the program that launches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    Bare,
    /// Another program without the library: what two of them differ by is no cost of anything.
    BareToo,
    /// The library, and nobody at its socket.
    Loaded,
    Attached,
    /// Somebody yields to it.
    Leads,
    Yields,
}

impl Way {
    pub const ALL: [Way; 6] = [Self::Bare, Self::BareToo, Self::Loaded, Self::Attached, Self::Leads, Self::Yields];

    pub fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::BareToo => "bare-too",
            Self::Loaded => "loaded",
            Self::Attached => "attached",
            Self::Leads => "leads",
            Self::Yields => "yields",
        }
    }

    /// Nobody else is there to be considered.
    pub fn is_uncontended(self) -> bool {
        matches!(self, Self::Loaded | Self::Attached)
    }
}

/// Of each round, one for each batch.
#[derive(Debug, Clone, PartialEq)]
pub struct Costs {
    pub way: Way,
    pub rounds: Vec<Vec<Cost>>,
}

/// Nanoseconds per launch, and per one past the library.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    pub ns: f64,
    pub past_ns: Option<f64>,
}

pub fn run(plan: &Plan, interrupt: &Interrupt, say: &dyn Fn(&str)) -> anyhow::Result<Report> {
    let stage = Stage::open("berth-launch", &plan.gpu, GroundChoice::Process, Path::new(""))?;
    if let Some(why) = around::why_no_shim(plan.shim.as_deref()) {
        bail!(why);
    }
    let mut machine = Machine::of(&stage)?;
    "programs that launch".clone_into(&mut machine.tenants);
    let scene = Scene::set_up(&stage, plan.shim.as_deref(), interrupt)?;
    let costs = scene.launches(plan, say)?;
    let mut notes = around::debug_note().into_iter().collect::<Vec<_>>();
    let training = match &plan.torch {
        None => None,
        Some(_) if stage.is_simulated() => {
            notes.push("PyTorch is left out: it needs a real GPU".to_owned());
            None
        }
        Some(dir) => match probe_torch(dir) {
            Ok(()) => Some(Training::measure(&scene, dir, plan.seconds, say)?),
            Err(why) => {
                notes.push(format!("PyTorch is left out: {why}"));
                None
            }
        },
    };
    Ok(Report::of(machine, plan, costs, training, notes))
}

/// The library's other ends, and how programs are started with it.
pub struct Scene<'a> {
    /// Links nobody.
    apart: Host,
    /// Links who yields with who leads.
    linked: Host,
    dir: PathBuf,
    shim: PathBuf,
    library_dir: Option<PathBuf>,
    pub interrupt: &'a Interrupt,
}

impl<'a> Scene<'a> {
    fn set_up(stage: &Stage, shim: Option<&Path>, interrupt: &'a Interrupt) -> anyhow::Result<Self> {
        let dir = stage.dir().to_owned();
        let start = |name: &str| {
            std::fs::create_dir(dir.join(name))?;
            Host::start(&dir.join(name), &KernelSettings::default(), false)
        };
        let (apart, linked) = (start("apart")?, start("linked")?);
        let library_dir = around::simulated_library_dir(stage);
        Ok(Self { apart, linked, dir, shim: around::library(shim), library_dir, interrupt })
    }

    /// A program in which the library is as the way says.
    pub fn start(&self, way: Way, invocation: &Invocation) -> anyhow::Result<Program> {
        let environment = self.environment(way);
        let program =
            Program::start(&Start { name: way.name(), invocation, environment, cgroup: None, dir: &self.dir })?;
        match way {
            Way::Bare | Way::BareToo | Way::Loaded => {}
            Way::Attached => self.apart.expect(program.pid(), Part::Attached),
            Way::Leads => self.linked.expect(program.pid(), Part::Leads),
            Way::Yields => self.linked.expect(program.pid(), Part::Yields),
        }
        Ok(program)
    }

    fn environment(&self, way: Way) -> Environment {
        let socket = match way {
            Way::Bare | Way::BareToo => None,
            Way::Loaded => Some(self.dir.join("nobody")),
            Way::Attached => Some(self.apart.socket().to_owned()),
            Way::Leads | Way::Yields => Some(self.linked.socket().to_owned()),
        };
        let mut environment = Environment::new();
        let mut set = |name: &str, value: &Path| drop(environment.insert(name.to_owned(), value.display().to_string()));
        if let Some(socket) = &socket {
            set("LD_PRELOAD", &self.shim);
            set(SOCKET_VARIABLE, socket);
        }
        if let Some(dir) = &self.library_dir {
            set("LD_LIBRARY_PATH", dir);
        }
        environment
    }

    /// By the library in programs of this way, so far.
    pub fn counted(&self, way: Way) -> Counted {
        match way {
            Way::Bare | Way::BareToo | Way::Loaded => Counted::default(),
            Way::Attached => self.apart.counted(),
            Way::Leads | Way::Yields => self.linked.counted(),
        }
    }

    /// Fails unless so many programs are attached and linked: otherwise something else would be measured.
    pub fn until_attached(&self, apart: usize, linked: usize) -> anyhow::Result<()> {
        let deadline = Instant::now() + LINKED_WITHIN;
        while !(self.apart.has(apart, 0) && self.linked.has(linked, linked / 2)) {
            self.interrupt.sleep(Duration::from_millis(5))?;
            if Instant::now() > deadline {
                bail!("programs with {} in them did not all attach", self.shim.display());
            }
        }
        Ok(())
    }

    fn launches(&self, plan: &Plan, say: &dyn Fn(&str)) -> anyhow::Result<Vec<Costs>> {
        let args = ["load", "launch", "--past", "--launches", &plan.launches.to_string()];
        let invocation = Invocation { program: std::env::current_exe()?, args: args.map(str::to_owned).to_vec() };
        let mut costs = Way::ALL.map(|way| Costs { way, rounds: Vec::new() });
        let Plan { rounds, batches, launches, .. } = *plan;
        for round in 1..=rounds {
            say(&format!("round {round} of {rounds}: {batches} batches of {launches} launches each way"));
            let found = self.round(&invocation, batches)?;
            costs.iter_mut().zip(found).for_each(|(costs, found)| costs.rounds.push(found));
        }
        Ok(costs.to_vec())
    }

    /// By other programs each time; what the launches of each batch cost, in the order of the ways.
    fn round(&self, invocation: &Invocation, batches: u32) -> anyhow::Result<Vec<Vec<Cost>>> {
        let mut programs = Vec::new();
        for way in Way::ALL {
            let mut program = self.start(way, invocation)?;
            ready(&mut program, self.interrupt).with_context(|| format!("starting the program that {}", way.name()))?;
            programs.push((program, Vec::new()));
        }
        self.until_attached(1, 2)?;
        for _ in 0..batches {
            for (program, costs) in &mut programs {
                program.tell("go")?;
                match program.hear(ANSWERS_WITHIN, self.interrupt)? {
                    Said::Launched(launched) => {
                        costs.push(Cost { ns: launched.ns_per_launch, past_ns: launched.past_ns_per_launch });
                    }
                    other => bail!("a program said {other:?} instead of what a launch costs"),
                }
            }
        }
        Ok(programs.into_iter().map(|(_, costs)| costs).collect())
    }
}
