//! kube-scheduler asks the placer: where pods land, what those are told that do not, and what happens when somebody fails on the way.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use berth_cluster::frame::ClusterKey;
use serde_json::json;

use crate::support::{Binds, Cluster, Facts, Node, Placer, Proxy, Reporter, Scheduler, now_ms, until};

const KEY: [u8; 32] = [7; 32];
/// Reports are written once in most tests: they are to count until the end.
const LASTING: &str = "placer.stale_after=10m";

/// A cluster with a placer and a scheduler that asks it.
struct Stage {
    _scheduler: Scheduler,
    proxy: Proxy,
    placer: Placer,
    reporter: Reporter,
    cluster: Cluster,
}

impl Stage {
    fn start(test: &str, sets: &[&str], binds: Binds) -> Option<Self> {
        let cluster = Cluster::start(test)?;
        let key = ClusterKey::new(KEY);
        let placer = Placer::start(&cluster, &key, sets);
        let proxy = Proxy::start(placer.address, &placer.certificate());
        let _scheduler = Scheduler::start(&cluster, &proxy.extender(), binds);
        Some(Self { _scheduler, proxy, placer, reporter: Reporter::new(key), cluster })
    }

    fn node(&mut self, name: &str, facts: &Facts) -> Node {
        let node = Node::new(name);
        node.join(&self.cluster);
        self.reports(&node, facts);
        node
    }

    fn reports(&mut self, node: &Node, facts: &Facts) {
        let frame = self.reporter.frame(node, facts);
        node.tell(&self.cluster, &frame);
    }

