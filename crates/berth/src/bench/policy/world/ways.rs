//! Ways to share a GPU: the policies, and what they are measured against.

use berth_model::Mono;
use berth_model::settings::{Division, KernelPolicyName, KernelSettings};
use berth_policy::kernels::{Learned, Place, Scene, jct, named};
use berth_sim::scenario::kernels::{Confined, Machine, Order, Part, Sight, Steward};

use super::Tenant;
use super::known::Watch;
use super::steward::{InTurn, Managed, index};

/// How long a plan counts where nothing changes, as policies have it.
const SQUAD_NS: u64 = 2_000_000;

#[derive(Debug, Clone, PartialEq)]
pub enum Way {
    /// First come, first served, one at a time, to its end.
    Fifo,
    /// The least left first, one at a time, by the estimates of `jct` and the order it has them in.
    Sjf,
    /// The same with the bound on waits that policies have, and their line.
    SjfBounded,
    /// The driver's slices of 2 ms, and what switching between them costs.
    Temporal,
    /// Everybody its equal part of the SMs, for ever.
    Static,
    /// Everybody at once, as under MPS.
    Everybody,
    /// The last first, to its end: unfair on purpose.
    LastFirst,
    Policy(KernelPolicyName, Box<KernelSettings>),
    /// `slo`, which is told when each request came.
    Told,
    /// All policies in turn, each for one plan.
    Switching,
}

impl Way {
    pub fn policy(name: KernelPolicyName) -> Self {
        Way::Policy(name, Box::default())
    }

    pub fn divided(name: KernelPolicyName, division: Division) -> Self {
        Way::Policy(name, Box::new(KernelSettings { division, ..KernelSettings::default() }))
    }

    pub fn name(&self) -> &'static str {
        match self {
            Way::Fifo => "fifo",
            Way::Sjf => "sjf",
            Way::SjfBounded => "sjf-bounded",
            Way::Temporal => "temporal",
            Way::Static => "static",
            Way::Everybody => "everybody",
            Way::LastFirst => "last-first",
            Way::Policy(name, _) => name.as_str(),
            Way::Told => "slo-told",
            Way::Switching => "switching",
        }
    }

    pub fn steward(&self, machine: &Machine, tenants: &[Tenant]) -> Box<dyn Steward> {
        let managed = |names: &[KernelPolicyName], settings: &KernelSettings| {
            let policies = names.iter().filter_map(|name| named(*name, settings)).collect();
            let chooses = Box::new(InTurn { policies, plans: 0 });
            Box::new(Managed::new(chooses, settings.clone(), machine, tenants))
        };
        match self {
            Way::Policy(name, settings) => managed(&[*name], settings),
            Way::Told => Box::new(managed(&[KernelPolicyName::Slo], &KernelSettings::default()).told()),
            Way::SjfBounded => Box::new(managed(&[KernelPolicyName::Jct], &KernelSettings::default()).one_at_a_time()),
            Way::Switching => managed(&PLANNING, &KernelSettings::default()),
            Way::Temporal | Way::Everybody => Box::new(Fixed { order: Some(everybody(tenants.len(), |_| None)) }),
            Way::Static => {
                let parts = u32::try_from(tenants.len()).unwrap_or(1);
                let count = machine.profile.gpu.sm_count / parts;
                let part = |place: u32| Some(Confined { first: place * count, count, until_ns: u64::MAX });
                Box::new(Fixed { order: Some(everybody(tenants.len(), part)) })
            }
            Way::Fifo | Way::Sjf | Way::LastFirst => {
                let place = Place { sms: machine.profile.gpu.sm_count, divides: false, concurrent: false };
                let (way, watch, planned_for) = (self.clone(), Watch::new(tenants), Vec::new());
                Box::new(OneByOne { way, place, watch, planned_at: 0, planned_for })
            }
        }
    }
}

/// The policies that plan.
pub const PLANNING: [KernelPolicyName; 3] = [KernelPolicyName::Jct, KernelPolicyName::Slo, KernelPolicyName::Hybrid];

fn everybody(programs: usize, confined: impl Fn(u32) -> Option<Confined>) -> Order {
    let members = (0..programs).zip(0..).map(|(program, place)| Part { program, confined: confined(place) });
    Order { members: members.collect(), ..Order::default() }
}

/// What is said once and never again.
#[derive(Debug)]
struct Fixed {
    order: Option<Order>,
}

impl Steward for Fixed {
    fn look(&mut self, _: &Sight<'_>) -> Option<Order> {
        self.order.take()
    }
}

/// One at a time, by an order that is known at each look, planned as often as policies do. Those that wait stand in line, as they do there.
#[derive(Debug)]
struct OneByOne {
    way: Way,
    place: Place,
    watch: Watch,
    planned_at: u64,
    planned_for: Vec<bool>,
}

impl Steward for OneByOne {
    fn look(&mut self, sight: &Sight<'_>) -> Option<Order> {
        self.watch.look(sight);
        let now = Mono(sight.now_ns);
        let clients = self.watch.clients(now);
        let busy: Vec<bool> = clients.iter().map(|client| client.busy).collect();
        if self.planned_for == busy && sight.now_ns < self.planned_at + SQUAD_NS {
            return None;
        }
        (self.planned_for, self.planned_at) = (busy, sight.now_ns);
        let learned = Learned::default();
        let scene = Scene { now, gpu: self.place, clients: &clients, learned: &learned };
        let mut line = jct::shortest_first(&scene);
        match self.way {
            Way::Fifo => line.sort_by_key(|client| (client.work.map(|work| work.began), client.id)),
            Way::LastFirst => line.sort_by_key(|client| std::cmp::Reverse(client.id)),
            _ => {}
        }
        let line: Vec<usize> = line.into_iter().map(|client| index(client.id)).collect();
        // While nobody has work, anybody may begin some.
        let may_begin = if line.is_empty() { (0..clients.len()).collect() } else { line.clone() };
        let members = may_begin.into_iter().map(|program| Part { program, confined: None }).collect();
        let yields = line.iter().enumerate().flat_map(|(place, who)| line[..place].iter().map(|to| (*who, *to)));
        Some(Order { members, yields: yields.collect(), no_linger: (0..clients.len()).collect() })
    }
}
