//! `berth bench detect`: the monitor against the workload's own clock.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use berth_host::clock;
use berth_load::{Event as LoadEvent, Line};
use berth_model::settings::Mode;
use berth_model::{Moment, Settings, Span};

use super::daemon::Daemon;
use super::machine::Machine;
use super::quantiles::Quantiles;
use super::report::{Cost, CurvePoint, Detection, PUBLISHED_ERROR_MS, Report, Workload};
use super::seen::{What, first_told, instants, pair};
use super::slowdown::{self, Slowdown, Window};
use super::tenants::{Outcome, PATIENCE, Tenants, Work};
use super::truth::{End, Stay};
use crate::interrupt::Interrupt;
use crate::stage::{GpuChoice, GroundChoice, Stage, Tenant};

/// What to measure, and on what.
#[derive(Debug, Clone)]
pub struct Plan {
    pub containers: u32,
    pub rounds: u32,
    pub size: u32,
    pub gpu: GpuChoice,
    pub ground: GroundChoice,
    pub docker_socket: PathBuf,
    pub parts: Vec<Part>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Error of every moment, with event sources and by NVML alone
    Detection,
    /// NVML alone at fixed intervals: latency against CPU
    Curve,
    /// CPU and memory of the monitor at 1, 5 and 20 tenants
    Cost,
    /// Slowdown of the tenants by being watched
    Slowdown,
}

const CURVE_MS: [u64; 6] = [5, 10, 20, 50, 100, 200];
const COST_CONTAINERS: [u32; 3] = [1, 5, 20];
const COST_WINDOW: Duration = Duration::from_secs(10);
const SLOWDOWN_PAIRS: usize = 30;
/// A matrix small enough that the launch is most of the work.
const LAUNCHES_SIZE: u32 = 32;
/// Launches between two waits, and between two lines the workload writes.
const LAUNCHES_STREAMS: u32 = 64;
const SLOWDOWN_WINDOW: Duration = Duration::from_millis(1_000);

/// Which sources a daemon may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sources {
    Events,
    Nvml,
}

impl Sources {
    fn name(self) -> &'static str {
        match self {
            Sources::Events => "events",
            Sources::Nvml => "nvml",
        }
    }

    fn apply(self, settings: &mut Settings) {
        if self == Sources::Nvml {
            settings.probes.mode = Mode::Off;
            settings.processes.connector = Mode::Off;
            settings.docker.mode = Mode::Off;
        } else {
            settings.probes.mode = Mode::Required;
        }
    }
}

/// Measures; `say` is told what is going on. Interrupted, it removes what it made before it returns.
pub fn run(plan: &Plan, interrupt: &Interrupt, say: &dyn Fn(&str)) -> anyhow::Result<Report> {
    if plan.containers == 0 || plan.rounds == 0 {
        bail!("--containers and --rounds must be at least 1: nothing would be measured");
    }
    if plan.ground == GroundChoice::Process {
        bail!("bare processes of one user are one tenant: choose docker or cgroup, so that tenants can be told apart");
    }
    let mut stage = Stage::open("berth-bench", &plan.gpu, plan.ground, &plan.docker_socket)?;
    say(&format!("tenants are {}", stage.ground()));
    let machine = Machine::of(&stage)?;
    let mut bench = Bench { plan, tenants: Tenants::on(&mut stage, interrupt), interrupt, say };
    let mut report = Report {
        berth: env!("CARGO_PKG_VERSION").to_owned(),
        machine,
        workload: Workload { containers: plan.containers, processes_each: plan.rounds, matrix_size: plan.size },
        detection: Vec::new(),
        nvml_curve: Vec::new(),
        cost: Vec::new(),
        slowdown: Vec::new(),
        published_error_ms: PUBLISHED_ERROR_MS,
        goals: Vec::new(),
    };
    if plan.parts.contains(&Part::Detection) {
        report.detection.extend(bench.detection(Sources::Events)?);
        report.detection.extend(bench.detection(Sources::Nvml)?);
    }
    if plan.parts.contains(&Part::Curve) {
        report.nvml_curve = CURVE_MS.iter().map(|ms| bench.curve_point(*ms)).collect::<anyhow::Result<_>>()?;
    }
    if plan.parts.contains(&Part::Cost) {
        for sources in [Sources::Events, Sources::Nvml] {
            report.cost.extend(bench.cost(sources)?);
        }
    }
    if plan.parts.contains(&Part::Slowdown) {
        report.slowdown = vec![bench.slowdown(slowdown::Work::Products)?, bench.slowdown(slowdown::Work::Launches)?];
    }
    report.judge();
    Ok(report)
}

