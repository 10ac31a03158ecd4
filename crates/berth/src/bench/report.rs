//! What `berth bench detect` found, as JSON and as tables.

use std::fmt::Write as _;

use berth_model::Bytes;
use serde::Serialize;

use super::daemon::CpuPct;
use super::machine::Machine;
use super::quantiles::Quantiles;
use super::slowdown::{Slowdown, Work};

/// How much later than a task's own timers a published monitor, which polls, saw start and end, in milliseconds.
pub const PUBLISHED_ERROR_MS: f64 = 220.0;
/// By how much the monitor may be wrong about an instant, at the 99th percentile.
const MOST_ERROR_MS: f64 = 5.0;
/// How much of one core the monitor may use.
const MOST_CPU_PCT: f64 = 2.0;

#[derive(Debug, Clone, Serialize)]
pub struct Report {
    pub berth: String,
    pub machine: Machine,
    pub workload: Workload,
    pub detection: Vec<Detection>,
    pub nvml_curve: Vec<CurvePoint>,
    pub cost: Vec<Cost>,
    pub slowdown: Vec<Slowdown>,
    pub published_error_ms: f64,
    pub goals: Vec<Goal>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Workload {
    pub containers: u32,
    pub processes_each: u32,
    pub matrix_size: u32,
}

/// How well one kind of instant was seen.
#[derive(Debug, Clone, Serialize)]
pub struct Detection {
    /// `events` (probes, pidfds, and NVML to confirm) or `nvml` (looking only; pidfds for exits).
    pub sources: &'static str,
    pub instant: &'static str,
    pub seen: usize,
    pub missed: usize,
    /// The monitor's date minus the true one.
    pub error_ms: Option<Quantiles>,
    /// The same without its sign.
    pub abs_error_ms: Option<Quantiles>,
    /// From the true instant until a follower of the event stream was told.
    pub told_after_ms: Option<Quantiles>,
}

/// NVML alone at one fixed interval.
#[derive(Debug, Clone, Serialize)]
pub struct CurvePoint {
    pub interval_ms: u64,
    pub cpu_pct: f64,
    /// Newcomers that were told of before they were gone, and that were not.
    pub seen: usize,
    pub missed: usize,
    /// From a process's device-open until a follower of the event stream was told of its task.
    pub told_after_open_ms: Option<Quantiles>,
    /// The monitor's date of the end minus that of the destroyed context, and the same without its sign.
    pub end_error_ms: Option<Quantiles>,
    pub end_abs_error_ms: Option<Quantiles>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Cost {
    pub sources: &'static str,
    pub containers: u32,
    /// Of one core.
    pub cpu_pct: f64,
    pub by_thread: CpuPct,
    pub resident_bytes: Bytes,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Goal {
    pub name: &'static str,
    pub goal: String,
    pub reached: String,
    pub verdict: Verdict,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Met,
    NotMet,
    /// The measurement is not exact enough to tell.
    NotShown,
}

impl Report {
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let Workload { containers, processes_each, matrix_size } = self.workload;
        writeln!(out, "{}", self.machine.to_text())?;
        writeln!(
            out,
            "{containers} tenants, {processes_each} processes each, two stays per process, {matrix_size}² products at random times\n"
        )?;
        writeln!(
            out,
            "Seen against the workload's own clock, in ms (a published monitor that polls: +{PUBLISHED_ERROR_MS} ms)"
        )?;
        writeln!(
            out,
            "{:<8} {:<18} {:>5} {:>6} {:>10}   {:>28}   {:>28}",
            "sources", "instant", "seen", "missed", "bias", "|error| p50/p99/max", "told after p50/p99/max"
        )?;
        for row in &self.detection {
            let (bias, error, told) = (bias(row.error_ms), triple(row.abs_error_ms), triple(row.told_after_ms));
            writeln!(
                out,
                "{:<8} {:<18} {:>5} {:>6} {bias:>10}   {error:>28}   {told:>28}",
                row.sources, row.instant, row.seen, row.missed
            )?;
        }
        writeln!(out, "bias: the median with its sign, late is +; p99 only of 100 or more, of fewer it is the max")?;
        if !self.nvml_curve.is_empty() {
            writeln!(out, "\nNVML alone: what an interval costs and gives")?;
            writeln!(
                out,
                "{:>8} {:>7} {:>5} {:>6}   {:>28} {:>10}   {:>28}",
                "every ms",
                "CPU %",
                "seen",
                "missed",
                "newcomer told p50/p99/max",
                "end bias",
                "|end error| p50/p99/max"
            )?;
        }
        for point in &self.nvml_curve {
            let CurvePoint { interval_ms, cpu_pct, seen, missed, .. } = point;
            let (told, bias) = (triple(point.told_after_open_ms), bias(point.end_error_ms));
            let end = triple(point.end_abs_error_ms);
            writeln!(out, "{interval_ms:>8} {cpu_pct:>7.2} {seen:>5} {missed:>6}   {told:>28} {bias:>10}   {end:>28}")?;
        }
        if !self.cost.is_empty() {
            writeln!(
                out,
                "\nWhat watching costs the host\n{:<8} {:>10} {:>14} {:>10}",
                "sources", "tenants", "CPU % of a core", "memory"
            )?;
        }
        for cost in &self.cost {
            let mut threads: Vec<_> = cost.by_thread.iter().filter(|(_, pct)| **pct >= 0.05).collect();
            threads.sort_by(|a, b| b.1.total_cmp(a.1));
            let threads: Vec<_> = threads.iter().map(|(name, pct)| format!("{name} {pct:.2}")).collect();
            let (memory, threads) = (cost.resident_bytes.to_string(), threads.join(", "));
            writeln!(
                out,
                "{:<8} {:>10} {:>14.2} {memory:>10}   {threads}",
                cost.sources, cost.containers, cost.cpu_pct
            )?;
        }
        if !self.slowdown.is_empty() {
            writeln!(
                out,
                "\nWhat being watched costs a tenant, in time per kernel (median of pairs, and where it lies by 95 %)"
            )?;
        }
        for slow in &self.slowdown {
            let Slowdown { work, pairs, kernels_per_second, watched_over_unwatched, low, high } = slow;
            writeln!(
                out,
                "{:<10} {kernels_per_second:>9.1} kernels/s {pairs:>4} pairs   ×{watched_over_unwatched:.4}   ×{low:.4} to ×{high:.4}",
                work.name()
            )?;
        }
        write_goals(out, &self.goals)
    }

    /// The project's goals, judged by what was measured. A part that was not measured is not judged.
    pub fn judge(&mut self) {
        let mut goals = Vec::new();
        for (name, instant) in [
            ("first allocation, |error| p99", "first-allocation"),
            ("end by destroyed context, |error| p99", "end-destroyed"),
            ("end by exit, |error| p99", "end-exited"),
        ] {
            let row = self.detection.iter().find(|row| row.sources == "events" && row.instant == instant);
            goals.extend(row.map(|row| error_goal(name, row.abs_error_ms, row.missed)));
        }
        if let Some(cost) = self.cost.iter().find(|cost| cost.sources == "events" && cost.containers == 20) {
            goals.push(cpu_goal("monitor at 20 tenants, of one core", cost.cpu_pct));
        }
        goals.extend(self.slowdown.iter().map(slowdown_goal));
        self.goals = goals;
    }
}

impl Goal {
    pub fn new(name: &'static str, goal: String, reached: String) -> Self {
        Self { name, goal, reached, verdict: Verdict::NotShown }
    }

