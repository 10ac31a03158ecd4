//! Misses against load as a chart.

use super::cell::Cell;
use super::report::{Report, WAYS};
use crate::bench::contention::svg::{Chart, Series};

pub fn misses(report: &Report) -> Chart {
    let curve = |style: usize, name: &str, value: &dyn Fn(&Cell) -> Option<f64>| {
        let points = report.cells.iter().filter_map(|cell| Some((f64::from(cell.load_pct), value(cell)? * 100.0)));
        Series { name: name.to_owned(), style, points: points.collect() }
    };
    let ways = WAYS.iter().enumerate();
    let mut series: Vec<Series> =
        ways.map(|(style, way)| curve(style, way, &|cell| Some(cell.ways.get(way)?.miss_rate.mean))).collect();
    series.push(curve(WAYS.len(), "optimum, at least", &|cell| Some(cell.optimum_rate().0)));
    Chart {
        title: "Missed deadlines".to_owned(),
        x_label: "kernel seconds that come in a second, %".to_owned(),
        y_label: "missed, %".to_owned(),
        series,
        y_from: 0.0,
    }
}
