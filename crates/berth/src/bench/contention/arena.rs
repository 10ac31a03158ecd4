//! A policy at work on simulated processes in virtual time, with the delays berth has on a real host.
//!
//! ```text
//! process ──sight──▶ probe ──notice──▶ what berth knows ──▶ View ──▶ Policy ──▶ want
//!    ▲                                                                            │
//!    └──stop, go, lock◀──step done◀──after its cost◀──hold::next(grip, want)◀─────┘
//! ```
//!
//! The steps are those of `berth_model::hold`, one at a time and each with its cost, so what is measured here is the order in
//! which a daemon would do them. By [`Sources::Nvml`] berth sees only what the driver lists, at its turns.
//!
//! NVML is asked when the daemon would ask it (`looks`), and a policy goes by what was heard then.
//!
//! Not modelled: allocations that do not fit are not stopped, and looks and decisions take no time of their own. Who is barred stands before
//! its context from when the decision is known: on a real host the breakpoint for that has to come first, while the driver
//! is still being opened.

mod errands;
mod known;
mod looks;
mod stay;
mod tenant;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use berth_model::hold::{Freezer, Means, Want};
use berth_model::{Mono, TenantKey};
use berth_policy::{Action, Decision, Past, Policy};
use berth_sim::Engine;
use berth_sim::scenario::{Command, Manager, Passage, Sight};
use serde::Serialize;

use super::costs::{Costs, PUBLISHED_TURN};
use errands::Errands;
pub use errands::{Errand, Known};
use looks::Looks;
use tenant::Tenant;

const NS: f64 = 1e9;
/// A policy that wants to be asked again at once is asked again after this.
const LEAST_PAUSE: Duration = Duration::from_micros(100);
/// Steps without cost and decisions without end: how often one instant is gone through before time moves on.
const MOST_ROUNDS: u32 = 100;

/// How often berth asks NVML without probes while something may be changing: `monitor.fast_interval` of the settings.
const LOOK: Duration = Duration::from_millis(20);

/// What berth has on a host.
#[derive(Debug, Clone, PartialEq)]
pub struct Terms {
    pub sources: Sources,
    pub costs: Costs,
    pub means: BTreeSet<Means>,
}

/// How berth sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sources {
    /// Driver calls at their instants, and NVML now and then.
    Probes,
    /// NVML alone, once a turn.
    Nvml { turn: Duration, first_turn: Duration },
}

/// The manager of a scenario that asks a policy.
#[derive(Debug)]
pub struct Arena {
    policy: Box<dyn Policy>,
    terms: Terms,
    tenants: Vec<Tenant>,
    /// On its way to berth: (when it is known, order) → whose and what.
    news: BTreeMap<(u64, u64), (usize, News)>,
    last_news: u64,
    again_at: Option<u64>,
    looks: Looks,
    errands: Errands,
    commands: Vec<Command>,
    is_unasked: bool,
    pub decisions: Vec<Told>,
}

/// One decision as a person reads it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Told {
    /// Seconds of virtual time.
    pub at: f64,
    pub tenant: String,
    pub action: Action,
    pub reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum News {
    Opened,
    /// It has a context.
    Ready,
    Halted {
        since: u64,
    },
    Launched {
        since: u64,
    },
    Drained {
        since: u64,
    },
    Gone,
}

impl Terms {
    /// All that berth has: probes, gate, the cgroup freezer, the driver's lock.
    pub fn full() -> Terms {
        let means = BTreeSet::from([Means::Gate, Means::Freeze, Means::Lock]);
        Terms { sources: Sources::Probes, costs: Costs::CGROUP, means }
    }

    /// What berth has on a host without eBPF.
    pub fn without_probes() -> Terms {
        let sources = Sources::Nvml { turn: LOOK, first_turn: Duration::ZERO };
        Terms { sources, costs: Costs::CGROUP, means: BTreeSet::from([Means::Freeze, Means::Lock]) }
    }

    /// What the published system has: the driver's list at each turn, and Docker's pause. `first_turn`: when its monitor
    /// happens to look first.
    pub fn published(first_turn: Duration) -> Terms {
        let sources = Sources::Nvml { turn: PUBLISHED_TURN, first_turn };
        Terms { sources, costs: Costs::PUBLISHED, means: BTreeSet::from([Means::Freeze]) }
    }
}

impl Arena {
    /// `owners`: of each process of the scenario.
    pub fn new(policy: Box<dyn Policy>, terms: Terms, owners: &[String]) -> Arena {
        Arena {
            policy,
            tenants: owners.iter().enumerate().map(|(index, owner)| Tenant::new(index, owner, &terms.means)).collect(),
            looks: Looks::new(terms.sources),
            errands: Errands::new(Vec::new()),
            terms,
            news: BTreeMap::new(),
            last_news: 0,
            again_at: None,
            commands: Vec::new(),
            is_unasked: false,
            decisions: Vec::new(),
        }
    }

    /// What berth remembers of an earlier run of the same programs.
    pub fn remembering(mut self, pasts: &[Option<Past>]) -> Arena {
        self.tenants.iter_mut().zip(pasts).for_each(|(tenant, past)| tenant.past = *past);
        self
    }

    /// What each tenant is there for, and when that is due.
    pub fn with_errands(self, errands: Vec<Errand>) -> Arena {
        Arena { errands: Errands::new(errands), ..self }
    }

    /// What it will remember of this one, which has ended then.
    pub fn pasts(&self, end_ns: u64) -> Vec<Option<Past>> {
        self.tenants.iter().map(|tenant| tenant.stay.past(end_ns)).collect()
    }