    /// The GPUs that are written on a pod.
    fn chosen(&self, pod: &str) -> String {
        self.cluster.pod(pod)["metadata"]["annotations"]["berth.dev/gpus-chosen"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    /// Waits for a pod to be placed. The scheduler tries again what it could not place when a node changes, and else after a minute or
    /// more; in a cluster that lives some node always does.
    fn placed(&self, pod: &str) -> String {
        self.stirring(&format!("pod {pod} to be placed"), || self.cluster.node_of(pod))
    }

    fn stirring<T>(&self, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        let mut stirred = Instant::now();
        until(what, || {
            if stirred.elapsed() > Duration::from_secs(1) {
                stirred = Instant::now();
                let label = json!({"metadata": {"labels": {"stirred": now_ms().to_string()}}});
                let nodes = self.cluster.get("/api/v1/nodes").unwrap();
                let name = nodes["items"][0]["metadata"]["name"].as_str().unwrap().to_owned();
                self.cluster.merge(&format!("/api/v1/nodes/{name}"), &label).unwrap();
            }
            look()
        })
    }

    /// What a pod that nobody takes is told by the scheduler and by the placer.
    fn refused(&self, pod: &str) -> (String, String) {
        let says = |reason: &str| self.cluster.told_of(pod, reason).pop();
        let told = self
            .stirring(&format!("{pod} to be told why"), || Some((says("FailedScheduling")?, says("NoNodeInTime")?)));
        assert_eq!(self.cluster.node_of(pod), None);
        told
    }
}

#[test]
fn pods_land_where_their_deadline_is_met_and_a_place_is_given_once() {
    let Some(mut stage) = Stage::start("by-the-rule", &[LASTING], Binds::Extender) else { return };
    stage.node("cramped", &Facts::with_free(5));
    stage.node("busy", &Facts::busy(&[(4.0, 3.5)]));
    stage.node("free", &Facts::empty());
    let asks = ["deadline=4s", "takes=3s", "memory=20GiB"];
    stage.cluster.run_pod("first", &asks).unwrap();
    assert_eq!(stage.placed("first"), "free");
    assert_eq!(stage.chosen("first"), "GPU-free");
    // What was placed is not in the report yet, and counts.
    stage.cluster.run_pod("second", &asks).unwrap();
    let (scheduler, berth) = stage.refused("second");
    for why in ["GPU time would be due within", "20.0 GiB is wanted", "what is on its way there takes what is left"] {
        assert!(scheduler.contains(why), "{scheduler}");
    }
    assert!(scheduler.contains("0/3 nodes are available"), "{scheduler}");
    assert!(berth.ends_with("1 reserved, 1 too-little-memory, 1 would-be-late"), "{berth}");
    // One that has time fits beside it.
    stage.cluster.run_pod("patient", &["deadline=60s", "takes=3s", "memory=20GiB"]).unwrap();
    assert_ne!(stage.placed("patient"), "cramped");
    // Who wants nothing of berth is none of its business.
    stage.cluster.create("/api/v1/namespaces/default/pods", &plain_pod("plain")).unwrap();
    stage.placed("plain");
}

#[test]
fn a_deadline_that_no_node_can_meet_is_refused_with_the_reason_until_one_can() {
    let Some(mut stage) = Stage::start("refused", &[LASTING], Binds::Itself) else { return };
    let node = stage.node("only", &Facts::busy(&[(10.0, 9.5)]));
    stage.cluster.run_pod("eager", &["deadline=10s", "takes=5s"]).unwrap();
    let (scheduler, berth) = stage.refused("eager");
    assert!(scheduler.contains("s of GPU time would be due within"), "{scheduler}");
    assert!(berth.contains("would-be-late"), "{berth}");
    stage.cluster.run_pod("hopeless", &["deadline=1s", "takes=5s"]).unwrap();
    assert!(stage.refused("hopeless").0.contains("alone it would take"), "{:?}", stage.refused("hopeless"));
    stage.reports(&node, &Facts::empty());
    // No node and no pod changes: the placer has it tried again.
    let placed = until("eager to be tried again", || stage.cluster.node_of("eager"));
    assert_eq!((placed.as_str(), stage.cluster.node_of("hopeless")), ("only", None));
}

#[test]
fn a_pod_that_waits_is_to_be_tried_again_also_by_a_placer_that_was_not_there_when_it_was_refused() {
    let Some(mut stage) = Stage::start("waits-on", &[LASTING], Binds::Extender) else { return };
    let node = stage.node("only", &Facts::with_free(5));
    stage.cluster.run_pod("large", &["memory=20GiB"]).unwrap();
    stage.refused("large");
    let Stage { cluster, mut placer, mut reporter, proxy: _proxy, _scheduler: scheduler } = stage;
    // It asks about the pod no more: nobody tells of it but the API server.
    drop(scheduler);
    placer.kill();
    placer.start_again();
    let touched = || cluster.pod("large")["metadata"]["annotations"]["berth.dev/try-again"].as_str().map(str::to_owned);
    assert_eq!(touched(), None, "no node takes it");
    node.tell(&cluster, &reporter.frame(&node, &Facts::empty()));
    until("it to be touched", touched);
}

#[test]
fn a_refused_pod_of_a_higher_priority_evicts_nobody_and_others_are_scheduled_all_the_same() {
    let Some(mut stage) = Stage::start("priority", &[LASTING], Binds::Extender) else { return };
    for name in ["one", "two"] {
        stage.node(name, &Facts::empty());
        stage.cluster.run_pod(&format!("low-{name}"), &["memory=50GiB"]).unwrap();
        assert_eq!(stage.placed(&format!("low-{name}")), name);
    }
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000});
    stage.cluster.create("/apis/scheduling.k8s.io/v1/priorityclasses", &class).unwrap();
    let mut high = plain_pod("high");
    high["metadata"]["annotations"] = json!({"berth.dev/memory": "500Gi"});
    high["spec"]["priorityClassName"] = "high".into();
    high["spec"]["containers"][0]["resources"] = json!({"limits": {"berth.dev/gpu": "1"}});
    // The API server knows a class a moment after it was made.
    until("the class to be known", || stage.cluster.create("/api/v1/namespaces/default/pods", &high).ok());
    let (scheduler, _) = stage.refused("high");
    assert!(scheduler.contains("500 GiB is wanted"), "{scheduler}");
    stage.cluster.create("/api/v1/namespaces/default/pods", &plain_pod("after")).unwrap();
    stage.placed("after");
    assert_eq!((stage.placed("low-one"), stage.placed("low-two")), ("one".to_owned(), "two".to_owned()));
}

