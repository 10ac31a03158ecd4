//! The table of what each way makes of the tenants of a mix, one by one.

use super::cell::{Cell, Column};
use super::report::{grid, name, ways};

/// What is unmanaged is what the others are held against, and processes one by one are no way to share.
const LEFT_OUT: [&str; 2] = ["unmanaged", "one-by-one"];

pub fn table(cells: &[&Cell]) -> String {
    let headings = [
        "× UNMANAGED",
        "WAY",
        "TOTAL",
        "MEAN END",
        "OWN, MEAN",
        "OWN, WORST",
        "HOLDS",
        "EACH TENANT'S BURSTS: s, ×, LONGEST ×",
    ];
    let ways = ways(cells);
    let rows = cells.iter().flat_map(|cell| {
        let shown = ways.iter().filter(|way| !LEFT_OUT.contains(way));
        shown.filter_map(|way| Some(row(cell, way, cell.ways.get(way)?)))
    });
    grid(&headings, rows.collect())
}

fn row(cell: &Cell, way: &str, column: &Column) -> Vec<String> {
    let own = &column.own;
    let mean = own.stays.iter().sum::<f64>() / own.stays.len().max(1) as f64;
    let each = own.burst_seconds.iter().zip(&own.bursts).zip(&own.longest_bursts);
    let bursts = each.filter_map(|((seconds, ratio), longest)| {
        Some(format!("{:.2} ×{:.2} ×{:.2}", (*seconds)?, (*ratio)?, (*longest)?))
    });
    vec![
        name(cell.case),
        way.to_owned(),
        format!("{:.4}", column.total_over_unmanaged.mean),
        format!("{:.3}", column.completion_over_unmanaged.mean),
        format!("{mean:.3}"),
        format!("{:.3}", own.worst_stay),
        format!("{:.1}", column.holds),
        bursts.collect::<Vec<_>>().join(" | "),
    ]
}
