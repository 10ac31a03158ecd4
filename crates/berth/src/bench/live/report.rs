//! What `berth bench live` found, as JSON and as tables.

use serde::Serialize;

use super::compare::{self, Compared};
use super::goals::{self, Goal};
use super::way::Way;
use super::{Cell, Measured, MeasuredCell, Run};
use crate::bench::contention::estimate::Estimate;
use crate::bench::machine::Machine;
use crate::bench::quantiles::median;
use crate::columns::Columns;
use crate::table;

#[derive(Debug, Clone, Serialize)]
pub struct Report {
    pub berth: String,
    pub machine: Machine,
    pub cells: Vec<CellReport>,
    /// Of a real GPU.
    pub goals: Vec<Goal>,
    /// What was left out, and why.
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, Serialize)]
pub struct CellReport {
    #[serde(flatten)]
    pub cell: Cell,
    /// One kernel by itself; `None` if no run came to one.
    pub kernel: Option<KernelAlone>,
    pub ways: Vec<Row>,
    /// Against virtual time, if asked for.
    pub compared: Vec<Compared>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct KernelAlone {
    pub seconds: f64,
    /// From tenants that ran one by one; else it is the shortest of any run.
    pub was_alone: bool,
}

/// One way in one cell.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    pub way: &'static str,
    /// Medians over the runs.
    pub total_s: f64,
    pub mean_completion_s: f64,
    /// Against the unmanaged run of the same round: mean over the rounds and its 95 % interval by Student's t.
    pub total_over_unmanaged: Option<Estimate>,
    pub completion_over_unmanaged: Option<Estimate>,
    pub above: Option<Above>,
    pub runs: Vec<Run>,
}

/// Where the time above k × kernel went; medians over the runs, in seconds. Below 0: kernels ran side by side.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Above {
    pub start_s: f64,
    /// With a kernel under way, beyond what all of them take one after another.
    pub slower_s: f64,
    pub gaps_s: f64,
    pub end_s: f64,
}

impl Report {
    pub fn of(measured: &Measured) -> Report {
        let cells: Vec<CellReport> = measured.cells.iter().map(CellReport::of).collect();
        Report {
            berth: env!("CARGO_PKG_VERSION").to_owned(),
            machine: measured.machine.clone(),
            goals: if measured.machine.simulated { Vec::new() } else { goals::judge(&cells) },
            cells,
            notes: measured.notes.clone(),
        }
    }

    pub fn to_text(&self) -> String {
        let mut text = self.machine.to_text() + "\n";
        for cell in &self.cells {
            text += &format!("\n{}", cell.to_text());
        }
        text += "\nTOTAL: from the word until all are done; MEAN END: until one is; medians of the runs, in seconds.\n\
                 ×: against the unmanaged run of the same round, mean ± half of its 95 % interval (Student's t).\n\
                 START, SLOWER, GAPS, END: the time above k × kernel: before the first kernel, kernels that take\n\
                 longer than alone, none under way, after the last.\n";
        let compared = compare::verdict(self.cells.iter().map(|cell| (cell.cell, &cell.compared[..])));
        for note in self.goals.iter().map(Goal::to_text).chain(compared).chain(self.notes.iter().cloned()) {
            text += &format!("{note}\n");
        }
        text
    }
}

impl CellReport {
    fn of(measured: &MeasuredCell) -> CellReport {
        let kernel = KernelAlone::of(measured);
        let unmanaged = measured.ways.iter().find(|way| way.way == Way::Unmanaged).map_or(&[][..], |way| &way.runs);
        let kernels_s = kernel.map(|kernel| kernel.seconds * f64::from(measured.cell.tenants));
        let made = measured.ways.iter().filter(|way| !way.runs.is_empty());
        let row = |way: &super::MeasuredWay| Row::of(way.way, &way.runs, unmanaged, kernels_s);
        CellReport { cell: measured.cell, kernel, ways: made.map(row).collect(), compared: Vec::new() }
    }

