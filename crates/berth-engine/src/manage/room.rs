//! Memory in the manager: who allocates out of which pool, who waits for room, and what cannot be parked.
//!
//! Where the policy queues for memory, every tenant that shares a GPU and may be held takes its memory out of that GPU's
//! [`Pools`]; whoever asks for more than there is stands at its allocation until the policy lets it go on. A tenant that is alone
//! on its GPU has nobody to wait for, and is left alone.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use berth_model::hold::{By, Grip, Held, HoldChange, Means, Stage, Step, Want};
use berth_model::{Bytes, Event, GpuIndex, HaltedCall, Mono, ProcKey, TenantKey};
use berth_policy::{Action, Activity, Decision, Stand, Tenant, View};
use berth_store::NeedsBack;

use super::Manager;
use super::pools::{Claimant, Pools};

/// How long a means that failed on a tenant is not offered for it again: host memory may come free.
const REFUSED_FOR: Duration = Duration::from_secs(60);
/// Those named as having the memory someone waits for; the largest.
const MOST_NAMED: usize = 3;

/// The pool that nothing can be had from.
const CLOSED: GpuIndex = GpuIndex(u32::MAX);

/// What the manager keeps about memory.
#[derive(Debug, Default)]
pub(super) struct Room {
    pub pools: Pools,
    /// Out of which pool processes allocate.
    limited: BTreeMap<ProcKey, GpuIndex>,
    /// How far each pool may be drawn, as the gate was last told.
    allowed: BTreeMap<GpuIndex, Bytes>,
    /// Means that failed on a tenant, until when they are not offered.
    refused: BTreeMap<(TenantKey, Means), Mono>,
    /// Those in whose memory someone is interested and who cannot be parked: why, where that is known.
    unparkable: BTreeMap<TenantKey, Option<String>>,
}

impl Room {
    pub fn note(&mut self, event: &Event) {
        self.pools.note(event);
        if let Event::ProcessExited { process, .. } = event {
            self.limited.remove(process);
        }
    }

    /// What failed on a tenant is not tried on it again at once.
    pub fn refuse(&mut self, change: &HoldChange) {
        if let HoldChange::HoldFailed { tenant, wanted, at, .. } = change
            && let Some(means @ (Means::Park | Means::Lock)) = wanted.means()
        {
            self.refused.insert((tenant.clone(), means), *at + REFUSED_FOR);
        }
    }

    pub fn is_refused(&self, tenant: &TenantKey, means: Means) -> bool {
        self.refused.contains_key(&(tenant.clone(), means))
    }

    /// What the parked processes of a grip need back, as far as is known.
    pub fn needs_back(&self, grip: &Grip) -> impl Iterator<Item = (ProcKey, Held)> {
        grip.parked.iter().filter_map(|process| Some((*process, self.pools.held(*process)?)))
    }

    /// For the journal.
    pub fn record(&self, grip: &Grip) -> Vec<NeedsBack> {
        self.needs_back(grip).map(|(process, held)| NeedsBack { process, held }).collect()
    }
}

impl Manager {
    /// Tenants wait for memory: the policy queues them, and means what it decides.
    fn queues_for_memory(&self) -> bool {
        self.rehearsal.is_none() && self.policy.as_ref().is_some_and(|policy| policy.queues_for_memory())
    }

    /// It was thawed only to be locked: its threads are kept at the calls they stand at.
    pub(super) fn stays_at_its_call(&self, event: &Event, now: Mono) -> bool {
        let Event::Step { tenant, step: Step::Thaw(_), .. } = event else { return false };
        let want = self.keeper.view(tenant, now).map(|view| view.want);
        matches!(want, Some(Want::Locked | Want::Parked))
    }

    /// What an event says about memory, after the keeper has heard of it.
    pub(super) fn note_room(&mut self, event: &Event) {
        self.room.note(event);
        match event {
            Event::Halted { process, call: HaltedCall::Allocation { bytes }, at } => {
                let Some(tenant) = self.activities.tenant_of(*process).cloned() else { return };
                let is_free = self.keeper.view(&tenant, *at).is_none_or(|view| view.want == Want::Free);
                if is_free && self.queues_for_memory() {
                    // Refused: a person has decided about it, and it goes on.
                    let reason = format!("it wants {bytes} that its GPU has not left");
                    let _ = self.keeper.want(&tenant, Want::Gated, By::Policy, &reason, *at);
                }
            }
            Event::Step { step: Step::Checkpoint(process), outcome: Ok(()), at, .. } => {
                if let Some(held) = self.crew.needs_back(*process) {
                    self.room.pools.remember(*process, held, *at);
                }
                self.room.pools.vacate(*process, *at);
            }
            _ => {}
        }
    }

