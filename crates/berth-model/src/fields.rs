//! The one list of what is shown about a tenant on a GPU: tables, the live view and `--help` read it.

use crate::snapshot::{TaskRow, TaskState};

/// A column: its name (as in JSON), its heading, what it means, and how it reads.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    pub name: &'static str,
    pub heading: &'static str,
    pub help: &'static str,
    /// Numbers line up on the right.
    pub numeric: bool,
    pub text: fn(&TaskRow) -> String,
}

/// In the order people read them.
pub const FIELDS: [Field; 9] = [
    Field {
        name: "gpu_index",
        heading: "GPU",
        help: "index of the GPU",
        numeric: true,
        text: |row| row.gpu_index.map_or_else(unknown, |gpu| gpu.to_string()),
    },
    Field {
        name: "container_name",
        heading: "TENANT",
        help: "container name, cgroup path or user",
        numeric: false,
        text: |row| row.container_name.clone(),
    },
    Field {
        name: "container_id",
        heading: "CONTAINER ID",
        help: "container id, shortened as in docker ps",
        numeric: false,
        text: |row| row.container_id.as_ref().map_or_else(unknown, |id| id.short().to_owned()),
    },
    Field {
        name: "owner",
        heading: "OWNER",
        help: "who the tenant belongs to",
        numeric: false,
        text: |row| row.owner.clone().unwrap_or_else(unknown),
    },
    Field {
        name: "state",
        heading: "STATE",
        help: "opening, loaded, computing, idle or lost",
        numeric: false,
        text: |row| row.state.as_str().to_owned(),
    },
    Field {
        name: "gpu_memory_bytes",
        heading: "MEMORY",
        help: "GPU memory held",
        numeric: true,
        text: |row| row.gpu_memory_bytes.map_or_else(unknown, |bytes| bytes.to_string()),
    },
    Field {
        name: "gpu_core_pct",
        heading: "CORE",
        help: "share of the GPU's time used by this tenant",
        numeric: true,
        text: |row| row.gpu_core_pct.map_or_else(unknown, |pct| pct.to_string()),
    },
    Field {
        name: "task_seconds",
        heading: "SINCE",
        help: "how long the task has been on the GPU",
        numeric: true,
        text: |row| row.task_seconds.map_or_else(unknown, elapsed),
    },
    Field {
        name: "pids",
        heading: "PIDS",
        help: "host process ids",
        numeric: false,
        text: |row| row.pids.iter().map(u32::to_string).collect::<Vec<_>>().join(","),
    },
];

fn unknown() -> String {
    "-".to_owned()
}

/// `3.2s`, `4m07s`, `2h05m`, `3d04h`.
pub fn elapsed(seconds: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped; shown as whole seconds")]
    let whole = seconds.clamp(0.0, 1e15) as u64;
    match whole {
        0..60 => format!("{seconds:.1}s"),
        60..3600 => format!("{}m{:02}s", whole / 60, whole % 60),
        3600..86_400 => format!("{}h{:02}m", whole / 3600, whole / 60 % 60),
        _ => format!("{}d{:02}h", whole / 86_400, whole / 3600 % 24),
    }
}

impl TaskState {
    pub fn as_str(self) -> &'static str {
        match self {
            TaskState::Opening => "opening",
            TaskState::Loaded => "loaded",
            TaskState::Computing => "computing",
            TaskState::Idle => "idle",
            TaskState::Lost => "lost",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elapsed_time_keeps_two_units() {
        let shown = [3.21, 247.0, 7_500.0, 273_600.0].map(elapsed);
        assert_eq!(shown, ["3.2s", "4m07s", "2h05m", "3d04h"]);
    }

    #[test]
    fn every_field_is_a_key_of_the_json_row() {
        let row = TaskRow {
            tenant: crate::TenantKey::User { uid: 0 },
            container_id: None,
            container_name: "root".into(),
            owner: None,
            image: None,
            container_started_at: None,
            command: "python".into(),
            pids: vec![1, 2],
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
        };
        let json = serde_json::to_value(&row).unwrap();
        for field in FIELDS {
            assert!(json.get(field.name).is_some(), "{} is not in the JSON", field.name);
            assert!(!(field.text)(&row).is_empty(), "{} is shown as nothing", field.name);
        }
    }
}
