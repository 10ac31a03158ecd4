//! A tenant of `berth bench live`: waits for the word, computes one product, waits for the next word.
//!
//! Runs inside the container, which stays while its workload comes and goes: so all tenants of a measurement start at the
//! same moment, and what starting a container takes is not in it. The word may be for all tenants or for one, and carries
//! what the workload is to find in its environment.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use berth_host::clock;
use berth_model::Span;
use serde::{Deserialize, Serialize};

/// How often the word is looked for: by how much starts may differ.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Part of `berth bench live`: one tenant of the measurement
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Side of the matrices
    #[arg(long)]
    pub size: u32,
    /// What the workload does on the host before it asks for the GPU
    #[arg(long, default_value = "0ms")]
    pub host_time: Span,
    /// Runs, each begun by a word of its own in the directory of `--output`
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

/// What the workload finds in its environment.
pub type Environment = BTreeMap<String, String>;

/// Who is to begin.
#[derive(Debug, Clone, Copy)]
pub enum Whom<'a> {
    All,
    /// The tenant that writes its lines there.
    One(&'a Path),
}

/// Begins a run. `dir` is where the tenants write.
pub fn give_word(dir: &Path, run: u32, whom: Whom<'_>, environment: &Environment) -> anyhow::Result<()> {
    let (word, scratch) = (word(dir, run, whom), dir.join("word"));
    // A tenant that sees the file reads it at once.
    std::fs::write(&scratch, serde_json::to_string(environment)?)?;
    std::fs::rename(&scratch, &word).with_context(|| format!("giving the word by {}", word.display()))
}

/// Where the workload of this tenant writes its lines, those of all runs.
pub fn workload_lines(output: &Path) -> PathBuf {
    output.with_extension("load")
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    let program = std::env::current_exe().context("finding this program")?;
    let dir = args.output.parent().context("--output names a file in a directory")?;
    let mut output = OpenOptions::new().create(true).append(true).open(&args.output)?;
    for run in 0..args.runs {
        let environment = await_word(dir, run, &args.output)?;
        let started_ns = clock::now().0;
        let status = Command::new(&program)
            .args(["load", "--size", &args.size.to_string(), "--host-time", &args.host_time.to_string(), "--output"])
            .arg(workload_lines(&args.output))
            .envs(environment)
            .status()
            .context("starting the workload")?;
        let ran = Ran { run, started_ns, ended_ns: clock::now().0, code: status.code() };
        writeln!(output, "{}", serde_json::to_string(&ran)?)?;
    }
    Ok(())
}

fn word(dir: &Path, run: u32, whom: Whom<'_>) -> PathBuf {
    match whom {
        Whom::All => dir.join(format!("go-{run}")),
        Whom::One(output) => output.with_extension(format!("go-{run}")),
    }
}

fn await_word(dir: &Path, run: u32, output: &Path) -> anyhow::Result<Environment> {
    let words = [word(dir, run, Whom::All), word(dir, run, Whom::One(output))];
    loop {
        for word in &words {
            if let Ok(text) = std::fs::read_to_string(word) {
                return serde_json::from_str(&text).with_context(|| format!("reading the word in {}", word.display()));
            }
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_reaches_whom_it_is_for_with_its_environment() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other) = (dir.path().join("t1.jsonl"), dir.path().join("t2.jsonl"));
        let environment = Environment::from([("A".to_owned(), "b".to_owned())]);
        give_word(dir.path(), 0, Whom::One(&one), &environment).unwrap();
        assert_eq!(await_word(dir.path(), 0, &one).unwrap(), environment);
        assert!(!word(dir.path(), 0, Whom::One(&other)).exists() && !word(dir.path(), 0, Whom::All).exists());
        give_word(dir.path(), 1, Whom::All, &Environment::new()).unwrap();
        assert_eq!(await_word(dir.path(), 1, &other).unwrap(), Environment::new());
    }
}
