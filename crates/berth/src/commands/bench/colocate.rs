//! `berth bench colocate`: a server and a trainer on one GPU, in every way there is to share it.

use std::path::PathBuf;

use anyhow::{Result, bail};
use berth_model::settings::KernelSettings;

use super::{Gpu, save, write_plots};
use crate::bench::colocate::mode::Mode;
use crate::bench::colocate::pair::{Load, Pair};
use crate::bench::colocate::report::Report;
use crate::bench::colocate::{self, Plan, plots};
use crate::cli::Global;
use crate::interrupt::Interrupt;
use crate::out::{Stdout, say};
use crate::settings;
use crate::stage::GpuChoice;

const EXAMPLES: &str = "\
Examples:
  berth bench colocate                                  built-in pairs on the simulated GPU
  berth bench colocate --gpu real --torch gpu/torch     PyTorch's too, on this host's GPU
  berth --set kernels.linger=100us bench colocate --pair short --mode links --rounds 5
  berth bench colocate --pair short --mode links --vary kernels.grain=50us --vary 'kernels.grain=400us kernels.linger=20us'
  berth bench colocate --gpu real --pair short --mode time-slicing --mode berth-slo --load medium

Pairs: short and long (`berth load serve` beside `berth load train`), torch-resnet, torch-bert-gpt2
and torch-long. Modes: alone (always measured, at the beginning and at the end), time-slicing, mps,
mps-priority, mps-half, links (the library alone, without a daemon), berth-slo, berth-hybrid,
berth-jct, and the last four under MPS, with priorities, as mps-links and berth-mps-…. What was measured before Ctrl-C
is printed and saved. MPS servers and daemons are its own, and end with it.";

/// What a server's latency and a trainer's rate become when they share a GPU
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Only this pair of programs; may be repeated [default: all there are]
    #[arg(long = "pair", value_name = "NAME")]
    pairs: Vec<Pair>,
    /// Only this way to share; may be repeated [default: all there are]
    #[arg(long = "mode", value_name = "NAME")]
    modes: Vec<Mode>,
    /// Only this much to serve; may be repeated [default: all]
    #[arg(long = "load", value_enum)]
    loads: Vec<Load>,
    /// How long each is measured
    #[arg(long, value_name = "COUNT", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// How often, each time with other arrivals: the median counts, and the rest is shown
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Also measure links with these settings, such as `kernels.grain=50us kernels.linger=60us`; may be repeated
    #[arg(long = "vary", value_name = "SETTINGS")]
    variations: Vec<String>,
    /// On which GPU
    #[arg(long, value_enum, default_value = "sim")]
    gpu: Gpu,
    /// The simulated GPU's profile: a name or a file
    #[arg(long, value_name = "NAME", default_value = "h200")]
    profile: String,
    /// The directory of the PyTorch programs, `gpu/torch` in the repository
    #[arg(long, value_name = "DIR")]
    torch: Option<PathBuf>,
    /// berth's library for programs [default: beside this program]
    #[arg(long, value_name = "FILE")]
    shim: Option<PathBuf>,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
    /// Also write the JSON to this file, after every mode
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Also draw each pair as an SVG file in this directory
    #[arg(long, value_name = "DIR")]
    plots: Option<PathBuf>,
}

pub fn run(args: &Args, global: &Global) -> Result<()> {
    let variation = |text: &String| {
        let more = text.split_whitespace().map(str::to_owned);
        let global = Global { set: global.set.iter().cloned().chain(more).collect(), ..global.clone() };
        Ok((text.clone(), settings::load(&global)?.kernels))
    };
    let variations = args.variations.iter().map(variation).collect::<Result<Vec<_>>>()?;
    let plan = Plan { variations, ..plan(args, settings::load(global)?.kernels) };
    if !plan.variations.is_empty() && !plan.modes.iter().any(|mode| matches!(mode, Mode::Links { .. })) {
        bail!("--vary changes the settings of links alone: add `--mode links` or `--mode mps-links`");
    }
    let interrupt = Interrupt::listen()?;
    let mut last = None;
    let measured = colocate::run(&plan, &interrupt, &say, &mut |measured| {
        let report = Report::of(measured);
        save(args.save.as_deref(), &report)?;
        last = Some(report);
        Ok(())
    });
    if let Some(report) = last {
        if let Some(dir) = &args.plots {
            write_plots(dir, plots::charts(&report))?;
        }
        if args.json { Stdout::json(&report)? } else { Stdout::line(&report.to_text())? }
    }
    interrupt.outcome(measured)
}

fn plan(args: &Args, kernels: KernelSettings) -> Plan {
    let loads = Load::ALL.into_iter().filter(|load| args.loads.is_empty() || args.loads.contains(load));
    // What PyTorch would need is not missed where nobody asked for it.
    let all_pairs = || Pair::ALL.into_iter().filter(|pair| args.torch.is_some() || !pair.is_torch()).collect();
    // In their own order: those of the same surroundings need to be set up once.
    let modes = Mode::all().into_iter().filter(|mode| args.modes.is_empty() || args.modes.contains(mode));
    Plan {
        pairs: if args.pairs.is_empty() { all_pairs() } else { args.pairs.clone() },
        modes: modes.collect(),
        loads: loads.collect(),
        seconds: args.seconds,
        rounds: args.rounds,
        kernels,
        variations: Vec::new(),
        gpu: match args.gpu {
            Gpu::Sim => GpuChoice::Sim { profile: args.profile.clone(), gpus: 1, time_scale: None, mps: false },
            Gpu::Real => GpuChoice::Real,
        },
        torch: args.torch.clone(),
        shim: args.shim.clone(),
    }
}
