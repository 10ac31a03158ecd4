//! The metrics page of a daemon with tenants, as Prometheus' own tool judges it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::support::{Host, skip_unprepared};

#[test]
fn promtool_has_nothing_to_say_about_a_host_with_tenants_and_a_lost_gpu() {
    let Some(promtool) = promtool() else {
        let missing = "promtool is neither in .tools/bin nor on the path (scripts/setup-tests.sh fetches it)";
        return skip_unprepared("promtool_has_nothing_to_say_about_a_host_with_tenants_and_a_lost_gpu", missing);
    };
    let host = Host::start();
    let daemon = host.daemon();
    let tenants = [host.holder("a", &[]), host.holder("b", &["--device", "1"])];
    for tenant in &tenants {
        daemon.sees(&tenant.key());
    }
    daemon.berth(&["deadline", "set", tenants[0].cgroup.path(), "1ms"]).ok();
    daemon.row_where(&tenants[0].key(), |row| row.deadline.is_some());
    assert!(daemon.metrics().contains("berth_tenant_float_seconds{"), "{}", daemon.metrics());
    check(&promtool, &daemon.metrics());
    for tenant in &tenants {
        let page = daemon.metrics();
        let its = page.lines().filter(|line| line.contains(tenant.cgroup.path()) && line.contains("memory_bytes{"));
        assert_eq!(its.count(), 1, "{page}");
    }
    host.fault(&["gpu-lost", "0"]);
    daemon.row_where(&tenants[0].key(), |row| row.state == berth_model::TaskState::Lost);
    check(&promtool, &daemon.metrics());
}

/// Where a scraper cannot open the socket, as in a cluster.
#[test]
fn a_port_for_metrics_answers_with_them_and_with_nothing_else() {
    let host = Host::start();
    let daemon = host.daemon_with("berth", |settings| settings.api.metrics_listen = "127.0.0.1:0".into());
    let log = std::fs::read_to_string(host.file("berth.log")).unwrap();
    let line = log.lines().find(|line| line.contains("may read metrics")).unwrap();
    let address = line.split("address=").nth(1).unwrap().split_whitespace().next().unwrap();
    let ask = |request: &str| {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "{request} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let page = ask("GET /metrics");
    assert!(page.starts_with("HTTP/1.1 200") && page.contains("berth_gpu_memory_size_bytes{"), "{page}");
    for other in ["GET /v1/snapshot", "GET /v1/version", "POST /v1/policy", "POST /v1/release"] {
        assert!(ask(other).starts_with("HTTP/1.1 404"), "{other}");
    }
    assert!(ask("POST /metrics").starts_with("HTTP/1.1 405"));
    assert!(daemon.metrics().contains("berth_gpu_memory_size_bytes{"), "the socket has them as well");
}

fn check(promtool: &PathBuf, page: &str) {
    let mut child = Command::new(promtool)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.trim().is_empty(), "{said}\n{page}");
}

fn promtool() -> Option<PathBuf> {
    let ours = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../.tools/bin/promtool"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|dir| dir.join("promtool"));
    std::iter::once(ours).chain(on_path).find(|candidate| candidate.is_file())
}
