//! A list of so many nodes, and what it costs.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use berth_model::Mono;
use berth_model::cluster::{Engine, Order, Record, Report, Strategy, Wanted};
use berth_policy::nodes::{Among, NodeList, NodesSettings};
use serde::Serialize;

use super::draw::{Draw, Load, name};
use super::memory::resident_bytes;
use crate::bench::quantiles::Quantiles;

/// A node has at least so many bytes: where a process grows by less, it took memory that it had before.
const LEAST_SEEN: u64 = 100;
/// When all reports are made; that of a question is a little later.
const MADE: Mono = Mono(1_000_000_000_000);
const AGE: Duration = Duration::from_millis(500);
/// Passes over all nodes.
const PASSES: usize = 5;

#[derive(Debug, Clone, Serialize)]
pub struct Cell {
    pub strategy: Strategy,
    pub nodes: usize,
    /// From nothing: every node joins, and its report is applied.
    pub built_ms: f64,
    /// Only to read once what of each report is gone by: no list of them is made sooner.
    pub read_ms: f64,
    /// The first that is asked of a list that was just made.
    pub first_choice_us: f64,
    /// As published, for each question anew: the records of all GPUs sorted by free memory.
    pub sorted_ms: f64,
    /// The next report of one node after the other, as they are asked; each was just made, as it would be read from the wire.
    pub applied_ns: Quantiles,
    /// The same of nodes that are drawn, so that nothing of them is at hand.
    pub applied_at_random_ns: Quantiles,
    pub choice_us: Quantiles,
    /// Choices that found somebody, in percent.
    pub chosen_pct: f64,
    /// Nobody has the memory.
    pub no_memory_us: Option<Quantiles>,
    /// Nobody has the time: another cluster, which is full.
    pub no_time_us: Option<Quantiles>,
    /// Why everybody who is not chosen is not: a look at all of them.
    pub refusals_ms: Quantiles,
    /// Putting those aside that have not reported lately: a look at all of them.
    pub expire_ms: Quantiles,
    /// The list without the reports; `None` where it took memory that was let go of before.
    pub bytes_per_node: Option<f64>,
    /// Of a report in memory.
    pub report_bytes_per_node: Option<f64>,
}

impl Cell {
    pub fn measure(strategy: Strategy, nodes: usize, turns: usize, seed: u64) -> Self {
        let mut draw = Draw::new(seed);
        let before = resident_bytes();
        let reports: Vec<Arc<Report>> = (0..nodes).map(|node| Arc::new(draw.report(node, 1, Load::Mixed))).collect();
        let with_reports = resident_bytes();
        let sorted_ms = sorted_ms(&reports);
        let read_ms = read_ms(&reports);
        let begun = Instant::now();
        let mut list = made(strategy, &reports);
        let built_ms = begun.elapsed().as_secs_f64() * 1e3;
        let first_choice_us = chosen(&list, 1, || draw.wanted())[0].0;
        let with_list = resident_bytes();
        drop(reports);
        let each = |from: Option<u64>, to: Option<u64>| {
            let more = to?.checked_sub(from?).filter(|more| *more >= LEAST_SEEN * nodes as u64)?;
            Some(more as f64 / nodes as f64)
        };
        let applied_ns = applied(&mut list, &mut draw, (0..turns).map(|turn| turn % nodes));
        let drawn: Vec<usize> = (0..turns).map(|_| draw.below(nodes)).collect();
        let applied_at_random_ns = applied(&mut list, &mut draw, drawn);
        let choices = chosen(&list, turns, || draw.wanted());
        let no_memory = chosen(&list, turns, || draw.large_wanted());
        let refusals_ms = passes(|| drop(black_box(list.refusals(&draw.wanted(), Among::All, MADE + AGE))));
        let expire_ms = passes(|| drop(black_box(list.expire(MADE + AGE))));
        drop(list);
        let full: Vec<Arc<Report>> = (0..nodes).map(|node| Arc::new(draw.report(node, 1, Load::Full))).collect();
        let full = made(strategy, &full);
        let no_time = chosen(&full, turns, || draw.long_wanted());
        Self {
            strategy,
            nodes,
            built_ms,
            read_ms,
            first_choice_us,
            sorted_ms,
            applied_ns,
            applied_at_random_ns,
            choice_us: quantiles(choices.iter().map(|(time, _)| *time).collect()),
            chosen_pct: 100.0 * choices.iter().filter(|(_, is_found)| *is_found).count() as f64 / turns as f64,
            no_memory_us: refused(&no_memory),
            no_time_us: refused(&no_time),
            refusals_ms,
            expire_ms,
            bytes_per_node: each(with_reports, with_list),
            report_bytes_per_node: each(before, with_reports),
        }
    }
}

