//! A daemon's side of Kubernetes: it learns from the API server what the containers of its node are called and ask for, and tells it how the
//! node stands and what happens to pods.
//!
//! Names come by a watch on the pods of this node and of no other, so that thousands of nodes cost the API server little. The node's
//! report goes into the status of an object of its own ([`super::gpunode`]), signed by the node's key; what is held or will be late becomes an
//! event of its pod, a bounded number of them. Async stays in here, on a thread of its own ("berth-pods"); telling it something never blocks.
//! It decides nothing: which container a process is in is read from its cgroup, and the node runs on without an API server.

mod calls;
mod choices;
mod events;
mod facts;
mod pods;
mod session;
mod status;
mod strays;

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::Duration;

use berth_model::cluster::{NodeId, Past, Report};
use berth_model::{Change, ContainerId, Event, Mono};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::sync::mpsc;

pub use calls::CallError;
pub use choices::{Choices, Given, Meant};

use crate::frame::NodeKey;
use crate::kubernetes::watch::WATCHED_FOR;

/// Words that may wait for the thread, which takes them in microseconds, also while the API server is away.
const QUEUE: usize = 1024;

/// What an agent needs.
#[derive(Debug)]
pub struct Options {
    pub node: NodeId,
    /// How the API server is reached.
    pub config: kube::Config,
    /// The daemon's clock.
    pub now: fn() -> Mono,
    /// Filled with what the placer has chosen for pods here.
    pub choices: Choices,
    /// `None`: the node reports nothing here.
    pub reporting: Option<Reporting>,
}

/// How a node reports.
pub struct Reporting {
    pub key: NodeKey,
    /// What it would report now; `None` while it knows nothing yet. Must not block.
    pub report: Box<dyn Fn() -> Option<Report> + Send>,
    /// What it knows of images.
    pub pasts: Box<dyn Fn() -> Vec<Past> + Send>,
    /// At most so often, when something has changed.
    pub every: Duration,
}

/// The connection to an API server, kept up and made again for as long as this lives.
#[derive(Debug)]
pub struct Agent {
    /// `None` only while being dropped: its end is the sign to stop.
    words: Option<mpsc::Sender<Word>>,
    thread: Option<JoinHandle<()>>,
}

/// For telling pods what happens to them.
#[derive(Debug, Clone)]
pub struct Teller {
    words: mpsc::WeakSender<Word>,
}

/// What the thread is told.
#[derive(Debug)]
enum Word {
    Describe(ContainerId),
    Changes(Arc<[Change]>),
}

#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error("cannot read `{path}`")]
    Kubeconfig {
        path: String,
        #[source]
        source: kube::config::KubeconfigError,
    },
    #[error("no kubeconfig is set, and this is no pod")]
    NotInCluster {
        #[source]
        source: kube::config::InClusterError,
    },
    #[error("cannot make a client of the API server")]
    Client {
        #[source]
        source: Box<kube::Error>,
    },
    #[error("asking for the pods of {node}")]
    Ask {
        node: NodeId,
        #[source]
        source: CallError,
    },
    #[error("cannot start a thread")]
    Thread {
        #[source]
        source: std::io::Error,
    },
}

/// How the API server is reached: as the file says, or as the account of the pod this is. Blocks for as long as files take to read.
pub fn config(kubeconfig: &Path) -> Result<kube::Config, AgentError> {
    if kubeconfig.as_os_str().is_empty() {
        return kube::Config::incluster().map_err(|source| AgentError::NotInCluster { source });
    }
    let unreadable = |source| AgentError::Kubeconfig { path: kubeconfig.display().to_string(), source };
    let file = Kubeconfig::read_from(kubeconfig).map_err(unreadable)?;
    runtime()?.block_on(kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())).map_err(unreadable)
}

/// Whether the API server tells which pods are on this node, as it will be asked. Blocks for seconds where it does not answer.
pub fn check(config: kube::Config, node: &NodeId) -> Result<(), AgentError> {
    let one = ListParams::default().fields(&format!("spec.nodeName={node}")).limit(1);
    runtime()?.block_on(async {
        let pods: Api<Pod> = Api::all(client(config)?);
        let asked = calls::answered(pods.list_metadata(&one)).await;
        asked.map(drop).map_err(|source| AgentError::Ask { node: node.clone(), source })
    })
}

impl Agent {
    /// Connects in the background. Whether the API server answers is told by [`Event::Source`], now and whenever it changes.
    pub fn start(options: Options, event_tx: Sender<Event>) -> Result<Agent, AgentError> {
        let runtime = runtime()?;
        let (words, words_rx) = mpsc::channel(QUEUE);
        let client = {
            let _inside = runtime.enter();
            client(options.config.clone())?
        };
        let session = session::Session::new(client, options, event_tx);
        let thread = std::thread::Builder::new()
            .name("berth-pods".into())
            .spawn(move || runtime.block_on(session.keep_up(words_rx)))
            .map_err(|source| AgentError::Thread { source })?;
        Ok(Agent { words: Some(words), thread: Some(thread) })
    }

    /// Asks about a container, by its id, its name (`namespace/pod/container`) or the beginning of its id. The answer comes as
    /// [`Event::Container`]; or as [`Event::ContainerGone`] if no pod here has one by that, unless it was asked for by a whole id: the
    /// node may yet tell of that. `false` if too many questions wait already: ask again later.
    pub fn describe(&self, id: ContainerId) -> bool {
        self.words.as_ref().is_some_and(|words| words.try_send(Word::Describe(id)).is_ok())
    }

    pub fn teller(&self) -> Option<Teller> {
        self.words.as_ref().map(|words| Teller { words: words.downgrade() })
    }
}

impl Teller {
    /// What is of interest to pods becomes events of theirs. What there is no room for is not told.
    pub fn tell(&self, changes: &[Change]) {
        if !changes.iter().any(events::is_told) {
            return;
        }
        if let Some(words) = self.words.upgrade() {
            let told: Arc<[Change]> = changes.iter().filter(|change| events::is_told(change)).cloned().collect();
            let _ = words.try_send(Word::Changes(told));
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        drop(self.words.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for Reporting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reporting").field("every", &self.every).finish_non_exhaustive()
    }
}

/// Made inside a runtime.
fn client(mut config: kube::Config) -> Result<kube::Client, AgentError> {
    // Whoever asks tries again by itself. A read waits for what a watch has to tell, and no longer.
    config.default_retry = false;
    (config.connect_timeout, config.write_timeout) = (Some(calls::ANSWER_WITHIN), Some(calls::ANSWER_WITHIN));
    config.read_timeout = Some(WATCHED_FOR + calls::ANSWER_WITHIN);
    kube::Client::try_from(config).map_err(|source| AgentError::Client { source: Box::new(source) })
}

fn runtime() -> Result<tokio::runtime::Runtime, AgentError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|source| AgentError::Thread { source })
}
