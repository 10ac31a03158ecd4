//! What `berth bench launch` found, as JSON and as a table.

use std::fmt::Write as _;

use serde::Serialize;

use super::torch::Training;
use super::{Cost, Costs, Plan, Way};
use crate::bench::contention::goals::{self, Goal};
use crate::bench::contention::report::grid;
use crate::bench::machine::Machine;
use crate::bench::quantiles::{Quantiles, median};

/// What a launch may cost more while nobody else is there.
const MOST_MORE_NS: f64 = 200.0;
/// What a training may lose.
const LEAST_RATE: f64 = 0.99;

#[derive(Debug, Clone, Serialize)]
pub struct Report {
    pub berth: String,
    pub machine: Machine,
    pub rounds: u32,
    pub batches_per_round: u32,
    pub launches_per_batch: u32,
    pub ways: Vec<Row>,
    pub training: Option<Training>,
    pub goals: Vec<Goal>,
    pub notes: Vec<String>,
}

/// Nanoseconds of the thread that launches.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    pub way: Way,
    pub ns_per_launch: Option<Quantiles>,
    /// The median of the rounds.
    pub more_than_bare_ns: Option<f64>,
    /// Of each round the median of what each batch took more than the bare one of its turn.
    pub rounds_more_than_bare_ns: Vec<f64>,
    /// The same beside launches of the same process past the library.
    pub more_than_past_ns: Option<f64>,
    pub rounds_more_than_past_ns: Vec<f64>,
}

impl Report {
    pub fn of(
        machine: Machine,
        plan: &Plan,
        costs: Vec<Costs>,
        training: Option<Training>,
        notes: Vec<String>,
    ) -> Self {
        let ways = rows(&costs);
        let goals = judge(&ways, training.as_ref());
        Self {
            berth: env!("CARGO_PKG_VERSION").to_owned(),
            machine,
            rounds: plan.rounds,
            batches_per_round: plan.batches,
            launches_per_batch: plan.launches,
            ways,
            training,
            goals,
            notes,
        }
    }

    pub fn to_text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "{}", self.machine.to_text())?;
        let (rounds, batches, launches) = (self.rounds, self.batches_per_round, self.launches_per_batch);
        writeln!(out, "{rounds} rounds of {batches} batches of {launches} launches each way, in turn\n")?;
        let ns = |value: Option<f64>| value.map_or("?".to_owned(), |value| format!("{value:.0}"));
        let rows = self.ways.iter().map(|row| {
            let found = row.ns_per_launch;
            let quantiles = [found.map(|found| found.p50), found.map(|found| found.p99)].map(ns);
            let more = |more: Option<f64>, rounds: &[f64]| {
                let more = more.map_or("?".to_owned(), |more| format!("{more:+.0}"));
                let least = rounds.iter().copied().reduce(f64::min);
                let most = rounds.iter().copied().reduce(f64::max);
                let spread = least.zip(most).map(|(least, most)| format!(" ({least:+.0} to {most:+.0})"));
                more + &spread.unwrap_or_default()
            };
            let past = more(row.more_than_past_ns, &row.rounds_more_than_past_ns);
            let bare = more(row.more_than_bare_ns, &row.rounds_more_than_bare_ns);
            [row.way.name().to_owned()].into_iter().chain(quantiles).chain([past, bare]).collect()
        });
        writeln!(out, "{}", grid(&["ns per launch", "MEDIAN", "p99", "THAN PAST IT", "THAN BARE"], rows.collect()))?;
        if let Some(training) = &self.training {
            write_training(out, training)?;
        }
        self.notes.iter().try_for_each(|note| writeln!(out, "{note}"))?;
        goals::write(&self.goals, out)
    }
}

fn write_training(out: &mut String, training: &Training) -> std::fmt::Result {
    let list = |values: &[f64]| values.iter().map(|value| format!("{value:.3}")).collect::<Vec<_>>().join(", ");
    let (bare, attached) = (list(&training.bare_per_s), list(&training.attached_per_s));
    writeln!(out, "a training alone: {bare} steps/s bare, {attached} attached")?;
    for results in &training.results {
        let (way, found) = (results.way.name(), &results.found);
        writeln!(out, "{} steps, {way}: loss {}, sha256 {}", found.steps, found.last_loss, found.sha256)?;
    }
    writeln!(out)
}

fn rows(costs: &[Costs]) -> Vec<Row> {
    let bare = costs.iter().find(|costs| costs.way == Way::Bare).map_or(&[][..], |bare| &bare.rounds);
    let more = |own: &[Cost], bare: &[Cost]| {
        median(&own.iter().zip(bare).map(|(own, bare)| own.ns - bare.ns).collect::<Vec<_>>())
    };
    let more_than_past =
        |own: &Vec<Cost>| median(&own.iter().filter_map(|own| Some(own.ns - own.past_ns?)).collect::<Vec<_>>());
    let row = |costs: &Costs| {
        let rounds: Vec<f64> = costs.rounds.iter().zip(bare).filter_map(|(own, bare)| more(own, bare)).collect();
        let past: Vec<f64> = costs.rounds.iter().filter_map(more_than_past).collect();
        Row {
            way: costs.way,
            ns_per_launch: Quantiles::of(&costs.rounds.concat().iter().map(|cost| cost.ns).collect::<Vec<_>>()),
            more_than_bare_ns: median(&rounds),
            rounds_more_than_bare_ns: rounds,
            more_than_past_ns: median(&past),
            rounds_more_than_past_ns: past,
        }
    };
    costs.iter().map(row).collect()
}

