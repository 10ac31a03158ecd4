//! What the tests of several modules share.

use crate::{TaskRow, TaskState, TenantKey};

/// Of somebody of whom little is known.
pub fn row(tenant: TenantKey, name: &str) -> TaskRow {
    TaskRow {
        container_id: tenant.container_id().cloned(),
        tenant,
        container_name: name.into(),
        owner: None,
        image: None,
        container_started_at: None,
        command: "python".into(),
        pids: vec![1],
        process_kinds: vec![],
        gpu_uuid: None,
        gpu_index: None,
        gpu_memory_bytes: None,
        gpu_core_pct: None,
        state: TaskState::Loaded,
        task_id: None,
        task_started_at: None,
        task_seconds: None,
        task_start_evidence: None,
        hold: None,
        held_seconds: None,
        deadline: None,
    }
}
