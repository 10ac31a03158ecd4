//! What is answered over TLS: `/extender/…` to kube-scheduler, `/validate` to the API server, `/healthz` and `/readyz` to the kubelet,
//! `/metrics` to a scraper, and `/v1/nodes` to `kubectl berth`, which comes by way of the API server.
//!
//! Only `/extender` changes anything: pods that wait for a GPU are bound by it. Who asks there has to show a certificate, where it is said who
//! signs it. Of several placers only the one that has the lease answers there.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Query, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use berth_model::cluster::api::PlaceRequest;
use serde::de::DeserializeOwned;
use tokio::sync::{OwnedRwLockWriteGuard, RwLock, Semaphore};

use super::client::ApiPods;
use super::events::{Events, WhyNot};
use super::extender::types::{ExtenderArgs, ExtenderBindingArgs, ExtenderBindingResult, ExtenderFilterResult};
use super::extender::{Lately, bind, filter, prioritize};
use super::placement_of;
use super::ready::Ready;
use super::tls::Caller;
use super::waiting::Waiting;
use super::webhook::review;
use crate::placer::Placer;

/// Of a review: the API server takes no object of more than 3 MiB, and sends the old one too.
const REVIEW_BYTES: usize = 8 << 20;
/// Of a question of the scheduler: 50,000 names of nodes, or hundreds of whole nodes where it has not been told that names are enough.
const QUESTION_BYTES: usize = 16 << 20;
/// Of a binding, which names a pod and a node.
const BINDING_BYTES: usize = 64 << 10;
/// Reviews, and bindings, that are read at a time: what their bodies take is bounded with them.
const AT_ONCE: usize = 16;
/// Questions about nodes. The scheduler decides about one pod after the other.
const QUESTIONS_AT_ONCE: usize = 4;
/// A binding is given up by then: less than the scheduler waits.
const BIND_WITHIN: Duration = Duration::from_secs(4);
/// From the head of a request to its answer: longer than who asks waits.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

#[derive(Debug, Clone)]
pub struct Served {
    pub placer: Arc<Placer>,
    pub pods: ApiPods,
    pub events: Events,
    pub ready: Ready,
    pub waiting: Arc<Mutex<Waiting>>,
    /// By which name the API server knows the placer; empty if that is not said.
    user: Arc<str>,
    lately: Arc<Mutex<Lately>>,
    /// Held by each binding that is under way.
    bindings: Arc<RwLock<()>>,
}

impl Served {
    pub fn new(placer: Arc<Placer>, pods: ApiPods, events: Events, user: &str) -> Self {
        Self {
            placer,
            pods,
            events,
            ready: Ready::default(),
            waiting: Arc::default(),
            user: user.into(),
            lately: Arc::default(),
            bindings: Arc::default(),
        }
    }

    /// Returns when no binding is under way; until what it returns is dropped none begins.
    pub async fn no_more_bindings(&self) -> OwnedRwLockWriteGuard<()> {
        Arc::clone(&self.bindings).write_owned().await
    }

    /// Taken after the book.
    fn lately(&self) -> MutexGuard<'_, Lately> {
        self.lately.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why it would be a guess, or another's to say; `None` if it can say.
    fn why_not_asked(&self) -> Option<String> {
        if !self.ready.is_ready() {
            return Some("the placer has just started and does not know all nodes and pods yet".to_owned());
        }
        self.placer.why_idle().map(|why| format!("this placer does not place: {why}"))
    }
}

