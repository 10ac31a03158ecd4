//! Which policy plans on which GPU: one for all, and some GPUs may have their own.

use std::collections::BTreeMap;

use berth_model::kernels::GpuPolicy;
use berth_model::settings::{KernelPolicyName, KernelSettings};
use berth_model::{GpuIndex, GpuUuid};
use berth_policy::kernels::{self, KernelPolicy};

#[derive(Debug)]
pub(super) struct Policies {
    all: Chosen,
    own: BTreeMap<GpuUuid, Chosen>,
    /// Somebody has said what counts for all, so what the settings say of single GPUs does not.
    is_set_for_all: bool,
}

#[derive(Debug)]
struct Chosen {
    name: KernelPolicyName,
    policy: Option<Box<dyn KernelPolicy>>,
}

impl Policies {
    pub fn new(settings: &KernelSettings) -> Self {
        Self { all: Chosen::new(settings.policy, settings), own: BTreeMap::new(), is_set_for_all: false }
    }

    /// `None`: on all GPUs, also those that have their own.
    pub fn set(&mut self, gpu: Option<GpuUuid>, name: KernelPolicyName, settings: &KernelSettings) {
        let chosen = Chosen::new(name, settings);
        match gpu {
            Some(gpu) => drop(self.own.insert(gpu, chosen)),
            None => {
                self.own.clear();
                (self.all, self.is_set_for_all) = (chosen, true);
            }
        }
    }

    /// GPUs that the settings name get what those say, unless somebody has said otherwise.
    pub fn meet(&mut self, gpus: &BTreeMap<GpuUuid, GpuIndex>, settings: &KernelSettings) {
        for (uuid, index) in gpus.iter().filter(|_| !self.is_set_for_all) {
            if let Some(name) = settings.policy_of(uuid, Some(*index)) {
                self.own.entry(uuid.clone()).or_insert_with(|| Chosen::new(name, settings));
            }
        }
    }

    /// `None` where nobody is ordered.
    pub fn of(&self, gpu: &GpuUuid) -> Option<&dyn KernelPolicy> {
        self.own.get(gpu).unwrap_or(&self.all).policy.as_deref()
    }

    pub fn for_all(&self) -> KernelPolicyName {
        self.all.name
    }

    pub fn shown(&self, indices: &BTreeMap<GpuUuid, GpuIndex>) -> Vec<GpuPolicy> {
        let own = self.own.iter().map(|(uuid, chosen)| GpuPolicy {
            gpu_index: indices.get(uuid).copied(),
            gpu_uuid: uuid.clone(),
            policy: chosen.name,
        });
        let mut own: Vec<GpuPolicy> = own.collect();
        own.sort_by_key(|one| one.gpu_index);
        own
    }
}

impl Chosen {
    fn new(name: KernelPolicyName, settings: &KernelSettings) -> Self {
        Self { name, policy: kernels::named(name, settings) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(name: &str) -> GpuUuid {
        GpuUuid(name.into())
    }

    #[test]
    fn a_gpu_has_its_own_policy_until_one_is_set_for_all() {
        let gpu_policies = vec!["1 off".to_owned().try_into().unwrap()];
        let settings = KernelSettings { gpu_policies, ..KernelSettings::default() };
        let gpus: BTreeMap<GpuUuid, GpuIndex> = [(gpu("a"), GpuIndex(0)), (gpu("b"), GpuIndex(1))].into();
        let mut policies = Policies::new(&settings);
        policies.meet(&gpus, &settings);
        let names = |policies: &Policies| ["a", "b"].map(|of| policies.of(&gpu(of)).map(|policy| policy.name()));
        assert_eq!(names(&policies), [Some("hybrid"), None], "as the settings say");
        policies.set(Some(gpu("a")), KernelPolicyName::Slo, &settings);
        policies.meet(&gpus, &settings);
        assert_eq!(names(&policies), [Some("slo"), None]);
        assert_eq!(policies.shown(&gpus).len(), 2);
        policies.set(None, KernelPolicyName::Jct, &settings);
        policies.meet(&gpus, &settings);
        assert_eq!((names(&policies), policies.shown(&gpus)), ([Some("jct"), Some("jct")], vec![]));
    }
}
