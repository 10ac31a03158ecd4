//! What is usual of a figure, learned: its middle and how far values mostly are from it.
//!
//! The median and the median distance of the first values, then a small step towards each further one: no value counts for more
//! than any other, so that a few wild ones change nothing.

/// Values looked at before anything is said.
const WARM_UP: usize = 64;
/// Length of a step, in distances.
const STEP: f64 = 0.02;
/// What makes a median distance comparable with a standard deviation, for values that scatter as noise mostly does.
const SPREAD: f64 = 1.4826;

#[derive(Debug, Clone)]
pub struct Baseline {
    first: Vec<f64>,
    learned: Option<Usual>,
    /// No spread is taken to be less.
    least_spread: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Usual {
    pub middle: f64,
    pub spread: f64,
}

impl Baseline {
    pub fn new(least_spread: f64) -> Self {
        Self { first: Vec::new(), learned: None, least_spread }
    }

    /// `None` while too little was seen.
    pub fn usual(&self) -> Option<Usual> {
        self.learned
    }

    /// Until it is learned, each value counts; then, by a small step.
    pub fn learn(&mut self, value: f64) {
        match &mut self.learned {
            Some(usual) => {
                let off = value - usual.middle;
                usual.middle += STEP * usual.spread * off.signum();
                let is_far = off.abs() * SPREAD > usual.spread;
                usual.spread *= if is_far { 1.0 + STEP / 2.0 } else { 1.0 - STEP / 2.0 };
                usual.spread = usual.spread.max(self.least_spread);
            }
            None => {
                self.first.push(value);
                if self.first.len() >= WARM_UP {
                    self.learned = Some(usual_of(std::mem::take(&mut self.first), self.least_spread));
                }
            }
        }
    }
}

fn usual_of(mut values: Vec<f64>, least_spread: f64) -> Usual {
    let middle = median(&mut values);
    values.iter_mut().for_each(|value| *value = (*value - middle).abs());
    Usual { middle, spread: (SPREAD * median(&mut values)).max(least_spread) }
}

/// `values` is not empty.
fn median(values: &mut [f64]) -> f64 {
    let half = values.len() / 2;
    let (_, upper, _) = values.select_nth_unstable_by(half, f64::total_cmp);
    *upper
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_wild_values_change_little() {
        let mut baseline = Baseline::new(0.01);
        for step in 0..WARM_UP {
            assert_eq!(baseline.usual(), None);
            #[expect(clippy::cast_precision_loss, reason = "small")]
            let value = if step % 10 == 0 { 1e9 } else { 10.0 + (step % 5) as f64 };
            baseline.learn(value);
        }
        let before = baseline.usual().unwrap();
        assert!((before.middle - 12.0).abs() <= 1.0 && before.spread < 4.0, "{before:?}");
        baseline.learn(1e12);
        let after = baseline.usual().unwrap();
        assert!((after.middle - before.middle).abs() < 0.1 && after.spread < before.spread * 1.02, "{after:?}");
    }

    #[test]
    fn what_becomes_usual_is_learned_in_time() {
        let mut baseline = Baseline::new(0.1);
        (0..WARM_UP).for_each(|_| baseline.learn(1.0));
        (0..10_000).for_each(|_| baseline.learn(2.0));
        assert!((baseline.usual().unwrap().middle - 2.0).abs() < 0.1);
    }
}
