//! What `berth bench deadline` found, as JSON and as tables.

use std::fmt::Write as _;

use berth_model::deadline::{Deadline, Tally, Verdict};
use serde::Serialize;

use super::Plan;
use super::cost::{Point, Sample};
use super::task::{Agreement, Errors, Task};
use crate::bench::machine::Machine;
use crate::bench::quantiles::{Quantiles, Spread};
use crate::bench::report::{Goal, cpu_goal, error_goal, write_goals};
use crate::columns::Columns;
use crate::table;

/// What the publication has in its Table 2, in seconds: how much later than timers inside the tasks its monitor, which polls, was.
pub const PUBLISHED: [Published; 3] = [
    Published { what: "start", mean_s: 0.22, min_s: 0.18, max_s: 0.25 },
    Published { what: "end", mean_s: 0.21, min_s: 0.18, max_s: 0.24 },
    Published { what: "run time", mean_s: 0.22, min_s: 0.17, max_s: 0.24 },
];

/// Everything that was measured.
#[derive(Debug, Clone)]
pub struct Measured {
    pub machine: Machine,
    pub workload: Workload,
    pub containers: Vec<Container>,
    pub cost: Vec<Point>,
    pub samples: Vec<Sample>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Report {
    pub berth: String,
    pub machine: Machine,
    pub workload: Workload,
    pub published: [Published; 3],
    /// Of all containers' tasks; `None` where they were not measured.
    pub errors: Option<Errors>,
    pub judging: Option<Judging>,
    pub containers: Vec<Container>,
    /// By the number of containers, not watched and then watched.
    pub cost: Vec<Point>,
    /// The daemon while containers came.
    pub over_time: Vec<Sample>,
    pub goals: Vec<Goal>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Workload {
    pub containers: u32,
    pub processes_each: u32,
    pub tasks_each: u32,
    pub products_per_task: u32,
    pub matrix_size: u32,
}

/// One line of the published table.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Published {
    pub what: &'static str,
    pub mean_s: f64,
    pub min_s: f64,
    pub max_s: f64,
}

/// One container and its tasks.
#[derive(Debug, Clone, Serialize)]
pub struct Container {
    pub name: String,
    pub deadline: Deadline,
    pub errors: Errors,
    pub by_berth: Tally,
    pub by_timers: Tally,
    pub tasks: Vec<Task>,
}

/// berth's verdicts against those of the timers.
#[derive(Debug, Clone, Serialize)]
pub struct Judging {
    pub tasks: usize,
    pub agree: usize,
    /// Verdicts that differ where the task ended no farther from its deadline than `error_ms`.
    pub within_error: usize,
    pub disagree: usize,
    pub not_judged: usize,
    /// By how much the worst run time was wrong.
    pub error_ms: f64,
    /// Those that differ, and why that is or is not excused.
    pub differences: Vec<Difference>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Difference {
    pub container: String,
    /// Counted from 1 within the container.
    pub task: usize,
    pub agreement: Agreement,
    pub verdict: Verdict,
    /// What was left by berth, and by the timers.
    pub float_s: Option<f64>,
    pub true_float_s: f64,
}

impl Measured {
    pub fn new(machine: Machine, plan: &Plan) -> Self {
        let workload = Workload {
            containers: plan.containers,
            processes_each: plan.rounds,
            tasks_each: 2 * plan.rounds,
            products_per_task: plan.repeats,
            matrix_size: plan.size,
        };
        Self { machine, workload, containers: Vec::new(), cost: Vec::new(), samples: Vec::new() }
    }
}

impl Container {
    pub fn of(name: &str, deadline: Deadline, tasks: Vec<Task>) -> Self {
        let (mut by_berth, mut by_timers) = (Tally::default(), Tally::default());
        for task in &tasks {
            by_timers.add(task.verdict());
            if let Some(judged) = task.judged {
                by_berth.add(judged.verdict);
            }
        }
        Self { name: name.to_owned(), deadline, errors: Errors::of(tasks.iter()), by_berth, by_timers, tasks }
    }
}

impl Judging {
    /// `errors`: of all the containers.
    fn of(containers: &[Container], errors: &Errors) -> Self {
        let error_ms = errors.run_ms.map_or(0.0, |run| run.quantiles.max.abs().max(run.min.abs()));
        let mut judging =
            Self { tasks: 0, agree: 0, within_error: 0, disagree: 0, not_judged: 0, error_ms, differences: Vec::new() };
        for container in containers {
            for (index, task) in container.tasks.iter().enumerate() {
                judging.add(container, index + 1, task);
            }
        }
        judging
    }

