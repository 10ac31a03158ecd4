//! From events to tenants and tasks.
//!
//! A *task* is one stay of a tenant on the GPUs: it begins with the first of the tenant's processes that comes on (see
//! [`stay`]) and ends when the last is off. Several processes of a tenant are one task; a tenant that comes back begins
//! another. Tasks of one tenant never overlap, also when sources report late and out of order.
//!
//! The monitor decides nothing about tenants and touches nothing: it is a function of the events, in order.

mod ended;
mod pace;
mod stay;
#[cfg(test)]
mod tests;
mod view;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crate::event::{
    Change, ContainerFacts, Event, Evidence, GpuInfo, GpuProcess, GpuReading, GpuSample, HaltedCall, Moment, Sample,
    Source, SourceStatus,
};
use crate::history::Judgement;
use crate::hold;
use crate::id::{ContainerId, GpuIndex, ProcKey, TaskId, TenantKey};
use crate::quantity::{Bytes, Percent};
use crate::settings;
use crate::snapshot::{Counters, TaskEnd};
use crate::time::Mono;

use self::ended::EndedViews;
pub use self::pace::Pace;
use self::stay::{Stay, Step};

/// How far the driver's utilisation looks back: it is refreshed about every 200 ms, for the 200 ms before.
const UTILISATION_LAG: Duration = Duration::from_millis(400);

/// The model of this host.
#[derive(Debug)]
pub struct Monitor {
    settings: settings::Monitor,
    gpus: BTreeMap<GpuIndex, Gpu>,
    stays: BTreeMap<ProcKey, Stay>,
    tasks: BTreeMap<TenantKey, Task>,
    /// Only of containers with a process here.
    containers: BTreeMap<ContainerId, Naming>,
    sources: BTreeMap<Source, SourceStatus>,
    ended: VecDeque<Ended>,
    /// `ended` as it is shown, dated by the anchor it was made with.
    ended_views: EndedViews,
    last_task: u64,
    counters: Counters,
    pace: Pace,
    utilisation_at: Option<Mono>,
}

#[derive(Debug, Default)]
struct Gpu {
    /// `None` for one that no inventory could describe: it was lost before anybody asked.
    info: Option<GpuInfo>,
    memory_used: Option<Bytes>,
    core: Option<Percent>,
    lost: Option<String>,
    /// Why the last look could not list its processes.
    blind: Option<String>,
    /// The one tenant looks have found here, and since when.
    sole: Option<(TenantKey, Mono)>,
}

#[derive(Debug)]
struct Task {
    id: TaskId,
    started: Mono,
    evidence: Evidence,
    /// Of the process that began it.
    command: String,
    gpus: BTreeSet<GpuIndex>,
    peak_memory: Option<Bytes>,
}

#[derive(Debug)]
struct Ended {
    task: Task,
    tenant: TenantKey,
    name: String,
    owner: Option<String>,
    image: Option<String>,
    at: Mono,
    end: TaskEnd,
    judgement: Option<Judgement>,
}

/// What is known about a container's name.
#[derive(Debug)]
enum Naming {
    Asked,
    Known(Box<ContainerFacts>),
}

/// What the loop should do before it waits for the next event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    /// Look at the GPUs again after this long.
    pub look_in: Duration,
    /// That look should read per-process use too.
    pub per_process_core: bool,
    /// Bandwidth is to be told of too, now and then.
    pub bandwidth: bool,
}

impl Monitor {
    pub fn new(settings: settings::Monitor) -> Self {
        Self {
            pace: Pace::new(settings.clone()),
            settings,
            gpus: BTreeMap::new(),
            stays: BTreeMap::new(),
            tasks: BTreeMap::new(),
            containers: BTreeMap::new(),
            sources: BTreeMap::new(),
            ended: VecDeque::new(),
            ended_views: EndedViews::default(),
            last_task: 0,
            counters: Counters::default(),
            utilisation_at: None,
        }
    }

