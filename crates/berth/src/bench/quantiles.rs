//! Order statistics of a handful of measurements.

use serde::Serialize;

/// In the unit of the values they were made from.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Quantiles {
    /// Of how many.
    pub n: usize,
    pub p50: f64,
    /// The same as `max` of fewer than 100.
    pub p99: f64,
    pub max: f64,
}

impl Quantiles {
    /// `None` without values.
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        Some(Self { n: sorted.len(), p50: at(&sorted, 50)?, p99: at(&sorted, 99)?, max: *sorted.last()? })
    }

    /// Whether p99 says anything that `max` does not.
    pub fn has_p99(&self) -> bool {
        self.n >= 100
    }
}

/// What people print of a measurement: mean, least and most, and the order statistics with them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    pub mean: f64,
    pub min: f64,
    #[serde(flatten)]
    pub quantiles: Quantiles,
}

impl Spread {
    /// `None` without values.
    pub fn of(values: &[f64]) -> Option<Self> {
        let quantiles = Quantiles::of(values)?;
        let min = values.iter().copied().min_by(f64::total_cmp)?;
        Some(Self { mean: values.iter().sum::<f64>() / values.len() as f64, min, quantiles })
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
        assert_eq!(Quantiles::of(&values), Some(Quantiles { n: 200, p50: 100.0, p99: 198.0, max: 200.0 }));
        assert_eq!(Quantiles::of(&[7.0]), Some(Quantiles { n: 1, p50: 7.0, p99: 7.0, max: 7.0 }));
        assert_eq!(Quantiles::of(&[]), None);
    }

    #[test]
    fn a_spread_has_its_mean_between_its_ends() {
        let spread = Spread::of(&[3.0, -1.0, 4.0]).unwrap();
        assert_eq!((spread.min, spread.mean, spread.quantiles.max), (-1.0, 2.0, 4.0));
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn p99_is_the_worst_of_fewer_than_a_hundred() {
        for (n, has_p99) in [(99, false), (100, true)] {
            let quantiles = Quantiles::of(&(0..n).map(f64::from).collect::<Vec<_>>()).unwrap();
            assert_eq!((quantiles.has_p99(), quantiles.p99 < quantiles.max), (has_p99, has_p99), "{n}");
        }
    }
}
