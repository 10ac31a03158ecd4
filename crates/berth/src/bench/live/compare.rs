//! A live run on the simulated GPU beside what virtual time predicts for the same cell.
//!
//! The prediction is `berth bench contention`'s: the same engine, policy and order of steps, with the costs of berth's hands
//! as constants. Live, real processes load the simulated driver, a real daemon manages them, and the machine's own
//! scheduling is in it. Where both agree, the figures made in virtual time can be believed; where not, one of them is wrong.

use berth_sim::Profile;
use berth_sim::scenario::Failed;
use serde::Serialize;

use super::report::{Above, CellReport, Report, Row};
use super::{Cell, Run};
use crate::bench::contention::cell::{Case, FIFO, FIFO_FREEZE, FIFO_LOCK, PAPER_BERTH, Sample, Way};
use crate::bench::contention::estimate::Estimate;
use crate::bench::contention::workload::Workload;
use crate::columns::Columns;
use crate::table;

/// How far a live run may be from its prediction, as a share. The engine itself is held to measured GPUs within 10 %.
pub const ALLOWED: f64 = 0.10;
/// Of the prediction; they move the starts.
const SEEDS: [u64; 5] = [1, 2, 3, 4, 5];

/// One way of one cell.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Compared {
    pub way: &'static str,
    pub total: Beside,
    pub mean_completion: Beside,
    /// Where the time above k × kernel went: what is wrong shows here.
    pub above_live: Option<Above>,
    pub above_predicted: Above,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Beside {
    pub live_s: f64,
    pub predicted_s: f64,
    /// Live over predicted.
    pub ratio: f64,
    pub is_within: bool,
}

impl Beside {
    fn of(live_s: f64, predicted_s: f64) -> Beside {
        let ratio = live_s / predicted_s;
        Beside { live_s, predicted_s, ratio, is_within: (ratio - 1.0).abs() <= ALLOWED }
    }
}

impl Compared {
    pub fn is_within(&self) -> bool {
        self.total.is_within && self.mean_completion.is_within
    }
}

/// What a program of the profile's machine does before it asks for the GPU, besides being started: it fills its inputs.
pub fn host_time(profile: &Profile, size: u32) -> berth_model::Span {
    let bytes = 2.0 * 4.0 * f64::from(size) * f64::from(size);
    // Rates are positive and sizes bounded: a few seconds at most.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few thousand")]
    let millis = (bytes / profile.host.init_gbps / 1e6).round() as u64;
    berth_model::Span::from_millis(millis)
}

/// Puts the predictions beside what was measured.
pub fn add(report: &mut Report, profile: &Profile) -> Result<(), Failed> {
    report.cells.iter_mut().try_for_each(|cell| {
        cell.compared = compared(cell, profile)?;
        Ok(())
    })
}

fn compared(cell: &CellReport, profile: &Profile) -> Result<Vec<Compared>, Failed> {
    let mut all = Vec::new();
    for row in &cell.ways {
        let Some(way) = virtual_way(row.way) else { continue };
        let predicted = Predicted::of(cell.cell, way, profile)?;
        all.push(Compared {
            way: row.way,
            total: Beside::of(mean(row, |run| run.total_s), predicted.total_s),
            mean_completion: Beside::of(mean(row, |run| run.mean_completion_s), predicted.mean_completion_s),
            above_live: row.above,
            above_predicted: predicted.above,
        });
    }
    Ok(all)
}

/// Over the runs, as the prediction is over its starts: a run that went wrong counts.
fn mean(row: &Row, of: fn(&Run) -> f64) -> f64 {
    Estimate::of(row.runs.iter().map(of)).map_or(f64::NAN, |found| found.mean)
}

/// Means over the seeds.
#[derive(Debug)]
struct Predicted {
    total_s: f64,
    mean_completion_s: f64,
    above: Above,
}

impl Predicted {
    fn of(cell: Cell, way: Way, profile: &Profile) -> Result<Predicted, Failed> {
        let case = Case { workload: Workload::Product(cell.size.into()), tenants: cell.tenants as usize };
        let runs = SEEDS.iter().map(|seed| case.run(way, profile, *seed)).collect::<Result<Vec<_>, _>>()?;
        let mean = |of: fn(&Sample) -> f64| Estimate::of(runs.iter().map(of)).map_or(f64::NAN, |found| found.mean);
        Ok(Predicted {
            total_s: mean(|run| run.total),
            mean_completion_s: mean(|run| run.completion),
            above: Above {
                start_s: mean(|run| run.spent.start),
                slower_s: mean(|run| run.spent.switching + run.spent.blocked),
                gaps_s: mean(|run| run.spent.handover + run.spent.idle),
                end_s: mean(|run| run.spent.end),
            },
        })
    }
}

/// `None` for what virtual time does not know.
fn virtual_way(name: &str) -> Option<Way> {
    Some(match name {
        // Watching is not felt.
        "unmanaged" | "off" => Way::Unmanaged,
        "one-by-one" => Way::OneByOne,
        "fifo" => Way::Managed(FIFO),
        // With the eyes and hands it has in berth, not with those it was published with.
        "paper" => Way::Managed(PAPER_BERTH),
        "lock" => Way::Managed(FIFO_LOCK),
        "freeze" => Way::Managed(FIFO_FREEZE),
        _ => return None,
    })
}

