//! Graphs: many kernels and copies that are launched as one.
//!
//! A graph has tracks, which run side by side, each in its order; a step may wait for steps of other tracks. The first track runs in the
//! stream the graph is launched into, the others in streams of the graph's own. So a launch is nothing but operations in streams,
//! and kernels in a graph share the GPU as all others do. Their fixed part is shorter.

use berth_proto::sim::{GraphWork, Reply, cu};

use super::context::{Context, Mark, Op, Stream};
use super::work::{copy_op, kernel_op};
use super::{Answer, Engine};

/// The most tracks and steps of one graph: a client cannot make the engine hold more.
const MAX_TRACKS: u32 = 1024;
const MAX_STEPS: usize = 1 << 16;

#[derive(Debug)]
pub(super) struct Graph {
    /// The streams of all tracks but the first.
    others: Vec<u64>,
    /// In the order they were added, with their track.
    steps: Vec<(usize, Step)>,
    /// How many steps each track has.
    lengths: Vec<u32>,
    /// Passed when the last launch is done.
    end: Option<Mark>,
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Work(Op),
    After { track: usize, steps: u32 },
}

impl Engine {
    pub(super) fn create_graph(&mut self, pid: u32, id: u64, tracks: u32) -> Answer {
        self.usable(pid, id)?;
        if !(1..=MAX_TRACKS).contains(&tracks) {
            return Err(cu::INVALID_VALUE);
        }
        let handle = self.fresh_id();
        let others: Vec<u64> = (1..tracks).map(|_| self.fresh_id()).collect();
        let context = self.usable(pid, id)?;
        context.streams.extend(others.iter().map(|stream| (*stream, Stream::default())));
        let lengths = vec![0; tracks as usize];
        context.graphs.insert(handle, Graph { others, steps: Vec::new(), lengths, end: None });
        Ok(Some(Reply::Handle(handle)))
    }

    pub(super) fn add_to_graph(&mut self, pid: u32, id: u64, graph: u64, track: u32, work: GraphWork) -> Answer {
        let node_us = self.profile.compute.graph_node_us;
        let step = match work {
            GraphWork::Kernel(cost) => Step::Work(kernel_op(&self.profile, cost, node_us).ok_or(cu::INVALID_VALUE)?),
            GraphWork::Copy { direction, bytes } => Step::Work(copy_op(&self.profile, direction, bytes)),
            GraphWork::After { track, steps } => Step::After { track: track as usize, steps },
        };
        let graph = self.usable(pid, id)?.graphs.get_mut(&graph).ok_or(cu::INVALID_HANDLE)?;
        graph.add(track as usize, step).ok_or(cu::INVALID_VALUE)?;
        Ok(Some(Reply::Done))
    }

    pub(super) fn launch_graph(&mut self, pid: u32, id: u64, stream: u64, graph: u64) -> Answer {
        let context = self.usable(pid, id)?;
        context.end_of(stream).ok_or(cu::INVALID_HANDLE)?;
        let mut taken = context.graphs.remove(&graph).ok_or(cu::INVALID_HANDLE)?;
        taken.launch(context, stream);
        context.graphs.insert(graph, taken);
        self.pump(id);
        Ok(Some(Reply::Done))
    }

    pub(super) fn destroy_graph(&mut self, pid: u32, id: u64, graph: u64) -> Answer {
        let context = self.usable(pid, id)?;
        let gone = context.graphs.remove(&graph).ok_or(cu::INVALID_HANDLE)?;
        for stream in gone.others {
            context.close(stream);
        }
        self.pump(id);
        Ok(Some(Reply::Done))
    }
}

impl Graph {
    /// `None` for a track that is not there, a step that waits for what does not come before it, and one too many.
    fn add(&mut self, track: usize, step: Step) -> Option<()> {
        if let Step::After { track, steps } = step
            && self.lengths.get(track).is_none_or(|length| steps > *length)
        {
            return None;
        }
        if self.steps.len() >= MAX_STEPS {
            return None;
        }
        *self.lengths.get_mut(track)? += 1;
        self.steps.push((track, step));
        Some(())
    }

    /// Queues all steps; `stream` is there.
    fn launch(&mut self, context: &mut Context, stream: u64) {
        if let Some(end) = self.end {
            // Not beside an earlier launch of the same.
            context.enqueue(stream, Op::Wait(end));
        }
        if let Some(begin) = context.end_of(stream) {
            for other in &self.others {
                context.enqueue(*other, Op::Wait(begin));
            }
        }
        let streams: Vec<u64> = std::iter::once(stream).chain(self.others.iter().copied()).collect();
        let mut done: Vec<Vec<Mark>> = vec![Vec::new(); streams.len()];
        for (track, step) in &self.steps {
            let op = match *step {
                Step::Work(op) => Some(op),
                Step::After { track, steps } => {
                    steps.checked_sub(1).and_then(|last| done[track].get(last as usize)).copied().map(Op::Wait)
                }
            };
            let mark = match op {
                Some(op) => context.enqueue(streams[*track], op),
                None => context.end_of(streams[*track]),
            };
            done[*track].extend(mark);
        }
        for other in &self.others {
            if let Some(end) = context.end_of(*other) {
                context.enqueue(stream, Op::Wait(end));
            }
        }
        self.end = context.end_of(stream);
    }
}
