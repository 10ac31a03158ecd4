//! The codec's promises: what is sent is what arrives, and no bytes make a decoder panic.

use proptest::prelude::*;

use super::*;
use crate::sim::{CheckpointOp, Device, Direction, GraphWork, KernelCost, Request, Sms};

fn request() -> impl Strategy<Value = Request> {
    let handle = any::<u64>;
    let direction =
        || prop_oneof![Just(Direction::HostToDevice), Just(Direction::DeviceToHost), Just(Direction::DeviceToDevice),];
    let op = prop_oneof![
        Just(CheckpointOp::GetState),
        any::<u32>().prop_map(|timeout_ms| CheckpointOp::Lock { timeout_ms }),
        Just(CheckpointOp::Checkpoint),
        Just(CheckpointOp::Restore),
        Just(CheckpointOp::Unlock),
    ];
    let cost =
        || (0.0..1e30, 0.0..1e18, any::<u64>()).prop_map(|(flops, bytes, blocks)| KernelCost { flops, bytes, blocks });
    let work = prop_oneof![
        cost().prop_map(GraphWork::Kernel),
        (direction(), any::<u64>()).prop_map(|(direction, bytes)| GraphWork::Copy { direction, bytes }),
        (any::<u32>(), any::<u32>()).prop_map(|(track, steps)| GraphWork::After { track, steps }),
    ];
    let one = prop_oneof![
        Just(Request::DeviceCount),
        any::<u32>().prop_map(|device| Request::Device { device }),
        Just(Request::Init),
        Just(Request::HostWorkNext),
        any::<u32>().prop_map(|device| Request::ContextCreate { device }),
        handle().prop_map(|context| Request::ContextDestroy { context }),
        handle().prop_map(|context| Request::MemInfo { context }),
        handle().prop_map(|context| Request::StreamCreate { context }),
        handle().prop_map(|context| Request::EventCreate { context }),
        handle().prop_map(|context| Request::ContextSync { context }),
    ];
    let two = (handle(), handle()).prop_flat_map(|(context, other)| {
        prop_oneof![
            Just(Request::MemAlloc { context, bytes: other }),
            Just(Request::MemFree { context, pointer: other }),
            Just(Request::StreamDestroy { context, stream: other }),
            Just(Request::EventDestroy { context, event: other }),
            Just(Request::StreamSync { context, stream: other }),
            Just(Request::StreamQuery { context, stream: other }),
            Just(Request::EventSync { context, event: other }),
            Just(Request::EventQuery { context, event: other }),
            Just(Request::GraphDestroy { context, graph: other }),
        ]
    });
    let three = (handle(), handle(), handle()).prop_flat_map(|(context, stream, event)| {
        prop_oneof![
            Just(Request::EventRecord { context, stream, event }),
            Just(Request::StreamWait { context, stream, event }),
            Just(Request::EventElapsed { context, start: stream, end: event }),
            Just(Request::HostWork { context, stream, token: event }),
            Just(Request::GraphLaunch { context, stream, graph: event }),
            Just(Request::HostWorkDone { context, stream, token: event }),
        ]
    });
    let copy = (handle(), handle(), direction(), any::<u64>(), any::<bool>()).prop_map(
        |(context, stream, direction, bytes, wait)| Request::Copy { context, stream, direction, bytes, wait },
    );
    let launch =
        (handle(), handle(), cost()).prop_map(|(context, stream, cost)| Request::Launch { context, stream, cost });
    let stream = (handle(), any::<i32>(), any::<u32>(), any::<u32>()).prop_map(|(context, priority, first, count)| {
        Request::StreamCreateWith { context, priority, sms: Sms { first, count } }
    });
    let client =
        (any::<u32>(), any::<u32>()).prop_map(|(percentage, priority)| Request::MpsClient { percentage, priority });
    let graph = (handle(), any::<u32>()).prop_map(|(context, tracks)| Request::GraphCreate { context, tracks });
    let add = (handle(), handle(), any::<u32>(), work).prop_map(|(context, graph, track, work)| Request::GraphAdd {
        context,
        graph,
        track,
        work,
    });
    let checkpoint = (any::<u32>(), op).prop_map(|(pid, op)| Request::Checkpoint { pid, op });
    prop_oneof![one, two, three, copy, launch, stream, client, graph, add, checkpoint]
}

