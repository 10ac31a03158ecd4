//! A training of PyTorch with berth's library and without: its rate, and whether it computes the same.

use std::path::Path;
use std::time::Duration;

use anyhow::bail;
use berth_load::roles::words::Said;
use serde::{Deserialize, Serialize};

use super::host::Counted;
use super::{Scene, Way};
use crate::bench::colocate::program::{Invocation, Program};
use crate::bench::colocate::session::{rate, ready};
use crate::bench::quantiles::median;

/// Each way, in turn.
const ROUNDS: u32 = 3;
/// A hundred steps, and what a framework does before.
const STEPS_WITHIN: Duration = Duration::from_secs(300);
const STOPS_WITHIN: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Training {
    /// Steps per second, one for each turn.
    pub bare_per_s: Vec<f64>,
    pub attached_per_s: Vec<f64>,
    pub results: Vec<Results>,
}

/// What a hundred steps with a fixed seed and deterministic algorithms came to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Results {
    pub way: Way,
    #[serde(flatten)]
    pub found: Found,
    /// What the library in it and in the server counted meanwhile.
    pub counted: Counted,
}

/// Losses and parameters as one number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Found {
    pub steps: u32,
    pub last_loss: f64,
    pub sha256: String,
}

impl Training {
    pub fn measure(scene: &Scene<'_>, dir: &Path, seconds: u32, say: &dyn Fn(&str)) -> anyhow::Result<Self> {
        say("a training of PyTorch, with the library and without");
        let (bare_per_s, attached_per_s) = rates(scene, dir, seconds)?;
        let mut results = Vec::new();
        for way in [Way::Bare, Way::Attached, Way::Yields] {
            say(&format!("the results of a hundred steps, {}", way.name()));
            let before = scene.counted(way);
            let found = results_of(scene, dir, way)?;
            results.push(Results { way, found, counted: scene.counted(way).since(before) });
        }
        Ok(Self { bare_per_s, attached_per_s, results })
    }

    /// With the library over without; `None` if a training did not do enough steps to say.
    pub fn over_bare(&self) -> Option<f64> {
        Some(median(&self.attached_per_s)? / median(&self.bare_per_s)?)
    }

    /// Whether the library was really there, and stopped who was to yield.
    pub fn was_proven(&self) -> bool {
        let was_there = |results: &Results| match results.way {
            Way::Bare | Way::BareToo | Way::Loaded => results.counted == Counted::default(),
            Way::Attached | Way::Leads => results.counted.launches > 0,
            Way::Yields => results.counted.launches > 0 && results.counted.stops > 0,
        };
        self.results.iter().all(was_there)
    }

    pub fn is_same(&self) -> bool {
        self.results.windows(2).all(|pair| pair[0].found == pair[1].found)
    }
}

fn rates(scene: &Scene<'_>, dir: &Path, seconds: u32) -> anyhow::Result<(Vec<f64>, Vec<f64>)> {
    let invocation = python(dir, "train.py", &["resnet50"]);
    let mut bare = scene.start(Way::Bare, &invocation)?;
    let mut attached = scene.start(Way::Attached, &invocation)?;
    for program in [&mut bare, &mut attached] {
        ready(program, scene.interrupt)?;
    }
    scene.until_attached(1, 0)?;
    let mut found = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        found.0.extend(turn(&mut bare, scene, seconds)?);
        found.1.extend(turn(&mut attached, scene, seconds)?);
    }
    Ok(found)
}

fn turn(program: &mut Program, scene: &Scene<'_>, seconds: u32) -> anyhow::Result<Option<f64>> {
    program.tell("go")?;
    scene.interrupt.sleep(Duration::from_secs(seconds.into()))?;
    program.tell("stop")?;
    match program.hear(STOPS_WITHIN, scene.interrupt)? {
        Said::Trained(trained) => Ok(rate(&trained.ended_ns)),
        other => bail!("a training said {other:?} instead of its steps"),
    }
}

/// One that yields does so to a server that serves meanwhile.
fn results_of(scene: &Scene<'_>, dir: &Path, way: Way) -> anyhow::Result<Found> {
    let mut server = None;
    if way == Way::Yields {
        let args = ["load", "serve"].map(str::to_owned).to_vec();
        let mut program = scene.start(Way::Leads, &Invocation { program: std::env::current_exe()?, args })?;
        ready(&mut program, scene.interrupt)?;
        program.tell(&format!("go 200 {}", STEPS_WITHIN.as_secs()))?;
        server = Some(program);
    }
    let mut program = scene.start(way, &python(dir, "same.py", &[]))?;
    let found = program.hear(STEPS_WITHIN, scene.interrupt);
    if let Some(server) = server {
        server.kill();
    }
    found
}

fn python(dir: &Path, script: &str, args: &[&str]) -> Invocation {
    let script = dir.join(script).display().to_string();
    let args = [script].into_iter().chain(args.iter().map(|arg| (*arg).to_owned())).collect();
    Invocation { program: "python3".into(), args }
}
