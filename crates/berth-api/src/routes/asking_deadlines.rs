//! Asking about deadlines over a real socket.

use berth_model::cluster::Past;
use berth_model::control::{
    Admission, Answer, Candidate, DeadlineAsk, DeadlineStanding, DueWork, Fits, GpuAdmission, Refusal, What,
};
use berth_model::deadline::{Deadline, Given, Origin, Risk, Spread, Tally, Unit};
use berth_model::snapshot::{DeadlineRow, WorkRow};
use serde_json::{Value, json};

use super::super::samples::{at, container};
use super::{answering, asked, code};
use crate::routes::{DeadlineRequest, paths};

fn nine() -> Deadline {
    "9s".parse().unwrap()
}

pub(crate) fn spread() -> Spread {
    Spread { units: 3, median_seconds: 2.0, p90_seconds: 3.5, most_seconds: 4.0 }
}

pub(crate) fn work() -> WorkRow {
    WorkRow {
        started_at: at(0),
        due_at: at(9),
        float_seconds: 4.0,
        expected_float_seconds: Some(3.0),
        active_seconds: 1.0,
        risk: Risk::Safe,
    }
}

pub(crate) fn standing() -> DeadlineStanding {
    let counts = DeadlineRow {
        deadline: nine(),
        origin: Origin::Set { by_uid: 7 },
        asked: Some("1s".parse().unwrap()),
        bound: Some("everybody 9s..".into()),
        unit: Unit::Burst,
        work: Some(work()),
        takes: Some(spread()),
        next_takes: Some(spread()),
        tally: Tally { hits: 2, misses: 1, unknown: 0 },
        last_float_seconds: Some(-0.5),
    };
    DeadlineStanding {
        tenant: container(),
        name: "trainer".into(),
        owner: Some("ada".into()),
        is_here: true,
        given: Some(Given { deadline: Some("1s".parse().unwrap()), by_uid: 7, at: at(1) }),
        is_durable: true,
        counts: Some(counts),
        unread_labels: vec!["`berth.unit=x`: only `task` and `burst` are known".into()],
    }
}

pub(crate) fn past() -> Past {
    Past { image: "a:1".into(), unit: Unit::Task, takes: Some(spread()), run: None }
}

pub(crate) fn admission() -> Admission {
    let before = DueWork { name: "b".into(), unit: Unit::Task, due_in_seconds: 2.0, left_seconds: Some(1.0) };
    let gpu = GpuAdmission {
        gpu: berth_model::GpuIndex(0),
        fits: Fits::Unknown,
        share: 0.9,
        room_seconds: 8.1,
        usual_seconds: 3.0,
        most_seconds: 4.5,
        before: vec![before],
        endangered: vec!["b".into()],
        unknown: vec!["c".into()],
        is_unreckoned: false,
    };
    Admission {
        fits: Fits::Unknown,
        policy: None,
        gpu: Some(gpu.gpu),
        deadline: nine(),
        asked: None,
        unit: Unit::Task,
        takes: Some(spread()),
        run: None,
        spare_seconds: Some(5.5),
        gpus: vec![gpu],
    }
}

#[tokio::test]
async fn a_deadline_is_set_cleared_or_reset() {
    let tenant = || "trainer".to_owned();
    for (body, ask) in [
        (json!({"tenant": "trainer", "deadline": "9"}), DeadlineAsk::Set { tenant: tenant(), deadline: Some(nine()) }),
        (json!({"tenant": "trainer", "clear": true}), DeadlineAsk::Set { tenant: tenant(), deadline: None }),
        (json!({"tenant": "trainer", "reset": true}), DeadlineAsk::Reset { tenant: tenant() }),
    ] {
        let (daemon, client) = answering(Ok(Answer::Deadlines(vec![standing()])));
        let told: DeadlineStanding = client.post(paths::DEADLINE, &body).await.unwrap();
        assert_eq!((told, asked(&daemon).what), (standing(), What::Deadline(ask)), "{body}");
    }
}

