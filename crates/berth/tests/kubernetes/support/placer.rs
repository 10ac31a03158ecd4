//! The placer, as it runs beside a manager: `berth cluster serve --engine kubernetes`.

use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use base64::Engine as _;
use berth_cluster::frame::{ClusterKey, KeyFile};
use serde_json::{Value, json};

use super::cluster::{Cluster, account};
use super::{BERTH, Running, proxy, until};

/// A placer, killed when dropped. Its certificate and key outlive it.
pub struct Placer {
    process: Option<Running>,
    dir: PathBuf,
    kubeconfig: PathBuf,
    sets: Vec<String>,
    pub address: SocketAddr,
}

impl Placer {
    /// `sets`: settings beyond where things are, such as `placer.stale_after=60s`. Returns when it answers.
    pub fn start(cluster: &Cluster, key: &ClusterKey, sets: &[&str]) -> Self {
        let mut placer = Self::new(cluster, key, sets, cluster.dir());
        placer.start_again();
        placer
    }

    /// Another one, which need not be ready.
    pub fn beside(cluster: &Cluster, key: &ClusterKey, sets: &[&str]) -> Self {
        let mut placer = Self::new(cluster, key, sets, &cluster.dir().join("other"));
        placer.comes_back();
        placer
    }

    fn new(cluster: &Cluster, key: &ClusterKey, sets: &[&str], dir: &Path) -> Self {
        let dir = dir.to_owned();
        std::fs::create_dir_all(&dir).unwrap();
        certificate(&dir);
        let mut key_file = File::options();
        let key_file = key_file.create(true).truncate(true).write(true).mode(0o600).open(dir.join("cluster.key"));
        std::io::Write::write_all(&mut key_file.unwrap(), KeyFile::Cluster(key.clone()).to_string().as_bytes())
            .unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], proxy::free_port()));
        let sets = sets.iter().map(|set| (*set).to_owned()).collect();
        Self { process: None, dir, kubeconfig: cluster.kubeconfig_of("berth-placer"), sets, address }
    }

    /// After it was killed, with the same settings. Returns when it answers.
    pub fn start_again(&mut self) {
        let mut process = self.run();
        until("the placer to be ready", || {
            assert!(process.is_running(), "the placer has ended:\n{}", self.log());
            self.is_ready().then_some(())
        });
        self.process = Some(process);
    }

    /// The same, without waiting for it to be ready.
    pub fn comes_back(&mut self) {
        self.process = Some(self.run());
    }

    fn run(&self) -> Running {
        let dir = self.dir.display();
        let sets = [
            format!("placer.socket={dir}/placer.sock"),
            format!("placer.key_file={dir}/cluster.key"),
            format!("placer.listen={}", self.address),
            format!("placer.tls_certificate={dir}/placer.crt"),
            format!("placer.tls_key={dir}/placer.key"),
            format!("placer.user={}", account("berth-placer")),
        ];
        let log = File::options().create(true).append(true).open(self.dir.join("placer.log")).unwrap();
        let mut command = Command::new(BERTH);
        for set in sets.iter().chain(&self.sets) {
            command.args(["--set", set]);
        }
        command.args(["cluster", "serve", "--engine", "kubernetes"]).env("KUBECONFIG", &self.kubeconfig);
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        Running::start(&mut command)
    }

    /// Asks it to stop, as the kubelet does.
    pub fn asks_to_stop(&self) {
        self.process.as_ref().unwrap().terminate();
    }

    pub fn is_running(&mut self) -> bool {
        self.process.as_mut().is_some_and(Running::is_running)
    }

    pub fn kill(&mut self) {
        self.process = None;
    }

    /// What a command says that asks it.
    pub fn berth(&self, args: &[&str]) -> String {
        let socket = format!("placer.socket={}", self.dir.join("placer.sock").display());
        let output = Command::new(BERTH).args(["--set", &socket]).args(args).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    pub fn certificate(&self) -> PathBuf {
        self.dir.join("placer.crt")
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.join("placer.log")).unwrap_or_default()
    }

    pub fn is_ready(&self) -> bool {
        self.asked("/readyz", None).0 == 200
    }

    /// What it answers, with its status: 0 if it does not. With something to read it is posted.
    pub fn asked(&self, path: &str, body: Option<&Value>) -> (u16, String) {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--max-time", "10", "--write-out", "\n%{http_code}", "--cacert"])
            .arg(self.certificate())
            .arg(format!("https://{}{path}", self.address));
        if let Some(body) = body {
            curl.args(["--header", "Content-Type: application/json", "--data", &body.to_string()]);
        }
        let output = String::from_utf8(curl.output().unwrap().stdout).unwrap();
        let (answer, status) = output.rsplit_once('\n').unwrap();
        (status.parse().unwrap(), answer.to_owned())
    }

    /// Why it does not bind a pod of the default namespace; empty if it does.
    pub fn binds(&self, cluster: &Cluster, pod: &str, node: &str) -> String {
        let uid = cluster.pod(pod)["metadata"]["uid"].clone();
        let args = json!({"PodName": pod, "PodNamespace": "default", "PodUID": uid, "Node": node});
        let (status, answer) = self.asked("/extender/bind", Some(&args));
        assert_eq!(status, 200, "{answer}");
        let answer: Value = serde_json::from_str(&answer).unwrap();
        answer["Error"].as_str().unwrap().to_owned()
    }

    /// Has the API server ask it about every pod, as the chart does.
    pub fn review_pods(&self, cluster: &Cluster) {
        let bundle = base64::engine::general_purpose::STANDARD.encode(std::fs::read(self.certificate()).unwrap());
        let webhook = json!({
            "name": "pods.berth.dev", "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail",
            "clientConfig": {"url": format!("https://{}/validate", self.address), "caBundle": bundle},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["pods"]}],
        });
        let configuration = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "berth"}, "webhooks": [webhook]});
        let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
        cluster.create(path, &configuration).unwrap();
    }
}

fn certificate(dir: &Path) {
    let names = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    std::fs::write(dir.join("placer.crt"), made.cert.pem()).unwrap();
    let key = File::options().create(true).truncate(true).write(true).mode(0o600).open(dir.join("placer.key"));
    std::io::Write::write_all(&mut key.unwrap(), made.signing_key.serialize_pem().as_bytes()).unwrap();
}
