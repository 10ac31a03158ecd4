//! A node's agent as it is shipped, `berth daemon`, with simulated GPUs.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use berth_cluster::frame::{ClusterKey, KeyFile};
use berth_model::Settings;
use berth_model::settings::{Mode, PolicyName};
use serde_json::{Value, json};

use super::cluster::{Cluster, NAMESPACE, VERSION};
use super::kubelet::Kubelet;
use super::{BERTH, Running, until, until_within};
use crate::render;

/// Of an agent, with the rights the chart grants it.
const ACCOUNT: &str = "berth-agent";

/// Two simulated H200.
#[derive(Debug)]
pub struct Sim {
    dir: PathBuf,
    server: Running,
}

/// The daemon. Killed when dropped.
#[derive(Debug)]
pub struct NodeAgent {
    process: Option<Running>,
    config: PathBuf,
    socket: PathBuf,
    log: PathBuf,
}

impl Sim {
    pub fn start(cluster: &Cluster) -> Self {
        let dir = cluster.dir().join("sim");
        let mut command = Command::new(BERTH);
        command.args(["sim", "serve", "--profile", "h200", "--gpus", "2", "--dir"]).arg(&dir);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let mut sim = Self { dir, server: Running::start(&mut command) };
        until("the simulator", || {
            assert!(sim.server.is_running(), "the simulator has ended");
            sim.library("libcuda.so.1").exists().then_some(())
        });
        sim
    }

    pub fn library(&self, name: &str) -> PathBuf {
        self.dir.join("lib").join(name)
    }
}

impl NodeAgent {
    /// `shares`: of each GPU.
    pub fn start(cluster: &Cluster, key: &ClusterKey, node: &str, kubelet: &Kubelet, sim: &Sim, shares: u16) -> Self {
        let dir = cluster.dir();
        let id = node.parse().unwrap();
        let key = KeyFile::Node { key: key.node(&id), node: id };
        let file = |name: &str| dir.join(format!("{node}.{name}"));
        secret(&file("key"), &key.to_string());
        let mut settings = Settings::default();
        settings.api.socket = file("sock");
        settings.table.path = file("tasks");
        settings.history.dir = file("history");
        settings.hold.journal = file("holds");
        settings.hold.policy = PolicyName::Edf;
        settings.hold.driver = sim.library("libcuda.so.1");
        settings.nvml.library = sim.library("libnvidia-ml.so.1");
        settings.probes.libraries = vec![sim.library("libcuda.so.1")];
        settings.docker.mode = Mode::Off;
        settings.log.level = "debug".into();
        settings.cluster.node = node.to_owned();
        settings.cluster.key_file = file("key");
        settings.kubernetes.enabled = true;
        settings.kubernetes.kubeconfig = cluster.kubeconfig_of(ACCOUNT);
        settings.kubernetes.shares = shares;
        settings.kubernetes.device_plugins = kubelet.device_plugins();
        settings.kubernetes.mounts = vec![sim.dir.clone()];
        std::fs::write(file("toml"), toml::to_string(&settings).unwrap()).unwrap();
        let mut agent = Self { process: None, config: file("toml"), socket: file("sock"), log: file("log") };
        agent.start_again();
        agent
    }

    /// As the chart's pod, with the chart's account and rights.
    pub fn in_pod(cluster: &Cluster, key: &ClusterKey, node: &str, kubelet: &Kubelet, sim: &Sim, shares: u16) -> Self {
        let id = node.parse().unwrap();
        let key = KeyFile::Node { key: key.node(&id), node: id }.to_string();
        let keys = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "berth-node-keys", "namespace": NAMESPACE},
            "stringData": {node: key}});
        cluster.create(&format!("/api/v1/namespaces/{NAMESPACE}/secrets"), &keys).unwrap();
        cluster
            .create(&format!("/api/v1/namespaces/{NAMESPACE}/pods"), &chart_pod(cluster, node, sim, shares))
            .unwrap();
        let mut settings = Settings::default();
        settings.api.socket = kubelet.run_berth().join("berth.sock");
        let config = cluster.dir().join("asks-pod.toml");
        std::fs::write(&config, toml::to_string(&settings).unwrap()).unwrap();
        let agent = Self { process: None, config, socket: settings.api.socket, log: PathBuf::new() };
        until_within(Duration::from_secs(120), "the agent's pod to listen", || UnixStream::connect(&agent.socket).ok());
        agent
    }

    pub fn start_again(&mut self) {
        let log = File::options().create(true).append(true).open(&self.log).unwrap();
        let mut command = self.command(&["daemon"]);
        self.process = Some(Running::start(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log)));
        until("the agent to listen", || {
            assert!(self.process.as_mut().unwrap().is_running(), "the agent has ended");
            UnixStream::connect(&self.socket).ok()
        });
    }

    /// Without a word.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// How often it has offered its GPUs to a kubelet.
    pub fn offers(&self) -> usize {
        let log = std::fs::read_to_string(&self.log).unwrap();
        log.matches("shares of GPUs are offered to the kubelet").count()
    }

    /// What a command says that asks it.
    pub fn berth(&self, args: &[&str]) -> String {
        let output = self.command(args).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(BERTH);
        command.arg("--config").arg(&self.config).args(args);
        command
    }

    /// What it shows of a pod's container once that suits.
    pub fn row(&self, container: &str, suits: impl Fn(&Value) -> bool) -> Value {
        until(&format!("a row of {container}"), || {
            let rows: Vec<Value> = serde_json::from_str(&self.berth(&["ps", "--json"])).unwrap();
            rows.into_iter().find(|row| row["container_name"] == container && suits(row))
        })
    }
}

