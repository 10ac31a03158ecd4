//! A kube-scheduler that asks an extender.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::cluster::{BIN, Cluster, VERSION};
use super::{Placer, Running, proxy};
use crate::render;

/// How much it leaves to the extender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binds {
    /// It binds by itself, and without the extender places as it would without berth.
    Itself,
    /// The extender binds, and without it nothing is placed: `ignorable` does not hold for binding.
    Extender,
}

#[derive(Debug)]
pub struct Scheduler(#[expect(dead_code, reason = "ends the process when dropped")] Running);

impl Scheduler {
    /// `extender` is where it asks, such as `http://127.0.0.1:1234/extender`.
    pub fn start(cluster: &Cluster, extender: &str, binds: Binds) -> Self {
        Self::start_with(cluster, extender, binds, "")
    }

    /// It asks the placer itself, whose certificate is there, and shows one of its own.
    pub fn start_known(cluster: &Cluster, placer: &Placer, certificate: &Path, key: &Path) -> Self {
        let [ca, certificate, key] =
            [placer.certificate().as_path(), certificate, key].map(|path| path.display().to_string());
        let tls =
            format!("enableHTTPS: true\n    tlsConfig: {{caFile: {ca}, certFile: {certificate}, keyFile: {key}}}");
        Self::start_with(cluster, &format!("https://{}/extender", placer.address), Binds::Extender, &tls)
    }

    fn start_with(cluster: &Cluster, extender: &str, binds: Binds, tls: &str) -> Self {
        let port = proxy::free_port();
        let kubeconfig = cluster.dir().join("kube-scheduler.kubeconfig");
        let config = cluster.dir().join("own-scheduler.yaml");
        std::fs::write(&config, configuration(&kubeconfig, extender, binds, tls, port)).unwrap();
        let log = File::create(cluster.dir().join("kube-scheduler.log")).unwrap();
        let mut command = Command::new(format!("{BIN}/kube-scheduler"));
        command.arg("--config").arg(&config).args(["--secure-port", "0"]).stdin(Stdio::null());
        Self(Running::start(command.stdout(log.try_clone().unwrap()).stderr(log)))
    }
}

fn configuration(kubeconfig: &Path, extender: &str, binds: Binds, tls: &str, port: u16) -> String {
    let (verb, is_ignorable) = match binds {
        Binds::Itself => ("", true),
        Binds::Extender => ("bindVerb: bind", false),
    };
    let profiles = profiles();
    format!(
        r#"
apiVersion: kubescheduler.config.k8s.io/v1beta1
kind: KubeSchedulerConfiguration
leaderElection: {{leaderElect: false}}
healthzBindAddress: "127.0.0.1:{port}"
metricsBindAddress: "127.0.0.1:{port}"
# It decides about every node, so that what is placed follows from the rule alone.
percentageOfNodesToScore: 100
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 2
clientConnection: {{kubeconfig: "{}", qps: 1000, burst: 2000}}
profiles: {profiles}
extenders:
  - urlPrefix: "{extender}"
    {tls}
    filterVerb: filter
    prioritizeVerb: prioritize
    {verb}
    weight: 1000
    nodeCacheCapable: true
    ignorable: {is_ignorable}
    httpTimeout: 5s
    managedResources: [{{name: berth.dev/gpu, ignoredByScheduler: false}}]
"#,
        kubeconfig.display()
    )
}

/// What the chart's example says of them for this version; JSON is YAML too.
fn profiles() -> Value {
    let objects = render::objects(VERSION, &[("image", json!("registry.example/berth:1"))]);
    let example = objects.iter().find(|object| object["metadata"]["name"] == "berth-scheduler-example").unwrap();
    render::yaml(example["data"]["extender.yaml"].as_str().unwrap())["profiles"].clone()
}
