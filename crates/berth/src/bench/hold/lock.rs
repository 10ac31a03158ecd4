//! The driver's lock: of a tenant that computes nothing, and of one that always does.

use std::time::Duration;

use anyhow::anyhow;
use berth_host::driver::{Driver, measure};
use berth_model::hold::Want;

use super::on_hold::ms_between;
use super::report::{Bare, GOAL_MS, HOLD, RELEASE, Row};
use super::subject::Load;
use super::{Bench, Part};
use crate::bench::quantiles::median;

/// Tiny kernels with pauses: nothing runs when it is locked, and soon afterwards it stands at a launch.
const IDLE: [&str; 5] = ["light", "--size", "32", "--period", "10ms"];
/// One kernel of some milliseconds after another.
const BUSY: [&str; 4] = ["--size", "3072", "--repeats", "forever"];
const BUSY_TURNS: usize = 100;
const BARE_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Default)]
struct Times {
    locks: Vec<f64>,
    releases: Vec<f64>,
}

pub fn measure(bench: &mut Bench<'_>, rows: &mut Vec<Row>) -> anyhow::Result<()> {
    let driver = bench.host.driver.clone().map_err(|why| anyhow!(why))?;
    let load = bench.load(&IDLE)?;
    let times = turns(bench, &load, bench.plan.turns, true)?;
    let (bare_locks, bare_unlocks) = bare(bench, &driver, &load)?;
    bench.end(&load)?;
    let row = |what, times: &[f64], bare: &[f64], is: &'static str| {
        Some(Row::of(Part::Lock, "lock, idle", what, times)?.with_goal(GOAL_MS, Bare::of(is, bare)?))
    };
    rows.extend(row(HOLD, &times.locks, &bare_locks, "the driver's call alone"));
    rows.extend(row(RELEASE, &times.releases, &bare_unlocks, "the driver's call alone"));
    busy(bench, rows)
}

/// It is locked when its kernel is done, and runs again when its next one is.
fn busy(bench: &mut Bench<'_>, rows: &mut Vec<Row>) -> anyhow::Result<()> {
    let load = bench.load(&BUSY)?;
    load.lines.until("computing", |lines| (lines.len() > 50).then_some(()))?;
    let kernel_ms = median(&load.lines.rounds_ns()?).map_or(f64::NAN, |ns| ns / 1e6);
    let times = turns(bench, &load, bench.plan.turns.min(BUSY_TURNS), false)?;
    let name = format!("lock, busy {kernel_ms:.0} ms");
    let row = |what, times: &[f64]| Row::of(Part::Lock, &name, what, times);
    rows.extend([row(HOLD, &times.locks), row("release → next kernel done", &times.releases)].into_iter().flatten());
    bench.end(&load)
}

/// `idle`: locked only when it has just done a kernel and the next is not due.
fn turns(bench: &Bench<'_>, load: &Load, turns: usize, idle: bool) -> anyhow::Result<Times> {
    let mut times = Times::default();
    let mut held = bench.held(load);
    for _ in 0..turns {
        bench.interrupt.check()?;
        until_seen(load, idle)?;
        let lock = held.go(Want::Locked)?;
        // Its CPU side goes on up to its next launch, and waits there.
        let at_launch_ns = load.lines.until_at_launch()?;
        let release = held.go(Want::Free)?;
        times.locks.push(lock.ms());
        times.releases.push(ms_between(release.from_ns, load.running_since(at_launch_ns, release.from_ns)?));
    }
    Ok(times)
}

/// It has said something since; `idle`: that a kernel is done.
fn until_seen(load: &Load, idle: bool) -> anyhow::Result<()> {
    load.lines.empty()?;
    load.lines.until("past a kernel", |lines| lines.last().filter(|line| !idle || ends_a_kernel(line)).map(drop))
}

fn ends_a_kernel(line: &berth_load::Line) -> bool {
    use berth_load::{Edge, Event, Phase};
    matches!(line.event, Event::Phase { phase: Phase::Kernel, edge: Edge::End, .. })
}

/// Milliseconds of lock and of unlock, at the same instants of its life: right after the last call it would answer quicker.
fn bare(bench: &Bench<'_>, driver: &Driver, load: &Load) -> anyhow::Result<(Vec<f64>, Vec<f64>)> {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let mut times = (Vec::new(), Vec::new());
    driver.state(load.process)?;
    for _ in 0..bench.plan.turns {
        bench.interrupt.check()?;
        until_seen(load, true)?;
        let (lock, unlock) = measure::bare_lock(driver, load.process, BARE_TIMEOUT)?;
        times.0.push(ms(lock));
        times.1.push(ms(unlock));
    }
    Ok(times)
}
