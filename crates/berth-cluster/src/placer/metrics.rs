//! What the placer counts, as a Prometheus page.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Placer;

#[derive(Debug, Default)]
pub struct Counters {
    reports: AtomicU64,
    no_reports: AtomicU64,
    reserved: AtomicU64,
    refused: AtomicU64,
    moved: AtomicU64,
}

impl Counters {
    pub fn asked(&self, is_answered: bool) {
        let counter = if is_answered { &self.reports } else { &self.no_reports };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub fn reserved(&self, is_placed: bool) {
        let counter = if is_placed { &self.reserved } else { &self.refused };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub fn moved(&self) {
        self.moved.fetch_add(1, Ordering::Relaxed);
    }
}

impl Placer {
    pub(crate) fn metrics(&self) -> String {
        let (placeable, refusals) = self.book().standing(self.now());
        let reservations = self.book().reservations();
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counters { reports, no_reports, reserved, refused, moved } = &self.counters;
        let mut page = String::new();
        let mut family = |name: &str, kind: &str, help: &str, series: &[(String, u64)]| {
            // Writing to a string cannot fail.
            let _ = writeln!(page, "# HELP {name} {help}\n# TYPE {name} {kind}");
            for (labels, value) in series {
                let _ = writeln!(page, "{name}{labels} {value}");
            }
        };
        let mut nodes = vec![(r#"{standing="placeable"}"#.to_owned(), u64::from(placeable))];
        nodes.extend(refusals.0.iter().map(|(word, count)| (format!(r#"{{standing="{word}"}}"#), u64::from(*count))));
        family("berth_placer_nodes", "gauge", "Nodes by whether, or why not, a container may go there.", &nodes);
        let is_acting = u64::from(self.why_idle().is_none());
        family(
            "berth_placer_acting",
            "gauge",
            "1 if this placer places, 0 if another does.",
            &[(String::new(), is_acting)],
        );
        let help = "Places that are kept for containers that have not come yet.";
        family("berth_placer_reservations", "gauge", help, &[(String::new(), reservations as u64)]);
        let asked =
            [(r#"{outcome="report"}"#.to_owned(), read(reports)), (r#"{outcome="none"}"#.to_owned(), read(no_reports))];
        family(
            "berth_placer_questions_total",
            "counter",
            "Reports that were asked for or came by themselves, and those that did not come or were not believed.",
            &asked,
        );
        let placed = [
            (r#"{outcome="placed"}"#.to_owned(), read(reserved)),
            (r#"{outcome="refused"}"#.to_owned(), read(refused)),
        ];
        family("berth_placer_placements_total", "counter", "Requests for a place.", &placed);
        let help = "Containers that were placed again since their node was lost or emptied.";
        family("berth_placer_moves_total", "counter", help, &[(String::new(), read(moved))]);
        page
    }
}
