//! The snapshot's rows in the shared-memory task table.

use std::time::{Duration, Instant};

use berth_model::deadline::{Risk, Unit};
use berth_model::settings;
use berth_model::snapshot::DeadlineRow;
use berth_model::{Anchor, Bytes, Percent, ProcessKind, Runtime, Snapshot, TaskRow, TaskState, TenantKey};
use berth_proto::table::{self, ProcessKinds, Row, Stamp, State, TableError, Tenant, Writer};
use jiff::Timestamp;

/// How long to wait for a table whose last writer was just killed.
const TAKEOVER: Duration = Duration::from_secs(1);

/// The table this daemon writes. Losing it under way costs its readers, not the daemon.
#[derive(Debug)]
pub(crate) struct TaskTable {
    settings: settings::Table,
    writer: Option<Writer>,
}

impl TaskTable {
    pub fn create(settings: &settings::Table) -> Result<Self, TableError> {
        if let Some(parent) = settings.path.parent() {
            // Whatever is wrong with it is told, with the path, by the attempt to use it.
            let _ = std::fs::create_dir_all(parent);
        }
        let deadline = Instant::now() + TAKEOVER;
        loop {
            match Writer::create(&settings.path, settings.rows) {
                // A killed daemon's threads may hold the table for a moment longer than the daemon is seen.
                Err(TableError::Owned { .. }) if Instant::now() < deadline => std::thread::sleep(TAKEOVER / 20),
                created => return Ok(Self { settings: settings.clone(), writer: Some(created?) }),
            }
        }
    }

    /// Makes the snapshot's rows what readers see; a table that was removed or replaced is made anew.
    pub fn publish(&mut self, snapshot: &Snapshot, now: &Anchor) {
        let rows: Vec<Row> = snapshot.tasks.iter().map(|row| to_row(row, now)).collect();
        if self.writer.is_none() {
            self.writer = Writer::create(&self.settings.path, self.settings.rows)
                .inspect_err(|error| tracing::debug!(%error, "the task table is still out of reach"))
                .ok();
        }
        let Some(writer) = &mut self.writer else { return };
        let now = Stamp { mono_ns: now.mono.0, wall_ns: wall_ns(now.wall) };
        if let Err(error) = writer.publish(&rows, now) {
            tracing::warn!(%error, "the task table was lost; making it anew");
            self.writer = None;
        }
    }
}

fn to_row(row: &TaskRow, now: &Anchor) -> Row {
    Row {
        tenant: tenant(&row.tenant),
        name: row.container_name.clone(),
        owner: row.owner.clone(),
        gpu_index: row.gpu_index.map(|gpu| gpu.0),
        gpu_uuid: row.gpu_uuid.as_ref().map(|uuid| uuid.0.clone()),
        memory_bytes: row.gpu_memory_bytes.map(|Bytes(bytes)| bytes),
        core_pct: row.gpu_core_pct.map(Percent::get),
        state: Some(state(row.state)),
        task_id: row.task_id.map(|task| task.0),
        task_started: row.task_started_at.map(|at| stamp(at, now)),
        deadline: row.deadline.as_ref().map(|deadline| deadline_of(deadline, now)),
        process_kinds: kinds(&row.process_kinds),
        pids: row.pids.clone(),
        pids_left_out: 0,
        text_cut: false,
    }
}

fn tenant(tenant: &TenantKey) -> Tenant {
    match tenant {
        TenantKey::Container { runtime, id } => Tenant::Container { runtime: engine(*runtime), id: Some(id.0.clone()) },
        TenantKey::Cgroup { .. } => Tenant::Cgroup,
        TenantKey::User { uid } => Tenant::User { uid: Some(*uid) },
    }
}

fn engine(runtime: Runtime) -> Option<table::Runtime> {
    match runtime {
        Runtime::Docker => Some(table::Runtime::Docker),
        Runtime::Podman => Some(table::Runtime::Podman),
        Runtime::Containerd => Some(table::Runtime::Containerd),
        Runtime::Crio => Some(table::Runtime::Crio),
        Runtime::Lxc => Some(table::Runtime::Lxc),
        Runtime::Unknown => None,
    }
}

fn state(state: TaskState) -> State {
    match state {
        TaskState::Opening => State::Opening,
        TaskState::Loaded => State::Loaded,
        TaskState::Computing => State::Computing,
        TaskState::Idle => State::Idle,
        TaskState::Lost => State::Lost,
    }
}

