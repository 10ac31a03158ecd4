//! `berth bench live`: policies at work on tenants that contend, against nobody managing them.

use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context as _, Result, bail};
use berth_model::Span;
use berth_sim::Profile;

use super::{Gpu, Scene, save};
use crate::bench::live::report::Report;
use crate::bench::live::way::Contender;
use crate::bench::live::{self, Cell, Plan, compare};
use crate::cli::Global;
use crate::commands::sim::profile;
use crate::interrupt::Interrupt;
use crate::out::{Stdout, say};
use crate::settings;

const EXAMPLES: &str = "\
Examples:
  berth bench live --cell 10x13312 --contender fifo --rounds 3
  berth bench live --contender fifo --contender gate:1 --contender lock:1 --contender one-by-one:1
  berth bench live --gpu real --ground docker --cell 10x13312 --contender fifo --contender mps
  berth bench live --compare --profile rtx3090 --rounds 1     about ten minutes

Contenders: fifo and paper (policies with all means there are), gate, lock and freeze (fifo with
that means alone), mps (clients of an MPS server, where there is one), one-by-one, off (watched
only). Needs root, and Docker unless tenants are plain cgroups. Tenants are started and removed
again; a daemon of its own is used, whatever else runs on the host. What was measured before Ctrl-C
is printed and saved.";

/// Two of the published figures, and as many tenants as they have, of a size that takes no hour.
const COMPARED_CELLS: [&str; 3] = ["5x13312", "10x8192", "20x5120"];
const COMPARED_CONTENDERS: [&str; 4] = ["fifo", "paper", "off", "one-by-one"];

/// What a policy makes of tenants that contend, with real processes and a real daemon
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Tenants and the side of their matrices; may be repeated [default: 5x8192]
    #[arg(long = "cell", value_name = "COUNTxSIZE")]
    cells: Vec<CellName>,
    /// What to compare with nobody managing, in all rounds or the first few; may be repeated [default: fifo]
    #[arg(long = "contender", value_name = "NAME[:ROUNDS]")]
    contenders: Vec<Contender>,
    /// Runs of each contender in each cell
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Begin no further round after this time
    #[arg(long, value_name = "TIME")]
    within: Option<Span>,
    #[command(flatten)]
    scene: Scene,
    /// Set the result beside what `berth bench contention` predicts for the simulated GPU, and judge it [default cells:
    /// 5x13312, 10x8192, 20x5120; contenders: fifo, paper, off, one-by-one]
    #[arg(long)]
    compare: bool,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
    /// Also write the JSON to this file, after every run
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Keep what daemons and tenants wrote in this directory
    #[arg(long, value_name = "DIR")]
    logs: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy)]
struct CellName {
    tenants: u32,
    size: u32,
}

impl FromStr for CellName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.split_once('x').and_then(|(tenants, size)| Some((tenants.parse().ok()?, size.parse().ok()?)));
        match parsed {
            Some((tenants, size)) if tenants > 0 && size > 0 => Ok(Self { tenants, size }),
            _ => Err(format!("`{text}` is no cell: write tenants and size, such as `10x13312`")),
        }
    }
}

pub fn run(args: &Args, global: &Global) -> Result<()> {
    let settings = settings::load(global)?;
    let predicted_on = if args.compare { Some(simulated(&args.scene)?) } else { None };
    let plan = Plan {
        cells: cells(args, predicted_on.as_ref()),
        contenders: contenders(args),
        rounds: args.rounds,
        within: args.within.map(Span::get),
        gpu: args.scene.gpu(),
        ground: args.scene.ground,
        docker_socket: settings.docker.socket,
        logs: args.logs.clone(),
    };
    let interrupt = Interrupt::listen()?;
    let mut last = None;
    let measured = live::run(&plan, &interrupt, &say, &mut |measured| {
        let report = Report::of(measured);
        save(args.save.as_deref(), &report)?;
        last = Some(report);
        Ok(())
    });
    if let Some(mut report) = last {
        if let Some(profile) = &predicted_on {
            compare::add(&mut report, profile).context("predicting in virtual time")?;
            save(args.save.as_deref(), &report)?;
        }
        if args.json { Stdout::json(&report)? } else { Stdout::line(&report.to_text())? }
    }
    interrupt.outcome(measured)
}

fn contenders(args: &Args) -> Vec<Contender> {
    let default: &[&str] = if args.compare { &COMPARED_CONTENDERS } else { &["fifo"] };
    let default = default.iter().filter_map(|name| name.parse().ok());
    if args.contenders.is_empty() { default.collect() } else { args.contenders.clone() }
}

fn simulated(scene: &Scene) -> Result<Profile> {
    if scene.gpu == Gpu::Real {
        bail!("--compare is for the simulated GPU: virtual time knows no other");
    }
    profile(&scene.profile)
}

/// Where they are compared with a scenario, tenants do on the host what its programs do.
fn cells(args: &Args, profile: Option<&Profile>) -> Vec<Cell> {
    let default: &[&str] = if args.compare { &COMPARED_CELLS } else { &["5x8192"] };
    let default = default.iter().filter_map(|name| name.parse().ok());
    let named = if args.cells.is_empty() { default.collect() } else { args.cells.clone() };
    let cell = |CellName { tenants, size }: CellName| {
        let host_time = profile.map_or(Span::from_millis(0), |profile| compare::host_time(profile, size));
        Cell { size, tenants, host_time }
    };
    named.into_iter().map(cell).collect()
}
