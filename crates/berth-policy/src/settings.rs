//! Which policy decides and by which numbers. The doc comment of a field is its manual.
//!
//! These are parts of the daemon's configuration file: `policy = "fifo"`, `[fifo]` and `[paper]` under whatever table
//! embeds [`Settings`]. Every key is optional; unknown keys are refused.

use berth_model::{Percent, Span};
use serde::de::{Error as _, IntoDeserializer, Unexpected};
use serde::{Deserialize, Deserializer, Serialize};

use crate::Policy;
use crate::fifo::Fifo;
use crate::paper::Paper;

/// Who decides, and the numbers of each policy.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// `off` holds nobody, `fifo` is berth's own, `paper` holds as Algorithm 2 of the paper does.
    #[serde(deserialize_with = "choice")]
    pub policy: Choice,
    pub fifo: FifoSettings,
    pub paper: PaperSettings,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Choice {
    #[default]
    Off,
    Paper,
    Fifo,
}

/// Fair by owner, then first come, first served; only computing is exclusive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FifoSettings {
    /// How long a tenant may compute while others wait; then it stops at its next launch. One kernel is never cut short.
    pub quantum: Span,
    /// How long it may do so if it, or its owner, has used a quantum more of late than the one that waits: a short job beside
    /// a long one need not wait for a whole quantum at every launch.
    pub slice: Span,
    /// Who has stood at a launch for this long is first in line, whoever its owner is; of several the one that has stood longest.
    pub longest_wait: Span,
    /// The longest a tenant stands at a launch in any case, for when the one that computes never comes to its next launch:
    /// then it computes beside whoever computes.
    pub last_resort: Span,
    /// The longest a tenant stands at an allocation while others use the memory; then it is let through, to fail.
    pub longest_memory_wait: Span,
    /// A burst of computing that takes no more than this is small: waiting for it, or making it wait, costs more than two
    /// at once lose to each other. It is also how long it takes until a first burst is known to be a long one.
    pub small_burst: Span,
    /// A tenant whose bursts are small and who uses no more than this share of a GPU's time is light, and never held.
    #[serde(deserialize_with = "percent")]
    pub light_use: Percent,
    /// Making or ending a context stops the kernels of others for some time. A tenant that comes or leaves is taken to do so
    /// for this long at most: what others' bursts last longer for it does not make those heavy.
    pub disturbance: Span,
    /// Time over which a tenant's share is taken.
    pub use_window: Span,
    /// How long the turn stays with a tenant that has paused between two bursts and is known to go on within this time.
    pub linger: Span,
    /// How long to wait for a tenant that was released to begin, and for a gang that was stopped to come to rest.
    pub settle: Span,
    /// A tenant that has not computed for this long gives way to one that is still loading.
    pub idle: Span,
    /// A tenant that has not computed for this long may be parked to make room for another.
    pub park_idle: Span,
    /// The driver's average is this old at most; before that a core use of nothing does not mean that nothing runs.
    pub stale: Span,
    /// Core use up to this is none.
    #[serde(deserialize_with = "percent")]
    pub idle_use: Percent,
    /// GPU time used counts half after this long when owners are compared.
    pub fair_half_life: Span,
    /// Holds of one tenant in any second; one that has had as many is left running.
    pub holds_per_second: u32,
    /// Where only a freeze is at hand: tenants that compute for less in all are not held, because a freeze may come in the
    /// middle of anything.
    pub freeze_pays: Span,
    /// GPU memory in MiB that a context takes by itself: above it a tenant has begun to load its data, and a hold that
    /// stands it still (lock, freeze) no longer delays the making of the context.
    pub context_mib: u64,
}

/// Algorithm 2 of the paper.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PaperSettings {
    /// Core use from which nobody else is released.
    #[serde(deserialize_with = "percent")]
    pub core: Percent,
    /// Memory use above which the one just released is paused again.
    #[serde(deserialize_with = "percent")]
    pub memory: Percent,
    /// Between two releases: one query and one pause.
    pub turn: Span,
    /// A task is in the driver's average when it has computed for this long.
    pub stale: Span,
    /// How long to wait for a task that was let go to begin computing, before core use is asked all the same.
    pub settle: Span,
    /// The longest a tenant is paused, whatever the GPU does. The paper has no bound.
    pub longest_wait: Span,
}

