//! Client and server over a real socket.

use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::feed::Feed;
use crate::routes::samples::{change, snapshot};
use crate::routes::{Health, Version, paths};
use crate::testing::{DEADLINE, Daemon, daemon};
use berth_model::{Snapshot, TaskRow};

async fn next(follow: &mut Follow) -> Followed {
    tokio::time::timeout(DEADLINE, follow.next()).await.expect("the stream said nothing")
}

#[tokio::test]
async fn what_is_published_is_what_a_client_gets() {
    let daemon = daemon();
    daemon.feed.publish(snapshot(), &[]);
    let client = daemon.client();
    assert_eq!(client.get::<Snapshot>(paths::SNAPSHOT).await.unwrap(), *snapshot());
    assert_eq!(client.get::<Vec<TaskRow>>(paths::TASKS).await.unwrap(), snapshot().tasks);
    assert_eq!(client.get::<Health>(paths::HEALTH).await.unwrap().taken_at, snapshot().taken_at);
    assert_eq!(client.get::<Version>(paths::VERSION).await.unwrap().version, env!("CARGO_PKG_VERSION"));
    assert!(client.get_text(paths::METRICS).await.unwrap().contains("berth_samples_total 99"));
    let document: serde_json::Value = client.get(paths::OPENAPI).await.unwrap();
    assert_eq!(document["openapi"], "3.1.0");
}

#[tokio::test]
async fn refusals_carry_a_code_for_programs_and_a_message_for_people() {
    let daemon = daemon();
    let client = daemon.client();
    let refused = |path: &'static str| {
        let client = client.clone();
        async move {
            match client.get::<serde_json::Value>(path).await {
                Err(ClientError::Refused { code, message, .. }) => (code, message),
                other => panic!("{path}: {other:?}"),
            }
        }
    };
    assert_eq!(refused("/v1/nothing").await.0, "not_found");
    assert_eq!(refused(paths::SNAPSHOT).await.0, "not_ready");
    let (code, message) = refused("/v1/events?snapshot_every=500").await;
    assert_eq!(code, "bad_request");
    assert!(message.contains("`500` is not a duration"), "{message}");
    assert_eq!(refused("/v1/events?every=1s").await.0, "bad_request");
}

#[tokio::test(start_paused = true)]
async fn a_daemon_that_no_longer_looks_is_not_healthy() {
    let daemon = daemon();
    daemon.feed.publish(snapshot(), &[]);
    daemon.client().get::<Health>(paths::HEALTH).await.unwrap();
    tokio::time::advance(Duration::from_secs(60)).await;
    let error = daemon.client().get::<Health>(paths::HEALTH).await.unwrap_err();
    assert!(matches!(&error, ClientError::Refused { code, .. } if code == "stalled"), "{error}");
    daemon.feed.publish(snapshot(), &[]);
    daemon.client().get::<Health>(paths::HEALTH).await.unwrap();
}

#[tokio::test]
async fn only_reading_is_offered() {
    let daemon = daemon();
    let mut stream = UnixStream::connect(daemon.client().socket()).await.unwrap();
    let request = b"POST /v1/tasks HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 405") && answer.contains("method_not_allowed"), "{answer}");
}

#[tokio::test]
async fn nobody_there_is_told_apart_from_somebody_who_refuses() {
    let dir = tempfile::tempdir().unwrap();
    let client = Client::new(dir.path().join("s"));
    assert!(client.get::<Version>(paths::VERSION).await.unwrap_err().is_absent());
    drop(std::os::unix::net::UnixListener::bind(client.socket()).unwrap());
    assert!(client.get::<Version>(paths::VERSION).await.unwrap_err().is_absent());
    let daemon = Daemon::start(dir, Feed::new());
    let error = daemon.client().get::<Snapshot>(paths::SNAPSHOT).await.unwrap_err();
    assert!(error.is_not_ready() && !error.is_absent(), "{error}");
}

#[tokio::test]
async fn changes_and_snapshots_are_followed_and_a_restarted_daemon_is_found_again() {
    let daemon = daemon();
    let mut follow = daemon.client().follow(Some(Duration::from_millis(1)));
    assert!(matches!(next(&mut follow).await, Followed::Connected));
    daemon.feed.publish(snapshot(), &[change(), change()]);
    let mut seen = Vec::new();
    for _ in 0..3 {
        seen.push(match next(&mut follow).await {
            Followed::Change(notice) => notice.id,
            Followed::Snapshot(_) => 0,
            other => panic!("{other:?}"),
        });
    }
    assert_eq!(seen, [1, 2, 0], "changes come first, each once");

    let dir = daemon.stop().await;
    assert!(matches!(next(&mut follow).await, Followed::Lost(_)));
    let daemon = Daemon::start(dir, Feed::new());
    loop {
        match next(&mut follow).await {
            Followed::Lost(_) => {}
            Followed::Connected => break,
            other => panic!("{other:?}"),
        }
    }
    assert!(matches!(next(&mut follow).await, Followed::Lagged(Lagged { missed: None })), "a restart is told");
    daemon.feed.publish(snapshot(), &[change()]);
    assert!(matches!(next(&mut follow).await, Followed::Change(notice) if notice.id == 1));
}

/// The second daemon has counted as far as the first, or further, when it is found.
#[tokio::test]
async fn a_restart_is_told_whatever_was_counted_before_and_after_it() {
    for (before, after) in [(0, 0), (0, 3), (2, 2), (2, 5)] {
        let daemon = daemon();
        let mut follow = daemon.client().follow(None);
        assert!(matches!(next(&mut follow).await, Followed::Connected));
        for _ in 0..before {
            daemon.feed.publish(snapshot(), &[change()]);
            assert!(matches!(next(&mut follow).await, Followed::Change(_)));
        }
        let dir = daemon.stop().await;
        let feed = Feed::new();
        (0..after).for_each(|_| feed.publish(snapshot(), &[change()]));
        let _daemon = Daemon::start(dir, feed);
        while !matches!(next(&mut follow).await, Followed::Connected) {}
        let told = next(&mut follow).await;
        assert!(matches!(told, Followed::Lagged(Lagged { missed: None })), "{before}, {after}: {told:?}");
    }
}

