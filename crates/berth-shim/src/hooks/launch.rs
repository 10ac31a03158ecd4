//! Launches of kernels and graphs.

use std::ffi::{c_uint, c_void};

use berth_proto::cuda::LaunchConfig;

use crate::state::{self, guarded};
use crate::work::{Work, submit};

type Pointers = *mut *mut c_void;

/// What it took says nothing of what has its handle from now on.
fn forget_graph(graph: u64) {
    guarded(|| {
        state::attached()?.estimates.forget_graph(graph);
        Some(())
    });
}

crate::hooks::hooks! {
    cuLaunchKernel / cuLaunchKernel_ptsz: (
        function: u64, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint, block_z: c_uint,
        shared_bytes: c_uint, stream: u64, parameters: Pointers, extra: Pointers,
    ) |real, default| submit(
        default.of(stream),
        || Work::kernel(function, [grid_x, grid_y, grid_z], [block_x, block_y, block_z], shared_bytes, true),
        // SAFETY: the caller's own arguments; another stream is one of ours.
        |moved| unsafe {
            let stream = moved.unwrap_or(stream);
            real(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, parameters, extra)
        },
    );
    // Its blocks wait for each other, so it is never moved to fewer SMs.
    cuLaunchCooperativeKernel / cuLaunchCooperativeKernel_ptsz: (
        function: u64, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint, block_z: c_uint,
        shared_bytes: c_uint, stream: u64, parameters: Pointers,
    ) |real, default| submit(
        default.of(stream),
        || Work::kernel(function, [grid_x, grid_y, grid_z], [block_x, block_y, block_z], shared_bytes, false),
        // SAFETY: the caller's own arguments.
        |_| unsafe {
            real(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, parameters)
        },
    );
    // What has attributes is not moved: some of them tie a kernel to its stream or its blocks to each other.
    cuLaunchKernelEx / cuLaunchKernelEx_ptsz: (
        config: *const LaunchConfig, function: u64, parameters: Pointers, extra: Pointers,
    ) |real, default| {
        // SAFETY: null or a configuration, by the driver API's contract.
        let Some(wanted) = (unsafe { config.as_ref() }) else {
            // SAFETY: the caller's own arguments.
            return unsafe { real(config, function, parameters, extra) };
        };
        submit(
            default.of(wanted.stream),
            || Work::kernel(function, wanted.grid, wanted.block, wanted.shared_bytes, wanted.attribute_count == 0),
            |moved| {
                let elsewhere = moved.map(|stream| LaunchConfig { stream, ..*wanted });
                let config = elsewhere.as_ref().map_or(config, std::ptr::from_ref);
                // SAFETY: the caller's own arguments, or a copy of the configuration with one of our streams.
                unsafe { real(config, function, parameters, extra) }
            },
        )
    };
    // SAFETY: the caller's own arguments.
    cuGraphExecDestroy: (graph: u64) |real, _default| { forget_graph(graph); unsafe { real(graph) } };
    cuGraphExecUpdate: (graph: u64, from: u64, node: *mut u64, told: *mut c_uint) |real, _default| {
        forget_graph(graph);
        // SAFETY: the caller's own arguments.
        unsafe { real(graph, from, node, told) }
    };
    cuGraphExecUpdate_v2: (graph: u64, from: u64, told: *mut c_void) |real, _default| {
        forget_graph(graph);
        // SAFETY: the caller's own arguments.
        unsafe { real(graph, from, told) }
    };
    // One unit, whatever is in it.
    cuGraphLaunch / cuGraphLaunch_ptsz: (graph: u64, stream: u64) |real, default| submit(
        default.of(stream),
        || Work::graph(graph),
        // SAFETY: the caller's own arguments.
        |_| unsafe { real(graph, stream) },
    );
}
