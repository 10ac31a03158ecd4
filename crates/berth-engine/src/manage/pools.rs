//! What is left of each GPU's memory, and how much of it may be taken before the next look.
//!
//! The driver tells what is in use when it is asked, a few times a second; tenants allocate in between. So those that share
//! a GPU take from one *pool* that the gate keeps in the kernel, and whoever asks for more than is in it is stopped. What fits
//! passes, at the cost of the probe; two who ask at the same instant cannot both have the last of it.
//!
//! A look says how deep the pool is. What was taken shortly before it may not be in its figure yet, and is counted once more
//! rather than not at all, until the next look. Room that was promised to someone, who was let go or is being restored, is not
//! in the pool.
//!
//! Pure: events, readings of the pools and the time in, depths out.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use berth_model::hold::{Held, gpu_reserve};
use berth_model::{Bytes, Event, GpuIndex, GpuReading, Mono, ProcKey, Sample, TenantKey};

/// An allocation may take this long from the call until the driver counts it.
const ALLOCATES_WITHIN: Duration = Duration::from_millis(100);
/// From the time a tenant goes on until it has taken what it was let go for, or never will.
const CLAIMS_WITHIN: Duration = Duration::from_millis(1_000);

/// Readings kept of each pool between two looks.
const MOST_READINGS: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Pools {
    pools: BTreeMap<GpuIndex, Pool>,
    /// What each process had where it was last listed, and when that was.
    seen: BTreeMap<ProcKey, BTreeMap<GpuIndex, (Bytes, Mono)>>,
    claims: BTreeMap<TenantKey, Claim>,
}

#[derive(Debug, Default)]
struct Pool {
    total: Option<Bytes>,
    /// By the last look, and when that began.
    used: Option<(Bytes, Mono)>,
    /// What had been taken out of the pool by then, and is certain to be in that figure.
    base: Bytes,
    /// What had been taken when; the last is the newest, all are younger than the base or the base itself.
    readings: VecDeque<(Mono, Bytes)>,
    /// What was moved out since the last look, and when.
    vacated: Vec<(Mono, Bytes)>,
}

/// Room that someone was promised and may not have taken yet.
#[derive(Debug, Clone, PartialEq)]
struct Claim {
    gpus: Vec<GpuIndex>,
    bytes: Bytes,
    /// What it had before.
    had: Bytes,
    /// Since when nothing keeps it from taking it.
    free_since: Option<Mono>,
}

/// One that has been promised something, as it is now.
#[derive(Debug, Clone, Copy)]
pub(super) struct Claimant {
    /// GPU memory it has; `None` where that is not told.
    pub memory: Option<Bytes>,
    /// It is on its way: thawed, restored, unlocked.
    pub is_moving: bool,
}

impl Pools {
    pub fn note(&mut self, event: &Event) {
        match event {
            Event::Gpus(gpus) => {
                self.pools.retain(|index, _| gpus.iter().any(|gpu| gpu.index == *index));
                for gpu in gpus {
                    self.pools.entry(gpu.index).or_default().total = gpu.memory_total;
                }
            }
            Event::Sample(sample) => self.look(sample),
            Event::ProcessExited { process, .. } => _ = self.seen.remove(process),
            _ => {}
        }
    }

    fn look(&mut self, sample: &Sample) {
        for gpu in &sample.gpus {
            let Some(pool) = self.pools.get_mut(&gpu.index) else { continue };
            let GpuReading::Ok { memory_used, processes, .. } = &gpu.reading else {
                pool.used = None;
                continue;
            };
            pool.look(*memory_used, sample.at);
            for listed in processes.iter().flatten() {
                if let Some(bytes) = listed.memory {
                    self.seen.entry(listed.process).or_default().insert(gpu.index, (bytes, sample.at));
                }
            }
        }
    }

    /// Takes in what has been taken out of a pool by now.
    pub fn read(&mut self, gpu: GpuIndex, taken: Bytes, now: Mono) {
        if let Some(pool) = self.pools.get_mut(&gpu) {
            pool.read(now, taken);
        }
    }

    /// What is left for allocations; `None` where the driver does not tell.
    pub fn free(&self, gpu: GpuIndex) -> Option<Bytes> {
        let pool = self.pools.get(&gpu)?;
        let since = pool.taken().0.saturating_sub(pool.base.0);
        Some(Bytes(pool.depth()?.0.saturating_sub(since)))
    }

    /// What the pool of each GPU may be drawn to: what it was at the last look and what was free then, less what is promised.
    pub fn ceilings(&self) -> Vec<(GpuIndex, Bytes)> {
        let ceiling = |(index, pool): (&GpuIndex, &Pool)| {
            let claims = self.claims.values().filter(|claim| claim.gpus.contains(index)).map(|claim| claim.bytes);
            let left = pool.depth()?.0.saturating_sub(claims.sum::<Bytes>().0);
            Some((*index, pool.base + Bytes(left)))
        };
        self.pools.iter().filter_map(ceiling).collect()
    }