impl Drop for NodeAgent {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let text = std::fs::read_to_string(&self.log).unwrap_or_default();
            let tail: Vec<_> = text.lines().rev().take(60).collect();
            eprintln!("=== agent\n{}", tail.into_iter().rev().collect::<Vec<_>>().join("\n"));
        }
    }
}

/// Rights that Docker 20.10 does not know, of which `SYS_ADMIN` is a superset, and one that a machine in a sandbox does not have to give.
const UNKNOWN_HERE: [&str; 3] = ["BPF", "PERFMON", "SYS_RESOURCE"];

/// The pod of the chart's DaemonSet, and its settings. Its driver is simulated, and its account's token comes by a file, since the API server
/// of the tests makes none.
fn chart_pod(cluster: &Cluster, node: &str, sim: &Sim, shares: u16) -> Value {
    let library = |name: &str| sim.library(name).display().to_string();
    let (cuda, nvml) = (library("libcuda.so.1"), library("libnvidia-ml.so.1"));
    let kubeconfig = cluster.kubeconfig_of(ACCOUNT);
    let objects = render::objects(
        VERSION,
        &[
            ("image", json!("berth:local")),
            ("imagePullPolicy", json!("Never")),
            ("agent.shares", json!(shares)),
            ("agent.mounts", json!([sim.dir])),
        ],
    );
    let is_ours = |object: &&Value| object["kind"] == "ConfigMap" && object["metadata"]["name"] == "berth-agent";
    let settings = objects.iter().find(is_ours).unwrap();
    let (is_taken, said) = cluster.kubectl(&["apply", "-f", "-"], &settings.to_string());
    assert!(is_taken, "{said}");
    let set = objects.iter().find(|object| object["kind"] == "DaemonSet").unwrap();
    let mut spec = set["spec"]["template"]["spec"].clone();
    // Helm reads 0400 as octal, as YAML 1.1 does.
    for volume in spec["volumes"].as_array_mut().unwrap() {
        volume.pointer_mut("/secret/defaultMode").into_iter().for_each(|mode| *mode = json!(0o400));
    }
    spec["nodeName"] = json!(node);
    let place = json!({"name": "test", "hostPath": {"path": cluster.dir(), "type": "Directory"}});
    spec["volumes"].as_array_mut().unwrap().push(place);
    let container = &mut spec["containers"][0];
    container["volumeMounts"].as_array_mut().unwrap().push(json!({"name": "test", "mountPath": cluster.dir()}));
    container["securityContext"]["capabilities"]["add"]
        .as_array_mut()
        .unwrap()
        .retain(|right| !UNKNOWN_HERE.iter().any(|unknown| right == unknown));
    let sets = [
        format!("--set=kubernetes.kubeconfig={}", kubeconfig.display()),
        format!("--set=nvml.library={nvml}"),
        format!("--set=hold.driver={cuda}"),
        format!("--set=probes.libraries=[\"{cuda}\"]"),
    ];
    container["args"].as_array_mut().unwrap().extend(sets.map(Value::from));
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "berth-agent", "namespace": NAMESPACE}, "spec": spec})
}

fn secret(path: &Path, text: &str) {
    let file = File::options().create(true).truncate(true).write(true).mode(0o600).open(path);
    std::io::Write::write_all(&mut file.unwrap(), text.as_bytes()).unwrap();
}
