//! A node's agent and a real API server: what it learns of pods, and what it writes.

use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use berth_cluster::frame::{ClusterKey, Fresh, decode_report};
use berth_cluster::kubernetes::agent::{Agent, Choices, Options, Reporting, config};
use berth_cluster::kubernetes::gpunode;
use berth_cluster::kubernetes::placement_of;
use berth_host::clock;
use berth_model::hold::{Means, Signal};
use berth_model::{Change, ContainerFacts, ContainerId, Event, Mono, Runtime, Source, SourceStatus, TenantKey};
use serde_json::{Value, json};

use crate::support::{Cluster, Facts, Node, Reporter, until};

const KEY: [u8; 32] = [7; 32];
const PATIENCE: Duration = Duration::from_secs(30);

fn started(cluster: &Cluster, reporting: Option<Reporting>) -> (Agent, Receiver<Event>) {
    let config = config(&cluster.kubeconfig_of("berth-agent")).unwrap();
    let (event_tx, event_rx) = mpsc::channel();
    let options =
        Options { node: "node-a".parse().unwrap(), config, now: clock::now, choices: Choices::default(), reporting };
    (Agent::start(options, event_tx).unwrap(), event_rx)
}

/// A pod on `node` whose container has this id.
fn runs(cluster: &Cluster, name: &str, node: &str, id: &str) {
    let annotations = json!({"berth.dev/deadline": "9s"});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": annotations},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "solver:3"}]}});
    cluster.create("/api/v1/namespaces/default/pods", &pod).unwrap();
    container_is(cluster, name, id);
}

/// As its kubelet would write.
fn container_is(cluster: &Cluster, name: &str, id: &str) {
    let running = json!({"running": {"startedAt": "2026-11-16T04:00:00Z"}});
    let status = json!({"name": "main", "containerID": format!("containerd://{id}"), "image": "solver:3", "imageID": "x",
        "ready": true, "restartCount": 0, "state": running});
    let patch = json!({"status": {"phase": "Running", "containerStatuses": [status]}});
    cluster.merge(&format!("/api/v1/namespaces/default/pods/{name}/status"), &patch).unwrap();
}

/// The next description, everything before it being read over.
fn described(events: &Receiver<Event>) -> ContainerFacts {
    loop {
        if let Event::Container(facts) = events.recv_timeout(PATIENCE).unwrap() {
            return *facts;
        }
    }
}

fn wait_for(events: &Receiver<Event>, wanted: &Event) {
    while events.recv_timeout(PATIENCE).unwrap() != *wanted {}
}

#[test]
fn a_node_learns_of_its_pods_and_of_no_others() {
    let Some(cluster) = Cluster::start("agent-names") else { return };
    let (one, other, second) = ("a".repeat(64), "b".repeat(64), "c".repeat(64));
    runs(&cluster, "before", "node-a", &one);
    runs(&cluster, "elsewhere", "node-b", &other);
    let (agent, events) = started(&cluster, None);
    let facts = described(&events);
    assert_eq!((facts.name.as_str(), facts.owner.as_deref()), ("default/before/main", Some("default")));
    assert_eq!(facts.id.0, one);
    assert_eq!(facts.labels["berth.deadline"], "9s");
    let uid = cluster.pod("before")["metadata"]["uid"].as_str().unwrap().to_owned();
    assert_eq!(facts.labels["berth.placement"], placement_of(&uid).to_string());
    wait_for(&events, &Event::Source { source: Source::Kubernetes, status: SourceStatus::Up });

    runs(&cluster, "after", "node-a", &second);
    assert_eq!(described(&events).name, "default/after/main", "and nothing of the one elsewhere in between");
    assert!(agent.describe(ContainerId(one.clone())));
    assert_eq!(described(&events).name, "default/before/main", "who asks is told again");
    assert!(agent.describe(ContainerId("nobody".into())));
    wait_for(&events, &Event::ContainerGone { id: ContainerId("nobody".into()) });

    let path = "/api/v1/namespaces/default/pods/before";
    cluster.delete_within(path, 30);
    match events.recv_timeout(PATIENCE).unwrap() {
        Event::Signalled { id, signal, .. } => assert_eq!((id.0.as_str(), signal), (one.as_str(), Some(Signal::TERM))),
        other => panic!("a pod that is being deleted is to take its signal, not {other:?}"),
    }
    cluster.delete(path);
    wait_for(&events, &Event::ContainerGone { id: ContainerId(one) });
    container_is(&cluster, "after", &"d".repeat(64));
    wait_for(&events, &Event::ContainerGone { id: ContainerId(second) });
    assert_eq!(described(&events).id.0, "d".repeat(64), "its container was made anew");
}