    /// Promises room to one that is about to go on.
    pub fn claim(&mut self, tenant: &TenantKey, gpus: Vec<GpuIndex>, bytes: Bytes, had: Bytes) {
        self.claims.insert(tenant.clone(), Claim { gpus, bytes, had, free_since: None });
    }

    /// Ends the claims of those that have taken what they were promised, have had the time to, or are gone (`None`).
    pub fn settle(&mut self, now: Mono, claimant: impl Fn(&TenantKey) -> Option<Claimant>) {
        let pools = &self.pools;
        self.claims.retain(|tenant, claim| {
            let Some(claimant) = claimant(tenant) else { return false };
            if claimant.is_moving {
                claim.free_since = None;
                return true;
            }
            let free_since = *claim.free_since.get_or_insert(now);
            let has_taken = claimant.memory.is_some_and(|memory| memory >= claim.had + claim.bytes);
            let is_told = |gpu: &GpuIndex| {
                let looked = pools.get(gpu).and_then(|pool| pool.used).map(|(_, at)| at);
                looked.is_some_and(|at| at > free_since + CLAIMS_WITHIN)
            };
            !has_taken && !claim.gpus.iter().all(is_told)
        });
    }

    /// On which GPUs the driver lists a process now.
    pub fn gpus_of(&self, process: ProcKey) -> Vec<GpuIndex> {
        let is_now = |(gpu, (_, at)): &(&GpuIndex, &(Bytes, Mono))| {
            self.pools.get(gpu).and_then(|pool| pool.used).is_some_and(|(_, looked)| looked == *at)
        };
        self.seen.get(&process).into_iter().flatten().filter(is_now).map(|(gpu, _)| *gpu).collect()
    }

    /// What a process had where it was last listed; `None` if it never was.
    pub fn held(&self, process: ProcKey) -> Option<Held> {
        let seen = self.seen.get(&process)?.iter().max_by_key(|(_, (bytes, at))| (*at, *bytes));
        seen.map(|(gpu, (bytes, _))| Held { gpu: *gpu, bytes: *bytes })
    }

    /// The memory of a process has been moved out: that is free before a look says so.
    pub fn vacate(&mut self, process: ProcKey, at: Mono) {
        if let Some((held, pool)) = self.held(process).and_then(|held| Some((held, self.pools.get_mut(&held.gpu)?))) {
            pool.vacated.push((at, held.bytes));
        }
    }

    /// Whoever has parked a process knows exactly what it had; or an earlier daemon wrote it down.
    pub fn remember(&mut self, process: ProcKey, held: Held, at: Mono) {
        self.seen.entry(process).or_default().insert(held.gpu, (held.bytes, at));
    }
}

impl Pool {
    fn look(&mut self, used: Option<Bytes>, at: Mono) {
        self.used = used.map(|used| (used, at));
        self.vacated.retain(|(vacated_at, _)| *vacated_at >= at);
        let is_in = |(read_at, _): &(Mono, Bytes)| *read_at + ALLOCATES_WITHIN <= at;
        while self.readings.front().is_some_and(is_in) && self.readings.get(1).is_some_and(is_in) {
            self.readings.pop_front();
        }
        if let Some((_, taken)) = self.readings.front().filter(|reading| is_in(reading)) {
            self.base = *taken;
        }
    }

    /// Of equal readings the first says it all. Of more than anyone looks at, the oldest go: what they knew is counted twice then.
    fn read(&mut self, now: Mono, taken: Bytes) {
        if self.readings.back().is_none_or(|(_, last)| *last != taken) {
            self.readings.push_back((now, taken));
        }
        if self.readings.len() > MOST_READINGS {
            self.readings.pop_front();
        }
    }

    fn taken(&self) -> Bytes {
        self.readings.back().map_or(self.base, |(_, taken)| *taken)
    }

    /// What was free at the last look, and has been moved out since.
    fn depth(&self) -> Option<Bytes> {
        let (total, (used, _)) = (self.total?, self.used?);
        let vacated: Bytes = self.vacated.iter().map(|(_, bytes)| *bytes).sum();
        let used = Bytes(used.0.saturating_sub(vacated.0));
        Some(Bytes(total.0.saturating_sub(used.0).saturating_sub(gpu_reserve(total).0)))
    }
}

#[cfg(test)]
mod tests {
    use berth_model::{GpuInfo, GpuProcess, GpuSample, GpuUuid, ProcessKind};

    use super::*;

    const GPU: GpuIndex = GpuIndex(0);
    const MS: u64 = 1_000_000;

    fn mib(mib: u64) -> Bytes {
        Bytes::from_mib(mib)
    }

    fn at(ms: u64) -> Mono {
        Mono(ms * MS)
    }