fn settings(strategy: Strategy) -> NodesSettings {
    NodesSettings {
        strategy,
        order: Order::Spread,
        stale_after: Duration::from_secs(5),
        miss_window: Duration::from_secs(600),
        reservation_lasts: Duration::from_secs(120),
    }
}

fn made(strategy: Strategy, reports: &[Arc<Report>]) -> NodeList {
    let mut list = NodeList::new(settings(strategy));
    list.reserve_nodes(reports.len());
    for report in reports {
        list.engine(&report.node, Engine::Ready);
        list.apply(report.clone(), MADE).expect("the first report of a node that has joined");
    }
    list
}

fn read_ms(reports: &[Arc<Report>]) -> f64 {
    let begun = Instant::now();
    let mut sum = 0.0;
    for gpu in reports.iter().flat_map(|report| &report.gpus) {
        sum += gpu.free_bytes().map_or(0.0, |free| free.0 as f64);
        sum += gpu.loads.iter().map(|load| load.deadline_seconds).sum::<f64>();
    }
    black_box(sum);
    begun.elapsed().as_secs_f64() * 1e3
}

/// What the paper's master does once the nodes have answered.
fn sorted_ms(reports: &[Arc<Report>]) -> f64 {
    let gpus = reports.iter().flat_map(|report| &report.gpus);
    let mut records: Vec<Record> = gpus.map(Record::of).collect();
    let begun = Instant::now();
    records.sort_unstable_by_key(|record| std::cmp::Reverse(record.free_kib));
    black_box(&records);
    begun.elapsed().as_secs_f64() * 1e3
}

fn applied(list: &mut NodeList, draw: &mut Draw, nodes: impl IntoIterator<Item = usize>) -> Quantiles {
    let times = nodes.into_iter().map(|node| {
        let (last, _) = list.report(&name(node)).expect("every node has reported");
        let next = Arc::new(draw.next(last));
        let begun = Instant::now();
        list.apply(next, MADE).expect("a newer report of a node that is there");
        begun.elapsed().as_secs_f64() * 1e9
    });
    quantiles(times.collect())
}

/// How long each took in microseconds, and whether somebody was found.
fn chosen(list: &NodeList, turns: usize, mut wanted: impl FnMut() -> Wanted) -> Vec<(f64, bool)> {
    let turn = |_| {
        let wanted = wanted();
        let begun = Instant::now();
        let place = black_box(list.choose(&wanted, Among::All, MADE + AGE));
        (begun.elapsed().as_secs_f64() * 1e6, place.is_some())
    };
    (0..turns).map(turn).collect()
}

/// Of those that nobody took; `None` if somebody took each.
fn refused(times: &[(f64, bool)]) -> Option<Quantiles> {
    let refused: Vec<f64> = times.iter().filter(|(_, is_found)| !is_found).map(|(time, _)| *time).collect();
    Quantiles::of(&refused)
}

fn passes(mut pass: impl FnMut()) -> Quantiles {
    let times = (0..PASSES).map(|_| {
        let begun = Instant::now();
        pass();
        begun.elapsed().as_secs_f64() * 1e3
    });
    quantiles(times.collect())
}

fn quantiles(times: Vec<f64>) -> Quantiles {
    Quantiles::of(&times).expect("at least one turn")
}
