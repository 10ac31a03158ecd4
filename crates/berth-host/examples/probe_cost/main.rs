//! What being watched costs a process, and how fast the gate is, measured on this kernel with a driver library made for it:
//! `cargo run --release -p berth-host --example probe_cost`, as root.
//!
//! Costs are processor time of the process, so that they mean the same on a busy machine. With perf events the kernel stops
//! counting hits before it takes the breakpoint away: "µs a hit" is too high there.

#[allow(clippy::unwrap_used, reason = "shared with the tests")]
#[path = "../../src/probes/tests/tenant.rs"]
mod tenant;

mod gate;

use std::process::{Command, ExitCode};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use berth_host::clock;
use berth_host::probes::{Options, ProbeError, Probes, available};
use berth_host::procs::Registry;
use berth_model::{Event, Moment};
use tenant::{Tenant, Workshop};

const LAUNCHES: u32 = 100_000;
const CONTEXTS: u32 = 5_000;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), ProbeError> {
    println!("this kernel: {:?}", available()?);
    for perf_events in [false, true] {
        println!("\n{}", if perf_events { "one perf event for each function" } else { "best the kernel offers" });
        measure(perf_events)?;
    }
    Ok(())
}

fn measure(perf_events: bool) -> Result<(), ProbeError> {
    let workshop = Workshop::new();
    let mut tenant = Tenant::start(Command::new(&workshop.program).arg(&workshop.driver));
    let (bare, paced, contexts) =
        (loop_ns(&mut tenant, "launch"), loop_ns(&mut tenant, "pace"), context_ns(&mut tenant));
    println!("  unwatched: a launch {bare:.0} ns, with some work {paced:.0} ns; a context {contexts:.0} ns");

    let (event_tx, event_rx) = mpsc::channel();
    let registry = Registry::new("/proc".as_ref(), event_tx.clone()).expect("/proc can be watched");
    let options = Options { libraries: vec![workshop.driver.clone()], perf_events, ..Options::default() };
    let began = Instant::now();
    let probes = Probes::start(options, move |pid| registry.resolve(pid), event_tx)?;
    println!("  start, with one library: {:?}", began.elapsed());

    for what in ["launch", "pace"] {
        let mut tenant = workshop.tenant();
        let unwatched = if what == "pace" { paced } else { bare };
        first_launch(&probes, &event_rx, &mut tenant, what, unwatched);
        let after = loop_ns(&mut tenant, what);
        println!("    after that: {after:.0} ns each, × {:.4}", after / unwatched);
    }
    gate::measure(&probes, &event_rx, &workshop, bare);
    let watched = context_ns(&mut tenant);
    println!("  a context created and destroyed, always watched: {:.1} µs more", (watched - contexts) / 1e3);
    println!("  {:?}", probes.stats());
    let began = Instant::now();
    drop(probes);
    println!("  stop: {:?}", began.elapsed());
    Ok(())
}

/// A process that launches all the time from its first launch on.
fn first_launch(probes: &Probes, events: &Receiver<Event>, tenant: &mut Tenant, what: &str, unwatched: f64) {
    wait(|| probes.stats().armed == 0);
    let earlier = probes.stats();
    let init = tenant.call("init");
    wait(|| probes.stats().armed == 2);
    let armed_ms = (clock::now().0 - init.before) as f64 / 1e6;
    let called = tenant.repeat(what, LAUNCHES);
    let at = loop {
        let event = events.recv_timeout(Duration::from_secs(10)).expect("a first launch");
        if let Event::Moment { process, moment: Moment::FirstLaunch, at } = event
            && process.pid == tenant.pid()
        {
            break at;
        }
    };
    wait(|| probes.stats().detached > earlier.detached);
    let hits = probes.stats().counters.wasted - earlier.counters.wasted + 1;
    let total = called.cpu as f64;
    let added = total - unwatched * f64::from(LAUNCHES);
    println!("  {what} × {LAUNCHES} from the first on: armed {armed_ms:.1} ms after cuInit");
    let (told, took) = (at.0 - called.before, called.after - called.before);
    println!(
        "    first launch: {:.1} µs, told to be {:.1} µs after its beginning",
        took as f64 / 1e3,
        told as f64 / 1e3
    );
    println!(
        "    {hits} hits, {:.2} ms more in all, {:.1} µs a hit, × {:.4}",
        added / 1e6,
        added / hits as f64 / 1e3,
        total / (total - added)
    );
}

/// Nanoseconds of a call, in the best of five loops.
fn loop_ns(tenant: &mut Tenant, what: &str) -> f64 {
    let run = |_| {
        let called = tenant.repeat(what, LAUNCHES);
        called.cpu as f64 / f64::from(LAUNCHES)
    };
    (0..5).map(run).fold(f64::INFINITY, f64::min)
}

fn context_ns(tenant: &mut Tenant) -> f64 {
    ["create", "destroy"]
        .map(|what| {
            let called = tenant.repeat(what, CONTEXTS);
            called.cpu as f64 / f64::from(CONTEXTS)
        })
        .iter()
        .sum()
}

fn wait(mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !done() {
        assert!(Instant::now() < deadline, "not within ten seconds");
        std::thread::sleep(Duration::from_micros(200));
    }
}
