//! A daemon as the agent of a Kubernetes node, without Docker: names from an API server, holds by the cgroup of the pod's container.
//!
//! The API server here answers two questions and no others: which pods there are, and what happens to them. What a real one says is
//! tested by `make test-kubernetes`.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use berth_model::settings::Mode;
use berth_model::snapshot::HoldStage;
use berth_model::{ContainerId, Runtime, Settings, Source, SourceStatus, Span, TenantKey};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::held::{is_at, is_frozen};
use crate::support::{BERTH, Cgroup, Daemon, Host, run, until};

const ID: &str = "4e3c1c4b8f0a5d6e7f8091a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6";
const UID: &str = "8a6f1c2e-1111-2222-3333-444455556666";

/// Pods as they are listed, and events that are told afterwards.
struct ApiServer {
    kubeconfig: PathBuf,
    told: Arc<Told>,
}

#[derive(Default)]
struct Told {
    events: Mutex<Vec<Value>>,
    changed: Condvar,
    is_away: AtomicBool,
}

impl ApiServer {
    fn start(host: &Host, pods: Vec<Value>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let told = Arc::new(Told::default());
        let telling = Arc::clone(&told);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (pods, told) = (pods.clone(), Arc::clone(&telling));
                // Ends with the daemon, which hangs up.
                std::thread::spawn(move || drop(answer(stream, &pods, &told)));
            }
        });
        let kubeconfig = host.file("kubeconfig");
        let text = json!({"apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": format!("http://{address}")}}],
            "users": [{"name": "test", "user": {}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}]});
        std::fs::write(&kubeconfig, text.to_string()).unwrap();
        Self { kubeconfig, told }
    }

    /// Hangs up on whoever watches, in the middle of a word, and on whoever asks from then on.
    fn goes_away(&self) {
        self.told.is_away.store(true, Ordering::Release);
        self.told.events.lock().unwrap().push(Value::Null);
        self.told.changed.notify_all();
    }

    fn comes_back(&self) {
        self.told.is_away.store(false, Ordering::Release);
    }

    fn tells(&self, kind: &str, pod: &Value) {
        self.told.events.lock().unwrap().push(json!({"type": kind, "object": pod}));
        self.told.changed.notify_all();
    }
}

fn answer(mut stream: TcpStream, pods: &[Value], told: &Told) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    while let Some(first) = lines.next().transpose()? {
        let others = lines.by_ref().map_while(Result::ok).take_while(|line| !line.is_empty());
        others.for_each(drop);
        if told.is_away.load(Ordering::Acquire) {
            return Ok(());
        }
        if !first.contains("/api/v1/pods?") || !first.contains("spec.nodeName%3Dnode-a") {
            stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")?;
        } else if first.contains("watch=true") {
            return watched(&mut stream, told);
        } else {
            let list =
                json!({"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": pods})
                    .to_string();
            let head =
                format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n", list.len());
            stream.write_all((head + &list).as_bytes())?;
        }
    }
    Ok(())
}

fn watched(stream: &mut TcpStream, told: &Told) -> std::io::Result<()> {
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")?;
    let mut next = 0;
    loop {
        let events = told.events.lock().unwrap();
        let mut events = told.changed.wait_while(events, |events| events.len() <= next).unwrap();
        if events[next].is_null() {
            events.clear();
            return stream.write_all(b"10\r\n{");
        }
        let line = format!("{}\n", events[next]);
        next += 1;
        stream.write_all(format!("{:x}\r\n{line}\r\n", line.len()).as_bytes())?;
    }
}

fn pod(annotations: &Value, container: &Value) -> Value {
    let mut main = json!({"name": "main", "image": "solver:3"});
    main.as_object_mut().unwrap().extend(container.as_object().unwrap().clone());
    let status = json!({"name": "main", "containerID": format!("containerd://{ID}"), "image": "solver:3", "imageID": "",
        "ready": true, "restartCount": 0});
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "trainer", "namespace": "team-a", "uid": UID, "resourceVersion": "1", "annotations": annotations},
        "spec": {"nodeName": "node-a", "containers": [main]}, "status": {"containerStatuses": [status]}})
}

