//! What a policy is told about a host.

use std::collections::BTreeSet;
use std::time::Duration;

use berth_model::deadline::Spread;
use berth_model::hold::Means;
use berth_model::{Bytes, GpuIndex, Mono, Percent, TenantKey};

/// The host at one instant. Tenants in any order.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct View {
    pub gpus: Vec<Gpu>,
    pub tenants: Vec<Tenant>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Gpu {
    pub index: GpuIndex,
    pub memory_total: Option<Bytes>,
    pub memory_used: Option<Bytes>,
    /// By the driver: an average over about the 200 ms before [`Gpu::core_at`], and up to 200 ms old then.
    pub core: Option<Percent>,
    /// When the driver was asked. Looks may be far apart, and the driver may keep one waiting for seconds.
    pub core_at: Option<Mono>,
}

/// A tenant that is on a GPU or on its way there.
#[derive(Debug, Clone, PartialEq)]
pub struct Tenant {
    pub key: TenantKey,
    /// What people call it.
    pub name: String,
    pub owner: Option<String>,
    pub gpus: BTreeSet<GpuIndex>,
    /// Tenants with the same name here are held and released together.
    pub gang: Option<String>,
    /// When it came; first come, first served.
    pub arrived: Mono,
    pub activity: Activity,
    /// GPU memory it has.
    pub memory: Option<Bytes>,
    /// GPU memory it says it will need in all (a label), or did the last time.
    pub needs: Option<Bytes>,
    /// Its own use of the GPU's cores, an average over the last seconds; `None` where the driver does not tell tenants apart.
    pub core: Option<Percent>,
    pub stand: Stand,
    /// The means that can be used on it here and now. Empty: it is exempt, and never held.
    pub means: BTreeSet<Means>,
    pub past: Option<Past>,
    /// Its work under way that has a deadline; `None` without one, and between bursts.
    pub work: Option<Work>,
}

/// A unit of work under way that has a deadline.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Work {
    pub started: Mono,
    pub due: Mono,
    /// GPU time it had so far, as if alone.
    pub done: Duration,
    /// GPU time that units like it took; `None` if none is known.
    pub takes: Option<Spread>,
}

/// What a tenant does on its GPUs, by the best evidence there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// Has opened the device and has no context yet.
    Opening { since: Mono },
    /// Stands before the making of its first context.
    AtContext { since: Mono },
    /// Has a context, allocates, copies: it has launched nothing yet.
    Loading,
    /// Stands at a launch, stopped before it was submitted.
    AtLaunch {
        since: Mono,
        /// Since when it computes what it had launched before, if nothing has said that that is over. Nothing will: who
        /// stands still makes no calls.
        computing_since: Option<Mono>,
    },
    /// Stands at an allocation that would not fit.
    AtAllocation { since: Mono, bytes: Bytes },
    /// Has launched, and nothing says that it is over.
    Computing { since: Mono },
    /// Nothing of it runs on the GPU: a call that waits for the GPU has returned, the lock was granted, or it has left.
    Quiet { since: Mono },
    /// Nobody can see its calls; only what the driver's averages say is known.
    Unseen,
}

/// Where a tenant stands with berth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stand {
    Free,
    /// Will be stopped at its next launch, and runs until then.
    Gated {
        since: Mono,
    },
    Held {
        means: Means,
        since: Mono,
    },
    /// A hold or a release is under way.
    Moving {
        to: Option<Means>,
        since: Mono,
    },
    /// A person holds it, or has taken it out of the policy's hands: not the policy's business, but it counts.
    ByPerson,
}

/// What tenants of this image and command did before.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Past {
    /// Time a stay computed, without the time it was held; median.
    pub active_seconds: f64,
    pub peak_memory: Option<Bytes>,
    /// Share of its stay in which it computed, 0 to 1.
    pub duty: f64,
    /// Length of the bursts in which it computed: half of its computing or more was in bursts about as long; median.
    pub burst_seconds: Option<f64>,
}

impl Gpu {
    /// Memory nobody has taken; `None` where the driver does not tell.
    pub fn memory_free(&self) -> Option<Bytes> {
        Some(Bytes(self.memory_total?.0.saturating_sub(self.memory_used?.0)))
    }
}

impl View {
    pub fn gpu(&self, index: GpuIndex) -> Option<&Gpu> {
        self.gpus.iter().find(|gpu| gpu.index == index)
    }
}
