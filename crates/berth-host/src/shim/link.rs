//! One that yields and one it yields to, and the page between them.

use std::sync::atomic::Ordering;

use berth_proto::shim::Stop;
use berth_proto::shim::sys::Page;

use super::ClientId;

/// One side of a link: a GPU of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct End {
    pub client: ClientId,
    pub lane: u8,
}

/// A link that both ends were told of. It stays until it is given to [`super::Shim::unlink`].
#[derive(Debug)]
pub struct Link {
    pub(super) id: u64,
    pub yields: End,
    /// `None`: the daemon.
    pub leads: Option<End>,
    pub(super) page: Page<Stop>,
}

impl Link {
    /// Whether the one that yields is stopped.
    pub fn is_up(&self) -> bool {
        self.page.word.load(Ordering::Acquire) != 0
    }

    /// Stops the one that yields, or lets it go on.
    pub fn set(&self, is_up: bool) {
        self.page.word.store(is_up.into(), Ordering::Release);
    }
}
