//! What a figure will be, a few steps from now, and how wrong that was so far.
//!
//! Level, trend and season follow the values, each by a part of what was wrong (Holt and Winters, with a trend that fades); the season
//! is looked for in the last values from time to time ([`season`]). Beside it stands the plainest of forecasts, that all stays as
//! it is. Both are held to what came, [`AHEAD`] steps later; whichever was less wrong lately is the one that is told. So a
//! forecast is never much worse than none, and what it is worth can be seen ([`Skill`]).

use std::collections::VecDeque;

use super::season::season;

/// Steps that are looked ahead when forecasts are judged.
pub const AHEAD: usize = 4;
/// Values kept to look for seasons in.
const KEPT: usize = 256;
/// Values between two looks.
const LOOK_EVERY: usize = 32;
const LEVEL: f64 = 0.25;
const TREND: f64 = 0.05;
const FADE: f64 = 0.9;
const SEASON: f64 = 0.2;
/// By which the mean errors follow.
const FOLLOW: f64 = 0.03;
/// Forecasts judged before one is preferred.
const LEAST_JUDGED: u32 = 16;

#[derive(Debug, Clone, Default)]
pub struct Forecaster {
    level: f64,
    trend: f64,
    /// What each step of a season adds; empty without one.
    season: Vec<f64>,
    seen: usize,
    last: VecDeque<f64>,
    /// What was said of the next values, the nearest first: by level, trend and season, and plainly.
    said: VecDeque<(f64, f64)>,
    skill: Skill,
}

/// How wrong forecasts were lately, [`AHEAD`] steps before: mean distances, in the figure's unit.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Skill {
    pub error: f64,
    /// Of the forecast that all stays as it is.
    pub plain_error: f64,
    pub judged: u32,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Forecast {
    pub value: f64,
    /// How far off it mostly is.
    pub error: f64,
    /// It is the plain one: nothing better is known.
    pub is_plain: bool,
    /// In steps.
    pub season: Option<usize>,
}

impl Forecaster {
    /// The next value, one step after the last.
    pub fn observe(&mut self, value: f64) {
        if !value.is_finite() {
            return;
        }
        self.judge(value);
        self.follow(value);
        self.last.push_back(value);
        if self.last.len() > KEPT {
            self.last.pop_front();
        }
        self.seen += 1;
        if self.seen.is_multiple_of(LOOK_EVERY) {
            self.look();
        }
        self.said.push_back((self.own(AHEAD), value));
    }

    pub fn skill(&self) -> Skill {
        self.skill
    }

    /// What it will be, 1 or more steps after the last value; `None` before any.
    pub fn forecast(&self, steps: usize) -> Option<Forecast> {
        let last = *self.last.back()?;
        let Skill { error, plain_error, judged } = self.skill;
        let is_plain = judged < LEAST_JUDGED || plain_error <= error;
        let season = (!self.season.is_empty()).then_some(self.season.len());
        let (value, error) = if is_plain { (last, plain_error) } else { (self.own(steps), error) };
        Some(Forecast { value, error, is_plain, season })
    }

    fn judge(&mut self, value: f64) {
        if self.said.len() < AHEAD {
            return;
        }
        let Some((own, plain)) = self.said.pop_front() else { return };
        let skill = &mut self.skill;
        skill.judged = skill.judged.saturating_add(1);
        let part = FOLLOW.max(1.0 / f64::from(skill.judged));
        skill.error += part * ((value - own).abs() - skill.error);
        skill.plain_error += part * ((value - plain).abs() - skill.plain_error);
    }

    fn follow(&mut self, value: f64) {
        if self.seen == 0 {
            self.level = value;
            return;
        }
        let adds = self.adds(self.seen);
        let expected = self.level + FADE * self.trend;
        let off = value - adds - expected;
        self.level = expected + LEVEL * off;
        self.trend = FADE * self.trend + TREND * off;
        if !self.season.is_empty() {
            let phase = self.seen % self.season.len();
            self.season[phase] += SEASON * (value - self.level - adds);
        }
    }

    fn adds(&self, step: usize) -> f64 {
        if self.season.is_empty() { 0.0 } else { self.season[step % self.season.len()] }
    }

    fn own(&self, steps: usize) -> f64 {
        let faded: f64 = (1..=steps).fold((0.0, 1.0), |(sum, part), _| (sum + part * FADE, part * FADE)).0;
        self.level + self.trend * faded + self.adds(self.seen + steps - 1)
    }

    /// A new season begins with what each of its steps was on average, less the mean of all.
    fn look(&mut self) {
        let values: Vec<f64> = self.last.iter().copied().collect();
        let found = season(&values);
        if found == (!self.season.is_empty()).then_some(self.season.len()) {
            return;
        }
        let Some(length) = found else {
            self.level += self.adds(self.seen - 1);
            self.season.clear();
            return;
        };
        let whole = &values[values.len() % length..];
        let mean = whole.iter().sum::<f64>() / of(whole.len());
        let first = self.seen - whole.len();
        self.season = vec![0.0; length];
        for (place, value) in whole.iter().enumerate() {
            self.season[(first + place) % length] += (value - mean) / of(whole.len() / length);
        }
        self.level = mean;
        self.trend = 0.0;
    }
}

fn of(many: usize) -> f64 {
    f64::from(u32::try_from(many).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(values: impl Iterator<Item = f64>) -> Forecaster {
        let mut forecaster = Forecaster::default();
        values.for_each(|value| forecaster.observe(value));
        forecaster
    }

    fn wave(step: u32) -> f64 {
        50.0 + 30.0 * (f64::from(step % 24) / 24.0 * std::f64::consts::TAU).sin()
    }

    #[test]
    fn what_comes_back_is_foreseen_far_better_than_by_saying_that_all_stays() {
        let forecaster = after((0..600).map(wave));
        let Skill { error, plain_error, .. } = forecaster.skill();
        assert!(error < 0.2 * plain_error, "{error} against {plain_error}");
        let forecast = forecaster.forecast(6).unwrap();
        assert_eq!((forecast.season, forecast.is_plain), (Some(24), false));
        assert!((forecast.value - wave(605)).abs() < 5.0, "{forecast:?} and not {}", wave(605));
    }

    #[test]
    fn what_only_scatters_is_foreseen_as_its_mean_and_steps_plainly() {
        let forecaster = after((0..400).map(|step: u32| f64::from((step * step * 7_919 + step * 31) % 1_009)));
        let Skill { error, plain_error, .. } = forecaster.skill();
        assert!(error < 0.95 * plain_error, "{error} against {plain_error}");
        let walk = after((0..400).map(|step: u32| f64::from(step / 100)));
        assert!((walk.forecast(4).unwrap().value - 3.0).abs() < 0.1);
    }

    #[test]
    fn nothing_is_said_of_nothing_and_little_is_said_plainly() {
        assert_eq!(Forecaster::default().forecast(1), None);
        let forecast = after([5.0, 7.0].into_iter()).forecast(3).unwrap();
        assert_eq!((forecast.value, forecast.is_plain), (7.0, true));
        assert_eq!(after([f64::NAN].into_iter()).forecast(1), None);
    }
}
