//! Long kernels on a part of the GPU: a green context with some of the SMs, and streams in it.
//!
//! A kernel cannot be stopped once it runs, but it can be kept off some SMs. An event before and one after keep the order of the
//! stream it was meant for. Each stream of the program gets a stream of its own there, as long as there are some: if two shared one,
//! a kernel that waits for another's could wait for ever. A launch that fails there is done where it was meant to be.

use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard};

use crate::capture::CAPTURES;
use crate::client::Client;
use crate::sys::driver::Driver;

/// Streams of the program whose long kernels can be moved.
const TRACKS: usize = 8;

#[derive(Debug, Default)]
pub(crate) struct Long {
    green: Option<Green>,
    /// Asked for and not to be had: not tried again.
    refused: Option<Part>,
    tracks: Vec<Track>,
    /// Of which the green context is a part.
    primary: u64,
}

#[derive(Debug)]
struct Green {
    context: u64,
    part: Part,
    /// What it has in truth.
    sms: u32,
}

/// Which SMs: the first so many, or the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) sms: u32,
    pub(crate) others: bool,
}

#[derive(Debug, Clone, Copy)]
struct Track {
    key: u64,
    stream: u64,
    before: u64,
    after: u64,
}

/// One kernel that is launched elsewhere. Until it ends no other is.
#[derive(Debug)]
pub(crate) struct Moved<'a> {
    _long: MutexGuard<'a, Long>,
    track: Track,
    pub(crate) sms: u32,
}

impl Long {
    /// Everything is gone with the device's primary context.
    pub(crate) fn forget(&mut self, context: u64) {
        if self.primary == context {
            *self = Self::default();
        }
    }

    /// While anything captures nothing is made or taken away, the driver may wait for all streams then; nor does a capture begin while it is.
    fn prepare(&mut self, client: &Client, device: c_int, part: Part) -> Option<(u64, u32)> {
        if let Some(green) = self.green.as_ref().filter(|green| green.part == part) {
            return Some((green.context, green.sms));
        }
        if self.refused == Some(part) && self.green.is_none() {
            return None;
        }
        let _alone = client.events_now()?;
        if CAPTURES.any() {
            return None;
        }
        let driver = &client.driver;
        if self.green.as_ref().is_some_and(|green| green.part != part) {
            let green = self.green.take()?;
            for track in &self.tracks {
                driver.destroy_event(track.before, self.primary);
                driver.destroy_event(track.after, self.primary);
            }
            driver.destroy_green(green.context, self.tracks.drain(..).map(|track| track.stream));
        }
        if self.refused != Some(part) {
            let made = driver.create_green(device, part.sms, part.others);
            self.green = made.map(|(context, sms)| Green { context, part, sms });
            self.refused = self.green.is_none().then_some(part);
            self.primary = driver.current_context().unwrap_or(0);
        }
        self.green.as_ref().map(|green| (green.context, green.sms))
    }

    fn track(&mut self, driver: &Driver, green: u64, key: u64) -> Option<Track> {
        if let Some(track) = self.tracks.iter().find(|track| track.key == key) {
            return Some(*track);
        }
        if self.tracks.len() == TRACKS {
            return None;
        }
        let stream = driver.create_green_stream(green)?;
        let track = Track { key, stream, before: driver.create_event(false)?, after: driver.create_event(false)? };
        self.tracks.push(track);
        Some(track)
    }
}

impl<'a> Moved<'a> {
    /// Has the green stream wait for all that is in `stream`. `None`: launch it where it was meant to be.
    pub(crate) fn begin(
        long: &'a Mutex<Long>,
        client: &Client,
        device: c_int,
        part: Part,
        stream: u64,
        key: u64,
    ) -> Option<Self> {
        let driver = &client.driver;
        let mut long = long.try_lock().ok()?;
        let (track, sms) = driver.relaxed(|| {
            let (green, sms) = long.prepare(client, device, part)?;
            long.track(driver, green, key).map(|track| (track, sms))
        })?;
        let ordered = driver.record(track.before, stream) && driver.wait_event(track.stream, track.before);
        ordered.then_some(Self { _long: long, track, sms })
    }

    pub(crate) fn stream(&self) -> u64 {
        self.track.stream
    }

    /// Has `stream` wait for the kernel; where that cannot be had, this thread does.
    pub(crate) fn end(self, driver: &Driver, stream: u64) {
        let ordered = driver.record(self.track.after, self.track.stream) && driver.wait_event(stream, self.track.after);
        if !ordered {
            driver.synchronize(self.track.stream);
        }
    }
}
