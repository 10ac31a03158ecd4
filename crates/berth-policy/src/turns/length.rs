//! How long a unit computes at once, by what is known of it, and whether that is brief beside another.
//!
//! Two at once lose a little to each other, for as long as the shorter one takes; making the shorter one wait costs it the
//! rest of the longer one. So who is *brief* beside another does not wait for it. In the other direction it is waited
//! for: that costs the longer one no more than sharing would.
//!
//! What is known is, best first: its own bursts; those of its like before; and where it stands at its first launch ever, the
//! data it has loaded, against the other's. The last is a guess from one thing only, that who has loaded much mostly has much to
//! compute. If it is wrong, the two share the GPU for one burst, as they would without berth.

use std::time::Duration;

use berth_model::{Bytes, Mono};

use super::book::Book;
use crate::settings::FifoSettings;
use crate::view::{Activity, Tenant, View};

/// Brief is who computes for no more than this share of what the other does: close enough to equal is equal.
const TIMES_LONGER: f64 = 3.0;
/// The same by data: computing grows faster than the data it is about.
const TIMES_MORE_DATA: u64 = 2;
/// Less data than this counts as this much.
const LEAST_DATA: Bytes = Bytes::from_mib(64);
/// A burst shorter than this is waited for by one of whom only its data is known, in seconds.
const WORTH_SHARING: f64 = 0.1;
/// Where lengths are put in order and only the data of one is known, this much of it is taken for a second of computing.
const DATA_OF_A_SECOND: Bytes = Bytes::from_mib(1 << 10);

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Length {
    /// GPU seconds of its usual burst.
    burst: Option<f64>,
    /// GPU seconds of the burst under way.
    spent: f64,
    /// What it has loaded; told of one that computes, and of one that stands at a launch if that was looked at since.
    data: Option<Bytes>,
    pace: Pace,
}

/// How soon after a burst a tenant wants the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pace {
    /// It pauses for longer than it computes, or has not come back yet.
    Seldom,
    Often,
    /// At once: bursts like that are one.
    OnAndOn,
}

impl Length {
    /// Of a gang, all of it at once.
    pub fn of(members: &[&Tenant], view: &View, book: &Book, settings: &FifoSettings) -> Self {
        let records = || members.iter().filter_map(|tenant| Some((*tenant, book.get(&tenant.key)?)));
        let bursts = records().map(|(tenant, record)| record.usual_burst(tenant.past));
        let data = members.iter().map(|tenant| data(tenant, view, book));
        Self {
            burst: bursts.collect::<Option<Vec<_>>>().and_then(|bursts| bursts.into_iter().reduce(f64::max)),
            spent: records().map(|(_, record)| record.burst_so_far()).fold(0.0, f64::max),
            data: data.collect::<Option<Vec<_>>>().map(|each| each.into_iter().sum()),
            pace: records().map(|(_, record)| record.pace(settings)).max().unwrap_or(Pace::Seldom),
        }
    }

    /// `leads`: the other has used more of late, or its owner has.
    pub fn is_brief_beside(&self, other: &Length, leads: bool) -> bool {
        let may = match self.pace {
            Pace::Seldom => true,
            Pace::Often => leads,
            Pace::OnAndOn => false,
        };
        may && match self.burst {
            Some(burst) => other.burst.unwrap_or(0.0).max(other.spent) >= burst.max(self.spent) * TIMES_LONGER,
            None => self.has_loaded_less_than(other),
        }
    }

    fn has_loaded_less_than(&self, other: &Length) -> bool {
        let data = self.data.zip(other.data).filter(|_| other.burst.is_none_or(|burst| burst >= WORTH_SHARING));
        data.is_some_and(|(own, its)| own.max(LEAST_DATA).0.saturating_mul(TIMES_MORE_DATA) <= its.0)
    }

    pub fn pace(&self) -> Pace {
        self.pace
    }

    /// Its usual burst; nothing where that is not known.
    pub fn burst(&self) -> Duration {
        self.burst.and_then(|burst| Duration::try_from_secs_f64(burst).ok()).unwrap_or_default()
    }

    /// After how much more GPU time of the other this one is brief beside it.
    pub fn until_brief_beside(&self, other: &Length) -> Option<Duration> {
        Duration::try_from_secs_f64(self.burst? * TIMES_LONGER - other.spent).ok()
    }

    /// What is left of the burst under way, or all of the next; `None` where nothing says.
    pub fn left(&self) -> Option<Duration> {
        Duration::try_from_secs_f64(self.burst? - self.spent).ok()
    }

