//! Asking for holds over a real socket: who asks, what reaches the loop, and what its answers become.

use berth_model::control::{Answer, Explanation, PastHold, PastRelease, PastWhat, PolicyView, Refusal, Standing, What};
use berth_model::history::{Before, Query, Record, Told};
use berth_model::hold::Means;
use berth_model::settings::{EdfSettings, FifoSettings, PaperSettings, PolicyName};
use berth_model::{GpuIndex, TaskState};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::Instant;

#[path = "asking_deadlines.rs"]
pub(super) mod deadlines;
#[path = "asking_kernels.rs"]
pub(super) mod kernels;
#[path = "asking_watch.rs"]
pub(super) mod watch;

use super::samples::{at, container, hold, snapshot};
use super::*;
use crate::client::{Client, ClientError};
use crate::testing::{DEADLINE, Daemon, daemon};

pub(super) fn standing() -> Standing {
    Standing { tenant: container(), name: "trainer".into(), hold: Some(hold()), is_settled: true }
}

pub(super) fn told() -> Told {
    let snapshot = snapshot();
    let spent =
        berth_model::history::Spent { active_seconds: Some(7.0), held_seconds: Some(2.0), burst_seconds: Some(0.5) };
    Told { records: vec![Record::of_ended(&snapshot.ended[0], spent)], is_cut: true, damaged: 1 }
}

pub(super) fn before() -> Before {
    Before { tasks: 3, active_seconds: Some(2.5), duty: Some(0.9), peak_memory_bytes: None, burst_seconds: Some(0.5) }
}

pub(super) fn explanation() -> Explanation {
    let released = Some(PastRelease { at: at(5), by_uid: None, reason: "it is its turn".into() });
    let what = PastWhat::Held { means: Means::Gate, by_uid: None, reason: "`b` computes".into(), released };
    Explanation {
        tenant: container(),
        name: "trainer".into(),
        owner: Some("ada".into()),
        policy: PolicyName::Fifo,
        dry_run: false,
        gpus: vec![GpuIndex(0)],
        state: TaskState::Loaded,
        task_seconds: Some(3.0),
        held_seconds: 2.0,
        hold: Some(hold()),
        is_paused_by_others: false,
        left_alone_until: None,
        means: vec![Means::Freeze],
        computing_there: vec!["b".into()],
        gang_with: vec!["rank-1".into()],
        awaited_by: vec!["train-9".into()],
        before: Some(before()),
        history: vec![PastHold { at: at(3), what }],
    }
}

pub(super) fn policy(policy: PolicyName) -> PolicyView {
    let (fifo, edf, paper) = (FifoSettings::default(), EdfSettings::default(), PaperSettings::default());
    PolicyView { policy, dry_run: false, fifo, edf, paper }
}

/// A daemon that gives this answer.
fn answering(answer: Result<Answer, Refusal>) -> (Daemon, Client) {
    let daemon = daemon();
    *daemon.asked.answer.lock().unwrap() = Some(answer);
    let client = daemon.client();
    (daemon, client)
}

/// The only thing that was asked.
fn asked(daemon: &Daemon) -> berth_model::control::Ask {
    let [ask] = &daemon.asked.asks.lock().unwrap()[..] else { panic!("{:?}", daemon.asked.asks) };
    ask.clone()
}

fn code(error: &ClientError) -> &str {
    error.code().unwrap_or_else(|| panic!("{error:?}"))
}

#[tokio::test]
async fn the_kernel_says_who_asks() {
    let (daemon, client) = answering(Ok(Answer::Stands(Box::new(standing()))));
    let request = HoldRequest { tenant: "trainer".into(), by: Some(Means::Lock), reason: None };
    let answer: Standing = client.post(paths::HOLD, &request).await.unwrap();
    assert_eq!(answer, standing());
    let ask = asked(&daemon);
    assert_eq!(ask.caller.uid, rustix::process::geteuid().as_raw());
    assert!(ask.caller.is_admin, "this process runs the daemon");
    assert_eq!(ask.what, What::Hold { tenant: "trainer".into(), means: Some(Means::Lock), reason: None });
}

