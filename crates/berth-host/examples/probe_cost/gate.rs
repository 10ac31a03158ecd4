//! How fast the gate comes down, stops and lets go, and what it costs.

use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use berth_host::clock;
use berth_host::probes::Probes;
use berth_model::{Event, Mono, ProcKey};

use crate::tenant::{Tenant, Workshop};
use crate::{LAUNCHES, loop_ns, wait};

/// Processes of which each is held once.
const HELD: usize = 50;

/// One hold of one process, from a gate that is to come down to a launch that was let go.
struct Hold {
    armed: Duration,
    told: Duration,
    stopped: Duration,
    released: Duration,
}

pub fn measure(probes: &Probes, events: &Receiver<Event>, workshop: &Workshop, bare: f64) {
    println!("  the gate, {HELD} processes one after the other:");
    let newcomers: Vec<_> = (0..HELD).map(|_| hold(probes, events, workshop, false)).collect();
    print("down, before the first launch", &newcomers, |hold| hold.armed);
    print("hit → told", &newcomers, |hold| hold.told);
    print("hit → seen stopped in /proc", &newcomers, |hold| hold.stopped);
    print("let go → launch made", &newcomers, |hold| hold.released);
    let others: Vec<_> = (0..HELD).map(|_| hold(probes, events, workshop, true)).collect();
    print("down, after the first launch", &others, |hold| hold.armed);
    residue(probes, events, workshop, bare);
    watched(probes, workshop, bare);
}

fn hold(probes: &Probes, events: &Receiver<Event>, workshop: &Workshop, has_launched: bool) -> Hold {
    let mut tenant = newcomer(probes, workshop);
    if has_launched {
        let earlier = probes.stats().detached;
        tenant.call("launch");
        wait(|| probes.stats().detached > earlier);
    }
    let [launches, _] = tenant.made();
    let began = Instant::now();
    let process = stop_at_launch(probes, events, &mut tenant, 1);
    let armed = process.armed.duration_since(began);
    assert_eq!(tenant.made()[0], launches, "it stands before its launch");
    let let_go = clock::now();
    release(probes, process.key);
    let launched = tenant.answer("launch").after;
    let released = Mono(launched).since(let_go);
    Hold { armed, told: process.told.since(process.hit), stopped: process.stopped.since(process.hit), released }
}

struct Stopped {
    key: ProcKey,
    armed: Instant,
    hit: Mono,
    told: Mono,
    stopped: Mono,
}

fn stop_at_launch(probes: &Probes, events: &Receiver<Event>, tenant: &mut Tenant, launches: u32) -> Stopped {
    let key = key(tenant.pid());
    probes.gate(key).expect("a gate");
    let armed = Instant::now();
    tenant.begin("launch", launches);
    let (told, hit) = loop {
        let event = events.recv_timeout(Duration::from_secs(10)).expect("a stop");
        if let Event::Halted { process, at, .. } = event
            && process == key
        {
            break (clock::now(), at);
        }
    };
    while state(key.pid) != Some('T') {
        std::hint::spin_loop();
    }
    Stopped { key, armed, hit, told, stopped: clock::now() }
}

fn release(probes: &Probes, process: ProcKey) {
    probes.ungate(process).expect("an open gate");
    probes.continued(process);
    let pid = i32::try_from(process.pid).ok().and_then(rustix::process::Pid::from_raw).expect("a pid");
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).expect("a process to continue");
}

/// What launches cost from the moment a process is let go.
fn residue(probes: &Probes, events: &Receiver<Event>, workshop: &Workshop, bare: f64) {
    let mut tenant = newcomer(probes, workshop);
    let stopped = stop_at_launch(probes, events, &mut tenant, LAUNCHES);
    let earlier = probes.stats();
    release(probes, stopped.key);
    let called = tenant.answer("launch");
    wait(|| probes.stats().detached > earlier.detached);
    let hits = probes.stats().counters.wasted - earlier.counters.wasted;
    let added = called.cpu as f64 - bare * f64::from(LAUNCHES);
    println!("    {LAUNCHES} launches from being let go: {hits} hits, {:.2} ms more in all", added / 1e6);
    println!(
        "    after that: {:.0} ns a launch, × {:.4}",
        loop_ns(&mut tenant, "launch"),
        loop_ns(&mut tenant, "launch") / bare
    );
}

/// What launches and waits cost while they are told.
fn watched(probes: &Probes, workshop: &Workshop, bare: f64) {
    let mut tenant = newcomer(probes, workshop);
    let waits = loop_ns(&mut tenant, "wait");
    let began = Instant::now();
    probes.watch_drains(key(tenant.pid()), true).expect("a watch");
    println!("  watched for drains: in place after {:.1} ms", began.elapsed().as_secs_f64() * 1e3);
    let (launch, wait) = (loop_ns(&mut tenant, "launch"), loop_ns(&mut tenant, "wait"));
    println!("    {:.1} µs more a launch, {:.1} µs more a wait", (launch - bare) / 1e3, (wait - waits) / 1e3);
}

/// A process whose first launch is being waited for.
fn newcomer(probes: &Probes, workshop: &Workshop) -> Tenant {
    wait(|| probes.stats().armed == 0);
    let mut tenant = workshop.tenant();
    tenant.call("init");
    wait(|| probes.stats().armed == 2);
    tenant
}

fn print(what: &str, holds: &[Hold], of: impl Fn(&Hold) -> Duration) {
    let mut all: Vec<_> = holds.iter().map(of).collect();
    all.sort();
    let ms = |rank: usize| all[rank].as_secs_f64() * 1e3;
    println!("    {what}: p50 {:.3} ms, p99 {:.3} ms", ms(all.len() / 2), ms(all.len() * 99 / 100));
}

fn stat(pid: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ").map(|(_, fields)| fields.to_owned())
}

fn state(pid: u32) -> Option<char> {
    stat(pid)?.chars().next()
}

fn key(pid: u32) -> ProcKey {
    let start = stat(pid).and_then(|fields| fields.split_whitespace().nth(19)?.parse().ok());
    ProcKey { pid, start_ticks: start.expect("a process that lives") }
}
