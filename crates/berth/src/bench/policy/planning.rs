//! What a plan costs whoever makes it, by the number of clients on the GPU: CPU time on this machine, so that whoever else is there does not count.

use std::hint::black_box;
use std::time::{Duration, Instant};

use berth_host::clock::thread_cpu;
use berth_model::slo::{Latency, Slo};
use berth_model::{Mono, Span, TenantKey};
use berth_policy::kernels::{Client, ClientId, Learned, Place, Profile, Scene, Voice, Work, named};
use serde::Serialize;

use super::world::ways::PLANNING;
use crate::bench::contention::report::grid;
use crate::bench::edf::load::Dice;
use crate::bench::quantiles::Quantiles;

/// As many as can take part are the last.
pub const CLIENTS: [usize; 5] = [2, 16, 64, 256, 512];
/// Plans are made for about so long for each figure.
const FOR: Duration = Duration::from_millis(200);
const LEAST: usize = 11;

/// Microseconds for one plan of one policy.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cost {
    pub policy: String,
    pub clients: usize,
    pub median_us: f64,
    pub p99_us: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    pub berth: String,
    pub costs: Vec<Cost>,
}

impl Report {
    pub fn measure(counts: &[usize]) -> Self {
        Self { berth: env!("CARGO_PKG_VERSION").to_owned(), costs: measure(counts) }
    }

    pub fn to_text(&self) -> String {
        let row = |cost: &Cost| {
            vec![
                cost.clients.to_string(),
                cost.policy.clone(),
                format!("{:.1}", cost.median_us),
                format!("{:.1}", cost.p99_us),
            ]
        };
        let rows = grid(&["CLIENTS", "POLICY", "µs A PLAN", "p99"], self.costs.iter().map(row).collect());
        format!("what one plan takes, three in four clients wanting the GPU\n{rows}")
    }
}

fn measure(counts: &[usize]) -> Vec<Cost> {
    let learned = Learned::default();
    let gpu = Place { sms: 132, divides: true, concurrent: true };
    let each = counts.iter().flat_map(|count| PLANNING.map(|name| (*count, name)));
    each.filter_map(|(count, name)| {
        let (policy, clients) = (named(name, &berth_model::settings::KernelSettings::default())?, clients(count));
        let scene = Scene { now: Mono(0) + Duration::from_millis(100), gpu, clients: &clients, learned: &learned };
        let began = Instant::now();
        let mut took = Vec::new();
        while took.len() < LEAST || began.elapsed() < FOR {
            let from = thread_cpu();
            black_box(policy.plan(black_box(&scene)));
            took.push((thread_cpu() - from).as_secs_f64() * 1e6);
        }
        let took = Quantiles::of(&took)?;
        Some(Cost { policy: name.as_str().to_owned(), clients: count, median_us: took.p50, p99_us: took.p99 })
    })
    .collect()
}

/// Of three tenants one serves, one has a job, one has work without a goal; a tenant in four has two processes, three in four want the GPU.
fn clients(count: usize) -> Vec<Client> {
    let mut dice = Dice::new(count as u64);
    let mut client = |id: u64| {
        let tenant = if id % 4 == 3 { id - 1 } else { id };
        let takes = Duration::from_secs_f64(dice.between(0.5e-3, 100e-3));
        let latency = id.is_multiple_of(3).then(|| Latency {
            percentile: "99%".parse().unwrap_or_else(|_| unreachable!("it is one")),
            within: Span(takes.mul_f64(dice.between(1.5, 8.0))),
        });
        let began = Mono(0) + Duration::from_secs_f64(dice.between(50e-3, 99e-3));
        let busy = dice.whole(0, 3) > 0;
        Client {
            id: ClientId(id),
            tenant: TenantKey::Cgroup { path: format!("/system.slice/docker-{tenant:032x}.scope") },
            owner: Some(format!("user{}", tenant / 8)),
            slo: Slo { latency, completion: id % 3 == 1, ..Slo::default() },
            arrived: Mono(0),
            busy,
            waiting_since: busy.then_some(began),
            profile: Profile {
                request: id.is_multiple_of(3).then_some(takes),
                demand: Some(dice.between(0.2, 1.0)),
                ..Profile::default()
            },
            work: busy.then(|| Work {
                began,
                came: began,
                done: takes.mul_f64(dice.between(0.0, 0.5)),
                takes: Some(takes),
            }),
            attainment: id.is_multiple_of(3).then(|| dice.between(0.5, 1.0)),
            served_ns: id * 1_000_000,
            voice: Voice::default(),
        }
    };
    (0..count as u64).map(&mut client).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_is_measured_for_each_number_of_clients() {
        let report = Report { costs: measure(&[2, 5]), berth: String::new() };
        let told: Vec<(usize, &str)> = report.costs.iter().map(|cost| (cost.clients, cost.policy.as_str())).collect();
        assert_eq!(told, [(2, "jct"), (2, "slo"), (2, "hybrid"), (5, "jct"), (5, "slo"), (5, "hybrid")]);
        assert!(report.costs.iter().all(|cost| cost.median_us > 0.0 && cost.p99_us >= cost.median_us), "{report:?}");
        assert_eq!(report.to_text().matches("hybrid").count(), 2);
    }
}