pub fn router(served: Served) -> Router {
    let questions = Router::new()
        .route("/filter", post(on_filter))
        .route("/prioritize", post(on_prioritize))
        .layer(DefaultBodyLimit::max(QUESTION_BYTES))
        .layer(middleware::from_fn_with_state(places(QUESTIONS_AT_ONCE), few_at_once));
    let bindings = Router::new()
        .route("/bind", post(on_bind))
        .layer(DefaultBodyLimit::max(BINDING_BYTES))
        .layer(middleware::from_fn_with_state(places(AT_ONCE), few_at_once));
    let extender = questions.merge(bindings).layer(middleware::from_fn(for_those_known));
    let review = Router::new()
        .route("/validate", post(on_review))
        .layer(DefaultBodyLimit::max(REVIEW_BYTES))
        .layer(middleware::from_fn_with_state(places(AT_ONCE), few_at_once));
    Router::new()
        .nest("/extender", extender)
        .merge(review)
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(on_ready))
        .route("/metrics", get(on_metrics))
        .route("/v1/nodes", get(on_nodes))
        .layer(middleware::from_fn(in_time))
        .with_state(served)
}

/// For each kind of its own: who is not known cannot keep the scheduler waiting.
fn places(count: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(count))
}

/// Those who may have pods placed.
async fn for_those_known(caller: Extension<Caller>, request: Request, next: Next) -> Response {
    if !caller.is_known {
        let why = "who asks here shows a certificate that is signed by one of `placer.client_ca`";
        return (StatusCode::FORBIDDEN, why).into_response();
    }
    next.run(request).await
}

async fn few_at_once(State(places): State<Arc<Semaphore>>, request: Request, next: Next) -> Response {
    let Ok(_place) = places.acquire().await else { return StatusCode::SERVICE_UNAVAILABLE.into_response() };
    next.run(request).await
}

/// Who sends slowly does not keep a place for good.
async fn in_time(request: Request, next: Next) -> Response {
    let answer = tokio::time::timeout(ANSWER_WITHIN, next.run(request)).await;
    answer.unwrap_or_else(|_| StatusCode::REQUEST_TIMEOUT.into_response())
}

async fn on_filter(State(served): State<Served>, body: Bytes) -> Response {
    if let Some(why) = served.why_not_asked() {
        let error = format!("berth: {why}");
        return Json(ExtenderFilterResult { error, ..ExtenderFilterResult::default() }).into_response();
    }
    read(&body, |args: ExtenderArgs| {
        let (pod, now) = (args.pod.clone(), served.placer.now());
        let (answer, refusals) = filter(&mut served.placer.book(), &mut served.lately(), args, now);
        if let (Some(refusals), Ok(Some(wants))) = (refusals, pod.wants()) {
            served.events.tell(WhyNot::new(&pod, &refusals));
            served.placer.has_placed(false);
            served.waiting.lock().unwrap_or_else(PoisonError::into_inner).refused(&pod, wants.request(), now);
        }
        answer
    })
}

async fn on_prioritize(State(served): State<Served>, body: Bytes) -> Response {
    // It has no field to say why.
    if let Some(why) = served.why_not_asked() {
        return (StatusCode::SERVICE_UNAVAILABLE, why).into_response();
    }
    read(&body, |args| prioritize(&mut served.placer.book(), &mut served.lately(), &args, served.placer.now()))
}

async fn on_bind(State(served): State<Served>, body: Bytes) -> Response {
    let binding = Arc::clone(&served.bindings).read_owned().await;
    if let Some(why) = served.why_not_asked() {
        return Json(ExtenderBindingResult { error: format!("berth: {why}") }).into_response();
    }
    let args: ExtenderBindingArgs = match serde_json::from_slice(&body) {
        Ok(args) => args,
        Err(error) => return unreadable(&error),
    };
    // Not beyond the lease: another may take the same place then.
    let within = served.placer.acts_for().unwrap_or_default().min(BIND_WITHIN);
    // A task of its own: a scheduler that hangs up does not leave a binding half done.
    let task = tokio::spawn(async move {
        let bound = tokio::time::timeout(within, bind(&served.placer, &served.pods, &args)).await;
        drop(binding);
        match bound {
            Ok(Ok(_)) => {
                served.placer.has_placed(true);
                String::new()
            }
            Ok(Err(error)) => told(&error),
            Err(_) => {
                // Nobody knows whether it is bound.
                served.placer.book().taken(placement_of(&args.pod_uid), served.placer.now());
                format!("the API server did not answer within {:.1} s", within.as_secs_f64())
            }
        }
    });
    let error = task.await.unwrap_or_else(|error| error.to_string());
    if !error.is_empty() {
        tracing::info!(error, "a pod is not bound");
    }
    Json(ExtenderBindingResult { error }).into_response()
}

