//! The gate: how soon it is down, how soon a launch is halted and the process frozen, how soon it is made when let go, and
//! what a launch costs meanwhile and afterwards. By signals it is stopped first, and the stop hidden.

use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use berth_host::clock;
use berth_host::probes::Probes;
use berth_load::Moment;
use berth_model::hold::Want;
use berth_model::{Event, Mono, ProcKey};

use super::bare;
use super::on_hold::{OnHold, ms_between};
use super::report::{Bare, GOAL_MS, RELEASE, Row};
use super::subject::Load;
use super::{Bench, Part};
use crate::bench::quantiles::median;

/// It launches all the time.
const LAUNCHING: [&str; 4] = ["--size", "32", "--repeats", "forever"];
/// It comes back with a new context again and again, pauses before its first launch, and launches once.
const NEWCOMER: [&str; 8] = ["--size", "32", "--repeats", "1", "--hold", "100ms", "--tasks", "forever"];
/// Attaching again takes tens of milliseconds, a new context more.
const ATTACHING_TURNS: usize = 100;
const NEWCOMER_TURNS: usize = 20;
/// Launches in a round of the tenant by which their cost is measured, and how often each state is measured.
const LAUNCHES: &str = "64";
const LAUNCHES_A_ROUND: f64 = 64.0;
const COST_PAIRS: usize = 5;
const COST_WINDOW: Duration = Duration::from_millis(300);
/// Taking probes away queues up behind everybody else's on the host.
const PATIENCE: Duration = Duration::from_secs(60);

/// Milliseconds of each part of many holds.
#[derive(Default)]
struct Times {
    armed: Vec<f64>,
    told: Vec<f64>,
    /// By signals only.
    stopped: Vec<f64>,
    hidden: Vec<f64>,
    frozen: Vec<f64>,
    released: Vec<f64>,
}

pub fn measure(bench: &mut Bench<'_>, rows: &mut Vec<Row>) -> anyhow::Result<()> {
    probes(bench)?;
    let newcomer = bench.load(&NEWCOMER)?;
    let first = newcomers(bench, &newcomer)?;
    bench.end(&newcomer)?;
    rows.extend(row("armed before a first launch", &first.armed));
    let load = bench.load(&LAUNCHING)?;
    let times = launching(bench, &load)?;
    rows.extend(row("armed while it launches", &times.armed));
    rows.extend(row("hit → told to the daemon", &times.told));
    let bare = bare_stops(bench, &load)?;
    bench.end(&load)?;
    let with_goal = |row: Row| Some(row.with_goal(GOAL_MS, Bare::of("SIGSTOP by a plain call, until stopped", &bare)?));
    if probes(bench)?.is_unseen() {
        rows.extend(row("hit → frozen", &times.frozen).and_then(with_goal));
    } else {
        rows.extend(row("hit → stopped", &times.stopped).and_then(with_goal));
        rows.extend(row("stopped → frozen, unseen", &times.hidden));
        rows.extend(row("hit → frozen", &times.frozen));
    }
    rows.extend(row(RELEASE, &times.released));
    residue(bench, rows)
}

fn row(what: &'static str, times: &[f64]) -> Option<Row> {
    Row::of(Part::Gate, "gate", what, times)
}

fn newcomers(bench: &Bench<'_>, load: &Load) -> anyhow::Result<Times> {
    let mut times = Times::default();
    let mut held = bench.held(load);
    let first = load.lines.until("there", |lines| lines.last().map(|line| line.task))?;
    for task in (first + 1..).take(bench.plan.turns.min(NEWCOMER_TURNS)) {
        bench.interrupt.check()?;
        // After its context, and before the pause that comes before its launch is over.
        load.lines.until_moment(Moment::FirstAllocation, task)?;
        load.lines.empty()?;
        one(bench, load, &mut held, &mut times)?;
    }
    Ok(times)
}

fn launching(bench: &Bench<'_>, load: &Load) -> anyhow::Result<Times> {
    let mut times = Times::default();
    let mut held = bench.held(load);
    for _ in 0..bench.plan.turns.min(ATTACHING_TURNS) {
        bench.interrupt.check()?;
        load.until_running()?;
        let before = probes(bench)?.stats().detached;
        one(bench, load, &mut held, &mut times)?;
        until_detached(bench, before + 1)?;
    }
    Ok(times)
}

