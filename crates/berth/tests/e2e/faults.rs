//! GPUs and drivers that fail while they are watched. Nothing of it may end the daemon or make it tell an untruth.

use std::process::Command;
use std::time::Duration;

use berth_load::Phase;
use berth_model::settings::Mode;
use berth_model::{Change, Source, SourceStatus, TaskState};

use crate::support::{BERTH, Daemon, Host, Tenant, run, throughout, until};

/// Waits for looks that began after this call.
fn look_again(daemon: &Daemon) {
    let before = daemon.snapshot().counters.samples;
    until("two more looks", || (daemon.snapshot().counters.samples >= before + 2).then_some(()));
}

/// Longer than any attempt to find a lost GPU again takes to come round.
const OBSERVATION: Duration = Duration::from_secs(8);

fn stays_lost(daemon: &Daemon, tenant: &Tenant) {
    throughout(OBSERVATION, || {
        let snapshot = daemon.snapshot();
        let row = snapshot.tasks.iter().find(|row| row.tenant == tenant.key()).unwrap();
        assert_eq!((row.state, row.gpu_index.map(|gpu| gpu.0)), (TaskState::Lost, Some(0)));
        assert!(snapshot.gpus[0].lost.is_some() && row.gpu_uuid == snapshot.gpus[0].uuid);
    });
}

#[test]
fn a_gpu_that_vanishes_is_told_and_the_other_goes_on() {
    let host = Host::start();
    let mut daemon = host.daemon();
    let events = daemon.events();
    let (unlucky, lucky) = (host.holder("unlucky", &[]), host.holder("lucky", &["--device", "1"]));
    daemon.sees(&unlucky.key());
    daemon.sees(&lucky.key());

    host.fault(&["gpu-lost", "0"]);
    daemon.row_where(&unlucky.key(), |row| row.state == TaskState::Lost);
    events.wait_for("the loss", |change| matches!(change, Change::GpuLost { gpu, .. } if gpu.0 == 0).then_some(()));
    let ps = daemon.berth(&["ps"]);
    assert_eq!(ps.code, 0);
    assert!(ps.stderr.contains("GPU 0 is lost") && !ps.stderr.contains("GPU 1"), "{}", ps.stderr);
    assert!(ps.stdout.lines().any(|line| line.contains(unlucky.cgroup.path()) && line.contains("lost")), "{ps:?}");
    assert_eq!(daemon.ps().len(), 2, "JSON has both rows, and its exit code is 0");
    assert_eq!(daemon.sees(&lucky.key()).state, TaskState::Loaded);

    // To CUDA the GPU that is left is now the first; to the driver, and so to berth, it is still the second.
    let late = host.holder("late", &["--device", "0"]);
    assert_eq!(daemon.sees(&late.key()).gpu_index.map(|gpu| gpu.0), Some(1));
    stays_lost(&daemon, &unlucky);
    drop(unlucky);
    until("the lost tenant's end", || {
        daemon.snapshot().tasks.iter().all(|row| row.state != TaskState::Lost).then_some(())
    });
    assert!(daemon.is_running());
}

/// What a metrics page says of one GPU.
fn series(page: &str, metric: &str, gpu: u32) -> Option<String> {
    let is_it = |line: &&str| line.starts_with(metric) && line.contains(&format!("gpu=\"{gpu}\""));
    page.lines().find(is_it).and_then(|line| line.rsplit(' ').next()).map(str::to_owned)
}

#[test]
fn what_a_tenant_has_on_a_lost_gpu_is_told_nowhere() {
    let host = Host::start();
    let daemon = host.daemon();
    let (unlucky, lucky) = (host.holder("unlucky", &[]), host.holder("lucky", &["--device", "1"]));
    for tenant in [&unlucky, &lucky] {
        daemon.sees(&tenant.key());
    }
    host.fault(&["gpu-lost", "0"]);
    let row = daemon.row_where(&unlucky.key(), |row| row.state == TaskState::Lost);
    assert_eq!((row.gpu_memory_bytes, row.gpu_core_pct), (None, None));
    let page = daemon.metrics();
    let told = |metric, gpu| series(&page, metric, gpu).is_some();
    for metric in ["berth_gpu_memory_used_bytes", "berth_tenant_memory_bytes"] {
        assert_eq!((told(metric, 0), told(metric, 1)), (false, true), "{metric}: {page}");
    }
    assert!(!told("berth_tenant_core_ratio", 0) && told("berth_task_seconds", 0), "{page}");
}

