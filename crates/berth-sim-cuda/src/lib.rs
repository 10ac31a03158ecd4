//! `libcuda.so.1` of the simulated GPU: a thin client of the simulator's server.
//!
//! It keeps what the real driver keeps on the caller's side (which context is current in a thread, what a handle is)
//! and asks the server for everything that takes GPU time or memory. It does not compute: device memory has no
//! contents, a copy to the host leaves the host's bytes as they are. No panic leaves it, it starts no thread but the one in
//! `words.rs`, installs no signal handler and prints nothing unless `BERTH_SIM_LOG` is set.
//!
//! `exports.rs` is the C edge; every function behind it is plain Rust that answers with a result.

mod capture;
mod checkpoint;
mod connection;
mod context;
mod cost;
mod device;
mod edge;
mod event;
mod exports;
mod graph;
mod green;
mod host;
mod launch;
mod log;
mod lookup;
mod memory;
mod memory_op;
mod module;
mod objects;
mod primary;
mod process;
mod ptx;
mod sequence;
mod stream;
mod visible;
mod words;
