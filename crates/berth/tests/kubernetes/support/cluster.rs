//! A Kubernetes of its own for one test, and plain requests to its API server.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use hyper::http::Request;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::until;
use crate::render;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/kubernetes.sh");
const RUN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.run/kubernetes");
pub const BIN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.tools/kubernetes/bin");

/// Where the chart is installed.
pub const NAMESPACE: &str = "berth-system";
/// Its accounts.
const ACCOUNTS: [&str; 2] = ["berth-placer", "berth-agent"];
/// Of what is in [`BIN`].
pub const VERSION: &str = "v1.20.2";

/// An API server, and a way to ask it. Stopped when dropped.
pub struct Cluster {
    dir: PathBuf,
    runtime: Runtime,
    client: kube::Client,
}

impl Cluster {
    /// `None` where nobody has prepared what it needs, which is said.
    pub fn start(test: &str) -> Option<Self> {
        if std::env::var_os("BERTH_TEST_KUBERNETES").is_none() {
            eprintln!("SKIPPED {test}: BERTH_TEST_KUBERNETES is not set (`make test-kubernetes` sets it)");
            return None;
        }
        let dir = Path::new(RUN).join(test);
        let users = ACCOUNTS.map(|name| format!("{name}-token,{},{name}", account(name))).join("\n");
        let mut script = Command::new(SCRIPT);
        script.arg("start").arg(&dir).env("BERTH_KUBERNETES_USERS", users);
        let status = script.stdout(Stdio::null()).status().unwrap();
        assert!(status.success(), "the API server did not start");
        // Containers find it by this path, and have no others on the way.
        let dir = dir.canonicalize().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let kubeconfig = Kubeconfig::read_from(dir.join("admin.kubeconfig")).unwrap();
        let client = runtime.block_on(async {
            let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
            kube::Client::try_from(config).unwrap()
        });
        let cluster = Self { dir, runtime, client };
        cluster.define();
        Some(cluster)
    }

