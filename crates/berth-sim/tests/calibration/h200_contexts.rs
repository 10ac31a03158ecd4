//! The `h200` profile against how contexts came to be on one H200 when ten or twenty processes wanted one: all at once, or at most N in
//! the making at a time (docs/results/2026-11-15-h200-contexts). The processes are naive FP32 products that fill no host arrays.
//! Nothing here was fitted by itself: one set of parameters is held to these figures and to the contention table.

use std::collections::VecDeque;

use berth_sim::scenario::{Command, Manager, Order, Passage, Phase, Report, Scenario, Sight};
use berth_sim::{Engine, Profile, Sharing};

const S: f64 = 1e9;
/// From one context ready to the next process's first call, beyond what that call takes: about 0.02 s there.
const PROCESS_START_NS: u64 = 20_000_000;

/// Lets `slots` processes make their context at a time; the next one is started when one is ready.
struct Staggered {
    slots: usize,
    waiting: VecDeque<usize>,
    starting: Vec<(u64, usize)>,
    ready: Vec<u64>,
}

impl Manager for Staggered {
    fn saw(&mut self, now: u64, process: usize, sight: Sight) -> Passage {
        match sight {
            Sight::Initialises if self.slots == 0 => {
                self.waiting.push_back(process);
                return Passage::Stop;
            }
            Sight::Initialises => self.slots -= 1,
            Sight::ContextReady => {
                self.ready.push(now);
                match self.waiting.pop_front() {
                    Some(next) => self.starting.push((now + PROCESS_START_NS, next)),
                    None => self.slots += 1,
                }
            }
            _ => {}
        }
        Passage::AT_ONCE
    }

    fn next_event(&self) -> Option<u64> {
        self.starting.iter().map(|(at, _)| *at).min()
    }

    fn act(&mut self, engine: &Engine) -> Vec<Command> {
        let due = |starting: &mut (u64, usize)| starting.0 <= engine.now();
        self.starting.extract_if(.., due).map(|(_, process)| Command::Go(process)).collect()
    }
}

fn filling_nothing() -> Profile {
    let mut profile = super::profile("h200");
    profile.host.init_gbps = f64::MAX;
    profile
}

/// When each context was ready, seconds in order, and the rest.
fn run(k: usize, n: u64, order: Order, slots: usize) -> (Vec<f64>, Report) {
    let mut staggered = Staggered { slots, waiting: VecDeque::new(), starting: Vec::new(), ready: Vec::new() };
    let scenario = Scenario::of(k, n, order, Sharing::TimeSliced);
    let report = scenario.run_managed(&filling_nothing(), &mut staggered).expect("the programs fit on the GPU");
    (staggered.ready.iter().map(|ns| *ns as f64 / S).collect(), report)
}

fn check(what: &str, measured: f64, simulated: f64, tolerance: f64) -> Result<(), String> {
    let error = simulated / measured - 1.0;
    let line = format!("{what}: measured {measured:6.3} simulated {simulated:6.3} {:+5.1} %", error * 100.0);
    println!("{line}");
    if error.abs() <= tolerance { Ok(()) } else { Err(line) }
}

/// Fails with all that is off, not with the first of it.
fn all(checks: Vec<Result<(), String>>) {
    let off: Vec<String> = checks.into_iter().filter_map(Result::err).collect();
    assert!(off.is_empty(), "off by more than allowed:\n{}", off.join("\n"));
}

/// First and last context ready: 1.21–1.55 and 1.28–1.60 s of ten, 2.71–3.00 and 2.88–3.14 s of twenty. The means are held
/// within 10 %.
#[test]
fn contexts_made_at_once_are_ready_together_as_late_as_measured() {
    let measured = [(10, 13_312, 1.38, 1.44), (20, 8_192, 2.85, 3.05), (20, 5_120, 2.85, 3.05)];
    let checks = measured.into_iter().flat_map(|(k, n, first, last)| {
        let (ready, _) = run(k, n, Order::Together, k);
        [
            check(&format!("first of {k} × {n}"), first, ready[0], 0.10),
            check(&format!("last of {k} × {n}"), last, ready[k - 1], 0.10),
        ]
    });
    all(checks.collect());
}

