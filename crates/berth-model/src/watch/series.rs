//! What is measured over time: whose it is, which figure, and its values, alone or many as one.
//!
//! A value that is measured is a [`Bucket`] of one. As it gets older it is put together with its neighbours: sums and counts
//! stay, so do the least and the greatest; which came first does not. Who may see a series is part of what it is: it stays so
//! when the tenant is gone.

use serde::{Deserialize, Serialize};

use crate::control::{Caller, is_called, may_be_called};
use crate::id::{GpuUuid, TenantKey};

/// Users kept of a tenant; one with more is for administrators alone.
const MOST_UIDS: usize = 8;
/// Bytes of a name that are kept.
const LONGEST_NAME: usize = 128;

/// A figure, in the unit of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Share of the GPU's time, 0 to 100.
    CorePct,
    MemoryBytes,
    /// How long a unit of work took.
    UnitSeconds,
    /// What was left of a unit's deadline when it ended; below zero it was late.
    FloatSeconds,
    /// Of the time since the last value, the part in which it was held, 0 to 1.
    HeldShare,
    /// 1 for a unit in time, 0 for a late one.
    InTime,
    /// What was left of a unit's deadline when it ended, as a part of it.
    Slack,
    /// GPU time of a unit, as if it were alone.
    ActiveSeconds,
    /// How well its goals at the level of kernels were kept of late, 0 to 1.
    Attainment,
    /// Share of the memory's bandwidth that is used: of a GPU all the time, of a tenant while it runs; 0 to 1.
    BandwidthShare,
    /// How far behind it was at the most before it got on again: seconds of its fair share, for each other that had work.
    WaitSeconds,
    /// The same of its kernels inside a GPU, where others' went first.
    KernelWaitSeconds,
    /// How long it was held while nobody else computed, when that was over.
    IdleHoldSeconds,
    /// How much longer a unit took than was expected, as a natural logarithm; below zero it was shorter.
    PredictorError,
    /// What its owner says of it, −1 to 1.
    Feedback,
}

/// One line through time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Key {
    pub of: Of,
    /// `None` where the figure is not of one GPU.
    pub gpu: Option<GpuUuid>,
    pub metric: Metric,
}

/// Whose figure it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "of", rename_all = "lowercase")]
pub enum Of {
    Tenant {
        tenant: TenantKey,
        /// What people call it.
        name: String,
        owner: Owner,
    },
    /// The GPU's own, of everybody on it.
    Gpu,
    /// Of tenants that are not told apart any more: there were too many.
    Others,
}

/// Whose a tenant was when the value was measured.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Owner {
    /// As a label of its container names it.
    pub named: Option<String>,
    /// The users its processes ran as, ascending, each once; `None` is one who is not known.
    pub uids: Vec<Option<u32>>,
}

/// Values of one series, put together.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Bucket {
    /// Its beginning, in milliseconds since 1970.
    pub at_ms: i64,
    /// Length in milliseconds; 0 is an instant.
    pub width_ms: u32,
    pub count: u64,
    pub sum: f64,
    pub min: f64,
    pub max: f64,
}

/// Which values are asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SeriesQuery {
    /// A tenant as people call it; `None`: everybody's.
    pub whom: Option<String>,
    /// `None`: every figure.
    pub metric: Option<Metric>,
    /// From this instant on, before that one, in milliseconds since 1970.
    pub from_ms: Option<i64>,
    pub until_ms: Option<i64>,
    /// Put together to at least so many milliseconds each.
    pub step_ms: Option<u32>,
}

/// One series, oldest value first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    #[serde(flatten)]
    pub key: Key,
    pub values: Vec<Bucket>,
}

/// The answer to a [`SeriesQuery`].
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SeriesTold {
    pub lines: Vec<Line>,
    /// There is more than an answer may have: ask for a shorter time, or longer steps.
    pub is_cut: bool,
    /// Records that cannot be read, and are left out.
    pub damaged: u64,
}

impl Metric {
    pub const ALL: [Metric; 15] = [
        Metric::CorePct,
        Metric::MemoryBytes,
        Metric::UnitSeconds,
        Metric::FloatSeconds,
        Metric::HeldShare,
        Metric::InTime,
        Metric::Slack,
        Metric::ActiveSeconds,
        Metric::Attainment,
        Metric::BandwidthShare,
        Metric::WaitSeconds,
        Metric::KernelWaitSeconds,
        Metric::IdleHoldSeconds,
        Metric::PredictorError,
        Metric::Feedback,
    ];

    /// As in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Metric::CorePct => "core_pct",
            Metric::MemoryBytes => "memory_bytes",
            Metric::UnitSeconds => "unit_seconds",
            Metric::FloatSeconds => "float_seconds",
            Metric::HeldShare => "held_share",
            Metric::InTime => "in_time",
            Metric::Slack => "slack",
            Metric::ActiveSeconds => "active_seconds",
            Metric::Attainment => "attainment",
            Metric::BandwidthShare => "bandwidth_share",
            Metric::WaitSeconds => "wait_seconds",
            Metric::KernelWaitSeconds => "kernel_wait_seconds",
            Metric::IdleHoldSeconds => "idle_hold_seconds",
            Metric::PredictorError => "predictor_error",
            Metric::Feedback => "feedback",
        }
    }
}

impl Key {
    /// The same figure of nobody in particular.
    pub fn folded(&self) -> Key {
        Key { of: Of::Others, gpu: self.gpu.clone(), metric: self.metric }
    }

