//! `berth bench hold`: how fast each means of this host holds a tenant and lets it go.

use std::path::PathBuf;

use anyhow::Result;
use berth_model::Bytes;

use super::{Scene, save};
use crate::bench::hold::report::Report;
use crate::bench::hold::{self, Part, Plan};
use crate::cli::Global;
use crate::interrupt::Interrupt;
use crate::out::{Stdout, say};
use crate::settings;

const EXAMPLES: &str = "\
Examples:
  berth bench hold
  berth bench hold --json > result.json
  berth bench hold --gpu real --ground docker
  berth bench hold --ground cgroup --part gate --part lock --turns 100
  berth bench hold --part park --size 512MiB --size 4GiB

Needs root. Tenants are started and removed again; nobody else's are touched. What was measured
before Ctrl-C is printed and saved, and whoever is held is let go.";

/// How fast a tenant is held and let go, by every means of this host
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Measure only this; may be repeated [default: everything]
    #[arg(long = "part", value_enum)]
    parts: Vec<Part>,
    /// Holds of each kind; those that take long are made less often
    #[arg(long, value_name = "COUNT", default_value_t = 200, value_parser = clap::value_parser!(u16).range(1..))]
    turns: u16,
    /// GPU memory to park; may be repeated
    #[arg(long = "size", value_name = "BYTES", default_values = ["512MiB", "2GiB", "8GiB"])]
    sizes: Vec<Bytes>,
    #[command(flatten)]
    scene: Scene,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
    /// Also write the JSON to this file, after every part
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
}

pub fn run(args: &Args, global: &Global) -> Result<()> {
    let settings = settings::load(global)?;
    let plan = Plan {
        parts: if args.parts.is_empty() { Part::ALL.to_vec() } else { args.parts.clone() },
        turns: args.turns.into(),
        sizes: args.sizes.clone(),
        gpu: args.scene.gpu(),
        ground: args.scene.ground,
        docker_socket: settings.docker.socket,
    };
    let interrupt = Interrupt::listen()?;
    let mut last = None;
    let measured = hold::run(&plan, &interrupt, &say, &mut |measured| {
        let report = Report::of(measured);
        save(args.save.as_deref(), &report)?;
        last = Some(report);
        Ok(())
    });
    if let Some(report) = last {
        if args.json { Stdout::json(&report)? } else { Stdout::line(&report.to_text())? }
    }
    interrupt.outcome(measured)
}
