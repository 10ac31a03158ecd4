//! What the library itself costs a launch: the program's thread launches by the driver of the tests, which does nothing then, through the
//! library and past it in turn. A real driver is in none of these figures; `berth bench launch` has them with one.
//!
//!   cargo bench -p berth-shim

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, clippy::cast_precision_loss, dead_code)] // the stage of the tests

#[path = "../tests/shim/daemon.rs"]
mod daemon;
#[path = "../tests/shim/sys.rs"]
mod sys;
#[path = "../tests/shim/tenant.rs"]
mod tenant;

use std::sync::atomic::Ordering;

use daemon::{Client, Daemon, Link};
use tenant::Tenant;

const LAUNCHES: u64 = 20_000;
const ROUNDS: usize = 51;
/// `sample_every` as it is by default.
const SAMPLE_EVERY: u32 = 512;
/// The legacy default stream, as PyTorch launches into, and one with a name.
const STREAMS: [(&str, &str); 2] = [("default stream", "0"), ("named stream", "s0")];

/// What is in the program.
#[derive(Clone, Copy)]
enum Way {
    /// The library, and nobody at its socket.
    Loaded,
    /// Nothing is wanted of it.
    Idle,
    /// Some launches are measured.
    Attached,
    /// Somebody yields to it.
    Leads,
    /// It yields, and nobody stops it.
    Yields,
}

fn main() {
    println!("ns per launch that the library takes, median of {ROUNDS} rounds of {LAUNCHES}");
    let ways = [Way::Loaded, Way::Idle, Way::Attached, Way::Leads, Way::Yields];
    for (way, name) in ways.into_iter().zip(["loaded", "idle", "attached", "leads", "yields"]) {
        let costs = STREAMS.map(|(what, stream)| format!("{what} {:7.1}", measure(way, stream)));
        println!("{name:9} {}", costs.join("   "));
    }
}

fn measure(way: Way, stream: &str) -> f64 {
    let daemon = Daemon::start();
    let nobody = daemon.path().with_file_name("nobody.sock");
    let path = if matches!(way, Way::Loaded) { nobody } else { daemon.path() };
    let mut tenant = Tenant::with("tenant", &path, |command| {
        command.env("FAKE_DOES_NOTHING", "1");
    });
    tenant.tell("prepare 0");
    assert_eq!(tenant.answer(), 0);
    // It attaches at its first launch, and waits for the daemon's answer.
    tenant.tell("streams 1");
    assert_eq!(tenant.answer(), 0);
    tenant.tell(&format!("launch {stream} 1000 1"));
    let client = (!matches!(way, Way::Loaded)).then(|| welcome(&daemon, way));
    assert_eq!(tenant.answer(), 0);
    let link = Link::new();
    match (way, &client) {
        (Way::Leads, Some(client)) => client.leads(1, &link),
        (Way::Yields, Some(client)) => client.yields(1, &link),
        _ => {}
    }
    // Links are taken in within some milliseconds.
    std::thread::sleep(std::time::Duration::from_millis(200));
    let mut more: Vec<f64> = (0..ROUNDS)
        .map(|round| {
            let mut time = |past: usize| tenant.ask(&format!("time {stream} {LAUNCHES} {past}")) as f64 / 1e3;
            let past_first = round % 2 == 0;
            let first = time(usize::from(past_first));
            let second = time(usize::from(!past_first));
            if past_first { second - first } else { first - second }
        })
        .collect();
    more.sort_by(f64::total_cmp);
    more[ROUNDS / 2]
}

fn welcome(daemon: &Daemon, way: Way) -> Client {
    let client = daemon.welcome(|orders| {
        if !matches!(way, Way::Idle) {
            orders.sample_every.store(SAMPLE_EVERY, Ordering::Relaxed);
        }
    });
    client.lane();
    client
}
