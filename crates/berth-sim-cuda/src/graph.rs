//! Graphs that were captured, and what can be launched of them.
//!
//! A graph is on this side; instantiating it gives it to the server, where one message launches it.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use berth_proto::cuda::{GraphInstantiateParams, result};
use berth_proto::sim::{GraphWork, Request};

use crate::capture;
use crate::edge::{Answer, InOut, Out, OutArray};
use crate::objects::{self, Stream};
use crate::process::{self, obtain, post};
use crate::sequence::Captured;
use crate::stream::StreamArgument;

#[derive(Debug, Clone)]
struct Graph {
    context: u64,
    captured: Arc<Captured>,
}

/// A graph as the server has it.
#[derive(Debug, Clone)]
struct Executable {
    graph: Graph,
    /// The server's handle.
    handle: u64,
}

#[derive(Debug, Default)]
struct Graphs {
    graphs: HashMap<u64, Graph>,
    executables: HashMap<u64, Executable>,
}

static GRAPHS: LazyLock<Mutex<Graphs>> = LazyLock::new(Mutex::default);

/// Never held while waiting for the server.
fn lock() -> MutexGuard<'static, Graphs> {
    GRAPHS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What was captured is a graph from now on.
pub(crate) fn keep(graph: u64, context: u64, captured: Captured) {
    lock().graphs.insert(graph, Graph { context, captured: Arc::new(captured) });
}

pub(crate) fn destroy(graph: u64) -> Answer {
    process::get()?;
    lock().graphs.remove(&graph).map(drop).ok_or(result::INVALID_VALUE)
}

/// How many nodes there are, and handles for as many as there is room for. No function takes them.
pub(crate) fn nodes(graph: u64, nodes: OutArray<u64>, count: InOut<usize>) -> Answer {
    process::get()?;
    let there = lock().graphs.get(&graph).ok_or(result::INVALID_VALUE)?.captured.nodes();
    let room = if nodes.is_wanted() { count.get()? } else { there };
    for node in 0..room.min(there) {
        nodes.set(node, graph + 1 + node as u64);
    }
    count.set(room.min(there));
    Ok(())
}

pub(crate) fn instantiate(out: Out<u64>, graph: u64) -> Answer {
    process::get()?;
    out.check()?;
    let graph = lock().graphs.get(&graph).cloned().ok_or(result::INVALID_VALUE)?;
    let context = graph.context;
    let handle = obtain(Request::GraphCreate { context, tracks: graph.captured.tracks })?;
    for (track, work) in &graph.captured.steps {
        post(Request::GraphAdd { context, graph: handle, track: *track, work: *work })?;
    }
    let executable = objects::lock().fresh_handle();
    lock().executables.insert(executable, Executable { graph, handle });
    out.set(executable)
}

/// As [`instantiate`]; what could be wrong with a graph cannot be captured here.
pub(crate) fn instantiate_with(out: Out<u64>, graph: u64, params: InOut<GraphInstantiateParams>) -> Answer {
    let before = params.get()?;
    instantiate(out, graph)?;
    params.set(GraphInstantiateParams { error_node: 0, result: 0, ..before });
    Ok(())
}

/// One step of a stream that captures: its work becomes part of that graph, one after the other.
pub(crate) fn launch(executable: u64, stream: StreamArgument) -> Answer {
    let place = stream.place()?;
    let known = lock().executables.get(&executable).cloned().ok_or(result::INVALID_VALUE)?;
    if capture::is_in_capture(place)? {
        let work = known.graph.captured.steps.iter().map(|(_, work)| *work);
        return work
            .filter(|work| !matches!(work, GraphWork::After { .. }))
            .try_for_each(|work| capture::queue(place, work));
    }
    let Stream { context, stream, .. } = place;
    if context != known.graph.context {
        return Err(result::INVALID_VALUE);
    }
    post(Request::GraphLaunch { context, stream, graph: known.handle })
}

/// Instantiating has brought everything there already.
pub(crate) fn upload(executable: u64, stream: StreamArgument) -> Answer {
    stream.place()?;
    if lock().executables.contains_key(&executable) { Ok(()) } else { Err(result::INVALID_VALUE) }
}

pub(crate) fn destroy_executable(executable: u64) -> Answer {
    process::get()?;
    let known = lock().executables.remove(&executable).ok_or(result::INVALID_VALUE)?;
    post(Request::GraphDestroy { context: known.graph.context, graph: known.handle })
}

/// The context is gone, and with it what could be launched there.
pub(crate) fn forget_context(context: u64) {
    lock().executables.retain(|_, executable| executable.graph.context != context);
}
