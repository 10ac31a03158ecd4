//! What each process does on the GPU, from its moments: the evidence policies decide by.
//!
//! Pure: events in, [`Activity`] out. It says what the last event said, no more: a process that launched computes until a call
//! that waits for the GPU has returned, it stands at a call, or its context is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use berth_model::hold::Step;
use berth_model::{Event, GpuIndex, GpuReading, HaltedCall, Moment, Mono, ProcKey, TenantKey};
use berth_policy::Activity;

/// The driver's use of a GPU is an average over 200 ms, up to 200 ms old.
const IDLE_TOLD_WITHIN: Duration = Duration::from_millis(500);

#[derive(Debug, Default)]
pub(super) struct Activities {
    processes: BTreeMap<ProcKey, Process>,
    /// When each GPU was last asked.
    looked: BTreeMap<GpuIndex, Mono>,
}

#[derive(Debug)]
struct Process {
    tenant: TenantKey,
    /// `None` until it does something on a GPU.
    activity: Option<Activity>,
    /// When it opened the device, or was found on a GPU.
    came: Option<Mono>,
    /// Who it runs as; `None` if that could not be read.
    uid: Option<u32>,
    has_launched: bool,
}

/// What one process does.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    pub process: ProcKey,
    pub activity: Activity,
    /// It has launched something that was not held back.
    pub has_launched: bool,
}

impl Activities {
    pub fn note(&mut self, event: &Event) {
        match event {
            Event::Process(facts) => {
                self.processes.entry(facts.process).or_insert_with(|| Process {
                    tenant: facts.tenant.clone(),
                    activity: None,
                    came: None,
                    uid: facts.uid,
                    has_launched: false,
                });
            }
            Event::Moment { process, moment, at } => self.moment(*process, *moment, *at),
            Event::Halted { process, call, at } => self.set(*process, self.halted(*process, *call, *at), *at),
            Event::Launched { process, at } => self.set(*process, Activity::Computing { since: *at }, *at),
            Event::Drained { process, at } => {
                // Of one nobody saw launch it is the end of something all the same.
                if let Some(known) = self.processes.get_mut(process).filter(|it| it.activity == Some(Activity::Unseen))
                {
                    known.has_launched = true;
                }
                self.set(*process, Activity::Quiet { since: *at }, *at);
            }
            Event::Step { tenant, step, outcome: Ok(()), at } => self.step(tenant, *step, *at),
            Event::ProcessExited { process, .. } => {
                self.processes.remove(process);
            }
            Event::Sample(sample) => {
                for gpu in &sample.gpus {
                    self.looked.insert(gpu.index, sample.at);
                    let GpuReading::Ok { processes: Ok(listed), core, .. } = &gpu.reading else { continue };
                    let is_idle = core.is_some_and(|core| core.get() == 0);
                    listed.iter().for_each(|seen| self.found(seen.process, sample.at, is_idle));
                }
            }
            _ => {}
        }
    }

    /// When the driver was last asked about a GPU.
    pub fn looked(&self, gpu: GpuIndex) -> Option<Mono> {
        self.looked.get(&gpu).copied()
    }

    pub fn tenant_of(&self, process: ProcKey) -> Option<&TenantKey> {
        self.processes.get(&process).map(|known| &known.tenant)
    }

    /// The tenant's processes that use a GPU.
    pub fn processes_of(&self, tenant: &TenantKey) -> BTreeSet<ProcKey> {
        self.of(tenant).map(|(key, _)| *key).collect()
    }

    /// Whom the tenant's processes that use a GPU run as, one by one.
    pub fn uids_of(&self, tenant: &TenantKey) -> Vec<Option<u32>> {
        self.of(tenant).map(|(_, process)| process.uid).collect()
    }

    /// Some process of the tenant has launched something that was not held back.
    pub fn has_launched(&self, tenant: &TenantKey) -> bool {
        self.of(tenant).any(|(_, process)| process.has_launched)
    }

