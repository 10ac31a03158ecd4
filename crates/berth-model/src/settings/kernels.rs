//! The numbers by which kernels of several tenants are ordered inside one GPU. The doc comment of a field is its manual.
//!
//! Fields marked `serde(skip)` are for tests and benchmarks, as in [`super::policy`].

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::InvalidSettings;
use super::read::{choice, count, percent};
use crate::id::{GpuIndex, GpuUuid};
use crate::quantity::Percent;
use crate::slo::GoalBound;
use crate::time::Span;

/// With more one missed goal outweighs everybody within a few squads.
const MOST_ALPHA: u32 = 500;

/// Scheduling at the level of kernels, for tenants that ask for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KernelSettings {
    /// `true` listens for processes with berth's library (`berth run --kernel-level`); `false`, and nobody takes part.
    pub enabled: bool,
    /// Unix socket they attach to, in a directory of its own: containers that take part have it mounted.
    pub socket: PathBuf,
    /// The library that is mounted into containers and preloaded there.
    pub library: PathBuf,
    /// Who goes first: `jct` lets jobs end as soon as possible on average, `slo` keeps what tenants were promised (`berth.slo.*`), `hybrid`
    /// weighs both and fairness, `auto` chooses one of these for each GPU by what it measures, `off` orders nobody. `berth policy set` changes it
    /// while work runs.
    #[serde(deserialize_with = "choice")]
    pub policy: KernelPolicyName,
    /// The same for single GPUs, by index or UUID, such as `1 slo` or `GPU-1a2b3c4d off`.
    pub gpu_policies: Vec<GpuRule>,
    /// What goals may be, such as `everybody latency 5ms..`, `owner eve* reserve ..25%`, `everybody weight ..10`, `everybody memory-reserve ..8GiB` or `label tier=batch no latency`.
    /// All that apply count, since labels, and owners that labels name, are the word of whoever starts a container. A goal outside counts as
    /// the nearest inside, or not at all, and that is shown with its labels. What root has set is not bounded.
    pub bounds: Vec<GoalBound>,
    /// `true` orders the kernels of every container that is started through berth; `false` only of those that ask for it.
    pub all: bool,
    /// The longest time for which it is settled who runs beside whom, 1ms to 10ms.
    pub squad: Span,
    /// The longest a tenant that wants the GPU is passed over for others, whatever they were promised; then it is next, and of several
    /// the one that has waited longest.
    pub longest_wait: Span,
    /// How those who run at the same time share the GPU, where the host can divide it: `strict` gives each its part, `unrestricted` lets
    /// each use what it gets, `semi-spatial` gives each its part for the first half of a squad.
    #[serde(deserialize_with = "choice")]
    pub division: Division,
    /// Estimated work after which one that yields looks whether it has to: longer costs it less, and those it yields to more.
    pub grain: Span,
    /// How long those who yield are kept stopped at most once the last work of the one they yield to is known to be done: requests that queue come
    /// right after another. Of a program that waits for its work itself the pauses are learned, and it is as long as pays.
    pub linger: Span,
    /// Work of one that yields and takes longer is preempted, in the middle of a kernel, while it has to wait: where the driver lets a process do
    /// that to itself, and not under MPS. At most 1s, which is never.
    pub preempt: Span,
    /// For how long the GPU runs one that yields and has such work before it turns to another process, be it in the middle of a kernel; then that work
    /// is preempted once with each raise, and not again and again. 0us leaves it as the driver has it. Only where everybody on the GPU takes part.
    pub yield_slice: Span,
    /// The same of one that others yield to: long enough for a request.
    pub lead_slice: Span,
    /// The longest a stop is obeyed. One that lasts longer is an error of somebody's, and frees whom it stopped.
    pub longest_stop: Span,
    /// Kernels that take longer run on a part of the GPU while somebody with a goal is there, where the host can divide it.
    pub long_kernel: Span,
    /// The part of the SMs that long kernels get then, in percent.
    #[serde(deserialize_with = "percent")]
    pub long_part: Percent,
    /// The part of the time, in percent, for which one with a goal may keep others stopped that have work; with more it loses its lead for a
    /// while.
    #[serde(deserialize_with = "percent")]
    pub lead_share: Percent,
    /// One piece of work in so many is measured; 0 measures none but the first of a kind.
    #[serde(deserialize_with = "count")]
    pub sample_every: u32,
    /// Two run together only if what both get done is so much more than one after the other would, in percent.
    #[serde(deserialize_with = "percent")]
    pub pays: Percent,
    /// How fast the weight of a tenant follows its missed goals (α), in thousandths for each squad: with 20 one that misses all counts twice as much after 35
    /// squads. 0 leaves weights as people have set them; at most 500.
    #[serde(deserialize_with = "count")]
    pub alpha: u32,
    /// What work that will be late counts for `hybrid` (Q), in percent of the same work in time: 100 passes over being late.
    #[serde(deserialize_with = "percent")]
    pub late_worth: Percent,
    /// How much of the interference between two is reckoned with that have half of the SMs each (φ is 4 × both parts of the SMs × this), in percent: the
    /// most that company is taken to cost. 0 passes over interference.
    #[serde(deserialize_with = "percent")]
    pub phi: Percent,
    /// SMs are given in steps of so many.
    #[serde(skip)]
    pub sm_step: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KernelPolicyName {
    Off,
    Jct,
    Slo,
    Hybrid,
    /// One of the three, chosen for each GPU by what was measured there.
    Auto,
}

