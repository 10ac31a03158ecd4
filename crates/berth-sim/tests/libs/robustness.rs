//! Clients that die, freeze, fork, exec or talk nonsense, and servers that go away.

use std::fs::Permissions;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use berth_proto::cuda::result;
use berth_proto::nvml::result as nvml_result;
use berth_proto::sim_dir;
use berth_proto::wire::{Message, Welcome};
use berth_sim::Profile;
use berth_sim::server::{ServeError, ServeOptions, Server};

use crate::nvml::Nvml;
use crate::support::{Client, Sim, SimProcess, libraries, until};

#[test]
fn a_killed_client_is_cleaned_up() {
    let sim = Sim::start();
    let idle = sim.used_bytes();
    let mut client = sim.client().ready();
    let pid = client.pid();
    until("the process to be listed", || sim.listed(pid));
    client.send("upload 67108864");
    client.signal(libc::SIGKILL);
    until("the process to be unlisted", || sim.listed(pid).is_none().then_some(()));
    until("its memory to be free", || (sim.used_bytes() == idle).then_some(()));
}

#[test]
fn a_forked_child_that_lives_on_does_not_keep_its_parent_listed() {
    let sim = Sim::start();
    let mut client = sim.client().ready();
    let pid = client.pid();
    client.must("linger");
    let pipe = client.take_input();
    client.signal(libc::SIGKILL);
    until("the process to be unlisted", || sim.listed(pid).is_none().then_some(()));
    drop(pipe);
}

#[test]
fn a_forked_child_cannot_use_the_gpu_and_does_not_disturb_its_parent() {
    let sim = Sim::start();
    let mut client = sim.client().ready();
    assert_eq!(client.must("fork"), u64::from(result::NOT_INITIALIZED));
    client.must("launch 1");
    client.must("sync");
}

#[test]
fn exec_ends_the_old_life_on_the_gpu() {
    let sim = Sim::start();
    let mut client = sim.client().ready();
    let pid = client.pid();
    until("the process to be listed", || sim.listed(pid));
    client.send("exec");
    until("the old contexts to be gone", || sim.listed(pid).is_none().then_some(()));
    // Same pid, new program: it starts from nothing.
    assert_eq!(client.ask("memory").code, result::NOT_INITIALIZED);
    let mut client = client.ready();
    client.must("launch 1");
    client.must("sync");
}

#[test]
fn a_frozen_client_holds_up_neither_nvml_nor_the_others() {
    let sim = Sim::with(|options| options.time_scale = 1.0);
    let mut frozen = sim.client().ready();
    let mut other = sim.client().ready();
    frozen.send("upload 67108864");
    frozen.signal(libc::SIGSTOP);
    other.must("launch 10");
    other.must("sync");
    other.must("upload 67108864");
    assert!(sim.listed(frozen.pid()).is_some());
    frozen.signal(libc::SIGCONT);
    assert_eq!(frozen.answer().code, 0);
}

#[test]
fn garbage_huge_lengths_and_silence_harm_nobody() {
    let sim = Sim::start();
    let socket = sim.dir().join(sim_dir::SOCKET);
    let mut other = sim.client().ready();
    let silent = UnixStream::connect(&socket).unwrap();
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 64], &[0; 4096]] {
        let mut stream = UnixStream::connect(&socket).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.write_all(garbage).unwrap();
        // Dropped: whatever comes before (the server's version), the end comes.
        let end = stream.read_to_end(&mut Vec::new());
        assert!(!matches!(&end, Err(error) if error.kind() == ErrorKind::WouldBlock), "not dropped: {garbage:?}");
    }
    other.must("launch 1");
    other.must("sync");
    drop(silent);
}

#[test]
fn launches_without_end_hold_back_their_sender_alone() {
    let sim = Sim::with(|options| options.time_scale = 1.0);
    let mut flood = sim.client().ready();
    let mut other = sim.client().ready();
    // 3,000 kernels of 0.2 ms: the queue is bounded, so the last launch comes back long before a second is over and
    // long after the first would have filled an unbounded one.
    let started = Instant::now();
    for _ in 0..3000 {
        flood.send("launch 1");
    }
    other.must("memory");
    for _ in 0..3000 {
        assert_eq!(flood.answer().code, 0);
    }
    let launched = started.elapsed();
    assert!(launched > Duration::from_millis(350), "{launched:?}: 2,048 of the kernels must have ended");
    flood.must("sync");
}

#[test]
fn without_a_server_there_is_no_device_and_no_hang() {
    let mut sim = Sim::start();
    let library = sim.library(sim_dir::CUDA_SONAME);
    sim.stop();
    let mut client = Client::start(&library, &[]);
    let done = client.ask("init");
    assert_eq!(done.code, result::NO_DEVICE);
    assert!(done.took < Duration::from_secs(1), "{done:?}");
    assert_eq!(client.ask("count").code, result::NOT_INITIALIZED);
}

