//! One tenant as berth knows it, and what berth has done to it.

use std::collections::BTreeSet;

use berth_model::hold::{self, Body, Freezer, Grip, Means, Step, Want};
use berth_model::{ContainerId, Mono, ProcKey, Runtime, TenantKey};
use berth_policy::{Activity, Past, Stand};
use berth_proto::sim::CheckpointOp;
use berth_sim::scenario::{Command, FIRST_PID};

use super::stay::Stay;
use super::{News, ns};
use crate::bench::contention::costs::Costs;

#[derive(Debug)]
pub(super) struct Tenant {
    index: usize,
    pub(super) key: TenantKey,
    pub(super) name: String,
    pub(super) owner: String,
    pub(super) process: ProcKey,
    processes: BTreeSet<ProcKey>,
    pub(super) means: BTreeSet<Means>,
    /// `None`: berth does not know of it, or no more.
    pub(super) arrived: Option<u64>,
    pub(super) activity: Activity,
    /// From when on its launches and waits are seen.
    pub(super) armed_at: Option<u64>,
    /// When it begins to make its context, unless it is stopped before.
    pub(super) makes_context_at: Option<u64>,
    want: Want,
    /// Since when it is wanted there, or was halted.
    since: u64,
    grip: Grip,
    step: Option<UnderWay>,
    has_exited: bool,
    pub(super) holds: u32,
    /// What it did in an earlier run, if that is known.
    pub(super) past: Option<Past>,
    pub(super) stay: Stay,
}

#[derive(Debug, Clone, Copy)]
struct UnderWay {
    step: Step,
    /// `None`: when the driver answers.
    ends_at: Option<u64>,
}

impl Tenant {
    pub(super) fn new(index: usize, owner: &str, means: &BTreeSet<Means>) -> Tenant {
        let pid = FIRST_PID + u32::try_from(index).expect("a scenario has few processes");
        let process = ProcKey { pid, start_ticks: 1 };
        Tenant {
            index,
            key: TenantKey::Container { runtime: Runtime::Docker, id: ContainerId(format!("{index:064x}")) },
            name: format!("tenant-{index}"),
            owner: owner.to_owned(),
            process,
            processes: BTreeSet::from([process]),
            means: means.clone(),
            arrived: None,
            activity: Activity::Loading,
            armed_at: None,
            makes_context_at: None,
            want: Want::Free,
            since: 0,
            grip: Grip::default(),
            step: None,
            has_exited: false,
            holds: 0,
            past: None,
            stay: Stay::default(),
        }
    }

    pub(super) fn is_here(&self) -> bool {
        self.arrived.is_some()
    }

    /// It has not come yet, or has left and nothing of it is left to undo.
    pub(super) fn is_out_of_reach(&self) -> bool {
        self.step.is_none() && (self.has_exited || self.arrived.is_none() && self.holds == 0)
    }

    pub(super) fn is_armed(&self, now: u64) -> bool {
        self.armed_at.is_some_and(|at| at <= now)
    }

    pub(super) fn is_gated(&self) -> bool {
        !self.grip.gated.is_empty()
    }

    /// What the daemon has a look follow: coming, a context, the first launch, leaving.
    pub(super) fn is_moment(&self, news: News) -> bool {
        match news {
            News::Opened | News::Ready | News::Gone => true,
            News::Halted { .. } | News::Launched { .. } => {
                matches!(self.activity, Activity::Opening { .. } | Activity::Loading)
            }
            News::Drained { .. } => false,
        }
    }

    pub(super) fn hear(&mut self, news: News, now: u64) {
        match news {
            News::Opened => {
                self.arrived = Some(now);
                self.activity = Activity::Opening { since: Mono(now) };
                self.stay.present.set(true, now);
            }
            News::Ready => {
                if let Activity::Opening { .. } = self.activity {
                    self.activity = Activity::Loading;
                }
            }
            News::Halted { since } => {
                let computing_since =
                    if let Activity::Computing { since } = self.activity { Some(since) } else { None };
                self.activity = Activity::AtLaunch { since: Mono(since), computing_since };
                self.since = since;
                self.grip.stopped.insert(self.process);
                self.holds += 1;
            }
            News::Launched { since } => {
                if !matches!(self.activity, Activity::Computing { .. }) {
                    self.activity = Activity::Computing { since: Mono(since) };
                }
            }
            News::Drained { since } => {
                if !matches!(self.activity, Activity::Quiet { .. }) {
                    self.activity = Activity::Quiet { since: Mono(since) };
                }
            }
            News::Gone => self.leave(now),
        }
        self.follow(now);
    }

    pub(super) fn computes(&self) -> bool {
        matches!(self.activity, Activity::Computing { .. }) && self.is_here()
    }

    /// Counts what its time goes to.
    fn follow(&mut self, now: u64) {
        self.stay.computing.set(self.computes(), now);
        self.stay.held.set(self.grip.is_still() && self.is_here(), now);
    }

    /// It is on no GPU any more; whatever holds it has no reason to.
    pub(super) fn leave(&mut self, now: u64) {
        self.arrived = None;
        self.stay.present.set(false, now);
        self.want(Want::Free, now);
    }

