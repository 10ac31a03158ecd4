//! Holding a tenant: what has hold of it, what is wanted, and which step comes next.
//!
//! A [`Grip`] is everything berth has done to a tenant and has to undo. A [`Want`] is where the tenant should be. [`next`]
//! compares the two and names one [`Step`]; whoever performs it writes the grip down first, tells the outcome, and asks
//! again. So there is one list of states (the grip), one way forward and one way back, and whatever a crash leaves behind is
//! undone by the same function: ask for [`Want::Free`] until nothing is left.
//!
//! The order of steps is the point. Nobody may see a stop: a process that was halted at a driver call is frozen first,
//! continued while frozen, and thawed last. Where its call only waits, unseen, there is nothing to continue, and no harm in it. The driver's lock waits for threads that cannot answer while they are stopped
//! or frozen: lock and checkpoint come before a freeze, restore and unlock after the thaw.
//!
//! A hold begins as a freeze by the cgroup, which takes microseconds. One that lasts is handed over to the container's engine,
//! which shows it and suspends health checks. An engine refuses to pause what stands still already, so the processes stand
//! in a frozen cgroup of their own below the container's meanwhile, the shelter: they do not run in between.

mod handing;
mod holding;
pub mod keeper;
mod leave;
mod signal;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::id::{GpuIndex, ProcKey};
use crate::quantity::Bytes;
pub use handing::{Check, Checks};
pub use keeper::{By, HoldChange, HoldView, Keeper, Note, Order, Patience, Refused, Stage, Turn};
pub use leave::{Leaves, Sent};
pub use signal::{NoSignal, Signal};

/// The container label that says how much GPU memory it will need in all: `berth.memory=20GiB`.
pub const MEMORY_LABEL: &str = "berth.memory";

/// How a tenant is kept off the GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Means {
    /// Its processes stand still at once. Kernels already submitted run on.
    Freeze,
    /// The driver takes no new work of it and has finished the old; its CPU side goes on.
    Lock,
    /// It runs until its next launch (or an allocation that would not fit) and stands still there.
    Gate,
    /// Its GPU memory is moved to host memory.
    Park,
}

impl Means {
    /// As in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Means::Freeze => "freeze",
            Means::Lock => "lock",
            Means::Gate => "gate",
            Means::Park => "park",
        }
    }
}

/// Name of the cgroup that berth makes below a tenant's own, for those who are frozen by [`Freezer::Shelter`] to stand in.
pub const SHELTER: &str = "berth-shelter";

/// Who freezes a whole tenant; whose freeze is undone with another's comes before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Freezer {
    /// The kernel, by the tenant's cgroup; the container engine does not know.
    Cgroup,
    /// The kernel, by a cgroup below the tenant's own: its engine can run commands in the container.
    Shelter,
    /// The Docker Engine: shown as paused, health checks suspended.
    Docker,
}

/// Everything that keeps a tenant from running. Empty: it is free.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Grip {
    /// Processes that are halted at their next launch, and perhaps at the making of their first context.
    pub gated: BTreeSet<ProcKey>,
    /// Processes that were halted at a driver call: stopped by a signal, or their call waits.
    pub stopped: BTreeSet<ProcKey>,
    /// After a hand-over that did not come to its end: `Docker`, though it may be the cgroup alone.
    pub frozen: Option<Freezer>,
    /// Its processes may stand in the shelter.
    pub sheltered: bool,
    pub locked: BTreeSet<ProcKey>,
    /// Processes whose GPU memory is in host memory; they are locked too.
    pub parked: BTreeSet<ProcKey>,
}

/// What a process has on its GPU; of a parked one, what it needs to come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    pub gpu: GpuIndex,
    pub bytes: Bytes,
}

/// Where a tenant should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Want {
    Free,
    /// Stopped at its next launch, then frozen by the cgroup's freezer.
    Gated,
    /// The same, and before that at the making of its first context.
    Barred,
    Frozen(Freezer),
    Locked,
    /// Without GPU memory, and frozen.
    Parked,
}

