//! `berth bench deadline`: the published measurement of containers with deadlines, made again.

use std::path::PathBuf;

use anyhow::Result;
use berth_model::Span;
use berth_model::deadline::Deadline;

use super::{Scene, save, write_plots};
use crate::bench::deadline::{self, Part, Plan, plots};
use crate::cli::Global;
use crate::interrupt::Interrupt;
use crate::out::{Stdout, say};
use crate::settings;

const EXAMPLES: &str = "\
Examples:
  berth bench deadline                            ten containers, about five minutes
  berth bench deadline --profile rtx3090          on a simulation of the published machine
  berth bench deadline --gpu real --ground docker --save result.json
  berth bench deadline --deadline 1500ms --deadline 3s --part tasks
  berth bench deadline --quick --json

Containers are started and removed again; a daemon of its own is used, whatever else runs on the
host. Without --deadline a rehearsal finds deadlines of which about half are met.";

/// How exactly the tasks of containers with deadlines are seen and judged, and what watching costs
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Containers at a time [default: 10; 3 with --quick]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    containers: Option<u32>,
    /// Processes of each container, one after another; each has two tasks [default: 5; 2 with --quick]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Products of each task
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    products: u32,
    /// Side of the matrices [default: 5120; 1024 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    size: Option<u32>,
    /// How long a task may take, for the containers in turn; may be repeated [default: by a rehearsal]
    #[arg(long = "deadline", value_name = "TIME")]
    deadlines: Vec<Deadline>,
    /// How long the monitor's cost is measured at each number of containers [default: 5s; 1s with --quick]
    #[arg(long, value_name = "TIME")]
    window: Option<Span>,
    #[command(flatten)]
    scene: Scene,
    /// Measure only this; may be repeated [default: everything]
    #[arg(long = "part", value_enum)]
    parts: Vec<Part>,
    /// A short run, to see that everything works
    #[arg(long)]
    quick: bool,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
    /// Also write the JSON to this file
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Also write charts as SVG into this directory
    #[arg(long, value_name = "DIR")]
    plots: Option<PathBuf>,
}

pub fn run(args: &Args, global: &Global) -> Result<()> {
    let settings = settings::load(global)?;
    let plan = plan(args, settings.docker.socket);
    let interrupt = Interrupt::listen()?;
    let report = interrupt.outcome(deadline::run(&plan, &interrupt, &say))?;
    save(args.save.as_deref(), &report)?;
    if let Some(dir) = &args.plots {
        write_plots(dir, plots::charts(&report))?;
    }
    if args.json { Stdout::json(&report) } else { Stdout::line(&report.to_text()) }
}

fn plan(args: &Args, docker_socket: PathBuf) -> Plan {
    let either = |given: Option<u32>, quick: u32, full: u32| given.unwrap_or(if args.quick { quick } else { full });
    let containers = either(args.containers, 3, 10);
    let window = Span::from_millis(if args.quick { 1_000 } else { 5_000 });
    Plan {
        containers,
        rounds: either(args.rounds, 2, 5),
        size: either(args.size, 1_024, 5_120),
        repeats: args.products,
        deadlines: args.deadlines.clone(),
        counts: (0..=containers).filter(|count| !args.quick || *count <= 1 || *count == containers).collect(),
        window: args.window.unwrap_or(window).get(),
        gpu: args.scene.gpu(),
        ground: args.scene.ground,
        docker_socket,
        parts: if args.parts.is_empty() { vec![Part::Tasks, Part::Cost] } else { args.parts.clone() },
    }
}