    pub fn judged(self, met: bool) -> Self {
        Self { verdict: if met { Verdict::Met } else { Verdict::NotMet }, ..self }
    }
}

/// What was reached beside what should be.
pub fn write_goals(out: &mut String, goals: &[Goal]) -> std::fmt::Result {
    writeln!(out, "\n{:<46} {:>12} {:>20}", "goal", "at most", "reached")?;
    for goal in goals {
        let verdict = match goal.verdict {
            Verdict::Met => "",
            Verdict::NotMet => "  NOT MET",
            Verdict::NotShown => "  not shown",
        };
        writeln!(out, "{:<46} {:>12} {:>20}{verdict}", goal.name, goal.goal, goal.reached)?;
    }
    Ok(())
}

/// Early is as wrong as late, and what was missed was not seen in time.
pub fn error_goal(name: &'static str, abs_error_ms: Option<Quantiles>, missed: usize) -> Goal {
    let goal = format!("{MOST_ERROR_MS} ms");
    match abs_error_ms {
        Some(error) if missed == 0 => {
            let of = if error.has_p99() { String::new() } else { format!(", max of {}", error.n) };
            Goal::new(name, goal, format!("{:.3} ms{of}", error.p99)).judged(error.p99 <= MOST_ERROR_MS)
        }
        _ => Goal::new(name, goal, format!("{missed} missed")).judged(false),
    }
}

/// `cpu_pct`: of one core.
pub fn cpu_goal(name: &'static str, cpu_pct: f64) -> Goal {
    Goal::new(name, format!("{MOST_CPU_PCT} %"), format!("{cpu_pct:.2} %")).judged(cpu_pct <= MOST_CPU_PCT)
}

/// Only an interval that lies on one side of the goal says anything.
fn slowdown_goal(slow: &Slowdown) -> Goal {
    const MOST: f64 = 1.005;
    let reached = format!("×{:.4} to ×{:.4}", slow.low, slow.high);
    let name = match slow.work {
        Work::Products => "watched tenant that computes, time per kernel",
        Work::Launches => "watched tenant that only launches, per kernel",
    };
    let goal = Goal::new(name, format!("×{MOST}"), reached);
    if slow.high <= MOST || slow.low > MOST { goal.judged(slow.high <= MOST) } else { goal }
}

/// Of few values the 99th percentile is the largest, which is not printed twice.
fn triple(quantiles: Option<Quantiles>) -> String {
    quantiles.map_or_else(unknown, |q| {
        let p99 = if q.has_p99() { format!("{:.3}", q.p99) } else { unknown() };
        format!("{:.3} / {p99} / {:.3}", q.p50, q.max)
    })
}

fn bias(signed: Option<Quantiles>) -> String {
    signed.map_or_else(unknown, |q| format!("{:+.3}", q.p50))
}

fn unknown() -> String {
    "-".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(errors: &[f64], missed: usize) -> Detection {
        let abs: Vec<f64> = errors.iter().map(|error| error.abs()).collect();
        Detection {
            sources: "events",
            instant: "end-exited",
            seen: errors.len(),
            missed,
            error_ms: Quantiles::of(errors),
            abs_error_ms: Quantiles::of(&abs),
            told_after_ms: None,
        }
    }

    #[test]
    fn early_late_and_missed_are_all_not_met() {
        let verdict = |errors: &[f64], missed| error_goal("x", row(errors, missed).abs_error_ms, missed).verdict;
        assert_eq!(verdict(&[0.1, -0.2], 0), Verdict::Met);
        assert_eq!(verdict(&[-606.0, -600.0], 0), Verdict::NotMet);
        assert_eq!(verdict(&[0.1], 1), Verdict::NotMet);
        assert_eq!(verdict(&[], 0), Verdict::NotMet);
    }

    #[test]
    fn a_date_that_is_early_is_no_small_error() {
        let row = row(&[-606.0, -600.0, 0.5], 0);
        assert_eq!((bias(row.error_ms), triple(row.abs_error_ms)), ("-600.000".into(), "600.000 / - / 606.000".into()));
        assert_eq!(error_goal("x", row.abs_error_ms, 0).reached, "606.000 ms, max of 3");
    }

    #[test]
    fn a_slowdown_within_the_noise_is_not_shown() {
        let slow = |low, high| Slowdown {
            work: Work::Products,
            pairs: 9,
            kernels_per_second: 1.0,
            watched_over_unwatched: 1.0,
            low,
            high,
        };
        assert_eq!(slowdown_goal(&slow(0.98, 1.04)).verdict, Verdict::NotShown);
        assert_eq!(slowdown_goal(&slow(0.999, 1.004)).verdict, Verdict::Met);
        assert_eq!(slowdown_goal(&slow(1.01, 1.04)).verdict, Verdict::NotMet);
    }
}
