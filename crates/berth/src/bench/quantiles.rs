//! Order statistics of a handful of measurements.

use serde::Serialize;

/// In the unit of the values they were made from.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Quantiles {
    pub p50: f64,
    pub p99: f64,
    pub max: f64,
}

impl Quantiles {
    /// `None` without values.
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        Some(Self { p50: at(&sorted, 50)?, p99: at(&sorted, 99)?, max: *sorted.last()? })
    }
}

/// Nearest rank: the smallest value that at least `percent` of all values do not exceed.
fn at(sorted: &[f64], percent: usize) -> Option<f64> {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied()
}

pub fn median(values: &[f64]) -> Option<f64> {
    Quantiles::of(values).map(|quantiles| quantiles.p50)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_were_measured() {
        let values: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        assert_eq!(Quantiles::of(&values), Some(Quantiles { p50: 100.0, p99: 198.0, max: 200.0 }));
        assert_eq!(Quantiles::of(&[7.0]), Some(Quantiles { p50: 7.0, p99: 7.0, max: 7.0 }));
        assert_eq!(Quantiles::of(&[]), None);
    }
}