fn judge(ways: &[Row], training: Option<&Training>) -> Vec<Goal> {
    let uncontended = || ways.iter().filter(|row| row.way.is_uncontended());
    let goal = |row: &Row, beside: &str, more: Option<f64>| {
        let more = more?;
        let name = format!("a launch, {}, beside one {beside}", row.way.name());
        Some(Goal::new(&name, "at most 200 ns more", format!("{more:+.0} ns")).judged(more <= MOST_MORE_NS))
    };
    let past = uncontended().filter_map(|row| goal(row, "past the library", row.more_than_past_ns));
    let bare = uncontended().filter_map(|row| goal(row, "of a bare process", row.more_than_bare_ns));
    let launches = past.chain(bare);
    let rate = training.and_then(Training::over_bare).map(|over| {
        let reached = format!("{:.2} %", over * 100.0);
        Goal::new("a training's rate with the library", "at least 99 % of bare", reached).judged(over >= LEAST_RATE)
    });
    let same = training.map(|training| {
        let reached = match (training.was_proven(), training.is_same()) {
            (false, _) => "the library was not at work",
            (true, true) => "the same",
            (true, false) => "different",
        };
        Goal::new("its results after a hundred steps", "the same", reached.to_owned())
            .judged(training.was_proven() && training.is_same())
    });
    launches.chain(rate).chain(same).collect()
}

#[cfg(test)]
mod tests {
    use super::super::host::Counted;
    use super::super::torch::{Found, Results};
    use super::*;
    use crate::bench::report::Verdict;

    /// Of which a launch past the library costs 1,900.
    fn cost(ns: f64) -> Cost {
        Cost { ns, past_ns: Some(1_900.0) }
    }

    fn costs(way: Way, ns_per_launch: &[f64]) -> Costs {
        Costs { way, rounds: vec![ns_per_launch.iter().map(|ns| cost(*ns)).collect()] }
    }

    fn results(way: Way, sha256: &str, stops: u64) -> Results {
        let found = Found { steps: 100, last_loss: 6.5, sha256: sha256.to_owned() };
        let launches = if way == Way::Bare { 0 } else { 1_000 };
        Results { way, found, counted: Counted { launches, stops } }
    }

    fn training(attached: f64, sums: [&str; 2]) -> Training {
        let results = vec![results(Way::Bare, sums[0], 0), results(Way::Yields, sums[1], 10)];
        Training { bare_per_s: vec![26.0], attached_per_s: vec![attached], results }
    }

    #[test]
    fn what_is_more_is_by_turns_so_that_drift_cancels() {
        let rows =
            rows(&[costs(Way::Bare, &[2_000.0, 3_000.0, 4_000.0]), costs(Way::Attached, &[2_100.0, 3_150.0, 4_050.0])]);
        assert_eq!(rows[1].more_than_bare_ns, Some(100.0));
        assert_eq!(rows[1].ns_per_launch.unwrap().p50, 3_150.0);
    }

    #[test]
    fn what_one_process_differs_from_the_next_by_is_taken_out_by_rounds() {
        let rounds = |way, rounds: [f64; 3]| Costs { way, rounds: rounds.map(|ns| vec![cost(ns); 4]).to_vec() };
        let rows =
            rows(&[rounds(Way::Bare, [2_000.0, 2_000.0, 2_900.0]), rounds(Way::Attached, [2_800.0, 2_100.0, 3_000.0])]);
        assert_eq!(rows[1].rounds_more_than_bare_ns, [800.0, 100.0, 100.0]);
        assert_eq!(rows[1].more_than_bare_ns, Some(100.0));
    }

    #[test]
    fn what_a_process_costs_itself_is_by_its_own_launches_past_the_library() {
        let slow = Costs { way: Way::Attached, rounds: vec![vec![Cost { ns: 4_000.0, past_ns: Some(3_880.0) }; 3]] };
        let rows = rows(&[costs(Way::Bare, &[2_000.0; 3]), slow]);
        assert_eq!((rows[1].more_than_past_ns, rows[1].more_than_bare_ns), (Some(120.0), Some(2_000.0)));
    }

    #[test]
    fn only_what_is_uncontended_is_judged() {
        let all =
            Way::ALL.map(|way| costs(way, &[if matches!(way, Way::Bare | Way::BareToo) { 2_000.0 } else { 2_300.0 }]));
        let judged = judge(&rows(&all), None);
        let verdicts: Vec<_> = judged.iter().map(|goal| (goal.name.as_str(), goal.verdict)).collect();
        let names = ["loaded, beside one past the library", "attached, beside one past the library"];
        let beside = ["loaded, beside one of a bare process", "attached, beside one of a bare process"];
        let expected: Vec<String> = names.iter().chain(&beside).map(|name| format!("a launch, {name}")).collect();
        assert_eq!(verdicts, expected.iter().map(|name| (name.as_str(), Verdict::NotMet)).collect::<Vec<_>>());
        let all = Way::ALL.map(|way| costs(way, &[2_000.0]));
        assert!(judge(&rows(&all), None).iter().all(|goal| goal.verdict == Verdict::Met));
    }

    #[test]
    fn a_training_that_is_slower_or_computes_something_else_is_told() {
        let verdicts = |training| judge(&[], Some(&training)).iter().map(|goal| goal.verdict).collect::<Vec<_>>();
        assert_eq!(verdicts(training(25.9, ["a", "a"])), [Verdict::Met, Verdict::Met]);
        assert_eq!(verdicts(training(25.0, ["a", "a"])), [Verdict::NotMet, Verdict::Met]);
        assert_eq!(verdicts(training(25.9, ["a", "b"])), [Verdict::Met, Verdict::NotMet]);
        let never_stopped = vec![results(Way::Bare, "a", 0), results(Way::Yields, "a", 0)];
        let training = Training { results: never_stopped, ..training(25.9, ["a", "a"]) };
        assert_eq!(verdicts(training), [Verdict::Met, Verdict::NotMet], "nothing is proven without a stop");
    }
}