/// One thing to do to a tenant or one of its processes. Each can be repeated without harm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "step", content = "of", rename_all = "lowercase")]
pub enum Step {
    Gate(ProcKey),
    /// As [`Step::Gate`], and at the making of its first context too.
    Bar(ProcKey),
    /// Takes back either.
    Ungate(ProcKey),
    /// It goes on with the call it was halted at: by SIGCONT if it was stopped.
    Continue(ProcKey),
    Freeze(Freezer),
    Thaw(Freezer),
    /// From the cgroup's freezer to Docker's pause; nothing of it runs in between.
    HandOver,
    /// Back from the shelter to its own cgroup, and to what that is: frozen or not.
    Unshelter,
    Lock(ProcKey),
    Unlock(ProcKey),
    Checkpoint(ProcKey),
    Restore(ProcKey),
}

/// What a tenant is, as far as holding it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Body<'a> {
    /// Its processes that use a GPU.
    pub processes: &'a BTreeSet<ProcKey>,
    /// It has a cgroup of its own that can be frozen. Bare users have none.
    pub can_freeze: bool,
    /// Who is to keep it frozen now. What Docker has paused stays with it.
    pub freezer: Freezer,
}

/// GPU memory that is neither in use nor to be had: the driver keeps some for itself, up to 0.7 GiB on large GPUs. Nobody is
/// promised it.
pub fn gpu_reserve(total: Bytes) -> Bytes {
    const MOST: Bytes = Bytes::from_mib(1024);
    MOST.min(Bytes(total.0 / 24))
}

/// The next step from `grip` towards `want`; `None` when it is there, or can come no nearer.
pub fn next(grip: &Grip, want: Want, body: Body<'_>) -> Option<Step> {
    match want {
        Want::Free => towards_free(grip, body),
        Want::Gated => towards_gated(grip, Step::Gate, body),
        Want::Barred => towards_gated(grip, Step::Bar, body),
        Want::Frozen(freezer) => towards_frozen(grip, freezer, body),
        Want::Locked => towards_locked(grip, body),
        Want::Parked => towards_parked(grip, body),
    }
}

impl Grip {
    pub fn is_empty(&self) -> bool {
        *self == Grip::default()
    }

    /// Something stands still: at a driver call, or all of it.
    pub fn is_still(&self) -> bool {
        self.frozen.is_some() || self.sheltered || !self.stopped.is_empty()
    }

    /// It cannot use the GPU: something stands still, or the driver refuses its work.
    pub fn keeps_off(&self) -> bool {
        self.is_still() || !self.locked.is_empty() || !self.parked.is_empty()
    }

    /// What may have hold of a tenant after whoever held it died: a process that was gated may have been stopped since.
    pub fn after_crash(&self) -> Grip {
        let mut grip = self.clone();
        grip.stopped.extend(&self.gated);
        grip
    }

    /// What is to be written down before `step` is begun: from then on it may have happened.
    pub fn begun(&self, step: Step) -> Grip {
        let mut grip = self.clone();
        match step {
            Step::Gate(process) | Step::Bar(process) => grip.gated.extend([process]),
            Step::Freeze(freezer) => grip.freeze(freezer),
            // Undoing Docker's pause undoes the cgroup's freeze too.
            Step::HandOver => (grip.frozen, grip.sheltered) = (Some(Freezer::Docker), true),
            Step::Lock(process) => grip.locked.extend([process]),
            Step::Checkpoint(process) => grip.parked.extend([process]),
            // Until it is known to be undone it counts as done.
            Step::Ungate(_) | Step::Continue(_) | Step::Thaw(_) | Step::Unlock(_) | Step::Restore(_) => {}
            Step::Unshelter => {}
        }
        grip
    }

    /// What there would be if `step` had not happened.
    pub fn without(&self, step: Step) -> Grip {
        let mut grip = self.clone();
        match step {
            Step::Gate(process) | Step::Bar(process) => grip.gated.remove(&process),
            Step::Lock(process) => grip.locked.remove(&process),
            Step::Checkpoint(process) => grip.parked.remove(&process),
            Step::Freeze(_) => grip.frozen.take().is_some(),
            Step::HandOver => {
                grip.frozen = grip.frozen.map(|_| Freezer::Cgroup);
                std::mem::take(&mut grip.sheltered)
            }
            Step::Ungate(_) | Step::Continue(_) | Step::Thaw(_) | Step::Unlock(_) | Step::Restore(_) => false,
            Step::Unshelter => false,
        };
        grip
    }