struct Bench<'a> {
    plan: &'a Plan,
    tenants: Tenants<'a>,
    interrupt: &'a Interrupt,
    say: &'a dyn Fn(&str),
}

impl Bench<'_> {
    fn daemon(&self, sources: Sources, interval_ms: Option<u64>) -> anyhow::Result<Daemon> {
        self.interrupt.check()?;
        let mut settings = self.tenants.stage.settings();
        sources.apply(&mut settings);
        if let Some(ms) = interval_ms {
            let every = Span::from_millis(ms);
            let monitor = &mut settings.monitor;
            (monitor.fast_interval, monitor.interval, monitor.probed_interval) = (every, every, every);
        }
        Daemon::start(&settings, self.tenants.stage.dir())
    }

    fn work(&self, rounds: u32) -> Work {
        Work { rounds, size: self.plan.size, repeats: 1, gap_ms: 1_000, labels: Vec::new() }
    }

    fn observe(&mut self, daemon: &Daemon, containers: u32, rounds: u32) -> anyhow::Result<Outcome> {
        let work = vec![self.work(rounds); containers as usize];
        self.tenants.observe(daemon.client(), &work, |_| Ok(()))
    }

    fn detection(&mut self, sources: Sources) -> anyhow::Result<Vec<Detection>> {
        let Plan { containers, rounds, .. } = *self.plan;
        (self.say)(&format!("detection by {}: {containers} tenants, {rounds} processes each", sources.name()));
        let daemon = self.daemon(sources, None)?;
        let outcome = self.observe(&daemon, containers, rounds)?;
        let name = sources.name();
        let mut rows = Vec::new();
        for (instant, moment) in [
            ("device-open", Moment::DeviceOpen),
            ("context-ready", Moment::ContextReady),
            ("first-allocation", Moment::FirstAllocation),
            ("first-launch", Moment::FirstLaunch),
        ] {
            let what = if sources == Sources::Events { What::Moment(moment) } else { What::TaskStarted };
            rows.push(outcome.row(name, instant, what, |stays| instants(stays, moment)));
        }
        rows.push(outcome.row(name, "end-destroyed", What::TaskEnded, |stays| ends(stays, is_destroyed)));
        rows.push(outcome.row(name, "end-exited", What::TaskEnded, |stays| ends(stays, |end| !is_destroyed(end))));
        Ok(rows)
    }

    fn curve_point(&mut self, interval_ms: u64) -> anyhow::Result<CurvePoint> {
        (self.say)(&format!("NVML alone every {interval_ms} ms"));
        let daemon = self.daemon(Sources::Nvml, Some(interval_ms))?;
        let before = daemon.usage()?;
        let containers = self.plan.containers.min(5);
        let outcome = self.observe(&daemon, containers, self.plan.rounds.min(3))?;
        let told_after = outcome.newcomers_told_after_ms();
        let seen: Vec<f64> = told_after.iter().copied().flatten().collect();
        let end = outcome.row("nvml", "end", What::TaskEnded, |stays| ends(stays, is_destroyed));
        let cpu_pct = daemon.cpu_pct_since(&before)?.values().sum();
        Ok(CurvePoint {
            interval_ms,
            cpu_pct,
            seen: seen.len(),
            missed: told_after.len() - seen.len(),
            told_after_open_ms: Quantiles::of(&seen),
            end_error_ms: end.error_ms,
            end_abs_error_ms: end.abs_error_ms,
        })
    }

    fn cost(&mut self, sources: Sources) -> anyhow::Result<Vec<Cost>> {
        let mut costs = Vec::new();
        for containers in COST_CONTAINERS {
            (self.say)(&format!("cost of watching {containers} tenants by {}", sources.name()));
            let daemon = self.daemon(sources, None)?;
            let work = self.work(1_000);
            let tenants = (0..containers).map(|_| self.tenants.launch(&work)).collect::<anyhow::Result<Vec<_>>>()?;
            let before = daemon.usage()?;
            self.interrupt.sleep(COST_WINDOW)?;
            let by_thread = daemon.cpu_pct_since(&before)?;
            let cpu_pct = by_thread.values().sum();
            let resident_bytes = daemon.memory()?.resident_bytes;
            costs.push(Cost { sources: sources.name(), containers, cpu_pct, by_thread, resident_bytes });
            for tenant in &tenants {
                self.tenants.stage.end(tenant)?;
            }
        }
        Ok(costs)
    }

    fn slowdown(&mut self, work: slowdown::Work) -> anyhow::Result<Slowdown> {
        let (what, size, kernels) = match work {
            slowdown::Work::Products => ("computes products", self.plan.size, 1),
            slowdown::Work::Launches => ("only launches", LAUNCHES_SIZE, LAUNCHES_STREAMS),
        };
        (self.say)(&format!("slowdown: a tenant that {what}, {SLOWDOWN_PAIRS} times watched and not"));
        let (size, streams) = (size.to_string(), kernels.to_string());
        let args = ["load", "--size", &size, "--repeats", "forever", "--streams", &streams];
        let tenant = self.tenants.start(args.into_iter().map(str::to_owned).collect(), Vec::new())?;
        wait_for_rounds(&tenant, self.interrupt)?;
        let interrupt = self.interrupt;
        let window = || {
            let from = clock::now().0;
            interrupt.sleep(SLOWDOWN_WINDOW)?;
            anyhow::Ok(Window { from, to: clock::now().0 })
        };
        let mut windows = vec![window()?];
        for _ in 0..SLOWDOWN_PAIRS {
            let from = clock::now().0;
            let daemon = self.daemon(Sources::Events, None)?;
            windows.push(Window { from, ..window()? });
            drop(daemon);
            windows.push(window()?);
        }
        if let Some(code) = self.tenants.stage.exit_code(&tenant)? {
            bail!("the tenant ended with {code} under way");
        }
        let done = rounds_done(&tenant)?;
        self.tenants.stage.end(&tenant)?;
        Slowdown::of(work, &windows, &done, kernels).context("the tenant did too little while it was measured")
    }
}