    /// What each of the tenant's processes does that use a GPU.
    pub fn seen_of(&self, tenant: &TenantKey) -> impl Iterator<Item = Seen> {
        self.of(tenant).filter_map(|(key, known)| {
            Some(Seen { process: *key, activity: known.activity?, has_launched: known.has_launched })
        })
    }

    /// When the first of the tenant's processes came to a GPU; `None` if none has.
    pub fn came(&self, tenant: &TenantKey) -> Option<Mono> {
        self.of(tenant).filter_map(|(_, process)| process.came).min()
    }

    /// What the tenant does: what the busiest of its processes does. One that stands at a call keeps the others waiting, and
    /// what they have launched runs on.
    pub fn activity_of(&self, tenant: &TenantKey) -> Option<Activity> {
        let each = || self.of(tenant).filter_map(|(_, process)| process.activity);
        let activity = each().max_by_key(|activity| rank(*activity))?;
        let Activity::AtLaunch { since, .. } = activity else { return Some(activity) };
        Some(Activity::AtLaunch { since, computing_since: each().filter_map(computing_since).min() })
    }

    /// The tenant's processes that stand at a call.
    pub fn standing(&self, tenant: &TenantKey) -> BTreeSet<ProcKey> {
        let stands = |process: &Process| {
            let activity = process.activity;
            matches!(
                activity,
                Some(Activity::AtContext { .. } | Activity::AtLaunch { .. } | Activity::AtAllocation { .. })
            )
        };
        self.of(tenant).filter(|(_, process)| stands(process)).map(|(key, _)| *key).collect()
    }

    fn of(&self, tenant: &TenantKey) -> impl Iterator<Item = (&ProcKey, &Process)> {
        self.processes.iter().filter(move |(_, process)| process.came.is_some() && process.tenant.is(tenant))
    }

    fn moment(&mut self, process: ProcKey, moment: Moment, at: Mono) {
        match moment {
            Moment::DeviceOpen => {
                let Some(known) = self.processes.get_mut(&process) else { return };
                known.came.get_or_insert(at);
                known.activity.get_or_insert(Activity::Opening { since: at });
            }
            Moment::ContextReady | Moment::FirstAllocation => {
                let Some(known) = self.processes.get_mut(&process) else { return };
                known.came.get_or_insert(at);
                if let None | Some(Activity::Opening { .. } | Activity::AtContext { .. }) = known.activity {
                    known.activity = Some(Activity::Loading);
                }
            }
            // Told of a launch the gate has stopped too, whichever comes first.
            Moment::FirstLaunch if self.stands(process) => {}
            Moment::FirstLaunch => self.set(process, Activity::Computing { since: at }, at),
            Moment::ContextGone => self.set(process, Activity::Quiet { since: at }, at),
        }
    }

    /// Found by a look, without a probe to tell what it does. Who computed while nobody watched is quiet when its GPU has done
    /// nothing for as long as the driver's figure looks back.
    fn found(&mut self, process: ProcKey, at: Mono, is_idle: bool) {
        let Some(known) = self.processes.get_mut(&process) else { return };
        known.came.get_or_insert(at);
        match *known.activity.get_or_insert(Activity::Unseen) {
            Activity::Computing { since } if is_idle && at.since(since) >= IDLE_TOLD_WITHIN => {
                known.activity = Some(Activity::Quiet { since: at });
            }
            _ => {}
        }
    }

    /// Thawed after a stop: the launch it stood at is submitted now.
    fn step(&mut self, tenant: &TenantKey, step: Step, at: Mono) {
        if !matches!(step, Step::Thaw(_)) {
            return;
        }
        for process in self.processes.values_mut().filter(|process| process.tenant.is(tenant)) {
            match process.activity {
                Some(Activity::AtLaunch { .. }) => {
                    process.activity = Some(Activity::Computing { since: at });
                    process.has_launched = true;
                }
                Some(Activity::AtAllocation { .. }) => process.activity = Some(Activity::Loading),
                Some(Activity::AtContext { .. }) => process.activity = Some(Activity::Opening { since: at }),
                _ => {}
            }
        }
    }

