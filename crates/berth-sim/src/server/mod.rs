//! The simulated GPU in real time: a server that owns one engine, in a directory that containers can mount.
//!
//! ```text
//! DIR/lib/libcuda.so.1, DIR/lib/libnvidia-ml.so.1   what programs load
//! DIR/gpu.sock                                      driver calls, anybody
//! DIR/nvml.state                                    what NVML says, a mapped snapshot
//! DIR/control.sock                                  faults, the server's user and root only
//! DIR/lock                                          held by the server that owns the directory
//! ```
//!
//! One thread does everything, waits in one place and never blocks on a client: a client that is frozen, silent or
//! mad costs nobody else anything. Time is `CLOCK_MONOTONIC` times a scale. A client's pid comes from the kernel, not
//! from the client, and its end from a pidfd, so a forked child that keeps a socket open keeps nothing alive.
//!
//! | file | holds |
//! |---|---|
//! | `options`, `directory`, `libraries` | what to serve, where, and setting it up |
//! | `run` | the loop |
//! | `client`, `clients` | one conversation; all of them, and which process each belongs to |
//! | `still` | which clients are frozen or stopped |
//! | `publish` | the engine's view as NVML's snapshot |
//! | `control` | making things go wrong from outside |
//! | `clock`, `sys` | time; what the kernel knows about a peer |

mod client;
mod clients;
mod clock;
mod control;
mod directory;
mod libraries;
mod options;
mod poll;
mod publish;
mod run;
mod still;
mod sys;

pub use control::{ControlError, inject, kernels_done};
pub use libraries::{Libraries, find_libraries};
pub use options::{ServeError, ServeOptions};
pub use run::Server;

/// Serves until `stop` says so; it is asked at least every tenth of a second, and after every signal.
pub fn serve(options: ServeOptions, stop: impl Fn() -> bool) -> Result<(), ServeError> {
    Server::bind(options)?.run(stop)
}
