//! The snapshot's promises, between threads and across a writer's death.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

fn gpu(processes: u32) -> Gpu {
    Gpu {
        name: "NVIDIA H200".into(),
        uuid: "GPU-01234567-89ab-cdef-0123-456789abcdef".into(),
        pci_bus_id: "00000000:3B:00.0".into(),
        total_bytes: 1 << 37,
        used_bytes: 12345,
        reserved_bytes: 7,
        gpu_pct: 99,
        memory_pct: 3,
        traffic_us: 77,
        traffic_at_us: 1_700_000_000_000_001,
        lost: false,
        sm_count: 132,
        compute_capability: (9, 0),
        processes: (0..processes)
            .map(|n| Process {
                pid: 100 + n,
                used_bytes: (n % 2 == 0).then_some(u64::from(n) << 20),
                sm: (n % 3 == 0).then_some(SmSample { pct: n, at_us: 1_700_000_000_000_000 }),
            })
            .collect(),
    }
}

fn host(gpu_count: u32) -> Host {
    Host {
        gpu_count,
        cuda_version: 13000,
        driver_version: "580.159".into(),
        process_list_base_ns: 8000,
        process_list_quadratic_ns: 770.5,
        mps: false,
        faults: [0, 15, 0, 0, 4, 999],
    }
}

#[test]
fn a_reader_sees_what_was_published() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE_NAME);
    let mut writer = Writer::create(&path).unwrap();
    writer.publish(&host(2), &[gpu(0), gpu(20)]);
    let reader = Reader::open(&path).unwrap();
    assert_eq!(reader.host().unwrap(), host(2));
    assert_eq!(reader.gpu(1).unwrap(), gpu(20));
    assert_eq!(reader.gpu(0).unwrap().processes, []);
    assert_eq!(reader.host().unwrap().fault(Area::ProcessList), Some(4));
    assert_eq!(reader.host().unwrap().fault(Area::Memory), None);
}

#[test]
fn nothing_is_written_when_nothing_changed() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::create(&dir.path().join(FILE_NAME)).unwrap();
    assert!(writer.publish(&host(1), &[gpu(1)]));
    assert!(!writer.publish(&host(1), &[gpu(1)]));
    assert!(writer.publish(&host(1), &[gpu(2)]));
}

#[test]
fn more_processes_than_fit_are_cut_and_nothing_else_is_touched() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE_NAME);
    let mut writer = Writer::create(&path).unwrap();
    writer.publish(&host(2), &[gpu(300), gpu(1)]);
    let reader = Reader::open(&path).unwrap();
    assert_eq!(reader.gpu(0).unwrap().processes, gpu(300).processes[..MAX_PROCESSES]);
    assert_eq!(reader.gpu(1).unwrap(), gpu(1));
}

#[test]
fn a_name_too_long_is_cut_between_characters() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE_NAME);
    let mut long = gpu(0);
    long.name = "é".repeat(100);
    let mut writer = Writer::create(&path).unwrap();
    writer.publish(&host(1), &[long]);
    assert_eq!(Reader::open(&path).unwrap().gpu(0).unwrap().name, "é".repeat(47));
}

#[test]
fn reads_are_whole_while_the_writer_writes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE_NAME);
    let mut writer = Writer::create(&path).unwrap();
    // Each state says its number twice, far apart.
    let state = |n: u32| Gpu { gpu_pct: n, processes: vec![Process { pid: n, used_bytes: None, sm: None }], ..gpu(0) };
    writer.publish(&host(1), &[state(0)]);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = Reader::open(&path).unwrap();
        let done = &done;
        scope.spawn(move || {
            let mut reads = 0;
            while !done.load(Ordering::Relaxed) || reads == 0 {
                if let Ok(seen) = reader.gpu(0) {
                    assert_eq!(seen.gpu_pct, seen.processes[0].pid);
                    reads += 1;
                }
            }
        });
        for n in 0..2000 {
            writer.publish(&host(1), &[state(n)]);
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_writer_that_died_half_way_is_noticed_and_its_successor_takes_over() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE_NAME);
    let mut writer = Writer::create(&path).unwrap();
    writer.publish(&host(1), &[gpu(1)]);
    writer.words.store(SEQUENCE, writer.words.load(SEQUENCE) | 1);
    let reader = Reader::open(&path).unwrap();
    assert_eq!(reader.gpu(0), Err(Busy));
    Writer::create(&path).unwrap().publish(&host(1), &[gpu(3)]);
    assert_eq!(reader.gpu(0), Ok(gpu(3)));
}

#[test]
fn a_dead_writer_is_noticed_by_its_heartbeat() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE_NAME);
    let writer = Writer::create(&path).unwrap();
    let reader = Reader::open(&path).unwrap();
    assert!(!reader.is_alive(10));
    writer.beat(10);
    assert!(reader.is_alive(11));
    assert!(!reader.is_alive(11 + HEARTBEAT_LIMIT_NS));
    writer.beat(10);
    drop(writer);
    assert!(!reader.is_alive(11));
}

#[test]
fn a_file_that_is_no_snapshot_is_refused_by_its_path() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x");
    std::fs::write(&path, b"hello").unwrap();
    assert!(matches!(Reader::open(&path), Err(StateError::Map { .. })));
    std::fs::write(&path, vec![1_u8; FILE_WORDS * 8]).unwrap();
    let error = Reader::open(&path).unwrap_err();
    assert!(error.to_string().contains(path.to_str().unwrap()));
}
