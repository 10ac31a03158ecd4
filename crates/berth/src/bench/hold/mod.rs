//! `berth bench hold`: how soon a tenant stands still once that is decided, and how soon it runs once it is let go, by
//! every means this host has.
//!
//! What is measured is what the daemon does: the steps that [`berth_model::hold::next`] names, performed by the host's own
//! hands on real processes of a stage. Whether a tenant runs is seen by the tenant itself: the workload's lines carry its own
//! clock, and none of them may be dated within a hold. Not in it: the daemon's decision, and handing a step to a thread.

mod bare;
mod freeze;
mod gate;
mod lines;
mod lock;
mod on_hold;
mod park;
mod pen;
pub mod report;
mod subject;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use anyhow::{Context as _, bail};
use berth_host::docker::Pauser;
use berth_host::driver::{self, Driver, DriverHands, ParkOptions, Parking};
use berth_host::freezer::{Freezer, Hierarchies};
use berth_host::hands::{Hands, HostHands};
use berth_host::nvml::NvmlProbe;
use berth_host::probes::{self, Probes};
use berth_host::procs::Registry;
use berth_model::settings::Mode;
use berth_model::{Bytes, Event, Settings};
use berth_store::{Journal, Role};

use self::report::{Measured, Row};
use super::machine::Machine;
use crate::interrupt::Interrupt;
use crate::stage::{GpuChoice, GroundChoice, Stage};

/// What to measure, and on what.
#[derive(Debug, Clone)]
pub struct Plan {
    pub parts: Vec<Part>,
    /// Holds of each kind; slow ones are made less often.
    pub turns: usize,
    /// GPU memory to park.
    pub sizes: Vec<Bytes>,
    pub gpu: GpuChoice,
    pub ground: GroundChoice,
    pub docker_socket: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Docker's pause
    Docker,
    /// The kernel's freezer, in every hierarchy that has one
    Cgroup,
    /// The driver's lock, of an idle and of a busy tenant
    Lock,
    /// The stop at the next launch, and what it costs before and after
    Gate,
    /// Moving GPU memory to host memory and back
    Park,
}

impl Part {
    pub const ALL: [Part; 5] = [Part::Docker, Part::Cgroup, Part::Lock, Part::Gate, Part::Park];
}

/// For the Docker Engine to answer.
const ENGINE_WITHIN: Duration = Duration::from_secs(5);
/// For nobody: it is a new one.
const JOURNAL_WITHIN: Duration = Duration::from_secs(1);
const STAGE: &str = "berth-hold";

/// Measures; `say` is told what is going on, and `keep` what there is after every part, so that nothing is lost by an end in
/// the middle.
pub fn run(
    plan: &Plan,
    interrupt: &Interrupt,
    say: &dyn Fn(&str),
    keep: &mut dyn FnMut(&Measured) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    if plan.ground == GroundChoice::Process {
        bail!("bare processes of one user have no cgroup of their own: choose docker or cgroup");
    }
    // Before the stage looks for what an earlier one left: who is frozen there cannot even die.
    pen::remove_left_behind(&Hierarchies::under(&Settings::default().hold.cgroup_root));
    let mut stage = Stage::open(STAGE, &plan.gpu, plan.ground, &plan.docker_socket)?;
    say(&format!("tenants are {}", stage.ground()));
    let host = Host::open(&stage.settings())?;
    let mut measured = Measured { machine: Machine::of(&stage)?, rows: Vec::new(), absent: Vec::new() };
    let mut bench = Bench { plan, stage: &mut stage, host: &host, interrupt, say, launched: 0 };
    for part in Part::ALL.into_iter().filter(|part| plan.parts.contains(part)) {
        let outcome = bench.part(part, &mut measured.rows);
        if let (Err(error), None) = (&outcome, interrupt.noted()) {
            let why = format!("{}: {error:#}", part.name());
            say(&why);
            measured.absent.push(why);
        }
        // Also of a part that came to no end.
        keep(&measured)?;
        interrupt.check()?;
    }
    Ok(())
}

/// The host's means, opened as the daemon opens them.
struct Host {
    hierarchies: Hierarchies,
    freezer: Arc<Freezer>,
    hands: Arc<dyn Hands>,
    journal: Journal,
    /// As the driver has it.
    driver: Result<Driver, String>,
    probes: Result<Arc<Probes>, String>,
    registry: Registry,
    events: Receiver<Event>,
    uses_docker: bool,
}

impl Host {
    fn open(settings: &Settings) -> anyhow::Result<Host> {
        let proc_root = &settings.processes.proc_root;
        let hierarchies = Hierarchies::under(&settings.hold.cgroup_root);
        let freezer = Arc::new(Freezer::new(proc_root, hierarchies.clone(), settings.hold.freeze_within.get()));
        let mut hands = HostHands::new(proc_root, freezer.clone());
        let uses_docker = settings.docker.mode != Mode::Off;
        if uses_docker {
            hands = hands.with_docker(Pauser::new(&settings.docker.socket, ENGINE_WITHIN));
        }
        let options = driver::Options { proc_root: proc_root.clone(), ..Default::default() };
        let driver = Driver::open(&settings.hold.driver, options).map_err(|error| error.to_string());
        if let Ok(driver) = &driver {
            let probe = NvmlProbe::open(&settings.nvml.library).context("opening NVML")?;
            let parking = Some(Parking::new(driver.clone(), Box::new(probe), ParkOptions::default()));
            let lock_timeout = settings.hold.lock_within.get();
            hands = hands.with_driver(Arc::new(DriverHands { driver: driver.clone(), parking, lock_timeout }));
        }
        let (event_tx, events) = mpsc::channel();
        let registry = Registry::new(proc_root, event_tx.clone()).context("watching processes")?;
        let options = probes::Options { libraries: settings.probes.libraries.clone(), ..Default::default() };
        let resolver = registry.clone();
        let probes = Probes::start(options, move |pid| resolver.resolve(pid), event_tx);
        let probes = probes.map(Arc::new).map_err(|error| error.to_string());
        if let Ok(probes) = &probes {
            registry.route_exits(probes.behind());
            hands = hands.with_gate(probes.clone());
        }
        let opened = Journal::open(&settings.hold.journal, Role::Daemon, JOURNAL_WITHIN, proc_root);
        let (journal, _) = opened.context("opening a journal")?;
        Ok(Host {
            hierarchies,
            freezer,
            hands: Arc::new(hands),
            journal,
            driver,
            probes,
            registry,
            events,
            uses_docker,
        })
    }
}

struct Bench<'a> {
    plan: &'a Plan,
    stage: &'a mut Stage,
    host: &'a Host,
    interrupt: &'a Interrupt,
    say: &'a dyn Fn(&str),
    launched: u32,
}

impl Bench<'_> {
    /// `rows` gets each as soon as it is known.
    fn part(&mut self, part: Part, rows: &mut Vec<Row>) -> anyhow::Result<()> {
        (self.say)(&format!("measuring {}", part.name()));
        match part {
            Part::Docker => freeze::docker(self, rows),
            Part::Cgroup => freeze::cgroups(self, rows),
            Part::Lock => lock::measure(self, rows),
            Part::Gate => gate::measure(self, rows),
            Part::Park => park::measure(self, rows),
        }
    }

    fn proc_root(&self) -> &Path {
        Path::new("/proc")
    }
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Part::Docker => "docker pause",
            Part::Cgroup => "cgroup",
            Part::Lock => "lock",
            Part::Gate => "gate",
            Part::Park => "park",
        }
    }
}
