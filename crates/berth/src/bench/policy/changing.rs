//! A day that changes: which policy is best depends on the hour, and `auto` has to find out.
//!
//! Jobs of different lengths come first, then servers with tight goals that nearly fill the GPU beside work that takes what is left, then jobs again.
//! Each part is run under each policy and under `auto`, which goes on from one part to the next with what it has learned. `auto` is told what a
//! daemon can measure in each window: GPU time of work that counts, goals kept, how evenly programs got on, and how much longer requests took than
//! they usually have the GPU for.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use berth_model::settings::{KernelPolicyName, KernelSettings};
use berth_model::slo::{Latency, Slo};
use berth_model::{Mono, Span};
use berth_policy::kernels::auto::{Auto, Window};
use berth_policy::kernels::hybrid::jain;
use berth_policy::kernels::{Client, KernelPolicy, named};
use berth_sim::Sharing;
use berth_sim::scenario::kernels::{Program, Report, run};
use serde::Serialize;

use super::mixture::{goodput, in_time};
use super::world::steward::{Chooses, Managed};
use super::world::tenant::{Kind, request, stream};
use super::world::ways::PLANNING;
use super::world::{self, Tenant, Way, h200, whole};
use crate::bench::edf::load::Dice;

/// How long a window is.
const WINDOW: Duration = Duration::from_millis(50);

/// One way through all parts, over all seeds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Column {
    /// Mean goodput of each part, and of all.
    pub goodput: Vec<f64>,
    pub mean: f64,
    /// Share of the requests with a goal that were in time, over all parts.
    pub in_time: f64,
    /// Changes of policy in all.
    pub changes: u64,
}

/// What kind of work a part has.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Part {
    Jobs,
    Servers,
}

const PARTS: [Part; 3] = [Part::Jobs, Part::Servers, Part::Jobs];

/// `auto`, and a policy that measures itself as it goes.
#[derive(Debug)]
struct Watched {
    auto: Arc<Mutex<Auto>>,
    settings: KernelSettings,
    policy: Box<dyn KernelPolicy>,
    name: KernelPolicyName,
    changes: Arc<Mutex<u64>>,
    window: Option<Began>,
}

/// Where a window began: GPU time each client had had.
#[derive(Debug)]
struct Began {
    at: Mono,
    served_ns: Vec<u64>,
}

pub fn measure(seconds: f64, seeds: &[u64]) -> BTreeMap<String, Column> {
    let fixed = PLANNING.map(|name| {
        let day = |seed: &u64| (day(seconds, *seed, |tenants| run_fixed(name, tenants, seconds)), 0);
        (name.as_str().to_owned(), Column::of(&seeds.iter().map(day).collect::<Vec<_>>()))
    });
    let auto = |seed: &u64| {
        let auto = Arc::new(Mutex::new(Auto::new(KernelPolicyName::Hybrid)));
        let changes = Arc::new(Mutex::new(0));
        let all = day(seconds, *seed, |tenants| run_auto(&auto, &changes, tenants, seconds));
        let changes = *changes.lock().unwrap_or_else(PoisonError::into_inner);
        (all, changes)
    };
    let auto = Column::of(&seeds.iter().map(auto).collect::<Vec<_>>());
    fixed.into_iter().chain([("auto".to_owned(), auto)]).collect()
}

/// Goodput and goals of each part.
fn day(seconds: f64, seed: u64, run: impl Fn(&[Tenant]) -> Report) -> Vec<(f64, f64)> {
    let each = PARTS.iter().zip(seed * 10..).map(|(part, seed)| {
        let tenants = part.tenants(seconds, seed);
        let report = run(&tenants);
        (goodput(&tenants, &report), in_time(&tenants, &report))
    });
    each.collect()
}

fn run_fixed(name: KernelPolicyName, tenants: &[Tenant], seconds: f64) -> Report {
    world::run(&h200(Sharing::Mps), tenants, &Way::policy(name), Some(whole(seconds * 1e9)))
}

fn run_auto(auto: &Arc<Mutex<Auto>>, changes: &Arc<Mutex<u64>>, tenants: &[Tenant], seconds: f64) -> Report {
    let (machine, settings) = (h200(Sharing::Mps), KernelSettings::default());
    let watched = Watched::new(Arc::clone(auto), Arc::clone(changes), &settings);
    let mut steward = Managed::new(Box::new(watched), settings, &machine, tenants);
    let programs: Vec<Program> = tenants.iter().map(|tenant| tenant.program.clone()).collect();
    run(&machine, &programs, &mut steward, Some(whole(seconds * 1e9)))
}

impl Watched {
    fn new(auto: Arc<Mutex<Auto>>, changes: Arc<Mutex<u64>>, settings: &KernelSettings) -> Self {
        let name = auto.lock().unwrap_or_else(PoisonError::into_inner).policy();
        let policy = planning(name, settings);
        Self { auto, settings: settings.clone(), policy, name, changes, window: None }
    }

