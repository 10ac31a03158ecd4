//! A pair as a chart: how much latency each mode costs, for how much of the trainer's rate.

use super::mode::Mode;
use super::report::{PairReport, Report, Row};
use crate::bench::contention::svg::{Chart, Series};

/// By file name.
pub fn charts(report: &Report) -> Vec<(String, Chart)> {
    report.pairs.iter().map(|pair| (format!("colocate-{}.svg", pair.pair.name()), chart(pair))).collect()
}

fn chart(pair: &PairReport) -> Chart {
    let series = Mode::all().into_iter().enumerate().map(|(style, mode)| {
        let rows = pair.loads.iter().flat_map(|load| load.rows.iter().filter(move |row| row.mode == mode));
        Series { name: mode.to_string(), style, points: rows.filter_map(point).collect() }
    });
    Chart {
        title: format!("{} (one point per load)", pair.what),
        x_label: "the trainer's rate, % of alone".to_owned(),
        y_label: "p99 ÷ alone, power of ten".to_owned(),
        series: series.filter(|series| !series.points.is_empty()).collect(),
        y_from: 0.0,
    }
}

/// Modes differ by powers of ten.
fn point(row: &Row) -> Option<(f64, f64)> {
    Some((row.trainer_over_alone? * 100.0, row.p99_over_alone?.log10()))
}
