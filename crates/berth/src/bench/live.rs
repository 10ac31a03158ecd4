//! `berth bench live`: tenants that contend on a GPU, with a real daemon that manages them and without.
//!
//! All tenants of a cell are there from its beginning and compute one product each at the same word, again and again: once
//! with nobody managing, once under each policy, in turn, so that whatever drifts on the host drifts for all. Each run
//! is compared with the unmanaged one of its round.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use berth_host::clock;
use berth_model::settings::PolicyName;
use serde::Serialize;

use super::contender::{Ran, word};
use super::daemon::Daemon;
use super::quantiles::median;
use crate::interrupt::Interrupt;
use crate::stage::{GpuChoice, GroundChoice, Launch, Stage, Tenant};

/// What to measure, and on what.
#[derive(Debug, Clone)]
pub struct Plan {
    pub cells: Vec<Cell>,
    pub policies: Vec<PolicyName>,
    pub rounds: u32,
    pub gpu: GpuChoice,
    pub ground: GroundChoice,
    pub docker_socket: PathBuf,
    /// Where to keep what daemons and tenants wrote.
    pub logs: Option<PathBuf>,
}

/// This many tenants, each with a product of this size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Cell {
    pub size: u32,
    pub tenants: u32,
}

/// One policy (or none) in one cell.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    #[serde(flatten)]
    pub cell: Cell,
    /// `None`: nobody managed.
    pub policy: Option<PolicyName>,
    pub runs: Vec<Run>,
    /// From the word to the last end; median.
    pub total_s: f64,
    /// From the word to a tenant's end; mean over tenants, median over runs.
    pub mean_completion_s: f64,
    /// Against the unmanaged run of the same round; median, least, most.
    pub total_ratio: Option<[f64; 3]>,
    pub completion_ratio: Option<[f64; 3]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Run {
    pub total_s: f64,
    pub mean_completion_s: f64,
}

/// No run takes longer than this.
const PATIENCE: Duration = Duration::from_secs(300);

/// Measures; `say` is told what is going on.
pub fn run(plan: &Plan, interrupt: &Interrupt, say: &dyn Fn(&str)) -> anyhow::Result<Vec<Row>> {
    if plan.ground == GroundChoice::Process {
        bail!("bare processes of one user are one tenant: choose docker or cgroup, so that tenants can be told apart");
    }
    let mut stage = Stage::open("berth-live", &plan.gpu, plan.ground, &plan.docker_socket)?;
    say(&format!("tenants are {}", stage.ground()));
    let mut rows = Vec::new();
    for cell in &plan.cells {
        rows.extend(measure(&mut stage, plan, *cell, interrupt, say)?);
    }
    Ok(rows)
}

fn measure(
    stage: &mut Stage,
    plan: &Plan,
    cell: Cell,
    interrupt: &Interrupt,
    say: &dyn Fn(&str),
) -> anyhow::Result<Vec<Row>> {
    let contenders: Vec<Option<PolicyName>> =
        [None].into_iter().chain(plan.policies.iter().copied().map(Some)).collect();
    let per_cell = plan.rounds * u32::try_from(contenders.len())?;
    let out = stage.dir().join("out");
    let tenants = start(stage, cell, per_cell)?;
    let mut runs: Vec<Vec<Run>> = vec![Vec::new(); contenders.len()];
    for number in 0..per_cell {
        let which = usize::try_from(number)? % contenders.len();
        let name = contenders[which].map_or("unmanaged".to_owned(), |policy| format!("{policy:?}").to_lowercase());
        let daemon = contenders[which].map(|policy| daemon(stage, policy)).transpose()?;
        let run = one_run(&out, &tenants, number, interrupt)?;
        let was_managed = daemon.is_some();
        drop(daemon);
        if let Some(dir) = plan.logs.as_ref().filter(|_| was_managed) {
            keep(&stage.dir().join("daemon.log"), dir, &format!("{}x{}-{name}-{number}.log", cell.tenants, cell.size))?;
        }
        say(&format!(
            "{} × {}², {name}: {:.3} s, mean {:.3} s",
            cell.tenants, cell.size, run.total_s, run.mean_completion_s
        ));
        runs[which].push(run);
    }
    for tenant in &tenants {
        if let Some(dir) = &plan.logs {
            keep(&tenant.lines.with_extension("load"), dir, &format!("{}.jsonl", tenant.name()))?;
        }
        stage.end(tenant)?;
    }
    for number in 0..per_cell {
        std::fs::remove_file(word(&out, number))?;
    }
    let unmanaged = runs[0].clone();
    Ok(contenders.into_iter().zip(runs).map(|(policy, runs)| row(cell, policy, runs, &unmanaged)).collect())
}

fn keep(file: &Path, dir: &Path, name: &str) -> anyhow::Result<()> {
    std::fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
    let name = name.replace('/', "_");
    std::fs::copy(file, dir.join(&name)).with_context(|| format!("keeping {} as {name}", file.display()))?;
    Ok(())
}

fn start(stage: &mut Stage, cell: Cell, runs: u32) -> anyhow::Result<Vec<Tenant>> {
    let launch = |number| Launch {
        name: format!("n{}-t{number}", cell.size),
        owner: None,
        args: ["bench", "contender", "--size", &cell.size.to_string(), "--runs", &runs.to_string()]
            .into_iter()
            .map(str::to_owned)
            .collect(),
    };
    (0..cell.tenants).map(|number| stage.launch(&launch(number))).collect()
}

