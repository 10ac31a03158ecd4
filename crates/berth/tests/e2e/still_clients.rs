//! A program that is frozen or stopped gets no further on the simulated GPU with what a driver does on its own threads.

use std::path::{Path, PathBuf};
use std::time::Duration;

use berth_host::clock;
use berth_load::{Edge, Moment};
use rustix::process::Signal;

use crate::support::{Host, Tenant, hierarchy, throughout, until};

/// A context takes a second here, give or take what differs from one to the next.
const CONTEXT: (&str, &str) = ("create_serial_ms = 118.0", "create_serial_ms = 1000.0");
const LEAST: Duration = Duration::from_millis(900);
/// Longer than the context takes.
const HELD: Duration = Duration::from_millis(1_500);

/// How a tenant is made to stand still. What was made for it goes with this.
enum Hold {
    Stop,
    Unified(PathBuf),
    Version1(PathBuf),
}

/// What it is called, and how it is made ready for a tenant.
type Way = (&'static str, fn(&Tenant) -> Hold);

impl Hold {
    const VERSION_1: &str = "/sys/fs/cgroup/freezer";

    fn version_1(tenant: &Tenant) -> Self {
        let dir = Path::new(Self::VERSION_1).join(format!("berth-e2e-still-{}", tenant.pid()));
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(dir.join("cgroup.procs"), tenant.pid().to_string()).unwrap();
        Self::Version1(dir)
    }

    fn set(&self, tenant: &Tenant, is_held: bool) {
        let (file, word) = match (self, is_held) {
            (Hold::Stop, true) => return tenant.signal(Signal::STOP),
            (Hold::Stop, false) => return tenant.signal(Signal::CONT),
            (Hold::Unified(dir), true) => (dir.join("cgroup.freeze"), "1"),
            (Hold::Unified(dir), false) => (dir.join("cgroup.freeze"), "0"),
            (Hold::Version1(dir), true) => (dir.join("freezer.state"), "FROZEN"),
            (Hold::Version1(dir), false) => (dir.join("freezer.state"), "THAWED"),
        };
        std::fs::write(file, word).unwrap();
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Hold::Version1(dir) = self {
            let _ = std::fs::write(dir.join("freezer.state"), "THAWED");
            let procs = std::fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
            for pid in procs.lines() {
                let _ = std::fs::write(Path::new(Self::VERSION_1).join("cgroup.procs"), pid);
            }
            let _ = std::fs::remove_dir(dir);
        }
    }
}

/// How long the tenant could move while its context was made, if it was held in the middle of that.
fn moved(tenant: &Tenant, hold: &Hold) -> Duration {
    let moment = |moment| until("a moment of the tenant", || tenant.moment(0, moment, Edge::End));
    let began = moment(Moment::DeviceOpen);
    hold.set(tenant, true);
    let held = clock::now().0;
    throughout(HELD, || assert_eq!(tenant.moment(0, Moment::ContextReady, Edge::End), None));
    let released = clock::now().0;
    hold.set(tenant, false);
    Duration::from_nanos(held - began + moment(Moment::ContextReady) - released)
}

#[test]
fn a_context_is_not_made_while_its_process_stands_still() {
    let host = Host::changed(&[CONTEXT]);
    let mut ways: Vec<Way> = vec![("stopped", |_| Hold::Stop)];
    if hierarchy().join("cgroup.controllers").exists() {
        ways.push(("frozen by cgroup v2", |tenant| Hold::Unified(tenant.cgroup.dir().into())));
    }
    if Path::new(Hold::VERSION_1).join("cgroup.procs").exists() {
        ways.push(("frozen by cgroup v1", Hold::version_1));
    }
    for (way, hold) in ways {
        let mut tenant = host.tenant("still", &["--size", "512"]);
        let moved = moved(&tenant, &hold(&tenant));
        assert!(moved >= LEAST, "{way}: made within {moved:?} of moving");
        assert_eq!(tenant.wait(), 0, "{way}");
    }
}
