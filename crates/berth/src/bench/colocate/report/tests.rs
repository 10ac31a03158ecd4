use super::super::MeasuredPair;
use super::*;
use crate::bench::colocate::mode::Mps;

const DEEDS: Deeds = Deeds { stops: 7, stops_given_up: 0, preempted: 2, leads_lost: 1 };

fn served(p99_ms: f64) -> Served {
    Served {
        rate: 200.0,
        from_ns: 0,
        to_ns: 1,
        requests: 1_000,
        given_up: 0,
        mean_ms: 1.0,
        p50_ms: 1.0,
        p90_ms: 1.0,
        p99_ms,
        max_ms: p99_ms,
        first_ms: None,
        queued_ms: None,
    }
}

fn window(p99_ms: f64, trainer_per_s: Option<f64>) -> Window {
    Window { load: Load::Medium, round: 1, served: served(p99_ms), trainer_per_s }
}

fn berth() -> Mode {
    "berth-slo".parse().unwrap()
}

fn report(together: Vec<(Mode, Vec<Window>)>) -> Report {
    let alone = |p99, steps| Alone { windows: vec![window(p99, None)], service_ms: 1.3, trainer_per_s: Some(steps) };
    let together = together
        .into_iter()
        .map(|(mode, windows)| Together { mode, with: String::new(), windows, deeds: Some(DEEDS) })
        .collect();
    let pair = MeasuredPair { pair: Pair::TorchResnet, alone: vec![alone(2.0, 20.0), alone(2.2, 22.0)], together };
    Report::of(&Measured {
        machine: Machine::example(),
        seconds: 5,
        kernels: KernelSettings::default(),
        loads: Load::ALL.to_vec(),
        pairs: vec![pair],
        notes: vec!["mps-half is left out: no reason".to_owned()],
    })
}

fn only_row(together: (Mode, Window)) -> Row {
    report(vec![(together.0, vec![together.1])]).pairs[0].loads[0].rows[0].clone()
}

#[test]
fn ratios_are_to_the_mean_of_alone_before_and_after() {
    let row = only_row((Mode::TimeSlicing, window(21.0, Some(15.75))));
    assert_eq!((row.p99_over_alone, row.trainer_over_alone), (Some(10.0), Some(0.75)));
}

#[test]
fn only_berth_is_judged_and_only_by_both_figures() {
    assert_eq!(only_row((Mode::Mps(Mps::Plain), window(2.1, Some(21.0)))).verdict, None);
    assert_eq!(only_row((berth(), window(2.2, Some(15.0)))).verdict, Some(Verdict::Met));
    assert_eq!(only_row((berth(), window(2.4, Some(15.0)))).verdict, Some(Verdict::NotMet));
    assert_eq!(only_row((berth(), window(2.2, Some(14.0)))).verdict, Some(Verdict::NotMet));
    assert_eq!(only_row((berth(), window(2.2, None))).verdict, Some(Verdict::NotShown));
}

#[test]
fn of_several_rounds_the_median_counts_and_all_are_shown() {
    let rounds = vec![window(2.1, Some(14.7)), window(4.2, Some(15.75)), window(2.31, Some(16.8))];
    let report = report(vec![(berth(), rounds)]);
    let row = &report.pairs[0].loads[0].rows[0];
    assert_eq!((row.rounds.len(), row.deeds, row.verdict), (3, Some(DEEDS), Some(Verdict::Met)), "{row:?}");
    assert_eq!((row.p99_over_alone, row.trainer_over_alone), (Some(1.1), Some(0.75)));
    assert!(report.to_text().contains("×1.10 (×1.00–×2.00)"), "{}", report.to_text());
    assert!(
        report.to_text().contains("berth-slo: 7 waits, 2 preemptions, the lead lost 1 times"),
        "{}",
        report.to_text()
    );
}

#[test]
fn of_two_rounds_neither_counts_alone() {
    let report = report(vec![(berth(), vec![window(2.1, Some(14.7)), window(4.2, Some(16.8))])]);
    assert_eq!(report.pairs[0].loads[0].rows[0].p99_over_alone, Some(1.5));
}

#[test]
fn the_ceiling_is_what_the_server_leaves() {
    let report = report(Vec::new());
    let ceiling = report.pairs[0].loads[0].trainer_ceiling.unwrap();
    assert!((ceiling - 0.74).abs() < 1e-9, "{ceiling}");
}

#[test]
fn the_table_has_both_runs_alone_every_mode_the_goal_and_what_was_left_out() {
    let text =
        report(vec![(Mode::TimeSlicing, vec![window(20.8, Some(18.0))]), (berth(), vec![window(2.2, Some(15.0))])])
            .to_text();
    for expected in ["×9.90", "×1.05", "86 %", "71 %", "74 %", "met", "at most ×1.10", "at least 70 %", "left out"] {
        assert!(text.contains(expected), "{expected} is missing:\n{text}");
    }
    assert_eq!(text.matches(" alone  ").count(), 2, "{text}");
    assert!(text.lines().all(|line| crate::columns::width(line) <= 110), "{text}");
}
