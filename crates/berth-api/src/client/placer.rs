//! The client of the placer's socket: the nodes of a cluster, and where a container would go. Nothing is placed by it.

use std::path::{Path, PathBuf};

use berth_model::cluster::api::{Nodes, PlaceAnswer, PlaceRequest};

use super::{Client, ClientError, Peer, with_query};

const NODES: &str = "/v1/nodes";
const PLACE: &str = "/v1/place";

#[derive(Debug, Clone)]
pub struct PlacerClient(Client);

impl PlacerClient {
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self(Client { socket: socket.into(), peer: Peer::Placer })
    }

    pub fn socket(&self) -> &Path {
        self.0.socket()
    }

    /// Every node, best first for what is asked. The engine's own constraints are not part of this question.
    pub async fn nodes(&self, question: &PlaceRequest) -> Result<Nodes, ClientError> {
        let PlaceRequest { deadline, unit, memory_bytes, gpus, image, takes, constraints: _, detail: _ } = question;
        let query = [
            ("deadline", deadline.map(|deadline| deadline.to_string())),
            ("unit", Some(unit.as_str().to_owned())),
            ("memory_bytes", memory_bytes.map(|bytes| bytes.0.to_string())),
            ("gpus", Some(gpus.to_string())),
            ("image", image.clone()),
            ("takes", takes.map(|takes| takes.to_string())),
        ];
        self.0.get(&with_query(NODES, &query)).await
    }

    /// Where it would go, or how many nodes would not take it for what.
    pub async fn place(&self, request: &PlaceRequest) -> Result<PlaceAnswer, ClientError> {
        self.0.post(PLACE, request).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use axum::routing::{get, post};
    use axum::{Json, Router, extract};
    use berth_model::Bytes;
    use berth_model::cluster::{Refusals, Strategy};
    use berth_model::deadline::Unit;

    use super::*;

    fn request() -> PlaceRequest {
        PlaceRequest {
            deadline: Some("9s".parse().unwrap()),
            unit: Unit::Burst,
            memory_bytes: Some(Bytes(5)),
            gpus: 2,
            image: Some("a b&c=d".into()),
            takes: None,
            constraints: vec!["node.labels.rack==a".into()],
            detail: true,
        }
    }

    /// Notes what it is asked.
    fn placer(asked: &Arc<Mutex<Vec<PlaceRequest>>>) -> (PlacerClient, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let listener = tokio::net::UnixListener::bind(dir.path().join("s")).unwrap();
        let (one, other) = (Arc::clone(asked), Arc::clone(asked));
        let nodes = move |extract::Query(question): extract::Query<PlaceRequest>| {
            one.lock().unwrap().push(question);
            async {
                Json(Nodes {
                    engine: "swarm".into(),
                    strategy: Strategy::Fit,
                    idle: None,
                    nodes: Vec::new(),
                    waiting: Vec::new(),
                })
            }
        };
        let place = move |Json(request): Json<PlaceRequest>| {
            other.lock().unwrap().push(request);
            let refusals = Refusals::default();
            async {
                Json(PlaceAnswer { idle: None, choice: None, name: None, candidates: 0, refusals, nodes: Vec::new() })
            }
        };
        let router = Router::new().route(NODES, get(nodes)).route(PLACE, post(place));
        tokio::spawn(async { axum::serve(listener, router).await });
        (PlacerClient::new(dir.path().join("s")), dir)
    }

    #[tokio::test]
    async fn what_is_asked_arrives_as_it_was_asked() {
        let asked = Arc::default();
        let (client, _dir) = placer(&asked);
        assert_eq!(client.nodes(&request()).await.unwrap().engine, "swarm");
        assert_eq!(client.place(&request()).await.unwrap().choice, None);
        let of_nodes = PlaceRequest { constraints: Vec::new(), detail: false, ..request() };
        assert_eq!(*asked.lock().unwrap(), [of_nodes, request()]);
    }

    #[tokio::test]
    async fn where_there_is_no_placer_it_is_said_by_that_name() {
        let error = PlacerClient::new("/nowhere/placer.sock").place(&request()).await.unwrap_err();
        assert_eq!(error.to_string(), "no placer listens on /nowhere/placer.sock");
        assert!(error.is_absent());
    }
}
