//! A node and whoever asks it, over real connections.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::{net::SocketAddr, sync::Arc, time::Duration};

use berth_model::cluster::{NodeId, Past, Report, Stamp};
use berth_model::deadline::{Spread, Unit};
use hyper::StatusCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::ask::exchange;
use super::*;
use crate::frame::{ClusterKey, FrameError, KEY_BYTES, NONCE_BYTES, NodeKey, Nonce, hex};

/// Far more than anything here takes; only a hang gets there.
const LONG: Duration = Duration::from_secs(20);

#[derive(Default)]
struct Fake {
    numbers: AtomicU64,
    age: Mutex<Option<Duration>>,
    pasts: Mutex<Option<Vec<Past>>>,
    is_broken: AtomicBool,
}

impl Facts for Fake {
    fn report(&self) -> Option<(Report, Duration)> {
        assert!(!self.is_broken.load(Ordering::Relaxed), "a defect");
        let age = (*self.age.lock().unwrap())?;
        let number = self.numbers.fetch_add(1, Ordering::Relaxed) + 1;
        let stamp = Stamp { started_ms: 1, number, at_ms: 2 };
        let (node, berth) = (id("a"), "0.1.0".to_owned());
        Some((Report { node, stamp, berth, policy: None, means: vec![], gpus: vec![], pasts: 7 }, age))
    }

    fn pasts(&self, reply: PastsReply) {
        if let Some(pasts) = self.pasts.lock().unwrap().clone() {
            reply(pasts);
        }
    }
}

fn id(name: &str) -> NodeId {
    name.parse().unwrap()
}

fn key(cluster: u8) -> NodeKey {
    ClusterKey::new([cluster; KEY_BYTES]).node(&id("a"))
}

/// A node `a` with the key of cluster 1.
struct Served {
    address: SocketAddr,
    facts: Arc<Fake>,
    counters: Arc<Counters>,
}

impl Served {
    fn start() -> Self {
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.address();
        let age = Mutex::new(Some(Duration::from_millis(250)));
        let facts = Arc::new(Fake { age, ..Fake::default() });
        let counters = Arc::new(Counters::default());
        tokio::spawn(listener.serve(id("a"), key(1), facts.clone(), counters.clone()));
        Self { address, facts, counters }
    }

    async fn refusal(&self, key: &NodeKey) -> String {
        ask(self.address, &id("a"), key, LONG).await.unwrap_err().to_string()
    }

    fn refused(&self, why: &str) -> u64 {
        self.counters.totals().refused.get(why).copied().unwrap_or_default()
    }
}

#[tokio::test]
async fn who_has_the_key_is_answered_anew_each_time() {
    let node = Served::start();
    for number in 1..=3 {
        let told = ask(node.address, &id("a"), &key(1), LONG).await.unwrap();
        assert_eq!((told.what.stamp.number, told.age), (number, Duration::from_millis(250)));
    }
    assert_eq!(node.counters.totals().served, 3);
}

#[tokio::test]
async fn who_has_not_is_told_nothing() {
    let node = Served::start();
    let told = node.refusal(&key(2)).await;
    assert!(told.contains("not signed with the key of this node"), "{told}");
    let (nonce, signature) = ("00".repeat(NONCE_BYTES), "00".repeat(32));
    for (nonce, signature) in [("", ""), (&nonce, ""), ("", &signature), ("xy", &signature), (&nonce, "00")] {
        let (status, body) = exchange(node.address, "/v1/report", nonce, signature).await.unwrap();
        assert_eq!(status, StatusCode::UNAUTHORIZED);
        assert!(!body.starts_with(b"brth"));
    }
    // A question about one thing is none about another.
    let asked = Nonce([1; NONCE_BYTES]);
    let signature = hex(&key(1).sign_ask(Kind::Report, &asked));
    let (status, _) = exchange(node.address, "/v1/pasts", &hex(&asked.0), &signature).await.unwrap();
    assert_eq!((status, node.refused("wrong-key"), node.refused("not-signed")), (StatusCode::UNAUTHORIZED, 2, 5));
    assert_eq!(node.counters.totals().served, 0);
}

#[tokio::test]
async fn other_paths_and_other_methods_are_refused() {
    let node = Served::start();
    let (status, _) = exchange(node.address, "/v1/snapshot", "", "").await.unwrap();
    assert_eq!(status, StatusCode::NOT_FOUND);
    let mut stream = TcpStream::connect(node.address).await.unwrap();
    stream.write_all(b"POST /v1/report HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 405 "), "{answer}");
}

/// A connection whose question has come.
async fn asked(listener: &TcpListener) -> TcpStream {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut question = Vec::new();
    while !question.ends_with(b"\r\n\r\n") {
        question.push(stream.read_u8().await.unwrap());
    }
    stream
}

/// Somebody between the two sends what was sent before.
#[tokio::test]
async fn an_answer_that_was_recorded_is_not_believed() {
    let node = Served::start();
    let nonce = Nonce([9; NONCE_BYTES]);
    let signature = hex(&key(1).sign_ask(Kind::Report, &nonce));
    let (_, recorded) = exchange(node.address, "/v1/report", &hex(&nonce.0), &signature).await.unwrap();
    let between = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = between.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let mut stream = asked(&between).await;
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", recorded.len());
            stream.write_all(&[head.as_bytes(), &recorded].concat()).await.unwrap();
        }
    });
    let error = ask(address, &id("a"), &key(1), LONG).await.unwrap_err();
    assert!(matches!(error, AskError::NotBelieved { source: FrameError::Replayed, .. }), "{error:?}");
}

