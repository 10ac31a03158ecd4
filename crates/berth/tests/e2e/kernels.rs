//! Scheduling at the level of kernels: the real daemon, its socket, and real processes that speak the protocol, well and badly.

mod auto;
mod bandwidth;
mod client;
mod copies;
mod freed;
mod hostile;
mod memory;
mod mps;
mod next_daemon;
pub mod programs;
mod switching;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Stdio};
use std::time::Duration;

use berth_model::kernels::{KernelNews, KernelRole, KernelRow};
use berth_model::settings::KernelSettings;
use berth_model::{Change, TenantKey};

use crate::support::{BERTH, Cgroup, Daemon, Host, skip_unprepared, throughout, until};
use client::Client;

fn daemon(host: &Host) -> Daemon {
    daemon_with(host, |_| {})
}

fn daemon_with(host: &Host, change: impl FnOnce(&mut KernelSettings)) -> Daemon {
    host.daemon_with("berth", |settings| {
        settings.kernels.enabled = true;
        settings.kernels.socket = host.file("clients/shim.sock");
        change(&mut settings.kernels);
    })
}

fn row(daemon: &Daemon, tenant: &TenantKey) -> Option<KernelRow> {
    let rows = daemon.snapshot().kernels.map(|level| level.rows).unwrap_or_default();
    rows.into_iter().find(|row| row.tenant == *tenant)
}

fn row_where(daemon: &Daemon, client: &Client, wanted: impl Fn(&KernelRow) -> bool) -> KernelRow {
    until(&format!("the row of {}", client.path()), || row(daemon, &client.key()).filter(&wanted))
}

fn gpu(daemon: &Daemon) -> String {
    daemon.snapshot().gpus[0].uuid.clone().unwrap().0
}

/// Attached, on GPU 0, and known to be there.
fn taking_part(host: &Host, daemon: &Daemon, name: &str) -> Client {
    let client = Client::start(host, name);
    daemon.sees(&client.key());
    client.attaches().uses(&gpu(daemon));
    row_where(daemon, &client, |row| row.gpu_index.is_some());
    client
}

/// One that others yield to and one that yields.
fn server_and_trainer(host: &Host, daemon: &Daemon) -> (Client, Client) {
    let (server, trainer) = (taking_part(host, daemon, "server"), taking_part(host, daemon, "trainer"));
    daemon.berth(&["slo", "set", server.path(), "latency=p99:10ms"]).ok();
    trainer.says("Yield");
    server.says("Lead");
    (server, trainer)
}

#[test]
fn a_client_is_known_by_its_tenant_and_told_of_when_it_comes_and_goes() {
    let host = Host::start();
    let daemon = daemon(&host);
    let events = daemon.events();
    let client = taking_part(&host, &daemon, "one");
    let shown = row_where(&daemon, &client, |_| true);
    assert_eq!((shown.role, shown.clients, shown.is_busy), (KernelRole::Alone, 1, false), "{shown:?}");
    client.works(true);
    row_where(&daemon, &client, |row| row.is_busy);
    let key = client.key();
    drop(client);
    until("its end", || row(&daemon, &key).is_none().then_some(()));
    for wanted in [KernelNews::Joined, KernelNews::Left] {
        events.wait_for("news of it", |change| {
            let is_it = matches!(change, Change::KernelLevel { tenant, news, .. } if *tenant == key && *news == wanted);
            is_it.then_some(())
        });
    }
}

#[test]
fn those_without_a_goal_yield_to_one_with_a_goal_and_its_word_reaches_them() {
    let host = Host::start();
    let daemon = daemon(&host);
    let (server, trainer) = server_and_trainer(&host, &daemon);
    assert_eq!(row_where(&daemon, &server, |row| row.role == KernelRole::Leads).yields_to, [""; 0]);
    assert_eq!(row_where(&daemon, &trainer, |row| row.role == KernelRole::Yields).yields_to, [server.path()]);
    // A word without work is nobody's, and is set to 0.
    server.works(true).tell("raise 1").says("raised");
    assert_eq!(trainer.word("yields"), 1, "without any help of the daemon's");
    server.tell("raise 0").says("raised");
    assert_eq!(trainer.word("yields"), 0);
    let shown = daemon.berth(&["slo", "show"]).ok();
    assert!(shown.contains("latency=p99:10ms") && shown.contains("set by root"), "{shown}");
    daemon.berth(&["slo", "reset", server.path()]).ok();
    row_where(&daemon, &trainer, |row| row.role == KernelRole::Equal);
}

#[test]
fn equals_that_have_work_take_turns_and_each_gets_its_part() {
    let host = Host::start();
    let daemon = daemon(&host);
    let (one, other) = (taking_part(&host, &daemon, "one"), taking_part(&host, &daemon, "other"));
    one.works(true);
    other.works(true);
    one.says("Yield");
    other.says("Yield");
    let served = |client: &Client| row(&daemon, &client.key()).map_or(0.0, |row| row.served_seconds);
    let (before, after) = ((served(&one), served(&other)), || (served(&one), served(&other)));
    let (first, second) = until("both to have been served", || {
        let (one, other) = after();
        Some((one - before.0, other - before.1)).filter(|(one, other)| one + other > 1.0)
    });
    assert!((0.3..3.0).contains(&(first / second)), "{first} and {second}");
    other.works(false);
    until("the other to be free", || (one.word("yields") == 0).then_some(()));
}