    /// What is left after `step` has happened.
    pub fn done(&self, step: Step) -> Grip {
        let mut grip = self.begun(step);
        match step {
            Step::Ungate(process) => grip.gated.remove(&process),
            Step::Continue(process) => grip.stopped.remove(&process),
            Step::Unlock(process) => grip.locked.remove(&process),
            Step::Restore(process) => grip.parked.remove(&process),
            Step::Thaw(_) => grip.frozen.take().is_some(),
            Step::HandOver => std::mem::take(&mut grip.sheltered),
            Step::Unshelter => {
                // Whether its own cgroup is frozen is for the thaw that follows.
                grip.frozen =
                    grip.frozen.map(|freezer| if freezer == Freezer::Shelter { Freezer::Cgroup } else { freezer });
                std::mem::take(&mut grip.sheltered)
            }
            Step::Gate(_) | Step::Bar(_) | Step::Freeze(_) | Step::Lock(_) | Step::Checkpoint(_) => true,
        };
        grip
    }

    /// What may have frozen it before stays on record: undoing Docker's pause undoes the cgroup's freeze too, and coming back from the
    /// shelter undoes both of the kernel's.
    fn freeze(&mut self, freezer: Freezer) {
        let both = [self.frozen, Some(freezer)];
        self.sheltered |= both.contains(&Some(Freezer::Docker)) && both.contains(&Some(Freezer::Shelter));
        self.frozen = self.frozen.max(Some(freezer));
    }

    /// A process is no more; nothing of it can or need be undone.
    pub fn forget(&mut self, process: ProcKey) {
        for set in [&mut self.gated, &mut self.stopped, &mut self.locked, &mut self.parked] {
            set.remove(&process);
        }
    }
}

impl Step {
    /// The process it is done to; `None` for steps on the whole tenant.
    pub fn process(self) -> Option<ProcKey> {
        match self {
            Step::Gate(process) | Step::Bar(process) | Step::Ungate(process) => Some(process),
            Step::Continue(process) => Some(process),
            Step::Lock(process) | Step::Unlock(process) => Some(process),
            Step::Checkpoint(process) | Step::Restore(process) => Some(process),
            Step::Freeze(_) | Step::Thaw(_) | Step::HandOver | Step::Unshelter => None,
        }
    }

    /// The step whose effect this one takes back; `None` for those that make a hold, for the end of a stop, which the gate
    /// made, and for the way out of the shelter, which leaves the freeze.
    pub fn undoes(self) -> Option<Step> {
        match self {
            Step::Ungate(process) => Some(Step::Gate(process)),
            Step::Thaw(freezer) => Some(Step::Freeze(freezer)),
            Step::Unlock(process) => Some(Step::Lock(process)),
            Step::Restore(process) => Some(Step::Checkpoint(process)),
            Step::Continue(_) | Step::Unshelter => None,
            Step::Gate(_) | Step::Bar(_) | Step::Freeze(_) | Step::HandOver => None,
            Step::Lock(_) | Step::Checkpoint(_) => None,
        }
    }

    /// The container's engine does it, and tells everybody.
    pub(crate) fn is_by_engine(self) -> bool {
        matches!(self, Step::Freeze(Freezer::Docker) | Step::Thaw(Freezer::Docker) | Step::HandOver)
    }

    /// It undoes a hold rather than making one.
    pub fn sets_free(self) -> bool {
        match self {
            Step::Ungate(_) | Step::Continue(_) | Step::Thaw(_) | Step::Unlock(_) | Step::Restore(_) => true,
            Step::Unshelter => true,
            Step::Gate(_) | Step::Bar(_) | Step::Freeze(_) | Step::HandOver => false,
            Step::Lock(_) | Step::Checkpoint(_) => false,
        }
    }
}

