//! The figures as charts: which curves each has.

use super::cell::{Cell, Column};
use super::figure::{Figure, Shows};
use super::report::{Report, ways};
use super::svg::{Chart, Series};

/// File name and chart; the managed figures have several: the times, and the times against
/// unmanaged and against one after another.
pub fn charts(report: &Report, figure: Figure) -> Vec<(String, Chart)> {
    let cells = report.cells_of(figure);
    let name = figure.name();
    match figure.shows() {
        Shows::Phases => vec![(file(name, ""), chart(figure, "seconds", phases(&cells)))],
        Shows::Unmanaged | Shows::Baseline => vec![(file(name, ""), chart(figure, "seconds", baseline(&cells)))],
        Shows::Each => {
            vec![(file(name, ""), Chart { x_label: "tenant".to_owned(), ..chart(figure, "seconds", each(&cells)) })]
        }
        // Cells of several workloads are no curve.
        Shows::Ways if matches!(figure, Figure::Sizes | Figure::Patterns) => Vec::new(),
        Shows::Tenants => Vec::new(),
        Shows::Ways => {
            let total = managed(&cells, &[], |_, column| column.total.mean);
            let ratio = managed(&cells, &["one-by-one"], |_, column| column.total_over_unmanaged.mean);
            let completion = managed(&cells, &["one-by-one"], |_, column| column.completion_over_unmanaged.mean);
            let gain = managed(&cells, &["one-by-one"], |cell, column| cell.alone - column.on_gpu.mean);
            vec![
                (file(name, "-total"), chart(figure, "seconds until all have ended", total)),
                (file(name, "-ratio"), Chart { y_from: 0.9, ..chart(figure, "total time over unmanaged", ratio) }),
                (file(name, "-gain"), chart(figure, "seconds faster than alone, in turn", gain)),
                (file(name, "-completion"), chart(figure, "mean completion over unmanaged", completion)),
            ]
        }
    }
}

fn file(name: &str, part: &str) -> String {
    format!("{name}{part}.svg")
}

fn chart(figure: Figure, y_label: &str, series: Vec<Series>) -> Chart {
    Chart {
        title: figure.title().to_owned(),
        x_label: "tenants".to_owned(),
        y_label: y_label.to_owned(),
        series,
        y_from: 0.0,
    }
}

fn curve(cells: &[&Cell], style: usize, name: &str, value: impl Fn(&Cell) -> Option<f64>) -> Series {
    let points = cells.iter().filter_map(|cell| Some((cell.case.tenants as f64, value(cell)?)));
    Series { name: name.to_owned(), style, points: points.collect() }
}

fn unmanaged(cell: &Cell) -> Option<&Column> {
    cell.ways.get("unmanaged")
}

fn phases(cells: &[&Cell]) -> Vec<Series> {
    vec![
        curve(cells, 0, "input", |cell| Some(unmanaged(cell)?.input)),
        curve(cells, 1, "kernel", |cell| Some(unmanaged(cell)?.kernel)),
        curve(cells, 2, "output", |cell| Some(unmanaged(cell)?.output)),
    ]
}

fn baseline(cells: &[&Cell]) -> Vec<Series> {
    vec![
        curve(cells, 0, "together", |cell| Some(unmanaged(cell)?.on_gpu.mean)),
        curve(cells, 1, "alone, in turn", |cell| Some(cell.alone)),
    ]
}

fn each(cells: &[&Cell]) -> Vec<Series> {
    let times = cells.last().and_then(|cell| unmanaged(cell)).map(|column| column.each.clone()).unwrap_or_default();
    let points = times.into_iter().enumerate().map(|(index, time)| (index as f64 + 1.0, time));
    vec![Series { name: "input to output".to_owned(), style: 0, points: points.collect() }]
}

/// One curve for each way but those left out.
fn managed(cells: &[&Cell], but: &[&str], value: impl Fn(&Cell, &Column) -> f64) -> Vec<Series> {
    let ways = ways(cells).into_iter().filter(|way| *way != "watched");
    let ways = ways.enumerate().filter(|(_, way)| !but.contains(way));
    ways.map(|(style, way)| curve(cells, style, way, |cell| Some(value(cell, cell.ways.get(way)?)))).collect()
}
