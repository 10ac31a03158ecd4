//! Deadlines in the loop: which one counts for whom, what became of each unit of work, and who is about to be late.
//!
//! Stands beside the manager and needs none: where nobody can be held, units are judged all the same. The deciding is
//! `berth_model::deadline`'s; here it is fed with what the host tells, and what it says is shown, told and written down.

mod admit;
mod asks;
mod misses;
mod outlook;
mod pulse;
mod records;
mod said;
mod spreads;
mod standing;
mod totals;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use berth_model::deadline::{
    Judge, Judged, Left, Origin, Pulse, Read, Sitting, Spread, Tally, Terms, Unit, UnitRule, Verdict, Who, terms,
    unit_rule,
};
use berth_model::history::{Happening, Judgement, LeftOpen, Record, Workload};
use berth_model::snapshot::{DeadlineRow, WorkRow};
use berth_model::{
    Anchor, Change, ContainerId, Deadline, Evidence, GpuUuid, Mono, ProcKey, Snapshot, TaskId, TaskRow, TenantKey,
    settings,
};
use berth_policy::Work;
use berth_store::history::Writer;

use asks::Asks;
pub(crate) use asks::Stage;
use misses::Misses;
use outlook::{Outlook, outlook};
pub(crate) use pulse::by_looks;
use records::Records;
pub(crate) use said::Said;
use spreads::Spreads;
pub(crate) use standing::owners;
use totals::Totals;

/// How long those of the daemon before are looked for where the driver does not answer.
const LOOKED_FOR: Duration = Duration::from_secs(30);
/// Tenants whose deadlines are remembered after they left.
const MOST_READ: usize = 1_024;

/// What the host tells about its tenants, at one turn.
pub(crate) struct Scene<'a> {
    pub snapshot: &'a Snapshot,
    pub labels: &'a dyn Fn(&TenantKey) -> Option<&'a BTreeMap<String, String>>,
    /// Every name of a tenant's owner.
    pub owners: &'a dyn Fn(&TaskRow) -> Vec<String>,
    pub pulse: &'a dyn Fn(&TaskRow) -> Pulse,
    pub processes: &'a dyn Fn(&TenantKey) -> BTreeSet<ProcKey>,
    pub now: &'a Anchor,
}

#[derive(Debug)]
pub(crate) struct Deadlines {
    rules: settings::Deadlines,
    judge: Judge,
    said: Said,
    asks: Asks,
    reads: BTreeMap<TenantKey, Read>,
    people: BTreeMap<TenantKey, Person>,
    spreads: Spreads,
    totals: Totals,
    misses: Misses,
    records: Records,
    /// Tasks that were judged as a whole since they were last asked for.
    tasks: Vec<Judgement>,
    /// Every unit that was judged since they were last asked for, with its tenant and what people call it.
    units: Vec<(TenantKey, String, Judgement)>,
    /// Since when the units are under way of which it was told that they will be late.
    warned: BTreeMap<TenantKey, Mono>,
    /// Whose units of the daemon before may go on.
    left: BTreeMap<TenantKey, Earlier>,
    /// Units of an earlier boot: nobody saw their end.
    lost: Vec<(TenantKey, Left, Earlier)>,
    /// When this daemon first attended.
    since: Option<Mono>,
    /// To be told.
    changes: Vec<Change>,
}

/// Who a tenant is, as it was last seen.
#[derive(Debug)]
struct Person {
    name: String,
    workload: Workload,
    start: Start,
    /// It has been on in this task.
    gpus: BTreeSet<GpuUuid>,
}

/// Who a tenant was when the daemon before was last heard of.
#[derive(Debug)]
struct Earlier {
    person: Person,
    /// When that was, by both clocks: instants of another boot mean nothing by those of this one.
    heard: Anchor,
}

/// When its task began, and how that is known.
#[derive(Debug, Clone, Copy)]
struct Start {
    task: TaskId,
    at: Mono,
    evidence: Evidence,
}

impl Deadlines {
    pub fn new(rules: settings::Deadlines) -> Self {
        Self {
            judge: Judge::new(rules.clone()),
            rules,
            said: Said::in_memory(),
            asks: Asks::default(),
            reads: BTreeMap::new(),
            people: BTreeMap::new(),
            spreads: Spreads::default(),
            totals: Totals::default(),
            misses: Misses::default(),
            records: Records::default(),
            tasks: Vec::new(),
            units: Vec::new(),
            warned: BTreeMap::new(),
            left: BTreeMap::new(),
            lost: Vec::new(),
            since: None,
            changes: Vec::new(),
        }
    }

