//! What a client still has to do, and by when.
//!
//! Every promise becomes an instant at which something is *due*, so that promises of different kinds can be ordered:
//! - a latency, or requests per second: when the request under way has taken as long as one may, its time in the program's own queue with it (`queue`);
//! - a reservation, or a part of the speed alone: when the client would fall behind that part, as a server of constant bandwidth does it.
//!   One [`QUANTUM`] of GPU time at a time, so that it is given over milliseconds and not at the end;
//! - an availability of *a*: when it has waited for 1 − *a* of a second at a stretch.
//!
//! *Left* is what units like it took, less what it had. One that has taken longer than its like has proved the estimate wrong, and what takes
//! long mostly goes on for long: it is expected to need half as much again as it has had. So a wrong estimate corrects itself with progress.

use std::time::Duration;

use berth_model::Mono;

use super::{Client, Throughput, Work};

/// GPU time by which a client with a reservation may lag.
const QUANTUM: Duration = Duration::from_millis(2);
/// What work is taken to need of which nothing is known.
const UNKNOWN: Duration = Duration::from_millis(10);
/// Below this part of what it should reach, a goal is lost.
const LOST: f64 = 0.8;
/// One that misses a hundredth less than it may gives way by so many hundredths of its time.
const GIVES_WAY: f64 = 8.0;
/// Nothing under way is nearer to its end than that.
const LEAST: Duration = Duration::from_micros(20);

/// A promise under way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Promise<'a> {
    pub client: &'a Client,
    pub due: Mono,
    /// GPU time alone until it is kept.
    pub left: Duration,
}

/// GPU time alone that the work under way still needs.
pub fn left(client: &Client) -> Duration {
    client.work.map_or(UNKNOWN, |work| left_of(&work))
}

fn left_of(work: &Work) -> Duration {
    let expected = work.takes.unwrap_or(UNKNOWN);
    let rest = expected.saturating_sub(work.done);
    if rest.is_zero() { (work.done / 2).max(LEAST) } else { rest.max(LEAST) }
}

/// What is due first of a client that wants the GPU; `None` if it was promised nothing.
pub fn promise<'a>(client: &'a Client, now: Mono) -> Option<Promise<'a>> {
    let work = client.work?;
    let slo = &client.slo;
    let request = slo.within().map(|within| (work.came + within, left_of(&work)));
    let alone = match slo.throughput {
        Some(Throughput::OfAlone(share)) => Some(share),
        Some(Throughput::MilliPerSecond(_)) | None => None,
    };
    let paced = slo.reserve.into_iter().chain(alone).max().map(|share| {
        let by = (work.done + QUANTUM).div_f64(share.get().max(0.001));
        (work.began + by, QUANTUM.min(left_of(&work)))
    });
    let available = slo.availability.map(|share| {
        let may_wait = Duration::from_secs(1).mul_f64(1.0 - share.get());
        (client.waiting_since.unwrap_or(now) + may_wait, LEAST)
    });
    let first = [request, paced, available].into_iter().flatten().min_by_key(|(due, _)| *due)?;
    Some(Promise { client, due: first.0, left: first.1 })
}

impl Promise<'_> {
    /// What is left until it has to begin to be in time; nothing if it is too late.
    pub fn slack(&self, now: Mono) -> Duration {
        self.due.since(now).saturating_sub(self.left)
    }

    /// Whether it must begin within `soon` to be in time, or is late already.
    pub fn is_at_risk(&self, now: Mono, soon: Duration) -> bool {
        self.slack(now) < soon
    }

    /// When it should be kept at the latest, among others: who may miss more of its goal than it did gives way by a part of its time, the more, the more it
    /// may still miss. What it misses so it may miss no more, and it is due when it is due.
    fn turn(&self) -> Mono {
        let (Some(within), Some(attained)) = (self.client.slo.within(), self.client.attainment) else {
            return self.due;
        };
        let to_spare = (attained - self.client.slo.target().get()).max(0.0);
        self.due + within.mul_f64((to_spare * GIVES_WAY).min(1.0))
    }

    pub fn is_reserved(&self) -> bool {
        self.client.slo.reserve.is_some()
    }

    /// Its goal is missed so often that one more miss changes nothing.
    pub fn is_lost(&self) -> bool {
        let target = self.client.slo.target().get();
        self.client.attainment.is_some_and(|attained| attained < target * LOST) && !self.is_reserved()
    }
}

