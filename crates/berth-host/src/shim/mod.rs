//! Where processes with the library attach that schedules their kernels: the socket, and the memory shared with each.
//!
//! One thread, "berth-shim", accepts, reads and hangs up. What the daemon wants of a client is sent by whoever wants it, at once and
//! without waiting: a client that does not read is hung up on, and goes on without berth. Who a client is says the kernel, by the
//! credentials of its connection and a pidfd; nothing a client says about itself is asked for. Nothing it sends or writes costs more than
//! a bounded number of connections, messages and pages.
//!
//! It decides nothing: who may attach, who yields to whom and when is said by [`Shim::welcome`], [`Shim::link`] and the pages.

mod budget;
mod connection;
mod error;
mod gate;
mod high;
mod link;
mod place;
mod serve;
mod still;
mod sys;
mod table;

#[cfg(test)]
mod tests;

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use berth_model::ProcessFacts;
use berth_proto::shim::message::{Lane, Refusal};
use berth_proto::shim::sys::Page;
use berth_proto::shim::{Ledger, Orders};
use rustix::event::{EventfdFlags, eventfd};

pub use error::ShimError;
pub use link::{End, Link};
use place::Place;
pub use still::Still;
use table::Table;

/// Clients of one tenant. A job has a few processes per GPU.
pub const CLIENTS_PER_TENANT: usize = 64;
/// Clients in all: each is a descriptor and eleven pages.
pub const CLIENTS: usize = 512;

/// One process that has attached. Never used twice while the daemon runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// What is heard of clients.
#[derive(Debug, Clone)]
pub enum Told {
    /// A process wants to be a client: it waits for [`Shim::welcome`] or [`Shim::refuse`].
    Asks { client: ClientId, facts: Arc<ProcessFacts>, clock: ClientClock },
    /// It has begun to use a GPU. Each lane is told once.
    Lane { client: ClientId, lane: Lane },
    /// It hung up, or was hung up on. Nothing is told of it afterwards.
    Gone { client: ClientId },
}

/// What a client's clock shows beside ours: a container may have a time namespace of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientClock {
    pub ahead_ns: i64,
}

/// The memory shared with one client.
#[derive(Debug)]
pub struct Pages {
    /// Written by the client: any value is possible.
    pub ledger: Page<Ledger>,
    /// Written here only.
    pub orders: Page<Orders>,
}

/// The running socket; dropping it hangs up on everybody.
#[derive(Debug)]
pub struct Shim {
    table: Arc<Table>,
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    _place: Place,
}

/// Says who has a pid now, as [`crate::procs::Registry::facts`] does.
pub type Names = Box<dyn Fn(u32) -> Option<Arc<ProcessFacts>> + Send>;

// === impl Shim ===

impl Shim {
    /// Listens at `path`, whose directory is made if it is missing. `tell` is called on the socket's thread and must not block.
    pub fn start(path: &Path, names: Names, tell: impl Fn(Told) + Send + 'static) -> Result<Self, ShimError> {
        let place = Place::take(path)?;
        let table = Arc::new(Table::default());
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).map_err(ShimError::io("make an eventfd"))?);
        let server = serve::Server::new(&place, Arc::clone(&table), Arc::clone(&stop), names, Box::new(tell))?;
        let thread = std::thread::Builder::new().name("berth-shim".into()).spawn(move || server.run());
        let thread = thread.map_err(|source| ShimError::Io { attempt: "start a thread", source })?;
        Ok(Self { table, stop, thread: Some(thread), _place: place })
    }

    /// Lets a process that asks be a client. `None` if it is gone, or cannot be given its pages and is hung up on.
    pub fn welcome(&self, client: ClientId) -> Option<Arc<Pages>> {
        self.table.welcome(client)
    }

    /// Says why not, and hangs up.
    pub fn refuse(&self, client: ClientId, why: Refusal) {
        self.table.refuse(client, why);
    }

    /// Has the first yield to the second, or to the daemon where there is none. `None` if either is gone; both are as before then.
    pub fn link(&self, yields: End, leads: Option<End>) -> Option<Link> {
        self.table.link(yields, leads)
    }

    /// Nobody yields on this link any more. Its page stays with whoever wants to see that nobody raises it again.
    pub fn unlink(&self, link: &Link) {
        self.table.unlink(link);
    }

    /// Hangs up; [`Told::Gone`] follows.
    pub fn drop_client(&self, client: ClientId) {
        self.table.hang_up(client);
    }
}

impl Drop for Shim {
    fn drop(&mut self) {
        if let Err(error) = rustix::io::write(&*self.stop, &1u64.to_ne_bytes()) {
            tracing::error!(%error, "cannot stop the thread berth-shim");
            return;
        }
        if let Some(thread) = self.thread.take() {
            // A panic has been reported on its own thread.
            let _ = thread.join();
        }
        self.table.clear();
    }
}

// === impl ClientClock ===

impl ClientClock {
    /// Readings a message apart differ by its way; more than this is another clock.
    const SAME_NS: u64 = 1_000_000_000;

    fn of(client_ns: u64, own_ns: u64) -> Self {
        let ahead_ns = client_ns.wrapping_sub(own_ns).cast_signed();
        Self { ahead_ns: if ahead_ns.unsigned_abs() < Self::SAME_NS { 0 } else { ahead_ns } }
    }

    /// An instant that the client wrote, on our clock.
    pub fn to_own(self, client_ns: u64) -> u64 {
        client_ns.wrapping_sub(self.ahead_ns.cast_unsigned())
    }
}