    pub(super) fn want(&mut self, want: Want, now: u64) {
        if want != self.want {
            self.want = want;
            self.since = now;
        }
    }

    /// As the policy is told of it.
    pub(super) fn stand(&self) -> Stand {
        let since = Mono(self.since);
        if self.step.is_some() || self.next_step().is_some() {
            return Stand::Moving { to: means_of(self.want), since };
        }
        match (self.want, means_of(self.want)) {
            (Want::Gated | Want::Barred, _) if !self.grip.is_still() => Stand::Gated { since },
            (_, Some(means)) => Stand::Held { means, since },
            (_, None) => Stand::Free,
        }
    }

    pub(super) fn step_ends(&self) -> Option<u64> {
        self.step.and_then(|under_way| under_way.ends_at)
    }

    /// Begins what comes next. Nothing is done to a tenant that berth does not know.
    pub(super) fn begin_step(&mut self, now: u64, costs: &Costs, commands: &mut Vec<Command>) -> bool {
        if self.step.is_some() || self.has_exited {
            return false;
        }
        let Some(step) = self.next_step() else { return false };
        let ends_at = match step {
            Step::Gate(_) => Some(self.armed_at.unwrap_or(now).max(now + ns(costs.flip))),
            Step::Bar(_) => Some(now + ns(costs.flip)),
            Step::Ungate(_) => Some(now + ns(costs.flip)),
            Step::Continue(_) => Some(now + ns(costs.resume)),
            Step::Freeze(_) => Some(now + ns(costs.freeze)),
            // No engine here to hand anybody over to.
            Step::Thaw(_) | Step::HandOver | Step::Unshelter => Some(now + ns(costs.thaw)),
            Step::Lock(_) | Step::Unlock(_) | Step::Checkpoint(_) | Step::Restore(_) => None,
        };
        commands.extend(driver_op(step).map(|op| Command::Driver(self.index, op)));
        self.step = Some(UnderWay { step, ends_at });
        true
    }

    /// Ends the step that is due. True: there was one.
    pub(super) fn end_step(&mut self, now: u64, commands: &mut Vec<Command>) -> bool {
        let due = |under_way: &mut UnderWay| under_way.ends_at.is_some_and(|at| at <= now);
        let Some(UnderWay { step, .. }) = self.step.take_if(due) else { return false };
        let was_still = self.grip.is_still();
        self.grip = self.grip.done(step);
        if matches!(step, Step::Bar(_)) && self.makes_context_at.is_some_and(|at| at > now) {
            self.activity = Activity::AtContext { since: Mono(now) };
            self.grip.stopped.insert(self.process);
        }
        match (was_still, self.grip.is_still()) {
            (false, true) => {
                self.holds += 1;
                commands.push(Command::Stop(self.index));
            }
            (true, false) => {
                self.activity = match self.activity {
                    Activity::AtLaunch { .. } => Activity::Computing { since: Mono(now) },
                    Activity::AtContext { .. } => Activity::Opening { since: Mono(now) },
                    other => other,
                };
                commands.push(Command::Go(self.index));
            }
            _ => {}
        }
        self.follow(now);
        true
    }

    /// A lock that was granted says that nothing of it runs; one that was refused is not tried again.
    pub(super) fn driver_answered(&mut self, done: bool, now: u64) {
        let Some(UnderWay { step, .. }) = self.step else { return };
        if let (Step::Lock(_), true) = (step, done) {
            self.holds += 1;
            if matches!(self.activity, Activity::Computing { .. }) {
                self.activity = Activity::Quiet { since: Mono(now) };
            }
        }
        if done {
            self.step = Some(UnderWay { step, ends_at: Some(now) });
        } else {
            self.step = None;
            self.want = Want::Free;
            self.means.remove(&Means::Lock);
        }
        self.follow(now);
    }

    /// Nothing of it can or need be undone.
    pub(super) fn exited(&mut self) {
        self.has_exited = true;
        self.grip = Grip::default();
        self.step = None;
        self.want = Want::Free;
    }

    fn next_step(&self) -> Option<Step> {
        hold::next(
            &self.grip,
            self.want,
            Body { processes: &self.processes, can_freeze: true, freezer: Freezer::Cgroup },
        )
    }
}

fn means_of(want: Want) -> Option<Means> {
    match want {
        Want::Free => None,
        Want::Gated | Want::Barred => Some(Means::Gate),
        Want::Frozen(_) => Some(Means::Freeze),
        Want::Locked => Some(Means::Lock),
        Want::Parked => Some(Means::Park),
    }
}

fn driver_op(step: Step) -> Option<CheckpointOp> {
    match step {
        Step::Lock(_) => Some(CheckpointOp::Lock { timeout_ms: 0 }),
        Step::Unlock(_) => Some(CheckpointOp::Unlock),
        Step::Checkpoint(_) => Some(CheckpointOp::Checkpoint),
        Step::Restore(_) => Some(CheckpointOp::Restore),
        Step::Gate(_) | Step::Bar(_) | Step::Ungate(_) | Step::Continue(_) => None,
        Step::Freeze(_) | Step::Thaw(_) | Step::HandOver | Step::Unshelter => None,
    }
}
