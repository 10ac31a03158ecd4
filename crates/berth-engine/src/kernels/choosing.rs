//! `auto` on one GPU: which policy it has in place, and why.
//!
//! What is decided is decided by `berth_policy::kernels::auto`, by windows that `measure` fills. What was measured outlives a policy that somebody names
//! meanwhile.

use berth_model::kernels::{AutoChoice, PolicyChosen, PolicyFigures, WindowFigures};
use berth_model::settings::{KernelPolicyName, KernelSettings};
use berth_model::{Anchor, GpuIndex, GpuUuid, Mono};
use berth_policy::kernels::auto::{Auto, CHOICES, Reason};
use berth_policy::kernels::{self, KernelPolicy};

use super::measure::Seen;

/// What is in place until something was measured.
pub(super) const FIRST: KernelPolicyName = CHOICES[0];

#[derive(Debug)]
pub(super) struct Choosing {
    auto: Auto,
    policy: Option<Box<dyn KernelPolicy>>,
    /// Why the one in place was put there, and when.
    because: Option<(Reason, Mono)>,
    latest: Option<WindowFigures>,
}

impl Choosing {
    pub fn new(settings: &KernelSettings) -> Self {
        Self { auto: Auto::new(FIRST), policy: kernels::named(FIRST, settings), because: None, latest: None }
    }

    pub fn policy(&self) -> Option<&dyn KernelPolicy> {
        self.policy.as_deref()
    }

    pub fn in_place(&self) -> KernelPolicyName {
        self.auto.policy()
    }

    /// A window is over. The change, if another policy is in place now. Nothing is decided by one that cannot be compared with others.
    pub fn window(&mut self, gpu: &GpuUuid, seen: &Seen, settings: &KernelSettings, now: Mono) -> Option<PolicyChosen> {
        let before = self.auto.policy();
        self.latest = Some(seen.figures(before));
        if !seen.counts {
            return None;
        }
        let choice = self.auto.window(&seen.window);
        let since = self.because.filter(|_| choice.policy == before).map_or(now, |(_, since)| since);
        self.because = Some((choice.because, since));
        if choice.policy == before {
            return None;
        }
        self.policy = kernels::named(choice.policy, settings);
        Some(PolicyChosen {
            gpu: None,
            gpu_uuid: gpu.clone(),
            policy: choice.policy,
            before,
            is_try: self.auto.instead_of().is_some(),
            reason: choice.because.to_string(),
            measured: self.measured(),
            at: now,
        })
    }

    pub fn shown(&self, gpu_uuid: &GpuUuid, gpu_index: Option<GpuIndex>, anchor: &Anchor) -> AutoChoice {
        AutoChoice {
            gpu_index,
            gpu_uuid: gpu_uuid.clone(),
            policy: self.auto.policy(),
            instead_of: self.auto.instead_of(),
            reason: self.because.map_or_else(|| NOTHING_YET.to_owned(), |(because, _)| because.to_string()),
            since: self.because.map(|(_, since)| anchor.wall_at(since)),
            windows: self.auto.windows(),
            measured: self.measured(),
            latest: self.latest,
        }
    }

    fn measured(&self) -> Vec<PolicyFigures> {
        let each = self.auto.remembered().map(|one| PolicyFigures {
            policy: one.policy,
            benefit: one.benefit,
            goals_kept: one.kept,
            windows_ago: one.windows_ago,
        });
        each.collect()
    }
}

const NOTHING_YET: &str = "nothing was measured yet, and it begins with this one";

#[cfg(test)]
mod tests {
    use berth_policy::kernels::auto::Window;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// A GPU on which each policy brings what the history says, by policy and window.
    fn play(history: impl Fn(KernelPolicyName, u64) -> (f64, f64), windows: u64) -> (Choosing, Vec<PolicyChosen>) {
        let (settings, gpu) = (KernelSettings::default(), GpuUuid("GPU-0".into()));
        let mut choosing = Choosing::new(&settings);
        let mut changes = Vec::new();
        for at in 0..windows {
            let (goodput, kept) = history(choosing.auto.policy(), at);
            let seen = Seen::of(Window { goodput, kept: Some(kept), fairness: Some(1.0), slowdown: Some(1.0) });
            let of_others = Seen { counts: false, ..Seen::of(Window { goodput: 1.0 - kept, ..seen.window }) };
            assert_eq!(choosing.window(&gpu, &of_others, &settings, Mono(at * 2 * SECOND)), None);
            changes.extend(choosing.window(&gpu, &seen, &settings, Mono((at + 1) * 2 * SECOND)));
            assert_eq!(choosing.policy().map(KernelPolicy::name), Some(choosing.auto.policy().as_str()), "it plans");
        }
        (choosing, changes)
    }

    fn for_good(changes: &[PolicyChosen]) -> Vec<&PolicyChosen> {
        // A try and the way back from it are no change.
        changes.iter().filter(|change| !change.is_try && !change.reason.contains("try")).collect()
    }

    #[test]
    fn when_another_policy_becomes_better_it_is_put_in_place_and_the_figures_say_why() {
        let history = |policy, at| match policy {
            KernelPolicyName::Slo if at >= 60 => (1.0, 1.0),
            _ if at >= 60 => (1.0, 0.6),
            _ => (1.0, 1.0),
        };
        let (choosing, changes) = play(history, 140);
        let changed = for_good(&changes);
        assert_eq!(changed.len(), 1, "{changes:?}");
        let change = changed[0];
        assert_eq!((change.policy, change.before), (KernelPolicyName::Slo, KernelPolicyName::Hybrid));
        assert!(change.reason.starts_with("it keeps 100 % of the goals, the one before kept"), "{change:?}");
        let kept = |of| change.measured.iter().find(|one| one.policy == of).unwrap().goals_kept;
        assert!(kept(KernelPolicyName::Slo) > 0.99 && kept(KernelPolicyName::Hybrid) < 0.9, "{change:?}");
        assert!(change.at > Mono(120 * SECOND), "not before it was better");
        let shown = choosing.shown(&GpuUuid("GPU-0".into()), None, &berth_host::clock::anchor());
        assert_eq!((shown.windows, shown.measured.len()), (140, 3));
        assert_eq!(shown.latest.unwrap().goals_kept, Some(1.0));
    }

    #[test]
    fn where_nothing_is_gained_the_policy_stays_however_the_figures_jitter() {
        // Each within two in a hundred of the others, by turns.
        let history = |policy, at: u64| (1.0 + 0.02 * f64::from(u8::from((at + policy as u64).is_multiple_of(3))), 1.0);
        let (_, changes) = play(history, 300);
        assert_eq!(for_good(&changes), Vec::<&PolicyChosen>::new());
        let tried = changes.iter().filter(|change| change.is_try).count();
        assert!((2..=30).contains(&tried), "others are tried now and then, {tried} of 300 windows");
    }

    #[test]
    fn before_anything_was_measured_that_is_what_is_shown() {
        let shown = Choosing::new(&KernelSettings::default()).shown(
            &GpuUuid("GPU-0".into()),
            None,
            &berth_host::clock::anchor(),
        );
        assert_eq!((shown.policy, shown.since, shown.windows), (FIRST, None, 0));
        assert_eq!(shown.reason, NOTHING_YET);
    }
}
