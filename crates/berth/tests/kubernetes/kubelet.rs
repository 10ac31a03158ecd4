//! A real kubelet, a real scheduler and a real agent: from a pod that is made to its work on a GPU, its holds and its end.

use berth_cluster::frame::ClusterKey;
use serde_json::Value;

use crate::support::kubelet::{computing, container_id, freezer, stands_still};
use crate::support::{Binds, Cluster, Kubelet, NAMESPACE, NodeAgent, Placer, Proxy, Scheduler, Sim, until};

const NODE: &str = "node-a";
const KEY: [u8; 32] = [7; 32];
/// Of an H200's 141 GiB: one of them fits on a GPU.
const LARGE: &str = "memory=100Gi";
/// It computes until it is ended.
const FOREVER: [&str; 4] = ["--size", "4096", "--repeats", "forever"];
/// It does not ask for the GPU as long as a test lasts.
const NEVER: [&str; 2] = ["--host-time", "1h"];
/// Of each of the two GPUs.
const SHARES: u16 = 4;

type StartAgent = fn(&Cluster, &ClusterKey, &str, &Kubelet, &Sim, u16) -> NodeAgent;

/// All there is, in the order in which it ends.
struct Stage {
    _scheduler: Scheduler,
    _proxy: Proxy,
    placer: Placer,
    agent: NodeAgent,
    kubelet: Kubelet,
    sim: Sim,
    cluster: Cluster,
}

impl Stage {
    fn start(test: &str) -> Option<Self> {
        Self::start_with(test, NodeAgent::start, SHARES, &[])
    }

    fn start_with(test: &str, agent: StartAgent, shares: u16, placer: &[&str]) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED {test}: a kubelet needs root");
            return None;
        }
        let cluster = Cluster::start(test)?;
        let key = ClusterKey::new(KEY);
        let sim = Sim::start(&cluster);
        let kubelet = Kubelet::join(&cluster, NODE);
        let agent = agent(&cluster, &key, NODE, &kubelet, &sim, shares);
        kubelet.offers(&cluster, &(2 * shares).to_string());
        let placer = Placer::start(&cluster, &key, placer);
        let proxy = Proxy::start(placer.address, &placer.certificate());
        let scheduler = Scheduler::start(&cluster, &proxy.extender(), Binds::Extender);
        let path = format!("/apis/berth.dev/v1alpha1/gpunodes/{NODE}");
        until("a report", || cluster.get(&path).filter(|object| object["status"]["frame"].is_string()));
        Some(Self { _scheduler: scheduler, _proxy: proxy, placer, agent, kubelet, sim, cluster })
    }

    /// A pod that computes for as long as it lives.
    fn make(&self, name: &str, asks: &[&str]) {
        self.make_with(name, asks, &FOREVER);
    }

    fn make_with(&self, name: &str, asks: &[&str], load: &[&str]) {
        let pod = computing(name, asks, &self.sim.library("libcuda.so.1"), load);
        self.cluster.create("/api/v1/namespaces/default/pods", &pod).unwrap();
    }

    /// The pod when it computes, where it was meant to.
    fn computes(&self, name: &str) -> Value {
        let pod = self.kubelet.runs(&self.cluster, name);
        let gpu = chosen(&pod);
        for variable in ["NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"] {
            assert_eq!(self.kubelet.variable(&pod, variable), gpu, "{name}");
        }
        let row = self.agent.row(&container(name), |row| row["gpu_uuid"].is_string());
        assert_eq!(row["gpu_uuid"], gpu, "{name}");
        assert_eq!(row["owner"], "default");
        pod
    }
}

fn all_shares() -> String {
    (2 * SHARES).to_string()
}

fn container(pod: &str) -> String {
    format!("default/{pod}/main")
}

/// The GPU the placer chose.
fn chosen(pod: &Value) -> String {
    pod["metadata"]["annotations"]["berth.dev/gpus-chosen"].as_str().unwrap().to_owned()
}