    /// What is measured of a window: by what the clients are known to have had.
    fn measured(began: &Began, clients: &[Client], now: Mono) -> Window {
        let passed = now.since(began.at).as_secs_f64();
        let had = |(client, before): (&Client, &u64)| client.served_ns.saturating_sub(*before) as f64 / 1e9;
        let each: Vec<f64> = clients.iter().zip(&began.served_ns).map(had).collect();
        let kept =
            |client: &Client| client.attainment.map_or(1.0, |attained| attained / client.slo.target().get()).min(1.0);
        let counts: f64 = each.iter().zip(clients).map(|(had, client)| had * kept(client)).sum();
        let with_goals: Vec<f64> = clients.iter().filter(|client| client.attainment.is_some()).map(kept).collect();
        let share = with_goals.iter().sum::<f64>() / with_goals.len().max(1) as f64;
        let wanted = each.iter().zip(clients).filter(|(had, client)| client.busy || **had > 0.0).map(|(had, _)| *had);
        Window {
            goodput: counts / passed.max(1e-9),
            kept: (!with_goals.is_empty()).then_some(share),
            fairness: jain(wanted),
            slowdown: None,
        }
    }
}

impl Chooses for Watched {
    fn policy(&mut self, clients: &[Client], now: Mono) -> &dyn KernelPolicy {
        let is_over = self.window.as_ref().is_some_and(|began| now.since(began.at) >= WINDOW);
        if let Some(began) = self.window.take_if(|_| is_over) {
            let choice =
                self.auto.lock().unwrap_or_else(PoisonError::into_inner).window(&Self::measured(&began, clients, now));
            if choice.policy != self.name {
                (self.name, self.policy) = (choice.policy, planning(choice.policy, &self.settings));
                *self.changes.lock().unwrap_or_else(PoisonError::into_inner) += 1;
            }
        }
        let served_ns = || clients.iter().map(|client| client.served_ns).collect();
        self.window.get_or_insert_with(|| Began { at: now, served_ns: served_ns() });
        self.policy.as_ref()
    }
}

/// `auto` never chooses `off`.
fn planning(name: KernelPolicyName, settings: &KernelSettings) -> Box<dyn KernelPolicy> {
    named(name, settings).unwrap_or_else(|| Box::new(berth_policy::kernels::Hybrid { settings: settings.clone() }))
}

impl Column {
    fn of(days: &[(Vec<(f64, f64)>, u64)]) -> Column {
        let mean = |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>() / days.len().max(1) as f64;
        let part = |part: usize| days.iter().map(move |(day, _)| day[part]);
        let goodput: Vec<f64> = (0..PARTS.len()).map(|of| mean(&mut part(of).map(|(goodput, _)| goodput))).collect();
        let servers = PARTS.iter().position(|part| *part == Part::Servers).unwrap_or(0);
        Column {
            mean: goodput.iter().sum::<f64>() / goodput.len() as f64,
            goodput,
            in_time: mean(&mut part(servers).map(|(_, in_time)| in_time)),
            changes: days.iter().map(|(_, changes)| changes).sum(),
        }
    }
}

impl Part {
    fn tenants(self, seconds: f64, seed: u64) -> Vec<Tenant> {
        let mut dice = Dice::new(seed);
        let end = seconds * 1e9;
        match self {
            Part::Jobs => (0..6).map(|owner| job(&mut dice, owner, end)).collect(),
            Part::Servers => {
                let servers = (0..3).map(|owner| server(&mut dice, owner, end)).collect::<Vec<_>>();
                let kind = Kind { demand: 1.0, bandwidth: dice.between(0.4, 0.8) };
                let filler = Tenant::new(3, Slo::default(), vec![request(&mut dice, 0, end * 2.0, kind)]);
                servers.into_iter().chain([filler]).collect()
            }
        }
    }
}

/// Jobs of one tenant, one after the other without an end.
fn job(dice: &mut Dice, owner: usize, end: f64) -> Tenant {
    let usual = 5e6 * 20f64.powf(dice.between(0.0, 1.0));
    let kind = Kind { demand: dice.between(0.3, 0.9), bandwidth: dice.between(0.1, 0.5) };
    let mut at = 0.0;
    let mut requests = Vec::new();
    while at < end {
        let length = usual * dice.between(0.8, 1.2);
        requests.push(request(dice, whole(at), length, kind));
        at += usual * 4.0 * dice.between(0.6, 1.2);
    }
    Tenant::new(owner, Slo { completion: true, ..Slo::default() }, requests)
}

fn server(dice: &mut Dice, owner: usize, end: f64) -> Tenant {
    let alone = dice.between(0.8e6, 2.5e6);
    let kind = Kind { demand: dice.between(0.5, 0.9), bandwidth: dice.between(0.2, 0.6) };
    let requests = stream(dice, end, alone / 0.22, false, alone, kind);
    let within = Span(Duration::from_nanos(whole(alone * 4.0)));
    let latency = "95%".parse().ok().map(|percentile| Latency { percentile, within });
    Tenant::new(owner, Slo { latency, ..Slo::default() }, requests)
}
