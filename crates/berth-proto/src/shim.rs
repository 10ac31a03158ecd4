//! Between the daemon and the library inside a tenant's process: what they say to each other, and the memory they share.
//!
//! A *client* is one process that has attached. It gets two memory files over its socket: a [`Ledger`] that it writes and the daemon
//! reads, and a page of [`Orders`] that the daemon writes and it can only read. A *link* is between two: one that yields and one it yields
//! to; the daemon can be the latter. Each link has a page of its own, the [`Stop`] both can write: while its word is not 0, the one that
//! yields begins no new work on that GPU. Nothing else is ever read from it, so a forged word holds or frees that one client, which could
//! as well launch what it likes; and whoever is stopped can free itself when the other is gone.
//!
//! A *lane* is one GPU of a client. Times are of the host's `CLOCK_MONOTONIC` in nanoseconds; those of work on the GPU are estimates
//! unless said otherwise. Everything in memory is an atomic, and whoever reads what another wrote takes any value there for possible.

pub mod message;
pub mod pages;
pub mod sys;

pub use message::{FromClient, FromDaemon, MessageError};
pub use pages::{
    LANES, LaneLedger, LaneOrders, Ledger, MOST_LEADS, MOST_YIELDS, Orders, REQUESTS, Request, RequestSlot, SAMPLES,
    Sample, SampleKind, SampleSlot, Stop,
};

/// Of messages and layouts together. A daemon that does not know a client's version refuses it by name; the client then goes on without.
pub const VERSION: u32 = 2;

/// Where the socket is inside a container, and on the host below the daemon's runtime directory.
pub const SOCKET_NAME: &str = "shim.sock";
/// The library's file name.
pub const LIBRARY_NAME: &str = "libberth_shim.so";
/// Environment variable that names the socket; without it the library does nothing.
pub const SOCKET_VARIABLE: &str = "BERTH_SHIM_SOCKET";
