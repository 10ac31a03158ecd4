//! berth in the hands of somebody without rights on the host: what it can do it does, and says why not more.

use std::process::Stdio;
use std::time::Duration;

use crate::support::{Host, Nobody, Running, run, until_within};

/// Longer than the demo plays.
const CURTAIN: Duration = Duration::from_secs(120);

#[test]
fn the_demo_plays_with_bare_processes_and_tells_why() {
    let host = Host::bare();
    let nobody = Nobody::on(&host);
    let printed = host.file("printed");
    let mut command = nobody.berth(&["demo", "--plain"]);
    command.stdin(Stdio::null()).stdout(std::fs::File::create(&printed).unwrap()).stderr(host.log("demo"));
    let mut demo = Running::start(&mut command);
    let code = until_within(CURTAIN, "the demo's end", || (!demo.is_running()).then(|| demo.wait()));
    let text = std::fs::read_to_string(printed).unwrap();
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("as bare processes"), "{text}");
    assert!(text.contains("not as plain cgroups: ") && text.contains("Permission denied"), "{text}");
    assert!(text.contains("not as Docker containers: "), "{text}");
    let (played, table) = text.split_once("What berth saw").unwrap();
    assert!(played.contains("nobody") && played.contains("GiB"), "nobody was seen on the way: {text}");
    for tenant in ["notebook", "trainer", "server", "sweep-1", "sweep-2"] {
        let line = table.lines().find(|line| line.starts_with(tenant)).unwrap_or_else(|| panic!("{tenant}: {table}"));
        assert!(line.ends_with("well"), "{line}");
    }
    assert!(table.contains("one tenant to berth"), "why it does not tell them apart: {table}");
    assert_eq!(std::fs::read_dir(nobody.home()).unwrap().count(), 0, "files are left");
}

#[test]
fn ps_shows_everybody_and_says_that_the_daemon_may_not_be_asked() {
    let host = Host::start();
    let nobody = Nobody::on(&host);
    let tenant = host.holder("somebody-else", &[]);
    let daemon = host.daemon();
    daemon.sees(&tenant.key());
    let socket = daemon.settings.api.socket.to_str().unwrap();
    let config = host.file("berth.toml");
    let ps = run(&mut nobody.berth(&["--config", config.to_str().unwrap(), "ps"]));
    assert_eq!(ps.code, 0, "{ps:?}");
    assert!(ps.stdout.contains(tenant.cgroup.path()) && ps.stdout.contains("GiB"), "{ps:?}");
    assert!(ps.stderr.contains(socket) && ps.stderr.to_lowercase().contains("permission denied"), "{ps:?}");
    assert!(ps.stderr.contains("looked once without it"), "{ps:?}");
}

#[test]
fn a_daemon_that_may_not_make_its_socket_names_the_setting() {
    let host = Host::start();
    let nobody = Nobody::on(&host);
    let refused = run(&mut nobody.berth(&["--socket", "/run/berth-e2e/berth.sock", "daemon"]));
    assert_eq!(refused.code, 1, "{refused:?}");
    let told = ["/run/berth-e2e", "api.socket", "Permission denied"];
    assert!(told.iter().all(|words| refused.stderr.contains(words)), "{refused:?}");
}