#[test]
fn one_that_never_lets_go_loses_its_lead_and_everybody_is_told() {
    let host = Host::start();
    let daemon = daemon(&host);
    let events = daemon.events();
    let (server, trainer) = server_and_trainer(&host, &daemon);
    trainer.works(true);
    server.works(true);
    server.tell("keep leads").says("keeps");
    events.wait_for("the loss of its lead", |change| {
        let Change::KernelLevel { tenant, news: KernelNews::LeadLost { gpu, .. }, .. } = change else { return None };
        assert_eq!((tenant, gpu.map(|gpu| gpu.0)), (&server.key(), Some(0)));
        Some(())
    });
    let shown = row_where(&daemon, &server, |row| row.lead_lost_until.is_some());
    assert_ne!(shown.role, KernelRole::Leads, "{shown:?}");
    trainer.says("Unlink");
}

#[test]
fn forged_messages_and_garbage_in_memory_harm_only_whoever_made_them() {
    let host = Host::start();
    let daemon = daemon(&host);
    let (server, trainer) = server_and_trainer(&host, &daemon);
    let hostile = taking_part(&host, &daemon, "hostile");
    hostile.tell("garbage").says("garbage");
    throughout(Duration::from_millis(300), || drop(daemon.snapshot()));
    hostile.tell("flood").says("hung up");
    until("the hostile one to be gone", || row(&daemon, &hostile.key()).is_none().then_some(()));
    server.works(true).tell("raise 1").says("raised");
    assert_eq!(trainer.word("yields"), 1);
    hostile.tell("attach 99").says("Refused(Version)");
}

#[test]
fn a_client_that_is_killed_leaves_nobody_standing() {
    let host = Host::start();
    let daemon = daemon(&host);
    let (mut server, trainer) = server_and_trainer(&host, &daemon);
    server.works(true).tell("raise 1").says("raised");
    assert_eq!(trainer.word("yields"), 1);
    server.kill();
    trainer.says("Unlink");
    until("the trainer to be free", || (trainer.word("yields") == 0).then_some(()));
}

#[test]
fn everybody_hears_of_the_daemon_s_end_however_it_ends_and_goals_outlive_it() {
    let host = Host::start();
    let mut first = daemon(&host);
    let (server, trainer) = server_and_trainer(&host, &first);
    assert_eq!(first.stop(), 0);
    for client in [&server, &trainer] {
        client.says("Unlink");
        client.says("hung up");
    }
    let mut second = daemon(&host);
    for client in [&server, &trainer] {
        second.sees(&client.key());
        client.attaches().uses(&gpu(&second));
    }
    trainer.says("Yield");
    server.says("Lead");
    second.kill();
    for client in [&server, &trainer] {
        client.says("hung up");
    }
}

#[test]
fn without_the_setting_there_is_no_socket_and_it_is_told_how_to_have_one() {
    let host = Host::start();
    let daemon = host.daemon_with("berth", |settings| settings.kernels.socket = host.file("clients/shim.sock"));
    assert!(!host.file("clients/shim.sock").exists() && daemon.snapshot().kernels.is_none());
    let refused = daemon.berth(&["policy", "set", "slo"]);
    assert!(refused.code != 0 && refused.stderr.contains("`kernels.enabled` is false"), "{refused:?}");
}

/// The library itself, in programs on the simulated GPU.
#[test]
fn with_the_library_a_server_leads_a_trainer_and_both_run_on_when_the_daemon_is_killed() {
    let host = Host::start();
    let mut daemon = daemon(&host);
    let library = std::path::Path::new(BERTH).with_file_name("libberth_shim.so");
    if !library.exists() {
        return skip_unprepared("with_the_library_a_server_leads_a_trainer", "build berth-shim");
    }
    let start = |cgroup: &Cgroup, role: &str| {
        let mut command = cgroup.command(BERTH);
        command.args(["load", role, "--library", &host.library("libcuda.so.1")]);
        command.env("LD_PRELOAD", &library).env("BERTH_SHIM_SOCKET", host.file("clients/shim.sock"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(host.log(role));
        command.spawn().unwrap()
    };
    let (server_in, trainer_in) = (Cgroup::make("server"), Cgroup::make("trainer"));
    let (mut server, mut trainer) = (start(&server_in, "serve"), start(&trainer_in, "train"));
    let mut served = BufReader::new(server.stdout.take().unwrap()).lines();
    let mut trained = BufReader::new(trainer.stdout.take().unwrap()).lines();
    for lines in [&mut served, &mut trained] {
        assert!(lines.next().unwrap().unwrap().contains("ready"));
    }
    let go = |child: &mut Child, words: &str| writeln!(child.stdin.as_mut().unwrap(), "{words}").unwrap();
    go(&mut trainer, "go");
    go(&mut server, "go 50 1");
    served.next().unwrap().unwrap();
    let row = |of: &Cgroup, wanted: &dyn Fn(&KernelRow) -> bool| {
        until(&format!("the row of {}", of.path()), || row(&daemon, &of.key()).filter(wanted))
    };
    row(&server_in, &|row| row.counters.launches > 0 && row.gpu_index.is_some());
    row(&trainer_in, &|row| row.counters.launches > 0);
    daemon.berth(&["slo", "set", server_in.path(), "latency=p99:10ms"]).ok();
    row(&server_in, &|row| row.role == KernelRole::Leads);
    go(&mut server, "go 50 1");
    served.next().unwrap().unwrap();
    let shown = row(&trainer_in, &|row| row.role == KernelRole::Yields && row.counters.stops > 0);
    assert_eq!(shown.yields_to, [server_in.path()], "{shown:?}");
    let listed = daemon.berth(&["ps"]).ok();
    assert!(listed.contains("Kernels (2, policy hybrid)"), "{listed}");
    daemon.kill();
    go(&mut server, "go 50 1");
    served.next().unwrap().unwrap();
    go(&mut trainer, "enough");
    trained.next().unwrap().unwrap();
    for mut child in [server, trainer] {
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
    }
}
