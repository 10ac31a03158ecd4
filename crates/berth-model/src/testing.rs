//! What the tests of several modules share.

use jiff::Timestamp;

use crate::deadline::{Origin, Risk, Tally, Unit};
use crate::snapshot::{DeadlineRow, WorkRow};
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
        memory_needed_bytes: None,
        placement: None,
    }
}

/// Of one whose task has so much left of nine seconds.
pub fn deadline(float_seconds: f64) -> DeadlineRow {
    DeadlineRow {
        deadline: "9s".parse().unwrap(),
        origin: Origin::Label,
        asked: None,
        bound: None,
        unit: Unit::Task,
        work: Some(WorkRow {
            started_at: Timestamp::UNIX_EPOCH,
            due_at: Timestamp::UNIX_EPOCH,
            float_seconds,
            expected_float_seconds: None,
            active_seconds: 0.0,
            risk: Risk::Safe,
        }),
        takes: None,
        next_takes: None,
        tally: Tally::default(),
        last_float_seconds: None,
    }
}
