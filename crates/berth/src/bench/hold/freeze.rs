//! Freezing: by the kernel's freezer in every hierarchy, and by Docker's pause.

use anyhow::{Context as _, bail};
use berth_host::freezer::{CgroupDir, Version};
use berth_model::hold::{Freezer as By, Want};

use super::bare::BareFreezer;
use super::on_hold::ms_between;
use super::pen::Pen;
use super::report::{Bare, GOAL_MS, HOLD, RELEASE, Row};
use super::subject::Load;
use super::{Bench, Part};

/// It launches all the time: lines follow each other within a fraction of a millisecond.
const LAUNCHING: [&str; 4] = ["--size", "32", "--repeats", "forever"];
/// An engine takes tens of milliseconds for each.
const DOCKER_TURNS: usize = 100;

/// Times of many holds, in milliseconds.
#[derive(Default)]
struct Times {
    holds: Vec<f64>,
    releases: Vec<f64>,
}

pub fn docker(bench: &mut Bench<'_>, rows: &mut Vec<Row>) -> anyhow::Result<()> {
    if !bench.host.uses_docker {
        bail!("the tenants are no containers of Docker");
    }
    let load = bench.load(&LAUNCHING)?;
    let turns = bench.plan.turns.min(DOCKER_TURNS);
    let times = by_hands(bench, &load, By::Docker, turns)?;
    let row = |what, times: &[f64]| Row::of(Part::Docker, "docker pause", what, times);
    rows.extend([row(HOLD, &times.holds), row(RELEASE, &times.releases)].into_iter().flatten());
    bench.end(&load)
}

pub fn cgroups(bench: &mut Bench<'_>, rows: &mut Vec<Row>) -> anyhow::Result<()> {
    let mut load = bench.load(&LAUNCHING)?;
    let own = CgroupDir::open(load.subject.cgroup.as_deref().context("the tenant has no cgroup that can freeze")?)?;
    let hierarchies = bench.host.hierarchies.clone();
    for (version, name, mount) in
        [(Version::V1, "cgroup v1", hierarchies.v1), (Version::V2, "cgroup v2", hierarchies.v2)]
    {
        let Some(mount) = mount else { continue };
        // OnHold where its own cgroup is, or in one made for it.
        let pen = if own.version() == version { None } else { Some(Pen::around(load.process, &mount)?) };
        let dir = CgroupDir::open(pen.as_ref().map_or(own.path(), Pen::path))?;
        load.subject.cgroup = Some(dir.path().to_owned());
        let turns = bench.plan.turns;
        let (bare, times) = (by_nothing(bench, &load, &dir)?, by_hands(bench, &load, By::Cgroup, turns)?);
        let row = |what, times: &[f64], bare: &[f64], is: &'static str| {
            Some(Row::of(Part::Cgroup, name, what, times)?.with_goal(GOAL_MS, Bare::of(is, bare)?))
        };
        rows.extend(row(HOLD, &times.holds, &bare.holds, "a bare write, and reading until it is frozen"));
        rows.extend(row(RELEASE, &times.releases, &bare.releases, "a bare write"));
    }
    bench.end(&load)
}

fn by_hands(bench: &Bench<'_>, load: &Load, by: By, turns: usize) -> anyhow::Result<Times> {
    let mut times = Times::default();
    let mut held = bench.held(load);
    for _ in 0..turns {
        bench.interrupt.check()?;
        load.until_running()?;
        let hold = held.go(Want::Frozen(by))?;
        let release = held.go(Want::Free)?;
        times.holds.push(hold.ms());
        times.releases.push(ms_between(release.from_ns, load.running_since(hold.to_ns, release.from_ns)?));
    }
    Ok(times)
}

fn by_nothing(bench: &Bench<'_>, load: &Load, dir: &CgroupDir) -> anyhow::Result<Times> {
    let bare = BareFreezer::open(dir)?;
    let mut times = Times::default();
    for _ in 0..bench.plan.turns {
        bench.interrupt.check()?;
        load.until_running()?;
        let hold = bare.freeze().inspect_err(|_| drop(bare.thaw()))?;
        let released_ns = bare.thaw()?;
        times.holds.push(hold.ms());
        times.releases.push(ms_between(released_ns, load.running_since(hold.to_ns, released_ns)?));
    }
    Ok(times)
}