    /// The policy is told what is left now, not what was at the last look.
    pub(super) fn tell_room(&mut self, view: &mut View, now: Mono) {
        self.room.refused.retain(|_, until| now < *until);
        if !self.queues_for_memory() {
            return;
        }
        let used: BTreeSet<GpuIndex> = self.room.limited.values().copied().collect();
        for gpu in used {
            self.room.pools.read(gpu, self.ground.taken(gpu), now);
        }
        self.ask_who_can_be_parked(view);
        for gpu in &mut view.gpus {
            if let (Some(total), Some(free)) = (gpu.memory_total, self.room.pools.free(gpu.index)) {
                gpu.memory_used = Some(Bytes(total.0.saturating_sub(free.0)));
            }
        }
    }

    /// Where someone waits for memory, the policy is offered to park only those of whom it is known that it can work.
    fn ask_who_can_be_parked(&mut self, view: &mut View) {
        let wants = |tenant: &Tenant| matches!(tenant.activity, Activity::AtAllocation { .. }) || is_parked(tenant);
        let wanted: BTreeSet<GpuIndex> = view.tenants.iter().filter(|tenant| wants(tenant)).flat_map(gpus).collect();
        self.room.unparkable.clear();
        let candidates = |tenant: &&mut Tenant| {
            tenant.means.contains(&Means::Park) && !is_parked(tenant) && !tenant.gpus.is_disjoint(&wanted)
        };
        for tenant in view.tenants.iter_mut().filter(candidates) {
            let processes = self.activities.processes_of(&tenant.key);
            let reason = match self.ground.can_park(&processes) {
                Some(Ok(())) => continue,
                Some(Err(reason)) => Some(reason),
                None => None,
            };
            tenant.means.remove(&Means::Park);
            self.room.unparkable.insert(tenant.key.clone(), reason);
        }
    }

    /// Keeps room for those that are let go: for what they stand at, and what was moved out.
    pub(super) fn promise_room(&mut self, decisions: &[Decision], view: &View) {
        for Decision { tenant: key, .. } in decisions.iter().filter(|decision| decision.action == Action::Release) {
            let Some(tenant) = view.tenants.iter().find(|tenant| tenant.key == *key) else { continue };
            let asked = if let Activity::AtAllocation { bytes, .. } = tenant.activity { bytes } else { Bytes(0) };
            let note = self.keeper.note(key).map(|note| note.grip).unwrap_or_default();
            let parked: Bytes = self.room.needs_back(&note).map(|(_, held)| held.bytes).sum();
            let bytes = asked + parked;
            if bytes > Bytes(0) {
                let gpus = tenant.gpus.iter().copied().collect();
                self.room.pools.claim(key, gpus, bytes, tenant.memory.unwrap_or_default());
            }
        }
    }

    /// Says how deep each pool is, who takes from which, and why someone waits.
    pub(super) fn hand_out(&mut self, view: &View, now: Mono) {
        let is_on = self.queues_for_memory();
        let wanted = if is_on { self.pools_of(view, now) } else { BTreeMap::new() };
        let keeper = &self.keeper;
        self.room.pools.settle(now, |key| {
            let tenant = view.tenants.iter().find(|tenant| tenant.key == *key)?;
            let stage = keeper.view(key, now).map(|view| view.stage);
            Some(Claimant { memory: tenant.memory, is_moving: stage == Some(Stage::Moving) })
        });
        if !wanted.is_empty() {
            // Before anybody is sent there.
            for (gpu, ceiling) in self.room.pools.ceilings().into_iter().chain([(CLOSED, Bytes(0))]) {
                if self.room.allowed.insert(gpu, ceiling) != Some(ceiling) {
                    self.ground.allow(gpu, ceiling);
                }
            }
        }
        let processes: BTreeSet<ProcKey> = self.room.limited.keys().chain(wanted.keys()).copied().collect();
        for process in processes {
            let pool = wanted.get(&process).copied();
            if pool != self.room.limited.get(&process).copied() {
                self.ground.limit(process, pool);
            }
        }
        self.room.limited = wanted;
        self.say_why(view, now);
    }

