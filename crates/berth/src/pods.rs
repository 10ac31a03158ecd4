//! The daemon as the agent of a Kubernetes node: where its settings say so, pods take Docker's place.

use std::path::Path;
use std::sync::mpsc::Sender;
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result};
use berth_api::Feed;
use berth_cluster::kubernetes::agent::{self, Agent, Choices, Options, Reporting, Teller};
use berth_cluster::kubernetes::device_plugin::{self, Gpu, Plugin, Ways};
use berth_cluster::node::key_file;
use berth_engine::{Names, describe};
use berth_host::clock;
use berth_model::cluster::NodeId;
use berth_model::snapshot::GpuView;
use berth_model::taking_part::Share;
use berth_model::{Change, ContainerId, Event, Settings, Source, SourceStatus};

/// By which a DaemonSet tells its pods where they are.
const NODE_NAME: &str = "NODE_NAME";

/// What is needed of the API server, read before anything is started; and a way to it once it is.
#[derive(Debug)]
pub struct Pods {
    options: Options,
    teller: Said,
}

/// For telling pods what happens to them. Silent until the agent runs, and where there is none.
#[derive(Debug, Clone, Default)]
pub struct Said(Arc<OnceLock<Teller>>);

#[derive(Debug)]
struct Named(Agent);

impl Pods {
    /// `None` where the settings want none. `reporting` says how the node reports, if it does.
    pub fn of(settings: &Settings, reporting: Option<Reporting>) -> Result<Option<Pods>> {
        let kubernetes = &settings.kubernetes;
        if !kubernetes.enabled {
            return Ok(None);
        }
        let node = node(settings).context("kubernetes.enabled")?;
        let config = agent::config(Path::new(&kubernetes.kubeconfig)).context("kubernetes.kubeconfig")?;
        let choices = Choices::default();
        let reporting = reporting.map(|reporting| truly(reporting, choices.clone()));
        let options = Options { node, config, now: clock::now, choices, reporting };
        Ok(Some(Pods { options, teller: Said::default() }))
    }

    /// What the placer has chosen for pods here, as far as they are known.
    pub fn choices(&self) -> Choices {
        self.options.choices.clone()
    }

    pub fn said(&self) -> Said {
        self.teller.clone()
    }

    /// Who tells of containers. `None` if not even a thread could be had, which is told.
    pub fn start(self, event_tx: &Sender<Event>) -> Option<Box<dyn Names>> {
        match Agent::start(self.options, event_tx.clone()) {
            Ok(agent) => {
                agent.teller().map(|teller| self.teller.0.set(teller));
                Some(Box::new(Named(agent)))
            }
            Err(error) => {
                let status = SourceStatus::Down { reason: describe(&error) };
                // The loop that hears it starts next.
                let _ = event_tx.send(Event::Source { source: Source::Kubernetes, status });
                None
            }
        }
    }
}

impl Said {
    pub fn tell(&self, changes: &[Change]) {
        if let Some(teller) = self.0.get() {
            teller.tell(changes);
        }
    }
}

impl Names for Named {
    fn describe(&self, id: ContainerId) -> bool {
        self.0.describe(id)
    }
}

/// Reports that tell of pods that got other GPUs than were chosen, too.
fn truly(reporting: Reporting, choices: Choices) -> Reporting {
    let Reporting { report, .. } = reporting;
    let told = move || {
        let mut report = report()?;
        choices.tell(&mut report);
        Some(report)
    };
    Reporting { report: Box::new(told), ..reporting }
}

/// Offers the GPUs to the kubelet; `None` where the settings offer none.
pub fn offer(settings: &Settings, choices: Choices, feed: Arc<Feed>) -> Result<Option<Plugin>> {
    let kubernetes = &settings.kubernetes;
    if !kubernetes.enabled || kubernetes.shares == 0 {
        return Ok(None);
    }
    let gpu = |gpu: &GpuView| Some(Gpu { uuid: gpu.uuid.clone()?, is_lost: gpu.lost.is_some() });
    let gpus = move || Some(feed.latest()?.gpus.iter().filter_map(gpu).collect());
    let kernels = &settings.kernels;
    let ways = Ways {
        mounts: kubernetes.mounts.clone(),
        share: kernels.enabled.then(|| Share::new(&kernels.library, &kernels.socket)),
        all_take_part: kernels.all,
        ..Ways::default()
    };
    let options = device_plugin::Options {
        dir: kubernetes.device_plugins.clone(),
        shares: kubernetes.shares,
        gpus: Box::new(gpus),
        choices,
        ways,
        cdi_dir: Some(kubernetes.cdi_dir.clone()).filter(|dir| !dir.as_os_str().is_empty()),
    };
    Ok(Some(Plugin::start(options).context("offering GPUs to the kubelet")?))
}

/// What a daemon of these settings finds at the API server; `Err`: why nothing.
pub fn check(settings: &Settings) -> Result<String> {
    let node = node(settings)?;
    let config = agent::config(Path::new(&settings.kubernetes.kubeconfig)).context("kubernetes.kubeconfig")?;
    let server = config.cluster_url.to_string();
    agent::check(config, &node)?;
    let key = &settings.cluster.key_file;
    let reports = match key_file::node(key, &node) {
        Ok(_) => String::new(),
        Err(error) => format!("; it does not report: {}", describe(&error)),
    };
    Ok(format!("node {node} at {server}{reports}"))
}

/// The name Kubernetes has for this host.
pub fn node(settings: &Settings) -> Result<NodeId> {
    if !settings.cluster.node.is_empty() {
        return Ok(settings.cluster.node.parse()?);
    }
    let name = std::env::var(NODE_NAME).ok().filter(|name| !name.is_empty());
    let name =
        name.with_context(|| format!("cluster.node is empty, and {NODE_NAME} is not set: what is this node called?"))?;
    name.parse().with_context(|| NODE_NAME.to_owned())
}
