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

    /// Has the GPU store 0 there, unless the last such store is not done. Whether it was told to.
    pub(crate) fn store(&self, client: &Client, address: u64, context: u64) -> bool {
        let driver = &client.driver;
        if self.is_under_way(client, context) {
            return false;
        }
        let known = self.streams().iter().find(|known| known.context == context).copied();
        let make = || {
            let (stream, event) = (driver.create_stream()?, driver.create_event(false)?);
            Some(Stream { context, stream, event })
        };
        let Some(own) = known.or_else(|| {
            let made = driver.within(context, make).flatten()?;
            self.streams().push(made);
            Some(made)
        }) else {
            return false;
        };
        driver.write_zero(own.stream, address) && driver.record(own.event, own.stream)
    }

    /// Gone with their context.
    pub(crate) fn forget(&self, context: u64) {
        self.streams().retain(|known| known.context != context);
    }
}
