//! What the policy is told: built from what berth could know at that instant.

use std::collections::BTreeSet;

use berth_model::{Bytes, GpuIndex, Mono, Percent};
use berth_policy::{Activity, Gpu, View, view};
use berth_sim::ProcessView;

use super::Arena;

impl Arena {
    pub(super) fn view(&self) -> View {
        let processes: Vec<&ProcessView> = self.looks.seen.iter().flat_map(|gpu| &gpu.processes).collect();
        let tenants = self.tenants.iter().enumerate().filter(|(_, tenant)| tenant.is_here()).map(|(index, tenant)| {
            let listed = processes.iter().find(|process| process.pid == tenant.process.pid);
            view::Tenant {
                key: tenant.key.clone(),
                name: tenant.name.clone(),
                owner: Some(tenant.owner.clone()),
                gpus: BTreeSet::from([GpuIndex(0)]),
                gang: None,
                arrived: Mono(tenant.arrived.unwrap_or_default()),
                activity: tenant.activity,
                memory: listed.and_then(|process| process.used_bytes).map(Bytes),
                needs: None,
                core: self.looks.shares.get(&tenant.process.pid).copied(),
                stand: tenant.stand(),
                means: tenant.means.clone(),
                past: tenant.past.or_else(|| self.errands.past(index)),
                work: self.errands.work(index, tenant),
            }
        });
        let gpus = self.looks.seen.iter().zip(0..).map(|(gpu, index)| Gpu {
            index: GpuIndex(index),
            memory_total: Some(Bytes(gpu.total_bytes)),
            memory_used: Some(Bytes(gpu.used_bytes)),
            core: Percent::checked(gpu.utilisation.gpu_pct),
            core_at: self.looks.seen_at,
        });
        View { gpus: gpus.collect(), tenants: tenants.collect() }
    }

    pub(super) fn note_memory(&mut self) {
        for process in self.looks.seen.iter().flat_map(|gpu| &gpu.processes) {
            let Some(tenant) = self.tenants.iter_mut().find(|tenant| tenant.process.pid == process.pid) else {
                continue;
            };
            tenant.stay.peak_memory = tenant.stay.peak_memory.max(process.used_bytes.map(Bytes));
        }
    }

    /// A monitor that has only the driver's list: who is on it has come, who is not has left.
    pub(super) fn go_by_list(&mut self, now: u64) {
        let listed: BTreeSet<u32> =
            self.looks.seen.iter().flat_map(|gpu| &gpu.processes).map(|process| process.pid).collect();
        for tenant in &mut self.tenants {
            if !listed.contains(&tenant.process.pid) {
                tenant.leave(now);
            } else if tenant.arrived.is_none() {
                tenant.arrived = Some(now);
                tenant.activity = Activity::Unseen;
            }
        }
    }
}
