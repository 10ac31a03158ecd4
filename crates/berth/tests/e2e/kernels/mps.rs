//! Programs that compute at the same time, as clients of MPS do: the daemon's plans, the real library in each, and the simulated GPU.

use berth_model::kernels::{KernelRole, KernelRow};
use berth_model::settings::KernelPolicyName;
use berth_model::{ProcessKind, TenantKey};

use super::programs::{Program, library, same_kernels};
use super::{daemon_with, row};
use crate::support::{Daemon, Host, until};

/// Requests of ten kernels of 100 µs on half of the GPU.
const SERVES: [&str; 5] = ["serve", "--kernels", "10", "--kernel-us", "100"];

fn row_where(daemon: &Daemon, of: &TenantKey, what: &str, wanted: impl Fn(&KernelRow) -> bool) -> KernelRow {
    until(what, || row(daemon, of).filter(&wanted))
}

/// Both are there as clients of MPS.
fn are_side_by_side(daemon: &Daemon, programs: [&Program; 2]) {
    for program in programs {
        daemon.row_where(&program.key(), |row| row.process_kinds == [ProcessKind::MpsClient]);
    }
}

#[test]
fn under_mps_a_server_with_a_goal_keeps_it_beside_a_trainer_that_gets_on() {
    let test = "under_mps_a_server_with_a_goal_keeps_it_beside_a_trainer_that_gets_on";
    let Some(library) = library(test) else { return };
    let host = Host::start_with(&["--mps"]);
    let daemon = daemon_with(&host, |settings| settings.policy = KernelPolicyName::Slo);
    let server = Program::start(&host, &library, "server", &SERVES);
    let trainer = Program::start(&host, &library, "trainer", &["train", "--kernel-ms", "20"]);
    are_side_by_side(&daemon, [&server, &trainer]);
    daemon.berth(&["slo", "set", server.path(), "latency=p99:20ms"]).ok();
    row_where(&daemon, &server.key(), "the server to lead", |row| row.role == KernelRole::Leads);

    trainer.tell("go");
    row_where(&daemon, &trainer.key(), "a long kernel", |row| row.longest_kernel_seconds.is_some_and(|it| it > 0.01));
    server.tell("go 20 3");
    let served = server.served();
    let trained = trainer.trained();
    eprintln!("p50 {} ms, p99 {} ms beside {} steps", served.p50_ms, served.p99_ms, trained.ended_ns.len());
    // Unmanaged, each of a request's ten kernels waits for one of 20 ms: requests take more than two seconds, and some are given up. A machine
    // that is busy may hold up one of sixty for a while, which is its p99.
    assert_eq!(served.given_up, 0, "{served:?}");
    assert!(served.p50_ms <= 20.0 && served.p99_ms <= 200.0, "{served:?}");
    // Alone it does fifty in a second.
    assert!(trained.ended_ns.len() >= 20, "{} steps", trained.ended_ns.len());
    let yields = row(&daemon, &trainer.key()).unwrap();
    assert!(yields.role == KernelRole::Yields && yields.counters.stops > 0, "{yields:?}");
    server.end();
    trainer.end();
}

/// Two that can use half of the GPU each run at the same time, in parts of it; what each loses by the other is learned and shown.
fn equals_run_side_by_side(test: &str, policy: KernelPolicyName) {
    let Some(library) = library(test) else { return };
    let host = Host::start_with(&["--mps"]);
    let daemon = daemon_with(&host, |settings| {
        settings.policy = policy;
        // Much is measured in little time.
        settings.sample_every = 32;
    });
    // Kernels of a server fill half of the GPU, those of a trainer all of it.
    let server = Program::start(&host, &library, "server", &SERVES);
    let half = same_kernels(&server.ready);
    server.end();
    let args: Vec<&str> = ["train", "--kernels", "4"].into_iter().chain(half.iter().map(String::as_str)).collect();
    let pair = ["one", "other"].map(|name| Program::start(&host, &library, name, &args));
    are_side_by_side(&daemon, [&pair[0], &pair[1]]);
    // What company costs is held against what the like takes alone.
    for program in &pair {
        program.tell("go");
        row_where(&daemon, &program.key(), "its kernels to be measured alone", |row| row.counters.samples >= 60);
        program.trained();
    }
    pair.iter().for_each(|program| program.tell("go"));
    let [one, other] = &pair;
    for (program, beside) in [(one, other), (other, one)] {
        let is_learned =
            |row: &KernelRow| row.slowed_by.iter().any(|by| by.name == beside.path() && by.confidence > 0.5);
        let learned = row_where(&daemon, &program.key(), "what it loses by the other", is_learned);
        // Each has half of the SMs to itself, and only the memory's bandwidth is shared.
        assert!(learned.slowed_by.iter().all(|by| (0.0..0.7).contains(&by.rho)), "{:?}", learned.slowed_by);
        let is_divided = |row: &KernelRow| row.confined_to_sms.is_some_and(|sms| (8..132).contains(&sms));
        let divided = row_where(&daemon, &program.key(), "a part of the SMs", is_divided);
        assert_eq!(divided.role, KernelRole::Equal, "{divided:?}");
        eprintln!("{:?} on {:?} SMs", learned.slowed_by, divided.confined_to_sms);
    }
    // Turns never show both of them at work.
    until("both to run at once", || {
        let rows = [one, other].map(|program| row(&daemon, &program.key()));
        rows.iter().flatten().filter(|row| row.is_busy && !row.is_stopped).nth(1).map(drop)
    });
    let steps = pair.each_ref().map(|program| program.trained().ended_ns.len());
    assert!(steps.iter().all(|steps| *steps > 0), "{steps:?}");
    pair.into_iter().for_each(Program::end);
}

#[test]
fn under_mps_equals_are_given_parts_of_the_sms_by_hybrid_and_learn_what_they_lose_by_each_other() {
    let test = "under_mps_equals_are_given_parts_of_the_sms_by_hybrid_and_learn_what_they_lose_by_each_other";
    equals_run_side_by_side(test, KernelPolicyName::Hybrid);
}

#[test]
fn under_mps_equals_are_given_parts_of_the_sms_by_slo() {
    equals_run_side_by_side("under_mps_equals_are_given_parts_of_the_sms_by_slo", KernelPolicyName::Slo);
}