async fn on_review(State(served): State<Served>, body: Bytes) -> Response {
    let reviewed = serde_json::from_slice(&body).map(|asked| review(asked, &served.user));
    match reviewed {
        Ok(Ok(answer)) => Json(answer).into_response(),
        Ok(Err(error)) => (StatusCode::BAD_REQUEST, told(&error)).into_response(),
        Err(error) => unreadable(&error),
    }
}

async fn on_ready(State(served): State<Served>) -> Response {
    let stops = served.ready.is_stopping().then(|| "it is stopping".to_owned());
    match stops.or_else(|| served.why_not_asked()) {
        None => "ok".into_response(),
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, why).into_response(),
    }
}

async fn on_metrics(State(served): State<Served>) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], served.placer.metrics()).into_response()
}

async fn on_nodes(State(served): State<Served>, Query(question): Query<PlaceRequest>) -> Response {
    match served.placer.nodes(&question) {
        Ok(nodes) => Json(nodes).into_response(),
        Err(error) => (StatusCode::BAD_REQUEST, told(&error)).into_response(),
    }
}

fn read<T: DeserializeOwned, A: serde::Serialize>(body: &Bytes, answer: impl FnOnce(T) -> A) -> Response {
    match serde_json::from_slice(body) {
        Ok(asked) => Json(answer(asked)).into_response(),
        Err(error) => unreadable(&error),
    }
}

fn unreadable(error: &serde_json::Error) -> Response {
    (StatusCode::BAD_REQUEST, format!("the request cannot be read: {error}")).into_response()
}

