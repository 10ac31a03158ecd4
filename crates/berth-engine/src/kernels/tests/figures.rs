//! What is measured and shown of everybody on GPUs, and what tenants are told of it.

use berth_model::settings::KernelPolicyName;
use berth_model::{BandwidthUse, GpuIndex, ProcessKind, TaskRow};
use rustix::net::{RecvFlags, SendFlags, send};

use super::super::OnGpus;
use super::stage::{Stage, gpu, tenant, until};
use super::{ms, pair};

/// Of somebody on the first GPU.
fn listed(name: &str, pid: u32, kind: ProcessKind) -> TaskRow {
    let process_kinds = vec![kind];
    TaskRow { pids: vec![pid], process_kinds, gpu_uuid: Some(gpu(0)), ..crate::watch::tests::row(pid, name) }
}

#[test]
fn a_server_of_mps_is_no_stranger_to_its_clients_and_one_without_any_is() {
    let anchor = berth_model::Anchor { mono: berth_model::Mono(0), wall: jiff::Timestamp::UNIX_EPOCH };
    let mut snapshot = berth_model::Monitor::new(berth_model::settings::Monitor::default()).snapshot(&anchor);
    let servers = [7].into();
    let mut strangers = |kind| {
        snapshot.tasks = vec![listed("server", 7, ProcessKind::MpsServer), listed("trainer", 8, kind)];
        OnGpus::of(&snapshot, &servers).pids[&gpu(0)].iter().copied().collect::<Vec<_>>()
    };
    assert_eq!(strangers(ProcessKind::MpsClient), [8]);
    assert_eq!(strangers(ProcessKind::Compute), [7, 8], "a name alone says nothing");
}

#[test]
fn what_is_used_of_the_bandwidth_is_its_client_s_under_mps_too() {
    for (servers, expected) in [(vec![], Some(0.6)), (vec![u32::MAX], None)] {
        let mut stage = Stage::start();
        let mut trainer = stage.client("trainer", &[]);
        stage.knows("trainer", &[], |standing| standing.is_mps = true);
        let pids = servers.into_iter().chain([std::process::id()]).collect();
        stage.world.meet_gpus([(gpu(0), GpuIndex(0))].into(), [(gpu(0), pids)].into());
        trainer.works(true, stage.now);
        for _ in 0..6 {
            let since = stage.now;
            stage.pass(ms(200), &mut [&mut trainer]);
            let seen = BandwidthUse { gpu: GpuIndex(0), share: 0.6, since, until: stage.now };
            stage.world.see_bandwidth(&[seen]);
        }
        let share = stage.row("trainer").bandwidth_share.map(|share| (share * 10.0).round() / 10.0);
        assert_eq!(share, expected);
    }
}

#[test]
fn what_a_policy_comes_to_is_measured_under_every_one_and_another_gpu_s_change_restarts_no_window() {
    let mut stage = Stage::start();
    let (mut one, mut other) = (stage.client("one", &[]), stage.client("other", &[]));
    [&one, &other].into_iter().for_each(|client| client.works(true, stage.now));
    for (changed, policy, expected) in [
        (1, KernelPolicyName::Hybrid, Some(KernelPolicyName::Hybrid)),
        (0, KernelPolicyName::Off, None),
        (1, KernelPolicyName::Jct, Some(KernelPolicyName::Off)),
    ] {
        stage.world.set_policy(Some(gpu(0)), expected.unwrap_or(KernelPolicyName::Hybrid), stage.now);
        let before = stage.level().windows.first().map(|window| window.figures);
        stage.pass(ms(1_700), &mut [&mut one, &mut other]);
        stage.world.set_policy(Some(gpu(changed)), policy, stage.now);
        stage.pass(ms(300), &mut [&mut one, &mut other]);
        let windows = stage.level().windows;
        let [seen] = &windows[..] else { panic!("{windows:?}") };
        match expected {
            Some(expected) => {
                let figures = seen.figures;
                assert_eq!((figures.policy, figures.tenants, figures.changing), (expected, 2, 0.0));
                assert!(figures.goodput > 0.9 && figures.fairness.unwrap() > 0.95, "{figures:?}");
            }
            None => assert_eq!(before, Some(seen.figures), "its own window began anew"),
        }
    }
}

/// What is mounted into a tenant is the directory of this socket.
#[test]
fn a_tenant_is_given_a_socket_alone_and_it_tells_nothing_to_who_asks_for_others() {
    let mut stage = Stage::start();
    let (mut server, mut trainer) = pair(&mut stage);
    stage.pass(ms(20), &mut [&mut server, &mut trainer]);
    let found = std::fs::read_dir(stage.dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(found.collect::<Vec<_>>(), ["shim.sock"]);
    stage.next.lock().unwrap().push_back(tenant("hostile"));
    let hostile = stage.connect();
    let asks = b"GET /v1/snapshot HTTP/1.1\r\nHost: berth\r\n\r\n";
    assert!(send(&hostile, asks, SendFlags::NOSIGNAL).is_ok());
    let mut told = [0; 4096];
    let answer = until(|| rustix::net::recv(&hostile, &mut told, RecvFlags::DONTWAIT).ok());
    assert_eq!(answer.0, 0, "it is hung up on without a word");
    let path = stage.dir.path().join("shim.sock");
    assert!(std::os::unix::net::UnixStream::connect(path).is_err(), "no HTTP is spoken there");
}