#[tokio::test]
async fn a_release_is_of_one_of_all_or_to_the_policy() {
    for (body, what) in [
        (json!({"tenant": "a"}), What::Release { tenant: "a".into() }),
        (json!({"tenant": "a", "to_policy": true}), What::HandBack { tenant: "a".into() }),
        (json!({"all": true}), What::ReleaseAll),
    ] {
        let (daemon, client) = answering(Ok(Answer::Released(vec![standing()])));
        let released: Vec<Standing> = client.post(paths::RELEASE, &body).await.unwrap();
        assert_eq!((released.len(), asked(&daemon).what), (1, what), "{body}");
    }
    for body in [json!({}), json!({"tenant": "a", "all": true}), json!({"all": true, "to_policy": true})] {
        let (daemon, client) = answering(Ok(Answer::Released(vec![])));
        let error = client.post::<Value>(paths::RELEASE, &body).await.unwrap_err();
        assert_eq!(code(&error), "bad_request", "{body}");
        assert!(daemon.asked.asks.lock().unwrap().is_empty());
    }
}

#[tokio::test]
async fn a_name_of_any_characters_reaches_the_loop_unchanged() {
    let (daemon, client) = answering(Ok(Answer::Explained(Box::new(explanation()))));
    let name = "/a b&c=d%20?ü#";
    assert_eq!(client.explain(name).await.unwrap(), explanation());
    assert_eq!(asked(&daemon).what, What::Explain { tenant: name.into() });
}

#[tokio::test]
async fn refusals_have_codes_for_programs_and_words_for_people() {
    let refusals = [
        Refusal::NoSuchTenant { selector: "x".into(), known: vec!["y".into()] },
        Refusal::Ambiguous { selector: "x".into(), candidates: vec!["x1".into(), "x2".into()] },
        Refusal::NotYours { name: "x".into(), owner: Some("ada".into()) },
        Refusal::PausedByOthers { name: "x".into() },
        Refusal::Failed { name: "x".into(), message: "no such file".into() },
        Refusal::NoHolds { reason: "its journal is in use".into() },
    ];
    for refusal in refusals {
        let (_daemon, client) = answering(Err(refusal.clone()));
        let request = HoldRequest { tenant: "x".into(), by: None, reason: None };
        let error = client.post::<Standing>(paths::HOLD, &request).await.unwrap_err();
        assert_eq!(code(&error), refusal.code());
        assert_eq!(error.is_denied(), refusal.code() == "forbidden");
        assert!(error.to_string().contains(&refusal.to_string()), "{error}");
    }
}

#[tokio::test]
async fn a_policy_is_shown_with_its_numbers_and_set_by_asking() {
    let (daemon, client) = answering(Ok(Answer::Policy(Box::new(policy(PolicyName::Fifo)))));
    let shown: Value = client.get(paths::POLICY).await.unwrap();
    assert_eq!(
        (&shown["policy"], &shown["fifo"]["quantum"], &shown["paper"]["core"]),
        (&json!("fifo"), &json!("10s"), &json!(100))
    );
    assert_eq!(asked(&daemon).what, What::ShowPolicy);
    for (body, dry_run) in [(json!({"policy": "off"}), None), (json!({"policy": "off", "dry_run": true}), Some(true))] {
        let (daemon, client) = answering(Ok(Answer::Policy(Box::new(policy(PolicyName::Off)))));
        let set: PolicyView = client.post(paths::POLICY, &body).await.unwrap();
        assert_eq!(set, policy(PolicyName::Off), "numbers survive the way");
        assert_eq!(asked(&daemon).what, What::SetPolicy { policy: PolicyName::Off, dry_run });
    }
    let error = client.post::<PolicyView>(paths::POLICY, &json!({"policy": "lifo"})).await.unwrap_err();
    assert!(error.to_string().contains("lifo") && error.to_string().contains("fifo"), "{error}");
}

