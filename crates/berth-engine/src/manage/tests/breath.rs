//! Those whose engine asks whether they are alive.

use berth_model::{ContainerId, Runtime};

use super::*;

fn pod() -> TenantKey {
    TenantKey::Container { runtime: Runtime::Containerd, id: ContainerId("1f".repeat(32)) }
}

/// One of a pod that nobody has described, held by a person: half a second is what it can stand still, and 11 s are a breath.
fn with_pod() -> Host {
    let rules = Rules { describes_pods: true, ..Default::default() };
    let mut host = Host::ruled(rules);
    host.opens_for(1, pod());
    host.look(&[1]);
    host.settle();
    host.want_held();
    host.settle();
    host
}

impl Host {
    fn want_held(&mut self) {
        let by = By::Person { uid: 0 };
        self.manager.keeper.want(&pod(), Want::Frozen(Freezer::Cgroup), by, "a test", Mono(self.now)).unwrap();
    }

    /// What is done to it within so many milliseconds from now.
    fn steps_within(&mut self, ms: u64) -> Vec<Step> {
        let end = self.now + ms * MS;
        while self.now < end {
            self.now = self.again_at.map_or(end, |Mono(at)| at.clamp(self.now, end));
            self.settle();
        }
        self.steps().into_iter().map(|(_, step)| step).collect()
    }
}

#[test]
fn a_breath_is_counted_from_when_it_is_free_and_what_follows_is_a_hold_as_long_as_the_first() {
    let mut host = with_pod();
    assert_eq!(host.steps(), [(pod(), Step::Freeze(Freezer::Cgroup))]);
    host.takes = 30 * MS;
    assert_eq!(host.steps_within(450), []);
    assert_eq!(host.steps_within(100), [Step::Thaw(Freezer::Cgroup)]);
    // Freezing is done in less.
    host.takes = 0;
    assert_eq!(host.steps_within(10_900), [], "a breath is 11 s");
    assert_eq!(host.steps_within(200), [Step::Freeze(Freezer::Cgroup)]);
    assert_eq!(host.steps_within(350), [], "it stands still for as long as it can, not for a moment");
    assert_eq!(host.steps_within(200), [Step::Thaw(Freezer::Cgroup)]);
}
