//! A report from a snapshot: what others may know of this host. Pure, so that no request makes the daemon look at a GPU.

use std::collections::BTreeSet;

use super::{GpuReport, LoadReport, MOST_GPUS, MOST_LOADS, MOST_MISSES, MOST_PLACED, NodeId, Report, Stamp, UnderWay};
use crate::deadline::Unit;
use crate::id::{GpuIndex, GpuUuid, TenantKey};
use crate::quantity::{Bytes, Percent};
use crate::snapshot::{DeadlineRow, GpuView, HoldRow, HoldStage, Snapshot, TaskRow};

/// Of the node itself, as long as its daemon runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    pub node: NodeId,
    /// Of the daemon, as `berth --version` says it.
    pub berth: String,
    /// When its daemon started, by the node's wall clock, in milliseconds since 1970.
    pub started_ms: u64,
    /// Share of a GPU's time that is kept for those without a deadline, where there are any (`edf.rest`).
    pub rest: Percent,
}

/// Of a GPU's time what those with a deadline may have, more than 0 and at most 1.
pub fn share(has_others: bool, rest: Percent) -> f64 {
    let left = 1.0 - f64::from(rest.get()) / 100.0;
    if has_others { left.max(f64::EPSILON) } else { 1.0 }
}

impl Report {
    /// `number`: from 1 since the daemon started, never the same twice.
    pub fn of(snapshot: &Snapshot, about: &About, number: u64) -> Self {
        let at_ms = u64::try_from(snapshot.taken_at.as_millisecond()).unwrap_or_default();
        let management = snapshot.management.as_ref();
        let named = snapshot.gpus.iter().filter_map(|gpu| Some((gpu, gpu.uuid.as_ref()?)));
        Self {
            node: about.node.clone(),
            stamp: Stamp { started_ms: about.started_ms, number, at_ms },
            berth: about.berth.clone(),
            policy: management.map(|management| management.policy),
            means: management.map(|management| management.means.clone()).unwrap_or_default(),
            gpus: named.take(MOST_GPUS).map(|(gpu, uuid)| GpuReport::of(gpu, uuid, snapshot, about)).collect(),
            pasts: snapshot.deadlines.pasts,
        }
    }
}

impl GpuReport {
    fn of(gpu: &GpuView, uuid: &GpuUuid, snapshot: &Snapshot, about: &About) -> Self {
        let rows: Vec<&TaskRow> = snapshot.tasks.iter().filter(|row| row.may_be_on(gpu.index)).collect();
        // What was placed and has come to no GPU yet the placer counts itself, on the GPU that it was given.
        let is_counted = |row: &&TaskRow| row.gpu_index.is_some() || row.placement.is_none();
        let counted: Vec<&TaskRow> = rows.iter().copied().filter(is_counted).collect();
        let deadlines = || counted.iter().filter_map(|row| row.deadline.as_ref());
        let others = count(&counted, |row| row.deadline.is_none());
        let total = gpu.memory_total_bytes;
        // What a driver says while a GPU goes away need not fit together.
        let used = gpu.memory_used_bytes.map(|used| total.map_or(used, |total| used.min(total)));
        let last_float = |deadline: &DeadlineRow| deadline.last_float_seconds.filter(|_| deadline.work.is_none());
        let placed = rows.iter().rev().filter(|row| row.gpu_index == Some(gpu.index));
        Self {
            uuid: uuid.clone(),
            is_lost: gpu.lost.is_some(),
            memory_total_bytes: total,
            memory_used_bytes: used,
            memory_promised_bytes: promised(&counted, used.unwrap_or_default()),
            core_pct: gpu.core_pct,
            queue: count(&rows, |row| row.hold.as_ref().is_some_and(waits)),
            others,
            share: share(true, about.rest),
            loads: deadlines().take(MOST_LOADS).map(LoadReport::of).collect(),
            has_more: deadlines().count() > MOST_LOADS,
            missed_by_present: count(&rows, |row| row.deadline.as_ref().is_some_and(|row| row.tally.misses > 0)),
            misses_ago_seconds: misses_ago(snapshot, uuid),
            past_float_seconds: deadlines().filter_map(last_float).sum(),
            placed: placed.filter_map(|row| row.placement).take(MOST_PLACED).collect(),
        }
    }
}

impl LoadReport {
    /// Who is idle in its task may serve: what comes next is a burst.
    pub fn of(row: &DeadlineRow) -> Self {
        let deadline_seconds = row.deadline.seconds();
        let under_way = row.work.as_ref().map(|work| UnderWay {
            due_in_seconds: work.float_seconds.min(deadline_seconds),
            done_seconds: work.active_seconds.max(0.0),
        });
        let unit = if under_way.is_none() { Unit::Burst } else { row.unit };
        let takes = if unit == row.unit { row.takes } else { row.next_takes };
        Self { unit, deadline_seconds, under_way, takes }
    }
}

impl TaskRow {
    /// Who has only just opened a device may come to any GPU.
    pub fn may_be_on(&self, gpu: GpuIndex) -> bool {
        self.gpu_index.is_none_or(|at| at == gpu)
    }
}

/// What they have said they will need and have not taken. Where the driver does not say how much each has, they have what of the used
/// memory is nobody else's; if one of them has said nothing, it may be all of that one.
fn promised(rows: &[&TaskRow], used: Bytes) -> Bytes {
    let needed = |row: &TaskRow| row.memory_needed_bytes.unwrap_or_default();
    let is_untold = |row: &TaskRow| row.gpu_index.is_some() && row.gpu_memory_bytes.is_none();
    let (untold, told): (Vec<&TaskRow>, Vec<&TaskRow>) = rows.iter().partition(|row| is_untold(row));
    let taken = |row: &TaskRow| row.gpu_memory_bytes.unwrap_or_default();
    let is_all_theirs = untold.iter().all(|row| row.memory_needed_bytes.is_some());
    let others: Bytes = told.iter().map(|row| taken(row)).sum();
    let theirs = if is_all_theirs { less(used, others) } else { Bytes(0) };
    let of_told = told.iter().map(|row| less(needed(row), taken(row)));
    of_told.chain([less(untold.iter().map(|row| needed(row)).sum(), theirs)]).sum()
}

fn less(bytes: Bytes, taken: Bytes) -> Bytes {
    Bytes(bytes.0.saturating_sub(taken.0))
}

/// It stands in line, and not only in a dry run.
fn waits(hold: &HoldRow) -> bool {
    let is_done = !matches!(hold.stage, HoldStage::WouldGate | HoldStage::WouldHold | HoldStage::Exempt);
    is_done && hold.place.is_some()
}

fn misses_ago(snapshot: &Snapshot, uuid: &GpuUuid) -> Vec<f64> {
    let here = snapshot.deadlines.misses.iter().filter(|miss| miss.gpu_uuid == *uuid);
    let ago = |at: jiff::Timestamp| snapshot.taken_at.duration_since(at).as_secs_f64().max(0.0);
    let mut agos: Vec<f64> = here.map(|miss| ago(miss.missed_at)).collect();
    agos.sort_by(f64::total_cmp);
    agos.truncate(MOST_MISSES);
    agos
}

/// Tenants, not rows.
fn count(rows: &[&TaskRow], is_one: impl Fn(&TaskRow) -> bool) -> u32 {
    let tenants: BTreeSet<&TenantKey> = rows.iter().filter(|row| is_one(row)).map(|row| &row.tenant).collect();
    u32::try_from(tenants.len()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