    /// What happened before this daemon.
    pub fn recall(&mut self, record: &Record) {
        self.spreads.note(record);
        self.totals.recall(record);
    }

    /// What persons have said, and where it is kept.
    pub fn keep(&mut self, said: Said) {
        self.said = said;
    }

    /// Containers of which something was said: whether their engine still has them is to be asked.
    pub fn containers(&self) -> impl Iterator<Item = &ContainerId> {
        self.said.containers()
    }

    /// Units that were under way when the daemon before was last heard of.
    pub fn resume(&mut self, writer: Option<Writer>, left_open: Vec<Record>, boot: Option<&str>) {
        self.records.open(writer);
        for Record { at: wall, tenant, name, what } in left_open {
            let Happening::Task(story) = what else { continue };
            let Some(LeftOpen { boot: of, left }) = story.left.map(|left| *left) else { continue };
            let at = left.open.as_ref().map_or(left.heard, |open| open.started);
            let start = Start { task: story.task_id, at, evidence: story.start_evidence };
            let person = Person::new(name, story.workload, start);
            let earlier = Earlier { person, heard: Anchor { mono: left.heard, wall } };
            if boot == Some(&of) {
                self.judge.recall(tenant.clone(), left);
                self.left.insert(tenant, earlier);
            } else {
                self.lost.push((tenant, left, earlier));
            }
        }
    }

    /// Learns from a task that has ended.
    pub fn learn(&mut self, record: &Record) {
        self.spreads.note(record);
    }

    /// The engine no longer has this container: nobody asks for its figures any more.
    pub fn forget(&mut self, id: &ContainerId) {
        self.totals.forget(id);
        self.said.forget(id);
    }

    /// Tasks that began and ended, and what everybody in one does.
    pub fn attend(&mut self, scene: &Scene<'_>, changes: &[Change]) {
        for change in changes {
            match change {
                Change::TaskStarted { task, tenant, at, evidence, name } => {
                    let start = Start { task: *task, at: *at, evidence: *evidence };
                    self.people.insert(tenant.clone(), Person::new(name.clone(), nothing(), start));
                }
                Change::TaskEnded { task, tenant, at, .. } => self.task_ended(*task, tenant, *at, scene),
                _ => {}
            }
        }
        let rows: BTreeMap<&TenantKey, &TaskRow> =
            scene.snapshot.tasks.iter().rev().map(|row| (&row.tenant, row)).collect();
        for (tenant, row) in &rows {
            self.sit(tenant, row, scene);
        }
        for row in &scene.snapshot.tasks {
            if let (Some(person), Some(gpu)) = (self.people.get_mut(&row.tenant), &row.gpu_uuid) {
                person.gpus.insert(gpu.clone());
            }
        }
        // What is known of those who left is for telling only what is new when they come back.
        if self.reads.len() > MOST_READ {
            self.reads.retain(|tenant, _| rows.contains_key(tenant));
        }
        self.give_up_on_the_lost(scene);
        self.records.write_due(scene.now);
    }

    /// Whoever has a deadline is watched, so that it is known when it computes.
    pub fn watched(&self) -> BTreeSet<TenantKey> {
        self.reads.iter().filter(|(_, read)| read.terms.is_some()).map(|(tenant, _)| tenant.clone()).collect()
    }

    /// A tenant's work under way, for the policy.
    pub fn work(&self, tenant: &TenantKey, now: Mono) -> Option<Work> {
        let work = self.judge.work(tenant).filter(|work| !self.is_resting(work, tenant, now))?;
        let takes = self.takes(tenant, work.unit);
        Some(Work { started: work.started, due: work.due, done: work.active, takes })
    }

    /// A tenant's unit under way, for the next daemon.
    pub fn open(&self, tenant: &TenantKey, now: Mono) -> Option<Left> {
        self.judge.open(tenant, now)
    }