    /// A GPU's own figures are for everybody who may ask at all; of tenants that are not told apart nobody but an administrator
    /// can be told anything, since it is of several.
    pub fn is_visible_to(&self, caller: &Caller) -> bool {
        match &self.of {
            Of::Tenant { owner, .. } => caller.may_act_on(owner.named.as_deref(), &owner.uids),
            Of::Gpu => true,
            Of::Others => caller.is_admin,
        }
    }
}

impl SeriesQuery {
    /// `Some(true)`: it is surely meant, `Some(false)`: it may be.
    pub fn meant(&self, key: &Key) -> Option<bool> {
        if self.metric.is_some_and(|metric| metric != key.metric) {
            return None;
        }
        let Some(whom) = &self.whom else { return Some(true) };
        let Of::Tenant { tenant, name, .. } = &key.of else { return None };
        match (is_called(tenant, name, whom), may_be_called(tenant, whom)) {
            (true, _) => Some(true),
            (false, true) => Some(false),
            (false, false) => None,
        }
    }

    pub fn covers(&self, value: &Bucket) -> bool {
        self.from_ms
            .is_none_or(|from| value.at_ms.saturating_add(i64::from(value.width_ms)) > from || value.at_ms == from)
            && self.until_ms.is_none_or(|until| value.at_ms < until)
    }
}

impl Of {
    pub fn tenant(tenant: TenantKey, name: &str, owner: Owner) -> Self {
        let end = name.floor_char_boundary(LONGEST_NAME);
        Of::Tenant { tenant, name: name[..end].to_owned(), owner }
    }
}

impl Owner {
    pub fn new(named: Option<String>, mut uids: Vec<Option<u32>>) -> Self {
        uids.sort_unstable();
        uids.dedup();
        if uids.len() > MOST_UIDS {
            uids = vec![None];
        }
        Self { named, uids }
    }
}

impl Bucket {
    pub fn point(at_ms: i64, value: f64) -> Self {
        Self { at_ms, width_ms: 0, count: 1, sum: value, min: value, max: value }
    }

    pub fn mean(&self) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "as many values as that nobody has measured")]
        let count = self.count as f64;
        (self.count > 0).then(|| self.sum / count)
    }

    /// The beginning of the stretch of that length its own beginning lies in. 0 leaves instants apart.
    pub fn stretch(&self, width_ms: u32) -> i64 {
        if width_ms == 0 { self.at_ms } else { self.at_ms - self.at_ms.rem_euclid(i64::from(width_ms)) }
    }

    /// As one that begins with its stretch of that length; longer ones stay as they are.
    pub fn widened(&self, width_ms: u32) -> Self {
        if width_ms <= self.width_ms {
            return *self;
        }
        Self { at_ms: self.stretch(width_ms), width_ms, ..*self }
    }

    /// Both as one, of this one's stretch.
    pub fn add(&mut self, other: &Bucket) {
        self.count = self.count.saturating_add(other.count);
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(named: Option<&str>, uids: Vec<Option<u32>>) -> Key {
        let owner = Owner::new(named.map(str::to_owned), uids);
        Key { of: Of::tenant(TenantKey::User { uid: 7 }, "ada", owner), gpu: None, metric: Metric::CorePct }
    }

    fn caller(uid: u32, user: &str) -> Caller {
        Caller { uid, user: Some(user.to_owned()), is_admin: uid == 0 }
    }

    #[test]
    fn a_tenant_s_figures_are_for_its_owner_and_administrators() {
        let labelled = key(Some("ada"), vec![Some(0)]);
        assert!(labelled.is_visible_to(&caller(1000, "ada")) && labelled.is_visible_to(&caller(0, "root")));
        assert!(!labelled.is_visible_to(&caller(1001, "eve")));
        let bare = key(None, vec![Some(1000)]);
        assert!(bare.is_visible_to(&caller(1000, "ada")) && !bare.is_visible_to(&caller(1001, "eve")));
    }

    #[test]
    fn what_is_of_several_is_for_administrators_alone() {
        let folded = key(Some("ada"), vec![]).folded();
        assert!(!folded.is_visible_to(&caller(1000, "ada")) && folded.is_visible_to(&caller(0, "root")));
        let crowded = key(None, (0..100).map(|_| Some(1000)).chain((0..20).map(Some)).collect());
        assert!(!crowded.is_visible_to(&caller(1000, "ada")));
    }

    #[test]
    fn a_name_of_any_length_and_letters_is_cut_between_letters() {
        let Of::Tenant { name, .. } =
            Of::tenant(TenantKey::User { uid: 7 }, &"ü".repeat(100), Owner::new(None, vec![]))
        else {
            panic!("a tenant's")
        };
        assert_eq!(name, "ü".repeat(64));
    }

    #[test]
    fn every_metric_is_called_in_json_what_it_is_called() {
        for metric in Metric::ALL {
            assert_eq!(serde_json::to_string(&metric).unwrap(), format!("\"{}\"", metric.as_str()));
        }
    }

    proptest! {
        #[test]
        fn a_stretch_holds_its_instant(at_ms in any::<i32>(), width_ms in 1_u32..5_000_000) {
            let point = Bucket::point(i64::from(at_ms), 1.0);
            let wide = point.widened(width_ms);
            prop_assert!(wide.at_ms <= point.at_ms && point.at_ms < wide.at_ms + i64::from(width_ms));
            prop_assert_eq!((wide.count, wide.sum), (1, 1.0));
        }
    }
}
