//! How long something mostly lasts at most, learned from how long it lasted: the value that nine in ten stay below.
//!
//! One step up for a longer one, a ninth of it down for a shorter one, both as a factor: it settles where one in ten is longer.

/// Values looked at before anything is said.
const LEAST: u32 = 5;
const UP: f64 = 1.3;
const DOWN: f64 = 0.971;

#[derive(Debug, Clone, Copy, Default)]
pub struct MostlyBelow {
    value: f64,
    seen: u32,
}

impl MostlyBelow {
    pub fn learn(&mut self, value: f64) {
        self.seen = self.seen.saturating_add(1);
        if self.seen <= LEAST {
            self.value = self.value.max(value);
        } else if value > self.value {
            // No further than the value itself.
            self.value = value.min(self.value * UP);
        } else {
            self.value *= DOWN;
        }
    }

    /// `None` while too little was seen.
    pub fn get(&self) -> Option<f64> {
        (self.seen >= LEAST).then_some(self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nine_in_ten_stay_below() {
        let mut usual = MostlyBelow::default();
        // 1 to 100 in an order that repeats late.
        let values = || (0_u32..5_000).map(|step| f64::from(step * 37 % 100 + 1));
        values().for_each(|value| usual.learn(value));
        let mut above = 0_u32;
        for value in values() {
            above += u32::from(value > usual.get().unwrap());
            usual.learn(value);
        }
        assert!((300..800).contains(&above), "{above} of 5000");
    }

    #[test]
    fn little_was_seen_says_nothing() {
        let mut usual = MostlyBelow::default();
        (0..4).for_each(|_| usual.learn(1.0));
        assert_eq!(usual.get(), None);
    }
}
