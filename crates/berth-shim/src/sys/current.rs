//! The client this process is, if it is one. Set once per process; a forked child begins without.

use std::sync::atomic::{AtomicPtr, Ordering};

use crate::client::Client;

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