    fn to_text(&self) -> String {
        let cell = self.cell;
        let kernel = self.kernel.map_or(String::new(), |kernel| {
            let how = if kernel.was_alone { "alone" } else { "at the shortest" };
            let all = kernel.seconds * f64::from(cell.tenants);
            format!("; a kernel {how} takes {:.4} s, {} of them {all:.3} s", kernel.seconds, cell.tenants)
        });
        let headings = ["", "RUNS", "TOTAL", "MEAN END", "TOTAL ×", "MEAN END ×", "START", "SLOWER", "GAPS", "END"];
        let numeric: Vec<bool> = (0..headings.len()).map(|column| column > 0).collect();
        let rows = self.ways.iter().map(Row::cells).collect();
        let table = table::render(Columns::new(&headings, &numeric, rows));
        let compared = compare::to_text(&self.compared);
        format!("{cell}{kernel}\n{}\n{compared}", table.trim_end())
    }
}

impl KernelAlone {
    fn of(measured: &MeasuredCell) -> Option<KernelAlone> {
        let timelines = |way: Option<Way>| {
            let ways = measured.ways.iter().filter(move |measured| way.is_none_or(|way| measured.way == way));
            ways.flat_map(|way| &way.runs).filter_map(|run| run.timeline)
        };
        let alone: Vec<f64> = timelines(Some(Way::OneByOne)).map(|timeline| timeline.kernel_s).collect();
        match median(&alone) {
            Some(seconds) => Some(KernelAlone { seconds, was_alone: true }),
            None => {
                let shortest = timelines(None).map(|timeline| timeline.shortest_kernel_s).reduce(f64::min)?;
                Some(KernelAlone { seconds: shortest, was_alone: false })
            }
        }
    }
}

impl Row {
    fn of(way: Way, runs: &[Run], unmanaged: &[Run], kernels_s: Option<f64>) -> Row {
        let middle = |what: fn(&Run) -> f64| median(&runs.iter().map(what).collect::<Vec<_>>()).unwrap_or(f64::NAN);
        let beside = |run: &Run| unmanaged.iter().find(|plain| plain.round == run.round).copied();
        let over = |what: fn(&Run) -> f64| {
            let ratios = runs.iter().filter_map(|run| Some(what(run) / what(&beside(run)?)));
            Estimate::of(ratios).filter(|_| way != Way::Unmanaged)
        };
        Row {
            way: way.name(),
            total_s: middle(|run| run.total_s),
            mean_completion_s: middle(|run| run.mean_completion_s),
            total_over_unmanaged: over(|run| run.total_s),
            completion_over_unmanaged: over(|run| run.mean_completion_s),
            above: kernels_s.and_then(|kernels_s| Above::of(runs, kernels_s)),
            runs: runs.to_vec(),
        }
    }

    fn cells(&self) -> Vec<String> {
        let seconds = |value: f64| format!("{value:.3}");
        let runs = self.runs.len();
        let mut cells =
            vec![self.way.to_owned(), runs.to_string(), seconds(self.total_s), seconds(self.mean_completion_s)];
        cells.push(ratio(self.total_over_unmanaged, runs));
        cells.push(ratio(self.completion_over_unmanaged, runs));
        let above = self.above.map(|above| [above.start_s, above.slower_s, above.gaps_s, above.end_s].map(seconds));
        cells.extend(above.unwrap_or_default());
        cells
    }
}

impl Above {
    fn of(runs: &[Run], kernels_s: f64) -> Option<Above> {
        let timelines: Vec<_> = runs.iter().filter_map(|run| run.timeline).collect();
        let middle = |what: fn(&super::Timeline) -> f64| median(&timelines.iter().map(what).collect::<Vec<_>>());
        Some(Above {
            start_s: middle(|timeline| timeline.start_s)?,
            slower_s: middle(|timeline| timeline.busy_s)? - kernels_s,
            gaps_s: middle(|timeline| timeline.gaps_s)?,
            end_s: middle(|timeline| timeline.end_s)?,
        })
    }
}

