//! Entries to write and read in tests.

use berth_model::hold::{By, Freezer, Grip, Held, Want};
use berth_model::{Bytes, ContainerId, GpuIndex, Mono, ProcKey, Runtime, TenantKey};
use jiff::Timestamp;
use proptest::prelude::*;

use crate::{Entry, NeedsBack};

pub fn entry(path: &str) -> Entry {
    let process = ProcKey { pid: 4_000_001, start_ticks: 77 };
    Entry {
        tenant: TenantKey::Cgroup { path: path.into() },
        cgroup: Some(format!("/nowhere{path}").into()),
        container: None,
        grip: Grip { gated: [process].into(), frozen: Some(Freezer::Cgroup), ..Grip::default() },
        want: Want::Gated,
        needs_back: Vec::new(),
        by: By::Policy,
        since: Mono(5),
        since_wall: Timestamp::UNIX_EPOCH,
        name: "a".into(),
        reason: "`b` computes".into(),
    }
}

pub fn any_entry() -> impl Strategy<Value = Entry> {
    let process = (any::<u32>(), any::<u64>()).prop_map(|(pid, start_ticks)| ProcKey { pid, start_ticks });
    let set = || prop::collection::btree_set(process.clone(), 0..4);
    let frozen = prop::option::of(prop_oneof![Just(Freezer::Cgroup), Just(Freezer::Shelter), Just(Freezer::Docker)]);
    let parts = (set(), set(), frozen, any::<bool>(), set(), set());
    let grip = parts.prop_map(|(gated, stopped, frozen, sheltered, locked, parked)| Grip {
        gated,
        stopped,
        frozen,
        sheltered,
        locked,
        parked,
    });
    let want =
        prop_oneof![Just(Want::Free), Just(Want::Gated), Just(Want::Frozen(Freezer::Docker)), Just(Want::Parked)];
    let by = prop_oneof![Just(By::Policy), any::<u32>().prop_map(|uid| By::Person { uid })];
    (any::<bool>(), any::<String>(), grip, want, by, any::<String>()).prop_map(
        |(contained, id, grip, want, by, text)| {
            let container = contained.then(|| ContainerId(id.clone()));
            let tenant = match &container {
                Some(id) => TenantKey::Container { runtime: Runtime::Docker, id: id.clone() },
                None => TenantKey::Cgroup { path: id },
            };
            let held = |process: ProcKey| Held { gpu: GpuIndex(process.pid), bytes: Bytes(process.start_ticks) };
            let needs_back = grip.parked.iter().map(|process| NeedsBack { process: *process, held: held(*process) });
            let needs_back = needs_back.collect();
            let (name, reason) = (text.clone(), text);
            Entry { tenant, container, grip, want, needs_back, by, name, reason, ..entry("/a") }
        },
    )
}
