//! Misses against load as a chart.

use super::report::Report;
use crate::bench::contention::svg::{Chart, Series};
use crate::cluster_sim::Way;

pub fn misses(report: &Report) -> Chart {
    let curve = |(style, way): (usize, Way)| {
        let points = report
            .cells
            .iter()
            .filter_map(|cell| Some((f64::from(cell.load_pct), cell.ways.get(&way)?.miss_rate.mean * 100.0)));
        Series { name: way.as_str().to_owned(), style, points: points.collect() }
    };
    Chart {
        title: "Missed deadlines by who places".to_owned(),
        x_label: "GPU seconds that come in a second, % of all GPUs".to_owned(),
        y_label: "missed, %".to_owned(),
        series: Way::ALL.into_iter().enumerate().map(curve).filter(|series| !series.points.is_empty()).collect(),
        y_from: 0.0,
    }
}
