//! What the tenants do, by name, and when each of them starts.

use berth_sim::scenario::{Program, Work};
use serde::Serialize;

const MS: u64 = 1_000_000;
/// Containers that are started together start within this time of each other.
const START_SPREAD_NS: u64 = 20 * MS;
/// A mixed crowd comes over this time.
const MIXED_SPREAD_NS: u64 = 2_000 * MS;
const MIXED_SIZES: [u64; 4] = [13_312, 5_120, 8_192, 5_120];
/// When a job comes to a training that has run for long.
const LATE_NS: u64 = 2_000 * MS;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// Each computes one n × n product.
    Product(u64),
    /// Each answers small requests, using about 13 % of an RTX 3090.
    Light,
    /// Each computes many products with a pause on the host after each.
    Training,
    /// Products of three sizes, coming over two seconds.
    Mixed,
    /// The first computes once and then only keeps its memory; the others each compute one 8,192² product.
    Notebook,
    /// The first computes a 13,312² product, the others a 5,120² each, a seventeenth of it; all come at once.
    OneLarge,
    /// The same, and the small ones come over two seconds after the large one.
    LargeFirst,
    /// The first answers a request now and then with a product of 4,096²; the others train with steps of eight times that.
    Server,
    /// The first computes a 6,144² product now and then, as one does who works in a notebook; the others train with steps
    /// of a third of that and without pauses.
    Cells,
    /// The first trains with short steps and without pauses; the others come later, and compute four 8,192² products.
    LateJob,
}

impl Workload {
    pub fn name(self) -> String {
        match self {
            Workload::Product(n) => format!("{}²", thousands(n)),
            Workload::Light => "light".to_owned(),
            Workload::Training => "training".to_owned(),
            Workload::Mixed => "mixed".to_owned(),
            Workload::Notebook => "notebook".to_owned(),
            Workload::OneLarge => "one large".to_owned(),
            Workload::LargeFirst => "large first".to_owned(),
            Workload::Server => "server".to_owned(),
            Workload::Cells => "cells".to_owned(),
            Workload::LateJob => "late job".to_owned(),
        }
    }

    /// `count` tenants; the seed moves their starts.
    pub fn programs(self, count: usize, seed: u64) -> Vec<Program> {
        let start = |index| self.start_ns(index) + draw(seed, index, self.spread_ns(index));
        (0..count).map(|index| Program { start_ns: start(index), ..Program::of(self.work(index)) }).collect()
    }

    fn start_ns(self, index: usize) -> u64 {
        if self == Workload::LateJob && index > 0 { LATE_NS } else { 0 }
    }

    fn spread_ns(self, index: usize) -> u64 {
        match self {
            Workload::Mixed => MIXED_SPREAD_NS,
            Workload::LargeFirst if index > 0 => MIXED_SPREAD_NS,
            _ => START_SPREAD_NS,
        }
    }

    fn work(self, index: usize) -> Work {
        match self {
            Workload::Product(n) => Work::Product { n },
            Workload::Light => Work::Inference { n: 768, requests: 600, gap_ns: 12 * MS },
            Workload::Training => Work::Training { n: 4_096, rounds: 20, gap_ns: 50 * MS },
            Workload::Mixed => Work::Product { n: MIXED_SIZES[index % MIXED_SIZES.len()] },
            Workload::Notebook if index == 0 => Work::Notebook { n: 4_096, idle_ns: 20_000 * MS },
            Workload::Notebook => Work::Product { n: 8_192 },
            Workload::OneLarge | Workload::LargeFirst if index == 0 => Work::Product { n: 13_312 },
            Workload::OneLarge | Workload::LargeFirst => Work::Product { n: 5_120 },
            Workload::Server if index == 0 => Work::Inference { n: 4_096, requests: 10, gap_ns: 2_000 * MS },
            Workload::Server => Work::Training { n: 8_192, rounds: 40, gap_ns: 20 * MS },
            Workload::Cells if index == 0 => Work::Inference { n: 6_144, requests: 6, gap_ns: 3_000 * MS },
            Workload::Cells => Work::Training { n: 4_096, rounds: 400, gap_ns: 0 },
            Workload::LateJob if index == 0 => Work::Training { n: 4_096, rounds: 400, gap_ns: 0 },
            Workload::LateJob => Work::Training { n: 8_192, rounds: 4, gap_ns: 20 * MS },
        }
    }
}

/// A number below `below`, the same for the same seed and index.
pub fn draw(seed: u64, index: usize, below: u64) -> u64 {
    // SplitMix64's output function over a counter.
    let mut z = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(index as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (z ^ (z >> 31)) % below.max(1)
}

fn thousands(n: u64) -> String {
    if n < 1_000 { n.to_string() } else { format!("{},{:03}", n / 1_000, n % 1_000) }
}