    fn set(&mut self, process: ProcKey, activity: Activity, at: Mono) {
        if let Some(known) = self.processes.get_mut(&process) {
            known.came.get_or_insert(at);
            known.activity = Some(activity);
            known.has_launched |= matches!(activity, Activity::Computing { .. });
        }
    }

    fn halted(&self, process: ProcKey, call: HaltedCall, at: Mono) -> Activity {
        let before = self.processes.get(&process).and_then(|known| known.activity);
        match call {
            HaltedCall::Launch => Activity::AtLaunch { since: at, computing_since: before.and_then(computing_since) },
            HaltedCall::Context => Activity::AtContext { since: at },
            HaltedCall::Allocation { bytes } => Activity::AtAllocation { since: at, bytes },
        }
    }

    fn stands(&self, process: ProcKey) -> bool {
        let activity = self.processes.get(&process).and_then(|known| known.activity);
        matches!(activity, Some(Activity::AtLaunch { .. }))
    }
}

/// Since when something it has launched runs, as far as is known.
fn computing_since(activity: Activity) -> Option<Mono> {
    match activity {
        Activity::Computing { since } => Some(since),
        Activity::AtLaunch { computing_since, .. } => computing_since,
        _ => None,
    }
}

/// Which of several processes speaks for the tenant.
fn rank(activity: Activity) -> u8 {
    match activity {
        Activity::Quiet { .. } => 0,
        Activity::Opening { .. } => 1,
        Activity::Loading => 2,
        Activity::Unseen => 3,
        Activity::Computing { .. } => 4,
        Activity::AtContext { .. } => 5,
        Activity::AtLaunch { .. } => 6,
        Activity::AtAllocation { .. } => 7,
    }
}

#[cfg(test)]
mod tests {
    use berth_model::ProcessFacts;

    use super::*;

    const TENANT: TenantKey = TenantKey::User { uid: 1 };

    fn process(pid: u32) -> ProcKey {
        ProcKey { pid, start_ticks: 1 }
    }

    /// What the tenant of processes 1 and 2 does after these events.
    fn after(events: &[Event]) -> Option<Activity> {
        let mut activities = Activities::default();
        for pid in [1, 2] {
            activities.note(&Event::Process(ProcessFacts {
                process: process(pid),
                tenant: TENANT,
                uid: Some(1),
                user: None,
                command: String::new(),
                started: None,
            }));
        }
        events.iter().for_each(|event| activities.note(event));
        activities.activity_of(&TENANT)
    }

    fn launched(pid: u32, at: u64) -> Event {
        Event::Launched { process: process(pid), at: Mono(at) }
    }

    fn drained(pid: u32, at: u64) -> Event {
        Event::Drained { process: process(pid), at: Mono(at) }
    }

    fn halted(pid: u32, at: u64) -> Event {
        Event::Halted { process: process(pid), call: HaltedCall::Launch, at: Mono(at) }
    }

    fn at_launch(since: u64, computing_since: Option<u64>) -> Option<Activity> {
        Some(Activity::AtLaunch { since: Mono(since), computing_since: computing_since.map(Mono) })
    }

    #[test]
    fn who_stands_at_a_launch_computes_what_it_had_launched_before() {
        assert_eq!(after(&[launched(1, 10), halted(1, 20)]), at_launch(20, Some(10)));
        assert_eq!(after(&[launched(1, 10), drained(1, 15), halted(1, 20)]), at_launch(20, None));
        assert_eq!(after(&[halted(1, 20)]), at_launch(20, None), "its first");
        assert_eq!(after(&[launched(1, 10), halted(1, 20), halted(1, 21)]), at_launch(21, Some(10)), "by two threads");
    }

    #[test]
    fn a_tenant_one_of_whose_processes_stands_computes_what_the_other_has_launched() {
        assert_eq!(after(&[launched(2, 10), halted(1, 20)]), at_launch(20, Some(10)));
        assert_eq!(after(&[launched(2, 10), halted(1, 20), drained(2, 30)]), at_launch(20, None));
    }
}
