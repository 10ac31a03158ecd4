//! What `berth bench contention` found, as JSON and as tables.

use berth_sim::published::PUBLISHED_PHASES;
use serde::Serialize;

use super::cell::{Case, Cell, Column};
use super::costs::Costs;
use super::figure::{Figure, Shows};
use super::goals::{self, Goal, PUBLISHED_WORKLOAD};
use super::tenants;
use crate::columns::Columns;
use crate::table;

#[derive(Debug, Clone, Serialize)]
pub struct Report {
    pub berth: String,
    pub gpu: String,
    pub seeds: usize,
    /// Of berth's own hands; those of the published system are in its description.
    pub costs: Costs,
    pub figures: Vec<Figure>,
    /// Each case once, whatever figures show it.
    pub cells: Vec<Cell>,
    pub goals: Vec<Goal>,
}

impl Report {
    /// The cells of a figure, in its order.
    pub fn cells_of(&self, figure: Figure) -> Vec<&Cell> {
        let find = |case: Case| self.cells.iter().find(|cell| cell.case == case);
        figure.cases().into_iter().filter_map(find).collect()
    }

    pub fn to_text(&self) -> String {
        let mut text =
            format!("{}, simulated, in virtual time · {} runs of each cell · seconds\n", self.gpu, self.seeds);
        for figure in &self.figures {
            text.push_str(&format!("\n{}: {}\n", figure.name(), figure.title()));
            text.push_str(&self.figure_text(*figure));
        }
        // Writing to a string cannot fail.
        let _ = goals::write(&self.goals, &mut text);
        text
    }

    fn figure_text(&self, figure: Figure) -> String {
        let cells = self.cells_of(figure);
        match figure.shows() {
            Shows::Phases => phases(&cells),
            Shows::Unmanaged => unmanaged(&cells),
            Shows::Baseline => baseline(&cells),
            Shows::Each => each(&cells),
            Shows::Ways => [totals(&cells), details(&largest(&cells))].join("\n"),
            Shows::Tenants => [totals(&cells), tenants::table(&cells)].join("\n"),
        }
    }
}

pub fn grid(headings: &[&str], rows: Vec<Vec<String>>) -> String {
    let numeric: Vec<bool> = (0..headings.len()).map(|column| column > 0).collect();
    table::render(Columns::new(headings, &numeric, rows))
}

pub fn name(case: Case) -> String {
    format!("{} × {}", case.workload.name(), case.tenants)
}

fn seconds(value: f64) -> String {
    format!("{value:.3}")
}

fn phases(cells: &[&Cell]) -> String {
    let rows = cells.iter().filter_map(|cell| {
        let own = cell.ways.get("unmanaged")?;
        let published = (cell.case.workload == PUBLISHED_WORKLOAD)
            .then(|| PUBLISHED_PHASES.get(cell.case.tenants - 1).copied())
            .flatten();
        let mut row = vec![name(cell.case), seconds(own.input), seconds(own.kernel), seconds(own.output)];
        row.extend(published.into_iter().flatten().map(seconds));
        row.resize(7, "-".to_owned());
        Some(row)
    });
    grid(&["", "INPUT", "KERNEL", "OUTPUT", "PUBLISHED INPUT", "KERNEL", "OUTPUT"], rows.collect())
}

fn unmanaged(cells: &[&Cell]) -> String {
    let rows = cells.iter().filter_map(|cell| {
        let own = cell.ways.get("unmanaged")?;
        Some(vec![name(cell.case), seconds(own.on_gpu.mean), seconds(own.total.mean), seconds(own.completion.mean)])
    });
    grid(&["", "INPUT TO OUTPUT", "TOTAL", "COMPLETION"], rows.collect())
}

fn baseline(cells: &[&Cell]) -> String {
    let rows = cells.iter().filter_map(|cell| {
        let own = cell.ways.get("unmanaged")?.on_gpu.mean;
        Some(vec![name(cell.case), seconds(own), seconds(cell.alone), format!("{:+.3}", own - cell.alone)])
    });
    grid(&["", "INPUT TO OUTPUT", "ALONE, IN TURN", "DIFFERENCE"], rows.collect())
}

