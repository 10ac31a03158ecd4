//! The thread that does what streams do to words of host memory.
//!
//! The server has no way to this process's memory. It holds a stream at such work and tells this side, which looks at the word, again
//! and again while what is waited for does not hold, and tells the server when the stream may go on. The thread starts with the
//! first such work, sleeps while no stream stands at any, and takes none of the program's signals.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use berth_proto::cuda::result;
use berth_proto::sim::{Reply, Request};

use crate::capture;
use crate::connection::{Connection, Lost};
use crate::edge::Answer;
use crate::log::say;
use crate::memory_op::WordOp;
use crate::objects::Stream;
use crate::process::{self, demand, post};

/// How long the thread sleeps between two looks at words that streams stand at.
const LOOK_EVERY: Duration = Duration::from_micros(20);

#[derive(Debug)]
struct Work {
    context: u64,
    stream: u64,
    ops: Vec<WordOp>,
    /// How many of them are done.
    done: usize,
}

#[derive(Debug, Default)]
struct Works {
    /// Queued and not done, by token.
    queued: HashMap<u64, Work>,
    last_token: u64,
}

static WORKS: LazyLock<Mutex<Works>> = LazyLock::new(Mutex::default);
/// Whether the thread runs.
static STARTED: Mutex<bool> = Mutex::new(false);

/// Never held while waiting for the server.
fn lock() -> MutexGuard<'static, Works> {
    WORKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Queues the operations on the stream, to be done in their order.
pub(crate) fn submit(place: Stream, ops: Vec<WordOp>) -> Answer {
    capture::forbid_in(place)?;
    start()?;
    let Stream { context, stream, .. } = place;
    let token = {
        let mut works = lock();
        works.last_token += 1;
        let token = works.last_token;
        works.queued.insert(token, Work { context, stream, ops, done: 0 });
        token
    };
    let posted = post(Request::HostWork { context, stream, token });
    if posted.is_err() {
        lock().queued.remove(&token);
    }
    posted
}

/// Returns when no stream will touch these addresses any more. What is left of broken contexts is dropped.
pub(crate) fn settle(addresses: Range<u64>) {
    let touches = |work: &Work| work.ops.iter().any(|op| addresses.contains(&op.word.address()));
    let mut contexts: Vec<u64> = lock().queued.values().filter(|work| touches(work)).map(|work| work.context).collect();
    contexts.sort_unstable();
    contexts.dedup();
    for context in contexts {
        // An error is the context's own: then nothing of it runs any more.
        let _ = demand(Request::ContextSync { context });
    }
    lock().queued.retain(|_, work| !touches(work));
}

/// The context is gone, and with it what stood in its streams.
pub(crate) fn forget_context(context: u64) {
    lock().queued.retain(|_, work| work.context != context);
}

fn start() -> Answer {
    let mut started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    if *started {
        return Ok(());
    }
    let news = process::connect_thread()?;
    let named = std::thread::Builder::new().name("berth-sim-words".into());
    let spawned = without_signals(|| named.spawn(move || run(news)));
    spawned.map_err(|error| {
        say(format_args!("start the thread for words: {error}"));
        result::OPERATING_SYSTEM
    })?;
    *started = true;
    Ok(())
}

/// Threads that `work` starts begin with all signals blocked: the program's own threads take them.
fn without_signals<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: two signal sets of our own, filled before they are read; the caller's mask is put back as it was.
    unsafe {
        let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let value = work();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        value
    }
}

fn run(mut news: Connection) {
    let ended = listen(&mut news);
    say(format_args!("no more words: {ended:?}"));
}

/// Ends with the connection.
fn listen(news: &mut Connection) -> Result<(), Lost> {
    // Work that streams stand at.
    let mut open: Vec<u64> = Vec::new();
    loop {
        news.ask(Request::HostWorkNext)?;
        let reply = loop {
            open.retain(|token| !finish(*token));
            let patience = if open.is_empty() { None } else { Some(LOOK_EVERY) };
            if let Some(reply) = news.answer_within(patience)? {
                break reply;
            }
        };
        match reply {
            Reply::Handle(token) => open.push(token),
            reply => say(format_args!("unexpected news {reply:?}")),
        }
    }
}

/// Does what can be done of a work; `true` when it is over.
fn finish(token: u64) -> bool {
    let done = {
        let mut works = lock();
        let Some(work) = works.queued.get_mut(&token) else { return true };
        while work.ops.get(work.done).is_some_and(|op| op.is_done()) {
            work.done += 1;
        }
        if work.done < work.ops.len() {
            return false;
        }
        let Some(Work { context, stream, .. }) = works.queued.remove(&token) else { return true };
        Request::HostWorkDone { context, stream, token }
    };
    // If the server is gone, the next news say so.
    let _ = post(done);
    true
}
