//! Launching kernels: one message, no answer; the socket's fullness is what holds a program back.

use berth_proto::cuda::{LaunchConfig, result};
use berth_proto::sim::GraphWork;

use crate::capture;
use crate::cost::{self, Shape};
use crate::edge::{Answer, Arguments, In, Pointers};
use crate::module;
use crate::process;
use crate::stream::{Default, StreamArgument};

/// The most threads a block of any GPU has.
const MAX_THREADS_PER_BLOCK: u64 = 1024;

pub(crate) fn launch(function: u64, shape: Shape, stream: StreamArgument, arguments: Arguments) -> Answer {
    process::get()?;
    let function = module::find(function)?;
    if shape.blocks() == 0 || !(1..=MAX_THREADS_PER_BLOCK).contains(&shape.threads_per_block()) {
        return Err(result::INVALID_VALUE);
    }
    let cost = cost::cost(&function.kernel, shape, &arguments).ok_or(result::INVALID_VALUE)?;
    capture::queue(stream.place()?, GraphWork::Kernel(cost))
}

/// As [`launch`], with the shape and stream in a structure. Its attributes are accepted and not modelled.
pub(crate) fn launch_config(
    config: In<LaunchConfig>,
    function: u64,
    default: Default,
    pointers: Pointers,
    extra: Pointers,
) -> Answer {
    let config = config.get().ok_or(result::INVALID_VALUE)?;
    let shape = Shape { grid: config.grid, block: config.block };
    launch(function, shape, default.of(config.stream), Arguments { pointers, extra })
}
