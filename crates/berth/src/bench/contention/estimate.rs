//! A mean and where it lies by 95 %, from a handful of runs.

use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Estimate {
    pub mean: f64,
    /// Bounds of the 95 % confidence interval; the mean itself for a single run.
    pub low: f64,
    pub high: f64,
}

/// Student's t for 95 %, by degrees of freedom from 1.
const T95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];
const T95_MANY: f64 = 1.960;

impl Estimate {
    /// `None` without values.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let values: Vec<f64> = values.into_iter().collect();
        let count = values.len() as f64;
        if values.is_empty() {
            return None;
        }
        let mean = values.iter().sum::<f64>() / count;
        let Some(degrees) = values.len().checked_sub(2) else { return Some(Self { mean, low: mean, high: mean }) };
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
        let half = T95.get(degrees).unwrap_or(&T95_MANY) * (variance / count).sqrt();
        Some(Self { mean, low: mean - half, high: mean + half })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_is_that_of_students_t() {
        let estimate = Estimate::of([1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        assert_eq!(estimate.mean, 3.0);
        // s = 1.5811, t(4) = 2.776, 2.776 · 1.5811 / √5 = 1.963
        assert!((estimate.high - 3.0 - 1.963).abs() < 1e-3, "{estimate:?}");
        assert!((3.0 - estimate.low - 1.963).abs() < 1e-3, "{estimate:?}");
    }

    #[test]
    fn one_value_has_no_width_and_none_no_estimate() {
        assert_eq!(Estimate::of([7.0]), Some(Estimate { mean: 7.0, low: 7.0, high: 7.0 }));
        assert_eq!(Estimate::of([]), None);
    }
}
