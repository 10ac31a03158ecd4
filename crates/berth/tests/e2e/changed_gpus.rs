//! GPUs that are others than they were: put in another's place while somebody watches, or unlike what was expected.

use std::process::{Command, Stdio};

use berth_model::{Change, TaskState};

use crate::support::{BERTH, Host, Running, run, until};

/// A simulator in place of the host's own.
fn simulator(host: &Host, options: &[&str]) -> Running {
    let mut command = Command::new(BERTH);
    command.args(["sim", "serve", "--until-stdin-closes", "--dir"]).arg(host.sim_dir()).args(options);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(host.log("sim"));
    let mut sim = Running::start(&mut command);
    assert!(sim.first_line().contains(" x "), "the simulator does not start");
    sim
}

#[test]
fn another_gpu_under_the_same_index_is_told_as_what_it_is_and_nobody_is_put_on_it_who_was_on_the_old_one() {
    let mut host = Host::start();
    let mut daemon = host.daemon();
    let events = daemon.events();
    let old = host.holder("old", &[]);
    daemon.sees(&old.key());
    let before = daemon.snapshot().gpus;

    // At once: at the pace of an idle daemon there may be no look between the two.
    host.kill_sim();
    let _sim = simulator(&host, &["--profile", "rtx3090", "--gpus", "3"]);
    let mut seen_lost = false;
    let gpus = until("the new GPUs", || {
        let snapshot = daemon.snapshot();
        let mut on_a_gpu = snapshot.tasks.iter().filter(|row| row.gpu_uuid.is_some());
        assert!(on_a_gpu.all(|row| row.gpu_uuid == before[0].uuid), "{:?}", snapshot.tasks);
        seen_lost |= snapshot.tasks.iter().any(|row| row.state == TaskState::Lost);
        (snapshot.gpus.len() == 3).then_some(snapshot.gpus)
    });
    assert!(seen_lost, "the tenant's GPU went away under it");
    for (gpu, index) in gpus.iter().zip(0..) {
        assert_eq!((gpu.index.0, gpu.name.as_deref(), &gpu.lost), (index, Some("NVIDIA GeForce RTX 3090"), &None));
        assert!(before.iter().all(|old| old.uuid != gpu.uuid), "{gpus:?}");
    }
    events.wait_for("the new GPU", |change| matches!(change, Change::GpuBack { gpu } if gpu.0 == 0).then_some(()));
    daemon.sees_nothing_of(&old.key());
    let new = host.holder("new", &["--device", "2"]);
    assert_eq!(daemon.sees(&new.key()).gpu_uuid, gpus[2].uuid);
    assert!(daemon.is_running());
}

#[test]
fn doctor_offers_mig_only_where_a_gpu_has_it() {
    for (profile, has_mig) in [("h200", true), ("rtx3090", false)] {
        let host = Host::bare();
        let _sim = simulator(&host, &["--profile", profile]);
        let config = host.write_config("berth", &host.settings("berth"));
        let text = run(Command::new(BERTH).arg("--config").arg(config).arg("doctor")).ok();
        let partition = text.lines().find(|line| line.starts_with("partition")).unwrap();
        assert_eq!(partition.contains("MIG"), has_mig, "{profile}: {partition}");
        assert!(partition.contains("green contexts"), "{profile}: {partition}");
    }
}

#[test]
fn a_fault_for_what_is_not_simulated_is_refused_with_what_is() {
    let host = Host::start();
    let tenant = host.holder("only", &[]);
    let refused = |fault: &[&str]| {
        let run = run(Command::new(BERTH).args(["sim", "fault", "--dir"]).arg(host.sim_dir()).args(fault));
        assert_eq!((run.code, run.stdout.as_str()), (1, ""), "{run:?}");
        run.stderr
    };
    assert!(refused(&["gpu-lost", "7"]).contains("there is no GPU 7 (there are: 0, 1)"));
    let there = format!("no process 1 uses the simulated GPUs (there are: {})", tenant.pid());
    assert!(refused(&["kernel-fault", "1"]).contains(&there));
}

#[test]
fn whoever_reads_json_is_told_beside_it_what_could_not_be_looked_at() {
    let host = Host::start();
    host.fault(&["nvml", "process-list", "999"]);
    let config = host.write_config("berth", &host.settings("berth"));
    let ps = run(Command::new(BERTH).arg("--config").arg(config).args(["ps", "--json"]));
    assert!(ps.stderr.contains("GPU 1: its processes cannot be listed: "), "{ps:?}");
    assert_eq!((ps.code, ps.stdout.trim()), (3, "[]"), "nobody could look");
}
