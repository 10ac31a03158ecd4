//! Graphs: many launches as one.

use berth_proto::sim::{Direction, GraphWork, Reply, Request, cu};
use berth_sim::Profile;
use proptest::prelude::*;

use super::{MS, Rig};

impl Rig {
    /// A kernel that takes `ms` alone in a graph and fills `pct` of the GPU.
    fn step(&self, ms: u64, pct: u32) -> GraphWork {
        let compute = &self.engine.profile().compute;
        let mut cost = self.kernel(ms, pct);
        let less_us = compute.launch_us - compute.graph_node_us;
        cost.flops += less_us * 1e3 * compute.gflops * f64::from(pct) / 100.0;
        GraphWork::Kernel(cost)
    }

    fn graph(&mut self, context: u64, tracks: u32, steps: &[(u32, GraphWork)]) -> u64 {
        let graph = self.handle(1, Request::GraphCreate { context, tracks });
        for (track, work) in steps {
            let add = Request::GraphAdd { context, graph, track: *track, work: *work };
            assert_eq!(self.call(1, add), Reply::Done, "{work:?}");
        }
        graph
    }

    /// How long it takes until the stream is empty.
    fn drain(&mut self, context: u64, stream: u64) -> u64 {
        let begin = self.engine.now();
        assert_eq!(self.call(1, Request::StreamSync { context, stream }), Reply::Done);
        self.engine.now() - begin
    }
}

fn after(track: u32, steps: u32) -> GraphWork {
    GraphWork::After { track, steps }
}

#[test]
fn a_graph_of_one_track_runs_its_steps_in_order_as_one_piece_of_its_stream() {
    let mut rig = Rig::new();
    let context = rig.context(1);
    let step = rig.step(10, 50);
    let copy = GraphWork::Copy { direction: Direction::HostToDevice, bytes: 6_900_000 };
    let graph = rig.graph(context, 1, &[(0, step), (0, copy), (0, step)]);
    rig.launch(1, context, 0, 5, 50);
    assert_eq!(rig.call(1, Request::GraphLaunch { context, stream: 0, graph }), Reply::Done);
    rig.launch(1, context, 0, 5, 50);
    assert_eq!(rig.drain(context, 0) / MS, 5 + 10 + 1 + 10 + 5);
}

#[test]
fn tracks_run_side_by_side_and_wait_for_each_other_where_they_must() {
    let mut rig = Rig::new();
    let context = rig.context(1);
    let (short, long) = (rig.step(10, 50), rig.step(30, 50));
    // Both begin together; the first waits for the second before its own second step.
    let graph = rig.graph(context, 2, &[(0, short), (1, long), (0, after(1, 1)), (0, short)]);
    rig.call(1, Request::GraphLaunch { context, stream: 0, graph });
    assert_eq!(rig.drain(context, 0) / MS, 40);
}

#[test]
fn a_stream_goes_on_only_when_all_tracks_are_done() {
    let mut rig = Rig::new();
    let context = rig.context(1);
    let (short, long) = (rig.step(10, 50), rig.step(30, 50));
    let graph = rig.graph(context, 2, &[(0, short), (1, long)]);
    rig.launch(1, context, 0, 5, 50);
    rig.call(1, Request::GraphLaunch { context, stream: 0, graph });
    rig.launch(1, context, 0, 5, 50);
    assert_eq!(rig.drain(context, 0) / MS, 40, "nor does a track begin before the stream is there");
}

