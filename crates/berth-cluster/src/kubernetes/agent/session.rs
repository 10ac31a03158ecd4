//! The agent's thread: a watch that is kept up, questions that are answered from it, and two writers beside it.
//!
//! The writers have queues of their own, so that an API server that is slow to write to delays no name.

use std::sync::mpsc::Sender;
use std::time::Duration;

use berth_model::cluster::NodeId;
use berth_model::{ContainerId, Event, Mono, Source, SourceStatus};
use futures_util::FutureExt;
use futures_util::stream::{BoxStream, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher;
use kube::{Api, Client};
use tokio::sync::mpsc;

use super::calls::in_full;
use super::events::{Limits, Post};
use super::pods::Pods;
use super::status::Writer;
use super::{Options, Reporting, Word};
use crate::kubernetes::watch::watched;

/// Events that may wait to be written; beyond that pods are not told.
const POSTS: usize = 64;
/// Before an API server that did not answer is asked again.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Letters of an id in full.
const ID_LENGTH: usize = 64;

pub(super) struct Session {
    client: Client,
    node: NodeId,
    reporting: Option<Reporting>,
    event_tx: Sender<Event>,
    /// The daemon's clock.
    now: fn() -> Mono,
    pods: Pods,
    limits: Limits,
    status: Option<SourceStatus>,
}

impl Session {
    pub fn new(client: Client, options: Options, event_tx: Sender<Event>) -> Self {
        let Options { node, reporting, now, choices, .. } = options;
        let (pods, limits) = (Pods::new(choices), Limits::default());
        Self { client, node, reporting, event_tx, now, pods, limits, status: None }
    }

    /// Ends when nobody can say anything to it any more.
    pub async fn keep_up(mut self, mut words: mpsc::Receiver<Word>) {
        let (posts, posts_rx) = mpsc::channel(POSTS);
        let reporting = self.reporting.take();
        let writer = reporting.map(|reporting| Writer::new(self.client.clone(), self.node.clone(), reporting));
        let post = super::events::keep_posting(self.client.clone(), self.node.clone(), posts_rx);
        let report = async {
            match writer {
                Some(writer) => writer.keep_up().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.watch(&mut words, &posts) => {}
            () = post => {}
            () = report => {}
        }
    }

    async fn watch(&mut self, words: &mut mpsc::Receiver<Word>, posts: &mpsc::Sender<Post>) {
        let mut pause = FIRST_PAUSE;
        let mut stream = self.events(Duration::ZERO);
        loop {
            tokio::select! {
                told = stream.next() => match told {
                    Some(Ok(event)) => {
                        pause = if matches!(event, watcher::Event::InitDone) { FIRST_PAUSE } else { pause };
                        self.told(event);
                    }
                    Some(Err(error)) => {
                        self.is(SourceStatus::Down { reason: in_full(&error) });
                        // From a new list, whose end says that all is well again.
                        stream = self.events(pause);
                        pause = (pause * 2).min(LONGEST_PAUSE);
                    }
                    None => return,
                },
                word = words.recv() => match word {
                    Some(Word::Describe(id)) => self.describe(id),
                    Some(Word::Changes(changes)) => {
                        for change in changes.iter() {
                            let post = self.limits.post(change, &self.pods, (self.now)());
                            // Without room for it the pod is not told: so much happens that nobody would read it.
                            post.map(|post| posts.try_send(post).ok());
                        }
                    }
                    None => return,
                },
            }
        }
    }

    /// A list of the pods here, and what happens to them, after a pause.
    fn events(&self, pause: Duration) -> BoxStream<'static, Result<watcher::Event<Pod>, watcher::Error>> {
        let pods: Api<Pod> = Api::all(self.client.clone());
        let ours = watched().fields(&format!("spec.nodeName={}", self.node));
        let waited = tokio::time::sleep(pause).into_stream().filter_map(|()| async { None });
        waited.chain(watcher(pods, ours)).boxed()
    }

    fn told(&mut self, event: watcher::Event<Pod>) {
        let is_complete = matches!(event, watcher::Event::InitDone);
        for event in self.pods.told(event, (self.now)()) {
            self.send(event);
        }
        if is_complete {
            self.is(SourceStatus::Up);
        }
    }

    fn describe(&mut self, id: ContainerId) {
        match self.pods.named(&id.0) {
            Some(facts) => {
                let facts = facts.clone();
                self.send(Event::Container(Box::new(facts)));
            }
            // Its node tells of a container a moment after it runs.
            None if id.0.len() == ID_LENGTH => {}
            None => self.send(Event::ContainerGone { id }),
        }
    }

    fn is(&mut self, status: SourceStatus) {
        if self.status.as_ref() != Some(&status) {
            self.status = Some(status.clone());
            self.send(Event::Source { source: Source::Kubernetes, status });
        }
    }

    fn send(&self, event: Event) {
        // Nobody hears it only while the loop ends.
        let _ = self.event_tx.send(event);
    }
}