    /// A GPU of 24 GiB, of which the driver keeps one.
    fn pools() -> Pools {
        let mut memory = Pools::default();
        let (uuid, name) = (GpuUuid("GPU-0".into()), "a GPU".to_owned());
        memory.note(&Event::Gpus(vec![GpuInfo {
            index: GPU,
            uuid,
            name,
            memory_total: Some(mib(24 << 10)),
            mig: None,
        }]));
        memory
    }

    fn looked(memory: &mut Pools, ms: u64, used: u64, processes: Vec<GpuProcess>) {
        let reading =
            GpuReading::Ok { memory_used: Some(mib(used)), memory_free: None, core: None, processes: Ok(processes) };
        let gpus = vec![GpuSample { index: GPU, reading }];
        memory.note(&Event::Sample(Sample { at: at(ms), gpus, ..Sample::default() }));
    }

    fn ceiling(memory: &Pools) -> Bytes {
        memory.ceilings()[0].1
    }

    fn tenant() -> TenantKey {
        TenantKey::User { uid: 1 }
    }

    #[test]
    fn what_was_taken_since_the_look_is_no_longer_free_and_the_ceiling_stays() {
        let mut memory = pools();
        assert_eq!(memory.free(GPU), None, "nobody has looked");
        memory.read(GPU, mib(0), at(0));
        looked(&mut memory, 500, 3 << 10, Vec::new());
        assert_eq!((memory.free(GPU), ceiling(&memory)), (Some(mib(20 << 10)), mib(20 << 10)));
        memory.read(GPU, mib(6 << 10), at(510));
        assert_eq!((memory.free(GPU), ceiling(&memory)), (Some(mib(14 << 10)), mib(20 << 10)));
    }

    #[test]
    fn what_was_taken_shortly_before_a_look_is_counted_twice_rather_than_not_at_all() {
        let mut memory = pools();
        memory.read(GPU, mib(0), at(0));
        looked(&mut memory, 500, 0, Vec::new());
        memory.read(GPU, mib(6 << 10), at(960));
        // The driver may not have counted it yet; here it has.
        looked(&mut memory, 1_000, 6 << 10, Vec::new());
        assert_eq!(memory.free(GPU), Some(mib(11 << 10)));
        looked(&mut memory, 1_100, 6 << 10, Vec::new());
        assert_eq!(memory.free(GPU), Some(mib(17 << 10)), "by now it is certain");
        assert_eq!(ceiling(&memory), mib(23 << 10), "what was taken, and what is free");
    }

    #[test]
    fn promised_room_is_not_in_the_pool_until_it_is_taken_or_the_time_for_it_is_over() {
        let mut memory = pools();
        let claimant = |memory, is_moving| move |_: &TenantKey| Some(Claimant { memory: Some(mib(memory)), is_moving });
        memory.read(GPU, mib(0), at(0));
        looked(&mut memory, 500, 0, Vec::new());
        memory.claim(&tenant(), vec![GPU], mib(8 << 10), mib(1 << 10));
        assert_eq!((memory.free(GPU), ceiling(&memory)), (Some(mib(23 << 10)), mib(15 << 10)));
        memory.settle(at(600), claimant(1 << 10, true));
        looked(&mut memory, 9_000, 0, Vec::new());
        memory.settle(at(9_000), claimant(1 << 10, false));
        assert_eq!(ceiling(&memory), mib(15 << 10), "it has only just come free");
        let mut other = Pools { claims: memory.claims.clone(), ..Pools::default() };
        other.settle(at(9_100), claimant(9 << 10, false));
        assert!(other.claims.is_empty(), "it has taken it");
        looked(&mut memory, 10_001, 0, Vec::new());
        memory.settle(at(10_001), claimant(1 << 10, false));
        assert_eq!(ceiling(&memory), mib(23 << 10), "it did not take it");
    }

    #[test]
    fn what_a_process_had_is_known_when_it_is_no_longer_listed() {
        let mut memory = pools();
        let process = ProcKey { pid: 7, start_ticks: 1 };
        let kind = ProcessKind::Compute;
        let listed = GpuProcess { process, kind, memory: Some(mib(300)), core: None };
        looked(&mut memory, 500, 300, vec![listed.clone()]);
        assert_eq!(memory.gpus_of(process), [GPU]);
        looked(&mut memory, 600, 0, Vec::new());
        assert_eq!(memory.gpus_of(process), []);
        assert_eq!(memory.held(process), Some(Held { gpu: GPU, bytes: mib(300) }));
        looked(&mut memory, 700, 300, vec![listed]);
        memory.vacate(process, at(750));
        assert_eq!(memory.free(GPU), Some(mib(23 << 10)), "parked since the look");
        looked(&mut memory, 800, 0, Vec::new());
        assert_eq!(memory.free(GPU), Some(mib(23 << 10)), "and not counted twice");
        memory.note(&Event::ProcessExited { process, at: at(900) });
        assert_eq!(memory.held(process), None);
    }
}
