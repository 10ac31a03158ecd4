//! A tenant of `berth bench live`: waits for the word, computes one product, waits for the next word.
//!
//! Runs inside the container, which stays while its workload comes and goes: so all tenants of a measurement start at the
//! same moment, and what starting a container takes is not in it.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use berth_host::clock;
use serde::{Deserialize, Serialize};

/// How often the word is looked for: by how much starts may differ.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Part of `berth bench live`: one tenant of the measurement
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Side of the matrices
    #[arg(long)]
    pub size: u32,
    /// Runs, each begun by a file of its own in the directory of `--output`
    #[arg(long)]
    pub runs: u32,
    /// Where to write one line per run
    #[arg(long)]
    pub output: PathBuf,
}

/// One run of one tenant, by its parent's clock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ran {
    pub run: u32,
    pub started_ns: u64,
    pub ended_ns: u64,
    pub code: Option<i32>,
}

/// The file that begins a run.
pub fn word(dir: &Path, run: u32) -> PathBuf {
    dir.join(format!("go-{run}"))
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    let program = std::env::current_exe().context("finding this program")?;
    let dir = args.output.parent().context("--output names a file in a directory")?;
    let mut output = OpenOptions::new().create(true).append(true).open(&args.output)?;
    for run in 0..args.runs {
        let word = word(dir, run);
        while !word.exists() {
            std::thread::sleep(LOOK_EVERY);
        }
        let started_ns = clock::now().0;
        let status = Command::new(&program)
            .args(["load", "--size", &args.size.to_string(), "--output"])
            .arg(args.output.with_extension("load"))
            .status()
            .context("starting the workload")?;
        let ran = Ran { run, started_ns, ended_ns: clock::now().0, code: status.code() };
        writeln!(output, "{}", serde_json::to_string(&ran)?)?;
    }
    Ok(())
}