    fn add(&mut self, container: &Container, number: usize, task: &Task) {
        let agreement = task.agreement(self.error_ms);
        self.tasks += 1;
        match agreement {
            Agreement::Agrees => self.agree += 1,
            Agreement::WithinError => self.within_error += 1,
            Agreement::Disagrees => self.disagree += 1,
            Agreement::NotJudged => self.not_judged += 1,
        }
        let differs = task.judged.filter(|_| agreement != Agreement::Agrees);
        self.differences.extend(differs.map(|judged| Difference {
            container: container.name.clone(),
            task: number,
            agreement,
            verdict: judged.verdict,
            float_s: judged.float_s,
            true_float_s: task.float_s,
        }));
    }

    /// A verdict that is missing is as wrong as one that differs.
    fn goal(&self) -> Goal {
        let wrong = self.disagree + self.not_judged;
        let excused =
            if self.within_error > 0 { format!(", {} by the error", self.within_error) } else { String::new() };
        Goal::new("verdicts that are not the timers'", "0".into(), format!("{wrong} of {}{excused}", self.tasks))
            .judged(wrong == 0)
    }
}

impl Report {
    pub fn of(measured: Measured) -> Self {
        let Measured { machine, workload, containers, cost, samples } = measured;
        let errors =
            (!containers.is_empty()).then(|| Errors::of(containers.iter().flat_map(|container| &container.tasks)));
        let judging = errors.as_ref().map(|errors| Judging::of(&containers, errors));
        let mut goals = errors.as_ref().map(|errors| error_goals(errors, &containers)).unwrap_or_default();
        goals.extend(judging.as_ref().map(Judging::goal));
        let last = cost.iter().filter(|point| point.watched).max_by_key(|point| point.containers);
        goals.extend(
            last.and_then(|point| Some(cpu_goal("monitor at the most containers, of one core", point.cpu_pct?))),
        );
        Self {
            berth: env!("CARGO_PKG_VERSION").to_owned(),
            machine,
            workload,
            published: PUBLISHED,
            errors,
            judging,
            containers,
            cost,
            over_time: samples,
            goals,
        }
    }

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
                "By container: errors in ms (mean, and farthest from 0), and deadlines as berth and the timers have them\n{}",
                self.by_container()
            )?;
        }
        if let Some(judging) = &self.judging {
            judging.write(out)?;
        }
        if !self.cost.is_empty() {
            writeln!(out, "What the monitor costs, by the number of containers\n{}", self.by_count())?;
            writeln!(
                out,
                "CPU in percent of one core; TOLD: a start or an end to whoever follows events; ASKED: one look from nothing"
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
            let memory = |of: fn(&crate::bench::daemon::Memory) -> berth_model::Bytes| {
                point.memory.as_ref().map_or_else(unknown, |memory| of(memory).to_string())
            };
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
        let headings = [
            "CONTAINERS",
            "CPU %",
            "RSS",
            "PSS",
            "TOLD ms p50 / max",
            "ASKED ms p50 / max",
            "HOST CPU %",
            "NOT WATCHED",
        ];
        table::render(Columns::new(&headings, &[true; 8], rows.collect()))
    }
}

impl Judging {
    fn write(&self, out: &mut String) -> std::fmt::Result {
        writeln!(
            out,
            "Verdicts: {} of {} are the timers', {} differ within {:.3} ms of the deadline, {} differ, {} are missing",
            self.agree, self.tasks, self.within_error, self.error_ms, self.disagree, self.not_judged
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
        writeln!(out)
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

/// Early is as wrong as late.
fn error_goals(errors: &Errors, containers: &[Container]) -> Vec<Goal> {
    let tasks = || containers.iter().flat_map(|container| &container.tasks);
    let goal = |name, error: fn(&Task) -> Option<f64>| {
        let abs: Vec<f64> = tasks().filter_map(error).map(f64::abs).collect();
        error_goal(name, Quantiles::of(&abs), errors.missed)
    };
    vec![
        goal("start of a task, |error| p99", |task| Some(task.start?.error_ms)),
        goal("end of a task, |error| p99", |task| Some(task.end?.error_ms)),
        goal("run time of a task, |error| p99", |task| task.run_error_ms),
    ]
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
