//! What the tests stand on: processes, tenants, a host with simulated GPUs, daemons on it, the events they tell.

mod cgroup;
mod daemon;
mod engine;
mod events;
pub mod held;
mod host;
mod nobody;
mod own_engine;
mod process;
mod proxy;
mod staged;
mod systemd;
mod tenant;
mod view;

pub use cgroup::{Cgroup, CgroupParent, hierarchy};
pub use daemon::Daemon;
pub use engine::{Container, Engine};
pub use events::{Events, Told};
pub use host::Host;
pub use nobody::Nobody;
pub use own_engine::{Cgroups, OwnEngine};
pub use process::{BERTH, Run, Running, run, throughout, until, until_within};
pub use proxy::Proxy;
pub use staged::Staged;
pub use systemd::{Manager, Systemd};
pub use tenant::Tenant;
pub use view::View;

/// Says loudly that a test cannot run for lack of what `make test` prepares; under `make test` that is a failure.
pub fn skip_unprepared(test: &str, missing: &str) {
    skip_unless_required(test, missing, &["1", "prepared"]);
}

/// The same for lack of what only a host's kernel offers, which a container cannot be blamed for.
pub fn skip(test: &str, missing: &str) {
    skip_unless_required(test, missing, &["1"]);
}

fn skip_unless_required(test: &str, missing: &str, required_by: &[&str]) {
    let required = std::env::var("BERTH_TEST_REQUIRED").unwrap_or_default();
    assert!(!required_by.contains(&required.as_str()), "{test} cannot run: {missing}");
    eprintln!("SKIPPED {test}: {missing}");
}
