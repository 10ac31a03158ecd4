//! The measurement as charts: the errors of Table 2, the monitor's work and its resources.

use super::cost::Point;
use super::report::Report;
use crate::bench::contention::svg::{Chart, Series};

const MIB: f64 = 1024.0 * 1024.0;

/// File names and charts of what was measured.
pub fn charts(report: &Report) -> Vec<(&'static str, Chart)> {
    let mut charts = Vec::new();
    if report.errors.is_some() {
        charts.push(("errors.svg", errors(report)));
    }
    if !report.cost.is_empty() {
        charts.push(("told.svg", told(report)));
        charts.push(("cpu.svg", cpu(report)));
        charts.push(("memory.svg", memory(report)));
        charts.push(("over-time.svg", over_time(report)));
    }
    charts
}

fn chart(title: &str, x_label: &str, y_label: &str, series: Vec<Series>) -> Chart {
    let (title, x_label, y_label) = (title.to_owned(), x_label.to_owned(), y_label.to_owned());
    Chart { title, x_label, y_label, series, y_from: 0.0 }
}

fn series(name: &str, style: usize, points: impl Iterator<Item = (f64, f64)>) -> Series {
    Series { name: name.to_owned(), style, points: points.collect() }
}

/// The mean of each container.
fn errors(report: &Report) -> Chart {
    let numbered = || (1u32..).map(f64::from).zip(&report.containers);
    let curve = |name, style, value: fn(&super::task::Errors) -> Option<f64>| {
        series(name, style, numbered().filter_map(|(number, one)| Some((number, value(&one.errors)?))))
    };
    let curves = vec![
        curve("start", 0, |errors| Some(errors.start_ms?.mean)),
        curve("end", 1, |errors| Some(errors.end_ms?.mean)),
        curve("run time", 2, |errors| Some(errors.run_ms?.mean)),
    ];
    chart("Seen from outside minus timers inside (Table 2)", "container", "ms, mean", curves)
}

fn by_count(report: &Report, name: &str, style: usize, value: impl Fn(&Point) -> Option<f64>) -> Series {
    let points = report.cost.iter().filter_map(|point| Some((f64::from(point.containers), value(point)?)));
    series(name, style, points)
}

fn told(report: &Report) -> Chart {
    let curves = vec![
        by_count(report, "told, p50", 0, |point| Some(point.told_after_ms?.quantiles.p50)),
        by_count(report, "asked, p50", 1, |point| Some(point.asked_ms?.quantiles.p50)),
    ];
    chart("How long until a container's task is known (Fig. 4)", "containers", "ms", curves)
}

fn cpu(report: &Report) -> Chart {
    let curves = vec![by_count(report, "monitor", 0, |point| point.cpu_pct)];
    chart("CPU of the monitor (Fig. 5)", "containers", "percent of one core", curves)
}

fn memory(report: &Report) -> Chart {
    let curves = vec![
        by_count(report, "RSS", 0, |point| Some(point.memory?.resident_bytes.0 as f64 / MIB)),
        by_count(report, "PSS", 1, |point| Some(point.memory?.proportional_bytes.0 as f64 / MIB)),
    ];
    chart("Memory of the monitor (Fig. 5)", "containers", "MiB", curves)
}

fn over_time(report: &Report) -> Chart {
    let samples = report.over_time.iter();
    let curves = vec![
        series("CPU, % of a core", 0, samples.clone().map(|sample| (sample.at_s, sample.cpu_pct))),
        series("containers", 1, samples.map(|sample| (sample.at_s, f64::from(sample.containers)))),
    ];
    chart("The monitor while containers come (Fig. 5)", "seconds", "", curves)
}