    /// The custom resource, and the rights of the placer and of agents, as the chart ships them.
    fn define(&self) {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
        self.create("/api/v1/namespaces", &namespace).unwrap();
        let granted =
            ["CustomResourceDefinition", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"];
        let mut objects = render::objects(VERSION, &[("image", json!("registry.example/berth:1"))]);
        objects.retain(|object| granted.contains(&object["kind"].as_str().unwrap()));
        let (is_taken, said) = self.kubectl(&["apply", "-f", "-"], &list(&objects));
        assert!(is_taken, "{said}");
        until("gpunodes to be known", || self.get("/apis/berth.dev/v1alpha1/gpunodes"));
        for name in ACCOUNTS {
            let path = self.kubeconfig_of(name);
            let text = std::fs::read_to_string(&path).unwrap();
            let (there, with) = ("cluster: test, user", format!("cluster: test, namespace: {NAMESPACE}, user"));
            assert!(text.contains(there), "{text}");
            std::fs::write(path, text.replace(there, &with)).unwrap();
        }
    }

    /// As the administrator. Whether it went well, and what it said.
    pub fn kubectl(&self, args: &[&str], input: &str) -> (bool, String) {
        let mut command = Command::new("kubectl");
        command.arg("--kubeconfig").arg(self.kubeconfig()).args(args);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        (output.status.success(), text.into_owned())
    }

    /// Without etcd: what was written stays.
    pub fn stop_api_server(&self) {
        self.script("stop-api-server");
    }

    pub fn start_api_server(&self) {
        self.script("start-api-server");
    }

    fn script(&self, verb: &str) {
        assert!(Command::new(SCRIPT).arg(verb).arg(&self.dir).status().unwrap().success(), "{verb}");
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Of the administrator.
    pub fn kubeconfig(&self) -> PathBuf {
        self.dir.join("admin.kubeconfig")
    }

    /// Of one of the chart's accounts, with its rights and no others.
    pub fn kubeconfig_of(&self, account: &str) -> PathBuf {
        self.dir.join(format!("{account}.kubeconfig"))
    }

    pub fn get(&self, path: &str) -> Option<Value> {
        self.ask("GET", path, None, "").ok()
    }

    pub fn create(&self, path: &str, object: &Value) -> Result<Value, String> {
        self.ask("POST", path, Some(object), "application/json")
    }

    /// Merges into an object.
    pub fn merge(&self, path: &str, patch: &Value) -> Result<Value, String> {
        self.ask("PATCH", path, Some(patch), "application/merge-patch+json")
    }

    pub fn delete(&self, path: &str) {
        self.delete_within(path, 0);
    }

    /// Pods have so long to end.
    pub fn delete_within(&self, path: &str, seconds: u32) {
        let now = json!({"gracePeriodSeconds": seconds});
        self.ask("DELETE", path, Some(&now), "application/json").unwrap();
    }

    /// What the API server says in words where it refuses.
    fn ask(&self, method: &str, path: &str, body: Option<&Value>, content: &str) -> Result<Value, String> {
        self.runtime.block_on(self.send(method, path, body, content))
    }

    async fn send(&self, method: &str, path: &str, body: Option<&Value>, content: &str) -> Result<Value, String> {
        let bytes = body.map(|body| serde_json::to_vec(body).unwrap()).unwrap_or_default();
        let mut request = Request::builder().method(method).uri(path);
        if !content.is_empty() {
            request = request.header("Content-Type", content);
        }
        let answer = self.client.request(request.body(bytes).unwrap()).await;
        answer.map_err(|error| match error {
            kube::Error::Api(status) => status.message.clone(),
            other => other.to_string(),
        })
    }

    /// Creates many objects at once; they must be new.
    pub fn create_all(&self, objects: Vec<(String, Value)>) {
        use futures_util::stream::{self, StreamExt};
        self.runtime.block_on(async {
            let create = |(path, object): (String, Value)| async move {
                self.send("POST", &path, Some(&object), "application/json").await.unwrap();
            };
            stream::iter(objects).map(create).buffer_unordered(32).collect::<()>().await;
        });
    }

    /// The same for merges.
    pub fn merge_all(&self, patches: Vec<(String, Value)>) {
        use futures_util::stream::{self, StreamExt};
        self.runtime.block_on(async {
            let merge = |(path, patch): (String, Value)| async move {
                self.send("PATCH", &path, Some(&patch), "application/merge-patch+json").await.unwrap();
            };
            stream::iter(patches).map(merge).buffer_unordered(32).collect::<()>().await;
        });
    }

    // === pods ===

    /// A pod that asks for a share of a GPU, with these annotations of ours (`deadline=9s`).
    pub fn run_pod(&self, name: &str, asks: &[&str]) -> Result<Value, String> {
        self.create("/api/v1/namespaces/default/pods", &pod(name, asks))
    }

    pub fn pod(&self, name: &str) -> Value {
        self.get(&format!("/api/v1/namespaces/default/pods/{name}")).unwrap()
    }

    /// The node it is bound to.
    pub fn node_of(&self, name: &str) -> Option<String> {
        self.pod(name)["spec"]["nodeName"].as_str().map(str::to_owned)
    }

    /// What was told of a pod with this reason, each message once.
    pub fn told_of(&self, name: &str, reason: &str) -> Vec<String> {
        let events = self.get("/api/v1/namespaces/default/events").unwrap();
        let of_it = |event: &&Value| event["involvedObject"]["name"] == name && event["reason"] == reason;
        let messages = events["items"].as_array().unwrap().iter().filter(of_it);
        let mut messages: Vec<_> =
            messages.map(|event| event["message"].as_str().unwrap_or_default().to_owned()).collect();
        messages.sort();
        messages.dedup();
        messages
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for log in ["placer.log", "kube-scheduler.log"] {
                let text = std::fs::read_to_string(self.dir.join(log)).unwrap_or_default();
                let tail: Vec<_> = text.lines().rev().take(30).collect();
                eprintln!("=== {log}\n{}", tail.into_iter().rev().collect::<Vec<_>>().join("\n"));
            }
        }
        let stopped = Command::new(SCRIPT).arg("stop").arg(&self.dir).status();
        let _ = std::fs::remove_dir_all(&self.dir);
        if !std::thread::panicking() {
            assert!(stopped.unwrap().success());
        }
    }
}

/// By which name the API server knows one of the chart's accounts.
pub fn account(name: &str) -> String {
    format!("system:serviceaccount:{NAMESPACE}:{name}")
}

pub fn list(objects: &[Value]) -> String {
    json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string()
}

fn pod(name: &str, asks: &[&str]) -> Value {
    let annotations: serde_json::Map<_, _> = asks
        .iter()
        .map(|ask| ask.split_once('=').unwrap())
        .map(|(name, value)| (format!("berth.dev/{name}"), value.into()))
        .collect();
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"containers": [{"name": "main", "image": "solver:3", "resources": {"limits": {"berth.dev/gpu": "1"}}}]},
    })
}
