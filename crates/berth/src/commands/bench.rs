//! `berth bench`: measurements of berth itself.

mod colocate;
mod contention;
mod deadline;
mod edf;
mod hold;
mod launch;
mod live;
mod nodes;
mod placement;
mod policy;
mod squads;
mod virtual_time;
mod watch;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};

use crate::bench::contention::svg::Chart;
use crate::bench::detect::{self, Part, Plan};
use crate::bench::live::sprinter;
use crate::bench::tenant;
use crate::cli::Global;
use crate::interrupt::Interrupt;
use crate::out::{Stdout, say};
use crate::settings;
use crate::stage::{GpuChoice, GroundChoice};

const EXAMPLES: &str = "\
Examples:
  berth bench detect               on the simulated GPU, in containers if Docker runs
  berth bench detect --gpu real    on this host's GPU
  berth bench deadline             containers with deadlines: how exactly they are judged
  berth bench contention           the published figures, in virtual time
  berth bench edf                  missed deadlines under each policy, in virtual time
  berth bench live                 a policy at work on real processes
  berth bench colocate             a server's latency beside a trainer, in every way to share a GPU
  berth bench launch               what a launch costs with berth's library in a program
  berth bench hold                 how fast each means holds and lets go
  berth bench nodes                what a list of a hundred thousand nodes costs
  berth bench placement            missed deadlines on a cluster by who places, in virtual time
  berth bench policy               what each policy inside a GPU comes to, in virtual time
  berth bench squads               equal tenants inside a GPU by turns, by parts, and in squads
  berth bench watch                how well faults are noticed, on drawn scenes";

const DETECT_EXAMPLES: &str = "\
Examples:
  berth bench detect
  berth bench detect --json > result.json
  berth bench detect --gpu real --ground docker
  berth bench detect --part detection --containers 3 --rounds 2

Tenants are started and removed again; a daemon of its own is used, whatever else runs on the host.";

/// Measure berth on this host
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    Detect(Box<Detect>),
    Colocate(Box<colocate::Args>),
    Contention(contention::Args),
    Deadline(Box<deadline::Args>),
    Edf(edf::Args),
    Hold(Box<hold::Args>),
    Launch(launch::Args),
    Live(Box<live::Args>),
    Nodes(nodes::Args),
    Placement(Box<placement::Args>),
    Policy(policy::Args),
    Squads(squads::Args),
    Watch(watch::Args),
    #[command(hide = true)]
    Sprinter(sprinter::Args),
    #[command(hide = true)]
    Tenant(tenant::Args),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Gpu {
    /// A simulated one
    Sim,
    /// This host's own
    Real,
}

/// Where tenants are measured.
#[derive(Debug, clap::Args)]
struct Scene {
    /// On which GPU
    #[arg(long, value_enum, default_value = "sim")]
    gpu: Gpu,
    /// The simulated GPU's profile: a name or a file
    #[arg(long, value_name = "NAME", default_value = "h200")]
    profile: String,
    /// What the tenants are
    #[arg(long, value_enum, default_value = "auto")]
    ground: GroundChoice,
}

impl Scene {
    fn gpu(&self) -> GpuChoice {
        match self.gpu {
            Gpu::Sim => GpuChoice::Sim { profile: self.profile.clone(), gpus: 1, time_scale: None, mps: false },
            Gpu::Real => GpuChoice::Real,
        }
    }
}

/// How exactly tasks are seen, and what seeing them costs
#[derive(Debug, clap::Args)]
#[command(after_help = DETECT_EXAMPLES)]
struct Detect {
    /// Tenants at a time
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    containers: u32,
    /// Processes each tenant runs, one after another
    #[arg(long, value_name = "COUNT", default_value_t = 5)]
    rounds: u32,
    /// Side of the matrices
    #[arg(long, value_name = "N", default_value_t = 5_120)]
    size: u32,
    #[command(flatten)]
    scene: Scene,
    /// Measure only this; may be repeated [default: everything]
    #[arg(long = "part", value_enum)]
    parts: Vec<Part>,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
    /// Also write the JSON to this file
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
}

pub fn run(args: &Args, global: &Global) -> Result<ExitCode> {
    match &args.what {
        What::Tenant(args) => tenant::run(args)?,
        What::Detect(args) => run_detect(args, global)?,
        What::Colocate(args) => colocate::run(args, global)?,
        What::Contention(args) => contention::run(args)?,
        What::Deadline(args) => deadline::run(args, global)?,
        What::Edf(args) => edf::run(args)?,
        What::Hold(args) => hold::run(args, global)?,
        What::Launch(args) => launch::run(args)?,
        What::Live(args) => live::run(args, global)?,
        What::Nodes(args) => nodes::run(args)?,
        What::Placement(args) => placement::run(args)?,
        What::Policy(args) => policy::run(args)?,
        What::Squads(args) => squads::run(args)?,
        What::Watch(args) => watch::run(args)?,
        What::Sprinter(args) => sprinter::run(args)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn run_detect(args: &Detect, global: &Global) -> Result<()> {
    let settings = settings::load(global)?;
    let every = vec![Part::Detection, Part::Curve, Part::Cost, Part::Slowdown];
    let plan = Plan {
        containers: args.containers,
        rounds: args.rounds,
        size: args.size,
        gpu: args.scene.gpu(),
        ground: args.scene.ground,
        docker_socket: settings.docker.socket,
        parts: if args.parts.is_empty() { every } else { args.parts.clone() },
    };
    let interrupt = Interrupt::listen()?;
    let report = interrupt.outcome(detect::run(&plan, &interrupt, &say))?;
    save(args.save.as_deref(), &report)?;
    if args.json { Stdout::json(&report) } else { Stdout::line(&report.to_text()) }
}

/// Writes a report as JSON, if a file was named.
fn save(file: Option<&Path>, report: &impl serde::Serialize) -> Result<()> {
    let Some(file) = file else { return Ok(()) };
    let text = serde_json::to_string_pretty(report)? + "\n";
    std::fs::write(file, text).with_context(|| format!("writing {}", file.display()))
}

/// Writes charts as SVG into a directory, by their file names.
fn write_plots<N: AsRef<Path>>(dir: &Path, charts: impl IntoIterator<Item = (N, Chart)>) -> Result<()> {
    std::fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
    for (name, chart) in charts {
        let file = dir.join(name);
        std::fs::write(&file, chart.to_svg()).with_context(|| format!("writing {}", file.display()))?;
    }
    Ok(())
}
