//! 5,000 nodes: what the scheduler waits for the placer, call by call.

use std::time::Duration;

use berth_cluster::frame::ClusterKey;
use serde_json::{Value, json};

use crate::support::{Binds, Call, Cluster, Facts, Node, Placer, Proxy, Reporter, Scheduler, status, until_within};

const NODES: usize = 5_000;
const PODS: usize = 200;
const GOAL: Duration = Duration::from_millis(50);

#[test]
fn of_5000_nodes_filter_and_prioritize_take_50_ms_at_p99() {
    let Some(cluster) = Cluster::start("scale") else { return };
    let key = ClusterKey::new([7; 32]);
    let mut reporter = Reporter::new(key.clone());
    let nodes: Vec<_> = (0..NODES).map(|number| Node::new(&format!("node-{number:04}"))).collect();
    join(&cluster, &nodes);
    let statuses = nodes.iter().enumerate().map(|(number, node)| {
        let frame = reporter.frame(node, &facts(number));
        (node.status_path(), status(&frame))
    });
    cluster.merge_all(statuses.collect());
    let placer = Placer::start(&cluster, &key, &["placer.stale_after=30m"]);
    let proxy = Proxy::start(placer.address, &placer.certificate());
    let _scheduler = Scheduler::start(&cluster, &proxy.extender(), Binds::Itself);
    for number in 0..PODS {
        let deadline = format!("deadline={}s", 5 + number % 20);
        cluster.run_pod(&format!("pod-{number:03}"), &[&deadline, "takes=2s", "memory=10GiB"]).unwrap();
    }
    let is_placed = |pod: &Value| pod["spec"]["nodeName"].is_string();
    until_within(Duration::from_secs(240), "all pods to be placed", || {
        let pods = cluster.get("/api/v1/namespaces/default/pods").unwrap();
        let pods = pods["items"].as_array().unwrap().clone();
        (pods.iter().filter(|pod| is_placed(pod)).count() == PODS).then_some(())
    });
    report(&proxy.calls());
}

/// Some are full, some are busy, some are free: as a cluster is.
fn facts(number: usize) -> Facts {
    let loads = [(4.0, 1.0), (9.0, 2.0), (20.0, 3.0)];
    Facts { memory_free_gib: [2, 20, 40, 80][number % 4], ..Facts::busy(&loads[..number % 3]) }
}

fn join(cluster: &Cluster, nodes: &[Node]) {
    cluster.create_all(nodes.iter().map(|node| ("/api/v1/nodes".to_owned(), node.object())).collect());
    cluster.merge_all(nodes.iter().map(|node| (node.path(), json!({"spec": {"taints": null}}))).collect());
    let path = "/apis/berth.dev/v1alpha1/gpunodes";
    cluster.create_all(nodes.iter().map(|node| (path.to_owned(), node.gpu_node())).collect());
}

/// Filter and prioritize follow each other for one pod: their sum is what a pod waits for.
fn report(calls: &[Call]) {
    let of = |path: &str| -> Vec<Duration> {
        let calls = calls.iter().filter(|call| call.path.ends_with(path));
        calls.map(|call| call.took).collect()
    };
    let (filter, prioritize) = (of("/filter"), of("/prioritize"));
    assert!(calls.iter().all(|call| call.status == 200), "{calls:?}");
    assert!(filter.len() >= PODS && prioritize.len() >= PODS, "{} and {}", filter.len(), prioritize.len());
    let both = both(calls);
    assert!(both.len() >= PODS, "{}", both.len());
    for (name, times) in [("filter", &filter), ("prioritize", &prioritize), ("filter + prioritize", &both)] {
        let [p50, p99, most] = [0.5, 0.99, 1.0].map(|share| quantile(times, share).as_secs_f64() * 1e3);
        println!(
            "{NODES} nodes, {name}: {} calls, p50 {p50:.1} ms, p99 {p99:.1} ms, at most {most:.1} ms",
            times.len()
        );
    }
    assert!(quantile(&both, 0.99) <= GOAL, "filter + prioritize take {:?} at p99", quantile(&both, 0.99));
}

/// The scheduler decides about one pod after the other: who is prioritized was filtered just before. Of one that has one node left or none it is
/// not asked which is best.
fn both(calls: &[Call]) -> Vec<Duration> {
    let questions: Vec<&Call> = calls.iter().filter(|call| !call.path.ends_with("/bind")).collect();
    let pairs = questions.windows(2).filter(|pair| pair[1].path.ends_with("/prioritize"));
    let took = |pair: &[&Call]| {
        assert!(pair[0].path.ends_with("/filter") && pair[0].pod == pair[1].pod, "{pair:?}");
        pair[0].took + pair[1].took
    };
    pairs.map(took).collect()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a few hundred calls"
)]
fn quantile(times: &[Duration], share: f64) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort();
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted[rank.saturating_sub(1)]
}
