//! Which policy plans on which GPU: one for all, and some GPUs may have their own; and where `auto` counts, what it chose.

use std::collections::BTreeMap;

use berth_model::kernels::{AutoChoice, GpuPolicy, PolicyChosen};
use berth_model::settings::{KernelPolicyName, KernelSettings};
use berth_model::{Anchor, GpuIndex, GpuUuid, Mono};
use berth_policy::kernels::{self, KernelPolicy};

use super::choosing::{self, Choosing};
use super::measure::Seen;

#[derive(Debug)]
pub(super) struct Policies {
    all: Chosen,
    own: BTreeMap<GpuUuid, Chosen>,
    /// What `auto` has measured, also where another policy was named since. Only of GPUs on which a window was over: a client can name any.
    choosing: BTreeMap<GpuUuid, Choosing>,
    /// Somebody has said what counts for all, so what the settings say of single GPUs does not.
    is_set_for_all: bool,
}

#[derive(Debug)]
struct Chosen {
    name: KernelPolicyName,
    /// Of `auto` the one it begins with.
    policy: Option<Box<dyn KernelPolicy>>,
}

impl Policies {
    pub fn new(settings: &KernelSettings) -> Self {
        let all = Chosen::new(settings.policy, settings);
        Self { all, own: BTreeMap::new(), choosing: BTreeMap::new(), is_set_for_all: false }
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
        let chosen = self.chosen(gpu);
        let by_figures = self.choosing.get(gpu).filter(|_| chosen.name == KernelPolicyName::Auto);
        by_figures.map_or(chosen.policy.as_deref(), Choosing::policy)
    }

    pub fn is_auto(&self, gpu: &GpuUuid) -> bool {
        self.chosen(gpu).name == KernelPolicyName::Auto
    }

    /// The one that plans there: where `auto` counts, what that has chosen.
    pub fn in_place(&self, gpu: &GpuUuid) -> KernelPolicyName {
        let by_figures = || self.choosing.get(gpu).map_or(choosing::FIRST, Choosing::in_place);
        if self.is_auto(gpu) { by_figures() } else { self.chosen(gpu).name }
    }

    /// A window is over on a GPU. The change, if `auto` chooses there and another policy is in place now.
    pub fn window(&mut self, gpu: &GpuUuid, seen: &Seen, settings: &KernelSettings, now: Mono) -> Option<PolicyChosen> {
        if !self.is_auto(gpu) {
            return None;
        }
        let choosing = self.choosing.entry(gpu.clone()).or_insert_with(|| Choosing::new(settings));
        choosing.window(gpu, seen, settings, now)
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

    /// What `auto` has in place on a GPU; `None` where a policy was named.
    pub fn choice(
        &self,
        gpu: &GpuUuid,
        index: Option<GpuIndex>,
        settings: &KernelSettings,
        anchor: &Anchor,
    ) -> Option<AutoChoice> {
        self.is_auto(gpu).then(|| match self.choosing.get(gpu) {
            Some(choosing) => choosing.shown(gpu, index, anchor),
            None => Choosing::new(settings).shown(gpu, index, anchor),
        })
    }

    fn chosen(&self, gpu: &GpuUuid) -> &Chosen {
        self.own.get(gpu).unwrap_or(&self.all)
    }
}

impl Chosen {
    fn new(name: KernelPolicyName, settings: &KernelSettings) -> Self {
        let plans = if name == KernelPolicyName::Auto { choosing::FIRST } else { name };
        Self { name, policy: kernels::named(plans, settings) }
    }
}

#[cfg(test)]
mod tests {
    use berth_policy::kernels::auto::Window;

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

    #[test]
    fn auto_chooses_for_each_gpu_and_what_it_learned_outlives_a_policy_that_was_named() {
        let settings = KernelSettings { policy: KernelPolicyName::Auto, ..KernelSettings::default() };
        let mut policies = Policies::new(&settings);
        let name = |policies: &Policies, of: &str| policies.of(&gpu(of)).map(|policy| policy.name());
        assert_eq!((name(&policies, "a"), name(&policies, "b")), (Some("hybrid"), Some("hybrid")));
        let seen = Seen::of(Window { goodput: 1.0, kept: None, fairness: None, slowdown: None });
        let change = policies.window(&gpu("a"), &seen, &settings, Mono(1)).expect("another is tried");
        assert_eq!((name(&policies, "a"), name(&policies, "b")), (Some(change.policy.as_str()), Some("hybrid")));
        let choice = |policies: &Policies, of: &str| {
            policies.choice(&gpu(of), None, &settings, &berth_host::clock::anchor()).map(|choice| choice.windows)
        };
        assert_eq!((choice(&policies, "a"), choice(&policies, "b")), (Some(1), Some(0)));
        assert_eq!((policies.in_place(&gpu("a")), policies.in_place(&gpu("b"))), (change.policy, choosing::FIRST));
        policies.set(None, KernelPolicyName::Jct, &settings);
        assert_eq!((name(&policies, "a"), choice(&policies, "a")), (Some("jct"), None));
        assert_eq!(
            policies.window(&gpu("a"), &seen, &settings, Mono(2)),
            None,
            "it is measured, and nothing is chosen"
        );
        assert_eq!(policies.in_place(&gpu("a")), KernelPolicyName::Jct);
        policies.set(Some(gpu("a")), KernelPolicyName::Auto, &settings);
        assert_eq!((name(&policies, "a"), choice(&policies, "a")), (Some(change.policy.as_str()), Some(1)));
        assert_eq!((name(&policies, "b"), choice(&policies, "b")), (Some("jct"), None));
    }
}
