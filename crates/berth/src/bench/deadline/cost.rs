//! What watching costs, by the number of containers: the daemon's CPU and memory, the host's CPU with and without it, and how soon it
//! tells.
//!
//! One sweep adds container after container and stays a while at each number. The monitor is there all the time, or never.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use berth_host::clock;
use berth_model::Moment;
use serde::Serialize;

use crate::bench::daemon::{Daemon, Memory};
use crate::bench::quantiles::Spread;
use crate::bench::seen::{Listener, Report, What, pair};
use crate::bench::tenants::{PATIENCE, Tenants, Work};
use crate::bench::truth::{self, Stay};
use crate::engine;
use crate::interrupt::Interrupt;
use crate::stage::Tenant;

/// Between two samples of the daemon.
const SAMPLE_EVERY: Duration = Duration::from_millis(500);
/// Questions from nothing at each number of containers.
const QUESTIONS: u32 = 5;
/// Processes one after another: more than any sweep sees.
pub const ROUNDS: u32 = 1_000;

/// The host at one number of containers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Point {
    pub containers: u32,
    /// With the monitor, and without.
    pub watched: bool,
    /// Of the daemon, in percent of one core; `None` without.
    pub cpu_pct: Option<f64>,
    #[serde(flatten)]
    pub memory: Option<Memory>,
    /// Of everything on the host, in percent of one core: the monitor, the tenants, and the simulated GPU if it is one.
    pub host_cpu_pct: f64,
    /// From a task's start or end to whoever follows the events being told of it.
    pub told_after_ms: Option<Spread>,
    /// Without a daemon: asking the driver for its processes and the host whose they are, once and from nothing.
    pub asked_ms: Option<Spread>,
}

/// The daemon at one instant.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sample {
    /// Since the daemon was started.
    pub at_s: f64,
    pub containers: u32,
    /// In percent of one core, since the sample before.
    pub cpu_pct: f64,
    #[serde(flatten)]
    pub memory: Memory,
}

/// A stretch of time with one number of containers, on the monotonic clock.
#[derive(Debug, Clone, Copy)]
struct Window {
    from_ns: u64,
    to_ns: u64,
}

pub struct Sweep<'a, 'b> {
    pub tenants: &'a mut Tenants<'b>,
    pub interrupt: &'a Interrupt,
    pub work: &'a Work,
    /// In ascending order.
    pub counts: &'a [u32],
    /// How long at each number.
    pub window: Duration,
    pub say: &'a dyn Fn(&str),
}

impl Sweep<'_, '_> {
    /// Nobody watches: what the host does without a monitor, and how long a question takes.
    pub fn unwatched(&mut self) -> anyhow::Result<Vec<Point>> {
        let (mut points, mut running) = (Vec::new(), Vec::new());
        let settings = self.tenants.stage.settings();
        for &containers in self.counts {
            (self.say)(&format!("host with {containers} containers, not watched"));
            self.add_up_to(containers, &mut running)?;
            let busy = Busy::now()?;
            self.interrupt.sleep(self.window)?;
            let host_cpu_pct = busy.pct_until(Busy::now()?);
            let mut asked = Vec::new();
            for _ in 0..QUESTIONS {
                self.interrupt.check()?;
                let began = Instant::now();
                engine::sample_once(&settings)?;
                asked.push(began.elapsed().as_secs_f64() * 1e3);
            }
            let asked_ms = Spread::of(&asked);
            let (cpu_pct, memory, told_after_ms) = (None, None, None);
            points.push(Point { containers, watched: false, cpu_pct, memory, host_cpu_pct, told_after_ms, asked_ms });
        }
        self.end(running)?;
        Ok(points)
    }

    /// The daemon watches from before the first container until after the last.
    pub fn watched(&mut self, daemon: &Daemon) -> anyhow::Result<(Vec<Point>, Vec<Sample>)> {
        let began = Instant::now();
        let listener = Listener::start(daemon.client())?;
        let (mut points, mut samples, mut windows, mut running) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for &containers in self.counts {
            (self.say)(&format!("monitor with {containers} containers"));
            self.add_up_to(containers, &mut running)?;
            let (from_ns, busy, used) = (clock::now().0, Busy::now()?, daemon.usage()?);
            samples.extend(self.sampled(daemon, containers, began)?);
            let cpu_pct = Some(daemon.cpu_pct_since(&used)?.values().sum());
            let (memory, host_cpu_pct) = (Some(daemon.memory()?), busy.pct_until(Busy::now()?));
            windows.push(Window { from_ns, to_ns: clock::now().0 });
            let (told_after_ms, asked_ms) = (None, None);
            points.push(Point { containers, watched: true, cpu_pct, memory, host_cpu_pct, told_after_ms, asked_ms });
        }
        let stays = self.end(running)?;
        let reports = listener.take();
        for (point, window) in points.iter_mut().zip(windows) {
            point.told_after_ms = Spread::of(&told_after(&stays, &reports, window));
        }
        Ok((points, samples))
    }