/// Promises in the order in which they should be kept: reservations that would fall behind, then by what is due first, where those that may miss some give
/// way, and those that are lost last.
///
/// One request that is late is not put off for others: those that queue behind it would be late too, and a tenant that was put off once would
/// never be in time again. A tenant that misses most is put off, so that in an overload it is not all who miss.
pub fn in_order(mut all: Vec<Promise<'_>>, now: Mono, soon: Duration) -> Vec<Promise<'_>> {
    let first = |promise: &Promise<'_>| promise.is_reserved() && promise.is_at_risk(now, soon);
    all.sort_by_key(|promise| (!first(promise), promise.is_lost(), promise.turn(), promise.left, promise.client.id));
    all
}

#[cfg(test)]
mod tests {
    use berth_model::slo::Latency;
    use berth_model::{Slo, Span};

    use super::super::testing::job;
    use super::*;

    fn due(id: u64, left_ms: u64, within_ms: u64) -> Client {
        let latency = Some(Latency { percentile: "99%".parse().unwrap(), within: Span::from_millis(within_ms) });
        Client { slo: Slo { latency, ..Slo::default() }, ..job(id, left_ms, 1.0, 0.0) }
    }

    fn order(clients: &[Client]) -> Vec<u64> {
        let all = clients.iter().filter_map(|client| promise(client, Mono(0))).collect();
        in_order(all, Mono(0), Duration::from_millis(4)).iter().map(|promise| promise.client.id.0).collect()
    }

    #[test]
    fn the_first_due_goes_first_even_if_it_is_late_and_those_that_are_lost_go_last() {
        let mut clients = [due(1, 3, 9), due(2, 2, 5), due(3, 9, 4)];
        assert_eq!(order(&clients), [3, 2, 1]);
        clients[2].attainment = Some(0.97);
        assert_eq!(order(&clients), [3, 2, 1], "it misses a little");
        clients[2].attainment = Some(0.5);
        assert_eq!(order(&clients), [2, 1, 3]);
    }

    #[test]
    fn one_that_may_still_miss_some_gives_way_and_one_that_may_not_is_due_when_it_is() {
        let mut clients = [due(1, 3, 9), due(2, 3, 10)];
        clients[0].slo.latency =
            clients[0].slo.latency.map(|goal| Latency { percentile: "95%".parse().unwrap(), ..goal });
        assert_eq!(order(&clients), [1, 2]);
        clients[0].attainment = Some(1.0);
        assert_eq!(order(&clients), [2, 1], "it may miss one in twenty, and missed none");
        clients[0].attainment = Some(0.955);
        assert_eq!(order(&clients), [1, 2], "it has missed what it may");
    }

    #[test]
    fn a_request_that_stood_in_a_queue_is_due_from_when_it_came() {
        let mut client = due(1, 3, 9);
        let work = client.work.unwrap();
        client.work =
            Some(Work { began: Mono(0) + Duration::from_millis(5), came: Mono(0) + Duration::from_millis(2), ..work });
        assert_eq!(promise(&client, Mono(0)).unwrap().due, Mono(0) + Duration::from_millis(11));
    }

    #[test]
    fn a_reservation_goes_before_all_when_it_would_fall_behind() {
        let mut clients = [due(1, 4, 6), due(2, 4, 5), job(3, 900, 1.0, 0.0)];
        clients[2].slo.reserve = Some("10%".parse().unwrap());
        assert_eq!(order(&clients), [2, 1, 3], "2 ms by 20 ms is soon enough");
        clients[2].slo.reserve = Some("50%".parse().unwrap());
        assert_eq!(order(&clients), [3, 2, 1], "2 ms by 4 ms");
    }

    #[test]
    fn a_reservation_is_due_before_it_falls_behind() {
        let mut client = job(1, 1_000, 1.0, 0.0);
        client.slo.reserve = Some("25%".parse().unwrap());
        let at = |done_ms: u64| {
            let mut client = client.clone();
            client.work = client.work.map(|work| Work { done: Duration::from_millis(done_ms), ..work });
            promise(&client, Mono(0)).unwrap().due.since(Mono(0)).as_millis()
        };
        assert_eq!((at(0), at(10)), (8, 48), "2 ms by 8 ms, 12 ms by 48 ms");
    }

    #[test]
    fn progress_corrects_an_estimate() {
        let work = |done: u64| Work {
            began: Mono(0),
            came: Mono(0),
            done: Duration::from_millis(done),
            takes: Some(Duration::from_millis(10)),
        };
        let lefts = [0, 4, 10, 40].map(|done| left_of(&work(done)).as_millis());
        assert_eq!(lefts, [10, 6, 5, 20]);
    }
}