#[test]
fn an_api_server_that_goes_away_and_comes_back_takes_no_name_with_it() {
    let Some(cluster) = Cluster::start("agent-away") else { return };
    runs(&cluster, "before", "node-a", &"a".repeat(64));
    let (_agent, events) = started(&cluster, None);
    described(&events);
    cluster.stop_api_server();
    let is_down = |event: &Event| {
        matches!(event, Event::Source { source: Source::Kubernetes, status: SourceStatus::Down { .. } })
    };
    while !is_down(&events.recv_timeout(PATIENCE * 4).unwrap()) {}
    cluster.start_api_server();
    wait_for(&events, &Event::Source { source: Source::Kubernetes, status: SourceStatus::Up });
    runs(&cluster, "after", "node-a", &"b".repeat(64));
    assert_eq!(described(&events).name, "default/after/main");
}

#[test]
fn a_node_s_report_is_in_its_status_signed_and_written_anew_when_it_changes() {
    let Some(cluster) = Cluster::start("agent-status") else { return };
    let key = ClusterKey::new(KEY);
    let node = Node::new("node-a");
    let (facts_tx, facts) = std::sync::mpsc::sync_channel::<Facts>(1);
    let reports = std::sync::Mutex::new((Reporter::new(key.clone()), Facts::empty(), facts));
    let reporting = Reporting {
        key: key.node(&"node-a".parse().unwrap()),
        report: Box::new(move || {
            let mut reports = reports.lock().unwrap();
            if let Ok(facts) = reports.2.try_recv() {
                reports.1 = facts;
            }
            let (reporter, facts, _) = &mut *reports;
            Some(reporter.report(&Node::new("node-a"), facts))
        }),
        pasts: Box::new(Vec::new),
        every: Duration::from_millis(100),
    };
    let (_agent, _events) = started(&cluster, Some(reporting));
    let path = format!("/apis/berth.dev/v1alpha1/gpunodes/{}", node.name);
    let version = |object: &Value| object["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let written = until("a report", || cluster.get(&path).filter(|object| object["status"]["frame"].is_string()));
    let status: gpunode::Status = serde_json::from_value(written["status"].clone()).unwrap();
    let id = "node-a".parse().unwrap();
    let now_ms = crate::support::now_ms();
    let fresh = Fresh::Unasked { now_ms, stale_after: PATIENCE, last: None };
    let told = decode_report(&status.frame_bytes().unwrap(), &id, &key.node(&id), &fresh).unwrap();
    assert_eq!(told.what.gpus[0].uuid.0, "GPU-node-a");
    // Ten looks later nothing new has been said, so nothing was written.
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(version(&cluster.get(&path).unwrap()), version(&written));
    facts_tx.send(Facts::with_free(20)).unwrap();
    let freed = until("the change", || cluster.get(&path).filter(|object| version(object) != version(&written)));
    assert_eq!(freed["status"]["memoryFree"], "20.0 GiB");
    cluster.delete(&path);
    facts_tx.send(Facts::with_free(30)).unwrap();
    until("it to be made anew", || cluster.get(&path).filter(|object| object["status"]["memoryFree"] == "30.0 GiB"));
}

#[test]
fn a_pod_is_told_that_it_is_held() {
    let Some(cluster) = Cluster::start("agent-events") else { return };
    let id = "a".repeat(64);
    runs(&cluster, "trainer", "node-a", &id);
    let (agent, events) = started(&cluster, None);
    described(&events);
    let held = Change::TenantHeld {
        tenant: TenantKey::Container { runtime: Runtime::Containerd, id: ContainerId(id) },
        name: "default/trainer/main".into(),
        means: Means::Gate,
        by_uid: None,
        reason: "`default/other/main` computes".into(),
        at: Mono(0),
    };
    let teller = agent.teller().unwrap();
    teller.tell(&[held.clone(), held.clone()]);
    teller.tell(&[held]);
    let told = until("an event", || Some(cluster.told_of("trainer", "Held")).filter(|told| !told.is_empty()));
    assert_eq!(told, ["waits for the GPU, held by gate: `default/other/main` computes"]);
}