    /// How often a tenant was made to stand still or locked.
    pub fn holds(&self) -> u32 {
        self.tenants.iter().map(|tenant| tenant.holds).sum()
    }

    fn tell(&mut self, now: u64, whose: usize, news: News) {
        self.last_news += 1;
        self.news.insert((now + ns(self.terms.costs.notice), self.last_news), (whose, news));
    }

    fn hear(&mut self, now: u64) {
        while let Some(entry) = self.news.first_entry().filter(|entry| entry.key().0 <= now) {
            let (whose, news) = entry.remove();
            if self.tenants[whose].is_moment(news) {
                self.looks.moment(now);
            }
            self.tenants[whose].hear(news, now);
            self.is_unasked = true;
        }
    }

    fn next_look(&self) -> u64 {
        self.looks.next(self.policy.goes_by_looks())
    }

    fn look(&mut self, engine: &Engine) {
        let now = engine.now();
        if self.next_look() > now {
            return;
        }
        self.looks.take(engine);
        self.note_memory();
        self.is_unasked = true;
        if self.terms.sources != Sources::Probes {
            self.go_by_list(now);
        }
    }

    /// Ends the steps that are due and begins the next ones. True: something was begun or ended.
    fn move_hands(&mut self, now: u64) -> bool {
        let mut moved = false;
        for tenant in self.tenants.iter_mut().filter(|tenant| !tenant.is_out_of_reach()) {
            let before = self.commands.len();
            if tenant.end_step(now, &mut self.commands) {
                moved = true;
                // By turns, what the hands do is seen at the next one.
                self.is_unasked |= self.terms.sources == Sources::Probes;
            }
            moved |= tenant.begin_step(now, &self.terms.costs, &mut self.commands);
            moved |= self.commands.len() > before;
        }
        moved
    }

    fn ask(&mut self, now: u64) {
        self.is_unasked = false;
        let crowd = u32::try_from(self.tenants.iter().filter(|tenant| tenant.computes()).count()).unwrap_or(u32::MAX);
        for tenant in &mut self.tenants {
            let beside = tenant.computes().then_some(crowd);
            tenant.stay.bursts.note(beside, Mono(now));
        }
        self.errands.follow(&self.tenants, crowd, Mono(now));
        let verdict = self.policy.decide(&self.view(), Mono(now));
        let again_at = verdict.again_at.map(|at| at.0).into_iter().chain(self.errands.again_at()).min();
        self.again_at = again_at.map(|at| at.max(now + ns(LEAST_PAUSE)));
        for Decision { tenant, action, reason } in verdict.decisions {
            let Some(tenant) = self.tenant(&tenant) else { continue };
            tenant.want(wanted(action), now);
            let told = Told { at: now as f64 / NS, tenant: tenant.name.clone(), action, reason: reason.to_string() };
            self.decisions.push(told);
        }
    }

    fn tenant(&mut self, key: &TenantKey) -> Option<&mut Tenant> {
        self.tenants.iter_mut().find(|tenant| tenant.key == *key && tenant.is_here())
    }

    fn is_asked_for(&self, now: u64) -> bool {
        self.is_unasked || self.again_at.is_some_and(|at| at <= now)
    }
}

impl Manager for Arena {
    fn saw(&mut self, now: u64, process: usize, sight: Sight) -> Passage {
        let tenant = &mut self.tenants[process];
        match sight {
            Sight::DriverAnswered { done } => tenant.driver_answered(done, now),
            Sight::Exited => tenant.exited(),
            _ => {}
        }
        if self.terms.sources != Sources::Probes {
            return Passage::AT_ONCE;
        }
        let is_armed = tenant.is_armed(now);
        let news = match sight {
            Sight::Initialises => {
                tenant.armed_at = Some(now + ns(self.terms.costs.arm));
                let passes_after_ns = ns(self.terms.costs.until_barred());
                tenant.makes_context_at = Some(now + passes_after_ns);
                self.tell(now, process, News::Opened);
                return Passage::On { after_ns: passes_after_ns };
            }
            Sight::ContextReady => News::Ready,
            Sight::Launches if is_armed && tenant.is_gated() => News::Halted { since: now },
            Sight::Launches if is_armed => News::Launched { since: now },
            Sight::Drained if is_armed => News::Drained { since: now },
            Sight::ContextGone => News::Gone,
            _ => return Passage::AT_ONCE,
        };
        self.tell(now, process, news);
        match news {
            News::Halted { .. } => Passage::Stop,
            News::Ready => Passage::AT_ONCE,
            _ => Passage::On { after_ns: ns(self.terms.costs.hit) },
        }
    }

    fn next_event(&self) -> Option<u64> {
        let heard = self.news.keys().next().map(|(at, _)| *at);
        let done = self.tenants.iter().filter_map(Tenant::step_ends);
        let own = [heard, self.again_at, Some(self.next_look())];
        own.into_iter().flatten().chain(done).min()
    }

    fn act(&mut self, engine: &Engine) -> Vec<Command> {
        let now = engine.now();
        for _ in 0..MOST_ROUNDS {
            self.hear(now);
            self.look(engine);
            let moved = self.move_hands(now);
            let asked = self.is_asked_for(now);
            if asked {
                self.ask(now);
            }
            if !moved && !asked {
                break;
            }
        }
        std::mem::take(&mut self.commands)
    }
}

fn wanted(action: Action) -> Want {
    match action {
        Action::Hold(Means::Gate) => Want::Gated,
        Action::Hold(Means::Freeze) => Want::Frozen(Freezer::Cgroup),
        Action::Hold(Means::Lock) => Want::Locked,
        Action::Hold(Means::Park) => Want::Parked,
        Action::Bar => Want::Barred,
        Action::Release => Want::Free,
    }
}

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
