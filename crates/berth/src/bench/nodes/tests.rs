//! That it measures what it says, on few nodes.

use super::*;

fn report() -> Report {
    run(&Plan { sizes: vec![300, 100], turns: 50, seed: 1 }, &|_| {}).unwrap()
}

#[test]
fn every_size_is_measured_with_each_strategy() {
    let report = report();
    let cells: Vec<_> = report.cells.iter().map(|cell| (cell.nodes, report::name(cell.strategy))).collect();
    assert_eq!(cells, [(100, "paper"), (100, "fit"), (300, "paper"), (300, "fit")]);
    for cell in &report.cells {
        assert!(cell.chosen_pct > 90.0, "most of what is drawn fits somewhere: {cell:?}");
        assert!(cell.built_ms > 0.0 && cell.applied_ns.p50 > 0.0 && cell.choice_us.p50 > 0.0);
    }
    assert!(report.goals.is_empty(), "they are for more nodes");
}

#[test]
fn what_is_drawn_to_fit_nowhere_does_not() {
    for cell in report().cells {
        assert_eq!(cell.no_memory_us.map(|times| times.n), Some(50), "{cell:?}");
        assert_eq!(cell.no_time_us.map(|times| times.n), Some(50), "{cell:?}");
    }
}

#[test]
fn a_frame_holds_the_records_and_is_smaller_than_json() {
    let wire = report().wire;
    assert_eq!(wire.record_bytes, 16);
    assert!(wire.frame_bytes.p50 > 2.0 * 16.0 && wire.frame_bytes.max < wire.json_bytes.p50, "{wire:?}");
}

#[test]
fn the_text_has_a_row_for_each_and_says_what_is_published() {
    let text = report().to_text();
    assert_eq!(text.matches("paper").count(), 4, "{text}");
    assert!(text.contains("Fig. 11") && text.contains("300 nodes asked once a second"), "{text}");
}
