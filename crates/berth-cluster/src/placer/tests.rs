//! The placer with nodes that answer as they are told, over its real socket.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use berth_model::cluster::api::Reserved;
use berth_model::cluster::{Past, Report};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::client::{Client, ClientError, Held};
use super::testing::{fresh, members, report, wanting};
use super::*;
use crate::frame::Told;

/// What another task or the kernel does in its own time: no clock of ours can hurry a socket.
async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < end, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Free memory of each node in GiB; one that is not in it does not answer.
#[derive(Debug, Default)]
struct Nodes {
    free_gib: Mutex<BTreeMap<String, u64>>,
    number: AtomicU64,
    /// How long each takes to answer.
    takes: Mutex<Duration>,
    /// How old they say it is.
    age: Mutex<Duration>,
}

impl AskNodes for Arc<Nodes> {
    fn report<'a>(&'a self, question: &'a Question) -> Asked<'a, Told<Report>> {
        let free = self.free_gib.lock().unwrap().get(question.node.as_str()).copied();
        let number = self.number.fetch_add(1, Ordering::Relaxed) + 1;
        let (takes, age) = (*self.takes.lock().unwrap(), *self.age.lock().unwrap());
        Box::pin(async move {
            tokio::time::sleep(takes).await;
            let free = free.ok_or("it does not answer")?;
            Ok(Told { age, ..fresh(report(question.node.as_str(), number, free, &[])) })
        })
    }

    fn pasts<'a>(&'a self, _question: &'a Question) -> Asked<'a, Vec<Past>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

struct Stage {
    placer: Arc<Placer>,
    nodes: Arc<Nodes>,
    client: Client,
    dir: tempfile::TempDir,
}

/// With so much free on `n1`, `n2`, …, and each asked once.
async fn stage(free_gib: &[u64]) -> Stage {
    let nodes = Arc::new(Nodes::default());
    let named = free_gib.iter().enumerate().map(|(at, gib)| (format!("n{}", at + 1), *gib));
    nodes.free_gib.lock().unwrap().extend(named);
    let placer = Placer::new(&PlacerSettings::default(), Box::new(Arc::clone(&nodes)));
    placer.members(members(u8::try_from(free_gib.len()).unwrap()));
    let questions = placer.book().questions(usize::MAX, placer.now());
    for question in questions {
        assert!(placer.ask(&question, Duration::from_secs(1)).await);
    }
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("placer.sock");
    let listener = tokio::net::UnixListener::bind(&socket).unwrap();
    tokio::spawn(serve(listener, Arc::clone(&placer)));
    Stage { placer, nodes, client: Client::new(&socket), dir }
}

impl Stage {
    fn silence(&self, node: &str) {
        self.nodes.free_gib.lock().unwrap().remove(node);
    }

    async fn reserve(&self, gib: u64) -> Result<Held, ClientError> {
        self.client.reserve(&wanting(gib)).await
    }

