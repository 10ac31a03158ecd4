//! The chart on a real API server: it takes every object, and grants what berth does and nothing beyond.

use serde_json::json;

use crate::render;
use crate::support::{Cluster, VERSION, account, list, until};

#[test]
fn the_api_server_takes_the_chart_and_grants_what_berth_does_and_nothing_beyond() {
    let Some(cluster) = Cluster::start("chart") else { return };
    let objects = render::objects(VERSION, &[("image", json!("registry.example/berth:1"))]);
    let (is_taken, said) = cluster.kubectl(&["apply", "-f", "-"], &list(&objects));
    assert!(is_taken, "{said}");

    let may = |who: &str, verb: &str, what: &str| {
        let who = format!("--as={}", account(&format!("berth-{who}")));
        let (what, part) = what.split_once('/').unwrap_or((what, ""));
        let part = format!("--subresource={part}");
        cluster.kubectl(&["auth", "can-i", verb, what, &part, "--all-namespaces", &who], "").0
    };
    let placer = [
        "list nodes",
        "watch nodes",
        "list gpunodes.berth.dev",
        "watch gpunodes.berth.dev",
        "get pods",
        "list pods",
        "watch pods",
        "patch pods",
        "create pods/binding",
        "create events",
        "patch events",
    ];
    let agent = [
        "list pods",
        "watch pods",
        "create events",
        "create gpunodes.berth.dev",
        "patch gpunodes.berth.dev",
        "patch gpunodes.berth.dev/status",
    ];
    for (who, rights) in [("placer", &placer[..]), ("agent", &agent[..])] {
        for right in rights {
            let (verb, what) = right.split_once(' ').unwrap();
            assert!(may(who, verb, what), "{who} may not {right}");
        }
        for right in [
            "get secrets",
            "create pods",
            "delete pods",
            "patch nodes",
            "create pods/exec",
            "delete gpunodes.berth.dev",
        ] {
            let (verb, what) = right.split_once(' ').unwrap();
            assert!(!may(who, verb, what), "{who} may {right}");
        }
    }
    let in_its_own = |who: &str, verb: &str, lease: &str| {
        let who = format!("--as={}", account(&format!("berth-{who}")));
        cluster.kubectl(&["auth", "can-i", verb, lease, "-n", "berth-system", &who], "").0
    };
    for verb in ["get", "update", "create"] {
        assert!(in_its_own("placer", verb, "leases.coordination.k8s.io/berth-placer"), "{verb}");
        assert!(!in_its_own("agent", verb, "leases.coordination.k8s.io/berth-placer"), "{verb}");
    }
    assert!(!in_its_own("placer", "update", "leases.coordination.k8s.io/another"));
    assert!(!may("placer", "get", "leases.coordination.k8s.io"), "of other namespaces");
    assert!(!may("agent", "create", "pods/binding") && !may("agent", "patch", "pods"));
    assert!(!may("placer", "patch", "gpunodes.berth.dev/status"), "only nodes report");
}

#[test]
fn without_the_placer_the_webhook_keeps_neither_its_pods_nor_the_cluster_s_own_from_being_made() {
    let Some(cluster) = Cluster::start("chart-webhook") else { return };
    let set = [("image", json!("registry.example/berth:1")), ("webhook.failurePolicy", json!("Fail"))];
    let objects = render::objects(VERSION, &set);
    let (is_taken, said) = cluster.kubectl(&["apply", "-f", "-"], &list(&objects));
    assert!(is_taken, "{said}");
    for namespace in ["berth-system", "kube-system"] {
        // As the API server does from 1.21 on.
        let label = json!({"metadata": {"labels": {"kubernetes.io/metadata.name": namespace}}});
        cluster.merge(&format!("/api/v1/namespaces/{namespace}"), &label).unwrap();
    }
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "a-"},
        "spec": {"containers": [{"name": "main", "image": "web:1"}]}});
    let make = |namespace: &str| cluster.create(&format!("/api/v1/namespaces/{namespace}/pods"), &pod);
    // Before 1.28 it is asked for every pod.
    until("the webhook to be known", || make("default").err().filter(|told| told.contains("pods.berth.dev")));
    make("berth-system").unwrap();
    make("kube-system").unwrap();
}
