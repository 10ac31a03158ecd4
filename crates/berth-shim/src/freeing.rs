//! Streams of our own, with which the GPU itself sets words to 0 that it is told of by an address of its own: whatever has become of our
//! mapping of them.
//!
//! Nobody waits for such a store: where streams share a queue of the hardware it may stand behind the very wait that it is to end. Until it is done
//! the pages stay where the GPU knows them.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::client::Client;
use crate::sys::driver::Progress;

/// Used by the thread that looks at the GPU alone, but for contexts that go.
#[derive(Debug, Default)]
pub(crate) struct Freeing(Mutex<Vec<Stream>>);

#[derive(Debug, Clone, Copy)]
struct Stream {
    context: u64,
    stream: u64,
    /// Recorded behind the last store.
    event: u64,
}

impl Freeing {
    fn streams(&self) -> MutexGuard<'_, Vec<Stream>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a store may not be done. Where there was none, none is.
    pub(crate) fn is_under_way(&self, client: &Client, context: u64) -> bool {
        let known = self.streams().iter().find(|known| known.context == context).copied();
        known.is_some_and(|known| client.driver.progress(known.event, context) == Progress::UnderWay)
    }

    /// Has the GPU store 0 at all of these, unless the last such stores are not done.
    pub(crate) fn store(&self, client: &Client, addresses: impl Iterator<Item = u64>, context: u64) {
        if self.is_under_way(client, context) {
            return;
        }
        let driver = &client.driver;
        if let Some(own) = self.stream(client, context) {
            driver.within(context, || {
                addresses.for_each(|address| _ = driver.write_zero(own.stream, address));
                driver.record(own.event, own.stream);
            });
        }
    }

    fn stream(&self, client: &Client, context: u64) -> Option<Stream> {
        let driver = &client.driver;
        let known = self.streams().iter().find(|known| known.context == context).copied();
        known.or_else(|| {
            let make = || {
                let event = driver.create_event(false)?;
                let Some(stream) = driver.create_stream() else {
                    driver.destroy_event(event, context);
                    return None;
                };
                Some(Stream { context, stream, event })
            };
            let made = driver.within(context, make).flatten()?;
            self.streams().push(made);
            Some(made)
        })
    }

    /// Gone with their context.
    pub(crate) fn forget(&self, context: u64) {
        self.streams().retain(|known| known.context != context);
    }
}