#[tokio::test]
async fn a_deadline_that_is_none_or_said_twice_is_refused_and_nobody_is_asked() {
    for (body, told) in [
        (json!({"tenant": "a"}), "one of `deadline`"),
        (json!({"tenant": "a", "deadline": "9s", "clear": true}), "one of `deadline`"),
        (json!({"tenant": "a", "clear": true, "reset": true}), "one of `deadline`"),
        (json!({"tenant": "a", "deadline": "0"}), "must be more than 0"),
        (json!({"tenant": "a", "deadline": "1e99"}), "`1e99` is not a deadline"),
        (json!({"tenant": "a", "seconds": 9}), "`seconds`"),
    ] {
        let (daemon, client) = answering(Ok(Answer::Deadlines(vec![standing()])));
        let error = client.post::<Value>(paths::DEADLINE, &body).await.unwrap_err();
        assert!(code(&error) == "bad_request" && error.to_string().contains(told), "{error}");
        assert!(daemon.asked.asks.lock().unwrap().is_empty());
    }
}

#[tokio::test]
async fn what_could_not_be_kept_is_told_with_its_own_code() {
    for refusal in [
        Refusal::NotKept { reason: "deadlines.v1.json is damaged".into() },
        Refusal::NotWritten { name: "trainer".into(), reason: "no space left on device".into() },
    ] {
        let (_daemon, client) = answering(Err(refusal.clone()));
        let request = DeadlineRequest { tenant: "trainer".into(), clear: true, ..DeadlineRequest::default() };
        let error = client.post::<DeadlineStanding>(paths::DEADLINE, &request).await.unwrap_err();
        assert_eq!(code(&error), "deadlines_not_kept");
        assert!(error.to_string().contains(&refusal.to_string()), "{error}");
    }
}

#[tokio::test]
async fn deadlines_are_asked_of_one_or_of_everybody() {
    for tenant in [None, Some("/a b&c")] {
        let (daemon, client) = answering(Ok(Answer::Deadlines(vec![standing(), standing()])));
        assert_eq!(client.deadlines(tenant).await.unwrap(), [standing(), standing()]);
        let ask = DeadlineAsk::Show { tenant: tenant.map(str::to_owned) };
        assert_eq!(asked(&daemon).what, What::Deadline(ask));
    }
}

#[tokio::test]
async fn whether_one_more_fits_is_asked_with_all_that_is_known_of_it() {
    let little = Candidate {
        deadline: nine(),
        unit: Unit::Task,
        image: None,
        command: None,
        owner: None,
        takes: None,
        gpu: None,
    };
    let much = Candidate {
        unit: Unit::Burst,
        image: Some("a/b:1".into()),
        command: Some("python train.py --a=\"ü\"".into()),
        owner: Some("ada".into()),
        takes: Some("1500ms".parse().unwrap()),
        gpu: Some(berth_model::GpuIndex(3)),
        ..little.clone()
    };
    for candidate in [little, much] {
        let (daemon, client) = answering(Ok(Answer::Admission(Box::new(admission()))));
        assert_eq!(client.admit(&candidate).await.unwrap(), admission());
        assert_eq!(asked(&daemon).what, What::Deadline(DeadlineAsk::Admit(candidate)));
    }
    let (_daemon, client) = answering(Ok(Answer::Admission(Box::new(admission()))));
    for query in ["", "deadline=soon", "deadline=9s&unit=day", "deadline=9s&gpu=-1", "deadline=9s&name=x"] {
        let error = client.get::<Admission>(&format!("{}?{query}", paths::ADMIT)).await.unwrap_err();
        assert_eq!(code(&error), "bad_request", "{query}");
    }
}

#[tokio::test]
async fn what_is_known_of_images_is_told() {
    let (daemon, client) = answering(Ok(Answer::Pasts(vec![past()])));
    assert_eq!(client.get::<Vec<Past>>(paths::PASTS).await.unwrap(), [past()]);
    assert_eq!(asked(&daemon).what, What::Deadline(DeadlineAsk::Pasts));
}