#[tokio::test]
async fn an_answer_without_end_and_one_that_does_not_come_are_given_up() {
    let endless = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = endless.local_addr().unwrap();
    tokio::spawn(async move {
        let mut stream = asked(&endless).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await.unwrap();
        while stream.write_all(b"10000\r\n").await.is_ok() && stream.write_all(&[0; 0x1_0000]).await.is_ok() {
            let _ = stream.write_all(b"\r\n").await;
        }
    });
    let error = ask(address, &id("a"), &key(1), LONG).await.unwrap_err();
    assert!(matches!(error, AskError::TooLong { .. }), "{error:?}");

    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let within = Duration::from_millis(50);
    let error = ask(silent.local_addr().unwrap(), &id("a"), &key(1), within).await.unwrap_err();
    assert!(matches!(error, AskError::Silent { .. }), "{error:?}");
}

#[tokio::test]
async fn facts_that_are_missing_or_old_are_not_told() {
    let node = Served::start();
    *node.facts.age.lock().unwrap() = None;
    assert!(node.refusal(&key(1)).await.contains("no look at the host"));
    *node.facts.age.lock().unwrap() = Some(Duration::from_secs(4));
    assert!(node.refusal(&key(1)).await.contains("has told nothing for 4000 ms"));
    assert_eq!((node.refused("not-ready"), node.refused("stalled")), (1, 1));
}

#[tokio::test]
async fn what_is_remembered_is_told_as_far_as_it_can_be() {
    let node = Served::start();
    let past = |image: &str| Past { image: image.into(), unit: Unit::Task, takes: Spread::of([1.0]), run: None };
    *node.facts.pasts.lock().unwrap() = Some(vec![past("a:1"), past("a\nb"), past(&"x".repeat(600)), past("b:1")]);
    let told = ask_pasts(node.address, &id("a"), &key(1), LONG).await.unwrap();
    assert_eq!(told, [past("a:1"), past("b:1")]);
    *node.facts.pasts.lock().unwrap() = None;
    let error = ask_pasts(node.address, &id("a"), &key(1), LONG).await.unwrap_err();
    assert!(matches!(error, AskError::Refused { status: StatusCode::SERVICE_UNAVAILABLE, .. }), "{error:?}");
}

#[tokio::test]
async fn one_who_takes_all_the_places_it_can_get_and_says_nothing_loses_them() {
    let node = Served::start();
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(TcpStream::connect(node.address).await.unwrap());
    }
    // Those beyond its share are hung up on at once, the others when they have said nothing for too long.
    let all = async {
        for stream in &mut silent {
            let mut rest = Vec::new();
            // Reset or ended: it is over either way.
            let _ = stream.read_to_end(&mut rest).await;
        }
    };
    tokio::time::timeout(LONG, all).await.unwrap();
    assert_eq!(node.refused("full"), 92);
    ask(node.address, &id("a"), &key(1), LONG).await.unwrap();
}

#[tokio::test]
async fn an_answer_that_fails_leaves_its_place_to_the_next() {
    let node = Served::start();
    node.facts.is_broken.store(true, Ordering::Relaxed);
    for _ in 0..20 {
        ask(node.address, &id("a"), &key(1), LONG).await.unwrap_err();
    }
    node.facts.is_broken.store(false, Ordering::Relaxed);
    ask(node.address, &id("a"), &key(1), LONG).await.unwrap();
    assert_eq!(node.refused("full"), 0);
}

/// Sends that much of an answer to whoever asks, and then nothing.
async fn stalls_after(length: usize) -> SocketAddr {
    let stalled = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = stalled.local_addr().unwrap();
    tokio::spawn(async move {
        let mut open = Vec::new();
        loop {
            let mut stream = asked(&stalled).await;
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2000000\r\n\r\n").await.unwrap();
            // Whoever has given up does not read it.
            let _ = stream.write_all(&vec![0; length]).await;
            open.push(stream);
        }
    });
    address
}

#[tokio::test]
async fn long_answers_that_nobody_has_signed_yet_are_read_a_few_at_a_time() {
    let node = Served::start();
    let address = stalls_after(200_000).await;
    let mut asking: Vec<_> =
        (0..20).map(|_| tokio::spawn(async move { ask(address, &id("a"), &key(1), LONG).await })).collect();
    let all_taken = async {
        while super::ask::LARGE.available_permits() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LONG, all_taken).await.unwrap();
    ask(node.address, &id("a"), &key(1), LONG).await.expect("a short one does not wait for them");
    asking.drain(..).for_each(|one| one.abort());
    let all_left = async {
        while super::ask::LARGE.available_permits() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LONG, all_left).await.unwrap();
}

#[tokio::test]
async fn a_question_too_large_to_be_one_is_not_read_to_its_end() {
    let node = Served::start();
    let mut stream = TcpStream::connect(node.address).await.unwrap();
    stream.write_all(b"GET /v1/report HTTP/1.1\r\nhost: a\r\n").await.unwrap();
    let flood = async { while stream.write_all(b"x: 0123456789012345678901234567890123456789\r\n").await.is_ok() {} };
    tokio::time::timeout(LONG, flood).await.unwrap();
    ask(node.address, &id("a"), &key(1), LONG).await.unwrap();
}
