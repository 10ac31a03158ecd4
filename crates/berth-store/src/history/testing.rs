//! Records to write and read in tests.

use berth_model::history::{Happening, Record, Spent, TaskStory, Workload};
use berth_model::hold::Means;
use berth_model::snapshot::TaskEnd;
use berth_model::{Bytes, ContainerId, Evidence, GpuIndex, Runtime, TaskId, TenantKey};
use jiff::Timestamp;
use proptest::prelude::*;

pub fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

pub fn record(second: i64, name: &str, what: Happening) -> Record {
    Record { at: at(second), tenant: TenantKey::Cgroup { path: format!("/{name}") }, name: name.into(), what }
}

pub fn released(second: i64, reason: &str) -> Record {
    record(second, "a", Happening::Released { by_uid: None, reason: reason.into() })
}

pub fn any_record() -> impl Strategy<Value = Record> {
    let text = || any::<String>();
    // Few enough digits to be read as they were written.
    let seconds = any::<u16>().prop_map(|parts| f64::from(parts) / 4.0);
    let task = (text(), prop::option::of(text()), prop::option::of(seconds), any::<u64>()).prop_map(
        |(command, image, active_seconds, task_id)| {
            Happening::Task(TaskStory {
                task_id: TaskId(task_id),
                workload: Workload { owner: image.clone(), image, command },
                gpus: vec![GpuIndex(1)],
                started_at: at(0),
                start_evidence: Evidence::Probe,
                seconds: 1.5,
                spent: Spent { active_seconds, held_seconds: Some(0.25), burst_seconds: None },
                peak_memory_bytes: Some(Bytes(task_id / 2)),
                end: active_seconds.map(|_| TaskEnd::Exited),
                left: None,
            })
        },
    );
    let held = (text(), prop::option::of(any::<u32>())).prop_map(|(reason, by_uid)| Happening::Held {
        means: Means::Gate,
        by_uid,
        reason,
    });
    let failed = text().prop_map(|message| Happening::HoldFailed { message });
    let released = text().prop_map(|reason| Happening::Released { by_uid: Some(0), reason });
    (0..1_000_i64, text(), prop_oneof![task, held, failed, released]).prop_map(|(second, name, what)| {
        let tenant = TenantKey::Container { runtime: Runtime::Docker, id: ContainerId(name.clone()) };
        Record { at: at(second), tenant, name, what }
    })
}
