//! Two placers on one API server: at any time one acts at most, and who asks is told by name to be allowed.

use std::time::{Duration, Instant};

use berth_cluster::frame::ClusterKey;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::json;

use crate::support::{Cluster, Facts, Node, Placer, Reporter, Scheduler, until};

const KEY: [u8; 32] = [7; 32];
const LASTING: [&str; 1] = ["placer.stale_after=10m"];

/// A node with room for one of these, and pods that want it.
fn scarce(cluster: &Cluster, pods: &[&str]) {
    let node = Node::new("one");
    node.join(cluster);
    let frame = Reporter::new(ClusterKey::new(KEY)).frame(&node, &Facts::with_free(30));
    node.tell(cluster, &frame);
    for pod in pods {
        cluster.run_pod(pod, &["memory=20GiB"]).unwrap();
    }
}

/// Until it is asked no more for want of a report.
fn knows(placer: &Placer) {
    until("the report to be known", || placer.asked("/v1/nodes", None).1.contains("GPU-one").then_some(()));
}

#[test]
fn of_two_placers_one_acts_and_the_other_when_it_is_gone() {
    let Some(cluster) = Cluster::start("two-placers") else { return };
    let key = ClusterKey::new(KEY);
    scarce(&cluster, &["first", "second", "third"]);
    let mut one = Placer::start(&cluster, &key, &LASTING);
    let mut other = Placer::beside(&cluster, &key, &LASTING);
    let waits = |placer: &Placer| {
        let (status, why) = placer.asked("/readyz", None);
        (status == 503 && why.contains("places for this cluster")).then_some(why)
    };
    until("the other to wait", || waits(&other));
    let refused = other.binds(&cluster, "first", "one");
    assert!(refused.contains("this placer does not place"), "{refused}");
    assert_eq!(cluster.node_of("first"), None);
    knows(&one);
    assert_eq!(one.binds(&cluster, "first", "one"), "");
    assert_eq!(cluster.node_of("first").as_deref(), Some("one"));

    one.kill();
    let killed = Instant::now();
    until("the other to take over", || other.is_ready().then_some(()));
    println!("a placer that was killed is replaced after {:.1?}", killed.elapsed());
    let refused = other.binds(&cluster, "second", "one");
    assert!(refused.contains("20.0 GiB is wanted") || refused.contains("on its way"), "{refused}");
    // The first comes back, and waits for its turn.
    one.comes_back();
    until("the first to wait", || waits(&one));
    assert!(other.is_ready() && other.is_running());
}

#[test]
fn a_placer_that_is_stopped_says_so_first_and_gives_its_lease_up() {
    let Some(cluster) = Cluster::start("drained") else { return };
    let key = ClusterKey::new(KEY);
    scarce(&cluster, &["first", "second"]);
    let mut one = Placer::start(&cluster, &key, &LASTING);
    let other = Placer::beside(&cluster, &key, &LASTING);
    knows(&one);
    one.asks_to_stop();
    until("it to say so", || one.asked("/readyz", None).1.contains("stopping").then_some(()));
    // Who has not heard of it yet is answered.
    assert_eq!(one.binds(&cluster, "first", "one"), "");
    assert!(!other.is_ready(), "two at once");
    until("it to end", || (!one.is_running()).then_some(()));
    let ended = Instant::now();
    until("the other to take over", || other.is_ready().then_some(()));
    assert!(ended.elapsed() < Duration::from_secs(8), "it waited for the lease to be over: {:?}", ended.elapsed());
    let lease = cluster.get("/apis/coordination.k8s.io/v1/namespaces/berth-system/leases/berth-placer").unwrap();
    assert!(lease["spec"]["holderIdentity"].as_str().unwrap().contains("other/placer.sock"), "{lease}");
}

#[test]
fn a_placer_that_cannot_renew_its_lease_stops_placing_until_it_can() {
    let Some(cluster) = Cluster::start("cut-off") else { return };
    scarce(&cluster, &["first"]);
    let mut placer = Placer::start(&cluster, &ClusterKey::new(KEY), &LASTING);
    knows(&placer);
    cluster.stop_api_server();
    until("it to stop", || placer.asked("/readyz", None).1.contains("could not renew its lease").then_some(()));
    cluster.start_api_server();
    until("it to place again", || placer.is_ready().then_some(()));
    assert_eq!(placer.binds(&cluster, "first", "one"), "");
    assert!(placer.is_running());
}

#[test]
fn nobody_but_the_placer_writes_which_gpus_were_chosen() {
    let Some(cluster) = Cluster::start("chosen") else { return };
    let placer = Placer::start(&cluster, &ClusterKey::new(KEY), &LASTING);
    placer.review_pods(&cluster);
    scarce(&cluster, &["first"]);
    knows(&placer);
    let path = "/api/v1/namespaces/default/pods/first";
    let write =
        |gpus: &str| cluster.merge(path, &json!({"metadata": {"annotations": {"berth.dev/gpus-chosen": gpus}}}));
    until("the webhook to be asked", || write("GPU-other").err().filter(|told| told.contains("the placer writes it")));
    assert_eq!(placer.binds(&cluster, "first", "one"), "");
    assert_eq!(cluster.pod("first")["metadata"]["annotations"]["berth.dev/gpus-chosen"], "GPU-one");
    write("GPU-other").unwrap_err();
    // The rest of it is its owner's to change.
    cluster.merge(path, &json!({"metadata": {"labels": {"a": "b"}}})).unwrap();
}

#[test]
fn a_scheduler_that_shows_its_certificate_has_pods_placed_and_nobody_else_has() {
    let Some(cluster) = Cluster::start("known") else { return };
    let dir = cluster.dir().to_owned();
    let (ca, certificate, key) = (dir.join("clients.crt"), dir.join("scheduler.crt"), dir.join("scheduler.key"));
    let (ca_key, own) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let mut signer = CertificateParams::new(vec![]).unwrap();
    signer.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    std::fs::write(&ca, signer.self_signed(&ca_key).unwrap().pem()).unwrap();
    let scheduler = CertificateParams::new(vec!["kube-scheduler".to_owned()]).unwrap();
    let signed = scheduler.signed_by(&own, &Issuer::new(signer, ca_key)).unwrap();
    std::fs::write(&certificate, signed.pem()).unwrap();
    std::fs::write(&key, own.serialize_pem()).unwrap();

    let clients = format!("placer.client_ca={}", ca.display());
    let placer = Placer::start(&cluster, &ClusterKey::new(KEY), &[LASTING[0], &clients]);
    let _scheduler = Scheduler::start_known(&cluster, &placer, &certificate, &key);
    scarce(&cluster, &["first"]);
    assert_eq!(until("it to be placed", || cluster.node_of("first")), "one");
    assert_eq!(cluster.pod("first")["metadata"]["annotations"]["berth.dev/gpus-chosen"], "GPU-one");
    let args = json!({"PodName": "first", "PodNamespace": "default", "PodUID": "x", "Node": "one"});
    let (status, told) = placer.asked("/extender/bind", Some(&args));
    assert_eq!((status, told.contains("placer.client_ca")), (403, true), "{told}");
    // Who is not to place may still look, and what the scheduler has asked is counted.
    let metrics = placer.asked("/metrics", None).1;
    for line in [r#"placements_total{outcome="placed"} 1"#, r#"questions_total{outcome="report"} 1"#] {
        assert!(metrics.contains(line), "{metrics}");
    }
}
