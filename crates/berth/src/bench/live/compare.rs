//! A live run on the simulated GPU beside what virtual time predicts for the same cell.
//!
//! The prediction is `berth bench contention`'s: the same engine, policy and order of steps, with the costs of berth's hands
//! as constants. Live, real processes load the simulated driver, a real daemon manages them, and the machine's own
//! scheduling is in it. Where both agree, the figures made in virtual time can be believed; where not, one of them is wrong.

use berth_sim::Profile;
use berth_sim::scenario::Failed;
use serde::Serialize;

use super::Cell;
use super::report::{CellReport, Report};
use crate::bench::contention::cell::{Case, Contender, FIFO, FIFO_FREEZE, FIFO_LOCK, PAPER, Way};
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
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Beside {
    pub live_s: f64,
    pub predicted_s: f64,
    /// Live over predicted, less one.
    pub off: f64,
    pub is_within: bool,
}

impl Beside {
    fn of(live_s: f64, predicted_s: f64) -> Beside {
        let off = live_s / predicted_s - 1.0;
        Beside { live_s, predicted_s, off, is_within: off.abs() <= ALLOWED }
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
        let (total, completion) = predict(cell.cell, way, profile)?;
        all.push(Compared {
            way: row.way,
            total: Beside::of(row.total_s, total),
            mean_completion: Beside::of(row.mean_completion_s, completion),
        });
    }
    Ok(all)
}

/// Total and mean completion, in seconds.
fn predict(cell: Cell, way: Way, profile: &Profile) -> Result<(f64, f64), Failed> {
    let case = Case { workload: Workload::Product(cell.size.into()), tenants: cell.tenants as usize };
    let runs = SEEDS.iter().map(|seed| case.run(way, profile, *seed)).collect::<Result<Vec<_>, _>>()?;
    let mean = |values: Vec<f64>| Estimate::of(values).map_or(f64::NAN, |estimate| estimate.mean);
    Ok((mean(runs.iter().map(|run| run.total).collect()), mean(runs.iter().map(|run| run.completion).collect())))
}

/// `None` for what virtual time does not know.
fn virtual_way(name: &str) -> Option<Way> {
    Some(match name {
        "unmanaged" => Way::Unmanaged,
        "one-by-one" => Way::OneByOne,
        "fifo" => Way::Managed(FIFO),
        // With the eyes and hands it has in berth, not with those it was published with.
        "paper" => Way::Managed(Contender { terms: FIFO.terms, ..PAPER }),
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
    let off = |beside: Beside| format!("{:+.1} %", beside.off * 100.0);
    let rows = compared.iter().map(|compared| {
        let (total, mean) = (compared.total, compared.mean_completion);
        let verdict = if total.is_within && mean.is_within { "" } else { "NOT WITHIN" };
        let mut row = vec![compared.way.to_owned()];
        row.extend([seconds(total.live_s), seconds(total.predicted_s), off(total)]);
        row.extend([seconds(mean.live_s), seconds(mean.predicted_s), off(mean), verdict.to_owned()]);
        row
    });
    let headings = ["", "TOTAL", "PREDICTED", "OFF", "MEAN END", "PREDICTED", "OFF", ""];
    let numeric = [false, true, true, true, true, true, true, false];
    let table = table::render(Columns::new(&headings, &numeric, rows.collect()));
    format!(
        "\nbeside virtual time, mean of {} starts; ±{:.0} % allowed\n{}\n",
        SEEDS.len(),
        ALLOWED * 100.0,
        table.trim_end()
    )
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
        assert_eq!(names, ["fifo", "paper", "lock", "freeze", "one-by-one"]);
    }

    #[test]
    fn a_prediction_is_that_of_virtual_time() {
        let profile = Profile::builtin("h200").unwrap();
        let cell = Cell { size: 5_120, tenants: 2, host_time: host_time(&profile, 5_120) };
        let (total, completion) = predict(cell, Way::Unmanaged, &profile).unwrap();
        assert!(total > completion && completion > 0.1, "{total} {completion}");
    }
}
