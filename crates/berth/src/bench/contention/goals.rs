//! What the measurement has to show, judged by what it showed. What was not measured is not judged.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use berth_sim::published::PUBLISHED_PHASES;
use serde::Serialize;

use super::cell::{Case, Cell, Column};
use super::figure::Figure;
use super::workload::Workload;
use crate::bench::report::Verdict;

/// The workload of [`PUBLISHED_PHASES`].
pub const PUBLISHED_WORKLOAD: Workload = Workload::Product(13_312);

/// Virtual time is exact to the nanosecond; what a ratio of two sums of it may be off by.
const EXACT: f64 = 1e-9;
/// What a few holds of two milliseconds come to among ends and bursts of tenths of seconds: they are of single tenants, not of all.
const FEW_HOLDS: f64 = 1.005;
/// What the end of a tenant among others may come later for: the rest of one kernel that was begun before it came, or a
/// context made in order of arrival.
const WORST_OWN: f64 = 1.10;
/// The issue's own word for five light tenants: what watching costs them included.
const LIGHT: f64 = 1.01;
/// A gain below this share is little.
const LITTLE: f64 = 0.97;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Goal {
    pub name: String,
    pub goal: String,
    pub reached: String,
    pub verdict: Verdict,
}

/// The simulated GPU whose goals these are; for another there is only what holds on any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gpu {
    Rtx3090,
    H200,
    Other,
}

pub fn judge(cells: &[Cell], gpu: Gpu) -> Vec<Goal> {
    let mut goals = match gpu {
        Gpu::Rtx3090 => [published_phases(cells), published_findings(cells)].concat(),
        Gpu::H200 => measured_sizes(cells),
        Gpu::Other => Vec::new(),
    };
    goals.extend(never_slower(cells));
    goals.extend(nobody_loses(cells));
    goals.extend(light_is_left_alone(cells));
    goals
}

fn published_phases(cells: &[Cell]) -> Vec<Goal> {
    let rows: Vec<(&Column, [f64; 3])> = cells
        .iter()
        .filter(|cell| cell.case.workload == PUBLISHED_WORKLOAD)
        .filter_map(|cell| Some((cell.ways.get("unmanaged")?, *PUBLISHED_PHASES.get(cell.case.tenants - 1)?)))
        .collect();
    if rows.is_empty() {
        return Vec::new();
    }
    let worst =
        |off: fn(&Column, [f64; 3]) -> f64| rows.iter().map(|(own, table)| off(own, *table)).fold(0.0, f64::max);
    let kernel = worst(|own, [_, kernel, _]| (own.kernel / kernel - 1.0).abs());
    let copies =
        worst(|own, [input, _, output]| (own.input / input - 1.0).abs().max((own.output / output - 1.0).abs()));
    let share = |off: f64| format!("{:.1} %", off * 100.0);
    vec![
        Goal::new("Table 1, kernel: off by at most", "3 %", share(kernel)).judged(kernel <= 0.03),
        Goal::new("Table 1, copies: off by at most", "15 %", share(copies)).judged(copies <= 0.15),
    ]
}

/// What the contention paper found of its own management.
fn published_findings(cells: &[Cell]) -> Vec<Goal> {
    let mut goals = Vec::new();
    for n in [19_456, 13_312] {
        let several = with(cells, "paper", |cell| cell.case.workload == Workload::Product(n) && cell.case.tenants >= 2);
        goals.extend(worst(&several).map(|(cell, column)| {
            let ratio = column.total_over_unmanaged;
            let name = format!("paper beats unmanaged, {}", cell.case.workload.name());
            let goal = Goal::new(&name, "below 1", at(cell, ratio.mean));
            // Only an interval that lies on one side says anything.
            if ratio.high < 1.0 || ratio.low >= 1.0 { goal.judged(ratio.high < 1.0) } else { goal }
        }));
    }
    let small = with(cells, "paper", |cell| cell.case.workload == Workload::Product(8_192) && cell.case.tenants >= 2);
    goals.extend(best(&small).map(|(cell, column)| {
        let mean = column.total_over_unmanaged.mean;
        Goal::new("paper gains little or loses, 8,192²", &format!("above {LITTLE}"), at(cell, mean))
            .judged(mean > LITTLE)
    }));
    let of_five = |n| {
        let five = with(cells, "paper", |cell| cell.case.workload == Workload::Product(n) && cell.case.tenants == 5);
        five.first().map(|(_, column)| column.total_over_unmanaged.mean)
    };
    if let (Some(large), Some(middle), Some(small)) = (of_five(19_456), of_five(13_312), of_five(8_192)) {
        let reached = format!("{large:.3}, {middle:.3}, {small:.3}");
        let goal = Goal::new("paper gains more the larger the task, 5 tenants", "rising", reached);
        goals.push(goal.judged(large < middle && middle < small));
    }
    goals
}

/// What is asked of the same GPU in hardware.
fn measured_sizes(cells: &[Cell]) -> Vec<Goal> {
    let of = |n, tenants| {
        let found =
            with(cells, "fifo", |cell| cell.case.workload == Workload::Product(n) && cell.case.tenants == tenants);
        found.first().map(|(_, column)| *column)
    };
    let mut goals = Vec::new();
    if let Some(ten) = of(13_312, 10) {
        let (total, completion) = (ten.total_over_unmanaged.mean, ten.completion_over_unmanaged.mean);
        let goal = Goal::new("fifo, 13,312² × 10, total", "×0.92", format!("×{total:.3}"));
        goals.push(goal.judged(total <= 0.92));
        let goal = Goal::new("fifo, 13,312² × 10, mean completion", "×0.62", format!("×{completion:.3}"));
        goals.push(goal.judged(completion <= 0.62));
    }
    goals
}