    /// When something will be known though nothing happens.
    pub fn again_at(&self, now: Mono) -> Option<Mono> {
        let dues = self.people.keys().filter_map(|tenant| {
            let work = self.judge.work(tenant)?;
            [outlook::warn_at(work.started, work.due), work.due].into_iter().find(|at| *at > now)
        });
        let given_up = self.since.filter(|_| self.looks_for_some()).map(|since| since + LOOKED_FOR);
        let ends = dues.chain(self.judge.again_at()).chain(self.records.again_at()).chain(given_up);
        ends.chain(self.answer_by()).filter(|at| *at > now).min()
    }

    /// Units of the daemon before of which it is not known yet whether they go on: what is on record of them must stay.
    pub fn looks_for_some(&self) -> bool {
        !self.left.is_empty() || !self.lost.is_empty()
    }

    /// The daemon stops: what waits to be written down is.
    pub fn flush(&mut self) {
        self.records.flush_all();
    }

    /// Fills in everybody's deadline, and tells what is to be told.
    pub fn show(&mut self, snapshot: &mut Snapshot, now: &Anchor) -> Vec<Change> {
        for row in &mut snapshot.tasks {
            row.deadline = self.row(row, now);
        }
        for judgement in &self.tasks {
            if let Some(ended) = snapshot.ended.iter_mut().find(|ended| ended.task_id == judgement.task_id) {
                Arc::make_mut(ended).judgement = Some(judgement.clone());
            }
        }
        snapshot.deadlines = self.totals.view();
        snapshot.deadlines.misses = self.misses.view(now);
        snapshot.deadlines.pasts = self.spreads.number();
        std::mem::take(&mut self.changes)
    }

    /// Tasks that were judged as a whole, for whoever shows those that have ended.
    pub fn tasks(&mut self) -> Vec<Judgement> {
        std::mem::take(&mut self.tasks)
    }

    /// Units that were judged, for whoever watches how tenants do.
    pub fn units(&mut self) -> Vec<(TenantKey, String, Judgement)> {
        std::mem::take(&mut self.units)
    }

    fn sit(&mut self, tenant: &TenantKey, row: &TaskRow, scene: &Scene<'_>) {
        let read = self.read(tenant, row, scene);
        self.reads.insert(tenant.clone(), read.clone());
        let Some(person) = self.people.get_mut(tenant).filter(|_| row.task_id.is_some()) else { return };
        person.name.clone_from(&row.container_name);
        person.workload = workload(row);
        let Start { task, at, evidence } = person.start;
        let sitting = Sitting {
            tenant,
            task,
            task_started: at,
            evidence,
            processes: (scene.processes)(tenant),
            unit: unit_rule((scene.labels)(tenant), &self.rules),
            terms: read.terms.as_ref(),
            pulse: (scene.pulse)(row),
        };
        let judged = self.judge.sit(sitting, scene.now.mono);
        if let Some(judged) = judged {
            self.judged(&judged, scene.now);
        }
    }

    /// Which deadline counts now. What is new about it is told.
    fn read(&mut self, tenant: &TenantKey, row: &TaskRow, scene: &Scene<'_>) -> Read {
        let (owners, given) = ((scene.owners)(row), self.said.of(tenant));
        let read = terms(Who { labels: (scene.labels)(tenant), owners: &owners, given }, &self.rules);
        let before = self.reads.get(tenant);
        let name = &row.container_name;
        for label in read.unread.iter().filter(|label| before.is_none_or(|before| !before.unread.contains(label))) {
            tracing::warn!(%tenant, name, "a label is not understood: {label}");
        }
        let Some(now) = read.terms.as_ref().filter(|now| before.and_then(|before| before.terms.as_ref()) != Some(*now))
        else {
            return read;
        };
        if now.origin == Origin::StockLabel {
            tracing::info!(%tenant, name, deadline = %now.deadline, "a label that is a number is taken for a deadline, as of `docker run -dl`");
        }
        if let Some(asked) = &now.asked {
            self.changes.push(Change::DeadlineOutOfBounds {
                tenant: tenant.clone(),
                name: name.clone(),
                asked: asked.deadline,
                counts: now.deadline,
                bound: asked.bound.to_string(),
                at: scene.now.mono,
            });
        }
        read
    }