/// Of a single run there is no interval.
fn ratio(estimate: Option<Estimate>, runs: usize) -> String {
    match estimate {
        None => String::new(),
        Some(estimate) if runs < 2 => format!("{:.3}", estimate.mean),
        Some(estimate) => format!("{:.3} ± {:.3}", estimate.mean, estimate.high - estimate.mean),
    }
}

#[cfg(test)]
mod tests {
    use berth_model::Span;
    use berth_model::settings::PolicyName;

    use super::super::timeline::Timeline;
    use super::super::way::Managed;
    use super::super::{MeasuredWay, Run};
    use super::*;

    const FIFO: Way = Way::Managed(Managed { policy: PolicyName::Fifo, alone: None });

    fn run(round: u32, total_s: f64, busy_s: f64, kernel_s: f64) -> Run {
        let timeline = Timeline {
            start_s: 1.0,
            busy_s,
            gaps_s: total_s - busy_s - 1.5,
            longest_gap_s: 0.0,
            end_s: 0.5,
            kernel_s,
            shortest_kernel_s: kernel_s,
        };
        Run { round, total_s, mean_completion_s: total_s / 2.0, timeline: Some(timeline) }
    }

    fn measured() -> Measured {
        let cell = Cell { size: 8_192, tenants: 20, host_time: Span::from_millis(0) };
        let unmanaged = vec![run(0, 10.0, 8.0, 0.8), run(1, 10.0, 8.0, 0.8), run(2, 20.0, 18.0, 1.8)];
        // In the last round it failed, or the time was over.
        let fifo = vec![run(0, 8.0, 6.0, 0.3), run(1, 9.0, 6.0, 0.3)];
        let ways = vec![
            MeasuredWay { way: Way::Unmanaged, runs: unmanaged },
            MeasuredWay { way: FIFO, runs: fifo },
            MeasuredWay { way: Way::Mps, runs: Vec::new() },
            MeasuredWay { way: Way::OneByOne, runs: vec![run(0, 12.0, 5.0, 0.25)] },
        ];
        let machine = Machine::example();
        let notes = vec!["mps is left out: no nvidia-cuda-mps-control".to_owned()];
        Measured { machine, cells: vec![MeasuredCell { cell, ways }], notes }
    }

    #[test]
    fn a_run_is_compared_with_the_unmanaged_one_of_its_round() {
        let report = Report::of(&measured());
        let fifo = report.cells[0].ways.iter().find(|row| row.way == "fifo").unwrap();
        let ratio = fifo.total_over_unmanaged.unwrap();
        assert!((ratio.mean - 0.85).abs() < 1e-9, "{ratio:?}");
        // Two rounds: t = 12.706, s = 0.0707, divided by √2.
        assert!((ratio.high - ratio.mean - 0.635).abs() < 1e-3, "{ratio:?}");
        assert_eq!(report.cells[0].ways[0].total_over_unmanaged, None, "nothing is compared with itself");
    }

    #[test]
    fn the_time_above_the_kernels_is_told_by_what_one_takes_alone() {
        let report = Report::of(&measured());
        let cell = &report.cells[0];
        assert_eq!(cell.kernel, Some(KernelAlone { seconds: 0.25, was_alone: true }));
        let above = |way: &str| cell.ways.iter().find(|row| row.way == way).unwrap().above.unwrap();
        assert_eq!((above("fifo").slower_s, above("unmanaged").slower_s), (1.0, 3.0));
        assert_eq!(above("one-by-one").slower_s, 0.0);
    }

    #[test]
    fn the_tables_fit_a_hundred_columns() {
        let text = Report::of(&measured()).to_text();
        assert!(text.lines().all(|line| crate::columns::width(line) <= 100), "{text}");
        assert!(text.contains("mps is left out"), "{text}");
        insta::assert_snapshot!(text);
    }
}