#[test]
fn a_pod_computes_on_the_gpu_that_was_chosen_is_held_and_its_end_frees_the_place() {
    let Some(stage) = Stage::start("kubelet") else { return };
    stage.make("first", &["deadline=10m", LARGE]);
    let first = stage.computes("first");
    stage.make("second", &["deadline=10m", LARGE]);
    let second = stage.computes("second");
    assert_ne!(chosen(&first), chosen(&second), "there is room for one on each");

    let row = stage.agent.row(&container("first"), |row| row["deadline"].is_object());
    assert_eq!(row["deadline"]["deadline"], "10m", "{row}");
    stage.agent.berth(&["hold", &container("first")]);
    stands_still(&freezer(&first), true);
    let told = until("the pod to be told", || stage.cluster.told_of("first", "Held").pop());
    assert!(told.contains("held by freeze"), "{told}");
    stage.agent.berth(&["release", &container("first")]);
    stands_still(&freezer(&first), false);

    stage.make("third", &["deadline=10m", LARGE]);
    let why = until("the third to be refused", || stage.cluster.told_of("third", "NoNodeInTime").pop());
    assert!(why.starts_with("no node takes it (1 asked)"), "{why}");
    stage.kubelet.ends(&stage.cluster, "first");
    let third = stage.computes("third");
    assert_eq!(chosen(&third), chosen(&first), "where the first was");
}

#[test]
fn a_restart_of_the_kubelet_or_of_the_agent_takes_no_gpu_from_anybody_and_newcomers_get_theirs() {
    let Some(mut stage) = Stage::start("kubelet-restarts") else { return };
    stage.make("first", &["deadline=10m", LARGE]);
    let first = stage.computes("first");

    stage.agent.kill();
    stage.kubelet.offers(&stage.cluster, "0");
    stage.agent.start_again();
    stage.kubelet.offers(&stage.cluster, &all_shares());
    stage.make("second", &["deadline=10m", LARGE]);
    let second = stage.computes("second");
    assert_ne!(chosen(&first), chosen(&second));

    let before = stage.agent.offers();
    stage.kubelet.stop();
    stage.kubelet.start_again();
    until("the plugin to register again", || (stage.agent.offers() > before).then_some(()));
    stage.kubelet.offers(&stage.cluster, &all_shares());
    for (name, before) in [("first", &first), ("second", &second)] {
        let now = stage.computes(name);
        assert_eq!(container_id(&now), container_id(before), "{name} runs on");
    }
    stage.kubelet.ends(&stage.cluster, "second");
    stage.make("third", &["deadline=10m", LARGE]);
    assert_eq!(chosen(&stage.computes("third")), chosen(&second), "where there is room again");
}

#[test]
fn a_pod_that_gets_another_gpu_than_was_chosen_counts_where_it_is_before_it_computes_there() {
    // One share of each GPU, and all is to go to one.
    let Some(stage) = Stage::start_with("kubelet-astray", NodeAgent::start, 1, &["placer.order=pack"]) else { return };
    stage.make("first", &["deadline=10m", "memory=20Gi"]);
    let first = stage.computes("first");
    stage.make_with("second", &["deadline=10m", LARGE], &NEVER);
    let second = stage.kubelet.runs(&stage.cluster, "second");
    let gpu = stage.kubelet.variable(&second, "CUDA_VISIBLE_DEVICES");
    assert_ne!(gpu, chosen(&first), "its only share is taken");
    until("what is written to be what is", || (chosen(&stage.cluster.pod("second")) == gpu).then_some(()));
    let nodes: Value = serde_json::from_str(&stage.placer.berth(&["nodes", "--json"])).unwrap();
    let gpus = nodes["nodes"][0]["report"]["gpus"].as_array().unwrap().clone();
    let promised = gpus.iter().find(|report| report["uuid"] == gpu.as_str()).unwrap();
    assert_eq!(promised["memory_promised_bytes"], 100_u64 << 30, "{promised}");
}

#[test]
fn the_chart_s_pod_is_an_agent_and_whom_it_held_is_let_go_when_it_is_deleted() {
    let Some(stage) = Stage::start_with("kubelet-pod", NodeAgent::in_pod, SHARES, &[]) else { return };
    stage.make("first", &["deadline=10m", LARGE]);
    let first = stage.computes("first");
    stage.agent.berth(&["hold", &container("first")]);
    stands_still(&freezer(&first), true);
    until("the pod to be told", || stage.cluster.told_of("first", "Held").pop());
    stage.cluster.delete(&format!("/api/v1/namespaces/{NAMESPACE}/pods/berth-agent"));
    stands_still(&freezer(&first), false);
}