    fn task_ended(&mut self, task: TaskId, tenant: &TenantKey, at: Mono, scene: &Scene<'_>) {
        let Some(Person { start, .. }) = self.people.get(tenant) else { return };
        let (start, is_new) = (*start, self.judge.unit(tenant).is_none());
        if is_new {
            // It came and went between two turns.
            self.sit_late(tenant, start, task, scene);
        }
        if let Some(judged) = self.judge.task_ended(tenant, at) {
            self.judged(&judged, scene.now);
        }
        self.records.flush(tenant);
        self.people.remove(tenant);
        self.warned.remove(tenant);
    }

    /// One whose task was never seen under way is judged as a whole, from what is known of it now.
    fn sit_late(&mut self, tenant: &TenantKey, start: Start, task: TaskId, scene: &Scene<'_>) {
        let Some(ended) = scene.snapshot.ended.iter().find(|ended| ended.task_id == task) else { return };
        let owners: Vec<String> = ended.owner.iter().cloned().collect();
        let given = self.said.of(tenant);
        let read = terms(Who { labels: (scene.labels)(tenant), owners: &owners, given }, &self.rules);
        if let Some(person) = self.people.get_mut(tenant) {
            let (owner, image) = (ended.owner.clone(), ended.image.clone());
            let gpus = scene.snapshot.gpus.iter().filter(|gpu| ended.gpus.contains(&gpu.index));
            person.gpus = gpus.filter_map(|gpu| gpu.uuid.clone()).collect();
            person.name.clone_from(&ended.container_name);
            person.workload = Workload { owner, image, command: ended.command.clone() };
        }
        let sitting = Sitting {
            tenant,
            task,
            task_started: start.at,
            evidence: start.evidence,
            processes: BTreeSet::new(),
            unit: unit_rule((scene.labels)(tenant), &self.rules),
            terms: read.terms.as_ref(),
            pulse: Pulse::Unknown,
        };
        self.judge.sit(sitting, start.at);
    }

    /// Units of the daemon before that nobody has come back for by the first look at a GPU that answers: nobody saw their end.
    fn give_up_on_the_lost(&mut self, scene: &Scene<'_>) {
        let (snapshot, now) = (scene.snapshot, scene.now);
        let is_late = now.mono.since(*self.since.get_or_insert(now.mono)) >= LOOKED_FOR;
        let has_looked = snapshot.counters.samples > 0 && snapshot.gpus.iter().any(|gpu| gpu.lost.is_none());
        if !self.looks_for_some() || (!has_looked && !is_late) {
            return;
        }
        let is_coming = |tenant: &TenantKey| {
            let mut rows = snapshot.tasks.iter();
            !is_late && rows.any(|row| row.task_id.is_none() && row.tenant.is(tenant))
        };
        let lost = self.judge.lost(is_coming).into_iter().filter_map(|(tenant, left)| {
            let earlier = self.left.remove(&tenant)?;
            Some((tenant, left, earlier))
        });
        let lost: Vec<_> = lost.chain(std::mem::take(&mut self.lost)).collect();
        for (tenant, Left { deadline, open, .. }, Earlier { person, heard }) in lost {
            let (Some(deadline), Some(open)) = (deadline, open) else { continue };
            let judged = open.judged(&tenant, person.start.task, deadline, None);
            let judgement = Judgement::of(&judged, person.workload, &heard);
            self.note(&judged, person.name, judgement, now);
        }
        self.left.retain(|tenant, _| is_coming(tenant));
    }

    fn judged(&mut self, judged: &Judged, now: &Anchor) {
        let Some(person) = self.people.get(&judged.tenant) else { return };
        if let (Verdict::Miss, Some(ended)) = (Verdict::of(judged.float_seconds), judged.ended) {
            self.misses.add(&person.gpus, ended);
        }
        let (name, judgement) = (person.name.clone(), Judgement::of(judged, person.workload.clone(), now));
        self.note(judged, name, judgement, now);
    }

    fn note(&mut self, judged: &Judged, name: String, judgement: Judgement, now: &Anchor) {
        if judged.unit == Unit::Task && judged.ended.is_some() {
            self.tasks.push(judgement.clone());
        }
        self.units.push((judged.tenant.clone(), name.clone(), judgement.clone()));
        self.totals.note(&judged.tenant, &judgement);
        self.spreads.judged(&judgement);
        self.changes.push(Change::UnitJudged {
            tenant: judged.tenant.clone(),
            name: name.clone(),
            unit: judged.unit,
            deadline: judged.deadline,
            verdict: Verdict::of(judged.float_seconds),
            float_nanos: judged.float_seconds.map(nanos),
            why: judged.why.as_ref().map(ToString::to_string),
            at: judged.ended.unwrap_or(now.mono),
        });
        self.records.add(&judged.tenant, name, judgement, judged.ended, now);
    }