    /// Takes in one event and tells what changed.
    pub fn apply(&mut self, event: Event) -> Vec<Change> {
        match event {
            Event::Gpus(gpus) => self.inventory(gpus),
            Event::Process(facts) => {
                self.stays.entry(facts.process).or_insert_with(|| Stay::new(facts));
                Vec::new()
            }
            Event::Sample(sample) => self.sample(&sample),
            Event::Moment { process, moment, at } => self.moment(process, moment, at),
            Event::ProcessExited { process, at } => self.exited(process, at),
            Event::Container(facts) => {
                if self.stays.values().any(|stay| stay.facts.tenant.container_id() == Some(&facts.id)) {
                    self.containers.insert(facts.id.clone(), Naming::Known(facts));
                }
                Vec::new()
            }
            Event::Step { step, outcome: Ok(()), at, .. } => {
                self.stepped(step, at);
                Vec::new()
            }
            // Who waits for memory waits for a look that finds some.
            Event::Halted { call: HaltedCall::Allocation { .. }, at, .. } => {
                self.pace.event(at);
                Vec::new()
            }
            // Other holds do not change who is on a GPU.
            Event::Halted { .. }
            | Event::Drained { .. }
            | Event::Launched { .. }
            | Event::Step { .. }
            | Event::Paused { .. }
            | Event::Signalled { .. }
            | Event::HealthCheck { .. }
            | Event::Bandwidth(_)
            | Event::Asked => Vec::new(),
            // Its processes' exits end the task; until they are in, the name stays.
            Event::ContainerGone { .. } => Vec::new(),
            Event::Stirred { at, .. } => {
                if !self.is_probed() {
                    self.pace.rumour(at);
                }
                Vec::new()
            }
            Event::Source { source, status } => self.source(source, status),
            Event::Kernels { tenant, news, at } => {
                vec![Change::KernelLevel { name: self.name_of(&tenant), tenant, news, at }]
            }
            Event::PolicyChosen(chosen) => vec![Change::PolicyChosen(chosen)],
        }
    }

    /// When to look next, and at what. `by_looks`: somebody waits for what only looks tell.
    pub fn wish(&self, now: Mono, by_looks: bool) -> Wish {
        let every = self.settings.utilisation_interval.get();
        let shared = self.gpus.keys().any(|gpu| self.tenants_on(*gpu).len() > 1);
        Wish {
            look_in: self.pace.next_look(now, self.is_probed() && !by_looks),
            per_process_core: shared && self.utilisation_at.is_none_or(|at| now.since(at) >= every),
            bandwidth: false,
        }
    }

    /// Containers the engine here may know, whose names are to be asked for; each is told once, and again when the engine comes back
    /// or the question was taken back.
    pub fn take_questions(&mut self) -> Vec<ContainerId> {
        let tenants = self.stays.values().map(|stay| &stay.facts.tenant);
        // A pod's containers are of whichever runtime its node has.
        let ids: BTreeSet<_> = match self.sources.get(&Source::Kubernetes) {
            None | Some(SourceStatus::Off) => tenants.filter_map(TenantKey::docker_id).cloned().collect(),
            Some(_) => tenants.filter_map(TenantKey::container_id).cloned().collect(),
        };
        self.containers.retain(|id, _| ids.contains(id));
        let new: Vec<_> = ids.into_iter().filter(|id| !self.containers.contains_key(id)).collect();
        self.containers.extend(new.iter().map(|id| (id.clone(), Naming::Asked)));
        new
    }

    /// Takes a question back that could not be put: it is among the next ones again.
    pub fn ask_again(&mut self, id: &ContainerId) {
        if matches!(self.containers.get(id), Some(Naming::Asked)) {
            self.containers.remove(id);
        }
    }

    fn is_probed(&self) -> bool {
        self.sources.get(&Source::Probes) == Some(&SourceStatus::Up)
    }

    fn inventory(&mut self, gpus: Vec<GpuInfo>) -> Vec<Change> {
        let mut known = std::mem::take(&mut self.gpus);
        // Also where another GPU has come in its place: who was on the old one is not on the new one.
        let (mut gone, mut changes) = (BTreeSet::new(), Vec::new());
        for info in gpus {
            let before = known.remove(&info.index);
            let was_lost = before.as_ref().is_some_and(|gpu| gpu.lost.is_some());
            let gpu = before.filter(|gpu| gpu.info.as_ref().is_none_or(|known| known.uuid == info.uuid));
            if gpu.is_none() {
                gone.insert(info.index);
                // Whoever was told of the loss is told of its end: there is a GPU again.
                changes.extend(was_lost.then_some(Change::GpuBack { gpu: info.index }));
            }
            self.gpus.insert(info.index, Gpu { info: Some(info), ..gpu.unwrap_or_default() });
        }
        gone.extend(known.into_keys());
        for stay in self.stays.values_mut() {
            gone.iter().for_each(|gpu| stay.gpu_gone(*gpu));
        }
        changes
    }

