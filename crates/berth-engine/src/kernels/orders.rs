//! What a client is told: the plan's orders and its part of the SMs, written into its page.

use std::sync::atomic::Ordering;
use std::time::Duration;

use berth_model::Span;
use berth_model::settings::KernelSettings;
use berth_policy::kernels::{Orders, Side, Split};
use berth_proto::shim::LaneOrders;

/// What a client was told last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Told {
    pub orders: Orders,
    /// The part of the SMs it knows, and whether all of its work goes there now.
    pub part: Option<Split>,
    pub is_confined: bool,
    /// It obeys no stop.
    pub is_free: bool,
    pub everybody: Everybody,
}

/// What the settings say for every client of a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Everybody {
    sample_every: u32,
    /// Work that takes longer is preempted while it has to wait.
    preempt: Duration,
    /// Time slices of those that yield and of those that lead; zero leaves them alone.
    yield_slice: Duration,
    lead_slice: Duration,
}

impl Told {
    /// SMs all of its work is confined to, of so many.
    pub fn confined_to(&self, all: u32) -> Option<u32> {
        let limit = self.orders.long.filter(|long| long.from.is_zero()).map(|long| long.sms.min(all));
        limit.or(self.part.filter(|_| self.is_confined).map(|part| part.sms(all)))
    }

    /// A part of the SMs for all of its work is one for work that takes any time at all.
    pub fn write(&self, page: &LaneOrders) {
        let Self { orders, part, is_confined, is_free, everybody } = *self;
        let side = part.map(|part| (part.at, u32::from(part.side == Side::Rest)));
        let (long_ns, (long_sms, long_part)) = match orders.long {
            // A limit, which no part is wider than.
            Some(long) if long.from.is_zero() => (1, (long.sms, 0)),
            _ if is_confined && part.is_some() => (1, side.unwrap_or_default()),
            Some(long) => (nanos(long.from), side.unwrap_or((long.sms, 0))),
            None => (0, side.unwrap_or_default()),
        };
        let short = |nanos: u64| u32::try_from(nanos).unwrap_or(u32::MAX);
        page.grain_ns.store(short(nanos(orders.grain)), Ordering::Relaxed);
        page.linger_ns.store(short(nanos(orders.linger)), Ordering::Relaxed);
        page.long_sms.store(long_sms, Ordering::Relaxed);
        page.long_part.store(long_part, Ordering::Relaxed);
        page.long_ns.store(short(long_ns), Ordering::Relaxed);
        page.longest_stop_ns.store(nanos(orders.longest_stop), Ordering::Relaxed);
        page.copy_bytes_per_second.store(orders.copy_bytes_per_second.unwrap_or(0), Ordering::Relaxed);
        let Everybody { sample_every, preempt, yield_slice, lead_slice } = everybody;
        page.sample_every.store(sample_every, Ordering::Relaxed);
        page.preempt_ns.store(short(nanos(preempt)), Ordering::Relaxed);
        page.yield_slice_us.store(micros(yield_slice), Ordering::Relaxed);
        page.lead_slice_us.store(micros(lead_slice), Ordering::Relaxed);
        page.free.store(is_free.into(), Ordering::Relaxed);
    }
}

impl Everybody {
    /// Who takes no part has the driver's own slices: nobody beside it has others.
    pub fn of(settings: &KernelSettings, has_strangers: bool) -> Self {
        let slice = |slice: Span| if has_strangers { Duration::ZERO } else { slice.get() };
        Self {
            sample_every: settings.sample_every,
            preempt: settings.preempt.get(),
            yield_slice: slice(settings.yield_slice),
            lead_slice: slice(settings.lead_slice),
        }
    }
}

fn micros(duration: Duration) -> u32 {
    u32::try_from(duration.as_micros()).unwrap_or(u32::MAX)
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use berth_policy::kernels::settled::SETTLES;
    use berth_policy::kernels::types::Long;
    use berth_policy::kernels::{Part, Settled};
    use berth_proto::shim::sys::{Page, Writers};

    use super::*;

    #[test]
    fn the_two_sides_of_a_split_share_no_sm_and_together_have_all() {
        let told = |side| {
            let mut settled = Settled::default();
            (0..SETTLES).for_each(|_| _ = settled.want(Some(Part { side, split: 56, until: None }), 132));
            let orders = Orders {
                grain: Duration::ZERO,
                linger: Duration::ZERO,
                long: None,
                longest_stop: Duration::ZERO,
                copy_bytes_per_second: None,
            };
            Told {
                orders,
                part: settled.given(),
                is_confined: true,
                is_free: false,
                everybody: Everybody::of(&KernelSettings::default(), false),
            }
        };
        let (first, rest) = (told(Side::First), told(Side::Rest));
        assert_eq!((first.confined_to(132), rest.confined_to(132)), (Some(56), Some(76)));
        let page = Page::<berth_proto::shim::Orders>::create(c"orders", Writers::All).unwrap().0;
        let written = |told: Told| {
            let lane = &page.lanes[0];
            told.write(lane);
            let load = |word: &std::sync::atomic::AtomicU32| word.load(Ordering::Relaxed);
            (load(&lane.long_ns), load(&lane.long_sms), load(&lane.long_part))
        };
        assert_eq!((written(first), written(rest)), ((1, 56, 0), (1, 56, 1)));
        assert_eq!(written(Told { is_confined: false, ..rest }), (0, 56, 1), "the same part, that does not count");
        let long = Some(Long { from: Duration::ZERO, sms: 32 });
        let limited = Told { orders: Orders { long, ..rest.orders }, ..rest };
        assert_eq!((written(limited), limited.confined_to(132)), ((1, 32, 0), Some(32)), "a limit goes before a side");
    }
}
