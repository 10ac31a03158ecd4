//! What a tenant's owner says of how it does, and what that is worth to a policy.
//!
//! Each word is a value of a series ([`super::series::Metric::Feedback`]). What counts is the *mood*: their mean, in which a word
//! counts half after [`HALF_LIFE`], beside one word that says nothing. Whoever complains becomes a little heavier, whoever is content a
//! little lighter: by no more than a quarter, however often it is said, so that saying it pays nobody much.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::time::Mono;

pub const HALF_LIFE: Duration = Duration::from_secs(30 * 60);
/// Times its own weight, at most; and one over it at the least.
pub const HEAVIEST: f64 = 1.25;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Feedback {
    Good,
    /// Sometimes fast, sometimes slow.
    Uneven,
    Slow,
    Late,
    /// It does not get on at all.
    Stuck,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not known: say good, uneven, slow, late or stuck")]
pub struct InvalidFeedback {
    text: String,
}

impl Feedback {
    pub const ALL: [Feedback; 5] = [Feedback::Good, Feedback::Uneven, Feedback::Slow, Feedback::Late, Feedback::Stuck];

    pub fn as_str(self) -> &'static str {
        match self {
            Feedback::Good => "good",
            Feedback::Uneven => "uneven",
            Feedback::Slow => "slow",
            Feedback::Late => "late",
            Feedback::Stuck => "stuck",
        }
    }

    /// −1 to 1.
    pub fn score(self) -> f64 {
        match self {
            Feedback::Good => 1.0,
            Feedback::Uneven => -0.5,
            Feedback::Slow | Feedback::Late => -0.75,
            Feedback::Stuck => -1.0,
        }
    }
}

impl FromStr for Feedback {
    type Err = InvalidFeedback;

    fn from_str(text: &str) -> Result<Self, InvalidFeedback> {
        let known = Feedback::ALL.into_iter().find(|one| one.as_str() == text);
        known.ok_or_else(|| InvalidFeedback { text: text.to_owned() })
    }
}

impl fmt::Display for Feedback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What has been said of one tenant lately.
#[derive(Debug, Clone, Copy, Default)]
pub struct Mood {
    sum: f64,
    count: f64,
    last: Mono,
}

impl Mood {
    pub fn hear(&mut self, at: Mono, said: Feedback) {
        self.recall(at, said.score());
    }

    /// What was said, as it was written down.
    pub fn recall(&mut self, at: Mono, score: f64) {
        let part = fading(at.since(self.last));
        self.sum = self.sum * part + score.clamp(-1.0, 1.0);
        self.count = self.count * part + 1.0;
        self.last = at;
    }

    /// −1, complaints alone, to 1.
    pub fn get(&self, now: Mono) -> f64 {
        let part = fading(now.since(self.last));
        self.sum * part / (self.count * part + 1.0)
    }

    /// By which its weight is multiplied.
    pub fn weight(&self, now: Mono) -> f64 {
        HEAVIEST.powf(-self.get(now))
    }
}

fn fading(passed: Duration) -> f64 {
    0.5_f64.powf(passed.as_secs_f64() / HALF_LIFE.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn minutes(minutes: u64) -> Mono {
        Mono(minutes * 60_000_000_000)
    }

    #[test]
    fn every_word_is_read_as_it_is_written_and_others_are_refused_with_those_there_are() {
        for one in Feedback::ALL {
            assert_eq!(one.to_string().parse(), Ok(one));
        }
        let refused = "bad".parse::<Feedback>().unwrap_err().to_string();
        assert!(refused.contains("`bad`") && refused.contains("slow"), "{refused}");
    }

    #[test]
    fn a_complaint_makes_heavier_praise_lighter_and_both_fade() {
        let mut mood = Mood::default();
        assert_eq!(mood.weight(minutes(0)), 1.0);
        mood.hear(minutes(0), Feedback::Slow);
        let (soon, later) = (mood.weight(minutes(1)), mood.weight(minutes(120)));
        assert!(soon > 1.05 && later > 1.0 && later < soon, "{soon}, {later}");
        mood.hear(minutes(120), Feedback::Good);
        assert!(mood.weight(minutes(120)) < 1.0);
    }

    proptest! {
        #[test]
        fn however_much_is_said_the_weight_is_bounded(said in prop::collection::vec((0_usize..5, 0_u64..600), 0..100)) {
            let mut mood = Mood::default();
            let mut now = 0;
            for (word, after) in said {
                now += after;
                mood.hear(minutes(now), Feedback::ALL[word]);
                let weight = mood.weight(minutes(now));
                prop_assert!((1.0 / HEAVIEST..=HEAVIEST).contains(&weight));
            }
        }
    }
}
