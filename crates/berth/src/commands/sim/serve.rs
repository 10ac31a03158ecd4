//! `berth sim serve`: owns the simulated GPUs of one directory until stopped.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use berth_sim::server::{ServeOptions, Server};
use berth_sim::{Profile, Sharing};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::out::Stdout;

const EXAMPLES: &str = "\
Examples:
  berth sim serve --dir /tmp/sim
  berth sim serve --dir /tmp/sim --profile rtx3090 --gpus 4 --time-scale 2
  berth sim serve --dir /tmp/sim --profile ./my-gpu.toml

Runs in the foreground; SIGTERM and SIGINT stop it. `berth sim env` tells how programs and containers use it.";

/// Serve simulated GPUs in a directory
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Where the libraries and sockets go; made if it does not exist
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Which GPU: a built-in name (rtx3090, a100, h200) or the path of a profile
    #[arg(long, default_value = "h200", value_name = "NAME|FILE")]
    profile: String,
    /// How many of them
    #[arg(long, default_value_t = 1, value_name = "COUNT")]
    gpus: u32,
    /// Seed of everything random
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// How many times faster than the real thing
    #[arg(long, default_value_t = 1.0, value_name = "FACTOR")]
    time_scale: f64,
    /// Stop when standard input is closed, as it is when the program that started this one dies
    #[arg(long)]
    until_stdin_closes: bool,
    /// All processes share the GPU through an MPS server instead of taking turns
    #[arg(long)]
    mps: bool,
}

pub fn run(args: &Args) -> Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("taking signals")?;
    }
    if args.until_stdin_closes {
        stop_with_stdin(&stop)?;
    }
    let options = ServeOptions {
        gpu_count: args.gpus,
        seed: args.seed,
        time_scale: args.time_scale,
        sharing: if args.mps { Sharing::Mps } else { Sharing::TimeSliced },
        ..ServeOptions::new(&args.dir, profile(&args.profile)?)
    };
    let name = options.profile.gpu.name.clone();
    let server = Server::bind(options).context("serving simulated GPUs")?;
    Stdout::line(&format!("{} x {name} in {}; stop with Ctrl-C", args.gpus, args.dir.display()))?;
    server.run(|| stop.load(Ordering::Relaxed)).context("serving simulated GPUs")
}

fn stop_with_stdin(stop: &Arc<AtomicBool>) -> Result<()> {
    let stop = Arc::clone(stop);
    let wait = move || {
        // Whatever comes is read and dropped; an error is as good as the end.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        stop.store(true, Ordering::Relaxed);
    };
    std::thread::Builder::new().name("berth-stdin".into()).spawn(wait).context("starting a thread")?;
    Ok(())
}

/// What looks like a path is one; all else is the name of a built-in profile.
pub fn profile(name: &str) -> Result<Profile> {
    let profile = if name.contains(['/', '.']) { Profile::load(Path::new(name)) } else { Profile::builtin(name) };
    profile.context("choosing the GPU to simulate")
}
