//! What publishing and reading the task table cost, beside copying as many bytes.
//!
//! `cargo run --release -p berth-proto --example table_bench`. In a directory given as the argument, or `/dev/shm`.

use std::hint::black_box;
use std::time::{Duration, Instant};

use berth_proto::table::{ROW_BYTES, Reader, Row, Runtime, Stamp, State, Tenant, Writer, monotonic_ns};

const ROWS: [u32; 3] = [1, 20, 256];
const TURNS: u32 = 20_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let parent = std::env::args().nth(1).unwrap_or_else(|| "/dev/shm".into());
    let directory = tempfile::tempdir_in(parent)?;
    let path = directory.path().join("tasks");
    println!("{:>5} {:>9} {:>17} {:>17} {:>17} {:>17}", "rows", "memcpy", "publish", "unchanged", "read", "version");
    for rows in ROWS {
        let mut writer = Writer::create(&path, rows)?;
        let mut reader = Reader::open(&path)?;
        let [even, odd] = [0, 1].map(|turn| rows_of(rows, turn));
        let copy = copying(rows as usize * ROW_BYTES);
        let publish = time(|turn| writer.publish(if turn % 2 == 0 { &even } else { &odd }, now()).map(drop))?;
        let unchanged = time(|_| writer.publish(&odd, now()).map(drop))?;
        let read = time(|_| reader.read().map(|table| drop(black_box(table))))?;
        let version = time(|_| reader.version().map(|version| assert!(black_box(version).sequence > 0)))?;
        print!("{rows:>5} {:>6} ns", copy.as_nanos());
        for cost in [publish, unchanged, read, version] {
            print!(" {:>7} ns {:>5.1}×", cost.as_nanos(), cost.as_secs_f64() / copy.as_secs_f64());
        }
        println!();
    }
    Ok(())
}

/// The mean over many turns.
fn time<E>(mut turn: impl FnMut(u32) -> Result<(), E>) -> Result<Duration, E> {
    let start = Instant::now();
    for number in 0..TURNS {
        turn(number)?;
    }
    Ok(start.elapsed() / TURNS)
}

fn copying(bytes: usize) -> Duration {
    let (from, mut to) = (vec![1u8; bytes], vec![0u8; bytes]);
    let start = Instant::now();
    for _ in 0..TURNS {
        to.copy_from_slice(black_box(&from));
        black_box(&mut to);
    }
    start.elapsed() / TURNS
}

fn now() -> Stamp {
    Stamp { mono_ns: monotonic_ns(), wall_ns: 0 }
}

fn rows_of(rows: u32, turn: u64) -> Vec<Row> {
    (0..rows)
        .map(|row| Row {
            tenant: Tenant::Container { runtime: Some(Runtime::Docker), id: Some("0123456789abcdef".repeat(4)) },
            name: format!("training-run-{row}"),
            owner: Some("someone".into()),
            gpu_index: Some(row % 8),
            gpu_uuid: Some("GPU-5c89852c-d268-c3f3-1b07-005d5ae1dc3f".into()),
            memory_bytes: Some(turn),
            state: Some(State::Computing),
            task_id: Some(row.into()),
            task_started: Some(Stamp { mono_ns: 1, wall_ns: 1 }),
            pids: vec![row; 3],
            ..Row::default()
        })
        .collect()
}