/// With what it comes from.
fn told(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubernetes::extender::types::MOST_NODES;
    use crate::kubernetes::testing::{joins, placer};
    use crate::placer::Acting;
    use axum::body::Body;
    use http_body_util::BodyExt;
    use serde_json::{Value, json};
    use std::convert::Infallible;
    use tower::ServiceExt;

    const BIND: &str = include_str!("../../tests/kubernetes/recorded/bind.json");

    /// With an API server that is not there.
    fn served() -> Served {
        let nobody = tower::service_fn(|_: Request<kube::client::Body>| async {
            Err::<Response, _>(std::io::Error::other("nobody is there"))
        });
        let pods = ApiPods::new(kube::Client::new(nobody, "default"));
        let placer = placer();
        joins(&placer, "node-b", 80);
        Served::new(placer, pods, Events::new().0, "")
    }

    async fn asked(served: &Served, is_known: bool, path: &str, body: Body) -> (StatusCode, String) {
        let router = router(served.clone()).layer(Extension(Caller { is_known }));
        let request = Request::post(path).body(body).unwrap();
        let answer = router.oneshot(request).await.unwrap();
        let status = answer.status();
        let text = answer.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8_lossy(&text).into_owned())
    }

    async fn why_not_bound(served: &Served) -> String {
        let (status, answer) = asked(served, true, "/extender/bind", BIND.into()).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        serde_json::from_str::<Value>(&answer).unwrap()["Error"].as_str().unwrap().to_owned()
    }

    #[tokio::test]
    async fn nothing_is_placed_before_everything_is_known_or_by_who_has_not_the_lease() {
        let served = served();
        let pods = served.ready.expects("pods");
        let told = why_not_bound(&served).await;
        assert!(told.contains("has just started"), "{told}");
        let question = include_str!("../../tests/kubernetes/recorded/filter-node-names.json");
        let (_, told) = asked(&served, true, "/extender/filter", question.into()).await;
        assert!(told.contains("has just started"), "{told}");
        let (status, _) = asked(&served, true, "/extender/prioritize", question.into()).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        pods.has_told_all();
        let told = why_not_bound(&served).await;
        assert!(told.contains("looking for pod default/trainer"), "it is asked for: {told}");
        served.placer.act(Acting::Not { because: "n2 places for this cluster".to_owned() });
        let told = why_not_bound(&served).await;
        assert_eq!(told, "berth: this placer does not place: n2 places for this cluster");
    }

    #[tokio::test]
    async fn while_it_stops_no_binding_begins() {
        let served = served();
        let none = served.no_more_bindings().await;
        let mut asked = std::pin::pin!(why_not_bound(&served));
        tokio::time::timeout(Duration::from_millis(50), &mut asked).await.unwrap_err();
        drop(none);
        asked.await;
    }

    #[tokio::test]
    async fn who_shows_no_certificate_has_nothing_placed_and_its_pods_judged() {
        let served = served();
        for path in ["/extender/filter", "/extender/prioritize", "/extender/bind"] {
            let (status, told) = asked(&served, false, path, BIND.into()).await;
            assert_eq!((status, told.contains("placer.client_ca")), (StatusCode::FORBIDDEN, true), "{told}");
        }
        let review = include_str!("../../tests/kubernetes/recorded/review-create.json");
        assert_eq!(asked(&served, false, "/validate", review.into()).await.0, StatusCode::OK);
    }

    #[tokio::test]
    async fn reviews_and_questions_that_are_sent_slowly_do_not_keep_bindings_waiting() {
        let router = router(served()).layer(Extension(Caller { is_known: true }));
        for path in ["/validate", "/extender/filter"] {
            for _ in 0..AT_ONCE + 1 {
                let slowly = futures_util::stream::pending::<Result<Bytes, Infallible>>();
                let request = Request::post(path).body(Body::from_stream(slowly)).unwrap();
                tokio::spawn(router.clone().oneshot(request));
            }
        }
        tokio::task::yield_now().await;
        let request = Request::post("/extender/bind").body(Body::from(BIND)).unwrap();
        let answer = tokio::time::timeout(ANSWER_WITHIN / 2, router.oneshot(request)).await;
        assert_eq!(answer.unwrap().unwrap().status(), StatusCode::OK);
    }

    #[tokio::test]
    async fn what_is_read_of_a_question_is_bounded() {
        let served = served();
        let question = json!({"Pod": {}, "NodeNames": ["n".repeat(QUESTION_BYTES)]}).to_string();
        let (status, _) = asked(&served, true, "/extender/filter", question.into()).await;
        assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
        let binding = json!({"PodName": "n".repeat(BINDING_BYTES)}).to_string();
        let (status, _) = asked(&served, true, "/extender/bind", binding.into()).await;
        assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    }

    #[tokio::test]
    async fn more_nodes_than_a_cluster_has_are_not_read() {
        let served = served();
        for (field, node) in [("NodeNames", json!("n")), ("Nodes", json!({"metadata": {"name": "n"}}))] {
            for (nodes, answered) in [(MOST_NODES, StatusCode::OK), (MOST_NODES + 1, StatusCode::BAD_REQUEST)] {
                let nodes = vec![node.clone(); nodes];
                let nodes = if field == "Nodes" { json!({"items": nodes}) } else { json!(nodes) };
                let question = json!({"Pod": {"metadata": {}, "spec": {"containers": []}}, field: nodes}).to_string();
                let (status, told) = asked(&served, true, "/extender/filter", question.into()).await;
                assert_eq!(status, answered, "{field}");
                assert_eq!(told.contains("more than 50000 nodes"), answered == StatusCode::BAD_REQUEST, "{field}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_sends_slowly_is_given_up() {
        let slowly = futures_util::stream::pending::<Result<Bytes, Infallible>>();
        let (status, _) = asked(&served(), true, "/extender/bind", Body::from_stream(slowly)).await;
        assert_eq!(status, StatusCode::REQUEST_TIMEOUT);
    }
}
