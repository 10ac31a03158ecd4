//! What the loop knows of a tenant that the level of kernels has to: whether it takes part, what it was promised, where it is.

use std::collections::{BTreeMap, BTreeSet};

use berth_model::deadline::Who;
use berth_model::settings::KernelSettings;
use berth_model::slo::{GoalBound, Weight, heaviest, within};
use berth_model::snapshot::TaskRow;
use berth_model::watch::Kind;
use berth_model::{Bytes, GpuUuid, ProcessKind, Slo, TenantKey};
use berth_policy::kernels::Voice;
use berth_store::slos::SetSlo;

use crate::watch::Noticed;

/// By which a container asks to take part.
pub const LABEL: &str = "berth.kernel-level";

#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Standing {
    pub name: String,
    pub owner: Option<String>,
    /// `None`: not known yet.
    pub takes_part: Option<bool>,
    pub slo: Slo,
    /// Labels that could not be read, goals that the bounds change, and what became of those that are to be learned, in words.
    pub wrong: Vec<String>,
    /// Where the driver has seen it.
    pub gpus: BTreeSet<GpuUuid>,
    /// Its processes compute through MPS, and so beside others.
    pub is_mps: bool,
    /// berth or somebody else keeps it off the GPU, or is about to.
    pub is_held: bool,
    /// How much it counts, by what its owner says of how it does and by what is found of it.
    pub voice: Voice,
    /// What is found of it for which it counts for more.
    pub urged_by: Vec<Kind>,
    /// Its work takes longer or shorter than is expected, again and again.
    pub is_misjudged: bool,
}

/// What was said of a tenant, by labels and by persons.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Terms {
    pub takes_part: Option<bool>,
    pub slo: Slo,
    pub wrong: Vec<String>,
    /// The most it may count, where a bound says so.
    pub heaviest: Option<Weight>,
}

/// `said`: what a person has said goes before the labels. Whoever said it, the bounds count, unless it was root. `seen`: the most device memory
/// that the like of it took before.
pub(crate) fn terms(
    tenant: &TenantKey,
    labels: Option<&BTreeMap<String, String>>,
    owners: &[String],
    said: Option<&SetSlo>,
    settings: &KernelSettings,
    seen: Option<Bytes>,
) -> Terms {
    let (by_labels, wrong) = labels.map(Slo::from_labels).unwrap_or_default();
    let mut wrong: Vec<String> = wrong.iter().map(ToString::to_string).collect();
    let mut asked = said.map_or(by_labels, |said| said.slo.clone());
    wrong.extend(asked.learn(seen));
    let bounds: &[GoalBound] = if said.is_some_and(|said| said.by_uid == 0) { &[] } else { &settings.bounds };
    let who = Who { labels, owners, given: None };
    let (slo, outside) = within(bounds, who, asked);
    wrong.extend(outside);
    Terms { takes_part: takes_part(tenant, labels, settings), slo, wrong, heaviest: heaviest(bounds, who) }
}

/// What words make of a weight fades all the time, and counts by the hundredth. Neither they nor findings lift a weight beyond a bound.
pub(crate) fn standing(
    tenant: &TenantKey,
    rows: &[TaskRow],
    terms: Terms,
    is_held: bool,
    noticed: Noticed,
) -> Standing {
    let own: Vec<&TaskRow> = rows.iter().filter(|row| row.tenant.is(tenant)).collect();
    let Terms { takes_part, slo, wrong, heaviest } = terms;
    let Noticed { weight, urged_by, is_misjudged } = noticed;
    let most = heaviest.map_or(f64::INFINITY, |heaviest| heaviest.get() / slo.weight.get());
    Standing {
        name: own.first().map_or_else(|| tenant.to_string(), |row| row.container_name.clone()),
        owner: own.first().and_then(|row| row.owner.clone()),
        takes_part,
        slo,
        wrong,
        gpus: own.iter().filter_map(|row| row.gpu_uuid.clone()).collect(),
        is_mps: own.iter().any(|row| row.process_kinds.contains(&ProcessKind::MpsClient)),
        is_held,
        voice: Voice::new(((weight * 100.0).round() / 100.0).min(most)),
        urged_by,
        is_misjudged,
    }
}

/// A container asks by its label; whoever is none asks by attaching.
fn takes_part(
    tenant: &TenantKey,
    labels: Option<&BTreeMap<String, String>>,
    settings: &KernelSettings,
) -> Option<bool> {
    if settings.all || tenant.container_id().is_none() {
        return Some(true);
    }
    labels.map(|labels| labels.get(LABEL).is_some_and(|value| value == "true"))
}

#[cfg(test)]
mod tests {
    use berth_model::slo::MemorySize;
    use berth_model::{ContainerId, Runtime};