/// Gated, halted at a launch, frozen, let go.
fn one(bench: &Bench<'_>, load: &Load, held: &mut OnHold<'_>, times: &mut Times) -> anyhow::Result<()> {
    while bench.host.events.try_recv().is_ok() {}
    let armed = held.go(Want::Gated)?;
    let (hit, told_ns) = until_halted(bench, load.process)?;
    if !probes(bench)?.is_unseen() {
        times.stopped.push(ms_between(hit.0, bare::until_stopped(bench.proc_root(), load.process)?));
    }
    held.stopped(load.process);
    let hidden = held.go(Want::Gated)?;
    let release = held.go(Want::Free)?;
    let running_ns = load.running_since(hidden.to_ns, release.from_ns)?;
    times.armed.push(armed.ms());
    times.told.push(ms_between(hit.0, told_ns));
    times.hidden.push(hidden.ms());
    times.frozen.push(ms_between(hit.0, hidden.to_ns));
    times.released.push(ms_between(release.from_ns, running_ns));
    Ok(())
}

/// When it hit the probe, and when that was told.
fn until_halted(bench: &Bench<'_>, wanted: ProcKey) -> anyhow::Result<(Mono, u64)> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        bench.interrupt.check()?;
        let left = deadline.saturating_duration_since(Instant::now());
        match bench.host.events.recv_timeout(left.min(Duration::from_millis(100))) {
            Ok(Event::Halted { process, at, .. }) if process == wanted => return Ok((at, clock::now().0)),
            Err(_) if left.is_zero() => bail!("no launch was halted within {} s", PATIENCE.as_secs()),
            _ => {}
        }
    }
}

/// The probes of so many kinds of calls have been taken away, so that the next hold finds the tenant as this one did.
fn until_detached(bench: &Bench<'_>, kinds: u64) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while probes(bench)?.stats().detached < kinds {
        bench.interrupt.check()?;
        if Instant::now() > deadline {
            bail!("probes are still attached {} s after a release", PATIENCE.as_secs());
        }
        std::thread::sleep(Duration::from_micros(500));
    }
    Ok(())
}

fn probes<'a>(bench: &'a Bench<'_>) -> anyhow::Result<&'a Probes> {
    bench.host.probes.as_deref().map_err(|why| anyhow!(why.clone()))
}

fn bare_stops(bench: &Bench<'_>, load: &Load) -> anyhow::Result<Vec<f64>> {
    let one = |_| {
        bench.interrupt.check()?;
        load.until_running()?;
        bare::stop(bench.proc_root(), load.process).map(|span| span.ms())
    };
    (0..bench.plan.turns).map(one).collect()
}

/// What a launch, with the wait for it, costs more while its process is watched, and after everything was taken away: by the
/// median round of a tenant that only launches, in states that alternate.
fn residue(bench: &mut Bench<'_>, rows: &mut Vec<Row>) -> anyhow::Result<()> {
    let load = bench.load(&["--size", "32", "--streams", LAUNCHES, "--repeats", "forever"])?;
    let (mut watched, mut after) = (Vec::new(), Vec::new());
    let mut plain = round_ns(bench, &load)?;
    for _ in 0..COST_PAIRS {
        let probes = probes(bench)?;
        let before = probes.stats().detached;
        probes.watch_drains(load.process, true)?;
        let while_watched = round_ns(bench, &load);
        probes.watch_drains(load.process, false)?;
        // Launches and waits.
        until_detached(bench, before + 2)?;
        let mut held = bench.held(&load);
        one(bench, &load, &mut held, &mut Times::default())?;
        until_detached(bench, before + 3)?;
        let then = round_ns(bench, &load)?;
        let more = |ns: f64| (ns - plain) / LAUNCHES_A_ROUND / 1e6;
        watched.push(more(while_watched?));
        after.push(more(then));
        plain = then;
    }
    rows.extend(row("launch costs more, watched", &watched));
    rows.extend(row("launch costs more, after", &after));
    bench.end(&load)
}

fn round_ns(bench: &Bench<'_>, load: &Load) -> anyhow::Result<f64> {
    load.lines.empty()?;
    bench.interrupt.sleep(COST_WINDOW)?;
    median(&load.lines.rounds_ns()?).ok_or_else(|| anyhow!("the tenant launched nothing"))
}