#[test]
fn annotations_that_cannot_be_read_are_refused_in_words() {
    let Some(stage) = Stage::start("webhook", &[LASTING], Binds::Itself) else { return };
    stage.placer.review_pods(&stage.cluster);
    let refused = |asks: &[&str]| {
        let name = format!("bad-{}", now_ms());
        until("the webhook to be asked", || stage.cluster.run_pod(&name, asks).err())
    };
    for (asks, words) in [
        (["deadline=soon"], ["berth.dev/deadline", "soon"]),
        (["memory=lots"], ["berth.dev/memory", "lots"]),
        (["unit=week"], ["berth.dev/unit", "week"]),
        (["gpus=0"], ["berth.dev/gpus", "0"]),
    ] {
        let message = refused(&asks);
        assert!(words.iter().all(|word| message.contains(word)), "{message}");
    }
    stage.cluster.run_pod("good", &["deadline=9s"]).unwrap();
    let patch = json!({"metadata": {"annotations": {"berth.dev/deadline": "never"}}});
    let message = stage.cluster.merge("/api/v1/namespaces/default/pods/good", &patch).unwrap_err();
    assert!(message.contains("never"), "{message}");
}

#[test]
fn without_the_placer_scheduling_goes_on() {
    let Some(mut stage) = Stage::start("without", &[LASTING], Binds::Itself) else { return };
    stage.node("one", &Facts::empty());
    stage.placer.kill();
    stage.cluster.run_pod("left-alone", &["deadline=4s", "takes=1s"]).unwrap();
    assert_eq!(stage.placed("left-alone"), "one");
    stage.placer.start_again();
    // Its GPUs are chosen late.
    stage.stirring("its GPU", || (stage.chosen("left-alone") == "GPU-one").then_some(()));
    // What was bound without it counts: there is room for one more of these, not for two.
    let asks = ["deadline=4s", "takes=3s"];
    stage.cluster.run_pod("after", &asks).unwrap();
    assert_eq!(stage.placed("after"), "one");
    stage.cluster.run_pod("too-many", &asks).unwrap();
    stage.refused("too-many");
}

#[test]
fn only_fresh_reports_of_the_node_itself_are_believed() {
    let Some(mut stage) = Stage::start("forged", &["placer.stale_after=20s"], Binds::Itself) else { return };
    let (empty, minute) = (Facts::empty(), 60_000);
    let frame_of = |stage: &mut Stage, node: &str| {
        let frame = stage.reporter.frame(&Node::new(node), &empty);
        Node::new(node).join(&stage.cluster);
        frame
    };
    let mut stranger = Reporter::new(ClusterKey::new([8; 32]));
    let other = frame_of(&mut stage, "forged");
    Node::new("forged").tell(&stage.cluster, &stranger.frame(&Node::new("forged"), &empty));
    let mut truncated = frame_of(&mut stage, "truncated");
    truncated.truncate(truncated.len() / 2);
    Node::new("truncated").tell(&stage.cluster, &truncated);
    frame_of(&mut stage, "of-another");
    Node::new("of-another").tell(&stage.cluster, &other);
    for (name, at_ms) in [("stale", now_ms() - minute), ("future", now_ms() + minute)] {
        frame_of(&mut stage, name);
        let frame = stage.reporter.frame_at(&Node::new(name), &empty, at_ms);
        Node::new(name).tell(&stage.cluster, &frame);
    }
    frame_of(&mut stage, "silent");
    for number in 0..4 {
        stage.cluster.run_pod(&format!("pod-{number}"), &["deadline=100s", "takes=1s"]).unwrap();
    }
    let (_, berth) = stage.refused("pod-3");
    assert!(berth.contains("6 no-report"), "{berth}");
    // The one that can be believed gets them all, and only while it can: then it has fallen silent too.
    stage.node("true", &empty);
    for number in 0..4 {
        assert_eq!(stage.placed(&format!("pod-{number}")), "true");
    }
    let told = stage.stirring("its report to be stale", || {
        let name = format!("late-{}", now_ms());
        stage.cluster.run_pod(&name, &["deadline=100s", "takes=1s"]).unwrap();
        let told = stage.stirring("it to be placed or refused", || {
            let told = stage.cluster.told_of(&name, "NoNodeInTime").pop();
            told.or_else(|| stage.cluster.node_of(&name).map(|node| format!("placed on {node}")))
        });
        // There is room for a bounded number.
        stage.cluster.delete(&format!("/api/v1/namespaces/default/pods/{name}"));
        (told != "placed on true").then_some(told)
    });
    assert!(told.contains("6 no-report, 1 stale"), "{told}");
}

