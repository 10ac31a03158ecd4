//! How long it takes to write, start with, and search a history of many records: `cargo run --release -p berth-store
//! --example history_scale -- 1000000`. Prints numbers; claims nothing.

use std::path::Path;
use std::time::{Duration, Instant};

use berth_model::history::{Happening, Query, Record, Spent, TaskStory, Workload};
use berth_model::snapshot::TaskEnd;
use berth_model::{Bytes, ContainerId, Evidence, GpuIndex, Runtime, TaskId, TenantKey};
use berth_store::history::{History, HistoryError, Writer, read};
use jiff::Timestamp;

/// As many different tenants; the rest are further tasks of theirs.
const TENANTS: u64 = 1_000;
/// More than a million records take.
const MOST: u64 = 4 << 30;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let count: u64 = std::env::args().nth(1).map_or(Ok(1_000_000), |text| text.parse())?;
    let parent = tempfile::tempdir()?;
    let dir = parent.path().join("history");
    let history = History::open(&dir, MOST, Path::new("/proc"), drop)?;
    let begin = Instant::now();
    write(&history.writer(), &dir, count)?;
    drop(history);
    say("written and synced", begin.elapsed());
    let bytes: u64 = std::fs::read_dir(&dir)?.flatten().filter_map(|file| file.metadata().ok()).map(|m| m.len()).sum();
    println!("{count} records, {} MiB, {} bytes each", bytes >> 20, bytes / count.max(1));

    let (begin, mut recalled) = (Instant::now(), 0_u64);
    drop(History::open(&dir, MOST, Path::new("/proc"), |_| recalled += 1)?);
    say(&format!("opened by a daemon, {recalled} records recalled"), begin.elapsed());
    search(&dir, "the newest 50", Query { limit: 50, ..Query::default() })?;
    search(&dir, "the newest 50 of one tenant", Query { whom: Some("job-7".into()), limit: 50, since: None })?;
    search(&dir, "all of one tenant", Query { whom: Some("job-7".into()), limit: usize::MAX, since: None })?;
    search(&dir, "of one who never was", Query { whom: Some("nobody".into()), limit: 50, since: None })?;
    Ok(())
}

/// As fast as they are taken: a writer that does not wait drops what finds no room.
fn write(writer: &Writer, dir: &Path, count: u64) -> Result<(), HistoryError> {
    let newest = Query { limit: 1, ..Query::default() };
    for number in 0..count {
        let record = record(number);
        let at = record.at;
        writer.write(record);
        while number % 4_000 == 3_999 && read(dir, &newest)?.records.first().is_none_or(|newest| newest.at != at) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    Ok(())
}

fn search(dir: &Path, what: &str, query: Query) -> Result<(), HistoryError> {
    let begin = Instant::now();
    let found = read(dir, &query)?.records.len();
    say(&format!("{what}: {found} found"), begin.elapsed());
    Ok(())
}

fn say(what: &str, took: Duration) {
    println!("{:>10.1} ms  {what}", took.as_secs_f64() * 1e3);
}

fn record(number: u64) -> Record {
    let tenant = number % TENANTS;
    let at = Timestamp::UNIX_EPOCH + Duration::from_secs(number);
    Record {
        at,
        tenant: TenantKey::Container { runtime: Runtime::Docker, id: ContainerId(format!("{tenant:064x}")) },
        name: format!("job-{tenant}"),
        what: Happening::Task(TaskStory {
            task_id: TaskId(number),
            workload: Workload {
                owner: Some("ada".into()),
                image: Some("registry.example/team/train:2026-11".into()),
                command: "python train.py --epochs 10 --data /data/set".into(),
            },
            gpus: vec![GpuIndex(0)],
            started_at: at,
            start_evidence: Evidence::Probe,
            seconds: 61.234_567_891,
            spent: Spent { active_seconds: Some(40.123_456), held_seconds: Some(3.5), burst_seconds: Some(1.25) },
            peak_memory_bytes: Some(Bytes(11 << 30)),
            end: Some(TaskEnd::Left),
            left: None,
        }),
    }
}
