//! `berth bench colocate`: a server whose latency counts and a trainer whose rate counts on one GPU, in every way there is to share it.
//!
//! Each pair is measured alone at the beginning and at the end, so that a drift of the machine shows, and in between in every mode, at
//! every load, with the same programs, the same arrivals and windows of the same length. `pair` names the programs, `mode` the ways,
//! `around` sets up what they find, `managed` the daemon among it, `session` measures, `report` puts it beside what was asked.

pub mod around;
mod cgroups;
mod managed;
pub mod mode;
pub mod pair;
pub mod plots;
pub mod program;
pub mod report;
pub mod session;

use std::path::PathBuf;

use anyhow::Context as _;
use berth_model::settings::KernelSettings;
use serde::Serialize;

use self::around::Around;
use self::mode::{Mode, Surroundings};
use self::pair::{Known, Load, Pair, Programs, probe_torch};
use self::session::{Alone, Session, Window, ready};
use super::machine::Machine;
use crate::interrupt::Interrupt;
use crate::stage::{GpuChoice, GroundChoice, Stage};

/// What to measure, and on what.
#[derive(Debug, Clone)]
pub struct Plan {
    pub pairs: Vec<Pair>,
    pub modes: Vec<Mode>,
    pub loads: Vec<Load>,
    /// Of each window.
    pub seconds: u32,
    /// Windows of each load in each mode.
    pub rounds: u32,
    /// By which berth orders kernels.
    pub kernels: KernelSettings,
    /// Other settings, with what they are called: each is measured in every mode of links, without another start.
    pub variations: Vec<(String, KernelSettings)>,
    pub gpu: GpuChoice,
    /// The directory of the PyTorch programs, if there are to be any.
    pub torch: Option<PathBuf>,
    /// The library that is loaded into programs under berth; `None`: beside this program.
    pub shim: Option<PathBuf>,
}

/// Everything that was measured so far.
#[derive(Debug, Clone)]
pub struct Measured {
    pub machine: Machine,
    pub seconds: u32,
    pub kernels: KernelSettings,
    pub loads: Vec<Load>,
    pub pairs: Vec<MeasuredPair>,
    /// What was left out, and why.
    pub notes: Vec<String>,
}

#[derive(Debug, Clone)]
pub struct MeasuredPair {
    pub pair: Pair,
    /// At the beginning, and at the end.
    pub alone: Vec<Alone>,
    pub together: Vec<Together>,
}

/// All windows of one mode.
#[derive(Debug, Clone)]
pub struct Together {
    pub mode: Mode,
    /// By which other settings; empty by those of the whole measurement.
    pub with: String,
    pub windows: Vec<Window>,
    /// Meanwhile.
    pub deeds: Option<Deeds>,
}

/// The proof that berth was at work, and where it gave up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Deeds {
    /// Waits that were put into streams.
    pub stops: u64,
    /// Those that lasted too long.
    pub stops_given_up: u64,
    /// How often work was taken off the GPU in the middle.
    pub preempted: u64,
    /// How often somebody led for more than its share.
    pub leads_lost: u64,
}

impl Deeds {
    fn since(self, before: Self) -> Self {
        Self {
            stops: self.stops.saturating_sub(before.stops),
            stops_given_up: self.stops_given_up.saturating_sub(before.stops_given_up),
            preempted: self.preempted.saturating_sub(before.preempted),
            leads_lost: self.leads_lost.saturating_sub(before.leads_lost),
        }
    }
}

/// Measures; `say` is told what is going on, and `keep` what there is after every mode.
pub fn run(
    plan: &Plan,
    interrupt: &Interrupt,
    say: &dyn Fn(&str),
    keep: &mut dyn FnMut(&Measured) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let stage = open(&plan.gpu)?;
    let mut machine = Machine::of(&stage)?;
    "a server and a trainer".clone_into(&mut machine.tenants);
    let (seconds, kernels, loads) = (plan.seconds, plan.kernels.clone(), plan.loads.clone());
    let notes = around::debug_note().into_iter().collect();
    let measured = Measured { machine, seconds, kernels, loads, pairs: Vec::new(), notes };
    let programs = Programs { berth: std::env::current_exe()?, torch: plan.torch.clone() };
    let mut bench = Bench { plan, stage: &stage, mps_stage: None, programs, interrupt, say, measured };
    let modes = bench.possible_modes();
    for pair in bench.possible_pairs() {
        bench.pair(pair, &modes, keep)?;
    }
    Ok(())
}

