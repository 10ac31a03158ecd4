//! One that yields and one it yields to, and the page between them.

use std::sync::atomic::{AtomicU32, Ordering};

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
    pub id: u64,
    pub yields: End,
    /// `None`: the daemon.
    pub leads: Option<End>,
    pub(super) page: Page<Stop>,
    /// What the daemon stores next. Even: a client that leads stores odd numbers.
    next: AtomicU32,
}

impl Link {
    pub(super) fn new(id: u64, yields: End, leads: Option<End>, page: Page<Stop>) -> Self {
        // The daemon has mapped it from the beginning.
        page.is_led.store(leads.is_none().into(), Ordering::SeqCst);
        Self { id, yields, leads, page, next: AtomicU32::new(2) }
    }

    /// Whether the one that yields is stopped.
    pub fn is_up(&self) -> bool {
        self.page.word.load(Ordering::Acquire) != 0
    }

    /// Whether the one that leads has mapped the page, and so can stop the other.
    pub fn is_led(&self) -> bool {
        self.page.is_led.load(Ordering::Acquire) != 0
    }

    /// Stops the one that yields, if it is not: by another number each time, so that whoever is stopped sees that it was let go in between.
    pub fn raise(&self) {
        let next = self.next.load(Ordering::Relaxed);
        let raised = self.page.word.compare_exchange(0, next, Ordering::SeqCst, Ordering::Relaxed);
        if raised.is_ok() {
            self.next.store(next.wrapping_add(2).max(2), Ordering::Relaxed);
        }
    }

    /// Lets the one that yields go on, whoever stopped it. Whether it was stopped.
    pub fn lower(&self) -> bool {
        self.page.word.swap(0, Ordering::SeqCst) != 0
    }

    /// Nobody wants the one that leads to raise the word for now, or somebody does again.
    pub fn mute(&self, is_muted: bool) {
        self.page.muted.store(is_muted.into(), Ordering::SeqCst);
    }

    /// Lets it go on if it was the daemon that stopped it.
    pub fn lower_own(&self) {
        let word = self.page.word.load(Ordering::Acquire);
        if word != 0 && word.is_multiple_of(2) {
            // Whoever was faster has another word up, or none.
            let _ = self.page.word.compare_exchange(word, 0, Ordering::SeqCst, Ordering::Relaxed);
        }
    }
}
