//! Numbers that look random, drawn in the shapes that a load is made of. The same seed gives the same numbers.

use crate::bench::edf::load::Dice;

/// Longest time between two that come, in means: a draw of 0 would never come.
const LONGEST_GAP: f64 = 40.0;

/// Times around a median, more of them far above it than far below.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LogNormal {
    pub median: f64,
    /// Of the logarithm.
    pub sigma: f64,
}

/// Each value as likely as any other by its logarithm.
pub fn log_uniform(dice: &mut Dice, from: f64, to: f64) -> f64 {
    from * (to / from).powf(dice.between(0.0, 1.0))
}

/// Time until the next of those that come independently of each other, `mean` apart on average.
pub fn gap(dice: &mut Dice, mean: f64) -> f64 {
    mean * (-dice.between(0.0, 1.0).ln()).min(LONGEST_GAP)
}

impl LogNormal {
    pub fn draw(self, dice: &mut Dice) -> f64 {
        self.median * (self.sigma * normal(dice)).exp()
    }

    pub fn mean(self) -> f64 {
        self.median * (self.sigma * self.sigma / 2.0).exp()
    }
}

/// By Box and Muller.
fn normal(dice: &mut Dice) -> f64 {
    let (radius, angle) = (dice.between(f64::MIN_POSITIVE, 1.0), dice.between(0.0, std::f64::consts::TAU));
    (-2.0 * radius.ln()).sqrt() * angle.cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANY: usize = 20_000;

    fn many(mut draw: impl FnMut(&mut Dice) -> f64) -> Vec<f64> {
        let mut dice = Dice::new(7);
        let mut drawn: Vec<f64> = (0..MANY).map(|_| draw(&mut dice)).collect();
        drawn.sort_by(f64::total_cmp);
        drawn
    }

    fn mean(values: &[f64]) -> f64 {
        values.iter().sum::<f64>() / values.len() as f64
    }

    #[test]
    fn times_lie_around_their_median_and_their_mean_is_the_one_told() {
        let shape = LogNormal { median: 3.0, sigma: 0.5 };
        let drawn = many(|dice| shape.draw(dice));
        assert!((drawn[MANY / 2] / 3.0 - 1.0).abs() < 0.02, "{}", drawn[MANY / 2]);
        assert!((mean(&drawn) / shape.mean() - 1.0).abs() < 0.02, "{}", mean(&drawn));
    }

    #[test]
    fn gaps_are_as_long_as_they_should_be_on_average_and_vary_as_much() {
        let drawn = many(|dice| gap(dice, 2.0));
        let variance = mean(&drawn.iter().map(|value| (value - 2.0).powi(2)).collect::<Vec<_>>());
        assert!((mean(&drawn) - 2.0).abs() < 0.05 && (variance / 4.0 - 1.0).abs() < 0.1, "{variance}");
    }

    #[test]
    fn by_the_logarithm_half_lie_below_the_geometric_mean() {
        let drawn = many(|dice| log_uniform(dice, 1.0, 100.0));
        assert!((drawn[MANY / 2] / 10.0 - 1.0).abs() < 0.06, "{}", drawn[MANY / 2]);
        assert!(drawn[0] >= 1.0 && drawn[MANY - 1] <= 100.0);
    }
}
