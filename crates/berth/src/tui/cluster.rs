//! The nodes of the cluster, while they are shown: what the placer says, asked again and again by a thread that ends with the view.

use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use anyhow::{Context as _, Result};
use berth_api::PlacerClient;
use berth_model::cluster::NodeId;
use berth_model::cluster::api::{Node, Nodes, PlaceRequest};

use crate::live::{self, describe};

/// A placer asks its nodes each second; more often there is nothing new.
const ASKED_EVERY: Duration = Duration::from_secs(1);

/// What is shown.
#[derive(Debug, Default)]
pub struct Cluster {
    /// As last told; best first.
    pub told: Option<Nodes>,
    /// Why nothing newer was.
    pub trouble: Option<String>,
    selected: Option<NodeId>,
}

/// Asks until it is dropped.
#[derive(Debug)]
pub struct Asking {
    told_rx: Receiver<Result<Nodes, String>>,
    /// Dropped with this, which ends the thread's wait.
    _end_tx: Sender<()>,
}

// === impl Cluster ===

impl Cluster {
    pub fn hear(&mut self, told: Result<Nodes, String>) {
        match told {
            Ok(nodes) => (self.told, self.trouble) = (Some(nodes), None),
            Err(trouble) => self.trouble = Some(trouble),
        }
    }

    pub fn nodes(&self) -> &[Node] {
        self.told.as_ref().map_or(&[], |told| &told.nodes)
    }

    /// Where the selected node is; the first if it is gone.
    pub fn selected_index(&self) -> Option<usize> {
        let nodes = self.nodes();
        let at = nodes.iter().position(|node| Some(&node.node) == self.selected.as_ref());
        at.or((!nodes.is_empty()).then_some(0))
    }

    pub fn select(&mut self, by: isize) {
        let Some(now) = self.selected_index() else { return };
        let nodes = self.nodes();
        let index = now.saturating_add_signed(by).min(nodes.len() - 1);
        self.selected = Some(nodes[index].node.clone());
    }
}

// === impl Asking ===

impl Asking {
    pub fn begin(socket: &Path) -> Result<Self> {
        let client = PlacerClient::new(socket);
        let (told_tx, told_rx) = mpsc::channel();
        let (end_tx, end_rx) = mpsc::channel();
        let ask = move || ask(&client, &told_tx, &end_rx);
        std::thread::Builder::new().name("berth-nodes".into()).spawn(ask).context("starting a thread")?;
        Ok(Self { told_rx, _end_tx: end_tx })
    }

    /// What has been told since the last time.
    pub fn told(&self) -> impl Iterator<Item = Result<Nodes, String>> {
        self.told_rx.try_iter()
    }
}

fn ask(client: &PlacerClient, told_tx: &Sender<Result<Nodes, String>>, end_rx: &Receiver<()>) {
    let runtime = match live::runtime() {
        Ok(runtime) => runtime,
        // Nobody may listen any more.
        Err(error) => return drop(told_tx.send(Err(format!("{error:#}")))),
    };
    loop {
        let told = runtime.block_on(client.nodes(&PlaceRequest::anything())).map_err(|error| describe(&error));
        let is_over = told_tx.send(told).is_err();
        if is_over || end_rx.recv_timeout(ASKED_EVERY) == Err(RecvTimeoutError::Disconnected) {
            return;
        }
    }
}