#[test]
fn a_gpu_lost_before_anybody_looked_is_told_by_every_view_and_found_again() {
    let mut host = Host::start();
    let _unlucky = host.holder("unlucky", &[]);
    host.fault(&["gpu-lost", "0"]);
    let config = host.write_config("nobody", &host.settings("nobody"));
    let berth = |args: &[&str]| run(Command::new(BERTH).arg("--config").arg(&config).args(args));
    for args in [&["ps"][..], &["ps", "--json"]] {
        let ps = berth(args);
        assert!(ps.code == 0 && ps.stderr.contains("GPU 0 is lost"), "{ps:?}");
    }
    let ps = berth(&["ps", "--json", "--gpu", "0"]);
    assert_eq!((ps.code, ps.stdout.trim()), (3, "[]"), "{ps:?}");
    let doctor = berth(&["doctor"]).ok();
    let observe = doctor.lines().find(|line| line.starts_with("observe")).unwrap();
    assert!(observe.contains("2 GPUs") && observe.contains("GPU 0 is lost: "), "{observe}");

    let daemon = host.daemon();
    let gpus = daemon.snapshot().gpus;
    assert_eq!(gpus.iter().map(|gpu| gpu.lost.is_some()).collect::<Vec<_>>(), [true, false], "{gpus:?}");
    assert_eq!((&gpus[0].uuid, &gpus[0].name, gpus[1].uuid.is_some()), (&None, &None, true));
    let page = daemon.metrics();
    assert_eq!(series(&page, "berth_gpu_up", 0).as_deref(), Some("0.0"), "{page}");
    assert_eq!(series(&page, "berth_gpu_tenants", 0), None, "who is there is not known: {page}");
    let other = host.holder("other", &["--device", "0"]);
    assert_eq!(daemon.sees(&other.key()).gpu_index.map(|gpu| gpu.0), Some(1), "the other goes on");

    host.fault(&["gpu-lost", "1"]);
    let blind = berth(&["doctor"]);
    assert_eq!(blind.code, 1, "{blind:?}");
    assert_eq!(berth(&["ps", "--json"]).code, 3);
    // As a real one comes back: with the whole driver started anew.
    host.kill_sim();
    host.start_sim();
    until("both GPUs, by name", || {
        let gpus = daemon.snapshot().gpus;
        (gpus.len() == 2 && gpus.iter().all(|gpu| gpu.lost.is_none() && gpu.name.is_some())).then_some(())
    });
    let next = host.holder("next", &[]);
    assert_eq!(daemon.sees(&next.key()).gpu_uuid, daemon.snapshot().gpus[0].uuid);
}

#[test]
fn lists_and_figures_that_cannot_be_read_leave_what_is_known() {
    let host = Host::start();
    let mut daemon = host.daemon();
    let tenant = host.holder("tenant", &[]);
    daemon.sees(&tenant.key());
    for area in ["process-list", "memory", "utilisation", "process-utilisation"] {
        host.fault(&["nvml", area, "999"]);
    }
    until("the figures to be unknown", || {
        let gpu = daemon.snapshot().gpus.into_iter().next()?;
        (gpu.memory_used_bytes.is_none() && gpu.core_pct.is_none() && gpu.lost.is_none()).then_some(())
    });
    look_again(&daemon);
    assert_eq!(daemon.snapshot().tasks.len(), 1, "a list that cannot be read says nothing about who is there");
    drop(tenant);
    until("the end, told by the kernel", || daemon.snapshot().tasks.is_empty().then_some(()));
    assert!(daemon.is_running());
}

