//! What holding has to give on a real GPU, judged by what was measured. What was not measured is not judged.

use serde::Serialize;

use super::report::{CellReport, Row};
use crate::bench::contention::estimate::Estimate;
use crate::bench::report::Verdict;

/// Times of `fifo` over unmanaged.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Goal {
    pub what: String,
    /// Must be reached.
    pub asked: f64,
    /// Should be.
    pub wished: Option<f64>,
    pub reached: Estimate,
    pub verdict: Verdict,
}

struct Asked {
    tenants: u32,
    size: u32,
    what: &'static str,
    of: fn(&Row) -> Option<Estimate>,
    asked: f64,
    wished: Option<f64>,
}

const fn total(tenants: u32, size: u32, asked: f64, wished: Option<f64>) -> Asked {
    Asked { tenants, size, what: "total", of: |row| row.total_over_unmanaged, asked, wished }
}

const ASKED: [Asked; 4] = [
    total(10, 13_312, 0.92, Some(0.87)),
    Asked { what: "mean end", of: |row| row.completion_over_unmanaged, ..total(10, 13_312, 0.62, Some(0.56)) },
    total(20, 8_192, 1.0, None),
    total(20, 5_120, 1.0, Some(0.9)),
];

pub fn judge(cells: &[CellReport]) -> Vec<Goal> {
    let found = |asked: &Asked| {
        let is_it = |cell: &&CellReport| (cell.cell.tenants, cell.cell.size) == (asked.tenants, asked.size);
        let row = cells.iter().find(is_it)?.ways.iter().find(|row| row.way == "fifo")?;
        let reached = (asked.of)(row)?;
        Some(Goal {
            what: format!("fifo, {} × {}², {}", asked.tenants, asked.size, asked.what),
            asked: asked.asked,
            wished: asked.wished,
            reached,
            verdict: verdict(asked.asked, reached),
        })
    };
    ASKED.iter().filter_map(found).collect()
}

/// By the mean. One that misses is not shown to, as long as what is asked lies in the interval.
fn verdict(asked: f64, reached: Estimate) -> Verdict {
    match reached {
        estimate if estimate.mean <= asked => Verdict::Met,
        estimate if estimate.low > asked => Verdict::NotMet,
        _ => Verdict::NotShown,
    }
}

impl Goal {
    pub fn to_text(&self) -> String {
        let wished = self.wished.map_or(String::new(), |wished| format!(", goal ×{wished:.2}"));
        let verdict = match self.verdict {
            Verdict::Met => "",
            Verdict::NotMet => "  NOT MET",
            Verdict::NotShown => "  not shown",
        };
        let Estimate { mean, low, high } = self.reached;
        format!("{}: at most ×{:.2}{wished}; ×{mean:.3} ({low:.3} to {high:.3}){verdict}", self.what, self.asked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_that_misses_by_less_than_its_interval_shows_nothing() {
        let of = |low, high| verdict(0.92, Estimate { mean: (low + high) / 2.0, low, high });
        assert_eq!(of(0.85, 0.98), Verdict::Met);
        assert_eq!(of(0.90, 0.96), Verdict::NotShown);
        assert_eq!(of(0.93, 0.95), Verdict::NotMet);
    }
}