fn deadline_of(row: &DeadlineRow, now: &Anchor) -> table::Deadline {
    let count = |units: u64| u32::try_from(units).unwrap_or(u32::MAX);
    table::Deadline {
        deadline_ns: u64::try_from(row.deadline.get().as_nanos()).unwrap_or(u64::MAX),
        unit: Some(match row.unit {
            Unit::Task => table::Unit::Task,
            Unit::Burst => table::Unit::Burst,
        }),
        due: row
            .work
            .as_ref()
            .map(|work| table::Due { mono_ns: mono_ns(work.due_at, now), risk: Some(risk(work.risk)) }),
        hits: count(row.tally.hits),
        misses: count(row.tally.misses),
        unknown: count(row.tally.unknown),
        last_float_ns: row.last_float_seconds.map(nanoseconds),
    }
}

fn risk(risk: Risk) -> table::Risk {
    match risk {
        Risk::Safe => table::Risk::Safe,
        Risk::Tight => table::Risk::Tight,
        Risk::Likely => table::Risk::Likely,
        Risk::Late => table::Risk::Late,
    }
}

fn kinds(kinds: &[ProcessKind]) -> ProcessKinds {
    ProcessKinds {
        compute: kinds.contains(&ProcessKind::Compute),
        graphics: kinds.contains(&ProcessKind::Graphics),
        mps_server: kinds.contains(&ProcessKind::MpsServer),
        mps_client: kinds.contains(&ProcessKind::MpsClient),
    }
}

/// Both clocks at `at`, by the anchor that dated it.
fn stamp(at: Timestamp, now: &Anchor) -> Stamp {
    Stamp { mono_ns: mono_ns(at, now), wall_ns: wall_ns(at) }
}

fn mono_ns(at: Timestamp, now: &Anchor) -> u64 {
    let ago = i64::try_from(now.wall.duration_since(at).as_nanos()).unwrap_or(0);
    now.mono.0.saturating_add_signed(ago.saturating_neg())
}

#[expect(clippy::cast_possible_truncation, reason = "saturates, at 292 years")]
fn nanoseconds(seconds: f64) -> i64 {
    (seconds * 1e9) as i64
}

fn wall_ns(at: Timestamp) -> u64 {
    u64::try_from(at.as_nanosecond()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use berth_model::Mono;
    use berth_model::deadline::{Origin, Tally};
    use berth_model::snapshot::WorkRow;

    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn anchor(second: u64) -> Anchor {
        let wall = Timestamp::from_second(1_790_000_000 + i64::try_from(second).unwrap()).unwrap();
        Anchor { mono: Mono(second * SECOND_NS), wall }
    }

    /// Of a task that is due at second 109.
    fn due(now: &Anchor) -> DeadlineRow {
        let due = Mono(109 * SECOND_NS);
        DeadlineRow {
            deadline: "9s".parse().unwrap(),
            origin: Origin::Label,
            asked: None,
            bound: None,
            unit: Unit::Task,
            work: Some(WorkRow {
                started_at: now.wall_at(Mono(100 * SECOND_NS)),
                due_at: now.wall_at(due),
                float_seconds: 0.0,
                expected_float_seconds: None,
                active_seconds: 0.0,
                risk: Risk::Tight,
            }),
            takes: None,
            next_takes: None,
            tally: Tally { hits: 3, misses: 2, unknown: u64::MAX },
            last_float_seconds: Some(-1.5),
        }
    }

    #[test]
    fn a_deadline_is_the_same_row_while_it_is_counted_down_and_after_it_is_late() {
        let rows = [101, 105, 120].map(anchor).map(|now| deadline_of(&due(&now), &now));
        let expected = table::Deadline {
            deadline_ns: 9 * SECOND_NS,
            unit: Some(table::Unit::Task),
            due: Some(table::Due { mono_ns: 109 * SECOND_NS, risk: Some(table::Risk::Tight) }),
            hits: 3,
            misses: 2,
            unknown: u32::MAX,
            last_float_ns: Some(-1_500_000_000),
        };
        assert_eq!(rows, [expected; 3]);
        let between = DeadlineRow { work: None, last_float_seconds: None, ..due(&anchor(101)) };
        let row = deadline_of(&between, &anchor(101));
        assert_eq!((row.due, row.last_float_ns, row.hits), (None, None, 3));
    }

    #[test]
    fn the_settings_allow_as_many_rows_as_the_table_can_have() {
        assert_eq!(settings::MOST_ROWS, table::MAX_ROWS);
    }
}
