//! Nodes as they may be, drawn from a seed.

use std::time::Duration;

use berth_model::cluster::report::UnderWay;
use berth_model::cluster::{GpuReport, LoadReport, NodeId, Report, Stamp, Wanted};
use berth_model::deadline::{Deadline, Spread, Unit};
use berth_model::id::GpuUuid;
use berth_model::{Bytes, Percent};

use crate::bench::contention::workload::draw;

/// How much a cluster has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// GPUs with none to four tenants that have deadlines, and any amount of memory free.
    Mixed,
    /// Those who serve take nine tenths of every GPU, and some task is due soon: nobody has time for more than little.
    Full,
}

/// The same seed draws the same.
#[derive(Debug)]
pub struct Draw {
    seed: u64,
    drawn: usize,
}

const GPUS: usize = 2;
const GPU_GIB: f64 = 80.0;
/// A context takes some.
const LEAST_USED_GIB: f64 = 1.0;

impl Draw {
    pub fn new(seed: u64) -> Self {
        Self { seed, drawn: 0 }
    }

    pub fn below(&mut self, below: usize) -> usize {
        self.drawn += 1;
        let drawn = draw(self.seed, self.drawn, below as u64);
        usize::try_from(drawn).expect("less than a usize")
    }

    pub fn between(&mut self, from: f64, to: f64) -> f64 {
        const PARTS: u32 = 1 << 20;
        let part = self.below(PARTS as usize) as f64 / f64::from(PARTS);
        from + (to - from) * part
    }

    fn is_one_in(&mut self, many: usize) -> bool {
        self.below(many) == 0
    }

    pub fn report(&mut self, node: usize, number: u64, load: Load) -> Report {
        Report {
            node: name(node),
            stamp: Stamp { started_ms: 1, number, at_ms: number },
            berth: env!("CARGO_PKG_VERSION").to_owned(),
            policy: None,
            means: Vec::new(),
            gpus: (0..GPUS).map(|gpu| self.gpu(node, gpu, load)).collect(),
            pasts: 1,
        }
    }

    /// The next one of the same node, a second later.
    pub fn next(&mut self, last: &Report) -> Report {
        let mut report = last.clone();
        report.stamp.number += 1;
        for gpu in &mut report.gpus {
            for load in &mut gpu.loads {
                match &mut load.under_way {
                    Some(work) if work.due_in_seconds > 1.0 => {
                        work.due_in_seconds -= 1.0;
                        work.done_seconds += self.between(0.0, 0.3);
                    }
                    _ => *load = self.load(),
                }
            }
        }
        report
    }

    fn gpu(&mut self, node: usize, gpu: usize, load: Load) -> GpuReport {
        let used_gib = self.between(LEAST_USED_GIB, GPU_GIB);
        let others = u32::from(self.is_one_in(2));
        GpuReport {
            uuid: GpuUuid(format!("GPU-{node:08x}-9c1d-4f6b-8a52-{gpu:012x}")),
            is_lost: false,
            memory_total_bytes: Some(gib(GPU_GIB)),
            memory_used_bytes: Some(gib(used_gib)),
            memory_promised_bytes: Bytes(0),
            core_pct: Percent::checked(u32::try_from(self.below(100)).unwrap_or(0)),
            queue: 0,
            others,
            share: 0.9,
            loads: match load {
                Load::Mixed => (0..self.below(5)).map(|_| self.load()).collect(),
                Load::Full => self.full(),
            },
            has_more: false,
            missed_by_present: 0,
            misses_ago_seconds: if self.is_one_in(10) { vec![self.between(0.0, 300.0)] } else { Vec::new() },
            past_float_seconds: 0.0,
            placed: Vec::new(),
        }
    }

    /// A task under way, or one that serves.
    fn load(&mut self) -> LoadReport {
        let deadline_seconds = self.between(2.0, 40.0);
        let takes = deadline_seconds * self.between(0.02, 0.4);
        let due_in_seconds = self.between(0.1, deadline_seconds);
        let (unit, is_under_way) = match self.below(10) {
            0 | 1 => (Unit::Burst, true),
            2 => (Unit::Burst, false),
            _ => (Unit::Task, true),
        };
        LoadReport {
            unit,
            deadline_seconds,
            under_way: is_under_way.then_some(UnderWay { due_in_seconds, done_seconds: 0.0 }),
            takes: self.spread(takes),
        }
    }

    fn full(&mut self) -> Vec<LoadReport> {
        let mut server = || {
            let deadline_seconds = self.between(0.5, 4.0);
            let takes = Spread::of([deadline_seconds * 0.3]);
            LoadReport { unit: Unit::Burst, deadline_seconds, under_way: None, takes }
        };
        let mut loads = vec![server(), server(), server()];
        let under_way = Some(UnderWay { due_in_seconds: self.between(1.0, 4.0), done_seconds: 0.0 });
        loads.push(LoadReport { unit: Unit::Task, deadline_seconds: 5.0, under_way, takes: Spread::of([0.1]) });
        loads
    }

    /// Of one in ten it is not known.
    fn spread(&mut self, median_seconds: f64) -> Option<Spread> {
        let p90_seconds = median_seconds * self.between(1.0, 1.3);
        let spread = Spread { units: 20, median_seconds, p90_seconds, most_seconds: 1.2 * p90_seconds };
        (!self.is_one_in(10)).then_some(spread)
    }

    /// A container with a deadline of 6 to 60 s that takes a twentieth to six tenths of it.
    pub fn wanted(&mut self) -> Wanted {
        let deadline_seconds = self.between(6.0, 60.0);
        let takes = deadline_seconds * self.between(0.05, 0.6);
        Wanted {
            deadline: Deadline::new(Duration::from_secs_f64(deadline_seconds)),
            unit: if self.is_one_in(3) { Unit::Burst } else { Unit::Task },
            memory_bytes: Some(gib(self.between(0.0, 40.0))),
            gpus: 1,
            takes: self.spread(takes),
            run: None,
        }
    }

    /// The same with a length that is known, of three to six tenths: on a full cluster there is no time for it.
    pub fn long_wanted(&mut self) -> Wanted {
        let wanted = self.wanted();
        let deadline_seconds = wanted.deadline.map_or(6.0, |deadline| deadline.seconds());
        Wanted { takes: Spread::of([deadline_seconds * self.between(0.3, 0.6)]), ..wanted }
    }

    /// The same with more memory than is free on any GPU.
    pub fn large_wanted(&mut self) -> Wanted {
        Wanted { memory_bytes: Some(gib(GPU_GIB)), ..self.wanted() }
    }
}

pub fn name(node: usize) -> NodeId {
    format!("node-{node:06}").parse().expect("letters, digits and a hyphen")
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes of a GPU")]
fn gib(gib: f64) -> Bytes {
    Bytes((gib * f64::from(1 << 30)) as u64)
}
