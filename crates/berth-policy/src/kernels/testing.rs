//! Clients for tests.

use std::time::Duration;

use berth_model::{Mono, Slo, TenantKey};

use super::{Client, ClientId, Place, Profile, Voice, Work};

/// A GPU of 132 SMs on which everything can be done.
pub const PLACE: Place = Place { sms: 132, divides: true, concurrent: true };

/// One that wants the GPU, and of which nothing is known. Every client its own user.
pub fn client(id: u64) -> Client {
    Client {
        id: ClientId(id),
        tenant: TenantKey::Cgroup { path: format!("/t{id}") },
        owner: Some(format!("user{id}")),
        slo: Slo::default(),
        arrived: Mono(id),
        busy: true,
        waiting_since: Some(Mono(0)),
        profile: Profile::default(),
        work: None,
        attainment: None,
        served_ns: 0,
        voice: Voice::default(),
    }
}

/// One with so many milliseconds left, that can use this part of the SMs and of the bandwidth.
pub fn job(id: u64, left_ms: u64, demand: f64, bandwidth: f64) -> Client {
    let profile = Profile { demand: Some(demand), bandwidth: Some(bandwidth), ..Profile::default() };
    let work =
        Work { began: Mono(0), came: Mono(0), done: Duration::ZERO, takes: Some(Duration::from_millis(left_ms)) };
    Client { profile, work: Some(work), ..client(id) }
}