    fn sample(&mut self, sample: &Sample) -> Vec<Change> {
        self.counters.samples += 1;
        self.pace.looked(sample.at + sample.took, sample.at, sample.cpu);
        let mut changes = Vec::new();
        let last_listed: BTreeMap<_, _> = self.stays.iter().map(|(key, stay)| (*key, stay.last_listed())).collect();
        for gpu in &sample.gpus {
            self.gpu_sample(gpu, sample.at, &mut changes);
        }
        for (process, last_listed) in last_listed {
            let Some(stay) = self.stays.get_mut(&process) else { continue };
            let step = stay.settle(sample.at, last_listed);
            self.follow(process, step, &mut changes);
        }
        self.attribute_sole_tenants(sample.at);
        self.note_peaks();
        changes
    }

    fn gpu_sample(&mut self, sample: &GpuSample, at: Mono, changes: &mut Vec<Change>) {
        // One that no inventory names could not be described: while it is lost, that much is known of it.
        let gpu = match (&sample.reading, self.gpus.entry(sample.index)) {
            (_, Entry::Occupied(known)) => known.into_mut(),
            (GpuReading::Lost { .. }, Entry::Vacant(unknown)) => unknown.insert(Gpu::default()),
            (GpuReading::Ok { .. }, Entry::Vacant(_)) => return,
        };
        match &sample.reading {
            GpuReading::Lost { reason } => {
                (gpu.memory_used, gpu.core, gpu.blind) = (None, None, None);
                if gpu.lost.replace(reason.clone()).is_none() {
                    self.counters.gpus_lost += 1;
                    changes.push(Change::GpuLost { gpu: sample.index, reason: reason.clone() });
                }
            }
            GpuReading::Ok { memory_used, core, processes, .. } => {
                (gpu.memory_used, gpu.core) = (*memory_used, *core);
                if gpu.lost.take().is_some() {
                    changes.push(Change::GpuBack { gpu: sample.index });
                }
                gpu.blind = processes.as_ref().err().cloned();
                if let Ok(processes) = processes {
                    self.process_list(sample.index, processes, at, changes);
                }
            }
        }
    }

    fn process_list(&mut self, gpu: GpuIndex, listed: &[GpuProcess], at: Mono, changes: &mut Vec<Change>) {
        for seen in listed {
            if seen.core.is_some() {
                self.utilisation_at = Some(at);
            }
            let Some(stay) = self.stays.get_mut(&seen.process) else { continue };
            let step = stay.listed(gpu, seen, at, self.counters.samples == 1);
            self.follow(seen.process, step, changes);
        }
        let listed: BTreeSet<ProcKey> = listed.iter().map(|seen| seen.process).collect();
        for (_, stay) in self.stays.iter_mut().filter(|(process, _)| !listed.contains(process)) {
            stay.not_listed(gpu, at);
        }
    }

    /// The device's own figure is fresher and cheaper than per-process ones, and exact for a tenant that is alone.
    fn attribute_sole_tenants(&mut self, at: Mono) {
        let indices: Vec<GpuIndex> = self.gpus.keys().copied().collect();
        for index in indices {
            let tenants = self.tenants_on(index);
            let tenant = tenants.first().filter(|_| tenants.len() == 1).map(|tenant| (*tenant).clone());
            let Some(gpu) = self.gpus.get_mut(&index) else { continue };
            let since = gpu.sole.take().filter(|(before, _)| Some(before) == tenant.as_ref());
            gpu.sole = tenant.map(|tenant| (tenant, since.map_or(at, |(_, since)| since)));
            if self.sole_core(index, at).is_some_and(|core| core.get() > 0) {
                for stay in self.stays.values_mut().filter(|stay| stay.on_gpus.contains_key(&index)) {
                    stay.computed_at = stay.computed_at.max(Some(at));
                }
            }
        }
    }

    /// The device's use where it can only be that of the one tenant there: alone for as long as the figure looks back.
    fn sole_core(&self, index: GpuIndex, now: Mono) -> Option<Percent> {
        let gpu = self.gpus.get(&index)?;
        let (tenant, since) = gpu.sole.as_ref()?;
        let mut here = self.stays.values().filter(|stay| stay.on_gpus.contains_key(&index));
        let is_alone = here.all(|stay| stay.facts.tenant == *tenant);
        gpu.core.filter(|_| is_alone && now.since(*since) >= UTILISATION_LAG)
    }

    fn note_peaks(&mut self) {
        for (tenant, task) in &mut self.tasks {
            let stays = self.stays.values().filter(|stay| stay.facts.tenant == *tenant);
            let held = stays.flat_map(|stay| &stay.on_gpus);
            let mut memory = None;
            for (gpu, presence) in held {
                task.gpus.insert(*gpu);
                memory = presence.memory.map(|bytes| bytes + memory.unwrap_or_default()).or(memory);
            }
            task.peak_memory = task.peak_memory.max(memory);
        }
    }