/// Empty for nothing compared.
pub fn to_text(compared: &[Compared]) -> String {
    if compared.is_empty() {
        return String::new();
    }
    let seconds = |value: f64| format!("{value:.3}");
    let ratio = |beside: Beside| format!("{:.3}", beside.ratio);
    let rows = compared.iter().map(|compared| {
        let (total, mean) = (compared.total, compared.mean_completion);
        let verdict = if compared.is_within() { "" } else { "NOT WITHIN" };
        let mut row = vec![compared.way.to_owned()];
        row.extend([seconds(total.live_s), seconds(total.predicted_s), ratio(total)]);
        row.extend([seconds(mean.live_s), seconds(mean.predicted_s), ratio(mean), verdict.to_owned()]);
        row
    });
    let headings = ["", "TOTAL", "PREDICTED", "RATIO", "MEAN END", "PREDICTED", "RATIO", ""];
    let numeric = [false, true, true, true, true, true, true, false];
    let table = table::render(Columns::new(&headings, &numeric, rows.collect()));
    format!(
        "\nmeans of all runs, beside virtual time with {} starts; ±{:.0} % allowed\n{}\n{}",
        SEEDS.len(),
        ALLOWED * 100.0,
        table.trim_end(),
        above_to_text(compared)
    )
}

fn above_to_text(compared: &[Compared]) -> String {
    let of = |live: Option<Above>, predicted: Above, part: fn(Above) -> f64| {
        let live = live.map_or("?".to_owned(), |live| format!("{:.3}", part(live)));
        format!("{live} ({:.3})", part(predicted))
    };
    let parts: [fn(Above) -> f64; 4] =
        [|above| above.start_s, |above| above.slower_s, |above| above.gaps_s, |above| above.end_s];
    let rows = compared.iter().map(|compared| {
        let cells = parts.iter().map(|part| of(compared.above_live, compared.above_predicted, *part));
        [compared.way.to_owned()].into_iter().chain(cells).collect()
    });
    let headings = ["above k × kernel", "START", "SLOWER", "GAPS", "END"];
    let table = table::render(Columns::new(&headings, &[false, true, true, true, true], rows.collect()));
    format!("\n{}\n", table.trim_end())
}

/// What is judged, in one line; `None` for nothing compared.
pub fn verdict<'a>(cells: impl Iterator<Item = (Cell, &'a [Compared])>) -> Option<String> {
    let all: Vec<(Cell, &Compared)> =
        cells.flat_map(|(cell, compared)| compared.iter().map(move |compared| (cell, compared))).collect();
    let outside: Vec<String> = all
        .iter()
        .filter(|(_, compared)| !compared.is_within())
        .map(|(cell, compared)| format!("{cell}, {}", compared.way))
        .collect();
    let allowed = ALLOWED * 100.0;
    match (all.len(), outside.len()) {
        (0, _) => None,
        (count, 0) => Some(format!("live is within {allowed:.0} % of virtual time in all {count} comparisons")),
        (count, misses) => Some(format!(
            "live is NOT WITHIN {allowed:.0} % of virtual time in {misses} of {count} comparisons: {}",
            outside.join("; ")
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_live_run_that_is_too_slow_or_too_fast_is_not_within() {
        for (live, is_within) in [(10.0, true), (10.9, true), (11.1, false), (9.1, true), (8.9, false)] {
            assert_eq!(Beside::of(live, 10.0).is_within, is_within, "{live}");
        }
    }

    #[test]
    fn whatever_virtual_time_knows_is_asked_for_by_the_name_it_has_live() {
        let known = super::super::way::Way::NAMED.iter().filter(|(name, _)| virtual_way(name).is_some());
        let names: Vec<&str> = known.map(|(name, _)| *name).collect();
        assert_eq!(names, ["fifo", "paper", "off", "lock", "freeze", "one-by-one"]);
    }

    #[test]
    fn a_prediction_is_that_of_virtual_time() {
        let profile = Profile::builtin("h200").unwrap();
        let cell = Cell { size: 5_120, tenants: 2, host_time: host_time(&profile, 5_120) };
        let predicted = Predicted::of(cell, Way::Unmanaged, &profile).unwrap();
        assert!(predicted.total_s > predicted.mean_completion_s && predicted.mean_completion_s > 0.1, "{predicted:?}");
        let Above { start_s, slower_s, gaps_s, end_s } = predicted.above;
        let kernels_s = predicted.total_s - start_s - slower_s - gaps_s - end_s;
        // Two products of 5,120² at the profile's rate: each instant is counted once.
        assert!((kernels_s - 0.108).abs() < 0.005, "{kernels_s}");
    }

    #[test]
    fn one_that_is_not_within_is_named_and_so_is_that_all_are() {
        let compared = |way, live| Compared {
            way,
            total: Beside::of(live, 10.0),
            mean_completion: Beside::of(10.0, 10.0),
            above_live: None,
            above_predicted: Above { start_s: 0.0, slower_s: 0.0, gaps_s: 0.0, end_s: 0.0 },
        };
        let cell = Cell { size: 8_192, tenants: 5, host_time: berth_model::Span::from_millis(0) };
        let told = |live| {
            let all = [compared("fifo", 10.0), compared("paper", live)];
            verdict([(cell, &all[..])].into_iter()).unwrap()
        };
        let text = to_text(&[compared("one-by-one", 1_000.0)]);
        assert!(text.contains("NOT WITHIN") && text.contains("? (0.000)"), "{text}");
        assert!(text.lines().all(|line| crate::columns::width(line) <= 100), "{text}");
        assert_eq!(told(10.5), "live is within 10 % of virtual time in all 2 comparisons");
        assert!(told(8.0).ends_with("NOT WITHIN 10 % of virtual time in 1 of 2 comparisons: 5 × 8192², paper"));
        assert_eq!(verdict(std::iter::empty()), None);
    }
}