fn reply() -> impl Strategy<Value = Reply> {
    let device =
        ("\\PC{0,60}", any::<[u8; 16]>(), any::<u64>(), any::<[u32; 4]>()).prop_map(|(name, uuid, total_memory, n)| {
            Reply::Device(Box::new(Device {
                name,
                uuid,
                total_memory,
                sm_count: n[0],
                compute_capability: (n[1], n[2]),
                max_threads_per_sm: n[3],
                has_mps: n[0] % 2 == 1,
            }))
        });
    prop_oneof![
        Just(Reply::Done),
        any::<u32>().prop_map(Reply::Error),
        any::<u32>().prop_map(Reply::Count),
        any::<u64>().prop_map(Reply::Handle),
        (any::<u64>(), any::<u64>()).prop_map(|(free, total)| Reply::Memory { free, total }),
        any::<u64>().prop_map(Reply::Nanos),
        any::<u32>().prop_map(Reply::ProcessState),
        device,
    ]
}

fn round_trip<M: Message>(message: &M) -> M {
    let mut bytes = Vec::new();
    message.encode(&mut bytes).unwrap();
    let mut frames = Frames::default();
    // One byte at a time: a stream may cut a frame anywhere.
    let (last, head) = bytes.split_last().unwrap();
    for byte in head {
        frames.push(&[*byte]);
        assert_eq!(frames.next_frame(), Ok(None));
    }
    frames.push(&[*last]);
    M::decode(frames.next_frame().unwrap().unwrap()).unwrap()
}

proptest! {
    #[test]
    fn every_call_arrives_as_it_was_sent(wants_reply in any::<bool>(), request in request()) {
        let call = Call { wants_reply, request };
        prop_assert_eq!(round_trip(&call), call);
    }

    #[test]
    fn every_reply_arrives_as_it_was_sent(reply in reply()) {
        prop_assert_eq!(round_trip(&reply), reply);
    }

    #[test]
    fn no_bytes_make_a_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        fuzz_decoders(&bytes);
    }

    #[test]
    fn a_cut_message_is_refused(request in request(), cut in 1_usize..60) {
        let mut bytes = Vec::new();
        request.encode(&mut bytes).unwrap();
        let body = &bytes[4..];
        let kept = body.len().saturating_sub(cut);
        prop_assert!(Request::decode(&body[..kept]).is_err());
    }

    #[test]
    fn frames_come_out_in_the_order_they_went_in(
        requests in proptest::collection::vec(request(), 1..20), chunk in 1_usize..50,
    ) {
        let mut bytes = Vec::new();
        for request in &requests {
            request.encode(&mut bytes).unwrap();
        }
        let (mut frames, mut seen) = (Frames::default(), Vec::new());
        for part in bytes.chunks(chunk) {
            frames.push(part);
            while let Some(frame) = frames.next_frame().unwrap() {
                seen.push(Request::decode(frame).unwrap());
            }
        }
        prop_assert_eq!(seen, requests);
        prop_assert_eq!(frames.pending(), 0);
    }
}

#[test]
fn another_version_is_refused_by_its_number() {
    let mut bytes = Vec::new();
    let hello = Hello { version: VERSION + 1, role: Role::Thread };
    hello.encode(&mut bytes).unwrap();
    let error = Hello::decode(&bytes[4..]).unwrap_err();
    assert_eq!(error, WireError::Version { theirs: VERSION + 1 });
    assert!(error.to_string().contains(&(VERSION + 1).to_string()));
}

#[test]
fn a_stranger_is_told_apart_from_another_version() {
    assert_eq!(Hello::decode(b"GET / HTTP/1.1\r\n"), Err(WireError::NotOurs));
}

#[test]
fn a_huge_length_is_refused_before_its_bytes_come() {
    let mut frames = Frames::default();
    frames.push(&u32::MAX.to_le_bytes());
    assert_eq!(frames.next_frame(), Err(WireError::FrameTooLong { bytes: u32::MAX as usize }));
}

#[test]
fn a_name_too_long_leaves_nothing_half_written() {
    let device = Device {
        name: "x".repeat(5000),
        uuid: [0; 16],
        total_memory: 1,
        sm_count: 1,
        compute_capability: (9, 0),
        max_threads_per_sm: 2048,
        has_mps: false,
    };
    let mut bytes = vec![7];
    assert!(Reply::Device(Box::new(device)).encode(&mut bytes).is_err());
    assert_eq!(bytes, [7]);
}
