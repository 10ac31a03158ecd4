//! Device memory is finite and every byte of it is somebody's.

use berth_proto::sim::{Reply, Request, cu};

use super::{MIB, MS, Rig};

const OWN: u64 = 518 * MIB;

#[test]
fn freed_memory_falls_back_to_the_context_s_own() {
    let mut rig = Rig::new();
    let context = rig.context(1);
    let pointer = rig.handle(1, Request::MemAlloc { context, bytes: 100 * MIB });
    assert_eq!(rig.used_by(1), Some(OWN + 100 * MIB));
    assert_eq!(rig.call(1, Request::MemFree { context, pointer }), Reply::Done);
    assert_eq!(rig.used_by(1), Some(OWN));
    assert_eq!(rig.call(1, Request::MemFree { context, pointer }), Reply::Error(cu::INVALID_VALUE));
}

#[test]
fn small_allocations_share_pages() {
    let mut rig = Rig::new();
    let context = rig.context(1);
    for _ in 0..1000 {
        rig.handle(1, Request::MemAlloc { context, bytes: 100 });
    }
    assert_eq!(rig.used_by(1), Some(OWN + 2 * MIB), "512 bytes each");
}

#[test]
fn allocation_that_does_not_fit_fails_and_changes_nothing() {
    let mut rig = Rig::new();
    let (first, second) = (rig.context(1), rig.context(2));
    rig.handle(1, Request::MemAlloc { context: first, bytes: 100 << 30 });
    let before = rig.gpu();
    let Reply::Memory { free, total } = rig.call(2, Request::MemInfo { context: second }) else { panic!() };
    assert_eq!((free, total), (before.total_bytes - before.used_bytes, before.total_bytes));
    for bytes in [free + 1, 100 << 30, u64::MAX] {
        let reply = rig.call(2, Request::MemAlloc { context: second, bytes });
        assert_eq!(reply, Reply::Error(cu::OUT_OF_MEMORY), "{bytes} bytes");
    }
    assert_eq!(rig.call(2, Request::MemAlloc { context: second, bytes: 0 }), Reply::Error(cu::INVALID_VALUE));
    assert_eq!(rig.gpu(), before);
    rig.handle(2, Request::MemAlloc { context: second, bytes: free / MIB / 2 * 2 * MIB });
}

#[test]
fn context_without_room_for_itself_fails() {
    let mut rig = Rig::new();
    let context = rig.context(1);
    let Reply::Memory { free, .. } = rig.call(1, Request::MemInfo { context }) else { panic!() };
    rig.handle(1, Request::MemAlloc { context, bytes: free - 100 * MIB });
    let before = rig.gpu();
    assert_eq!(rig.call(2, Request::ContextCreate { device: 0 }), Reply::Error(cu::OUT_OF_MEMORY));
    assert_eq!(rig.gpu(), before);
}

#[test]
fn freeing_waits_for_the_kernel_that_may_use_the_memory() {
    let mut rig = Rig::new();
    let context = rig.context(1);
    let pointer = rig.handle(1, Request::MemAlloc { context, bytes: MIB });
    rig.launch(1, context, 0, 50, 100);
    let begin = rig.engine.now();
    let freed = rig.start(1, Request::MemFree { context, pointer });
    assert_eq!((rig.wait(freed).0 - begin) / MS, 50);
}

#[test]
fn pointers_do_not_overlap() {
    let mut rig = Rig::new();
    let context = rig.context(1);
    let sizes = [1, 5 * MIB, 3, 2 * MIB, 7];
    let spans: Vec<(u64, u64)> =
        sizes.iter().map(|bytes| (rig.handle(1, Request::MemAlloc { context, bytes: *bytes }), *bytes)).collect();
    for pair in spans.windows(2) {
        assert!(pair[0].0 + pair[0].1 <= pair[1].0);
    }
}