#[test]
fn launches_of_one_graph_do_not_overlap_and_of_two_do() {
    let mut rig = Rig::new();
    let context = rig.context(1);
    let stream = rig.handle(1, Request::StreamCreate { context });
    let step = rig.step(10, 50);
    let [one, other] = [0, 1].map(|_| rig.graph(context, 1, &[(0, step)]));
    let begin = rig.engine.now();
    for (stream, graph) in [(0, one), (stream, one)] {
        rig.call(1, Request::GraphLaunch { context, stream, graph });
    }
    rig.drain(context, stream);
    assert_eq!((rig.engine.now() - begin) / MS, 20);
    let begin = rig.engine.now();
    for (stream, graph) in [(0, one), (stream, other)] {
        rig.call(1, Request::GraphLaunch { context, stream, graph });
    }
    rig.drain(context, stream);
    assert_eq!((rig.engine.now() - begin) / MS, 10);
}

#[test]
fn kernels_in_a_graph_have_a_shorter_fixed_part() {
    let mut rig = Rig::new();
    let context = rig.context(1);
    let cost = rig.kernel(1, 100);
    let graph = rig.graph(context, 1, &[(0, GraphWork::Kernel(cost)); 100]);
    rig.call(1, Request::GraphLaunch { context, stream: 0, graph });
    let took = rig.drain(context, 0);
    let compute = &Profile::builtin("h200").unwrap().compute;
    let saved_us = (compute.launch_us - compute.graph_node_us) * 100.0;
    let found_us = (100 * MS - took) as f64 / 1e3;
    assert!((found_us - saved_us).abs() < 0.2, "{found_us} of {saved_us}");
}

#[test]
fn a_destroyed_graph_finishes_what_is_launched_and_launches_no_more() {
    let mut rig = Rig::new();
    let context = rig.context(1);
    let step = rig.step(10, 50);
    let graph = rig.graph(context, 2, &[(0, step), (1, step)]);
    rig.call(1, Request::GraphLaunch { context, stream: 0, graph });
    assert_eq!(rig.call(1, Request::GraphDestroy { context, graph }), Reply::Done);
    assert_eq!(rig.drain(context, 0) / MS, 10);
    let again = rig.call(1, Request::GraphLaunch { context, stream: 0, graph });
    assert_eq!(again, Reply::Error(cu::INVALID_HANDLE));
}

#[test]
fn steps_that_make_no_sense_are_refused_and_change_nothing() {
    let mut rig = Rig::new();
    let context = rig.context(1);
    for tracks in [0, 1_000_000] {
        assert_eq!(rig.call(1, Request::GraphCreate { context, tracks }), Reply::Error(cu::INVALID_VALUE));
    }
    let step = rig.step(10, 50);
    let graph = rig.graph(context, 2, &[(0, step)]);
    for (track, work) in [(2, step), (0, after(7, 1)), (1, after(0, 2))] {
        let add = Request::GraphAdd { context, graph, track, work };
        assert_eq!(rig.call(1, add), Reply::Error(cu::INVALID_VALUE), "{work:?}");
    }
    rig.call(1, Request::GraphLaunch { context, stream: 0, graph });
    assert_eq!(rig.drain(context, 0) / MS, 10);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Whatever waits for whatever came before it, a graph ends, and no sooner than its longest track.
    #[test]
    fn every_graph_ends(steps in prop::collection::vec((0u32..4, 1u64..20, any::<bool>(), 0u32..4), 1..40)) {
        let mut rig = Rig::new();
        let context = rig.context(1);
        let (mut all, mut lengths, mut alone) = (Vec::new(), [0u32; 4], [0u64; 4]);
        for (track, ms, waits, other) in steps {
            if waits {
                all.push((track, after(other, lengths[other as usize])));
                lengths[track as usize] += 1;
            }
            all.push((track, rig.step(ms, 25)));
            lengths[track as usize] += 1;
            alone[track as usize] += ms * MS;
        }
        let graph = rig.graph(context, 4, &all);
        rig.call(1, Request::GraphLaunch { context, stream: 0, graph });
        let took = rig.drain(context, 0);
        let longest = alone.into_iter().max().unwrap_or(0);
        prop_assert!(took + 1_000 >= longest && took <= alone.iter().sum::<u64>() + 1_000, "{took} of {alone:?}");
    }
}