fn daemon(stage: &Stage, policy: PolicyName) -> anyhow::Result<Daemon> {
    let mut settings = stage.settings();
    settings.hold.policy = policy;
    settings.hold.journal = stage.dir().join("holds");
    settings.log.level = "debug".into();
    Daemon::start(&settings, stage.dir())
}

/// Gives the word, and waits until all are done.
fn one_run(out: &Path, tenants: &[Tenant], number: u32, interrupt: &Interrupt) -> anyhow::Result<Run> {
    let began_ns = clock::now().0;
    std::fs::write(word(out, number), "")?;
    let deadline = Instant::now() + PATIENCE;
    let mut ended_ns = Vec::new();
    for tenant in tenants {
        let ran = loop {
            if let Some(ran) = ran(&tenant.lines, number)? {
                break ran;
            }
            interrupt.check()?;
            if Instant::now() > deadline {
                bail!("tenant {} did not end within {} s", tenant.name(), PATIENCE.as_secs());
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        if ran.code != Some(0) {
            bail!("tenant {} failed with {:?}", tenant.name(), ran.code);
        }
        ended_ns.push(ran.ended_ns);
    }
    let seconds = |ended: u64| Duration::from_nanos(ended.saturating_sub(began_ns)).as_secs_f64();
    let each: Vec<f64> = ended_ns.into_iter().map(seconds).collect();
    let mean = each.iter().sum::<f64>() / f64::from(u32::try_from(each.len())?.max(1));
    Ok(Run { total_s: each.iter().copied().fold(0.0, f64::max), mean_completion_s: mean })
}

/// The tenant's line about a run, once it is whole.
fn ran(lines: &Path, number: u32) -> anyhow::Result<Option<Ran>> {
    let text = match std::fs::read_to_string(lines) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("reading {}", lines.display())),
    };
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    Ok(whole.lines().filter_map(|line| serde_json::from_str(line).ok()).find(|ran: &Ran| ran.run == number))
}

fn row(cell: Cell, policy: Option<PolicyName>, runs: Vec<Run>, unmanaged: &[Run]) -> Row {
    let of = |what: fn(&Run) -> f64| median(&runs.iter().map(what).collect::<Vec<_>>()).unwrap_or(f64::NAN);
    let ratio = |what: fn(&Run) -> f64| {
        let mut ratios: Vec<f64> = runs.iter().zip(unmanaged).map(|(run, plain)| what(run) / what(plain)).collect();
        ratios.sort_by(f64::total_cmp);
        policy?;
        Some([median(&ratios)?, *ratios.first()?, *ratios.last()?])
    };
    Row {
        cell,
        policy,
        total_s: of(|run| run.total_s),
        mean_completion_s: of(|run| run.mean_completion_s),
        total_ratio: ratio(|run| run.total_s),
        completion_ratio: ratio(|run| run.mean_completion_s),
        runs,
    }
}

/// The rows as a table.
pub fn to_text(rows: &[Row]) -> String {
    let mut text = format!(
        "{:>8} {:>7} {:<10} {:>5} {:>9} {:>10}   {:>24}   {:>24}\n",
        "size",
        "tenants",
        "policy",
        "runs",
        "total s",
        "mean end s",
        "total × (least to most)",
        "mean end × (l. to m.)"
    );
    for row in rows {
        let policy = row.policy.map_or("-".to_owned(), |policy| format!("{policy:?}").to_lowercase());
        let ratio = |ratio: Option<[f64; 3]>| {
            ratio.map_or(String::new(), |[middle, least, most]| format!("{middle:.3} ({least:.3} to {most:.3})"))
        };
        text += &format!(
            "{:>8} {:>7} {policy:<10} {:>5} {:>9.3} {:>10.3}   {:>24}   {:>24}\n",
            row.cell.size,
            row.cell.tenants,
            row.runs.len(),
            row.total_s,
            row.mean_completion_s,
            ratio(row.total_ratio),
            ratio(row.completion_ratio),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(totals: &[f64]) -> Vec<Run> {
        totals.iter().map(|total_s| Run { total_s: *total_s, mean_completion_s: total_s / 2.0 }).collect()
    }

    #[test]
    fn a_run_is_compared_with_the_unmanaged_one_of_its_round() {
        let cell = Cell { size: 8_192, tenants: 2 };
        let row = row(cell, Some(PolicyName::Fifo), runs(&[5.0, 9.0, 16.0]), &runs(&[10.0, 10.0, 20.0]));
        assert_eq!(row.total_ratio, Some([0.8, 0.5, 0.9]));
        assert_eq!(row.total_s, 9.0);
    }

    #[test]
    fn a_line_that_is_half_written_is_not_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "{\"run\":0,\"started_ns\":1,\"ended_ns\":2,\"code\":0}\n{\"run\":1,\"st").unwrap();
        assert_eq!(ran(file.path(), 0).unwrap().map(|ran| ran.ended_ns), Some(2));
        assert_eq!(ran(file.path(), 1).unwrap(), None);
    }
}