    /// What to count with when units are put in order: a power of two, so that those that are about equal come in the
    /// order in which they came. Who goes on and on takes a slice at least; it is not let more once it is ahead.
    pub fn cost(&self, settings: &FifoSettings) -> f64 {
        let quantum = settings.quantum.get().as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "far below 2^53 bytes")]
        let by_data = self.data.map(|data| (data.max(LEAST_DATA).0 as f64 / DATA_OF_A_SECOND.0 as f64).min(quantum));
        let slice = settings.slice.get().as_secs_f64();
        let burst = self.burst.map(|burst| if self.pace == Pace::OnAndOn { burst.max(slice) } else { burst });
        let seconds = burst.or(by_data).unwrap_or(quantum);
        seconds.max(f64::MIN_POSITIVE).log2().round().exp2()
    }
}

fn data(tenant: &Tenant, view: &View, book: &Book) -> Option<Bytes> {
    let looked_since = |since: Mono| {
        let looked = |index| view.gpu(index).and_then(|gpu| gpu.core_at).is_some_and(|at| at >= since);
        tenant.gpus.iter().all(|index| looked(*index))
    };
    match tenant.activity {
        Activity::AtLaunch { since, .. } if !looked_since(since) => return None,
        Activity::AtLaunch { .. } | Activity::Computing { .. } | Activity::Quiet { .. } => {}
        _ => return None,
    }
    tenant.memory.map(|memory| Bytes(memory.0.saturating_sub(book.context().0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn length(burst: Option<f64>, spent: f64) -> Length {
        Length { burst, spent, data: None, pace: Pace::Seldom }
    }

    fn loaded(mib: u64) -> Length {
        Length { data: Some(Bytes::from_mib(mib)), ..length(None, 0.0) }
    }

    #[test]
    fn brief_is_who_computes_for_a_third_or_less_of_what_the_other_does() {
        let long = length(Some(2.4), 0.0);
        assert!(length(Some(0.3), 0.0).is_brief_beside(&long, false));
        assert!(!length(Some(1.0), 0.0).is_brief_beside(&long, false), "close enough to equal");
        assert!(!length(Some(0.3), 1.0).is_brief_beside(&long, false), "it takes longer this time");
        assert!(!long.is_brief_beside(&length(Some(0.3), 0.0), true));
    }

    #[test]
    fn of_one_that_is_not_known_it_counts_how_long_it_has_computed_already() {
        assert!(!length(Some(0.3), 0.0).is_brief_beside(&length(None, 0.5), false));
        assert!(length(Some(0.3), 0.0).is_brief_beside(&length(None, 1.0), false));
        assert_eq!(length(Some(0.5), 0.0).until_brief_beside(&length(None, 0.5)), Some(Duration::from_secs(1)));
    }

    #[test]
    fn who_is_not_known_is_brief_if_it_has_loaded_much_less() {
        assert!(loaded(300).is_brief_beside(&loaded(2_000), false));
        assert!(!loaded(2_000).is_brief_beside(&loaded(2_000), false), "equals wait for each other");
        assert!(!loaded(0).is_brief_beside(&loaded(100), false), "neither has much");
        assert!(!length(None, 0.0).is_brief_beside(&loaded(2_000), false), "not told, or not since it stands");
        let quick = Length { burst: Some(0.02), ..loaded(2_000) };
        assert!(!loaded(300).is_brief_beside(&quick, false), "that one is soon over");
    }

    #[test]
    fn who_comes_back_soon_is_brief_only_while_it_is_behind_and_who_goes_on_and_on_is_not() {
        let (long, short) = (length(Some(2.4), 0.0), length(Some(0.3), 0.0));
        let often = Length { pace: Pace::Often, ..short };
        assert!(often.is_brief_beside(&long, true) && !often.is_brief_beside(&long, false));
        assert!(!Length { pace: Pace::OnAndOn, ..short }.is_brief_beside(&long, true));
    }

    #[test]
    fn lengths_that_are_about_equal_cost_the_same() {
        let settings = FifoSettings::default();
        let cost = |length: Length| length.cost(&settings);
        assert_eq!(cost(length(Some(10.6), 0.0)), cost(length(Some(10.9), 0.0)));
        assert!(cost(length(Some(0.6), 0.0)) < cost(length(Some(2.5), 0.0)));
        assert!(cost(loaded(300)) < cost(loaded(2_000)));
        let on_and_on = Length { pace: Pace::OnAndOn, ..length(Some(0.02), 0.0) };
        assert_eq!(cost(on_and_on), cost(length(Some(0.1), 0.0)), "a slice");
    }
}
