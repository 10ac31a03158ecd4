//! What `berth bench deadline` found, as JSON; and whether that is what was hoped for.

use berth_model::deadline::{Deadline, Tally, Verdict};
use serde::Serialize;

use super::Plan;
use super::cost::{Point, Sample};
use super::task::{Agreement, Errors, Task};
use crate::bench::machine::Machine;
use crate::bench::quantiles::Quantiles;
use crate::bench::report::{Goal, cpu_goal, error_goal};

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
#[derive(Debug, Clone, Default, Serialize)]
pub struct Judging {
    pub tasks: usize,
    pub agree: usize,
    /// Verdicts that differ because the deadline lies between the run time as it was seen and the true one.
    pub within_error: usize,
    pub disagree: usize,
    pub not_judged: usize,
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
    fn of(containers: &[Container]) -> Self {
        let mut judging = Self::default();
        for container in containers {
            for (index, task) in container.tasks.iter().enumerate() {
                judging.add(container, index + 1, task);
            }
        }
        judging
    }

    fn add(&mut self, container: &Container, number: usize, task: &Task) {
        let agreement = task.agreement();
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
        let judging = errors.as_ref().map(|_| Judging::of(&containers));
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

#[cfg(test)]
pub mod tests {
    use berth_model::Bytes;

    use super::*;
    use crate::bench::daemon::Memory;
    use crate::bench::deadline::task::{EndedBy, Seen};
    use crate::bench::quantiles::Spread;
    use crate::bench::report::Verdict as Reached;
    use crate::bench::seen::Judged;

    fn deadline() -> Deadline {
        "2500ms".parse().unwrap()
    }

    pub fn task(float_s: f64, verdict: Verdict, error_ms: f64) -> Task {
        let seen = |error_ms| Some(Seen { error_ms, told_after_ms: 1.5 });
        let float_by_berth_s = float_s - error_ms / 1e3;
        let judged = Some(Judged { deadline: deadline(), verdict, float_s: Some(float_by_berth_s) });
        let run_s = 2.5 - float_s;
        let (start, end, run_error_ms) = (seen(0.0), seen(error_ms), Some(error_ms));
        Task { ended_by: EndedBy::Exited, run_s, float_s, start, end, run_error_ms, judged }
    }

    fn point(watched: bool) -> Point {
        let spread = Spread::of(&[1.0, 2.5]);
        let memory = Memory { resident_bytes: Bytes(33 << 20), proportional_bytes: Bytes(9 << 20) };
        Point {
            containers: 10,
            watched,
            cpu_pct: watched.then_some(1.25),
            memory: watched.then_some(memory),
            host_cpu_pct: 70.0,
            told_after_ms: spread.filter(|_| watched),
            asked_ms: spread.filter(|_| !watched),
        }
    }

    pub fn report(tasks: Vec<Task>) -> Report {
        let workload =
            Workload { containers: 10, processes_each: 1, tasks_each: 2, products_per_task: 1, matrix_size: 5_120 };
        let containers = vec![Container::of("berth-deadline-t11", deadline(), tasks)];
        let cost = vec![point(false), point(true)];
        Report::of(Measured { machine: Machine::example(), workload, containers, cost, samples: Vec::new() })
    }

    #[test]
    fn only_the_error_excuses_a_verdict_that_differs() {
        let reached = |tasks| report(tasks).judging.unwrap().goal().verdict;
        assert_eq!(reached(vec![task(0.001, Verdict::Miss, 1.5)]), Reached::Met);
        assert_eq!(reached(vec![task(0.002, Verdict::Miss, 1.5)]), Reached::NotMet);
        assert_eq!(reached(vec![Task { judged: None, ..task(1.0, Verdict::Hit, 0.0) }]), Reached::NotMet);
    }

    #[test]
    fn a_task_that_was_not_seen_is_no_small_error() {
        let unseen = Task { run_error_ms: None, end: None, ..task(1.0, Verdict::Hit, 0.0) };
        let report = report(vec![task(1.0, Verdict::Hit, 0.0), unseen]);
        assert!(report.goals[..3].iter().all(|goal| goal.verdict == Reached::NotMet), "{:?}", report.goals);
    }
}
