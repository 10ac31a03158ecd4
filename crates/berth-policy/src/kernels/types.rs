//! What a policy inside a GPU is told, and what it answers.

use std::ops::Range;
use std::time::Duration;

pub use berth_model::settings::Division;
use berth_model::{Mono, Slo, TenantKey};
use serde::{Deserialize, Serialize};

use super::{Learned, Reason, Voice};

/// A process that can be ordered; never used twice while the daemon lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClientId(pub u64);

/// One GPU at one instant. Clients in any order.
#[derive(Debug, Clone, Copy)]
pub struct Scene<'a> {
    pub now: Mono,
    pub gpu: Place,
    pub clients: &'a [Client],
    pub learned: &'a Learned,
}

/// What a GPU lets be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    pub sms: u32,
    /// A client's work can be confined to some of the SMs.
    pub divides: bool,
    /// Kernels of different processes run at the same time (MPS); otherwise squads have one member.
    pub concurrent: bool,
}

/// One process on the GPU.
#[derive(Debug, Clone, PartialEq)]
pub struct Client {
    pub id: ClientId,
    pub tenant: TenantKey,
    /// Whom it belongs to: between equals, users share alike, then their tenants, then the processes of each.
    pub owner: Option<String>,
    pub slo: Slo,
    pub arrived: Mono,
    /// It has work on the GPU, or waits to.
    pub busy: bool,
    /// Since when it wants to run and may not; `None` while it may, and while it wants nothing.
    pub waiting_since: Option<Mono>,
    pub profile: Profile,
    /// The request or job under way; `None` while it wants nothing.
    pub work: Option<Work>,
    /// How well its goals were kept of late, 0 to 1; `None` if it has none or nothing was seen.
    pub attainment: Option<f64>,
    /// GPU time it had so far, as if alone.
    pub served_ns: u64,
    /// What its owner said of how it does.
    pub voice: Voice,
}

/// What is known of a client's kernels. Times are alone on the GPU.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Profile {
    /// A usual kernel, and the longest of late: nothing stops one that runs.
    pub kernel: Option<Duration>,
    pub longest: Option<Duration>,
    /// A usual request.
    pub request: Option<Duration>,
    /// Share of the SMs it can use, 0 to 1.
    pub demand: Option<f64>,
    /// Share of the memory bandwidth it uses alone, 0 to 1.
    pub bandwidth: Option<f64>,
}

/// A request or job under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    pub began: Mono,
    /// When it came, as far as can be told, and not later than it began: it may have stood in its program's own queue.
    pub came: Mono,
    /// GPU time it had so far, as if alone.
    pub done: Duration,
    /// GPU time that the like took alone, in all; `None` if nothing is known.
    pub takes: Option<Duration>,
}

/// What is to be until [`Squad::until`].
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Plan {
    /// Links that should exist, each once; others are taken away.
    pub yields: Vec<Yield>,
    /// One for each client of the scene.
    pub orders: Vec<(ClientId, Orders)>,
    pub squad: Squad,
    /// Why those who have to wait do, and why those who go first do.
    pub reasons: Vec<(ClientId, Reason)>,
}

/// `who` begins nothing new while `to` has work. Holds for as long as the plan, whether or not both are in the squad.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Yield {
    pub who: ClientId,
    pub to: ClientId,
}

/// Those who may run now. All others are kept from beginning new work.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Squad {
    /// Each client once. Of those who want nothing now, whoever others yield to is among them: it begins without waiting for a plan.
    pub members: Vec<Member>,
    pub division: Division,
    pub until: Mono,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Member {
    pub who: ClientId,
    /// Where its work goes; `None`: it may use all SMs.
    pub part: Option<Part>,
}

/// One of the two parts of a GPU whose SMs are split: what every process can make for itself, and comes out the same in each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Part {
    pub side: Side,
    /// SMs of the first side; the same for all members of a squad.
    pub split: u32,
    /// The split is lifted then, and all may use all SMs; `None`: at the end of the squad.
    pub until: Option<Mono>,
}

/// Which of the SMs. Members of one side share them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// Those before the split.
    First,
    /// Those after it.
    Rest,
}

/// What a client is told. It obeys by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Orders {
    /// Estimated work after which it looks at its stops again.
    pub grain: Duration,
    /// How long after its last work those who yield to it are kept stopped.
    pub linger: Duration,
    /// Work that takes so long goes to so many SMs; from zero on, all of it.
    pub long: Option<Long>,
    /// The longest it obeys a stop.
    pub longest_stop: Duration,
    pub copy_bytes_per_second: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Long {
    pub from: Duration,
    pub sms: u32,
}

// === impl Plan ===

impl Plan {
    pub fn runs(&self, who: ClientId) -> bool {
        self.squad.members.iter().any(|member| member.who == who)
    }

    /// Whether it has to be kept from beginning anything until the next plan. One that yields to somebody who runs and has work needs no more than
    /// that: it goes on the moment that one is done.
    pub fn waits(&self, who: ClientId, is_busy: impl Fn(ClientId) -> bool) -> bool {
        let stands_in_line = |link: &Yield| link.who == who && self.runs(link.to) && is_busy(link.to);
        !self.runs(who) && !self.yields.iter().any(stands_in_line)
    }
}

// === impl Part ===

impl Part {
    /// Its SMs of so many; the other side's are all others.
    pub fn range(self, sms: u32) -> Range<u32> {
        let split = self.split.min(sms);
        match self.side {
            Side::First => 0..split,
            Side::Rest => split..sms,
        }
    }

    /// How many SMs that are.
    pub fn sms(self, sms: u32) -> u32 {
        let Range { start, end } = self.range(sms);
        end - start
    }

    pub fn counts(self, now: Mono) -> bool {
        self.until.is_none_or(|until| until > now)
    }
}

// === impl Client ===

impl Client {
    /// How long it has wanted to run and might not.
    pub fn waited(&self, now: Mono) -> Duration {
        self.waiting_since.map_or(Duration::ZERO, |since| now.since(since))
    }

    /// How much it counts: what people have set, and what its owner says.
    pub fn weight(&self) -> f64 {
        self.slo.weight.get() * self.voice.get()
    }
}
