//! Figures over time and what owners say: kept across a daemon that is killed, and told to nobody whom they do not concern.

use serde_json::Value;

use crate::support::{Daemon, Host, Nobody, run, until};

fn series(daemon: &Daemon, args: &[&str]) -> Vec<Value> {
    let told: Value = serde_json::from_str(&daemon.berth(&[&["series", "--json"], args].concat()).ok()).unwrap();
    told["lines"].as_array().unwrap().clone()
}

fn has(lines: &[Value], metric: &str) -> bool {
    lines.iter().any(|line| line["metric"] == metric)
}

#[test]
fn what_is_measured_and_said_outlives_a_daemon_that_is_killed() {
    let host = Host::start();
    let mut daemon = host.daemon();
    let tenant = host.holder("measured", &[]);
    daemon.sees(&tenant.key());
    let name = tenant.cgroup.path();
    let said = daemon.berth(&["feedback", name, "slow"]).ok();
    assert!(said.contains("slow, heard"), "{said}");
    let before = until("its figures on disk", || {
        let lines = series(&daemon, &[name]);
        (has(&lines, "memory_bytes") && has(&lines, "feedback")).then_some(lines)
    });
    assert!(before.iter().all(|line| line["of"]["name"] == name), "{before:?}");
    daemon.kill();
    assert!(has(&series(&daemon, &[name]), "feedback"), "its files tell the same without it");
    let daemon = host.daemon();
    let after = series(&daemon, &[name, "--metric", "feedback"]);
    assert_eq!(after[0]["values"][0]["sum"], -0.75, "{after:?}");
    let table = daemon.berth(&["series"]).ok();
    assert!(table.contains(name) && table.contains("memory_bytes"), "{table}");
    let refused = daemon.berth(&["feedback", name, "awful"]);
    assert!(refused.code == 2 && refused.stderr.contains("uneven"), "{refused:?}");
}

#[test]
fn who_may_ask_the_daemon_is_told_of_no_one_else_s_figures() {
    let host = Host::start();
    let nobody = Nobody::on(&host);
    let daemon = host.daemon_with("berth", |settings| settings.api.socket_mode = "0666".into());
    let tenant = host.holder("private", &[]);
    daemon.sees(&tenant.key());
    let name = tenant.cgroup.path();
    until("its figures on disk", || has(&series(&daemon, &[name]), "memory_bytes").then_some(()));
    let socket = daemon.settings.api.socket.display().to_string();
    let asked = |args: &[&str]| run(&mut nobody.berth(&[&["--socket", &socket], args].concat()));
    for args in [&["series", "--json"][..], &["series", name, "--json"]] {
        let told: Value = serde_json::from_str(&asked(args).ok()).unwrap();
        let is_gpu = |line: &Value| line["of"]["of"] == "gpu";
        assert!(told["lines"].as_array().unwrap().iter().all(is_gpu), "{told}");
    }
    let refused = asked(&["feedback", name, "stuck"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (4, ""), "{refused:?}");
    assert!(refused.stderr.contains("only its owner and root"), "{refused:?}");
    assert!(!has(&series(&daemon, &[name]), "feedback"), "and it was not heard");
}
