//! The client this process is, if it is one. Set once per process; a forked child begins without. And what it is given, which is
//! exchanged as a whole when another daemon is attached to.

use std::sync::atomic::{AtomicPtr, Ordering};

use crate::client::Client;

/// Something that calls may be using at any time: what was there before is never freed.
#[derive(Debug)]
pub(crate) struct Kept<T: 'static>(AtomicPtr<T>);

impl<T: Send + Sync> Kept<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(AtomicPtr::new(Box::leak(Box::new(value))))
    }

    #[inline]
    pub(crate) fn get(&self) -> &'static T {
        // SAFETY: what is stored was leaked and is never freed, and it is never null.
        unsafe { &*self.0.load(Ordering::Acquire) }
    }

    pub(crate) fn exchange(&self, value: T) {
        self.0.store(Box::leak(Box::new(value)), Ordering::Release);
    }
}

static CURRENT: AtomicPtr<Client> = AtomicPtr::new(std::ptr::null_mut());

pub(crate) fn get() -> Option<&'static Client> {
    // SAFETY: what is stored was leaked by `set` and is never freed.
    unsafe { CURRENT.load(Ordering::Acquire).as_ref() }
}

/// It stays for as long as the process does: calls that have begun with it may end at any time.
pub(crate) fn set(client: Client) -> &'static Client {
    let client = Box::leak(Box::new(client));
    CURRENT.store(client, Ordering::Release);
    client
}

/// In a forked child. The parent's is left alone.
pub(crate) fn forget() {
    CURRENT.store(std::ptr::null_mut(), Ordering::Release);
}
