//! Clients that are slow, many or ill-disposed, on a real socket. Time is held still and jumps to the next deadline
//! whenever nothing else is to be done.

use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::Instant;

use super::*;
use crate::client::{ClientError, Followed};
use crate::routes::samples::snapshot;
use crate::routes::{Version, paths};
use crate::testing::{DEADLINE, Daemon, daemon};
use crate::unread::UNREAD_FOR;

async fn connect(daemon: &Daemon) -> UnixStream {
    UnixStream::connect(daemon.client().socket()).await.unwrap()
}

/// All that comes until the daemon hangs up.
async fn rest(stream: &mut UnixStream) -> String {
    let mut bytes = Vec::new();
    // A hang-up on unread bytes is an error of the last read; what came before it is kept.
    let _ = tokio::time::timeout(DEADLINE, stream.read_to_end(&mut bytes)).await.expect("the daemon does not hang up");
    String::from_utf8_lossy(&bytes).into_owned()
}

async fn ask(daemon: &Daemon) -> Result<(), ClientError> {
    daemon.client().get::<Version>(paths::VERSION).await.map(drop)
}

#[tokio::test(start_paused = true)]
async fn half_a_header_is_waited_for_in_vain_only_so_long() {
    let daemon = daemon();
    let mut slow = connect(&daemon).await;
    slow.write_all(b"GET /v1/version HTTP/1.1\r\nhost: x\r\n").await.unwrap();
    let begin = Instant::now();
    assert_eq!(rest(&mut slow).await, "");
    assert!((ASK_WITHIN..ASK_WITHIN * 2).contains(&begin.elapsed()), "{:?}", begin.elapsed());
}

/// A byte now and then does not buy more time.
#[tokio::test(start_paused = true)]
async fn a_header_that_trickles_in_has_no_more_time_than_one_that_stops() {
    let daemon = daemon();
    let mut slow = connect(&daemon).await;
    slow.write_all(b"GET /v1/version HTTP/1.1\r\nx: ").await.unwrap();
    let begin = Instant::now();
    while slow.write_all(b"y").await.is_ok() {
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(begin.elapsed() < ASK_WITHIN * 2, "the daemon still listens");
    }
}

#[tokio::test]
async fn a_request_too_large_to_be_one_is_refused_while_it_is_being_sent() {
    let daemon = daemon();
    let mut large = connect(&daemon).await;
    large.write_all(b"GET /v1/version HTTP/1.1\r\nx: ").await.unwrap();
    let filler = vec![b'y'; 64 << 10];
    while large.write_all(&filler).await.is_ok() {}
    assert!(rest(&mut large).await.starts_with("HTTP/1.1 431 "));
    ask(&daemon).await.unwrap();
}

#[tokio::test]
async fn a_body_is_never_read() {
    let daemon = daemon();
    let mut large = connect(&daemon).await;
    large.write_all(b"POST /v1/tasks HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000000000\r\n\r\n").await.unwrap();
    let filler = vec![0; 64 << 10];
    while large.write_all(&filler).await.is_ok() {}
    assert!(rest(&mut large).await.starts_with("HTTP/1.1 405 "));
}

#[tokio::test(start_paused = true)]
async fn who_comes_when_all_places_are_taken_is_refused_in_words_until_there_is_room() {
    let daemon = daemon();
    let mut idle = Vec::new();
    for _ in 0..200 {
        idle.push(connect(&daemon).await);
    }
    let begin = Instant::now();
    let error = ask(&daemon).await.unwrap_err();
    assert!(begin.elapsed() < REFUSED_ASK_WITHIN, "nobody waits to be refused: {:?}", begin.elapsed());
    assert_eq!(
        error.to_string(),
        "the daemon refused /v1/version: 128 clients are connected, and no more are answered at a time: end some, or try \
         again (too_many_connections)"
    );
    tokio::time::sleep(ASK_WITHIN).await;
    ask(&daemon).await.expect("those who asked for nothing have lost their places");
}

#[tokio::test(start_paused = true)]
async fn a_flood_is_hung_up_on_and_passes() {
    let daemon = daemon();
    let mut flood = Vec::new();
    for _ in 0..CONNECTIONS + REFUSALS + 40 {
        flood.push(connect(&daemon).await);
    }
    assert_eq!(rest(flood.last_mut().unwrap()).await, "", "no room even to refuse");
    tokio::time::sleep(ASK_WITHIN).await;
    ask(&daemon).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn listeners_keep_their_places_while_others_are_refused() {
    let daemon = daemon();
    let mut follow = daemon.client().follow(Some(Duration::from_millis(1)));
    assert!(matches!(follow.next().await, Followed::Connected));
    let mut idle = Vec::new();
    for _ in 0..200 {
        idle.push(connect(&daemon).await);
    }
    ask(&daemon).await.unwrap_err();
    daemon.feed.publish(snapshot(), &[]);
    assert!(matches!(follow.next().await, Followed::Snapshot(_)));
}

#[tokio::test(start_paused = true)]
async fn a_listener_that_never_reads_is_cut_off_in_the_end() {
    let daemon = daemon();
    let mut deaf = connect(&daemon).await;
    deaf.write_all(b"GET /v1/events?snapshot_every=1ms HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let feed = Arc::clone(&daemon.feed);
    let publishing = tokio::spawn(async move {
        loop {
            feed.publish(snapshot(), &[]);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    tokio::time::sleep(UNREAD_FOR * 2).await;
    let heard = rest(&mut deaf).await;
    assert!(heard.starts_with("HTTP/1.1 200 ") && heard.len() > 10_000, "{} bytes", heard.len());
    publishing.abort();
}

#[tokio::test(start_paused = true)]
async fn half_a_header_does_not_keep_the_daemon_from_stopping() {
    let daemon = daemon();
    let mut slow = connect(&daemon).await;
    slow.write_all(b"GET /v1/ver").await.unwrap();
    ask(&daemon).await.unwrap();
    let begin = Instant::now();
    daemon.stop().await;
    assert!(begin.elapsed() <= DRAIN, "{:?}", begin.elapsed());
    assert_eq!(rest(&mut slow).await, "");
}