fn open(gpu: &GpuChoice) -> anyhow::Result<Stage> {
    Stage::open("berth-colocate", gpu, GroundChoice::Process, std::path::Path::new(""))
}

struct Bench<'a> {
    plan: &'a Plan,
    stage: &'a Stage,
    /// A simulated GPU has MPS from its beginning or never: this is another one.
    mps_stage: Option<Stage>,
    programs: Programs,
    interrupt: &'a Interrupt,
    say: &'a dyn Fn(&str),
    measured: Measured,
}

impl<'a> Bench<'a> {
    fn note(&mut self, note: String) {
        (self.say)(&note);
        self.measured.notes.push(note);
    }

    /// Without those that this host cannot do.
    fn possible_modes(&mut self) -> Vec<Mode> {
        let mut modes = self.plan.modes.clone();
        let no_mps = around::why_no_mps(self.stage.is_simulated());
        let no_berth = around::why_no_shim(self.plan.shim.as_deref());
        self.leave_out(&mut modes, no_mps, |mode| mode.surroundings().needs_mps());
        self.leave_out(&mut modes, no_berth, Mode::is_berth);
        modes
    }

    fn leave_out(&mut self, modes: &mut Vec<Mode>, why: Option<String>, is_it: fn(Mode) -> bool) {
        let Some(why) = why else { return };
        let without: Vec<String> = modes.iter().filter(|mode| is_it(**mode)).map(ToString::to_string).collect();
        if !without.is_empty() {
            self.note(format!("left out: {}: {why}", without.join(", ")));
            modes.retain(|mode| !is_it(*mode));
        }
    }

    fn possible_pairs(&mut self) -> Vec<Pair> {
        let (torch, built_in): (Vec<Pair>, Vec<Pair>) = self.plan.pairs.iter().partition(|pair| pair.is_torch());
        let missing = match &self.plan.torch {
            _ if torch.is_empty() => None,
            None => Some("--torch DIR names the programs".to_owned()),
            Some(_) if self.stage.is_simulated() => Some("PyTorch needs a real GPU".to_owned()),
            Some(dir) => probe_torch(dir).err(),
        };
        match missing {
            None => self.plan.pairs.clone(),
            Some(why) => {
                let names: Vec<&str> = torch.iter().map(|pair| pair.name()).collect();
                self.note(format!("left out: {}: {why}", names.join(", ")));
                built_in
            }
        }
    }

    fn pair(
        &mut self,
        pair: Pair,
        modes: &[Mode],
        keep: &mut dyn FnMut(&Measured) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        (self.say)(&format!("{}: {}", pair.name(), pair.what()));
        self.measured.pairs.push(MeasuredPair { pair, alone: Vec::new(), together: Vec::new() });
        let mut known = Known::default();
        let others = in_turn(modes).into_iter().filter(|found| *found != Surroundings::Bare);
        let first = [(Surroundings::Bare, modes)];
        // At the end alone again.
        let turns = first.into_iter().chain(others.map(|other| (other, modes))).chain([(Surroundings::Bare, &[][..])]);
        for (surroundings, modes) in turns {
            if let Err(error) = self.surroundings(pair, surroundings, modes, &mut known) {
                self.interrupt.check()?;
                self.note(format!("{}, {}: {error:#}", pair.name(), named(surroundings, modes)));
            }
            keep(&self.measured)?;
        }
        Ok(())
    }

