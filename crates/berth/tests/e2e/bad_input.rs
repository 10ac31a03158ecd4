//! Settings, libraries and permissions that are wrong: each is told in words that name it, and nothing crashes.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use berth_load::Phase;
use berth_model::settings::Mode;
use berth_model::{Source, SourceStatus};
use rustix::process::Signal;

use crate::support::{BERTH, Cgroup, Host, Nobody, Run, Running, run, until};

fn daemon_with_config(host: &Host, text: &str) -> Run {
    let config = host.file("wrong.toml");
    std::fs::write(&config, text).unwrap();
    run(Command::new(BERTH).arg("--config").arg(config).arg("daemon"))
}

#[test]
fn a_daemon_refuses_settings_it_does_not_understand_and_touches_nothing() {
    let host = Host::bare();
    let socket = host.file("berth.sock");
    let api = format!("[api]\nsocket = {socket:?}\n");
    for (wrong, words) in [
        ("[monitor]\nfast_intervall = \"20ms\"\n", ["fast_intervall", "fast_interval"]),
        ("[monitor]\nfast_interval = \"20 apples\"\n", ["20 apples", "500ms"]),
        ("[monitor]\nfast_interval = 20\n", ["line 2", "`20` is not a duration"]),
        ("[tabel]\nrows = 3\n", ["tabel", "table"]),
        ("[docker]\nmode = \"perhaps\"\n", ["perhaps", "required"]),
    ] {
        let refused = daemon_with_config(&host, &format!("{wrong}{api}"));
        assert_eq!(refused.code, 2, "{wrong}: {}", refused.stderr);
        assert!(refused.stderr.contains("wrong.toml"), "{}", refused.stderr);
        assert!(words.iter().all(|word| refused.stderr.contains(word)), "{words:?}: {}", refused.stderr);
        assert!(!socket.exists(), "it listened all the same");
    }
}

#[test]
fn a_library_that_is_no_nvml_is_named_by_everybody_and_the_daemon_runs() {
    let host = Host::bare();
    let text = host.file("libnvidia-ml.so.1");
    std::fs::write(&text, "not a library").unwrap();
    let shared =
        run(Command::new("sh").args(["-c", "ls /lib/*/libc.so.6 /lib64/libc.so.6 2>/dev/null | head -n 1"])).ok();
    for (library, words) in [(text.as_path(), "is not a library"), (Path::new(shared.trim()), "is not NVML")] {
        let mut daemon = host.daemon_with("berth", |settings| settings.nvml.library = library.into());
        let status = daemon.source(Source::Nvml, |_| true);
        let name = library.to_str().unwrap();
        let told = |text: &str| text.contains(words) && text.contains(name) && text.contains("nvml.library");
        assert!(matches!(&status, SourceStatus::Down { reason } if told(reason)), "{status:?}");
        let ps = daemon.berth(&["ps"]);
        assert!(ps.code == 3 && told(&ps.stderr), "{ps:?}");
        let doctor = daemon.berth(&["doctor"]);
        assert!(doctor.code == 1 && told(&doctor.stdout), "{doctor:?}");
        let json = daemon.berth(&["ps", "--json"]);
        assert_eq!((json.code, json.stdout.trim()), (3, "[]"));
        assert!(daemon.is_running() && daemon.stop() == 0);
    }
}

#[test]
fn a_docker_socket_without_permission_is_told_with_its_remedy() {
    let host = Host::start();
    let (socket, nobody) = (host.file("docker.sock"), Nobody::on(&host));
    let _listener = UnixListener::bind(&socket).unwrap();
    std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o600)).unwrap();
    let mut settings = host.settings("nobody/berth");
    settings.docker.mode = Mode::Auto;
    settings.docker.socket.clone_from(&socket);
    let config = host.write_config("auto", &settings);
    let berth = |config: &Path, args: &[&str]| nobody.berth(&[&["--config", config.to_str().unwrap()], args].concat());
    let denied = format!("connecting to {} is not permitted: run berth as root", socket.display());

    let doctor = run(&mut berth(&config, &["doctor"]));
    assert!(doctor.stdout.contains(&denied), "{doctor:?}");
    assert_eq!(doctor.code, 0, "the GPUs can be seen all the same: {doctor:?}");

    // By its cgroup a container, of which only the engine knows the name.
    let id = "b3".repeat(32);
    let cgroup = Arc::new(Cgroup::at(&format!("/berth-e2e-{}-denied/docker/{id}", std::process::id())));
    let tenant = host.tenant_in(&cgroup, &["hold"]);
    tenant.reaches(Phase::Hold);
    let shown = |ps: &Run| ps.code == 0 && ps.stdout.contains(&id[..12]) && ps.stderr.contains(&denied);
    let ps = run(&mut berth(&config, &["ps"]));
    assert!(shown(&ps), "an id instead of a name needs a reason: {ps:?}");
    let ps = run(&mut berth(&config, &["ps", "--json"]));
    let rows: Vec<serde_json::Value> = serde_json::from_str(&ps.stdout).unwrap();
    assert_eq!((ps.code, rows.len(), &rows[0]["container_id"]), (0, 1, &id.clone().into()), "{ps:?}");

    let mut daemon = Running::start(berth(&config, &["daemon"]).stderr(host.log("nobody")));
    let of_daemon = |ps: &Run| shown(ps) && !ps.stderr.contains("without it");
    until("the daemon to say it", || {
        assert!(daemon.is_running(), "the daemon ended");
        Some(run(&mut berth(&config, &["ps"]))).filter(of_daemon)
    });
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait(), 0);

    settings.docker.mode = Mode::Required;
    let config = host.write_config("required", &settings);
    let refused = run(&mut berth(&config, &["daemon"]));
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.stderr.contains("docker is required") && refused.stderr.contains(&denied), "{refused:?}");
}
