//! The report as tables, a hundred columns wide at most.

use std::fmt::Write as _;

use berth_model::Bytes;

use super::report::{Container, Difference, Judging, PUBLISHED, Published, Report, Workload};
use super::task::Errors;
use crate::bench::daemon::Memory;
use crate::bench::quantiles::Spread;
use crate::bench::report::write_goals;
use crate::columns::Columns;
use crate::table;

impl Report {
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let Workload { containers, tasks_each, products_per_task, matrix_size, .. } = self.workload;
        writeln!(out, "{}", self.machine.to_text())?;
        if let Some(errors) = &self.errors {
            writeln!(
                out,
                "{containers} containers, {tasks_each} tasks each at random times, {products_per_task} × {matrix_size}² per task\n"
            )?;
            writeln!(out, "Seen from outside minus timers inside, in seconds, as in Table 2\n{}", summary(errors))?;
            writeln!(
                out,
                "By container: mean error in ms and the farthest from 0; deadlines, by berth and by the timers\n{}",
                self.by_container()
            )?;
        }
        if let Some(judging) = &self.judging {
            judging.write(out)?;
        }
        if !self.cost.is_empty() {
            writeln!(out, "\nWhat the monitor costs, by the number of containers\n{}", self.by_count())?;
            writeln!(
                out,
                "CPU: % of one core. TOLD: a start or end, to who follows events. ASKED: one look, without a daemon"
            )?;
        }
        write_goals(out, &self.goals)
    }

    fn by_container(&self) -> String {
        let rows = self.containers.iter().enumerate().map(|(index, container)| {
            let Container { errors, by_berth, by_timers, .. } = container;
            let mut cells = vec![(index + 1).to_string(), container.deadline.to_string()];
            for spread in [errors.start_ms, errors.end_ms, errors.run_ms] {
                cells.extend([millis(spread.map(|spread| spread.mean)), millis(spread.map(farthest))]);
            }
            cells.extend([by_berth, by_timers].map(|tally| format!("{} / {}", tally.hits, tally.misses)));
            cells
        });
        let headings = ["#", "DEADLINE", "START", "WORST", "END", "WORST", "RUN", "WORST", "MET / MISSED", "BY TIMERS"];
        table::render(Columns::new(&headings, &[true; 10], rows.collect()))
    }

    fn by_count(&self) -> String {
        let find = |containers: u32, watched: bool| {
            self.cost.iter().find(|point| point.containers == containers && point.watched == watched)
        };
        let rows = self.cost.iter().filter(|point| point.watched).map(|point| {
            let unwatched = find(point.containers, false);
            let memory = |of: fn(Memory) -> Bytes| point.memory.map_or_else(unknown, |memory| of(memory).to_string());
            vec![
                point.containers.to_string(),
                point.cpu_pct.map_or_else(unknown, |pct| format!("{pct:.2}")),
                memory(|memory| memory.resident_bytes),
                memory(|memory| memory.proportional_bytes),
                p50_max(point.told_after_ms),
                unwatched.map_or_else(unknown, |point| p50_max(point.asked_ms)),
                format!("{:.0}", point.host_cpu_pct),
                unwatched.map_or_else(unknown, |point| format!("{:.0}", point.host_cpu_pct)),
            ]
        });
        let headings =
            ["COUNT", "CPU %", "RSS", "PSS", "TOLD ms p50 / max", "ASKED ms p50 / max", "HOST %", "UNWATCHED"];
        table::render(Columns::new(&headings, &[true; 8], rows.collect()))
    }
}

impl Judging {
    fn write(&self, out: &mut String) -> std::fmt::Result {
        writeln!(
            out,
            "Verdicts: {} of {} are the timers'; {} differ by the error of the run time, {} beyond it, {} are missing",
            self.agree, self.tasks, self.within_error, self.disagree, self.not_judged
        )?;
        for difference in &self.differences {
            let Difference { container, task, verdict, float_s, true_float_s, .. } = difference;
            let float = float_s.map_or_else(unknown, |float| format!("{float:+.6}"));
            writeln!(
                out,
                "  {container}, task {task}: {} with {float} s left, by its timers {true_float_s:+.6} s",
                verdict.as_str()
            )?;
        }
        Ok(())
    }
}

/// The published table, with berth beside it.
fn summary(errors: &Errors) -> String {
    let rows = PUBLISHED.iter().zip([errors.start_ms, errors.end_ms, errors.run_ms]).map(|(published, spread)| {
        let Published { what, mean_s, min_s, max_s } = published;
        let seconds = |value: Option<f64>| value.map_or_else(unknown, |ms| format!("{:+.5}", ms / 1e3));
        vec![
            (*what).to_owned(),
            seconds(spread.map(|spread| spread.mean)),
            seconds(spread.map(|spread| spread.min)),
            seconds(spread.map(|spread| spread.quantiles.p50)),
            seconds(spread.filter(|spread| spread.quantiles.has_p99()).map(|spread| spread.quantiles.p99)),
            seconds(spread.map(|spread| spread.quantiles.max)),
            format!("{mean_s:+.2} ({min_s:+.2} to {max_s:+.2})"),
        ]
    });
    let headings = ["", "MEAN", "MIN", "P50", "P99", "MAX", "PUBLISHED"];
    let numeric = [false, true, true, true, true, true, true];
    table::render(Columns::new(&headings, &numeric, rows.collect()))
}

/// With its sign.
fn farthest(spread: Spread) -> f64 {
    if spread.min.abs() > spread.quantiles.max.abs() { spread.min } else { spread.quantiles.max }
}

fn millis(value: Option<f64>) -> String {
    value.map_or_else(unknown, |ms| format!("{ms:+.3}"))
}

fn p50_max(spread: Option<Spread>) -> String {
    spread.map_or_else(unknown, |Spread { quantiles, .. }| format!("{:.2} / {:.2}", quantiles.p50, quantiles.max))
}

fn unknown() -> String {
    "-".to_owned()
}

#[cfg(test)]
mod tests {
    use berth_model::deadline::Verdict;

    use crate::bench::deadline::report::tests::{report, task};

    #[test]
    fn the_tables_fit_a_hundred_columns_and_name_verdicts_that_differ() {
        let tasks = vec![
            task(1.0, Verdict::Hit, 0.25),
            task(0.001, Verdict::Miss, 1.5),
            task(-0.5, Verdict::Hit, 0.1),
            task(-0.5, Verdict::Miss, 0.1),
        ];
        let text = report(tasks).to_text();
        let longest = text.lines().map(|line| line.chars().count()).max();
        assert!(longest <= Some(100), "{longest:?}: {text}");
        insta::assert_snapshot!(text);
    }
}