/// The policy of one GPU, as text `1 slo`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct GpuRule {
    /// Index or UUID.
    gpu: String,
    policy: KernelPolicyName,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is no policy of a GPU: write its index or UUID and one of `off`, `jct`, `slo`, `hybrid` and `auto`, such as `1 slo`"
)]
pub struct InvalidGpuRule {
    text: String,
}

/// How those who run at the same time share the SMs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Division {
    /// Each its own, to the end.
    Strict,
    /// Each uses what it can get.
    #[default]
    Unrestricted,
    /// Each its own for the first half, then what it can get: what one does not need at its end, others use.
    SemiSpatial,
}

// === impl KernelPolicyName ===

impl KernelPolicyName {
    pub const ALL: [KernelPolicyName; 5] = [Self::Off, Self::Jct, Self::Slo, Self::Hybrid, Self::Auto];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Jct => "jct",
            Self::Slo => "slo",
            Self::Hybrid => "hybrid",
            Self::Auto => "auto",
        }
    }
}

// === impl GpuRule ===

impl TryFrom<String> for GpuRule {
    type Error = InvalidGpuRule;

    fn try_from(text: String) -> Result<Self, InvalidGpuRule> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let is_gpu = |gpu: &str| gpu.parse::<u32>().is_ok() || gpu.starts_with("GPU-") || gpu.starts_with("MIG-");
        let policy = |name: &str| KernelPolicyName::ALL.into_iter().find(|policy| policy.as_str() == name);
        match words[..] {
            [gpu, name] if is_gpu(gpu) => policy(name).map(|policy| Self { gpu: gpu.to_owned(), policy }),
            _ => None,
        }
        .ok_or(InvalidGpuRule { text })
    }
}

impl From<GpuRule> for String {
    fn from(rule: GpuRule) -> String {
        format!("{} {}", rule.gpu, rule.policy.as_str())
    }
}

// === impl KernelSettings ===

impl Default for KernelSettings {
    fn default() -> Self {
        Self {
            enabled: false,
            socket: "/run/berth/shim/shim.sock".into(),
            library: "/usr/lib/berth/libberth_shim.so".into(),
            policy: KernelPolicyName::Hybrid,
            gpu_policies: Vec::new(),
            bounds: Vec::new(),
            all: false,
            squad: Span::from_millis(2),
            longest_wait: Span::from_millis(200),
            division: Division::SemiSpatial,
            grain: Span(Duration::from_micros(200)),
            linger: Span(Duration::from_micros(100)),
            preempt: Span(Duration::from_micros(200)),
            yield_slice: Span(Duration::ZERO),
            lead_slice: Span(Duration::ZERO),
            longest_stop: Span::from_millis(1_000),
            long_kernel: Span::from_millis(2),
            long_part: whole(55),
            lead_share: whole(95),
            sample_every: 512,
            pays: whole(5),
            alpha: 20,
            late_worth: whole(25),
            phi: whole(100),
            sm_step: 8,
        }
    }
}

impl KernelSettings {
    /// The policy that is set for this GPU alone.
    pub fn policy_of(&self, uuid: &GpuUuid, index: Option<GpuIndex>) -> Option<KernelPolicyName> {
        let index = index.map(|index| index.to_string());
        let rule = |gpu: &str| self.gpu_policies.iter().find(|rule| rule.gpu == gpu).map(|rule| rule.policy);
        rule(&uuid.0).or_else(|| rule(&index?))
    }