fn key() -> TenantKey {
    TenantKey::Container { runtime: Runtime::Containerd, id: ContainerId(ID.into()) }
}

/// Where a node with the cgroupfs driver puts the container.
fn cgroup(test: &str) -> Arc<Cgroup> {
    Arc::new(Cgroup::at(&format!("/berth-e2e-{}-{test}/kubepods/besteffort/pod{UID}/{ID}", std::process::id())))
}

fn agent(host: &Host, api: &ApiServer) -> Daemon {
    host.daemon_with("berth", |settings| as_agent(settings, api))
}

fn as_agent(settings: &mut Settings, api: &ApiServer) {
    // It would be asked if it was there: pods go before it.
    settings.docker.mode = Mode::Auto;
    settings.cluster.node = "node-a".into();
    settings.kubernetes.enabled = true;
    settings.kubernetes.kubeconfig.clone_from(&api.kubeconfig);
}

#[test]
fn a_pod_is_known_by_its_name_and_held_by_its_cgroup_without_docker() {
    let host = Host::start();
    let api = ApiServer::start(&host, vec![pod(&json!({"berth.dev/deadline": "90s"}), &json!({}))]);
    let daemon = agent(&host, &api);
    daemon.source(Source::Kubernetes, |status| *status == SourceStatus::Up);
    daemon.source(Source::Docker, |status| *status == SourceStatus::Off);
    let group = cgroup("named");
    let _tenant = host.tenant_in(&group, &["hold"]);
    // Until it has been told of, it is its user's.
    let row = daemon.row_where(&key(), |row| row.container_name == "team-a/trainer/main");
    assert_eq!(row.owner.as_deref(), Some("team-a"));
    assert_eq!(row.image.as_deref(), Some("solver:3"));
    let deadline = daemon.row_where(&key(), |row| row.deadline.is_some()).deadline.unwrap();
    assert_eq!(deadline.deadline.to_string(), "90s");
    let told = daemon.berth(&["hold", "team-a/trainer/main"]).ok();
    assert_eq!(told, "team-a/trainer/main is held, by freeze\n");
    assert!(is_frozen(group.dir()));
    daemon.berth(&["release", "team-a/trainer/main"]).ok();
    assert!(!is_frozen(group.dir()));
}

#[test]
fn a_held_pod_that_is_deleted_is_let_go_to_take_its_signal() {
    let host = Host::start();
    let trainer = pod(&json!({}), &json!({}));
    let api = ApiServer::start(&host, vec![trainer.clone()]);
    let daemon = agent(&host, &api);
    let group = cgroup("deleted");
    let _tenant = host.tenant_in(&group, &["hold"]);
    daemon.row_where(&key(), |row| row.container_name == "team-a/trainer/main");
    daemon.berth(&["hold", "team-a/trainer/main"]).ok();
    assert!(is_frozen(group.dir()));
    let mut leaving = trainer;
    leaving["metadata"]["deletionTimestamp"] = json!("2026-11-16T04:00:00Z");
    api.tells("MODIFIED", &leaving);
    until("it to be let go", || (!is_frozen(group.dir())).then_some(()));
    let row = daemon.row_where(&key(), |row| is_at(row, HoldStage::Exempt));
    assert!(row.hold.unwrap().reason.contains("SIGTERM"));
}