    /// Locking and moving memory change what the driver lists, not who is here.
    fn stepped(&mut self, step: hold::Step, at: Mono) {
        let is_locked = match step {
            hold::Step::Lock(_) => true,
            hold::Step::Unlock(_) => false,
            hold::Step::Checkpoint(_) | hold::Step::Restore(_) => return self.pace.event(at),
            _ => return,
        };
        if let Some(stay) = step.process().and_then(|process| self.stays.get_mut(&process)) {
            stay.lock(is_locked, at);
        }
    }

    fn moment(&mut self, process: ProcKey, moment: Moment, at: Mono) -> Vec<Change> {
        let Some(stay) = self.stays.get_mut(&process) else { return Vec::new() };
        let is_first = stay.is_first(moment);
        let step = stay.moment(moment, at);
        self.pace.event(at);
        let tenant = self.stays[&process].facts.tenant.clone();
        let mut changes = Vec::new();
        if is_first {
            let name = self.name_of(&tenant);
            changes.push(Change::MomentSeen { tenant, name, process, moment, at });
        }
        self.follow(process, step, &mut changes);
        changes
    }

    fn exited(&mut self, process: ProcKey, at: Mono) -> Vec<Change> {
        let mut changes = Vec::new();
        let Some(stay) = self.stays.get_mut(&process) else { return changes };
        if stay.is_present() {
            self.pace.event(at);
        }
        let step = stay.exited(at);
        self.follow(process, step, &mut changes);
        if let (Some(Change::TaskEnded { .. }), Some(ended)) = (changes.last(), self.ended.front_mut()) {
            ended.end = TaskEnd::Exited;
        }
        self.stays.remove(&process);
        changes
    }

    fn source(&mut self, source: Source, status: SourceStatus) -> Vec<Change> {
        if matches!(source, Source::Docker | Source::Kubernetes) && status == SourceStatus::Up {
            self.containers.retain(|_, naming| matches!(naming, Naming::Known(_)));
        }
        let before = self.sources.insert(source, status.clone());
        if before.as_ref() == Some(&status) { Vec::new() } else { vec![Change::SourceChanged { source, status }] }
    }

    /// Begins or ends the tenant's task where a process's step makes it so.
    fn follow(&mut self, process: ProcKey, step: Step, changes: &mut Vec<Change>) {
        let Some(facts) = self.stays.get(&process).map(|stay| &stay.facts) else { return };
        let tenant = facts.tenant.clone();
        match step {
            Step::Same => {}
            Step::Began { at, evidence } => {
                let command = facts.command.clone();
                self.pace.event(at);
                if !self.tasks.contains_key(&tenant) {
                    changes.push(self.start_task(tenant, command, at, evidence));
                }
            }
            Step::Ended { at } => {
                let others_on = self.stays.values().any(|stay| stay.is_on() && stay.facts.tenant == tenant);
                if !others_on && let Some(task) = self.tasks.remove(&tenant) {
                    changes.push(self.end_task(tenant, task, at));
                }
            }
        }
    }

    fn start_task(&mut self, tenant: TenantKey, command: String, at: Mono, evidence: Evidence) -> Change {
        self.last_task += 1;
        self.counters.tasks_started += 1;
        let id = TaskId(self.last_task);
        let previous_end = self.ended.iter().find(|ended| ended.tenant == tenant).map(|ended| ended.at);
        let started = at.max(previous_end.unwrap_or(at));
        let name = self.name_of(&tenant);
        let task = Task { id, started, evidence, command, gpus: BTreeSet::new(), peak_memory: None };
        self.tasks.insert(tenant.clone(), task);
        Change::TaskStarted { task: id, tenant, name, at: started, evidence }
    }

    fn end_task(&mut self, tenant: TenantKey, task: Task, at: Mono) -> Change {
        self.counters.tasks_ended += 1;
        let (name, owner, image) = (self.name_of(&tenant), self.owner_of(&tenant), self.image_of(&tenant));
        let at = at.max(task.started);
        let nanos = at.0 - task.started.0;
        let change = Change::TaskEnded { task: task.id, tenant: tenant.clone(), name: name.clone(), at, nanos };
        self.ended.push_front(Ended { task, tenant, name, owner, image, at, end: TaskEnd::Left, judgement: None });
        self.ended.truncate(self.settings.ended_tasks);
        self.ended_views.outdated();
        change
    }

    /// What became of a task that has ended and had a deadline.
    pub fn judged(&mut self, judgement: Judgement) {
        if let Some(ended) = self.ended.iter_mut().find(|ended| ended.task.id == judgement.task_id) {
            self.ended_views.judged(&judgement);
            ended.judgement = Some(judgement);
        }
    }
}