    /// Samples of one window.
    fn sampled(&self, daemon: &Daemon, containers: u32, began: Instant) -> anyhow::Result<Vec<Sample>> {
        let (mut samples, end) = (Vec::new(), Instant::now() + self.window);
        while Instant::now() < end {
            let used = daemon.usage()?;
            self.interrupt.sleep(SAMPLE_EVERY.min(end.saturating_duration_since(Instant::now())))?;
            let (cpu_pct, memory) = (daemon.cpu_pct_since(&used)?.values().sum(), daemon.memory()?);
            samples.push(Sample { at_s: began.elapsed().as_secs_f64(), containers, cpu_pct, memory });
        }
        Ok(samples)
    }

    /// Starts containers until there are as many, and waits until the last is at work.
    fn add_up_to(&mut self, count: u32, running: &mut Vec<Tenant>) -> anyhow::Result<()> {
        while running.len() < count as usize {
            let tenant = self.tenants.launch(self.work)?;
            let deadline = Instant::now() + PATIENCE;
            while !std::fs::metadata(&tenant.lines).is_ok_and(|lines| lines.len() > 0) {
                if Instant::now() > deadline {
                    bail!("tenant {} does not get to work", tenant.name());
                }
                self.interrupt.sleep(Duration::from_millis(50))?;
            }
            running.push(tenant);
        }
        Ok(())
    }

    /// Ends the containers in the middle of what they do, and reads what they have written until then.
    fn end(&mut self, running: Vec<Tenant>) -> anyhow::Result<Vec<(Tenant, Vec<Stay>)>> {
        let one = |tenant: Tenant| {
            self.tenants.stage.end(&tenant)?;
            let stays = truth::read(&tenant.lines)?;
            Ok((tenant, stays))
        };
        running.into_iter().map(one).collect()
    }
}

/// Of the starts and ends in one window, how long it took until they were told.
fn told_after(stays: &[(Tenant, Vec<Stay>)], reports: &[Report], window: Window) -> Vec<f64> {
    let is_within = |at: &u64| (window.from_ns..window.to_ns).contains(at);
    let keyed = stays.iter().filter_map(|(tenant, stays)| Some((tenant.key()?, stays)));
    let told = keyed.flat_map(|(key, stays)| {
        let starts: Vec<u64> = stays
            .iter()
            .filter_map(|stay| stay.moments.get(&Moment::ContextReady).copied())
            .filter(is_within)
            .collect();
        let ends: Vec<u64> = stays.iter().filter_map(|stay| Some(stay.end?.at())).filter(is_within).collect();
        [(What::TaskStarted, starts), (What::TaskEnded, ends)].into_iter().flat_map(move |(what, truth)| {
            let seen = pair(reports, key, what, &truth);
            let told = truth.iter().zip(seen).filter_map(|(at, seen)| Some(seen?.told_after_ms(*at)));
            told.collect::<Vec<_>>()
        })
    });
    told.collect()
}

/// What the CPUs of the host have done so far, in the kernel's ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Busy {
    busy: u64,
    total: u64,
    cpus: usize,
}

impl Busy {
    fn now() -> anyhow::Result<Self> {
        let text = std::fs::read_to_string("/proc/stat").context("reading /proc/stat")?;
        Self::read(&text).context("/proc/stat does not begin with the CPUs' time")
    }

    /// Busy is all but idle and waiting for disks. Guests are in the time of users already.
    fn read(stat: &str) -> Option<Self> {
        let line = stat.lines().next()?.strip_prefix("cpu ")?;
        let columns: Vec<u64> = line.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
        let [user, nice, system, idle, iowait, irq, softirq, steal, ..] = columns[..] else { return None };
        let busy = user + nice + system + irq + softirq + steal;
        let cpus = stat.lines().skip(1).take_while(|line| line.starts_with("cpu")).count();
        Some(Self { busy, total: busy + idle + iowait, cpus })
    }

    /// In percent of one core; nothing where no tick has passed.
    fn pct_until(self, later: Self) -> f64 {
        let (busy, total) = (later.busy.saturating_sub(self.busy), later.total.saturating_sub(self.total));
        100.0 * later.cpus as f64 * busy as f64 / total.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_is_neither_idle_nor_waiting_for_disks_nor_counted_twice() {
        let read = Busy::read("cpu  1 2 4 1000 2000 8 16 32 64 128\ncpu0 1\ncpu1 2\nintr 7\n").unwrap();
        assert_eq!(read, Busy { busy: 1 + 2 + 4 + 8 + 16 + 32, total: 3_063, cpus: 2 });
        assert_eq!(Busy::read("intr 1 2 3"), None);
    }

    #[test]
    fn the_host_is_counted_in_cores() {
        let (then, now) = (Busy { busy: 10, total: 100, cpus: 4 }, Busy { busy: 60, total: 200, cpus: 4 });
        assert_eq!(then.pct_until(now), 200.0);
        assert_eq!(then.pct_until(then), 0.0);
    }
}
