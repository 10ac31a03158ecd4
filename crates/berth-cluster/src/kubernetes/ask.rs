//! What `kubectl berth` asks: the placer, by way of the API server and its word on who may; and a pod.
//!
//! The API server passes requests on to a service for those who may `get` `services/proxy` there. Nothing is asked that changes anything.

use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use berth_model::cluster::api::{Nodes, PlaceRequest};
use hyper::Request;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::Value;

use super::client::ApiError;
use super::pod::Pod;

/// Of the API server, and of the placer behind it.
const ANSWER_WITHIN: Duration = Duration::from_secs(15);

/// How the API server is reached.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// `None`: that of `KUBECONFIG`, of the home directory, or of the pod this runs in.
    pub kubeconfig: Option<PathBuf>,
    pub context: Option<String>,
}

/// Where the placer is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    pub namespace: String,
    pub name: String,
}

/// An API server that can be asked.
pub struct Asker {
    client: Client,
    service: Service,
}

#[derive(Debug, thiserror::Error)]
pub enum AskError {
    #[error("reading how to reach the API server")]
    Kubeconfig(#[source] Box<kube::config::KubeconfigError>),
    #[error("finding the API server: neither a kubeconfig nor a service account can be read")]
    NoConfig(#[source] Box<kube::config::InferConfigError>),
    #[error("setting up the connection to the API server")]
    Client(#[source] Box<kube::Error>),
    #[error(
        "asking service {name} in namespace {namespace} (--placer, --placer-namespace name another; \
         it takes the right to `get` `services/proxy` there)"
    )]
    Placer { namespace: String, name: String, source: ApiError },
    #[error("there is no pod {namespace}/{name}")]
    NoPod { namespace: String, name: String },
    #[error("reading pod {namespace}/{name}")]
    Pod { namespace: String, name: String, source: ApiError },
}

impl std::fmt::Debug for Asker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Asker").field("service", &self.service).finish_non_exhaustive()
    }
}

impl Asker {
    pub async fn new(access: &Access, service: Service) -> Result<Self, AskError> {
        let mut config = config(access).await?;
        // Whoever waits for an answer is told at once that there is none; by itself the client would try for minutes.
        config.default_retry = false;
        (config.connect_timeout, config.read_timeout) = (Some(ANSWER_WITHIN), Some(ANSWER_WITHIN));
        let client = Client::try_from(config).map_err(|error| AskError::Client(Box::new(error)))?;
        Ok(Self { client, service })
    }

    /// The namespace that is meant where none is named.
    pub fn namespace(&self) -> &str {
        self.client.default_namespace()
    }

    /// Every node, best first for what is asked.
    pub async fn nodes(&self, question: &PlaceRequest) -> Result<Nodes, AskError> {
        let Service { namespace, name } = &self.service;
        let path =
            format!("/api/v1/namespaces/{namespace}/services/https:{name}:https/proxy/v1/nodes{}", query(question));
        let failed = |source| AskError::Placer {
            namespace: namespace.clone(),
            name: name.clone(),
            source: ApiError::from(source),
        };
        let request = Request::get(path).body(Vec::new()).map_err(|error| failed(kube::Error::HttpError(error)))?;
        self.client.request(request).await.map_err(failed)
    }

    pub async fn pod(&self, namespace: &str, name: &str) -> Result<Pod, AskError> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        match pods.get_opt(&name).await {
            Ok(Some(pod)) => Ok(pod),
            Ok(None) => Err(AskError::NoPod { namespace, name }),
            Err(source) => Err(AskError::Pod { namespace, name, source: source.into() }),
        }
    }
}

async fn config(access: &Access) -> Result<Config, AskError> {
    let options = KubeConfigOptions { context: access.context.clone(), ..KubeConfigOptions::default() };
    let unread = |error| AskError::Kubeconfig(Box::new(error));
    match (&access.kubeconfig, &access.context) {
        (Some(path), _) => {
            let file = Kubeconfig::read_from(path).map_err(unread)?;
            Config::from_custom_kubeconfig(file, &options).await.map_err(unread)
        }
        (None, Some(_)) => Config::from_kubeconfig(&options).await.map_err(unread),
        (None, None) => Config::infer().await.map_err(|error| AskError::NoConfig(Box::new(error))),
    }
}

/// The question as the placer reads it; empty for anything.
fn query(question: &PlaceRequest) -> String {
    let Ok(Value::Object(fields)) = serde_json::to_value(question) else { return String::new() };
    let pairs = fields.iter().filter_map(|(name, value)| match value {
        Value::String(text) => Some(format!("{name}={}", encoded(text))),
        Value::Number(number) => Some(format!("{name}={number}")),
        _ => None,
    });
    let pairs = pairs.collect::<Vec<_>>().join("&");
    if pairs.is_empty() { pairs } else { format!("?{pairs}") }
}

/// As it may stand in a query.
fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => encoded.push(char::from(byte)),
            // Writing to a string cannot fail.
            _ => drop(write!(encoded, "%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_asked_as_the_placer_reads_it() {
        let question = serde_json::json!({"deadline": "9s", "memory_bytes": 1024, "image": "a/b:3&x=1"});
        let question: PlaceRequest = serde_json::from_value(question).unwrap();
        let asked = query(&question);
        assert_eq!(asked, "?deadline=9s&gpus=1&image=a%2Fb%3A3%26x%3D1&memory_bytes=1024&unit=task");
        let uri: axum::http::Uri = format!("/v1/nodes{asked}").parse().unwrap();
        let read = axum::extract::Query::<PlaceRequest>::try_from_uri(&uri).unwrap();
        assert_eq!(read.0, question);
    }
}