#[tokio::test]
async fn holds_are_listed_once_per_tenant() {
    let daemon = daemon();
    daemon.feed.publish(snapshot(), &[]);
    let holds: Holds = daemon.client().get(paths::HOLDS).await.unwrap();
    assert_eq!((holds.policy, holds.tenants.len(), holds.queue.len()), (Some(PolicyName::Fifo), 1, 1));
}

#[tokio::test]
async fn a_body_too_large_or_not_understood_is_refused_and_nobody_is_asked() {
    let (daemon, client) = answering(Ok(Answer::Stands(Box::new(standing()))));
    let large = HoldRequest { tenant: "x".repeat(10_000), by: None, reason: None };
    assert_eq!(code(&client.post::<Standing>(paths::HOLD, &large).await.unwrap_err()), "bad_request");
    let unknown = json!({"tenant": "x", "means": "lock"});
    let error = client.post::<Standing>(paths::HOLD, &unknown).await.unwrap_err();
    assert!(error.to_string().contains("`means`") && error.to_string().contains("`by`"), "{error}");
    assert!(daemon.asked.asks.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_loop_that_has_ended_is_told_and_not_waited_for() {
    let daemon = daemon();
    let error = daemon.client().explain("x").await.unwrap_err();
    assert_eq!(code(&error), "stopping");
}

/// Time is held still and jumps to the next deadline.
#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_come_is_waited_for_in_vain_only_so_long() {
    let (daemon, client) = answering(Ok(Answer::Stands(Box::new(standing()))));
    let mut slow = UnixStream::connect(client.socket()).await.unwrap();
    let head = "POST /v1/hold HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 20\r\n\r\n{";
    slow.write_all(head.as_bytes()).await.unwrap();
    let mut told = String::new();
    let begin = Instant::now();
    slow.read_to_string(&mut told).await.unwrap();
    assert!(begin.elapsed() < DEADLINE, "{:?}", begin.elapsed());
    assert!(told.starts_with("HTTP/1.1 400 ") && told.contains("no body came within"), "{told}");
    assert!(daemon.asked.asks.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_hold_that_is_still_under_way_is_accepted_and_not_called_done() {
    let under_way = Standing { is_settled: false, ..standing() };
    let (_daemon, client) = answering(Ok(Answer::Stands(Box::new(under_way))));
    let mut stream = UnixStream::connect(client.socket()).await.unwrap();
    let body = r#"{"tenant":"x"}"#;
    let request = format!(
        "POST /v1/hold HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut told = String::new();
    stream.read_to_string(&mut told).await.unwrap();
    assert!(told.starts_with("HTTP/1.1 202 ") && told.contains("\"is_settled\":false"), "{told}");
}

#[tokio::test]
async fn the_history_is_asked_as_the_query_says_and_told_unchanged() {
    let daemon = daemon();
    *daemon.asked.told.lock().unwrap() = Some(told());
    let query = Query { whom: Some("/a b&c".into()), since: Some(at(5)), limit: 7 };
    assert_eq!(daemon.client().history(&query).await.unwrap(), told());
    let usual: Told = daemon.client().get(paths::HISTORY).await.unwrap();
    assert_eq!(usual, told());
    let expected = [query, Query { limit: berth_model::history::USUAL_LIMIT, ..Query::default() }];
    assert_eq!(*daemon.asked.queries.lock().unwrap(), expected);
}

#[tokio::test]
async fn a_history_too_long_or_not_kept_is_refused_with_the_reason() {
    let daemon = daemon();
    for query in ["limit=0", "limit=1001", "since=yesterday", "name=x"] {
        let error = daemon.client().get::<Value>(&format!("{}?{query}", paths::HISTORY)).await.unwrap_err();
        assert_eq!(code(&error), "bad_request", "{query}");
    }
    let error = daemon.client().history(&Query { limit: 1, ..Query::default() }).await.unwrap_err();
    assert_eq!(code(&error), "no_history");
    assert!(error.to_string().contains("switched off"), "{error}");
}