fn towards_free(grip: &Grip, body: Body<'_>) -> Option<Step> {
    ungate(grip)
        .or_else(|| hide_stops(grip, body))
        .or_else(|| thaw(grip))
        .or_else(|| first(&grip.parked).map(Step::Restore))
        .or_else(|| first(&grip.locked).map(Step::Unlock))
}

/// `arm` is how a process that is not gated yet comes to be.
fn towards_gated(grip: &Grip, arm: fn(ProcKey) -> Step, body: Body<'_>) -> Option<Step> {
    if grip.is_still() {
        return hide_stops(grip, body).filter(|_| body.can_freeze).or_else(|| hand_over(grip, body));
    }
    first(&grip.parked)
        .map(Step::Restore)
        .or_else(|| first(&grip.locked).map(Step::Unlock))
        .or_else(|| missing(body.processes, &grip.gated).map(arm))
}

fn towards_frozen(grip: &Grip, freezer: Freezer, body: Body<'_>) -> Option<Step> {
    if !body.can_freeze {
        return None;
    }
    match (grip.frozen, freezer) {
        (None, Freezer::Docker) => Some(Step::Freeze(freezer)),
        (None, Freezer::Cgroup | Freezer::Shelter) => Some(freeze(body)),
        (Some(_), _) => hide_stops(grip, body).or_else(|| ungate(grip)).or_else(|| hand_over(grip, body)),
    }
}

fn towards_locked(grip: &Grip, body: Body<'_>) -> Option<Step> {
    lockable(grip, body)
        .or_else(|| first(&grip.parked).map(Step::Restore))
        .or_else(|| missing(body.processes, &grip.locked).map(Step::Lock))
}

fn towards_parked(grip: &Grip, body: Body<'_>) -> Option<Step> {
    if grip.frozen.is_some() && body.processes.is_subset(&grip.parked) && grip.stopped.is_empty() {
        return ungate(grip).or_else(|| hand_over(grip, body));
    }
    lockable(grip, body)
        .or_else(|| missing(body.processes, &grip.locked).map(Step::Lock))
        .or_else(|| missing(body.processes, &grip.parked).map(Step::Checkpoint))
        .or_else(|| body.can_freeze.then(|| freeze(body)))
}

/// What must be undone before the driver's lock can work: it waits for threads that stand still.
fn lockable(grip: &Grip, body: Body<'_>) -> Option<Step> {
    ungate(grip).or_else(|| hide_stops(grip, body)).or_else(|| thaw(grip))
}

fn thaw(grip: &Grip) -> Option<Step> {
    grip.sheltered.then_some(Step::Unshelter).or_else(|| grip.frozen.map(Step::Thaw))
}

fn hand_over(grip: &Grip, body: Body<'_>) -> Option<Step> {
    let is_due = grip.frozen.is_some_and(|freezer| freezer != Freezer::Docker) && body.freezer == Freezer::Docker;
    (is_due && body.can_freeze).then_some(Step::HandOver)
}

/// How a freeze begins: the engine takes over later.
fn freeze(body: Body<'_>) -> Step {
    match body.freezer {
        Freezer::Shelter => Step::Freeze(Freezer::Shelter),
        Freezer::Cgroup | Freezer::Docker => Step::Freeze(Freezer::Cgroup),
    }
}

fn ungate(grip: &Grip) -> Option<Step> {
    first(&grip.gated).map(Step::Ungate)
}

/// Continues what was stopped, unseen: frozen first where that is possible.
fn hide_stops(grip: &Grip, body: Body<'_>) -> Option<Step> {
    let stopped = first(&grip.stopped)?;
    Some(match grip.frozen {
        None if body.can_freeze => freeze(body),
        _ => Step::Continue(stopped),
    })
}

fn first(processes: &BTreeSet<ProcKey>) -> Option<ProcKey> {
    processes.first().copied()
}