/// Of every way that is `fifo` with something less: where it cannot help it must not hurt.
fn never_slower(cells: &[Cell]) -> Vec<Goal> {
    let total = |column: &Column| column.total_over_unmanaged.mean;
    let goals = ours(cells).into_iter().filter_map(|way| {
        let name = format!("{way} is nowhere slower than unmanaged");
        at_most(&name, 1.0, &with(cells, way, |_| true), &total)
    });
    goals.collect()
}

fn ours(cells: &[Cell]) -> Vec<&'static str> {
    let ways: BTreeSet<&'static str> = cells.iter().flat_map(|cell| cell.ways.keys().copied()).collect();
    ways.into_iter().filter(|way| way.starts_with("fifo")).collect()
}

/// By the cell that is farthest from it. Judged exactly: against the goal or, where that is missed without any hold, against the
/// same tenants only watched. Each hit of a probe takes its time whatever a policy does, and then everything is shifted.
fn at_most(name: &str, most: f64, found: &Found<'_>, of: &dyn Fn(&Column) -> f64) -> Option<Goal> {
    let watched = |cell: &Cell| cell.ways.get("watched").map(of).filter(|watched| *watched > most);
    let over = |(cell, column): &(&Cell, &Column)| of(column) / watched(cell).unwrap_or(most);
    let worst = found.iter().max_by(|a, b| over(a).total_cmp(&over(b)))?;
    let (cell, column) = worst;
    let told = watched(cell).filter(|watched| *watched >= most + 0.000_05);
    let seen = told.map_or_else(String::new, |watched| format!(", only watched ×{watched:.4}"));
    let goal = Goal::new(name, &format!("≤ ×{most}"), at(cell, of(column)) + &seen);
    Some(goal.judged(over(worst) <= 1.0 + EXACT))
}

/// Of mixes: that the mean end is no later, no tenant pays for the others, and no tenant's bursts take longer.
fn nobody_loses(cells: &[Cell]) -> Vec<Goal> {
    let mixes = Figure::Mixes.cases();
    let mut goals = Vec::new();
    for way in ours(cells) {
        let found = with(cells, way, |cell| mixes.contains(&cell.case));
        let mut judge = |what: &str, of: &dyn Fn(&Column) -> f64, most: f64| {
            goals.extend(at_most(&format!("{way}, mixes, {what}"), most, &found, of));
        };
        judge("mean end", &|column| column.completion_over_unmanaged.mean, FEW_HOLDS);
        judge("a tenant's own stay", &|column| column.own.worst_stay, WORST_OWN);
        judge("a tenant's bursts, mean", &|column| column.own.slowest_bursts(), FEW_HOLDS);
    }
    goals
}

/// The first time they are seen, and when they are known.
fn light_is_left_alone(cells: &[Cell]) -> Vec<Goal> {
    let Some(five) = cells.iter().find(|cell| cell.case == Case { workload: Workload::Light, tenants: 5 }) else {
        return Vec::new();
    };
    let core = five.ways.get("unmanaged").map_or(0.0, |way| way.spent.computing / way.total.mean * 100.0);
    let mut goals =
        vec![Goal::new("five light tenants use together at most", "70 %", format!("{core:.0} %")).judged(core <= 70.0)];
    for way in ["fifo", "fifo-known"] {
        let Some(column) = five.ways.get(way) else { continue };
        let (holds, total) = (column.holds, column.total_over_unmanaged.mean);
        let goal = Goal::new(&format!("{way} holds none of five light tenants"), "0 holds", format!("{holds:.1}"));
        goals.push(goal.judged(holds == 0.0));
        let goal = Goal::new(&format!("{way}, five light tenants, total"), "×1.01", format!("×{total:.4}"));
        goals.push(goal.judged(total <= LIGHT));
    }
    goals
}

impl Goal {
    /// Not judged yet: what is only told stays so.
    pub fn new(name: &str, goal: &str, reached: String) -> Self {
        Self { name: name.to_owned(), goal: goal.to_owned(), reached, verdict: Verdict::NotShown }
    }

    pub fn judged(self, met: bool) -> Self {
        Self { verdict: if met { Verdict::Met } else { Verdict::NotMet }, ..self }
    }
}

/// As a table.
pub fn write(goals: &[Goal], out: &mut String) -> std::fmt::Result {
    if goals.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{:<48} {:>10}   reached", "goal", "")?;
    for goal in goals {
        let verdict = match goal.verdict {
            Verdict::Met => "",
            Verdict::NotMet => "  NOT MET",
            Verdict::NotShown => "  not shown",
        };
        writeln!(out, "{:<48} {:>10}   {}{verdict}", goal.name, goal.goal, goal.reached)?;
    }
    Ok(())
}

type Found<'a> = Vec<(&'a Cell, &'a Column)>;

fn with<'a>(cells: &'a [Cell], way: &str, wanted: impl Fn(&Cell) -> bool) -> Found<'a> {
    cells.iter().filter(|cell| wanted(cell)).filter_map(|cell| Some((cell, cell.ways.get(way)?))).collect()
}

fn worst<'a>(found: &Found<'a>) -> Option<(&'a Cell, &'a Column)> {
    found.iter().copied().max_by(|a, b| a.1.total_over_unmanaged.mean.total_cmp(&b.1.total_over_unmanaged.mean))
}

fn best<'a>(found: &Found<'a>) -> Option<(&'a Cell, &'a Column)> {
    found.iter().copied().min_by(|a, b| a.1.total_over_unmanaged.mean.total_cmp(&b.1.total_over_unmanaged.mean))
}

fn at(cell: &Cell, ratio: f64) -> String {
    format!("×{ratio:.4} ({} × {})", cell.case.workload.name(), cell.case.tenants)
}
