//! What a hold by freezing costs on this machine, per hierarchy: from the decision until it is confirmed, and from the
//! release until the tenant runs.
//!
//! `cargo run --release -p berth-host --example freeze_cost -- [TURNS] [BUSY_PROCESSES]`, as root.

use std::path::Path;
use std::time::Duration;

use berth_host::freezer::{Freezer, Hierarchies};
use berth_host::hands::bench;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<usize>());
    let turns = numbers.next().transpose()?.unwrap_or(1_000);
    let busy = numbers.next().transpose()?.unwrap_or(0);
    let hierarchies = Hierarchies::under(Path::new("/sys/fs/cgroup"));
    let freezer = Freezer::new(Path::new("/proc"), hierarchies.clone(), Duration::from_secs(1));
    for (name, mount) in [("v1", hierarchies.v1), ("v2", hierarchies.v2)] {
        let Some(mount) = mount else { continue };
        let timing = bench::freezer(&freezer, &mount, busy, turns)?;
        for (what, times) in [("hold", timing.hold), ("release", timing.release)] {
            println!("{name} {what:7} p50 {:5} us  p99 {:5} us", times.p50_ns / 1_000, times.p99_ns / 1_000);
        }
    }
    Ok(())
}
