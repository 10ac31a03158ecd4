//! This host as a node of a cluster: what it is called there, with which key it signs, and what it tells whoever places containers.
//!
//! The same report goes over TCP to the placer, to the status of a Kubernetes node, and as JSON to whoever may open the daemon's socket;
//! each has a number of its own. It is made from the latest snapshot: no question reaches a GPU, and only what is remembered of images is
//! asked of the loop.

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

use anyhow::{Context, Result};
use berth_api::{Feed, ReportTotals};
use berth_cluster::frame::{KeyFile, NodeKey};
use berth_cluster::kubernetes::agent::Reporting;
use berth_cluster::node::key_file::{self, KeyFileError};
use berth_cluster::node::{Counters, Facts, Listener, PastsReply, Totals};
use berth_host::docker;
use berth_model::cluster::report::About;
use berth_model::cluster::{NodeId, Past, Report};
use berth_model::control::{Answer, Ask, Caller, DeadlineAsk, What};
use berth_model::settings::Mode;
use berth_model::{Settings, Snapshot};

use crate::engine::has_looked;
use crate::pods;

const HOST_NAME: &str = "/proc/sys/kernel/hostname";
/// How long the loop may take to tell of the past, where somebody can wait for it.
const PASTS_WITHIN: Duration = Duration::from_secs(2);

/// What is told, and how it is numbered. One for the whole daemon.
pub struct Reporter {
    about: About,
    numbers: AtomicU64,
    feed: Arc<Feed>,
    /// There as soon as the loop is.
    engine: OnceLock<berth_engine::Control>,
}

/// Of a host that others may ask, or that reports to an API server.
pub struct Member {
    node: NodeId,
    key: NodeKey,
    listener: Option<Listener>,
    counters: Arc<Counters>,
}

// === impl Reporter ===