    use super::*;

    #[test]
    fn a_container_takes_part_by_its_label_and_others_by_attaching() {
        let container = TenantKey::Container { runtime: Runtime::Docker, id: ContainerId("a".repeat(64)) };
        let settings = KernelSettings::default();
        let label = |value: &str| BTreeMap::from([(LABEL.to_owned(), value.to_owned())]);
        let asks = |labels: Option<&BTreeMap<_, _>>| takes_part(&container, labels, &settings);
        assert_eq!(asks(None), None, "nobody knows yet");
        assert_eq!(asks(Some(&BTreeMap::new())), Some(false));
        assert_eq!(asks(Some(&label("true"))), Some(true));
        assert_eq!(asks(Some(&label("false"))), Some(false));
        let all = KernelSettings { all: true, ..settings.clone() };
        assert_eq!(takes_part(&container, None, &all), Some(true));
        assert_eq!(takes_part(&TenantKey::User { uid: 7 }, None, &settings), Some(true));
    }

    fn noticed(weight: f64) -> Noticed {
        Noticed { weight, urged_by: vec![], is_misjudged: false }
    }

    #[test]
    fn words_that_fade_are_told_by_the_hundredth() {
        let voice = |weight| standing(&TenantKey::User { uid: 7 }, &[], Terms::default(), false, noticed(weight)).voice;
        assert_eq!((voice(1.0871), voice(1.0869)), (Voice::new(1.09), Voice::new(1.09)));
        assert_eq!(voice(1.0), Voice::default());
    }

    #[test]
    fn neither_words_nor_findings_lift_a_weight_beyond_its_bound() {
        let tenant = TenantKey::User { uid: 7 };
        let voice = |bound: &str, weight: &str| {
            let labels = BTreeMap::from([("berth.slo.weight".to_owned(), weight.to_owned())]);
            let settings = KernelSettings { bounds: vec![bound.parse().unwrap()], ..KernelSettings::default() };
            let terms = terms(&tenant, Some(&labels), &[], None, &settings, None);
            standing(&tenant, &[], terms, false, noticed(1.5)).voice
        };
        assert_eq!(voice("everybody weight ..10", "10"), Voice::default());
        assert_eq!(voice("everybody weight ..10", "8"), Voice::new(1.25));
        assert_eq!(voice("everybody weight ..10", "4"), Voice::new(1.5));
        assert_eq!(voice("owner eve weight ..10", "10"), Voice::new(1.5), "it is not for this one");
    }

    #[test]
    fn what_a_person_said_goes_before_labels_and_bounds_count_for_all_but_root() {
        let tenant = TenantKey::User { uid: 7 };
        let labels = BTreeMap::from([("berth.slo.latency".to_owned(), "p99:1ms".to_owned())]);
        let bounds = vec!["everybody latency 5ms..".parse().unwrap()];
        let settings = KernelSettings { bounds, ..KernelSettings::default() };
        let counts = |said: Option<&SetSlo>| {
            let terms = terms(&tenant, Some(&labels), &[], said, &settings, None);
            (terms.slo.latency.map(|latency| latency.to_string()), terms.wrong.len())
        };
        assert_eq!(counts(None), (Some("p99:5ms".to_owned()), 1));
        let (slo, at) = (Slo::from_labels(&labels).0, jiff::Timestamp::UNIX_EPOCH);
        let said = |by_uid| SetSlo { tenant: tenant.clone(), name: String::new(), slo: slo.clone(), by_uid, at };
        assert_eq!(counts(Some(&said(7))), (Some("p99:5ms".to_owned()), 1));
        assert_eq!(counts(Some(&said(0))), (Some("p99:1ms".to_owned()), 0));
        assert_eq!(counts(Some(&SetSlo { slo: Slo::default(), ..said(7) })), (None, 0));
    }

    #[test]
    fn what_is_learned_is_bounded_like_what_is_stated() {
        let labels = BTreeMap::from([("berth.slo.memory-reserve".to_owned(), "auto".to_owned())]);
        let bounds = vec!["everybody memory-reserve ..4GB".parse().unwrap()];
        let settings = KernelSettings { bounds, ..KernelSettings::default() };
        let counts = |seen| {
            let terms = terms(&TenantKey::User { uid: 7 }, Some(&labels), &[], None, &settings, seen);
            (terms.slo.memory_reserve.and_then(MemorySize::stated), terms.wrong.len())
        };
        assert_eq!(counts(None), (None, 1), "nothing is known, and that is told");
        assert_eq!(counts(Some(Bytes(800_000_000))), (Some(Bytes(900_000_000)), 1));
        assert_eq!(counts(Some(Bytes(8_000_000_000))), (Some(Bytes(4_000_000_000)), 2));
    }
}
