//! What `berth bench nodes` found, as JSON and as tables.

use std::fmt::Write as _;

use berth_model::cluster::Strategy;
use serde::Serialize;

use super::cell::Cell;
use super::wire::Wire;
use crate::bench::contention::goals::{self, Goal};
use crate::bench::contention::report::grid;
use crate::bench::quantiles::Quantiles;

#[derive(Debug, Clone, Serialize)]
pub struct Report {
    pub berth: String,
    pub seed: u64,
    pub cells: Vec<Cell>,
    pub wire: Wire,
    pub goals: Vec<Goal>,
}

/// What is published of this, and what is not.
const PUBLISHED: &str = "\
published (Fig. 11): the time in which a list is made from simulated nodes with dummy data of 16 bytes each; the figure's
values are in no text, only that it is made anew, by sorting, for each container. SORT is that, here, on the records of these GPUs.";

impl Report {
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "nodes of 2 GPUs with mixed loads, seed {}; p50 / p99, one thread", self.seed)?;
        writeln!(out, "\n{}", self.times())?;
        writeln!(out, "{PUBLISHED}\n\n{}", self.sizes())?;
        self.write_wire(out)?;
        goals::write(&self.goals, out)
    }

    fn times(&self) -> String {
        let headings = [
            "NODES",
            "STRATEGY",
            "BUILT ms",
            "READ ms",
            "SORT ms",
            "APPLY µs",
            "IN TURN µs",
            "FIRST µs",
            "CHOICE µs",
            "CHOSEN",
            "NO MEMORY µs",
            "NO TIME µs",
        ];
        let rows = self.cells.iter().map(|cell| {
            vec![
                cell.nodes.to_string(),
                name(cell.strategy).to_owned(),
                format!("{:.2}", cell.built_ms),
                format!("{:.2}", cell.read_ms),
                format!("{:.2}", cell.sorted_ms),
                both(&cell.applied_at_random_ns, 1e-3),
                both(&cell.applied_ns, 1e-3),
                format!("{:.2}", cell.first_choice_us),
                both(&cell.choice_us, 1.0),
                format!("{:.0} %", cell.chosen_pct),
                cell.no_memory_us.map_or_else(|| "-".to_owned(), |time| both(&time, 1.0)),
                cell.no_time_us.map_or_else(|| "-".to_owned(), |time| both(&time, 1.0)),
            ]
        });
        grid(&headings, rows.collect())
    }

    fn sizes(&self) -> String {
        let bytes = |bytes: Option<f64>| bytes.map_or_else(|| "-".to_owned(), |bytes| format!("{bytes:.0}"));
        let rows = self.cells.iter().map(|cell| {
            vec![
                cell.nodes.to_string(),
                name(cell.strategy).to_owned(),
                format!("{:.2}", cell.refusals_ms.p50),
                format!("{:.3}", cell.expire_ms.p50),
                bytes(cell.bytes_per_node),
                bytes(cell.report_bytes_per_node),
            ]
        });
        let headings = ["NODES", "STRATEGY", "REFUSALS ms", "EXPIRE ms", "LIST B/NODE", "REPORT B/NODE"];
        grid(&headings, rows.collect())
    }

    /// Each node asked once a second.
    fn write_wire(&self, out: &mut String) -> std::fmt::Result {
        let Wire { record_bytes, frame_bytes, json_bytes, written_us, read_us } = &self.wire;
        writeln!(
            out,
            "on the wire: record {record_bytes} B per GPU, frame {:.0} B (at most {:.0}), as JSON {:.0} B; written in {} µs, read in {} µs",
            frame_bytes.p50,
            frame_bytes.max,
            json_bytes.p50,
            both(written_us, 1.0),
            both(read_us, 1.0)
        )?;
        for cell in self.cells.iter().filter(|cell| cell.strategy == Strategy::Fit) {
            let nodes = cell.nodes as f64;
            let core_pct = nodes * (read_us.p50 * 1e-6 + cell.applied_ns.p50 * 1e-9) * 100.0;
            writeln!(
                out,
                "  {} nodes asked once a second: {:.3} MB/s of frames, {core_pct:.2} % of a core to read and apply them",
                cell.nodes,
                nodes * frame_bytes.p50 / 1e6
            )?;
        }
        Ok(())
    }
}

fn both(quantiles: &Quantiles, factor: f64) -> String {
    format!("{:.2} / {:.2}", quantiles.p50 * factor, quantiles.p99 * factor)
}

pub fn name(strategy: Strategy) -> &'static str {
    match strategy {
        Strategy::Fit => "fit",
        Strategy::Paper => "paper",
    }
}
