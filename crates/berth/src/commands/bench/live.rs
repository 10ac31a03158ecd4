//! `berth bench live`: policies at work on tenants that contend, against nobody managing them.

use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context as _, Result};
use berth_model::settings::PolicyName;

use super::Gpu;
use crate::bench::live::{self, Cell, Plan};
use crate::cli::Global;
use crate::interrupt::Interrupt;
use crate::out::{Stdout, say};
use crate::settings;
use crate::stage::{GpuChoice, GroundChoice};

const EXAMPLES: &str = "\
Examples:
  berth bench live --cell 10x13312 --policy fifo --rounds 3
  berth bench live --gpu real --ground docker --cell 10x13312 --cell 20x8192 --policy fifo --policy paper

Tenants are started and removed again; a daemon of its own is used, whatever else runs on the host.";

/// What a policy makes of tenants that contend, with real processes and a real daemon
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Tenants and the side of their matrices; may be repeated
    #[arg(long = "cell", value_name = "COUNTxSIZE", default_values = ["5x8192"])]
    cells: Vec<CellName>,
    /// Policies to compare with nobody managing; may be repeated
    #[arg(long = "policy", value_name = "NAME", value_enum, default_values = ["fifo"])]
    policies: Vec<Name>,
    /// Runs of each policy in each cell
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// On which GPU
    #[arg(long, value_enum, default_value = "sim")]
    gpu: Gpu,
    /// The simulated GPU's profile: a name or a file
    #[arg(long, value_name = "NAME", default_value = "h200")]
    profile: String,
    /// What the tenants are
    #[arg(long, value_enum, default_value = "auto")]
    ground: GroundChoice,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
    /// Also write the JSON to this file
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Keep what daemons and tenants wrote in this directory
    #[arg(long, value_name = "DIR")]
    logs: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Name {
    /// Berth's own
    Fifo,
    /// Pause newcomers at first sight, as published
    Paper,
    /// Watch and hold nobody
    Off,
}

#[derive(Debug, Clone, Copy)]
struct CellName(Cell);

impl FromStr for CellName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.split_once('x').and_then(|(tenants, size)| Some((tenants.parse().ok()?, size.parse().ok()?)));
        match parsed {
            Some((tenants, size)) if tenants > 0 && size > 0 => Ok(Self(Cell { size, tenants })),
            _ => Err(format!("`{text}` is no cell: write tenants and size, such as `10x13312`")),
        }
    }
}

pub fn run(args: &Args, global: &Global) -> Result<()> {
    let settings = settings::load(global)?;
    let plan = Plan {
        cells: args.cells.iter().map(|cell| cell.0).collect(),
        policies: args.policies.iter().map(|name| policy(*name)).collect(),
        rounds: args.rounds,
        gpu: match args.gpu {
            Gpu::Sim => GpuChoice::Sim { profile: args.profile.clone(), gpus: 1, time_scale: None },
            Gpu::Real => GpuChoice::Real,
        },
        ground: args.ground,
        docker_socket: settings.docker.socket,
        logs: args.logs.clone(),
    };
    let interrupt = Interrupt::listen()?;
    let rows = interrupt.outcome(live::run(&plan, &interrupt, &say))?;
    if let Some(file) = &args.save {
        let text = serde_json::to_string_pretty(&rows)? + "\n";
        std::fs::write(file, text).with_context(|| format!("writing {}", file.display()))?;
    }
    if args.json { Stdout::json(&rows) } else { Stdout::line(&live::to_text(&rows)) }
}

fn policy(name: Name) -> PolicyName {
    match name {
        Name::Fifo => PolicyName::Fifo,
        Name::Paper => PolicyName::Paper,
        Name::Off => PolicyName::Off,
    }
}