fn missing(wanted: &BTreeSet<ProcKey>, there: &BTreeSet<ProcKey>) -> Option<ProcKey> {
    wanted.difference(there).next().copied()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn process(pid: u32) -> ProcKey {
        ProcKey { pid, start_ticks: 1 }
    }

    fn processes(pids: &[u32]) -> BTreeSet<ProcKey> {
        pids.iter().copied().map(process).collect()
    }

    /// The steps from a grip to a want, each successful.
    fn way(mut grip: Grip, want: Want, body: Body<'_>) -> (Vec<Step>, Grip) {
        let mut steps = Vec::new();
        while let Some(step) = next(&grip, want, body) {
            grip = grip.done(step);
            steps.push(step);
            assert!(steps.len() < 50, "no end: {steps:?}");
        }
        (steps, grip)
    }

    #[test]
    fn a_process_stopped_at_a_launch_is_frozen_and_continued_unseen() {
        let all = processes(&[1]);
        let body = Body { processes: &all, can_freeze: true, freezer: Freezer::Cgroup };
        let grip = Grip { gated: all.clone(), stopped: all.clone(), ..Grip::default() };
        let (steps, held) = way(grip, Want::Gated, body);
        assert_eq!(steps, [Step::Freeze(Freezer::Cgroup), Step::Continue(process(1))]);
        let (steps, free) = way(held, Want::Free, body);
        assert_eq!(steps, [Step::Ungate(process(1)), Step::Thaw(Freezer::Cgroup)]);
        assert!(free.is_empty());
    }

    #[test]
    fn parking_locks_before_it_freezes_and_comes_back_the_other_way_round() {
        let all = processes(&[1, 2]);
        let body = Body { processes: &all, can_freeze: true, freezer: Freezer::Cgroup };
        let (steps, parked) = way(Grip::default(), Want::Parked, body);
        use Step::*;
        let (one, two) = (process(1), process(2));
        assert_eq!(steps, [Lock(one), Lock(two), Checkpoint(one), Checkpoint(two), Freeze(Freezer::Cgroup)]);
        let (steps, free) = way(parked, Want::Free, body);
        assert_eq!(steps, [Thaw(Freezer::Cgroup), Restore(one), Restore(two), Unlock(one), Unlock(two)]);
        assert!(free.is_empty());
    }

    #[test]
    fn a_freeze_that_lasts_is_handed_over_to_the_engine_and_stays_with_it() {
        let all = processes(&[1]);
        let body = |freezer| Body { processes: &all, can_freeze: true, freezer };
        let held = Grip { gated: all.clone(), frozen: Some(Freezer::Cgroup), ..Grip::default() };
        let (steps, paused) = way(held, Want::Gated, body(Freezer::Docker));
        assert_eq!(steps, [Step::HandOver]);
        assert_eq!((paused.frozen, paused.sheltered), (Some(Freezer::Docker), false));
        assert_eq!(next(&paused, Want::Gated, body(Freezer::Cgroup)), None, "it is not taken back");
        let (steps, free) = way(paused, Want::Free, body(Freezer::Docker));
        assert_eq!(steps, [Step::Ungate(process(1)), Step::Thaw(Freezer::Docker)]);
        assert!(free.is_empty());
    }

    #[test]
    fn whoever_is_frozen_in_the_shelter_is_handed_over_from_there_or_comes_back() {
        let all = processes(&[1]);
        let body = |freezer| Body { processes: &all, can_freeze: true, freezer };
        let stopped = Grip { gated: all.clone(), stopped: all.clone(), ..Grip::default() };
        let (steps, held) = way(stopped, Want::Gated, body(Freezer::Shelter));
        assert_eq!(steps, [Step::Freeze(Freezer::Shelter), Step::Continue(process(1))]);
        assert_eq!(next(&held, Want::Gated, body(Freezer::Cgroup)), None, "it stays where it is");
        assert_eq!(way(held.clone(), Want::Gated, body(Freezer::Docker)).0, [Step::HandOver]);
        let (steps, free) = way(held, Want::Free, body(Freezer::Cgroup));
        assert_eq!(steps, [Step::Ungate(process(1)), Step::Thaw(Freezer::Shelter)]);
        assert!(free.is_empty());
    }

    #[test]
    fn a_hand_over_that_a_crash_cut_short_is_undone_out_of_the_shelter_first() {
        let all = processes(&[1]);
        let body = Body { processes: &all, can_freeze: true, freezer: Freezer::Cgroup };
        let left = Grip { frozen: Some(Freezer::Cgroup), ..Grip::default() }.begun(Step::HandOver);
        let (steps, free) = way(left, Want::Free, body);
        assert_eq!(steps, [Step::Unshelter, Step::Thaw(Freezer::Docker)]);
        assert!(free.is_empty());
    }

    #[test]
    fn a_tenant_without_a_cgroup_stays_stopped_while_it_is_wanted_still() {
        let all = processes(&[1]);
        let body = Body { processes: &all, can_freeze: false, freezer: Freezer::Cgroup };
        let grip = Grip { gated: all.clone(), stopped: all.clone(), ..Grip::default() };
        assert_eq!(next(&grip, Want::Gated, body), None);
        assert_eq!(way(grip, Want::Free, body).0, [Step::Ungate(process(1)), Step::Continue(process(1))]);
    }

    fn any_grip() -> impl Strategy<Value = Grip> {
        let set = || prop::collection::btree_set((1_u32..4).prop_map(process), 0..4);
        let frozen = prop::option::of(any_freezer());
        (set(), set(), frozen, any::<bool>(), set(), set()).prop_map(
            |(gated, stopped, frozen, sheltered, locked, parked)| Grip {
                gated,
                stopped,
                frozen,
                sheltered,
                locked: locked.union(&parked).copied().collect(),
                parked,
            },
        )
    }

    fn any_freezer() -> impl Strategy<Value = Freezer> {
        prop_oneof![Just(Freezer::Cgroup), Just(Freezer::Shelter), Just(Freezer::Docker)]
    }

    fn any_want() -> impl Strategy<Value = Want> {
        prop_oneof![
            Just(Want::Free),
            Just(Want::Gated),
            Just(Want::Barred),
            Just(Want::Frozen(Freezer::Cgroup)),
            Just(Want::Frozen(Freezer::Docker)),
            Just(Want::Locked),
            Just(Want::Parked),
        ]
    }

    proptest! {
        #[test]
        fn whatever_a_crash_left_is_undone(
            grip in any_grip(), can_freeze: bool, freezer in any_freezer(), pids in prop::collection::vec(1_u32..5, 0..4)
        ) {
            let all = processes(&pids);
            let (_, left) = way(grip, Want::Free, Body { processes: &all, can_freeze, freezer });
            prop_assert!(left.is_empty());
        }

        #[test]
        fn every_want_is_come_to_and_then_left_alone(
            grip in any_grip(), want in any_want(), can_freeze: bool, freezer in any_freezer()
        ) {
            let all = processes(&[1, 2]);
            let body = Body { processes: &all, can_freeze, freezer };
            let (_, there) = way(grip, want, body);
            prop_assert_eq!(next(&there, want, body), None);
        }

        /// The driver's lock hangs on threads that stand still, and a stop is seen unless it is hidden by a freeze.
        #[test]
        fn no_step_comes_at_a_time_when_it_would_hang_or_be_seen(
            grip in any_grip(), want in any_want(), freezer in any_freezer()
        ) {
            let all = processes(&[1, 2, 3]);
            let body = Body { processes: &all, can_freeze: true, freezer };
            let mut grip = grip;
            while let Some(step) = next(&grip, want, body) {
                match step {
                    Step::Lock(_) | Step::Unlock(_) | Step::Checkpoint(_) | Step::Restore(_) => {
                        prop_assert!(!grip.is_still(), "{step:?} with {grip:?}");
                    }
                    Step::Continue(_) => prop_assert!(grip.frozen.is_some(), "seen: {grip:?}"),
                    Step::Thaw(_) => prop_assert!(grip.stopped.is_empty() && !grip.sheltered, "seen: {grip:?}"),
                    Step::HandOver => prop_assert!(grip.frozen.is_some() && grip.stopped.is_empty(), "{grip:?}"),
                    _ => {}
                }
                grip = grip.done(step);
            }
        }
    }
}