    /// One that has not computed for so long that what comes next will be another unit.
    fn is_resting(&self, work: &berth_model::deadline::Work, tenant: &TenantKey, now: Mono) -> bool {
        let rule = self.reads.get(tenant).and_then(|read| read.terms.as_ref()).map(|terms| terms.unit);
        let after = match (work.unit, rule) {
            (Unit::Burst, _) => self.rules.burst_gap.get(),
            (Unit::Task, Some(UnitRule::Auto)) => self.rules.serves_after.get(),
            (Unit::Task, _) => return false,
        };
        work.quiet_since.is_some_and(|quiet| now.since(quiet) >= after)
    }

    fn takes(&self, tenant: &TenantKey, unit: Unit) -> Option<Spread> {
        let seen = self.spreads.of(&self.people.get(tenant)?.workload, unit);
        // Somebody's word, until there is something to go by.
        seen.or_else(|| Spread::of([self.reads.get(tenant)?.takes?.seconds()]))
    }

    fn row(&mut self, row: &TaskRow, now: &Anchor) -> Option<DeadlineRow> {
        let terms = self.reads.get(&row.tenant)?.terms.clone()?;
        let work = self.judge.work(&row.tenant).filter(|work| !self.is_resting(work, &row.tenant, now.mono));
        let unit = self.judge.unit(&row.tenant).unwrap_or(Unit::Task);
        let takes = self.takes(&row.tenant, unit);
        let under_way = work.map(|work| {
            let outlook = outlook(&work, takes.as_ref(), row.hold.as_ref(), now);
            self.warn(row, &terms, &work, &outlook, now.mono);
            WorkRow {
                started_at: now.wall_at(work.started),
                due_at: now.wall_at(work.due),
                float_seconds: outlook.float_seconds,
                expected_float_seconds: outlook.expected_float_seconds,
                active_seconds: work.active.as_secs_f64(),
                risk: outlook.risk,
            }
        });
        let next_takes = self.takes(&row.tenant, Unit::Burst).filter(|_| under_way.is_none());
        Some(counted(terms, unit, under_way, [takes, next_takes], self.totals.of(&row.tenant)))
    }

    /// Once per unit.
    fn warn(&mut self, row: &TaskRow, terms: &Terms, work: &berth_model::deadline::Work, outlook: &Outlook, now: Mono) {
        let Some(reason) = &outlook.warning else { return };
        if self.warned.insert(row.tenant.clone(), work.started) == Some(work.started) {
            return;
        }
        self.totals.warned();
        self.changes.push(Change::DeadlineEndangered {
            tenant: row.tenant.clone(),
            name: row.container_name.clone(),
            unit: work.unit,
            deadline: terms.deadline,
            due: work.due,
            reason: reason.clone(),
            at: now,
        });
    }
}

impl Person {
    fn new(name: String, workload: Workload, start: Start) -> Self {
        Self { name, workload, start, gpus: BTreeSet::new() }
    }
}

/// A deadline as it is shown.
fn counted(
    terms: Terms,
    unit: Unit,
    work: Option<WorkRow>,
    [takes, next_takes]: [Option<Spread>; 2],
    (tally, last_float_seconds): (Tally, Option<f64>),
) -> DeadlineRow {
    let Terms { deadline, origin, asked, .. } = terms;
    let (asked, bound): (Option<Deadline>, Option<String>) =
        asked.map(|asked| (asked.deadline, asked.bound.to_string())).unzip();
    DeadlineRow { deadline, origin, asked, bound, unit, work, takes, next_takes, tally, last_float_seconds }
}

fn workload(row: &TaskRow) -> Workload {
    Workload { owner: row.owner.clone(), image: row.image.clone(), command: row.command.clone() }
}

/// Of one of whom nothing has been seen yet.
fn nothing() -> Workload {
    Workload { owner: None, image: None, command: String::new() }
}

#[expect(clippy::cast_possible_truncation, reason = "a deadline is at most a year; what is beyond is cut")]
fn nanos(seconds: f64) -> i64 {
    (seconds * 1e9) as i64
}

#[cfg(test)]
mod tests;
