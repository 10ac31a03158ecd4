//! What the loop knows of a tenant that the level of kernels has to: whether it takes part, what it was promised, where it is.

use std::collections::{BTreeMap, BTreeSet};

use berth_model::settings::KernelSettings;
use berth_model::snapshot::TaskRow;
use berth_model::{GpuUuid, ProcessKind, Slo, TenantKey};

/// By which a container asks to take part.
pub const LABEL: &str = "berth.kernel-level";

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Standing {
    pub name: String,
    pub owner: Option<String>,
    /// `None`: not known yet.
    pub takes_part: Option<bool>,
    pub slo: Slo,
    /// Labels that could not be read, in words.
    pub wrong: Vec<String>,
    /// Where the driver has seen it.
    pub gpus: BTreeSet<GpuUuid>,
    /// Its processes compute through MPS, and so beside others.
    pub is_mps: bool,
    /// berth or somebody else keeps it off the GPU, or is about to.
    pub is_held: bool,
}

/// `set`: what a person has said goes before the labels.
pub(crate) fn standing(
    tenant: &TenantKey,
    rows: &[TaskRow],
    labels: Option<&BTreeMap<String, String>>,
    set: Option<&Slo>,
    settings: &KernelSettings,
) -> Standing {
    let own: Vec<&TaskRow> = rows.iter().filter(|row| row.tenant.is(tenant)).collect();
    let (by_labels, wrong) = labels.map(Slo::from_labels).unwrap_or_default();
    Standing {
        name: own.first().map_or_else(|| tenant.to_string(), |row| row.container_name.clone()),
        owner: own.first().and_then(|row| row.owner.clone()),
        takes_part: takes_part(tenant, labels, settings),
        slo: set.cloned().unwrap_or(by_labels),
        wrong: wrong.iter().map(ToString::to_string).collect(),
        gpus: own.iter().filter_map(|row| row.gpu_uuid.clone()).collect(),
        is_held: false,
        is_mps: own.iter().any(|row| row.process_kinds.contains(&ProcessKind::MpsClient)),
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

    #[test]
    fn what_a_person_said_goes_before_labels() {
        let tenant = TenantKey::User { uid: 7 };
        let labels = BTreeMap::from([("berth.slo.weight".to_owned(), "7".to_owned())]);
        let settings = KernelSettings::default();
        let by_label = standing(&tenant, &[], Some(&labels), None, &settings);
        assert_eq!(by_label.slo.weight.get(), 7.0);
        let set = standing(&tenant, &[], Some(&labels), Some(&Slo::default()), &settings);
        assert_eq!(set.slo, Slo::default());
    }
}
