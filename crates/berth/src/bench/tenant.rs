//! The measured tenant: a parent that starts the workload again and again and notes, by its own clock, when it ended.
//!
//! Runs inside the container. Each process stays twice on the GPU: after the first stay it destroys its context and lives
//! on for a while; in the second it exits without destroying anything. So both kinds of end are there, and coming back too.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use berth_host::clock;
use serde::{Deserialize, Serialize};

/// Part of `berth bench detect`: one tenant of the measurement
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Processes to run, one after another
    #[arg(long)]
    pub rounds: u32,
    /// Side of the matrices
    #[arg(long)]
    pub size: u32,
    /// Kernels per stay
    #[arg(long, default_value_t = 1)]
    pub repeats: u32,
    /// Random pause before each stay, in milliseconds
    #[arg(long, default_value_t = 1_000)]
    pub gap_ms: u32,
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Where to write the lines
    #[arg(long)]
    pub output: PathBuf,
}

/// The parent's account of one process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exited {
    /// In the tenant's own pid namespace, as in the workload's lines.
    pub pid: u32,
    /// When the parent was told.
    pub mono_ns: u64,
    pub code: Option<i32>,
}

/// Where the parent writes, beside the workload's lines.
pub fn exits_beside(lines: &Path) -> PathBuf {
    lines.with_extension("exits")
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    let program = std::env::current_exe().context("finding this program")?;
    let mut exits = OpenOptions::new().create(true).append(true).open(exits_beside(&args.output))?;
    for round in 0..args.rounds {
        let mut child = Command::new(&program)
            .args(["load", "--tasks", "2", "--fail-at", "free", "--fail-how", "exit", "--fail-task", "1"])
            .args(["--size", &args.size.to_string(), "--repeats", &args.repeats.to_string()])
            .args(["--task-gap", &format!("{}ms..{}ms", args.gap_ms / 5, args.gap_ms)])
            .args(["--seed", &(args.seed * 1_000 + u64::from(round)).to_string()])
            .arg("--output")
            .arg(&args.output)
            .spawn()
            .context("starting the workload")?;
        let pid = child.id();
        let status = child.wait()?;
        let exited = Exited { pid, mono_ns: clock::now().0, code: status.code() };
        writeln!(exits, "{}", serde_json::to_string(&exited)?)?;
    }
    Ok(())
}