    /// Of everybody who shares a GPU and may be stopped, the pool each process is to take from. Where someone has waited for too
    /// long, newcomers take nothing until it has been served: else those that fit would keep it waiting for ever.
    fn pools_of(&self, view: &View, now: Mono) -> BTreeMap<ProcKey, GpuIndex> {
        let overdue = self.overdue(view, now);
        let is_late = |tenant: &Tenant, gpu: GpuIndex| {
            let is_behind = overdue.get(&gpu).is_some_and(|arrived| *arrived < tenant.arrived);
            is_behind && tenant.activity == Activity::Loading
        };
        let may_stop = |tenant: &&Tenant| tenant.means.contains(&Means::Gate) && tenant.stand != Stand::ByPerson;
        let shares = |tenant: &&Tenant| {
            view.tenants.iter().any(|other| {
                other.key != tenant.key && (tenant.gpus.is_empty() || !tenant.gpus.is_disjoint(&other.gpus))
            })
        };
        let processes = view.tenants.iter().filter(may_stop).filter(shares).flat_map(|tenant| {
            let each = self.activities.processes_of(&tenant.key).into_iter();
            each.filter_map(move |process| {
                let gpu = self.pool_of(process, tenant, view)?;
                Some((process, if is_late(tenant, gpu) { CLOSED } else { gpu }))
            })
        });
        processes.collect()
    }

    /// When the first of those arrived who have stood at an allocation for longer than anyone should, by GPU.
    fn overdue(&self, view: &View, now: Mono) -> BTreeMap<GpuIndex, Mono> {
        let mut overdue: BTreeMap<GpuIndex, Mono> = BTreeMap::new();
        for tenant in &view.tenants {
            let Activity::AtAllocation { since, .. } = tenant.activity else { continue };
            if now.since(since) < self.rules.fifo.longest_wait.get() {
                continue;
            }
            for gpu in &tenant.gpus {
                let first = overdue.entry(*gpu).or_insert(tenant.arrived);
                *first = (*first).min(tenant.arrived);
            }
        }
        overdue
    }

    /// Where a process allocates. Which of several GPUs an allocation is for cannot be seen: then the one with most room counts,
    /// so that what would fit is not stopped.
    fn pool_of(&self, process: ProcKey, tenant: &Tenant, view: &View) -> Option<GpuIndex> {
        let listed = self.room.pools.gpus_of(process);
        let known: Vec<GpuIndex> = if listed.is_empty() { tenant.gpus.iter().copied().collect() } else { listed };
        let all = || view.gpus.iter().map(|gpu| gpu.index).collect();
        let candidates: Vec<GpuIndex> = if known.is_empty() { all() } else { known };
        candidates.into_iter().max_by_key(|gpu| self.room.pools.free(*gpu))
    }

    /// Those who stand at an allocation are told who has what they wait for.
    fn say_why(&mut self, view: &View, now: Mono) {
        for tenant in &view.tenants {
            let Activity::AtAllocation { .. } = tenant.activity else { continue };
            let Some(hold) = self.keeper.view(&tenant.key, now) else { continue };
            if (hold.want, hold.by) == (Want::Gated, By::Policy) {
                let reason = why(tenant, view, &self.room.unparkable);
                let _ = self.keeper.want(&tenant.key, Want::Gated, By::Policy, &reason, now);
            }
        }
    }
}

fn is_parked(tenant: &Tenant) -> bool {
    matches!(tenant.stand, Stand::Held { means: Means::Park, .. } | Stand::Moving { to: Some(Means::Park), .. })
}

fn gpus(tenant: &Tenant) -> Vec<GpuIndex> {
    tenant.gpus.iter().copied().collect()
}

/// ``GPU 0 has 2.0 GiB left, `a` has 20.0 GiB``, and why that cannot be moved out where it was asked.
fn why(tenant: &Tenant, view: &View, unparkable: &BTreeMap<TenantKey, Option<String>>) -> String {
    let free =
        tenant.gpus.iter().filter_map(|gpu| view.gpu(*gpu)).filter_map(|gpu| Some((gpu.index, gpu.memory_free()?)));
    let Some((gpu, free)) = free.min_by_key(|(_, free)| *free) else {
        return "it waits for memory of its GPU".to_owned();
    };
    let mut others: Vec<(Bytes, &Tenant)> = view
        .tenants
        .iter()
        .filter(|other| other.key != tenant.key && other.gpus.contains(&gpu))
        .filter_map(|other| Some((other.memory.filter(|memory| memory.0 > 0)?, other)))
        .collect();
    others.sort_unstable_by_key(|(memory, other)| (std::cmp::Reverse(*memory), &other.key));
    let named = others.into_iter().take(MOST_NAMED).map(|(memory, other)| {
        let stays = unparkable.get(&other.key).and_then(Option::as_ref);
        let stays = stays.map_or_else(String::new, |reason| format!(", which cannot be parked: {reason}"));
        format!(", `{}` has {memory}{stays}", other.name)
    });
    format!("GPU {gpu} has {free} left{}", named.collect::<String>())
}