#[test]
fn a_gpu_whose_processes_cannot_be_listed_is_not_shown_as_empty() {
    let host = Host::start();
    host.fault(&["nvml", "process-list", "999"]);
    let daemon = host.daemon_with("berth", |settings| settings.probes.mode = Mode::Off);
    let _unseen = host.holder("unseen", &[]);
    look_again(&daemon);
    let ps = daemon.berth(&["ps"]);
    assert_eq!(ps.code, 3);
    assert!(ps.stderr.contains("GPU 0: its processes cannot be listed: "), "{ps:?}");
    let gpus = daemon.snapshot().gpus;
    assert!(gpus.iter().all(|gpu| gpu.blind.is_some() && gpu.lost.is_none()), "{gpus:?}");
}

#[test]
fn without_permission_tenants_are_seen_and_their_memory_is_unknown() {
    let host = Host::start();
    let daemon = host.daemon();
    host.fault(&["no-permission"]);
    let tenant = host.holder("private", &[]);
    daemon.row_where(&tenant.key(), |row| row.gpu_index.is_some());
    let rows = daemon.ps();
    assert_eq!((rows.len(), &rows[0]["gpu_memory_bytes"]), (1, &serde_json::Value::Null), "{rows:?}");
    assert_eq!(rows[0]["pids"], serde_json::json!([tenant.pid()]));
    let table = daemon.berth(&["ps"]).ok();
    assert!(table.contains(tenant.cgroup.path()), "{table}");
}

#[test]
fn a_driver_that_refuses_to_start_is_told_with_its_words() {
    let host = Host::start();
    host.fault(&["nvml", "init", "4"]);
    let mut daemon = host.daemon();
    let status = daemon.source(Source::Nvml, |_| true);
    assert!(matches!(&status, SourceStatus::Down { reason } if reason.contains("may not use the GPUs")), "{status:?}");
    let ps = daemon.berth(&["ps"]);
    assert_eq!(ps.code, 3);
    assert!(ps.stderr.contains("no GPU can be seen") && ps.stderr.contains("run berth as root"), "{}", ps.stderr);
    let doctor = daemon.berth(&["doctor"]);
    assert_eq!(doctor.code, 1, "without NVML nothing can be observed: {doctor:?}");
    assert!(doctor.stdout.contains("may not use the GPUs"), "{doctor:?}");
    assert!(daemon.is_running());
}

#[test]
fn a_driver_that_dies_is_told_and_the_next_one_is_found() {
    let mut host = Host::start();
    let mut daemon = host.daemon();
    let tenant = host.holder("orphan", &[]);
    daemon.sees(&tenant.key());

    host.kill_sim();
    daemon.row_where(&tenant.key(), |row| row.state == TaskState::Lost);
    let ps = daemon.berth(&["ps"]);
    assert_eq!(ps.code, 3);
    assert!(ps.stderr.contains("GPU 0 is lost") && ps.stderr.contains("GPU 1 is lost"), "{}", ps.stderr);
    let newcomer = host.daemon_with("newcomer", |_| ());
    let status = newcomer.source(Source::Nvml, |_| true);
    assert!(
        matches!(&status, SourceStatus::Down { reason } if reason.contains("no loaded NVIDIA driver")),
        "{status:?}"
    );

    host.start_sim();
    for daemon in [&daemon, &newcomer] {
        until("both GPUs to be back", || {
            let gpus = daemon.snapshot().gpus;
            (gpus.len() == 2 && gpus.iter().all(|gpu| gpu.lost.is_none())).then_some(())
        });
    }
    newcomer.source(Source::Nvml, |status| *status == SourceStatus::Up);
    daemon.sees_nothing_of(&tenant.key());
    let next = host.holder("next", &[]);
    daemon.sees(&next.key());
    newcomer.sees(&next.key());
    assert!(daemon.is_running());
}

#[test]
fn a_kernel_that_fails_ends_the_tenant_not_the_daemon() {
    let host = Host::start();
    let mut daemon = host.daemon();
    let events = daemon.events();
    let mut tenant = host.tenant("faulty", &["--size", "2048", "--repeats", "forever"]);
    tenant.reaches(Phase::Kernel);
    host.fault(&["kernel-fault", &tenant.pid().to_string()]);
    assert_eq!(tenant.wait(), 1);
    assert_eq!(events.ended(&tenant.key(), 1).len(), 1);
    assert!(daemon.is_running() && daemon.ps().is_empty());
}