// === impl Settings ===

impl Settings {
    /// The policy that decides; `None` if nobody is to be held.
    pub fn build(&self) -> Option<Box<dyn Policy>> {
        match self.policy {
            Choice::Off => None,
            Choice::Paper => Some(Box::new(Paper::new(self.paper.clone()))),
            Choice::Fifo => Some(Box::new(Fifo::new(self.fifo.clone()))),
        }
    }
}

// === defaults ===

impl Default for FifoSettings {
    fn default() -> Self {
        Self {
            quantum: Span::from_millis(10_000),
            slice: Span::from_millis(100),
            longest_wait: Span::from_millis(60_000),
            last_resort: Span::from_millis(600_000),
            longest_memory_wait: Span::from_millis(24 * 3_600_000),
            small_burst: Span::from_millis(10),
            light_use: whole(25),
            disturbance: Span::from_millis(500),
            use_window: Span::from_millis(1_000),
            linger: Span::from_millis(1),
            settle: Span::from_millis(1_000),
            idle: Span::from_millis(1_000),
            park_idle: Span::from_millis(10_000),
            stale: Span::from_millis(500),
            idle_use: whole(2),
            fair_half_life: Span::from_millis(60_000),
            holds_per_second: 20,
            freeze_pays: Span::from_millis(2_000),
            context_mib: 600,
        }
    }
}

impl Default for PaperSettings {
    fn default() -> Self {
        Self {
            core: whole(100),
            memory: whole(95),
            turn: Span::from_millis(120),
            stale: Span::from_millis(400),
            settle: Span::from_millis(1_000),
            longest_wait: Span::from_millis(600_000),
        }
    }
}

fn whole(percent: u32) -> Percent {
    Percent::checked(percent).unwrap_or_default()
}

// === reading ===

fn percent<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Percent, D::Error> {
    let value = i64::deserialize(deserializer)?;
    let share = u32::try_from(value).ok().and_then(Percent::checked);
    share.ok_or_else(|| D::Error::invalid_value(Unexpected::Signed(value), &"a share of 0 to 100"))
}

/// One of a few words; an enum alone would take tables too.
fn choice<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Choice, D::Error> {
    Choice::deserialize(String::deserialize(deserializer)?.into_deserializer())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_written_means_that_nobody_is_held() {
        let settings: Settings = toml::from_str("").unwrap();
        assert_eq!(settings, Settings::default());
        assert!(settings.build().is_none());
    }

    #[test]
    fn a_policy_is_chosen_by_its_name_and_keeps_its_numbers() {
        let text = "policy = \"fifo\"\n[fifo]\nquantum = \"5s\"\nlight_use = 30\n[paper]\nmemory = 90\n";
        let settings: Settings = toml::from_str(text).unwrap();
        assert_eq!(settings.build().map(|policy| policy.name()), Some("fifo"));
        assert_eq!((settings.fifo.quantum, settings.fifo.light_use.get()), (Span::from_millis(5_000), 30));
        assert_eq!((settings.paper.core.get(), settings.paper.memory.get()), (100, 90));
    }

    #[test]
    fn what_was_written_is_read_back() {
        let settings = Settings { policy: Choice::Paper, ..Settings::default() };
        assert_eq!(toml::from_str(&toml::to_string(&settings).unwrap()), Ok(settings));
    }

    #[test]
    fn unknown_keys_and_values_are_refused_by_name() {
        for (text, told) in [
            ("policy = \"edf\"", "edf"),
            ("[fifo]\nquantun = \"5s\"", "quantun"),
            ("[fifo]\nquantum = 5", "`5` is not a duration"),
            ("[paper]\ncore = 101", "a share of 0 to 100"),
            ("[paper]\ncore = -1", "a share of 0 to 100"),
        ] {
            let error = toml::from_str::<Settings>(text).unwrap_err().to_string();
            assert!(error.contains(told), "{text}: {error}");
        }
    }
}
