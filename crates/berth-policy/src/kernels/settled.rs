//! Which part of the SMs a client is given, once that has settled.
//!
//! To be confined to another part costs a client a new context on the thread that launches. So a part has to be wanted by several plans before
//! it is given; whether it counts follows each plan, and costs nothing.

use std::ops::Range;

use super::{Part, Side};

/// Plans that want the same part, one after the other, before it is given.
pub const SETTLES: u32 = 5;
/// SMs are split at multiples of this.
const STEP: u32 = 8;

/// One part of the SMs that are split in two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Split {
    pub at: u32,
    pub side: Side,
}

/// The part a client has been given, and one it may be given next.
#[derive(Debug, Clone, Copy, Default)]
pub struct Settled {
    given: Option<Split>,
    next: Option<Split>,
    times: u32,
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

    pub fn sms(self, all: u32) -> u32 {
        let range = self.range(all);
        range.end - range.start
    }

    /// Its SMs of so many.
    pub fn range(self, all: u32) -> Range<u32> {
        let at = self.at.min(all);
        match self.side {
            Side::First => 0..at,
            Side::Rest => at..all,
        }
    }
}

#[cfg(test)]
mod tests {
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
    fn a_split_that_leaves_one_side_nothing_is_none() {
        let mut settled = Settled::default();
        (0..9).for_each(|_| assert_eq!(settled.want(part(132, Side::First), 132), (None, false)));
        (0..9).for_each(|_| assert_eq!(settled.want(part(3, Side::First), 132), (None, false)));
    }
}
