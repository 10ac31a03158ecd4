//! Whose turn it is to act, of several placers of one engine: the reckoning of a lease, wherever the engine keeps it.
//!
//! A lease says who has it, and has a version that changes whenever it is written. Nobody's wall clock is compared with another's: a lease
//! whose version has not changed for [`LASTS`] on the reader's own clock is over. Its holder stops acting earlier, if it cannot renew it.
//!
//! Pure but for the clock. Reading and writing the lease, so that of two who do at once one is told it is out of date, is the engine's module's.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use berth_model::Mono;

use super::clock;

pub const LASTS: Duration = Duration::from_secs(10);
pub const RENEW_EVERY: Duration = Duration::from_secs(2);
/// Since it was last renewed, for how long its holder may act: less than [`LASTS`], by more than a change may be under way (3 s).
const ACTS_FOR: Duration = Duration::from_secs(6);

#[derive(Debug)]
pub struct Claim {
    /// Who this is: for people its host and process, and a number that nobody else has, as cloned machines have the same of both.
    me: String,
    renewals: u64,
    renewed: Option<Mono>,
    tried: Option<Mono>,
    /// Which version of another's lease was seen, and since when.
    seen: Option<(String, Mono)>,
}

/// Who may act.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Held {
    Ours,
    By(String),
}

impl Claim {
    /// `place`: where it is, for people.
    pub fn new(place: &str) -> Self {
        let number = RandomState::new().hash_one(place);
        let me = format!("{place} (process {}, {number:016x})", std::process::id());
        Self { me, renewals: 0, renewed: None, tried: None, seen: None }
    }

    pub fn me(&self) -> &str {
        &self.me
    }

    /// How often it was taken.
    pub fn renewals(&self) -> u64 {
        self.renewals
    }

    /// Until when it may act without asking again; `None` if it may not.
    pub fn acts_until(&self) -> Option<Mono> {
        self.renewed.map(|renewed| renewed + ACTS_FOR).filter(|end| clock::now() < *end)
    }

    /// Whether it is time to take it, renew it, or see who has it.
    pub fn is_due(&self) -> bool {
        self.tried.is_none_or(|tried| clock::now().since(tried) >= RENEW_EVERY)
    }

    /// Now it is tried; what comes of it counts from here.
    pub fn tries(&mut self) -> Mono {
        *self.tried.insert(clock::now())
    }

    /// Whether a lease with this holder and version may be taken: it is its own, given up, or nobody has renewed it for long
    /// enough. A former process in its place is as any other: what it had under way may not have ended with it. Where it may not, whoever asks does not act.
    pub fn is_free(&mut self, holder: &str, version: &str, now: Mono) -> bool {
        if holder.is_empty() || holder == self.me {
            return true;
        }
        let since = match &self.seen {
            Some((seen, since)) if seen == version => *since,
            _ => self.seen.insert((version.to_owned(), now)).1,
        };
        let is_over = now.since(since) >= LASTS;
        if !is_over {
            self.renewed = None;
        }
        is_over
    }

    pub fn is_taken(&mut self, began: Mono) -> Held {
        (self.renewed, self.renewals, self.seen) = (Some(began), self.renewals + 1, None);
        Held::Ours
    }

    /// Another was faster: from now on it acts.
    pub fn is_lost(&mut self) -> Held {
        self.renewed = None;
        Held::By("another placer".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_free_when_it_is_ours_given_up_or_has_stood_still_for_long_enough() {
        let (mut claim, now) = (Claim::new("n1:/run/placer.sock"), clock::now());
        let other = "n2:/run/placer.sock (process 7)";
        assert!(claim.is_free("", "5", now), "given up");
        let me = claim.me().to_owned();
        assert!(claim.is_free(&me, "5", now));
        assert_ne!(Claim::new("n1:/run/placer.sock").me(), me, "on a clone of this machine");
        assert!(!claim.is_free(Claim::new("n1:/run/placer.sock").me(), "5", now));
        assert!(!claim.is_free(other, "6", now));
        assert!(!claim.is_free(other, "6", now + LASTS / 2));
        assert!(!claim.is_free(other, "7", now + LASTS), "it was renewed");
        assert!(!claim.is_free(other, "7", now + LASTS + LASTS / 2));
        assert!(claim.is_free(other, "7", now + LASTS * 2));
    }

    #[test]
    fn whoever_has_it_stops_acting_before_another_can_take_it() {
        assert!(ACTS_FOR + RENEW_EVERY < LASTS);
        let mut claim = Claim::new("n1:/s");
        assert_eq!(claim.acts_until(), None);
        let now = clock::now();
        assert_eq!((claim.is_taken(now), claim.acts_until()), (Held::Ours, Some(now + ACTS_FOR)));
        assert_eq!((claim.is_lost(), claim.acts_until()), (Held::By("another placer".into()), None));
        claim.is_taken(now);
        assert!(!claim.is_free("n2:/s (process 1)", "9", now));
        assert_eq!(claim.acts_until(), None, "another has it");
    }
}
