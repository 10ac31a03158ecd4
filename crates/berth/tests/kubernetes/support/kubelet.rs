//! A real node: a kubelet that runs pods on a Docker Engine of its own (`scripts/kubernetes/node.sh`).

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::cluster::Cluster;
use super::{BERTH, until, until_within};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/kubernetes/node.sh");
/// An image the node has.
pub const IMAGE: &str = "berth-test:local";
/// A kubelet on a busy machine takes its time to start and to end pods.
const PATIENCE: Duration = Duration::from_secs(120);

/// Joins a cluster; gone with its pods when dropped.
#[derive(Debug)]
pub struct Kubelet {
    cluster: PathBuf,
    node: String,
    /// Of its Docker Engine.
    address: String,
}

impl Kubelet {
    pub fn join(cluster: &Cluster, node: &str) -> Self {
        let dir = cluster.dir().to_owned();
        let started = Command::new(SCRIPT).arg("start").arg(&dir).args([node, BERTH]).stderr(Stdio::inherit()).output();
        let started = started.unwrap();
        assert!(started.status.success(), "the node did not start");
        let address = String::from_utf8(started.stdout).unwrap().trim().to_owned();
        let kubelet = Self { cluster: dir, node: node.to_owned(), address };
        until_within(PATIENCE, "the node to be ready", || kubelet.is_ready(cluster).then_some(()));
        // The API server puts it on a newcomer, and a controller manager takes it off.
        cluster.merge(&kubelet.path(), &json!({"spec": {"taints": null}})).unwrap();
        kubelet
    }

    fn path(&self) -> String {
        format!("/api/v1/nodes/{}", self.node)
    }

    fn is_ready(&self, cluster: &Cluster) -> bool {
        let object = cluster.get(&self.path()).unwrap_or_default();
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
    }

    /// Waits until it offers so many shares of GPUs.
    pub fn offers(&self, cluster: &Cluster, shares: &str) {
        until_within(PATIENCE, &format!("{shares} shares to be offered"), || {
            let object = cluster.get(&self.path())?;
            (object["status"]["allocatable"]["berth.dev/gpu"] == shares).then_some(())
        });
    }

    /// The kubelet alone; pods run on.
    pub fn stop(&self) {
        self.script("stop-kubelet", &[]);
    }

    pub fn start_again(&self) {
        self.script("start-kubelet", &[&self.node]);
    }

    fn script(&self, verb: &str, args: &[&str]) {
        let done = Command::new(SCRIPT).arg(verb).arg(&self.cluster).args(args).status().unwrap();
        assert!(done.success(), "{verb}");
    }

    /// Where it looks for device plugins.
    pub fn device_plugins(&self) -> PathBuf {
        self.cluster.join("node/kubelet/device-plugins")
    }

    /// Where `/run/berth` of the node is.
    pub fn run_berth(&self) -> PathBuf {
        self.cluster.join("node/run-berth")
    }

    /// The pod when its container runs.
    pub fn runs(&self, cluster: &Cluster, pod: &str) -> Value {
        until_within(PATIENCE, &format!("pod {pod} to run"), || {
            let pod = cluster.pod(pod);
            let status = &pod["status"]["containerStatuses"][0];
            assert_ne!(pod["status"]["phase"], "Failed", "{}\n{}", pod["status"], self.logs(&pod));
            status["state"]["running"].is_object().then_some(pod)
        })
    }

    /// Waits until a pod is gone from the API server, which it is when its kubelet has ended it.
    pub fn ends(&self, cluster: &Cluster, pod: &str) {
        let path = format!("/api/v1/namespaces/default/pods/{pod}");
        cluster.delete_within(&path, 1);
        until_within(PATIENCE, &format!("pod {pod} to be gone"), || cluster.get(&path).is_none().then_some(()));
    }