    /// What is out of range, or wrong together.
    pub(super) fn problems(&self) -> Vec<InvalidSettings> {
        let micros = |micros| Span(Duration::from_micros(micros));
        let ranges = [
            ("kernels.squad", self.squad, Span::from_millis(1), Span::from_millis(10)),
            ("kernels.longest_wait", self.longest_wait, Span::from_millis(10), Span::from_millis(60_000)),
            ("kernels.grain", self.grain, micros(10), Span::from_millis(10)),
            ("kernels.linger", self.linger, micros(1), Span::from_millis(10)),
            ("kernels.preempt", self.preempt, micros(100), Span::from_millis(1_000)),
            ("kernels.yield_slice", self.yield_slice, Span(Duration::ZERO), Span::from_millis(10)),
            ("kernels.lead_slice", self.lead_slice, Span(Duration::ZERO), Span::from_millis(20)),
            ("kernels.longest_stop", self.longest_stop, Span::from_millis(10), Span::from_millis(60_000)),
            ("kernels.long_kernel", self.long_kernel, micros(100), Span::from_millis(1_000)),
        ];
        let out_of_range = ranges.into_iter().filter_map(|(key, value, least, most)| {
            let (low, high, value) = (value < least, value > most, value.to_string());
            let (least, most) = (least.to_string(), most.to_string());
            if low {
                Some(InvalidSettings::TooSmall { key, value, least })
            } else {
                high.then_some(InvalidSettings::TooLarge { key, value, most })
            }
        });
        let nothing = (self.long_part.get() == 0).then(|| {
            let (value, least) = ("0".to_owned(), "1".to_owned());
            InvalidSettings::TooSmall { key: "kernels.long_part", value, least }
        });
        let fast = (self.alpha > MOST_ALPHA).then(|| {
            let (value, most) = (self.alpha.to_string(), MOST_ALPHA.to_string());
            InvalidSettings::TooLarge { key: "kernels.alpha", value, most }
        });
        // A stop that ends by itself before its turn comes would be no turn.
        let freed = (self.longest_wait > self.longest_stop).then(|| {
            let (value, limit) = (self.longest_wait.to_string(), self.longest_stop.to_string());
            InvalidSettings::Above { key: "kernels.longest_wait", value, other: "kernels.longest_stop", limit }
        });
        out_of_range.chain(nothing).chain(fast).chain(freed).collect()
    }
}

fn whole(percent: u32) -> Percent {
    Percent::checked(percent).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_in_range() {
        assert_eq!(KernelSettings::default().problems(), []);
    }

    #[test]
    fn what_is_out_of_range_is_told_with_what_would_be_right() {
        let read: KernelSettings = toml::from_str(
            "policy = \"jct\"\nsquad = \"20ms\"\ngrain = \"1us\"\nlong_part = 0\nalpha = 501\nlongest_wait = \"2s\"",
        )
        .unwrap();
        assert_eq!(read.policy, KernelPolicyName::Jct);
        let told: Vec<_> = read.problems().iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "kernels.squad is 20ms: must be at most 10ms",
                "kernels.grain is 1us: must be at least 10us",
                "kernels.long_part is 0: must be at least 1",
                "kernels.alpha is 501: must be at most 500",
                "kernels.longest_wait is 2s: must not be above kernels.longest_stop (1s)",
            ]
        );
    }

    #[test]
    fn a_gpu_may_have_a_policy_of_its_own_by_index_or_uuid() {
        let read: KernelSettings = toml::from_str("gpu_policies = [\"1 slo\", \"GPU-a off\"]").unwrap();
        let of = |uuid: &str, index| read.policy_of(&GpuUuid(uuid.into()), Some(GpuIndex(index)));
        assert_eq!((of("GPU-b", 1), of("GPU-b", 0)), (Some(KernelPolicyName::Slo), None));
        assert_eq!(of("GPU-a", 1), Some(KernelPolicyName::Off), "a UUID says more than an index");
        for wrong in ["one slo", "1 sjf", "1", "slo"] {
            let told = GpuRule::try_from(wrong.to_owned()).unwrap_err().to_string();
            assert!(told.contains(&format!("`{wrong}`")) && told.contains("`1 slo`"), "{told}");
        }
    }

    #[test]
    fn a_policy_nobody_knows_is_refused_with_those_there_are() {
        let told = toml::from_str::<KernelSettings>("policy = \"sjf\"").unwrap_err().to_string();
        assert!(["`off`", "`jct`", "`slo`", "`hybrid`"].iter().all(|name| told.contains(name)), "{told}");
    }
}