impl Reporter {
    pub fn report(&self, snapshot: &Snapshot) -> Report {
        Report::of(snapshot, &self.about, self.numbers.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// From now on it can tell what is remembered.
    pub fn attend(&self, engine: berth_engine::Control) {
        // A daemon has one loop.
        let _ = self.engine.set(engine);
    }

    fn remembered(&self) -> Vec<Past> {
        let (told_tx, told_rx) = mpsc::channel();
        Facts::pasts(
            self,
            Box::new(move |pasts| {
                // Gone if it took too long.
                let _ = told_tx.send(pasts);
            }),
        );
        told_rx.recv_timeout(PASTS_WITHIN).unwrap_or_default()
    }
}

impl Facts for Reporter {
    fn report(&self) -> Option<(Report, Duration)> {
        let (snapshot, age) = (self.feed.latest()?, self.feed.age()?);
        // A host without a driver has no GPU, and says so: its own daemon tells why.
        if !has_looked(&snapshot) {
            return None;
        }
        Some((self.report(&snapshot), age))
    }

    fn pasts(&self, reply: PastsReply) {
        let Some(engine) = self.engine.get() else { return };
        // Who asks has shown that it may: it has the node's key, or is this daemon.
        let caller = Caller { uid: 0, user: None, is_admin: true };
        let told = move |answer| {
            if let Ok(Answer::Pasts(pasts)) = answer {
                reply(pasts);
            }
        };
        engine.ask(Ask { caller, what: What::Deadline(DeadlineAsk::Pasts) }, Box::new(told));
    }
}

// === impl Member ===

impl Member {
    /// How an agent of Kubernetes tells it.
    pub fn reporting(&self, reporter: &Arc<Reporter>, settings: &Settings) -> Reporting {
        let (reports, remembers) = (Arc::clone(reporter), Arc::clone(reporter));
        Reporting {
            key: self.key.clone(),
            report: Box::new(move || Some(Facts::report(&*reports)?.0)),
            pasts: Box::new(move || remembers.remembered()),
            every: settings.cluster.report_every.get(),
        }
    }

    /// Answers for as long as it is polled; where nobody may ask, there is nothing to do.
    pub async fn serve(self, reporter: Arc<Reporter>) -> Result<Infallible> {
        match self.listener {
            Some(listener) => Ok(listener.serve(self.node, self.key, reporter, self.counters).await?),
            None => pending().await,
        }
    }

    /// What came of questions; `None` where nobody may ask.
    pub fn counters(&self) -> Option<Arc<Counters>> {
        self.listener.is_some().then(|| Arc::clone(&self.counters))
    }
}

/// As metrics have them.
pub fn totals(counters: &Counters) -> ReportTotals {
    let Totals { served, refused } = counters.totals();
    ReportTotals { served, refused }
}

/// Refuses to let others ask without a key that only the daemon can read. `None`: this host is in no cluster.
pub fn join(settings: &Settings, feed: Arc<Feed>) -> Result<(Reporter, Option<Member>)> {
    let cluster = &settings.cluster;
    let key = match (cluster.address(), settings.kubernetes.enabled) {
        (None, false) => None,
        (Some(_), _) => Some(key_file::read(&cluster.key_file).context(
            "cluster.listen lets others ask this node, and they need a key: make one with `berth cluster key node NAME`",
        )?),
        (None, true) => key_if_there(settings)?,
    };
    let node = node(settings, key.as_ref())?;
    let about = About {
        node: node.clone(),
        berth: env!("CARGO_PKG_VERSION").to_owned(),
        started_ms: u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or_default(),
        rest: settings.edf.rest,
    };
    let reporter = Reporter { about, numbers: AtomicU64::new(0), feed, engine: OnceLock::new() };
    let Some(key) = key else { return Ok((reporter, None)) };
    let key = key_file::of_node(key, &cluster.key_file, &node)?;
    let listener = cluster.address().map(Listener::bind).transpose()?;
    if let Some(listener) = &listener {
        tracing::info!(address = %listener.address(), %node, "the cluster may ask this node");
    }
    Ok((reporter, Some(Member { node, key, listener, counters: Arc::default() })))
}

/// What this host is called in its cluster, and the key it signs with.
pub fn identity(settings: &Settings) -> Result<(NodeId, NodeKey)> {
    let path = &settings.cluster.key_file;
    let key = key_file::read(path)?;
    let node = node(settings, Some(&key))?;
    let key = key_file::of_node(key, path, &node)?;
    Ok((node, key))
}

/// An agent without a key gives pods their names and does not report.
fn key_if_there(settings: &Settings) -> Result<Option<KeyFile>> {
    let path = &settings.cluster.key_file;
    match key_file::read(path) {
        Ok(key) => Ok(Some(key)),
        Err(KeyFileError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            tracing::warn!(path = %path.display(), "there is no key: this node does not report to its cluster");
            Ok(None)
        }
        Err(error) => Err(error).context("cluster.key_file"),
    }
}

/// What its engine calls this host: as the settings say, as its key does, as the engine does, and else the host's own name.
fn node(settings: &Settings, key: Option<&KeyFile>) -> Result<NodeId> {
    if settings.kubernetes.enabled {
        return pods::node(settings);
    }
    if let Some(node) = settings.cluster.node_id() {
        return Ok(node);
    }
    if let Some(KeyFile::Node { node, .. }) = key {
        return Ok(node.clone());
    }
    let in_swarm = key.filter(|_| settings.docker.mode != Mode::Off).and_then(|_| swarm_node(settings));
    in_swarm.map_or_else(host_name, Ok)
}

fn swarm_node(settings: &Settings) -> Option<NodeId> {
    match docker::swarm_node(&settings.docker.socket) {
        Ok(node) => node?.parse().ok(),
        Err(error) => {
            tracing::warn!(%error, "Docker does not say what its swarm calls this node: it goes by the host's name");
            None
        }
    }
}

fn host_name() -> Result<NodeId> {
    let name = std::fs::read_to_string(HOST_NAME).with_context(|| format!("reading {HOST_NAME}"))?;
    name.trim().parse().context("the host's name; cluster.node gives it another")
}