    /// All modes that need no others. Bare, both are measured alone first.
    fn surroundings(
        &mut self,
        pair: Pair,
        surroundings: Surroundings,
        modes: &[Mode],
        known: &mut Known,
    ) -> anyhow::Result<()> {
        self.open_mps_stage(surroundings)?;
        let stage = self.mps_stage.as_ref().filter(|_| surroundings.needs_mps()).unwrap_or(self.stage);
        let mut around = Around::set_up(stage, surroundings, &self.plan.kernels, self.plan.shim.as_deref())?;
        let mut session = self.session(pair, &around, known)?;
        if surroundings == Surroundings::Bare {
            let alone = session.alone(&self.plan.loads)?;
            self.say_windows(pair, Mode::Alone, &alone.windows);
            if let Some(found) = self.measured.pairs.last_mut() {
                found.alone.push(alone);
            }
        }
        let modes = modes.iter().filter(|mode| **mode != Mode::Alone && mode.surroundings() == surroundings);
        for mode in modes {
            let entered = around.enter(*mode, self.promised_ms(pair), self.interrupt);
            entered.with_context(|| session.last_words())?;
            let own = (String::new(), self.plan.kernels.clone());
            let varied = self.plan.variations.iter().filter(|_| matches!(mode, Mode::Links { .. }));
            for (name, settings) in std::iter::once(&own).chain(varied) {
                around.vary(settings);
                let before = around.deeds();
                let windows = session.together(&self.plan.loads)?;
                let deeds = around.deeds().zip(before).map(|(after, before)| after.since(before));
                if !name.is_empty() {
                    (self.say)(&format!("{}, {mode}, with {name}:", pair.name()));
                }
                self.say_windows(pair, *mode, &windows);
                if let Some(found) = self.measured.pairs.last_mut() {
                    found.together.push(Together { mode: *mode, with: name.clone(), windows, deeds });
                }
            }
        }
        Ok(())
    }

    fn open_mps_stage(&mut self, surroundings: Surroundings) -> anyhow::Result<()> {
        if let GpuChoice::Sim { profile, gpus, time_scale, .. } = &self.plan.gpu
            && surroundings.needs_mps()
            && self.mps_stage.is_none()
        {
            let (profile, gpus, time_scale) = (profile.clone(), *gpus, *time_scale);
            self.mps_stage = Some(open(&GpuChoice::Sim { profile, gpus, time_scale, mps: true })?);
        }
        Ok(())
    }

    /// The latency that the server is to keep: what is asked of the pair, by what it had alone.
    fn promised_ms(&self, pair: Pair) -> Option<f64> {
        let alone = self.measured.pairs.last()?.alone.first()?;
        let windows = alone.windows.iter();
        let p99_ms = windows.map(|window| window.served.p99_ms).max_by(f64::total_cmp)?;
        Some(p99_ms * pair.asked().p99_over_alone)
    }

    fn session(&self, pair: Pair, around: &Around, known: &mut Known) -> anyhow::Result<Session<'a>> {
        let (Some(server), Some(trainer)) = (pair.server(&self.programs, *known), pair.trainer(&self.programs, *known))
        else {
            anyhow::bail!("the programs of {} are not there", pair.name());
        };
        let mut server = around.start_server(&server)?;
        // One that calibrates must be alone meanwhile.
        let calibrates = !pair.is_torch() && known.server.is_none();
        let said = if calibrates { Some(ready(&mut server, self.interrupt)?) } else { None };
        let mut trainer = around.start_trainer(&trainer)?;
        known.trainer = ready(&mut trainer, self.interrupt)?.calibration;
        known.server = said.map_or_else(|| ready(&mut server, self.interrupt), Ok)?.calibration;
        let Plan { seconds, rounds, .. } = *self.plan;
        Ok(Session { server, trainer, interrupt: self.interrupt, seconds, rounds })
    }

    fn say_windows(&self, pair: Pair, mode: Mode, windows: &[Window]) {
        for Window { load, served, trainer_per_s, .. } in windows {
            let trainer = trainer_per_s.map_or(String::new(), |steps| format!(", trainer {steps:.2} steps/s"));
            let (p50, p99) = (served.p50_ms, served.p99_ms);
            let taken = served.first_ms.zip(served.queued_ms);
            let taken =
                taken.map_or(String::new(), |(first, queued)| format!(" (first {first:.2}, queued {queued:.2})"));
            (self.say)(&format!("{}, {mode}, {load}: p50 {p50:.2} ms, p99 {p99:.2} ms{taken}{trainer}", pair.name()));
        }
    }
}

/// Each once, in the order of the modes.
fn in_turn(modes: &[Mode]) -> Vec<Surroundings> {
    let mut all: Vec<Surroundings> = modes.iter().map(|mode| mode.surroundings()).collect();
    all.dedup();
    all
}

/// What could not be measured.
fn named(surroundings: Surroundings, modes: &[Mode]) -> String {
    let alone = [Mode::Alone].into_iter().filter(|_| surroundings == Surroundings::Bare);
    let others = modes.iter().copied().filter(|mode| *mode != Mode::Alone && mode.surroundings() == surroundings);
    alone.chain(others).map(|mode| mode.to_string()).collect::<Vec<_>>().join(", ")
}
