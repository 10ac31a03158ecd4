//! When NVML is asked, and what it said: with probes at the pace of berth's monitor, else at fixed turns.
//!
//! With probes a look follows whatever they see within a tenth of a second and else comes twice a second, so what it says of
//! use is older than the driver makes it: by the pace, and a process's own share by another second.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_model::monitor::Pace;
use berth_model::{Mono, Percent, settings};
use berth_sim::{Engine, GpuView};

use super::{Sources, ns};

#[derive(Debug)]
pub(super) struct Looks {
    sources: Sources,
    pace: Pace,
    /// What the last look found.
    pub(super) seen: Vec<GpuView>,
    pub(super) seen_at: Option<Mono>,
    /// Each process's own share of the GPU, by pid.
    pub(super) shares: BTreeMap<u32, Percent>,
    shares_at: Option<Mono>,
    shares_every: Duration,
}

impl Looks {
    pub(super) fn new(sources: Sources) -> Looks {
        let settings = settings::Monitor::default();
        Looks {
            sources,
            shares_every: settings.utilisation_interval.get(),
            pace: Pace::new(settings),
            seen: Vec::new(),
            seen_at: None,
            shares: BTreeMap::new(),
            shares_at: None,
        }
    }

    /// A probe saw something that a look will show.
    pub(super) fn moment(&mut self, now: u64) {
        self.pace.event(Mono(now));
    }

    /// `by_looks`: the policy waits for one.
    pub(super) fn next(&self, by_looks: bool) -> u64 {
        match (self.sources, self.seen_at) {
            (Sources::Nvml { first_turn, .. }, None) => ns(first_turn),
            (Sources::Nvml { turn, .. }, Some(last)) => last.0 + ns(turn),
            (Sources::Probes, None) => 0,
            (Sources::Probes, Some(last)) => last.0 + ns(self.pace.next_look(last, !by_looks)),
        }
    }

    pub(super) fn take(&mut self, engine: &Engine) {
        let now = Mono(engine.now());
        self.seen = engine.nvml().gpus;
        self.seen_at = Some(now);
        self.pace.looked(now, now, Duration::ZERO);
        if self.sources != Sources::Probes || self.shares_at.is_none_or(|at| now.since(at) >= self.shares_every) {
            self.take_shares(now);
        }
    }

    /// Who is alone is not asked for its share.
    fn take_shares(&mut self, now: Mono) {
        let processes = || self.seen.iter().flat_map(|gpu| &gpu.processes);
        if self.sources == Sources::Probes && processes().count() < 2 {
            return;
        }
        let share = |process: &berth_sim::ProcessView| Some((process.pid, Percent::checked(process.sm?.pct)?));
        self.shares = processes().filter_map(share).collect();
        self.shares_at = Some(now);
    }
}
