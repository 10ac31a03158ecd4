//! Ways to share a GPU: the policies, and what they are measured against.

use std::time::Duration;

use berth_model::settings::{Division, KernelPolicyName, KernelSettings};
use berth_policy::kernels::named;
use berth_sim::scenario::kernels::{Machine, Order, Part, Request, Seen, Sight, Steward};

use super::{Managed, Tenant};

/// How long a turn lasts where tenants take turns.
const TURN_NS: u64 = 2_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// First come, first served, one at a time.
    Fifo,
    /// The least left first, one at a time, by the same estimates as `jct`.
    Sjf,
    /// Turns of 2 ms.
    Temporal,
    /// Everybody its equal part of the SMs, for ever.
    Static,
    /// Everybody at once, as under MPS.
    Everybody,
    /// By what is due first, one at a time, by what work really takes.
    Due,
    /// As `due`, and what cannot be in time goes last.
    DueInTime,
    /// Those before others by a fixed order (its number), which stop the others at once.
    Fixed(usize),
    Policy(KernelPolicyName, Division),
    /// All policies in turn, each for so many plans.
    Switching(u64),
}

impl Way {
    pub fn policy(name: KernelPolicyName) -> Self {
        Way::Policy(name, Division::SemiSpatial)
    }

    pub fn name(&self) -> String {
        match self {
            Way::Fifo => "fifo".to_owned(),
            Way::Sjf => "sjf".to_owned(),
            Way::Temporal => "temporal".to_owned(),
            Way::Static => "static".to_owned(),
            Way::Everybody => "everybody".to_owned(),
            Way::Due => "due".to_owned(),
            Way::DueInTime => "due-in-time".to_owned(),
            Way::Fixed(order) => format!("fixed-{order}"),
            Way::Policy(name, _) => name.as_str().to_owned(),
            Way::Switching(_) => "switching".to_owned(),
        }
    }

    pub fn steward(&self, machine: &Machine, tenants: &[Tenant]) -> Box<dyn Steward> {
        let managed = |names: &[KernelPolicyName], division: Division, switch_every: u64| {
            let settings = KernelSettings { division, ..KernelSettings::default() };
            let policies = names.iter().filter_map(|name| named(*name, &settings)).collect();
            Box::new(Managed::new(policies, switch_every, settings, machine, tenants))
        };
        match *self {
            Way::Policy(name, division) => managed(&[name], division, 1),
            Way::Switching(every) => {
                let all = [KernelPolicyName::Jct, KernelPolicyName::Slo, KernelPolicyName::Hybrid];
                managed(&all, Division::SemiSpatial, every)
            }
            way => Box::new(Simple { way, tenants: tenants.to_vec(), turn: 0 }),
        }
    }
}

/// What needs no policy.
#[derive(Debug)]
struct Simple {
    way: Way,
    tenants: Vec<Tenant>,
    turn: usize,
}

impl Steward for Simple {
    fn order(&mut self, sight: &Sight<'_>) -> Order {
        let until_ns = sight.now_ns + TURN_NS;
        let all = 0..self.tenants.len();
        let free = |program| Part { program, confined: None };
        let alone = |chosen: Option<usize>| Order {
            members: chosen.map(free).into_iter().collect(),
            until_ns,
            ..Order::default()
        };
        let busy = || sight.programs.iter().enumerate().filter(|(_, seen)| seen.busy);
        match self.way {
            Way::Everybody => Order { members: all.map(free).collect(), until_ns, ..Order::default() },
            Way::Static => {
                let part = 1.0 / self.tenants.len() as f64;
                let confined = Some((part, u64::MAX));
                Order { members: all.map(|program| Part { program, confined }).collect(), until_ns, ..Order::default() }
            }
            Way::Fixed(order) => {
                let ranks = permutation(order, self.tenants.len());
                let yields =
                    ranks.iter().enumerate().flat_map(|(place, to)| ranks[place + 1..].iter().map(|who| (*who, *to)));
                Order { members: all.map(free).collect(), yields: yields.collect(), until_ns }
            }
            Way::Temporal => {
                self.turn = (1..=self.tenants.len())
                    .map(|step| (self.turn + step) % self.tenants.len())
                    .find(|program| sight.programs[*program].busy)
                    .unwrap_or(self.turn);
                alone(Some(self.turn))
            }
            Way::Fifo => {
                alone(busy().min_by_key(|(program, seen)| (seen.came_ns, *program)).map(|(program, _)| program))
            }
            Way::Sjf => alone(
                busy()
                    .min_by_key(|(program, seen)| (self.left(*program, seen, true), *program))
                    .map(|(program, _)| program),
            ),
            Way::Due | Way::DueInTime | Way::Policy(..) | Way::Switching(_) => {
                let key = |(program, seen): &(usize, &Seen)| {
                    (self.gives_up(sight, *program, seen), self.due(*program, seen), *program)
                };
                alone(busy().min_by_key(key).map(|(program, _)| program))
            }
        }
    }
}

impl Simple {
    fn request<'a>(&'a self, program: usize, seen: &Seen) -> Option<(&'a Tenant, &'a Request)> {
        let tenant = &self.tenants[program];
        Some((tenant, tenant.program.requests.get(seen.request?)?))
    }

    /// What the request under way still needs: as it is estimated, or as it is.
    fn left(&self, program: usize, seen: &Seen, estimated: bool) -> Duration {
        let Some((tenant, request)) = self.request(program, seen) else {
            return Duration::ZERO;
        };
        let (takes, done) = (Duration::from_nanos(request.alone_ns()), Duration::from_nanos(seen.done_ns));
        let takes = if estimated { tenant.told(request) } else { takes };
        // One that has taken longer than expected is expected to need half as much again, as the policies do it.
        let rest = takes.saturating_sub(done);
        if rest.is_zero() { done / 2 } else { rest }
    }

    fn due(&self, program: usize, seen: &Seen) -> Duration {
        let within = self.tenants[program].slo.within();
        within.map_or(Duration::MAX, |within| Duration::from_nanos(seen.came_ns) + within)
    }

    fn gives_up(&self, sight: &Sight<'_>, program: usize, seen: &Seen) -> bool {
        let now = Duration::from_nanos(sight.now_ns);
        let end = now.saturating_add(self.left(program, seen, false));
        self.way == Way::DueInTime && end > self.due(program, seen)
    }
}

/// The order of that number of all orders of `count`.
pub fn permutation(mut number: usize, count: usize) -> Vec<usize> {
    let mut rest: Vec<usize> = (0..count).collect();
    let mut order = Vec::with_capacity(count);
    while !rest.is_empty() {
        order.push(rest.remove(number % rest.len()));
        number /= rest.len() + 1;
    }
    order
}
