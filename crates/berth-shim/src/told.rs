//! The end of work as the program itself is told it: it has waited for all it had submitted, and the wait has returned.
//!
//! That is known at once and costs no call to the driver, while a thread that asks again and again is late and in the way of the program's
//! own calls. Waits that say less (for an event, for one of several streams) say nothing here, and the thread that looks at the GPU asks as
//! before.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::capture::CAPTURES;
use crate::client::Client;
use crate::state::{self, WORK, guarded};
use crate::sys::process;

/// On one GPU.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// All of the first so many pieces of work were done,
    pieces: AtomicU64,
    /// when this was known.
    at_ns: AtomicU64,
}

/// What the program waits for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Awaited {
    /// All streams of a context; `None`: of the thread's own.
    Context(Option<u64>),
    Stream(u64),
}

/// A wait that has begun.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waiting {
    awaited: Place,
    lane: usize,
    started: u64,
}

#[derive(Debug, Clone, Copy)]
enum Place {
    Context(u64),
    Stream(usize),
}

impl Told {
    fn tell(&self, pieces: u64, now_ns: u64) {
        self.at_ns.store(now_ns, Ordering::Relaxed);
        self.pieces.store(pieces, Ordering::Release);
    }

    /// When the program knew that all of the first `started` pieces were done; `None` if it has not said so of these.
    pub(crate) fn done_ns(&self, started: u64) -> Option<u64> {
        let is_of_these = self.pieces.load(Ordering::Acquire) == started && started > 0;
        is_of_these.then(|| self.at_ns.load(Ordering::Relaxed))
    }
}

/// Before the driver's own wait. `None`: it says nothing, or nobody has to know.
pub(crate) fn begin(awaited: Awaited) -> Option<Waiting> {
    if !state::minds(WORK) || CAPTURES.any() {
        return None;
    }
    guarded(|| waiting(state::client(WORK)?, awaited))
}

fn waiting(client: &'static Client, awaited: Awaited) -> Option<Waiting> {
    let (awaited, lane) = match awaited {
        Awaited::Stream(handle) => {
            let seen = client.stream(handle)?;
            (Place::Stream(seen.place?), seen.lane)
        }
        Awaited::Context(context) => {
            let current = client.driver.current_context();
            let context = context.or(current)?;
            // Of another than its own a thread does not know which GPU it is on without asking.
            (Place::Context(context), (Some(context) == current).then(|| client.current_lane())??)
        }
    };
    let known = &client.lanes[lane];
    let started = known.started.load(Ordering::SeqCst);
    // Whoever is in the middle of a call is not waited for.
    (started == known.finished.load(Ordering::SeqCst)).then_some(Waiting { awaited, lane, started })
}

/// After it.
pub(crate) fn end(waiting: Option<Waiting>, went_well: bool) {
    let Some(Waiting { awaited, lane, started }) = waiting.filter(|_| went_well) else { return };
    guarded(|| {
        let client = state::attached()?;
        let (known, now_ns) = (&client.lanes[lane], process::now_ns());
        let is_covered = |place: usize| match awaited {
            Place::Stream(only) => place == only,
            Place::Context(context) => client.streams.get(place).context.load(Ordering::Relaxed) == context,
        };
        let is_all =
            now_ns >= known.blind_until_ns.load(Ordering::SeqCst) && client.streams.active(lane).all(is_covered);
        if is_all && known.started.load(Ordering::SeqCst) == started {
            known.told.tell(started, now_ns);
        }
        Some(())
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_of_the_pieces_it_was_told_of_and_of_no_others() {
        let told = Told::default();
        assert_eq!(told.done_ns(0), None, "nothing was submitted");
        told.tell(3, 50);
        assert_eq!((told.done_ns(3), told.done_ns(4), told.done_ns(2)), (Some(50), None, None));
    }
}
