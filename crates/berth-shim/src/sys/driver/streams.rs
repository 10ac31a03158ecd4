//! Streams and events: what is put into a stream, and how far it is.

use std::ffi::c_uint;

use berth_proto::cuda::result;

use super::{Driver, NON_BLOCKING, ask};

/// `CU_EVENT_DISABLE_TIMING`
const DISABLE_TIMING: c_uint = 2;
/// `CU_STREAM_WAIT_VALUE_EQ`
const EQUAL: c_uint = 1;
/// `CU_STREAM_MEM_OP_WAIT_VALUE_32`
const WAIT_VALUE_32: c_uint = 1;
/// The most waits that are put at once.
pub(crate) const MOST_WAITS: usize = 16;

/// `CUstreamBatchMemOpParams` of a wait.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct WaitOp {
    operation: c_uint,
    address: u64,
    value: u64,
    flags: c_uint,
    alias: u64,
    pad: u64,
}

/// What became of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    Done,
    UnderWay,
    /// The driver does not say: an error of the program's, or the end of the driver.
    Unknown,
}

impl Driver {
    /// In the current context.
    pub(crate) fn create_event(&self, timed: bool) -> Option<u64> {
        // SAFETY: the driver writes one handle.
        ask(|out| unsafe { (self.event_create)(out, if timed { 0 } else { DISABLE_TIMING }) })
    }

    pub(crate) fn destroy_event(&self, event: u64, context: u64) {
        // SAFETY: the event is our own, and nobody uses it after this.
        self.by_any_thread(context, || unsafe { (self.event_destroy)(event) });
    }

    pub(crate) fn record(&self, event: u64, stream: u64) -> bool {
        // SAFETY: the event is our own; the stream is the one the program has just used.
        unsafe { (self.event_record)(event, stream) == result::SUCCESS }
    }

    pub(crate) fn progress(&self, event: u64, context: u64) -> Progress {
        // SAFETY: the event is our own and its context lives.
        let told = self.by_any_thread(context, || unsafe { (self.event_query)(event) });
        match told {
            result::SUCCESS => Progress::Done,
            result::NOT_READY => Progress::UnderWay,
            _ => Progress::Unknown,
        }
    }

    pub(crate) fn elapsed_ns(&self, start: u64, end: u64, context: u64) -> Option<u64> {
        // SAFETY: both events are our own; the driver writes one number.
        let ms: f32 = ask(|out| self.by_any_thread(context, || unsafe { (self.event_elapsed)(out, start, end) }))?;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // saturates; negative becomes 0
        Some((f64::from(ms) * 1e6) as u64)
    }

    pub(crate) fn wait_event(&self, stream: u64, event: u64) -> bool {
        // SAFETY: as for `record`.
        unsafe { (self.stream_wait_event)(stream, event, 0) == result::SUCCESS }
    }

    /// Has the stream wait until all these words are 0.
    pub(crate) fn wait_for_zero(&self, stream: u64, addresses: &[u64]) -> bool {
        match (addresses, self.stream_wait_value, self.stream_batch) {
            ([], ..) => true,
            ([address], Some(wait), _) => {
                // SAFETY: the address is of registered memory, which stays registered until the stream has passed.
                unsafe { wait(stream, *address, 0, EQUAL) == result::SUCCESS }
            }
            (_, _, Some(batch)) if addresses.len() <= MOST_WAITS => {
                let mut ops = [WaitOp::default(); MOST_WAITS];
                for (op, address) in ops.iter_mut().zip(addresses) {
                    *op = WaitOp { operation: WAIT_VALUE_32, address: *address, flags: EQUAL, ..WaitOp::default() };
                }
                let count = c_uint::try_from(addresses.len()).unwrap_or(0);
                // SAFETY: as above; the array has at least `count` elements.
                unsafe { batch(stream, count, ops.as_mut_ptr(), 0) == result::SUCCESS }
            }
            _ => addresses.iter().all(|address| self.wait_for_zero(stream, std::slice::from_ref(address))),
        }
    }

    /// A stream of our own in the current context.
    pub(crate) fn create_stream(&self) -> Option<u64> {
        let function = self.stream_create?;
        // SAFETY: the driver writes one handle.
        ask(|out| unsafe { function(out, NON_BLOCKING) })
    }

    /// Waits on the CPU.
    pub(crate) fn synchronize(&self, stream: u64) -> bool {
        // SAFETY: the stream is our own.
        self.stream_synchronize.is_some_and(|function| unsafe { function(stream) } == result::SUCCESS)
    }

    /// Has the GPU itself store 0 there.
    pub(crate) fn write_zero(&self, stream: u64, address: u64) -> bool {
        // SAFETY: the stream is our own; the address is of registered memory, which stays so until the stream has passed.
        self.stream_write_value.is_some_and(|function| unsafe { function(stream, address, 0, 0) } == result::SUCCESS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_is_the_official_headers() {
        assert_eq!(size_of::<WaitOp>(), 48);
        assert_eq!(std::mem::offset_of!(WaitOp, address), 8);
        assert_eq!(std::mem::offset_of!(WaitOp, value), 16);
        assert_eq!(std::mem::offset_of!(WaitOp, flags), 24);
    }
}
