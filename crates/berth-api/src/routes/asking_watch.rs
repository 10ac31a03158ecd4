//! Asking for figures and findings over a real socket: what is asked reaches the daemon with who asks.

use berth_model::TenantKey;
use berth_model::control::{FindingRow, Heard, MoodRow, WatchAsk};
use berth_model::watch::Kind;
use berth_model::watch::feedback::Feedback;
use berth_model::watch::series::{Bucket, Key, Line, Metric, Of, Owner, SeriesQuery, SeriesTold};

use super::*;
use crate::FeedbackRequest;

pub(in crate::routes) fn heard() -> Heard {
    Heard {
        tenant: TenantKey::User { uid: 7 },
        name: "x".into(),
        said: Feedback::Slow,
        mood: -0.5,
        weight: 1.1,
        is_kept: true,
    }
}

pub(in crate::routes) fn mood() -> MoodRow {
    MoodRow { tenant: TenantKey::User { uid: 7 }, name: "x".into(), mood: -0.5, weight: 1.1 }
}

pub(in crate::routes) fn finding() -> FindingRow {
    FindingRow {
        tenant: TenantKey::User { uid: 7 },
        name: "x".into(),
        gpu: None,
        kind: Kind::Starvation,
        since: at(5),
        sure: 0.9,
        words: "it waits".into(),
    }
}

pub(in crate::routes) fn line() -> Line {
    let of = Of::tenant(TenantKey::User { uid: 7 }, "x", Owner::new(None, vec![Some(7)]));
    let key = Key { of, gpu: None, metric: Metric::Feedback };
    Line { key, values: vec![Bucket::point(5_000, -0.75)] }
}

#[tokio::test]
async fn a_word_reaches_the_loop_and_others_than_those_there_are_do_not() {
    let (daemon, client) = answering(Ok(Answer::Heard(Box::new(heard()))));
    let request = FeedbackRequest { tenant: "x".into(), said: Feedback::Slow };
    assert_eq!(client.post::<Heard>(paths::FEEDBACK, &request).await.unwrap(), heard());
    let ask = WatchAsk::Feedback { tenant: "x".into(), said: Feedback::Slow };
    assert_eq!(asked(&daemon).what, What::Watch(ask));
    let unknown = json!({"tenant": "x", "said": "awful"});
    let error = client.post::<Heard>(paths::FEEDBACK, &unknown).await.unwrap_err();
    assert!(error.to_string().contains("awful") && error.to_string().contains("slow"), "{error}");
}

#[tokio::test]
async fn what_words_have_come_to_is_asked_of_one_tenant() {
    let (daemon, client) = answering(Ok(Answer::Mood(Box::new(mood()))));
    assert_eq!(client.mood("/a b&c").await.unwrap(), mood());
    assert_eq!(asked(&daemon).what, What::Watch(WatchAsk::Mood { tenant: "/a b&c".into() }));
}

#[tokio::test]
async fn findings_are_asked_of_one_or_of_everybody_the_caller_may_be_told_of() {
    let finding = finding();
    for tenant in [None, Some("/a b&c")] {
        let (daemon, client) = answering(Ok(Answer::Findings(vec![finding.clone()])));
        assert_eq!(client.findings(tenant).await.unwrap(), std::slice::from_ref(&finding));
        let ask = WatchAsk::Findings { tenant: tenant.map(str::to_owned) };
        assert_eq!(asked(&daemon).what, What::Watch(ask));
    }
}

#[tokio::test]
async fn figures_are_asked_for_as_the_query_says_with_who_asks() {
    let daemon = daemon();
    let query = SeriesQuery {
        whom: Some("/a b&c".into()),
        metric: Some(Metric::CorePct),
        from_ms: Some(5_000),
        until_ms: Some(9_000),
        step_ms: Some(60_000),
    };
    let told: SeriesTold = daemon.client().series(&query).await.unwrap();
    assert_eq!(told, SeriesTold::default());
    let asked = daemon.asked.figures.lock().unwrap().clone();
    let own = rustix::process::geteuid().as_raw();
    assert_eq!(asked.iter().map(|(caller, query)| (caller.uid, query)).collect::<Vec<_>>(), [(own, &query)]);
    for query in ["step=5", "metric=moods", "since=yesterday", "name=x"] {
        let error = daemon.client().get::<Value>(&format!("{}?{query}", paths::SERIES)).await.unwrap_err();
        assert_eq!(code(&error), "bad_request", "{query}");
    }
}