/// The client reads nothing while far more is published than its socket and the backlog hold.
#[tokio::test]
async fn a_client_that_does_not_read_delays_nobody_and_is_told_what_it_missed() {
    const CHANGES: u64 = 20_000;
    let daemon = Daemon::start(tempfile::tempdir().unwrap(), Feed::with_backlog(64));
    let mut slow = daemon.client().follow(None);
    assert!(matches!(next(&mut slow).await, Followed::Connected));
    let feed = Arc::clone(&daemon.feed);
    let publisher = std::thread::spawn(move || {
        for _ in 0..CHANGES {
            feed.publish(snapshot(), &[change()]);
        }
    });
    publisher.join().unwrap();

    let (mut got, mut missed, mut last) = (0, 0, 0);
    while last < CHANGES {
        match next(&mut slow).await {
            Followed::Change(notice) => {
                got += 1;
                assert_eq!(notice.id, last + 1 + std::mem::take(&mut missed), "a gap that was not told");
                last = notice.id;
            }
            Followed::Lagged(lagged) => missed += lagged.missed.unwrap(),
            other => panic!("{other:?}"),
        }
    }
    assert!(got < CHANGES, "nothing was missed: the test shows nothing");
}

#[tokio::test]
async fn an_open_event_stream_does_not_keep_the_daemon_from_stopping() {
    let daemon = daemon();
    let mut follow = daemon.client().follow(None);
    assert!(matches!(next(&mut follow).await, Followed::Connected));
    let path = daemon.client().socket().to_owned();
    let _dir = daemon.stop().await;
    assert!(!path.exists(), "the socket is left");
}

/// Accepts, reads, and says nothing.
fn mute(dir: &tempfile::TempDir) -> Client {
    let listener = tokio::net::UnixListener::bind(dir.path().join("s")).unwrap();
    tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut bytes = [0; 1024];
            assert!(stream.read(&mut bytes).await.unwrap() > 0, "nothing was asked");
            held.push(stream);
        }
    });
    Client::new(dir.path().join("s"))
}

#[tokio::test(start_paused = true)]
async fn a_daemon_that_accepts_and_never_answers_is_given_up_on_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let client = mute(&dir);
    let error = client.get::<Version>(paths::VERSION).await.unwrap_err();
    let words = format!("the daemon on {} did not answer within 5 s", client.socket().display());
    assert_eq!(error.to_string(), words);
    let Followed::Lost(error) = next(&mut client.follow(None)).await else { panic!("nobody answered") };
    assert_eq!(error.to_string(), words, "a stream is not waited for any longer");
}

#[tokio::test(start_paused = true)]
async fn a_stream_may_say_nothing_for_as_long_as_it_likes() {
    let daemon = daemon();
    let mut follow = daemon.client().follow(None);
    assert!(matches!(next(&mut follow).await, Followed::Connected));
    assert!(tokio::time::timeout(TIMEOUT * 100, follow.next()).await.is_err(), "nothing happened, and nothing is lost");
    daemon.feed.publish(snapshot(), &[change()]);
    assert!(matches!(next(&mut follow).await, Followed::Change(_)));
}

#[tokio::test]
async fn a_daemon_whose_queue_is_full_is_told_apart_from_none() {
    let dir = tempfile::tempdir().unwrap();
    let client = Client::new(dir.path().join("s"));
    let stuck = std::os::unix::net::UnixListener::bind(client.socket()).unwrap();
    rustix::net::listen(&stuck, 0).unwrap();
    let mut waiting = Vec::new();
    while let Ok(stream) = UnixStream::connect(client.socket()).await {
        waiting.push(stream);
    }
    let error = client.get::<Version>(paths::VERSION).await.unwrap_err();
    assert!(matches!(error, ClientError::Busy { .. }) && !error.is_absent(), "{error:?}");
    assert!(matches!(next(&mut client.follow(None)).await, Followed::Lost(ClientError::Busy { .. })));
}

/// What a client says to whoever answers a connection with `answer`.
async fn told_by(answer: &'static str) -> ClientError {
    let dir = tempfile::tempdir().unwrap();
    let client = Client::new(dir.path().join("s"));
    let listener = tokio::net::UnixListener::bind(client.socket()).unwrap();
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.read(&mut [0; 1024]).await.unwrap();
        stream.write_all(answer.as_bytes()).await.unwrap();
    });
    let error = client.get::<Version>(paths::VERSION).await.unwrap_err();
    server.await.unwrap();
    error
}

#[tokio::test]
async fn who_is_not_berth_is_not_called_the_daemon() {
    for answer in [
        "HTTP/1.1 404 Not Found\r\ncontent-length: 29\r\n\r\n{\"message\":\"page not found\"}\n",
        "HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 13\r\n\r\n<html></html>",
        "SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n",
    ] {
        let error = told_by(answer).await;
        assert!(matches!(error, ClientError::Foreign { .. }), "{answer:?}: {error}");
        assert!(error.to_string().contains("/s is not berth"), "{error}");
    }
    let other_version = "HTTP/1.1 200 OK\r\ncontent-length: 15\r\n\r\n{\"berth\":\"2.0\"}";
    assert!(matches!(told_by(other_version).await, ClientError::NotUnderstood { .. }));
}
