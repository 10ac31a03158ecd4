//! The thread that looks at the GPU: lowers words when the work is done, ends requests, reads measurements, unregisters pages.
//!
//! Where the program waits for all its work itself, its own wait tells the end (`told.rs`), and the driver is asked seldom: each question is in
//! the way of the program's own calls.
//!
//! It is the only one of ours that asks the driver beside the program's own calls, and the driver may keep it waiting: so it frees nobody
//! who is stopped. It sleeps until a call rings, and looks more often the more there is to see.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use berth_proto::shim::{LANES, Request};

use crate::capture::CAPTURES;
use crate::client::Client;
use crate::leaving;
use crate::links::STUCK_AFTER_NS;
use crate::request;
use crate::slices;
use crate::state;
use crate::streams::Stream;
use crate::sys::driver::Progress;
use crate::sys::process;

/// How often it looks while the client keeps others stopped,
const WHILE_RAISED: Duration = Duration::from_micros(25);
/// while the client has work and links, or a page is to go; and a long request is looked at as seldom,
const WHILE_LINKED: Duration = Duration::from_millis(1);
/// a short one more often: this part of its age, but no more often than that,
const PART_OF_A_REQUEST: u64 = 32;
const WHILE_BUSY: Duration = Duration::from_micros(50);
/// Where the program itself has told the last end, it asks the driver no more often than this, and looks as often if nobody is stopped.
const WHILE_TOLD: Duration = Duration::from_micros(250);
/// while something is being measured,
const WHILE_MEASURING: Duration = Duration::from_millis(10);
/// and otherwise.
const OTHERWISE: Duration = Duration::from_millis(50);
/// How long after its last work a client without others to keep stopped is idle, its estimates being rough.
const IDLE_AFTER_NS: u64 = 1_000_000;
/// How often waits in streams without a place and streams that are destroyed are asked for: there may be thousands.
const SWEPT_AGAIN_NS: u64 = 5_000_000;
/// Words that were let go of come up again after so long, as long as there is work.
const RAISED_AGAIN_NS: u64 = 100_000_000;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`: what this thread asks disturbs nobody's capture.
const RELAXED: i32 = 2;

/// What was last seen of a GPU.
#[derive(Debug, Clone, Copy, Default)]
struct Watch {
    started: u64,
    /// When `started` was last seen to change.
    changed_ns: u64,
    /// The pieces of work that were last found to be all done, and when that was known.
    done: u64,
    done_ns: u64,
    /// For how long the words stay up after that.
    linger_ns: u64,
    /// The program told of that itself.
    is_told: bool,
    /// When the driver was last asked.
    asked_ns: u64,
    /// Pieces of work before the request that is under way.
    before_request: u64,
    /// Since when the words are up, or were raised anew.
    raised_ns: u64,
    /// A stream that was last seen to have work.
    under_way: usize,
}

struct Looker {
    client: &'static Client,
    watches: [Watch; LANES],
    freed_at_ns: u64,
    swept_at_ns: u64,
}

pub(crate) fn run(client: &'static Client) {
    process::sleep_exactly();
    client.driver.set_capture_mode(RELAXED);
    client.look_here();
    let mut looker = Looker { client, watches: [Watch::default(); LANES], freed_at_ns: 0, swept_at_ns: 0 };
    while client.is_up() && !client.is_broken() {
        std::thread::park_timeout(looker.pause());
        state::guarded(|| {
            looker.look();
            Some(())
        });
    }
}

impl Looker {
    fn pause(&self) -> Duration {
        let lanes = || self.client.lanes.iter().filter(|lane| lane.device().is_some());
        let now = process::now_ns();
        if lanes().any(crate::lane::Lane::is_raised) {
            return self.until_lowered(now).map_or(WHILE_RAISED, |left| left.min(WHILE_RAISED));
        }
        let began = lanes().filter_map(|lane| Some(lane.request_began_ns.load(Ordering::Relaxed)).filter(|at| *at > 0));
        if let Some(began) = began.max() {
            let part = Duration::from_nanos(now.saturating_sub(began) / PART_OF_A_REQUEST);
            let is_told = self.watches.iter().all(|watch| watch.is_told || watch.started == 0);
            return part.clamp(if is_told { WHILE_TOLD } else { WHILE_BUSY }, WHILE_LINKED);
        }
        let is_busy = |lane: &crate::lane::Lane| !lane.is_idle.load(Ordering::Relaxed);
        if lanes().any(is_busy) || !self.client.leaving().is_empty() {
            return WHILE_LINKED;
        }
        if self.client.samples.are_pending() { WHILE_MEASURING } else { OTHERWISE }
    }

    /// How long until words are to be lowered, where the work they are up for is known to be done.
    fn until_lowered(&self, now: u64) -> Option<Duration> {
        let left = |(lane, watch): (&crate::lane::Lane, &Watch)| {
            let is_done = lane.is_raised() && watch.done == lane.started.load(Ordering::SeqCst);
            is_done.then(|| Duration::from_nanos((watch.done_ns + watch.linger_ns).saturating_sub(now)))
        };
        self.client.lanes.iter().zip(&self.watches).filter_map(left).min()
    }

    fn look(&mut self) {
        let client = self.client;
        let Some(events) = client.events() else { return };
        let now = process::now_ns();
        if now.saturating_sub(self.swept_at_ns) >= SWEPT_AGAIN_NS {
            self.swept_at_ns = now;
            client.blind.sweep(&client.driver);
            give_back_orphans(client);
        }
        for index in 0..LANES {
            if client.lanes[index].device().is_some() {
                self.look_at(index, now);
                turn_round(client, index, now);
            }
        }
        if client.samples.are_pending() {
            client.harvest();
        }
        slices::keep(client, now);
        self.free_by_gpu(now);
        drop(events);
        // Nobody but the end of a context waits for this: the driver may wait for streams that wait for the program.
        if let Some(_contexts) = client.contexts() {
            leaving::unregister(client);
        }
        client.looked_at_ns.store(process::now_ns(), Ordering::SeqCst);
    }

    /// Whether the client's work there is done, and what follows from it.
    fn look_at(&mut self, index: usize, now: u64) {
        let (client, lane, watch) = (self.client, &self.client.lanes[index], &mut self.watches[index]);
        let is_raised = lane.is_raised();
        if !is_raised || watch.raised_ns == 0 {
            watch.raised_ns = if is_raised { now } else { 0 };
        } else if now.saturating_sub(watch.raised_ns) > RAISED_AGAIN_NS {
            watch.raised_ns = now;
            lane.raise_again(&client.readers.enter());
        }
        let started = lane.started.load(Ordering::SeqCst);
        if started != watch.started || started != lane.finished.load(Ordering::SeqCst) {
            (watch.started, watch.changed_ns) = (started, now);
            lane.is_idle.store(false, Ordering::SeqCst);
            return;
        }
        if lane.is_idle.load(Ordering::SeqCst) && !is_raised {
            return;
        }
        let told_ns = lane.told.done_ns(started);
        let most_ns = client.orders(index).linger_ns.load(Ordering::Relaxed).into();
        if watch.done != started {
            let since_asked = Duration::from_nanos(now.saturating_sub(watch.asked_ns));
            let is_soon = watch.is_told && since_asked < WHILE_TOLD;
            if told_ns.is_none() && (is_soon || watch.is_under_way(client, index, now)) {
                return;
            }
            (watch.done, watch.done_ns) = (started, told_ns.unwrap_or_else(process::now_ns));
            (watch.is_told, watch.linger_ns) = (false, most_ns);
        }
        // The driver may have been asked a moment before the program's wait returned.
        if told_ns.is_some() && !watch.is_told {
            (watch.is_told, watch.linger_ns) = (true, lane.linger.choose(most_ns));
        }
        if let Some(began_ns) = lane.end_request(started, watch.done_ns) {
            let pieces = u32::try_from(started.wrapping_sub(watch.before_request)).unwrap_or(u32::MAX);
            let took_ns = watch.done_ns.saturating_sub(began_ns);
            let number = u8::try_from(index).unwrap_or(0);
            request::write_down(client.whole_ledger(), &Request { lane: number, pieces, began_ns, took_ns });
        }
        watch.before_request = started;
        let after_ns = if is_raised { watch.linger_ns } else { IDLE_AFTER_NS };
        if now.saturating_sub(watch.done_ns) >= after_ns && rest(client, index, started) {
            lane.is_idle.store(true, Ordering::SeqCst);
        }
    }

    /// What stands although its word was set to 0 is freed by the GPU itself. Not while anything is captured: what is made for it the first time
    /// could be in the way of that.
    fn free_by_gpu(&mut self, now: u64) {
        let client = self.client;
        if now.saturating_sub(self.freed_at_ns) < STUCK_AFTER_NS || CAPTURES.any() {
            return;
        }
        let mut late = leaving::late(client, now);
        for lane in &client.lanes {
            let stands = now.saturating_sub(lane.passed_at_ns.load(Ordering::SeqCst)) > STUCK_AFTER_NS;
            let free = lane.yields.iter().filter(|slot| stands && slot.is_free.load(Ordering::Relaxed));
            late.extend(free.filter_map(crate::lane::YieldSlot::known_address));
        }
        let contexts: BTreeSet<u64> = late.iter().map(|(_, context)| *context).collect();
        for context in contexts {
            self.freed_at_ns = now;
            let own = late.iter().filter(|(_, of)| *of == context).map(|(address, _)| *address);
            client.freeing.store(client, own, context);
        }
    }
}

impl Watch {
    /// Whether any work that was submitted there may not be done: the driver is asked.
    fn is_under_way(&mut self, client: &Client, index: usize, now: u64) -> bool {
        self.asked_ns = now;
        let (lane, started) = (&client.lanes[index], self.started);
        let settled = now.saturating_sub(self.changed_ns) >= IDLE_AFTER_NS;
        let is_under_way = |place: usize, is_alone: bool| match mark(client, place, started, is_alone) {
            Some(event) => {
                let context = client.streams.get(place).context.load(Ordering::Relaxed);
                client.driver.progress(event, context) == Progress::UnderWay
            }
            None => !settled,
        };
        // Most often the one that was under way still is. Those that others wait for are asked at last.
        let last = Some(self.under_way).filter(|place| client.streams.is_active(*place, index));
        let is_default = |place: &usize| client.streams.get(*place).is_default();
        let named = || client.streams.active(index).filter(|place| !is_default(place));
        let default = || client.streams.active(index).filter(is_default);
        let under_way = last
            .filter(|place| !is_default(place) && is_under_way(*place, false))
            .or_else(|| named().find(|place| is_under_way(*place, false)))
            .or_else(|| default().find(|place| is_under_way(*place, true)));
        self.under_way = under_way.unwrap_or(self.under_way);
        now < lane.blind_until_ns.load(Ordering::SeqCst) || under_way.is_some()
    }
}

/// The event behind all work of a stream. Where calls have recorded none it is recorded here, unless the stream cannot be named by
/// this thread, or that would be in the way: of a capture, or of other streams, which wait for what is in a context's default stream.
fn mark(client: &Client, place: usize, started: u64, is_alone: bool) -> Option<u64> {
    let stream = client.streams.get(place);
    let event = |stream: &Stream| Some(stream.event.load(Ordering::Acquire)).filter(|event| *event != 0);
    if stream.is_marked() || stream.is_abandoned() {
        return event(stream);
    }
    let handle = stream.handle().filter(|handle| *handle > 2 || is_alone)?;
    let pieces = crate::marks::record_behind_all(client, place, handle)?;
    let lane = &client.lanes[stream.lane.load(Ordering::Relaxed) as usize];
    if lane.started.load(Ordering::SeqCst) != started {
        return None;
    }
    stream.marked_at.store(pieces, Ordering::Release);
    event(stream)
}

/// Streams that were destroyed, or whose thread has ended, once their work is done.
fn give_back_orphans(client: &Client) {
    let is_done = |stream: &Stream| {
        let (event, context) = (stream.event.load(Ordering::Acquire), stream.context.load(Ordering::Relaxed));
        event == 0 || client.driver.progress(event, context) != Progress::UnderWay
    };
    for (event, context) in client.streams.forget_orphans(is_done) {
        client.driver.destroy_event(event, context);
    }
}

/// Begins the next round when all streams have passed this one.
fn turn_round(client: &Client, index: usize, now: u64) {
    let lane = &client.lanes[index];
    let is_leaving = client.leaving().iter().any(|it| it.lane == index && it.registered.is_some());
    if lane.is_idle.load(Ordering::SeqCst) && !is_leaving {
        lane.passed_at_ns.store(now, Ordering::SeqCst);
        return;
    }
    if !is_leaving && !lane.is_yielding() {
        return;
    }
    let (mut passed, round) = (lane.passed.load(Ordering::SeqCst), lane.round.load(Ordering::SeqCst));
    while passed < round && has_passed(client, index, passed + 1) {
        passed += 1;
        lane.passed.store(passed, Ordering::SeqCst);
        lane.passed_at_ns.store(now, Ordering::SeqCst);
    }
    if passed == round {
        lane.round.store(round + 1, Ordering::SeqCst);
    }
}

/// Whether all streams of a GPU have passed what they had when the round began. What is behind a wait is done only after it.
fn has_passed(client: &Client, index: usize, round: u64) -> bool {
    let has_passed = |place: usize| {
        let stream = client.streams.get(place);
        let context = stream.context.load(Ordering::Relaxed);
        stream.has_passed(round, |event: &AtomicU64| match event.load(Ordering::Acquire) {
            0 => true,
            event => client.driver.progress(event, context) != Progress::UnderWay,
        })
    };
    client.blind.have_passed(index, round) && client.streams.active(index).all(has_passed)
}

/// The client has nothing left to do there; false if it has begun again meanwhile.
fn rest(client: &Client, index: usize, started: u64) -> bool {
    let (lane, ledger) = (&client.lanes[index], client.ledger(index));
    let stays = {
        let reading = client.readers.enter();
        !lane.is_raised() || lane.lower(&reading, started)
    };
    let places: Vec<usize> = client.streams.active(index).collect();
    for place in &places {
        client.streams.set_done(*place);
    }
    ledger.busy_since_ns.store(process::now_ns(), Ordering::Relaxed);
    ledger.busy.store(0, Ordering::Release);
    if stays && lane.started.load(Ordering::SeqCst) == started {
        return true;
    }
    for place in places {
        client.streams.set_active(place);
    }
    ledger.busy.store(1, Ordering::Release);
    false
}