/// The tenant has got over its context and first launches.
fn wait_for_rounds(tenant: &Tenant, interrupt: &Interrupt) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while rounds_done(tenant).map_or(0, |done| done.len()) < 10 {
        if Instant::now() > deadline {
            bail!("tenant {} does not get to work", tenant.name());
        }
        interrupt.sleep(Duration::from_millis(50))?;
    }
    Ok(())
}

/// When each round of kernels was done. The last line may be half written.
fn rounds_done(tenant: &Tenant) -> anyhow::Result<Vec<u64>> {
    let is_done = |line: &Line| matches!(line.event, LoadEvent::Moment { moment: berth_load::Moment::KernelDone, .. });
    let text = std::fs::read_to_string(&tenant.lines)?;
    let lines =
        text.lines().filter(|line| line.contains("kernel_done")).filter_map(|line| serde_json::from_str(line).ok());
    Ok(lines.filter(is_done).map(|line: Line| line.at.mono_ns).collect())
}

fn is_destroyed(end: &End) -> bool {
    matches!(end, End::Destroyed { .. })
}

fn ends(stays: &[Stay], of_kind: impl Fn(&End) -> bool) -> Vec<u64> {
    stays.iter().filter_map(|stay| stay.end).filter(of_kind).map(End::at).collect()
}

impl Outcome {
    /// For each process that opened the device, how long until its task was told of; `None` if it never was.
    fn newcomers_told_after_ms(&self) -> Vec<Option<f64>> {
        let keyed = self.stays.iter().filter_map(|(tenant, stays)| Some((tenant.key()?, stays)));
        let told = keyed.flat_map(|(key, stays)| {
            let opened = instants(stays, Moment::DeviceOpen);
            let told = first_told(&self.reports, key, What::TaskStarted, &opened);
            opened.into_iter().zip(told).collect::<Vec<_>>()
        });
        told.map(|(at, report)| report.map(|report| report.told_after_ms(at))).collect()
    }

    fn row(
        &self,
        sources: &'static str,
        instant: &'static str,
        what: What,
        truth_of: impl Fn(&[Stay]) -> Vec<u64>,
    ) -> Detection {
        let (mut errors, mut told_after, mut missed) = (Vec::new(), Vec::new(), 0);
        for (tenant, stays) in &self.stays {
            let Some(key) = tenant.key() else { continue };
            let truth = truth_of(stays);
            for (at, report) in truth.iter().zip(pair(&self.reports, key, what, &truth)) {
                match report {
                    Some(report) => {
                        errors.push(report.error_ms(*at));
                        told_after.push(report.told_after_ms(*at));
                    }
                    None => missed += 1,
                }
            }
        }
        Detection {
            sources,
            instant,
            seen: errors.len(),
            missed,
            error_ms: Quantiles::of(&errors),
            abs_error_ms: Quantiles::of(&errors.iter().map(|error| error.abs()).collect::<Vec<_>>()),
            told_after_ms: Quantiles::of(&told_after),
        }
    }
}