#[test]
fn a_server_that_goes_away_is_an_error_that_stays() {
    let mut sim = Sim::with(|options| options.time_scale = 1.0);
    let mut client = sim.client().ready();
    client.must("launch 100000");
    client.send("sync");
    sim.stop();
    assert_eq!(client.answer().code, result::DEVICE_UNAVAILABLE);
    assert_eq!(client.ask("memory").code, result::DEVICE_UNAVAILABLE);
    assert_eq!(client.ask("init").code, result::DEVICE_UNAVAILABLE);
    assert!(!sim.dir().join(sim_dir::SOCKET).exists());
}

#[test]
fn a_killed_server_is_an_error_a_lost_gpu_and_replaced_by_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let library = dir.path().join(sim_dir::LIBRARIES);
    let mut server = SimProcess::start(dir.path());
    let mut client = Client::start(&library.join(sim_dir::CUDA_SONAME), &[]).ready();
    let nvml = Nvml::load(&library.join(sim_dir::NVML_SONAME));
    assert_eq!(nvml.init(), 0);
    let device = nvml.device(0).unwrap();
    client.must("launch 1000000");
    client.send("sync");
    server.kill();
    assert_eq!(client.answer().code, result::DEVICE_UNAVAILABLE);
    until("the GPU to be lost", || (nvml.memory(device).err() == Some(nvml_result::GPU_IS_LOST)).then_some(()));
    assert!(dir.path().join(sim_dir::SOCKET).exists(), "a killed server leaves its socket");
    let _next = SimProcess::start(dir.path());
    Client::start(&library.join(sim_dir::CUDA_SONAME), &[]).ready().must("launch 1");
    nvml.memory(device).unwrap();
}

#[test]
fn another_version_of_the_server_is_refused_as_a_mismatch() {
    let sim = Sim::start();
    let other = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(other.path().join(sim_dir::SOCKET)).unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut welcome = Vec::new();
        Welcome { version: 99 }.encode(&mut welcome).unwrap();
        stream.write_all(&welcome).unwrap();
        stream
    });
    let dir = other.path().to_str().unwrap();
    let mut client = Client::start(&sim.library(sim_dir::CUDA_SONAME), &[(sim_dir::VARIABLE, dir)]);
    assert_eq!(client.ask("init").code, result::SYSTEM_DRIVER_MISMATCH);
    drop(server.join().unwrap());
}

#[test]
fn what_one_thread_launched_another_one_waits_for() {
    let dir = tempfile::tempdir().unwrap();
    let server = SimProcess::start(dir.path());
    let library = dir.path().join(sim_dir::LIBRARIES).join(sim_dir::CUDA_SONAME);
    let mut client = Client::start(&library, &[]).ready();
    client.must("stream");
    client.must(&format!("relay {}", server.pid()));
}

#[test]
fn a_stranger_may_not_lock_a_process_and_its_own_user_may() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let sim = Sim::start();
    std::fs::set_permissions(sim.dir(), Permissions::from_mode(0o755)).unwrap();
    let library = sim.library(sim_dir::CUDA_SONAME);
    let tenant = Client::start_as(&library, 12_345).ready();
    let pid = tenant.pid();
    let mut stranger = Client::start_as(&library, 54_321);
    stranger.must("init");
    assert_eq!(stranger.ask(&format!("lock {pid}")).code, result::NOT_PERMITTED);
    let mut friend = Client::start_as(&library, 12_345);
    friend.must("init");
    friend.must(&format!("lock {pid}"));
    let mut root = sim.client();
    root.must("init");
    root.must(&format!("unlock {pid}"));
}

#[test]
fn a_second_server_in_the_same_directory_is_refused() {
    let sim = Sim::start();
    let mut options = ServeOptions::new(sim.dir(), Profile::builtin("h200").unwrap());
    options.libraries = Some(libraries());
    let error = Server::bind(options).unwrap_err();
    assert!(matches!(error, ServeError::AlreadyServed { .. }), "{error}");
    sim.client().ready().must("launch 1");
}

#[test]
fn nonsense_options_are_refused_by_name() {
    let profile = Profile::builtin("h200").unwrap();
    let dir = tempfile::tempdir().unwrap();
    for scale in [0.0, -1.0, f64::NAN] {
        let options = ServeOptions { time_scale: scale, ..ServeOptions::new(dir.path(), profile.clone()) };
        assert!(matches!(Server::bind(options), Err(ServeError::TimeScale { .. })));
    }
    let options = ServeOptions { gpu_count: 17, ..ServeOptions::new(dir.path(), profile) };
    assert!(matches!(Server::bind(options), Err(ServeError::GpuCount { count: 17 })));
}
