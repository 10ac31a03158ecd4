//! The numbers policies decide by. The doc comment of a field is its manual.
//!
//! What only whoever changes a policy would turn stays out of the configuration file: those fields are there for tests and
//! benchmarks, marked `serde(skip)`, and a key of that name is refused like any other that is not known.

use serde::{Deserialize, Serialize};

use super::read::{count, percent};
use crate::quantity::Percent;
use crate::time::Span;

/// Numbers of the policy `fifo`: fair by owner, then first come, first served; only computing is exclusive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FifoSettings {
    /// How long a tenant may compute while others wait; then it stops at its next launch. One kernel is never cut short.
    pub quantum: Span,
    /// How long it may do so if it, or its owner, has used a quantum more of late than the one that waits, or as much if it computes
    /// on and on and the other does not: a short job beside a long one need not wait for a whole quantum at every launch.
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
    /// Of many tenants that come to a GPU at once, so many make their contexts at a time; the others wait before theirs. The
    /// driver makes no more of them in a second if more ask, but then all are ready as late as the last one. Up to five are left alone.
    #[serde(deserialize_with = "count")]
    pub contexts_at_once: u32,
    /// A tenant that has not computed for this long may be parked to make room for another.
    pub park_idle: Span,
    /// GPU time used counts half after this long when owners are compared.
    pub fair_half_life: Span,
    /// Making or ending a context stops the kernels of others for some time. A tenant that comes or leaves is taken to do so
    /// for this long at most: what others' bursts last longer for it does not make those heavy.
    #[serde(skip)]
    pub disturbance: Span,
    /// Time over which a tenant's share is taken.
    #[serde(skip)]
    pub use_window: Span,
    /// How long the turn stays with a tenant that has paused between two bursts and is known to go on within this time.
    #[serde(skip)]
    pub linger: Span,
    /// How long to wait for a tenant that was released to begin, and for a gang that was stopped to come to rest.
    #[serde(skip)]
    pub settle: Span,
    /// A tenant that has not computed for this long gives way to one that is still loading.
    #[serde(skip)]
    pub idle: Span,
    /// The driver's average is this old at most; before that a core use of nothing does not mean that nothing runs.
    #[serde(skip)]
    pub stale: Span,
    /// A tenant's own share of a GPU is an average over up to this long: what it says of one that was quiet all the time
    /// since is true.
    #[serde(skip)]
    pub share_stale: Span,
    /// Core use up to this is none.
    #[serde(skip)]
    pub idle_use: Percent,
    /// Holds of one tenant in any second; one that has had as many is left running.
    #[serde(skip)]
    pub holds_per_second: u32,
    /// Where there is no gate: tenants that compute for less in all are not held, because a lock or a freeze comes in the
    /// middle of something that will have to be ended.
    #[serde(skip)]
    pub still_pays: Span,
    /// GPU memory in MiB that a context takes by itself: above it a tenant has begun to load its data, and a hold that
    /// stands it still (lock, freeze) no longer delays the making of the context. Two that have no more and have not computed
    /// yet are not kept apart.
    #[serde(skip)]
    pub context_mib: u64,
}

/// Numbers of the policy `edf`: the turns of `fifo`, given by deadlines first. The numbers of `fifo` count for it too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EdfSettings {
    /// Share of a GPU's time, in percent, that tenants without a deadline get while they want it, however many deadlines there are. What
    /// those with a deadline leave they get anyway.
    #[serde(deserialize_with = "percent")]
    pub rest: Percent,
    /// What passing the turn on costs: the one that has it stops at its launch, and the next one goes on.
    #[serde(skip)]
    pub switch: Span,
}

/// Numbers of the policy `paper`: Algorithm 2 of the paper.
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
    /// The longest a tenant is paused, whatever the GPU does. The paper has no bound.
    pub longest_wait: Span,
    /// A task is in the driver's average when it has computed for this long.
    #[serde(skip)]
    pub stale: Span,
    /// How long to wait for a task that was let go to begin computing, before core use is asked all the same.
    #[serde(skip)]
    pub settle: Span,
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
            contexts_at_once: 5,
            park_idle: Span::from_millis(10_000),
            fair_half_life: Span::from_millis(60_000),
            disturbance: Span::from_millis(500),
            use_window: Span::from_millis(1_000),
            linger: Span::from_millis(1),
            settle: Span::from_millis(1_000),
            idle: Span::from_millis(1_000),
            stale: Span::from_millis(500),
            share_stale: Span::from_millis(5_000),
            idle_use: whole(2),
            holds_per_second: 20,
            still_pays: Span::from_millis(2_000),
            context_mib: 600,
        }
    }
}

impl Default for EdfSettings {
    fn default() -> Self {
        Self { rest: whole(10), switch: Span::from_millis(1) }
    }
}

impl Default for PaperSettings {
    fn default() -> Self {
        Self {
            core: whole(100),
            memory: whole(95),
            turn: Span::from_millis(120),
            longest_wait: Span::from_millis(600_000),
            stale: Span::from_millis(400),
            settle: Span::from_millis(3_000),
        }
    }
}

fn whole(percent: u32) -> Percent {
    Percent::checked(percent).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_counts_and_what_is_not_in_the_file_keeps_its_default() {
        let read: FifoSettings = toml::from_str("quantum = \"5s\"\nlight_use = 30").unwrap();
        let expected = FifoSettings { quantum: Span::from_millis(5_000), light_use: whole(30), ..Default::default() };
        assert_eq!(read, expected);
        assert_eq!(read.settle, Span::from_millis(1_000), "a number that is not in the file");
    }

    #[test]
    fn a_number_nobody_should_turn_is_refused_like_any_unknown_key() {
        let error = toml::from_str::<FifoSettings>("stale = \"1s\"").unwrap_err().to_string();
        assert!(error.contains("unknown field `stale`") && error.contains("quantum"), "{error}");
    }

    #[test]
    fn a_share_is_a_whole_number_up_to_a_hundred() {
        let told =
            |core: &str| toml::from_str::<PaperSettings>(&format!("core = {core}")).unwrap_err().message().to_owned();
        assert_eq!(told("101"), "invalid value: integer `101`, expected a share in percent, 0 to 100");
        assert_eq!(told("-1"), "invalid value: integer `-1`, expected a share in percent, 0 to 100");
        assert_eq!(told("\"90\""), "invalid type: string \"90\", expected a share in percent, 0 to 100");
        assert_eq!(toml::from_str::<PaperSettings>("core = 0").unwrap().core.get(), 0);
    }
}