    /// Waits until so many places are kept.
    async fn keeps(&self, count: usize) {
        until("the place is kept, or given back", || self.placer.book().reservations() == count).await;
    }
}

fn node(reserved: &Reserved) -> &str {
    reserved.choice.node.as_str()
}

#[tokio::test]
async fn a_place_is_kept_while_the_connection_is_open_and_given_back_when_it_is_told() {
    let stage = stage(&[40]).await;
    let held = stage.reserve(30).await.unwrap();
    assert_eq!((node(&held.reserved), held.reserved.candidates), ("n1", 1));
    let Err(ClientError::Nobody(answer)) = stage.reserve(30).await else { panic!("the last place was given twice") };
    assert_eq!((answer.choice, answer.refusals.total()), (None, 1));
    stage.client.release(held.reserved.placement).await.unwrap();
    stage.keeps(0).await;
    stage.reserve(30).await.unwrap();
}

#[tokio::test]
async fn what_is_older_than_the_placer_is_no_newer_for_that() {
    let stage = stage(&[40]).await;
    let standing = || stage.placer.book().standing(stage.placer.now());
    for (days, candidates) in [(0, 1), (49, 0)] {
        *stage.nodes.age.lock().unwrap() = Duration::from_hours(24 * days);
        stage.placer.ask_again(&"n1".parse().unwrap()).await;
        assert_eq!(standing().0, candidates, "{days} days old: {:?}", standing().1);
    }
}

#[tokio::test]
async fn of_many_that_ask_at_once_as_many_get_a_place_as_there_are() {
    let stage = stage(&[40, 40]).await;
    let asked = futures_util::future::join_all((0..20).map(|_| stage.reserve(30))).await;
    let held: Vec<&Held> = asked.iter().flatten().collect();
    assert_eq!(held.len(), 2);
    assert_ne!(node(&held[0].reserved), node(&held[1].reserved));
}

#[tokio::test]
async fn whoever_hangs_up_leaves_the_place_to_be_told_of_by_the_engine() {
    let stage = stage(&[40]).await;
    let held = stage.reserve(30).await.unwrap();
    let id = held.reserved.placement;
    drop(held);
    // Only one whose asker has gone is given up when the engine does not tell of it.
    let later = || stage.placer.now() + Duration::from_secs(60);
    until("somebody notices that it hung up", || {
        stage.placer.book().placed(vec![], later());
        stage.placer.book().reservations() == 0
    })
    .await;
    assert!(stage.placer.book().confirm(id, stage.placer.now()).is_none());
}

#[tokio::test]
async fn a_node_that_does_not_answer_when_it_is_asked_again_gets_nothing() {
    let stage = stage(&[40, 60]).await;
    stage.silence("n2");
    let held = stage.reserve(30).await.unwrap();
    assert_eq!(node(&held.reserved), "n1", "n2 was the better one by what it said last");
    stage.silence("n1");
    let Err(ClientError::Nobody(answer)) = stage.reserve(1).await else { panic!("placed on a silent node") };
    assert_eq!((answer.candidates, answer.refusals.0.get("no-report")), (0, Some(&2)));
    assert_eq!(stage.placer.book().reservations(), 1);
}

#[tokio::test]
async fn a_request_that_cannot_be_read_is_told_from_one_that_is_refused() {
    let stage = stage(&[40]).await;
    let wrong = PlaceRequest { constraints: vec!["colour==red".into()], ..wanting(1) };
    let error = stage.client.reserve(&wrong).await.unwrap_err();
    assert!(matches!(error, ClientError::Wrong { .. }), "{error:?}");
}

#[tokio::test]
async fn what_cannot_be_read_of_a_question_is_said_in_the_placers_words() {
    let stage = stage(&[40]).await;
    let body = r#"{"deadline":"1ns"}"#;
    let post = |path| format!("POST {path} HTTP/1.0\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let get = "GET /v1/nodes?deadline=1ns HTTP/1.0\r\n\r\n".to_owned();
    for question in [post(paths::PLACE), post(paths::RESERVATIONS), get] {
        let mut socket = tokio::net::UnixStream::connect(stage.dir.path().join("placer.sock")).await.unwrap();
        socket.write_all(question.as_bytes()).await.unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.unwrap();
        let told =
            answer.split("\r\n\r\n").nth(1).and_then(|body| serde_json::from_str::<serde_json::Value>(body).ok());
        let message = told.as_ref().and_then(|told| told["error"]["message"].as_str()).unwrap_or_default();
        assert!(answer.starts_with("HTTP/1.0 400"), "{answer}");
        assert!(message.contains("a deadline of `1ns` is too short: it must be at least 1us"), "{answer}");
    }
}

#[tokio::test]
async fn a_question_that_is_too_long_is_answered_and_not_hung_up_on() {
    let stage = stage(&[40]).await;
    let long = PlaceRequest { constraints: vec!["node.labels.rack==a".into(); 1_000_000], ..wanting(1) };
    let error = stage.client.reserve(&long).await.unwrap_err();
    assert_eq!(error.to_string(), "the question is longer than 1048576 bytes", "{error:?}");
    stage.reserve(1).await.unwrap();
}

#[tokio::test]
async fn a_node_that_has_changed_its_mind_is_passed_over() {
    let stage = stage(&[40, 60]).await;
    stage.nodes.free_gib.lock().unwrap().insert("n2".into(), 5);
    assert_eq!(node(&stage.reserve(30).await.unwrap().reserved), "n1");
}

#[tokio::test]
async fn a_placer_that_does_not_act_answers_questions_and_says_who_acts() {
    let stage = stage(&[40]).await;
    stage.placer.act(Acting::Not { because: "n9 places for this swarm".into() });
    let error = stage.reserve(1).await.unwrap_err().to_string();
    assert!(error.contains("n9 places for this swarm"), "{error}");
    stage.placer.act(Acting::Until(now()));
    let error = stage.reserve(1).await.unwrap_err().to_string();
    assert!(error.contains("could not renew its lease"), "{error}");
    let answer = stage.placer.place(&wanting(1)).unwrap();
    assert_eq!((answer.choice.is_some(), answer.idle.as_deref()), (true, Some("it could not renew its lease")));
    assert!(stage.placer.metrics().contains("berth_placer_acting 0"));
}

#[tokio::test]
async fn nothing_is_promised_when_leave_to_act_ends_while_a_node_is_asked() {
    let stage = stage(&[40]).await;
    *stage.nodes.takes.lock().unwrap() = Duration::from_millis(500);
    stage.placer.act(Acting::Until(now() + Duration::from_millis(250)));
    let error = stage.reserve(1).await.unwrap_err().to_string();
    assert!(error.contains("could not renew its lease"), "{error}");
    let error = stage.placer.settle(PlacementId(1), &wanting(1), &"n1".parse().unwrap()).await.unwrap_err();
    assert!(error.to_string().contains("could not renew its lease"), "{error}");
    assert_eq!(stage.placer.book().reservations(), 0);
}

#[tokio::test]
async fn nodes_are_asked_again_and_again_by_themselves() {
    let stage = stage(&[40]).await;
    let asking = tokio::spawn(Arc::clone(&stage.placer).ask_nodes());
    stage.nodes.free_gib.lock().unwrap().insert("n1".into(), 7);
    until("it is asked again", || stage.placer.place(&wanting(8)).unwrap().choice.is_none()).await;
    asking.abort();
    let page = stage.placer.metrics();
    assert!(page.contains("berth_placer_nodes{standing=\"placeable\"} 1\n"), "{page}");
    assert!(page.contains("berth_placer_questions_total{outcome=\"report\"}"), "{page}");
}