#[test]
fn an_answer_that_is_lost_binds_nothing_twice() {
    let Some(mut stage) = Stage::start("lost-answers", &[LASTING], Binds::Extender) else { return };
    stage.node("one", &Facts::with_free(50));
    stage.node("two", &Facts::with_free(50));
    // Each binding is done, and the scheduler does not hear of the first three.
    stage.proxy.lose("/extender/bind", 3);
    let names: Vec<_> = (0..5).map(|number| format!("pod-{number}")).collect();
    for name in &names {
        stage.cluster.run_pod(name, &["memory=20GiB"]).unwrap();
    }
    let placed = stage.stirring("four pods to be placed", || {
        let placed: Vec<_> = names.iter().filter_map(|name| Some((name, stage.cluster.node_of(name)?))).collect();
        (placed.len() == 4).then_some(placed)
    });
    for (name, node) in &placed {
        assert_eq!(stage.chosen(name), format!("GPU-{node}"), "{name}");
    }
    assert_eq!(counts(placed.into_iter().map(|(_, node)| node)), [("one".to_owned(), 2), ("two".to_owned(), 2)].into());
    let left = names.iter().find(|name| stage.cluster.node_of(name).is_none()).unwrap();
    stage.refused(left);
}

#[test]
fn a_placer_that_is_killed_over_and_over_gives_no_place_twice() {
    let Some(mut stage) = Stage::start("killed", &[LASTING], Binds::Extender) else { return };
    for name in ["one", "two", "three"] {
        stage.node(name, &Facts::empty());
    }
    // Four of them fit on a node.
    let names: Vec<_> = (0..14).map(|number| format!("pod-{number:02}")).collect();
    for name in &names {
        stage.cluster.run_pod(name, &["memory=20GiB"]).unwrap();
    }
    let placed = |stage: &Stage| -> Vec<String> {
        let pods = stage.cluster.get("/api/v1/namespaces/default/pods").unwrap();
        let nodes = pods["items"].as_array().unwrap().iter().map(|pod| pod["spec"]["nodeName"].as_str());
        nodes.flatten().map(str::to_owned).collect()
    };
    let begun = Instant::now();
    for after in [3, 6, 9, 11] {
        stage.stirring("some to be placed", || (placed(&stage).len() >= after).then_some(()));
        stage.placer.kill();
        stage.placer.start_again();
    }
    stage.stirring("twelve to be placed", || (placed(&stage).len() >= 12).then_some(()));
    let of_each = counts(placed(&stage).into_iter());
    assert!(of_each.values().all(|count| *count == 4), "{of_each:?} after {:?}", begun.elapsed());
    let left: Vec<_> = names.iter().filter(|name| stage.cluster.node_of(name).is_none()).collect();
    for name in left {
        stage.refused(name);
    }
    assert_eq!(placed(&stage).len(), 12, "and it stays so");
}

fn counts(nodes: impl Iterator<Item = String>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    nodes.for_each(|node| *counts.entry(node).or_default() += 1);
    counts
}

fn plain_pod(name: &str) -> serde_json::Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "main", "image": "web:1"}]}})
}
