//! Requests: stretches of work between two moments at which nothing was left to do.
//!
//! Whoever submits the first work of one writes down when that was; the thread that looks at the GPU ends it when all work is done.

use std::sync::atomic::Ordering;

use berth_proto::shim::{Ledger, REQUESTS, Request};

use crate::lane::Lane;

impl Lane {
    /// With every piece of work, after it was counted. Whether it is the first of a request.
    #[inline]
    pub(crate) fn begin_request(&self, now_ns: impl FnOnce() -> u64) -> bool {
        let began_ns = &self.request_began_ns;
        began_ns.load(Ordering::Relaxed) == 0
            && began_ns.compare_exchange(0, now_ns(), Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// All of the first `started` pieces of work are done. When the request that is thereby over began; `None` if there was none.
    pub(crate) fn end_request(&self, started: u64, now_ns: u64) -> Option<u64> {
        let began_ns = Some(self.request_began_ns.swap(0, Ordering::SeqCst)).filter(|began| *began > 0)?;
        if self.started.load(Ordering::SeqCst) != started {
            // Work was submitted meanwhile, which may have found the beginning of this one.
            let _ = self.request_began_ns.compare_exchange(0, now_ns, Ordering::SeqCst, Ordering::Relaxed);
        }
        Some(began_ns)
    }
}

pub(crate) fn write_down(ledger: &Ledger, request: &Request) {
    let lane = &ledger.lanes[usize::from(request.lane)];
    lane.requests.fetch_add(1, Ordering::Relaxed);
    lane.request_ns.fetch_add(request.took_ns, Ordering::Relaxed);
    let number = ledger.requested.fetch_add(1, Ordering::AcqRel);
    #[allow(clippy::cast_possible_truncation)] // the remainder is small
    ledger.requests[(number % REQUESTS as u64) as usize].write(request);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn submit(lane: &Lane, now_ns: u64) {
        lane.started.fetch_add(1, Ordering::SeqCst);
        lane.begin_request(|| now_ns);
    }

    #[test]
    fn a_request_begins_with_its_first_piece_of_work() {
        let lane = Lane::new();
        assert_eq!(lane.end_request(0, 5), None);
        submit(&lane, 10);
        submit(&lane, 20);
        assert_eq!(lane.end_request(2, 30), Some(10));
        assert_eq!(lane.end_request(2, 31), None, "it is over");
        submit(&lane, 40);
        assert_eq!(lane.end_request(3, 50), Some(40));
    }

    #[test]
    fn work_that_comes_while_a_request_is_ended_begins_another() {
        let lane = Lane::new();
        submit(&lane, 10);
        submit(&lane, 29);
        assert_eq!(lane.end_request(1, 30), Some(10), "the first piece is done, the second is not");
        assert_eq!(lane.end_request(2, 60), Some(30));
    }
}