fn each(cells: &[&Cell]) -> String {
    let Some(own) = cells.last().and_then(|cell| cell.ways.get("unmanaged")) else { return String::new() };
    let mean = own.each.iter().sum::<f64>() / own.each.len() as f64;
    let apart = |seconds: f64| format!("{:+.2} %", (seconds / mean - 1.0) * 100.0);
    let rows =
        own.each.iter().zip(1..).map(|(time, index)| vec![format!("tenant {index}"), seconds(*time), apart(*time)]);
    grid(&["", "INPUT TO OUTPUT", "FROM THE MEAN"], rows.collect())
}

/// Ways in the order people compare them, then any other.
pub fn ways(cells: &[&Cell]) -> Vec<&'static str> {
    let mut ways: Vec<&'static str> = cells.iter().flat_map(|cell| cell.ways.keys().copied()).collect();
    let place =
        |way: &&str| ["one-by-one", "unmanaged", "mps", "kernel-lock", "watched"].iter().position(|known| known == way);
    ways.sort_by_key(|way| (place(way).unwrap_or(usize::MAX), *way));
    ways.dedup();
    ways
}

fn totals(cells: &[&Cell]) -> String {
    let mut ways = ways(cells);
    ways.retain(|way| *way != "watched");
    let mut headings = vec!["TOTAL", "BOUND"];
    headings.extend(ways.iter().flat_map(|way| if *way == "unmanaged" { vec![*way] } else { vec![*way, "×"] }));
    let rows = cells.iter().map(|cell| {
        let mut row = vec![name(cell.case), seconds(cell.bound)];
        for way in &ways {
            let column = cell.ways.get(way);
            row.push(column.map_or_else(|| "-".to_owned(), |column| seconds(column.total.mean)));
            if *way != "unmanaged" {
                row.push(
                    column.map_or_else(|| "-".to_owned(), |column| format!("{:.3}", column.total_over_unmanaged.mean)),
                );
            }
        }
        row
    });
    grid(&headings, rows.collect())
}

/// Of each workload the cell with the most tenants; the others are in the JSON.
fn largest<'a>(cells: &[&'a Cell]) -> Vec<&'a Cell> {
    let is_largest = |cell: &&&Cell| {
        let same = cells.iter().filter(|other| other.case.workload == cell.case.workload);
        same.map(|other| other.case.tenants).max() == Some(cell.case.tenants)
    };
    cells.iter().filter(is_largest).copied().collect()
}

/// For each case and way that is compared with unmanaged: how sure, how long a tenant waits, and where the time goes.
fn details(cells: &[&Cell]) -> String {
    let headings = [
        "",
        "WAY",
        "×",
        "BY 95 %",
        "COMPLETION",
        "×",
        "HOLDS",
        "SWITCHING",
        "BLOCKED",
        "HANDOVER",
        "IDLE",
        "START",
        "END",
    ];
    let ways = ways(cells);
    let shown = |way: &&&'static str| !matches!(**way, "one-by-one" | "mps" | "watched");
    let rows = cells.iter().flat_map(|cell| {
        let columns = ways.iter().filter(shown).filter_map(|way| Some((*way, cell.ways.get(way)?)));
        columns.map(|(way, column)| detail(cell, way, column))
    });
    grid(&headings, rows.collect())
}

fn detail(cell: &Cell, way: &str, column: &Column) -> Vec<String> {
    let ratio = column.total_over_unmanaged;
    let mut row = vec![
        name(cell.case),
        way.to_owned(),
        format!("{:.4}", ratio.mean),
        format!("{:.4} to {:.4}", ratio.low, ratio.high),
        seconds(column.completion.mean),
        format!("{:.3}", column.completion_over_unmanaged.mean),
        format!("{:.1}", column.holds),
    ];
    row.extend(column.spent.above_kernels().iter().map(|(_, value)| seconds(*value)));
    row
}
