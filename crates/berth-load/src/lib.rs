//! A GPU workload that tells the truth about its own timing.
//!
//! A naive matrix product in phases, on the CUDA driver API alone. The driver library is opened at run time and the
//! kernel is PTX text, so the same program runs on the simulated `libcuda.so.1` and on any real one, without a toolkit.
//! Besides the product it can hold memory and idle, make light periodic load, and fail in any phase in several ways.
//! It is what the monitor is measured against; it knows nothing of berth. [`roles`] are other programs, of many short kernels.
//!
//! # Lines
//!
//! One JSON object per line ([`Line`]), on standard output or in a file. Every line has `mono_ns` (`CLOCK_MONOTONIC`, the
//! same clock on the host and in its containers), `wall_ns`, `pid` (as the process sees itself), `task` (counted from
//! 0) and `event`:
//!
//! | `event` | further fields | when |
//! |---|---|---|
//! | `start` | `version` `mode` `size` `repeats` `tasks` `seed` | first line |
//! | `device` | `name` `total_bytes` `driver_version` | once, when the driver is open |
//! | `phase` | `phase` `edge` (`begin`, `end`) and, for kernels, `repeat` | around each phase |
//! | `moment` | `moment` `edge` and, for kernels, `repeat` | see below |
//! | `verify` | `verdict` (`correct`, `wrong`, `not_verified`) and its numbers | after the output, if asked for |
//! | `stopped` | `phase`, unless between two | SIGTERM or SIGINT was noticed |
//! | `error` | `phase` `message` | a driver call failed, or the run was told to fail |
//! | `summary` | `exit_code` `tasks`: seconds per phase, rounds | last line, unless the process is killed |
//!
//! Phases, in order: `wait host context alloc hold input kernel output free idle destroy exit`; `host` belongs to the
//! first task only, `exit` has no end, and those that last no time by the options are left out.
//!
//! | `moment` | edges | the instant |
//! |---|---|---|
//! | `device_open` | both | around the process's one `cuInit` |
//! | `context_ready` | end | after `cuCtxCreate` |
//! | `first_allocation` | both | around the task's first `cuMemAlloc` |
//! | `first_launch` | both | around the task's first `cuLaunchKernel` |
//! | `kernel_done` | end | after every round's `cuStreamSynchronize` |
//! | `freed` | end | after the task's last `cuMemFree` |
//! | `context_gone` | end | after `cuCtxDestroy` |
//! | `exit` | begin | just before the process ends |
//!
//! The two edges of a moment are written together after the call, so that writing does not fall between them.
//!
//! # Exit codes
//!
//! See [`Exit`]. A run asked to stop ends with 0.

mod driver;
mod matrix;
mod options;
mod plan;
mod ptx;
mod record;
mod run;
mod stop;
mod sys;

#[cfg(feature = "cli")]
mod args;
mod process;
#[cfg(feature = "cli")]
pub mod roles;

#[cfg(feature = "cli")]
pub use args::Args;
pub use options::{FOREVER, Failure, GapRange, How, Lookup, MAX_SIZE, Mode, Options, OptionsError};
pub use process::{EXIT_CODES_HELP, Exit, run};
pub use ptx::MATMUL as KERNEL_PTX;
pub use record::{Edge, Event, Line, Moment, Phase, Stamp, Summary, TaskSummary, Verdict};