    /// What `docker inspect` says of a pod's container.
    pub fn inspect(&self, pod: &Value) -> Value {
        let id = container_id(pod);
        let told = Command::new("docker").args(["--host", &self.address, "inspect", &id]).output().unwrap();
        assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
        serde_json::from_slice::<Value>(&told.stdout).unwrap()[0].take()
    }

    fn logs(&self, pod: &Value) -> String {
        if pod["status"]["containerStatuses"].is_null() {
            return String::new();
        }
        let id = container_id(pod);
        let told = Command::new("docker").args(["--host", &self.address, "logs", &id]).output().unwrap();
        String::from_utf8_lossy(&told.stderr).into_owned()
    }

    /// A variable of the environment of a pod's container.
    pub fn variable(&self, pod: &Value, name: &str) -> String {
        let inspected = self.inspect(pod);
        let variables = inspected["Config"]["Env"].as_array().unwrap();
        let value = variables.iter().find_map(|line| line.as_str()?.strip_prefix(name)?.strip_prefix('='));
        value.unwrap_or_default().to_owned()
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        if std::thread::panicking() {
            print_tail(&self.cluster.join("node/kubelet.log"));
        }
        let stopped = Command::new(SCRIPT).arg("stop").arg(&self.cluster).status();
        if !std::thread::panicking() {
            assert!(stopped.unwrap().success());
        }
    }
}

fn print_tail(log: &Path) {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let tail: Vec<_> = text.lines().rev().take(40).collect();
    eprintln!("=== {}\n{}", log.display(), tail.into_iter().rev().collect::<Vec<_>>().join("\n"));
}

/// Of its first container.
pub fn container_id(pod: &Value) -> String {
    let id = pod["status"]["containerStatuses"][0]["containerID"].as_str().unwrap();
    id.strip_prefix("docker://").unwrap().to_owned()
}

/// Directory of the freezer of a pod's container, as the kubelet's cgroupfs driver has it.
pub fn freezer(pod: &Value) -> PathBuf {
    let uid = pod["metadata"]["uid"].as_str().unwrap();
    let place = format!("kubepods/besteffort/pod{uid}/{}", container_id(pod));
    let roots = ["/sys/fs/cgroup/freezer", "/sys/fs/cgroup"].map(|root| Path::new(root).join(&place));
    let [v1, v2] = roots;
    if v1.exists() { v1 } else { v2 }
}

/// A pod that runs `berth load` with these arguments on the share it asks for.
pub fn computing(name: &str, asks: &[&str], library: &Path, load: &[&str]) -> Value {
    let annotations: serde_json::Map<_, _> = asks
        .iter()
        .map(|ask| ask.split_once('=').unwrap())
        .map(|(name, value)| (format!("berth.dev/{name}"), value.into()))
        .collect();
    let mut command = vec!["/berth", "load", "--library", library.to_str().unwrap()];
    command.extend(load);
    let container = json!({"name": "main", "image": IMAGE, "imagePullPolicy": "Never", "command": command,
        "resources": {"limits": {"berth.dev/gpu": "1"}}, "volumeMounts": [{"name": "berth", "mountPath": "/berth"}]});
    // The node has no network for pods.
    let spec = json!({"hostNetwork": true, "dnsPolicy": "Default", "restartPolicy": "Never",
        "automountServiceAccountToken": false, "containers": [container],
        "volumes": [{"name": "berth", "hostPath": {"path": BERTH, "type": "File"}}]});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": annotations}, "spec": spec})
}

/// Whether a cgroup stands still.
pub fn is_frozen(freezer: &Path) -> bool {
    let read = |name: &str| std::fs::read_to_string(freezer.join(name)).unwrap_or_default();
    read("freezer.state").trim() == "FROZEN" || read("cgroup.events").contains("frozen 1")
}

/// Waits for the one or the other.
pub fn stands_still(freezer: &Path, does: bool) {
    until(&format!("{} to stand still: {does}", freezer.display()), || (is_frozen(freezer) == does).then_some(()));
}