/// At most N in the making: the last context is ready, seconds; kernels strictly one at a time. Off most, by 17 %: three
/// at a time beside kernels that never pause and as many contexts that end, where the model is too fast.
#[test]
fn staggered_contexts_beside_kernels_one_by_one_are_ready_as_late_as_measured() {
    let measured = [(10, 13_312, [2.68, 2.12, 2.03]), (20, 8_192, [5.97, 5.40, 5.18]), (20, 5_120, [4.60, 4.09, 4.11])];
    let cases = measured.into_iter().flat_map(|(k, n, last)| last.into_iter().zip(1..).map(move |last| (k, n, last)));
    all(cases
        .map(|(k, n, (last, slots))| {
            let (ready, _) = run(k, n, Order::KernelsOneByOne, slots);
            check(&format!("{slots} at a time of {k} × {n}"), last, ready[k - 1], 0.20)
        })
        .collect());
}

/// The same with nobody managing kernels: contexts are made beside ever more processes that compute.
#[test]
fn staggered_contexts_beside_kernels_at_once_are_ready_as_late_as_measured() {
    let measured = [(10, 13_312, 2.96), (20, 8_192, 5.58), (20, 5_120, 3.96)];
    all(measured
        .into_iter()
        .map(|(k, n, last)| {
            check(&format!("2 at a time of {k} × {n}"), last, run(k, n, Order::Together, 2).0[k - 1], 0.20)
        })
        .collect());
}

/// Fewer at a time: the first is ready earlier and the last later. In that order, as measured, for every size.
#[test]
fn making_fewer_contexts_at_a_time_trades_the_last_for_the_first() {
    for (k, n) in [(10, 13_312), (20, 8_192), (20, 5_120)] {
        let runs: Vec<Vec<f64>> =
            [1, 2, k].into_iter().map(|slots| run(k, n, Order::KernelsOneByOne, slots).0).collect();
        assert!(runs.windows(2).all(|pair| pair[0][0] < pair[1][0]), "first of {k} × {n}: {runs:?}");
        assert!(runs.windows(2).all(|pair| pair[0][k - 1] > pair[1][k - 1]), "last of {k} × {n}: {runs:?}");
    }
}

/// Kernels one at a time, a context made beside each: 9.65 s in all without, 9.77–9.79 s with; of 20, 4.40 and 4.64–4.69 s.
#[test]
fn making_contexts_costs_kernels_as_little_as_measured() {
    let kernels = |k, n, slots| run(k, n, Order::KernelsOneByOne, slots).1.mean_ns(Phase::Kernel) * k as f64 / S;
    for (k, n, cost) in [(10, 13_312, 0.13), (20, 8_192, 0.26)] {
        let simulated = kernels(k, n, 1) - kernels(k, n, k);
        println!("{k} × {n}: measured {cost:.2} simulated {simulated:.2}");
        assert!((simulated - cost).abs() <= 0.05, "{k} × {n}: {simulated}");
    }
}

/// One context ends beside another's kernel, which does not notice: 0.06–0.10 s. Ten and twenty that end at once: the longest
/// takes 0.042–0.051 s and 0.051–0.063 s for each of them, since not all came to their end at the same instant.
#[test]
fn contexts_end_together_as_fast_as_measured() {
    let alone = run(10, 13_312, Order::KernelsOneByOne, 10).1;
    for teardown in alone.runs.iter().map(|run| run.ns(Phase::Teardown) as f64 / S) {
        assert!((0.05..=0.11).contains(&teardown), "{teardown}");
    }
    for (k, n) in [(10, 13_312), (20, 8_192), (20, 5_120)] {
        let report = run(k, n, Order::Together, k).1;
        let longest = report.runs.iter().map(|run| run.ns(Phase::Teardown)).max().expect("k runs") as f64 / S;
        println!("{k} × {n}: {:.3} s each", longest / k as f64);
        assert!((0.04..=0.065).contains(&(longest / k as f64)), "{k} × {n}: {longest}");
    }
}
