//! The host as policies see it: the snapshot, what tenants do, and where each stands with berth.

use std::collections::{BTreeMap, BTreeSet};

use berth_model::hold::{By, HoldView, Keeper, Means, Stage, Want};
use berth_model::{Bytes, GpuIndex, Mono, Snapshot, TaskRow, TenantKey};
use berth_policy::{Activity, Gpu, Stand, Tenant, View};

use super::activity::Activities;
use super::annals::Annals;
use super::past::past;
use super::terms::{Terms, join_projects};

pub(super) fn view(
    snapshot: &Snapshot,
    activities: &Activities,
    keeper: &Keeper,
    terms: &BTreeMap<TenantKey, Terms>,
    annals: &Annals,
    now: Mono,
) -> View {
    let gpus: Vec<Gpu> = snapshot
        .gpus
        .iter()
        .map(|gpu| Gpu {
            index: gpu.index,
            memory_total: gpu.memory_total_bytes,
            memory_used: gpu.memory_used_bytes,
            core: gpu.core_pct,
            core_at: activities.looked(gpu.index),
        })
        .collect();
    let sole = (gpus.len() == 1).then(|| gpus[0].index);
    let mut rows: BTreeMap<&TenantKey, Vec<&TaskRow>> = BTreeMap::new();
    for row in &snapshot.tasks {
        rows.entry(&row.tenant).or_default().push(row);
    }
    let tenants = rows.into_iter().filter_map(|(key, rows)| {
        let first = rows.first()?;
        let terms = terms.get(key).cloned().unwrap_or_default();
        let before = annals.before(first);
        Some(Tenant {
            key: key.clone(),
            name: first.container_name.clone(),
            owner: first.owner.clone(),
            gpus: gpus_of(&rows, sole),
            gang: terms.gang,
            arrived: activities.came(key).unwrap_or(now),
            activity: activities.activity_of(key).unwrap_or(Activity::Unseen),
            memory: rows.iter().filter_map(|row| row.gpu_memory_bytes).reduce(|a, b| Bytes(a.0 + b.0)),
            needs: terms.needs.or_else(|| before?.peak_memory_bytes),
            core: rows.iter().filter_map(|row| row.gpu_core_pct).max(),
            stand: keeper.view(key, now).map_or(Stand::Free, |hold| stand(&hold)),
            means: terms.means,
            past: before.as_ref().and_then(past),
            work: None,
        })
    });
    let mut tenants: Vec<Tenant> = tenants.collect();
    join_projects(&mut tenants, terms);
    View { tenants, gpus }
}

/// Before the driver lists it, a newcomer can only be on the one GPU there is.
fn gpus_of(rows: &[&TaskRow], sole: Option<GpuIndex>) -> BTreeSet<GpuIndex> {
    let listed: BTreeSet<GpuIndex> = rows.iter().filter_map(|row| row.gpu_index).collect();
    if listed.is_empty() { sole.into_iter().collect() } else { listed }
}

fn stand(hold: &HoldView) -> Stand {
    if matches!(hold.by, By::Person { .. }) || hold.is_frozen_by_others {
        return Stand::ByPerson;
    }
    match hold.stage {
        Stage::Free => Stand::Free,
        Stage::Armed => Stand::Gated { since: hold.since },
        Stage::Held => {
            let means = means_of(hold.want).unwrap_or(Means::Gate);
            Stand::Held { means, since: hold.held_since.unwrap_or(hold.since) }
        }
        Stage::Moving => Stand::Moving { to: means_of(hold.want), since: hold.since },
    }
}

pub(super) fn means_of(want: Want) -> Option<Means> {
    match want {
        Want::Free => None,
        Want::Gated | Want::Barred => Some(Means::Gate),
        Want::Frozen(_) => Some(Means::Freeze),
        Want::Locked => Some(Means::Lock),
        Want::Parked => Some(Means::Park),
    }
}
