//! Kernels side by side: on some SMs, by priority, of several processes, for the memory's bandwidth, and by turns.

use berth_proto::sim::{KernelCost, Reply, Request, Sms, cu};
use berth_sim::Sharing;

use super::{MS, Rig};

const US: u64 = 1_000;

impl Rig {
    fn stream_with(&mut self, pid: u32, context: u64, priority: i32, sms: Sms) -> u64 {
        self.handle(pid, Request::StreamCreateWith { context, priority, sms })
    }

    /// A kernel of so many waves of blocks that fill the GPU.
    fn waves(&mut self, pid: u32, context: u64, stream: u64, ms: u64, waves: u64) {
        let room = self.kernel(1, 100).blocks;
        let cost = KernelCost { blocks: room * waves, ..self.kernel(ms, 100) };
        assert_eq!(self.call(pid, Request::Launch { context, stream, cost }), Reply::Done);
    }

    /// When each stream is empty, from now, in microseconds.
    fn ends_us(&mut self, streams: &[(u32, u64, u64)]) -> Vec<u64> {
        let begin = self.engine.now();
        let tickets: Vec<_> = streams
            .iter()
            .map(|(pid, context, stream)| self.start(*pid, Request::StreamSync { context: *context, stream: *stream }))
            .collect();
        tickets.into_iter().map(|ticket| (self.wait(ticket).0 - begin) / US).collect()
    }
}

fn half(sms: u32) -> Sms {
    Sms { first: 0, count: sms / 2 }
}

#[test]
fn a_kernel_on_half_of_the_sms_takes_twice_as_long_and_leaves_the_rest_to_others() {
    let mut rig = Rig::new();
    let context = rig.context(1);
    let sms = rig.engine.profile().gpu.sm_count;
    let stream = rig.stream_with(1, context, 0, half(sms));
    rig.launch(1, context, stream, 10, 100);
    rig.launch(1, context, 0, 10, 50);
    let ends = rig.ends_us(&[(1, context, stream), (1, context, 0)]);
    assert!(ends[0].abs_diff(20_000) < 10 && ends[1].abs_diff(10_000) < 10, "{ends:?}");
}

#[test]
fn sms_that_are_not_there_are_refused() {
    let mut rig = Rig::new();
    let context = rig.context(1);
    for sms in [Sms { first: 0, count: 133 }, Sms { first: 100, count: 40 }, Sms { first: u32::MAX, count: 2 }] {
        let reply = rig.call(1, Request::StreamCreateWith { context, priority: 0, sms });
        assert_eq!(reply, Reply::Error(cu::INVALID_VALUE), "{sms:?}");
    }
}

#[test]
fn a_kernel_of_higher_priority_gets_sms_when_a_wave_of_blocks_ends() {
    let mut rig = Rig::with(1, Sharing::Mps);
    let contexts = [rig.context(1), rig.context(2)];
    let first = rig.stream_with(2, contexts[1], -1, Sms::ALL);
    // Ten waves of 1 ms each.
    rig.waves(1, contexts[0], 0, 10, 10);
    rig.run_for(2 * MS + 300 * US);
    rig.launch(2, contexts[1], first, 1, 100);
    let ends = rig.ends_us(&[(2, contexts[1], first), (1, contexts[0], 0)]);
    assert!((1_600..1_750).contains(&ends[0]), "what was left of a wave, and itself: {ends:?}");
    assert!(ends[1].abs_diff(8_700) < 20, "nothing is lost: {ends:?}");
}

#[test]
fn a_kernel_of_one_wave_cannot_be_kept_off_its_sms() {
    let mut rig = Rig::with(1, Sharing::Mps);
    let contexts = [rig.context(1), rig.context(2)];
    let first = rig.stream_with(2, contexts[1], -1, Sms::ALL);
    rig.waves(1, contexts[0], 0, 20, 1);
    rig.run_for(MS);
    rig.launch(2, contexts[1], first, 1, 100);
    let ends = rig.ends_us(&[(2, contexts[1], first)]);
    assert!(ends[0].abs_diff(20_000) < 10, "{ends:?}");
}

