//! What a client is told: the plan's orders, written into its page; and which part of the SMs, once that has settled.
//!
//! To be confined to another part costs a client a new context on the thread that launches. So a part has to be wanted by several plans before
//! it is given; whether it counts follows each plan, and costs nothing.

use std::sync::atomic::Ordering;
use std::time::Duration;

use berth_model::Span;
use berth_model::settings::KernelSettings;
use berth_policy::kernels::{Orders, Part, Side};
use berth_proto::shim::LaneOrders;

/// Plans that want the same part, one after the other, before it is given.
const SETTLES: u32 = 5;
/// SMs are split at multiples of this.
const STEP: u32 = 8;

/// One part of the SMs that are split in two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Split {
    pub at: u32,
    pub side: Side,
}

/// The part a client has been given, and one it may be given next.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Settled {
    given: Option<Split>,
    next: Option<Split>,
    times: u32,
}

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

impl Settled {
    /// A plan wants this part for it, or none. The part that is given, and whether that is the one that is wanted.
    pub fn want(&mut self, part: Option<Part>, sms: u32) -> (Option<Split>, bool) {
        let wanted = part.and_then(|part| Split::of(part, sms));
        if wanted.is_some() && wanted != self.given {
            self.times = if wanted == self.next { self.times + 1 } else { 1 };
            self.next = wanted;
            if self.times >= SETTLES {
                self.given = wanted;
            }
        } else if wanted.is_some() {
            self.times = 0;
        }
        (self.given, wanted.is_some() && wanted == self.given)
    }

    pub fn given(&self) -> Option<Split> {
        self.given
    }
}

impl Split {
    /// `None` where one side would be nothing.
    fn of(part: Part, sms: u32) -> Option<Self> {
        let at = part.split.saturating_add(STEP / 2) / STEP * STEP;
        (at > 0 && at < sms).then_some(Self { at, side: part.side })
    }

    fn sms(self, all: u32) -> u32 {
        match self.side {
            Side::First => self.at.min(all),
            Side::Rest => all.saturating_sub(self.at),
        }
    }
}

impl Told {
    /// SMs all of its work is confined to, of so many.
    pub fn confined_to(&self, all: u32) -> Option<u32> {
        self.part.filter(|_| self.is_confined).map(|part| part.sms(all))
    }

    /// A part of the SMs for all of its work is one for work that takes any time at all.
    pub fn write(&self, page: &LaneOrders) {
        let Self { orders, part, is_confined, is_free, everybody } = *self;
        let long_ns = match orders.long {
            _ if is_confined && part.is_some() => 1,
            Some(long) => nanos(long.from),
            None => 0,
        };
        let long = orders.long.map_or(0, |long| long.sms);
        let (long_sms, long_part) = part.map_or((long, 0), |part| (part.at, u32::from(part.side == Side::Rest)));
        let short = |nanos: u64| u32::try_from(nanos).unwrap_or(u32::MAX);
        page.grain_ns.store(short(nanos(orders.grain)), Ordering::Relaxed);
        page.linger_ns.store(short(nanos(orders.linger)), Ordering::Relaxed);
        page.long_sms.store(long_sms, Ordering::Relaxed);
        page.long_part.store(long_part, Ordering::Relaxed);
        page.long_ns.store(short(long_ns), Ordering::Relaxed);
        page.longest_stop_ns.store(nanos(orders.longest_stop), Ordering::Relaxed);
        page.copy_bytes_per_second.store(orders.copy_bytes_per_second.unwrap_or(0), Ordering::Relaxed);
        page.memory_bytes.store(orders.memory_bytes.unwrap_or(0), Ordering::Relaxed);
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
    use berth_proto::shim::sys::{Page, Writers};

    use super::*;

    fn part(split: u32, side: Side) -> Option<Part> {
        Some(Part { side, split, until: None })
    }

    #[test]
    fn a_part_is_given_when_several_plans_have_wanted_it_and_lifted_at_once() {
        let mut settled = Settled::default();
        let wanted: Vec<bool> = (0..6).map(|_| settled.want(part(64, Side::First), 132).1).collect();
        assert_eq!(wanted, [false, false, false, false, true, true]);
        let given = Some(Split { at: 64, side: Side::First });
        assert_eq!(settled.want(None, 132), (given, false), "it is known, and does not count");
        assert_eq!(settled.want(part(64, Side::First), 132), (given, true), "and costs nothing to count again");
        assert_eq!(settled.want(part(72, Side::First), 132), (given, false), "another has to last");
        assert_eq!(settled.want(part(66, Side::First), 132), (given, true), "in steps of eight");
    }

    #[test]
    fn the_two_sides_of_a_split_share_no_sm_and_together_have_all() {
        let told = |side| {
            let mut settled = Settled::default();
            (0..SETTLES).for_each(|_| _ = settled.want(part(56, side), 132));
            let orders = Orders {
                grain: Duration::ZERO,
                linger: Duration::ZERO,
                long: None,
                longest_stop: Duration::ZERO,
                copy_bytes_per_second: None,
                memory_bytes: None,
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
    }

    #[test]
    fn a_split_that_leaves_one_side_nothing_is_none() {
        let mut settled = Settled::default();
        (0..9).for_each(|_| assert_eq!(settled.want(part(132, Side::First), 132), (None, false)));
        (0..9).for_each(|_| assert_eq!(settled.want(part(3, Side::First), 132), (None, false)));
    }
}