#[test]
fn a_held_pod_whose_life_is_probed_breathes_before_its_node_would_kill_it() {
    let host = Host::start();
    // Killed after two failures in a row, a second apart: it can stand still for 1.5 s.
    let probe =
        json!({"httpGet": {"path": "/", "port": 80}, "periodSeconds": 1, "timeoutSeconds": 1, "failureThreshold": 2});
    let api = ApiServer::start(&host, vec![pod(&json!({}), &json!({"livenessProbe": probe}))]);
    let daemon = agent(&host, &api);
    let group = cgroup("probed");
    let _tenant = host.tenant_in(&group, &["hold"]);
    daemon.row_where(&key(), |row| row.container_name == "team-a/trainer/main");
    daemon.berth(&["hold", "team-a/trainer/main"]).ok();
    for _ in 0..2 {
        let frozen_at = until("it to be held", || is_frozen(group.dir()).then(std::time::Instant::now));
        until("it to breathe", || (!is_frozen(group.dir())).then_some(()));
        let held = frozen_at.elapsed();
        // Two periods and a half are what a node would bear at most; a busy machine may be late by some, in seeing the freeze too.
        assert!((Duration::from_millis(200)..Duration::from_millis(2_500)).contains(&held), "{held:?}");
    }
    let why = daemon.berth(&["explain", "team-a/trainer/main"]).ok();
    assert!(why.contains("its engine checks that it is alive"), "{why}");
}

#[test]
fn an_api_server_that_was_away_and_has_nothing_new_to_tell_is_shown_as_back() {
    let host = Host::start();
    let api = ApiServer::start(&host, vec![pod(&json!({}), &json!({}))]);
    let daemon = agent(&host, &api);
    daemon.source(Source::Kubernetes, |status| *status == SourceStatus::Up);
    api.goes_away();
    daemon.source(Source::Kubernetes, |status| matches!(status, SourceStatus::Down { .. }));
    api.comes_back();
    daemon.source(Source::Kubernetes, |status| *status == SourceStatus::Up);
}

/// Whose API server knows no `gpunodes`.
#[test]
fn why_a_node_does_not_report_is_told_once() {
    let host = Host::start();
    let api = ApiServer::start(&host, vec![]);
    let (cluster, node) = (host.file("cluster.key"), host.file("node.key"));
    let key = |args: &[&str]| run(Command::new(BERTH).args(["cluster", "key"]).args(args)).ok();
    key(&["new", "--out", cluster.to_str().unwrap()]);
    key(&["node", "node-a", "--cluster-key", cluster.to_str().unwrap(), "--out", node.to_str().unwrap()]);
    let daemon = host.daemon_with("berth", |settings| {
        as_agent(settings, &api);
        settings.cluster.key_file = node;
        settings.cluster.report_every = Span::from_millis(100);
    });
    let log = || std::fs::read_to_string(host.file("berth.log")).unwrap();
    until("several attempts", || (log().matches("the node still does not report").count() > 3).then_some(()));
    assert_eq!(log().matches("the node does not report").count(), 1, "{}", log());
    let told = daemon.berth(&["doctor"]).stdout;
    assert!(told.contains("node node-a at http://127.0.0.1"), "{told}");
}

#[test]
fn an_agent_without_a_key_names_pods_and_says_that_it_does_not_report() {
    let host = Host::start();
    let api = ApiServer::start(&host, vec![]);
    let daemon = host.daemon_with("berth", |settings| {
        as_agent(settings, &api);
        settings.cluster.key_file = host.file("keys").join("node-a");
    });
    daemon.source(Source::Kubernetes, |status| *status == SourceStatus::Up);
    let log = std::fs::read_to_string(host.file("berth.log")).unwrap();
    assert!(log.contains("there is no key: this node does not report to its cluster"), "{log}");
    let told = daemon.berth(&["doctor"]).stdout;
    let line = told.lines().find(|line| line.starts_with("Kubernetes")).unwrap();
    assert!(line.contains("available") && line.contains("it does not report"), "{line}");
}

#[test]
fn whoever_would_start_a_hung_daemon_anew_is_told_whether_it_works() {
    let host = Host::start();
    let mut daemon = host.daemon();
    let alive = |daemon: &Daemon| daemon.berth(&["doctor", "--alive"]);
    assert!(alive(&daemon).ok().starts_with("the daemon works"));
    daemon.signal(Signal::STOP);
    let hung = alive(&daemon);
    assert_eq!(hung.code, 1, "{}", hung.stdout);
    assert!(hung.stderr.contains("did not answer within 5 s"), "{}", hung.stderr);
    daemon.signal(Signal::CONT);
    daemon.stop();
    assert_eq!(alive(&daemon).code, 1);
}