#[test]
fn a_client_below_normal_priority_goes_behind_and_one_with_a_percentage_leaves_room() {
    let mut rig = Rig::with(1, Sharing::Mps);
    assert_eq!(rig.call(1, Request::MpsClient { percentage: 50, priority: 1 }), Reply::Done);
    let contexts = [rig.context(1), rig.context(2)];
    rig.waves(1, contexts[0], 0, 10, 100);
    let alone = rig.ends_us(&[(1, contexts[0], 0)]);
    assert!(alone[0].abs_diff(20_000) < 10, "half of the SMs: {alone:?}");
    rig.waves(1, contexts[0], 0, 10, 100);
    rig.launch(2, contexts[1], 0, 5, 50);
    let ends = rig.ends_us(&[(2, contexts[1], 0), (1, contexts[0], 0)]);
    assert!(ends[0].abs_diff(5_000) < 10 && ends[1].abs_diff(20_000) < 10, "{ends:?}");
    // Full ones: the other goes first when a wave has ended.
    rig.waves(1, contexts[0], 0, 10, 100);
    rig.launch(2, contexts[1], 0, 5, 100);
    let ends = rig.ends_us(&[(2, contexts[1], 0)]);
    assert!((5_000..5_300).contains(&ends[0]), "{ends:?}");
}

#[test]
fn mps_settings_mean_nothing_without_mps_and_nonsense_is_refused() {
    let mut rig = Rig::new();
    for percentage in [0, 101] {
        let reply = rig.call(1, Request::MpsClient { percentage, priority: 0 });
        assert_eq!(reply, Reply::Error(cu::INVALID_VALUE));
    }
    rig.call(1, Request::MpsClient { percentage: 10, priority: 1 });
    let context = rig.context(1);
    rig.launch(1, context, 0, 10, 100);
    let ends = rig.ends_us(&[(1, context, 0)]);
    assert!(ends[0].abs_diff(10_000) < 10, "{ends:?}");
}

#[test]
fn kernels_that_move_data_slow_each_other_down_and_not_those_that_compute() {
    let mut rig = Rig::with(1, Sharing::Mps);
    let contexts = [rig.context(1), rig.context(2)];
    let room = rig.kernel(1, 100).blocks;
    // 10 ms at the whole bandwidth, on half of the SMs.
    let moves = KernelCost { flops: 0.0, bytes: 10.0 * 4e9, blocks: room / 2 };
    for (pid, context) in [(1, contexts[0]), (2, contexts[1])] {
        rig.call(pid, Request::Launch { context, stream: 0, cost: moves });
    }
    let ends = rig.ends_us(&[(1, contexts[0], 0), (2, contexts[1], 0)]);
    assert!(ends.iter().all(|end| end.abs_diff(20_000) < 20), "{ends:?}");
    rig.call(1, Request::Launch { context: contexts[0], stream: 0, cost: moves });
    rig.launch(2, contexts[1], 0, 10, 50);
    let ends = rig.ends_us(&[(1, contexts[0], 0), (2, contexts[1], 0)]);
    assert!(ends.iter().all(|end| end.abs_diff(10_000) < 20), "{ends:?}");
}

#[test]
fn a_short_kernel_waits_for_the_slice_of_a_long_one_to_end() {
    let mut rig = Rig::new();
    let contexts = [rig.context(1), rig.context(2)];
    let compute = &rig.engine.profile().compute;
    let (slice_us, switch_us) = (compute.slice_us, compute.switch_us);
    rig.launch(1, contexts[0], 0, 100, 100);
    rig.run_for(10 * MS + 500 * US);
    let cost = KernelCost { flops: 5e8, bytes: 0.0, blocks: 1 << 20 };
    rig.call(2, Request::Launch { context: contexts[1], stream: 0, cost });
    let ends = rig.ends_us(&[(2, contexts[1], 0), (1, contexts[0], 0)]);
    let [short_us, long_us] = [ends[0] as f64, ends[1] as f64];
    assert!(short_us > switch_us + 100.0 && short_us < slice_us + switch_us + 110.0, "{ends:?}");
    assert!(long_us > 89_500.0 + 2.0 * switch_us && long_us < 89_500.0 + 3.0 * switch_us, "two changes: {ends:?}");
}

#[test]
fn a_queue_of_short_kernels_keeps_its_turn_and_all_get_theirs() {
    let mut rig = Rig::new();
    let contexts = [rig.context(1), rig.context(2)];
    let cost = KernelCost { flops: 5e8, bytes: 0.0, blocks: 1 << 20 };
    for (pid, context) in [(1, contexts[0]), (2, contexts[1])] {
        for _ in 0..100 {
            rig.call(pid, Request::Launch { context, stream: 0, cost });
        }
    }
    let ends = rig.ends_us(&[(1, contexts[0], 0), (2, contexts[1], 0)]);
    let compute = &rig.engine.profile().compute;
    // 2 · 100 kernels of 103 µs, and a change for each slice but the first.
    let work_us = 200.0 * (100.0 + compute.launch_us);
    let changes_us = (work_us / compute.slice_us + 1.0) * compute.switch_us;
    assert!(ends[1] as f64 > work_us && (ends[1] as f64) < work_us + changes_us, "{ends:?}");
    assert!(ends[0].abs_diff(ends[1]) as f64 <= compute.slice_us + compute.switch_us, "{ends:?}");
}
