//! Rounds against a manager that keeps nodes, services and configs as a swarm does, versions and all.

use std::sync::{Mutex, MutexGuard};

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use berth_model::cluster::api::PlaceRequest;
use berth_model::cluster::{Past, PlacementId, Report};
use berth_model::settings::PlacerSettings;
use serde::Deserialize;
use serde_json::json;

use super::super::labels;
use super::*;
use crate::frame::Told;
use crate::placer::testing::{fresh, report, wanting};
use crate::placer::{AskNodes, Asked, Question};

/// What the manager has.
#[derive(Debug, Default)]
struct Kept {
    nodes: Vec<Value>,
    services: Vec<Value>,
    tasks: Vec<Value>,
    lease: Option<Value>,
    /// Answers nothing.
    is_broken: bool,
    /// Of this one no change is taken.
    stubborn: Option<String>,
}

#[derive(Debug, Default)]
struct Fake {
    kept: Mutex<Kept>,
    numbers: Mutex<u64>,
    /// Nodes whose daemon does not answer.
    silent: Mutex<Vec<String>>,
}

#[derive(Deserialize)]
struct Version {
    version: u64,
}

type Answer = Result<Json<Value>, (StatusCode, Json<Value>)>;

fn no(status: StatusCode, why: &str) -> (StatusCode, Json<Value>) {
    (status, Json(json!({ "message": why })))
}

/// As the engine does it: only who has seen the last version may change it.
fn update(object: &mut Value, version: u64, spec: Value) -> Answer {
    if object["Version"]["Index"] != version {
        return Err(no(StatusCode::INTERNAL_SERVER_ERROR, "rpc error: code = Unknown desc = update out of sequence"));
    }
    object["Version"]["Index"] = json!(version + 1);
    object["Spec"] = spec;
    Ok(Json(json!({})))
}

async fn nodes(State(fake): State<Arc<Fake>>) -> Answer {
    let kept = fake.kept();
    match kept.is_broken {
        true => Err(no(StatusCode::SERVICE_UNAVAILABLE, "the swarm has no leader")),
        false => Ok(Json(json!(kept.nodes))),
    }
}

async fn lease(State(fake): State<Arc<Fake>>) -> Answer {
    fake.kept().lease.clone().map(Json).ok_or_else(|| no(StatusCode::NOT_FOUND, "no such config"))
}

async fn make_lease(State(fake): State<Arc<Fake>>, Json(spec): Json<Value>) -> Answer {
    fake.kept().lease = Some(json!({ "ID": "lease", "Version": { "Index": 1 }, "Spec": spec }));
    Ok(Json(json!({ "ID": "lease" })))
}

async fn renew(State(fake): State<Arc<Fake>>, Query(at): Query<Version>, Json(spec): Json<Value>) -> Answer {
    update(fake.kept().lease.as_mut().unwrap(), at.version, spec)
}

async fn change(
    State(fake): State<Arc<Fake>>,
    Path(id): Path<String>,
    Query(at): Query<Version>,
    Json(spec): Json<Value>,
) -> Answer {
    let mut kept = fake.kept();
    if kept.stubborn.as_ref() == Some(&id) {
        return Err(no(StatusCode::BAD_REQUEST, "its secret is gone"));
    }
    let service = kept.services.iter_mut().find(|service| service["ID"] == *id);
    update(service.ok_or_else(|| no(StatusCode::NOT_FOUND, "no such service"))?, at.version, spec)
}

impl Fake {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap()
    }

    fn node(&self, name: &str) -> Option<usize> {
        self.kept().nodes.iter().position(|node| node["ID"] == name)
    }

    fn set(&self, name: &str, part: &str, key: &str, value: &str) {
        let at = self.node(name).unwrap();
        self.kept().nodes[at][part][key] = json!(value);
    }

    fn spec(&self) -> Value {
        self.kept().services[0]["Spec"].clone()
    }

    fn place(&self) -> (String, String) {
        let spec = self.spec();
        let constraints = spec["TaskTemplate"]["Placement"]["Constraints"].clone();
        (spec["Labels"]["berth.node"].as_str().unwrap().to_owned(), constraints[1].as_str().unwrap().to_owned())
    }

    fn replicas(&self) -> u64 {
        self.spec()["Mode"]["Replicated"]["Replicas"].as_u64().unwrap()
    }

    /// As a manager does it: at once it ends what is there by a label.
    fn without_labels(&self, name: &str) {
        let at = self.node(name).unwrap();
        self.kept().nodes[at]["Spec"]["Labels"] = json!({});
        self.task("rejected");
        let task = &mut self.kept().tasks[0];
        (task["DesiredState"], task["Status"]["Message"]) =
            (json!("shutdown"), json!("task rejected by constraint enforcer"));
    }

    fn task(&self, state: &str) {
        let spec = json!({ "ContainerSpec": { "Labels": { PLACEMENT_LABEL: PlacementId(7) } } });
        let task = json!({
            "ServiceID": "s", "CreatedAt": "2026-11-16T05:00:00Z", "Spec": spec,
            "Status": { "State": state }, "DesiredState": "running",
        });
        self.kept().tasks = vec![task];
    }
}

impl AskNodes for Arc<Fake> {
    fn report<'a>(&'a self, question: &'a Question) -> Asked<'a, Told<Report>> {
        Box::pin(async move {
            let name = question.node.as_str();
            if self.silent.lock().unwrap().iter().any(|silent| silent == name) {
                return Err("it does not answer".to_owned());
            }
            let mut number = self.numbers.lock().unwrap();
            *number += 1;
            Ok(fresh(report(name, *number, 40, &[])))
        })
    }

    fn pasts<'a>(&'a self, _question: &'a Question) -> Asked<'a, Vec<Past>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

struct Stage {
    fake: Arc<Fake>,
    placer: Arc<Placer>,
    swarm: Swarm,
    dir: tempfile::TempDir,
}

fn a_node(name: &str) -> Value {
    json!({
        "ID": name,
        "Spec": { "Labels": { "rack": "a" }, "Role": "worker", "Availability": "active" },
        "Description": { "Hostname": name },
        "Status": { "State": "ready", "Addr": "10.0.0.1" },
    })
}

/// As `berth run --cluster --constraint node.labels.rack==a --memory 30GiB` makes it, on `n1`.
fn a_service() -> Value {
    let choice = berth_model::cluster::Choice {
        node: "n1".parse().unwrap(),
        gpus: vec![berth_model::id::GpuUuid("GPU-n1".into())],
    };
    let labels: serde_json::Map<String, Value> = labels::of_service(&wanting(30), PlacementId(7), &choice)
        .into_iter()
        .map(|(label, value)| (label.to_owned(), json!(value)))
        .collect();
    json!({
        "ID": "s",
        "Version": { "Index": 5 },
        "Spec": {
            "Name": "solver",
            "Labels": labels,
            "TaskTemplate": {
                "ContainerSpec": { "Image": "solver:3", "Labels": {} },
                "RestartPolicy": { "Condition": "none" },
                "Placement": { "Constraints": ["node.labels.rack==a", "node.id==n1"] },
            },
            "Mode": { "Replicated": { "Replicas": 1 } },
        },
    })
}

impl Stage {
    /// Two nodes that have reported, and a service that runs on the first.
    async fn new() -> Self {
        let fake = Arc::new(Fake::default());
        *fake.kept() = Kept { nodes: ["n1", "n2"].map(a_node).into(), services: vec![a_service()], ..Kept::default() };
        fake.task("running");
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("docker.sock");
        let router = Router::new()
            .route("/nodes", get(nodes))
            .route("/services", get(|State(fake): State<Arc<Fake>>| async move { Json(json!(fake.kept().services)) }))
            .route("/tasks", get(|State(fake): State<Arc<Fake>>| async move { Json(json!(fake.kept().tasks)) }))
            .route("/services/{id}/update", post(change))
            .route("/configs/berth-placer", get(lease))
            .route("/configs/create", post(make_lease))
            .route("/configs/lease/update", post(renew))
            .with_state(Arc::clone(&fake));
        let listener = tokio::net::UnixListener::bind(&socket).unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await });
        let (placer, swarm) = placer(&fake, &dir, "n1:/run/placer.sock");
        let mut stage = Self { fake, placer, swarm, dir };
        stage.round().await;
        stage
    }

    /// Reads and mends, then asks every node.
    async fn round(&mut self) {
        self.swarm.round().await.unwrap();
        self.ask().await;
    }

    async fn ask(&self) {
        for name in ["n1", "n2"] {
            self.placer.ask_again(&name.parse().unwrap()).await;
        }
    }
}

fn placer(fake: &Arc<Fake>, dir: &tempfile::TempDir, place: &str) -> (Arc<Placer>, Swarm) {
    let placer = Placer::new(&PlacerSettings::default(), Box::new(Arc::clone(fake)));
    let manager = Manager::new(&dir.path().join("docker.sock"));
    (Arc::clone(&placer), Swarm::new(manager, placer, place, 7277))
}

const THERE: (&str, &str) = ("n1", "node.id==n1");
const MOVED: (&str, &str) = ("n2", "node.id==n2");

fn is(place: (String, String), expected: (&str, &str)) {
    assert_eq!((place.0.as_str(), place.1.as_str()), expected);
}

#[tokio::test]
async fn what_was_placed_is_known_before_anything_else_is() {
    let mut stage = Stage::new().await;
    stage.swarm.run(async {}).await;
    let (placer, mut swarm) = placer(&stage.fake, &stage.dir, "n1:/run/placer.sock");
    assert!(placer.reserve(&wanting(1)).await.unwrap_err().to_string().contains("has not read the swarm yet"));
    swarm.round().await.unwrap();
    (stage.placer, stage.swarm) = (placer, swarm);
    let error = stage.placer.reserve(&wanting(1)).await.unwrap_err().to_string();
    assert!(error.contains("has not asked the nodes yet"), "{error}");
    stage.ask().await;
    stage.swarm.round().await.unwrap();
    is(stage.fake.place(), THERE);
    let (_kept, reserved) = stage.placer.reserve(&wanting(30)).await.unwrap();
    assert_eq!(reserved.choice.node.as_str(), "n2", "the other place is taken");
    assert!(stage.placer.reserve(&wanting(30)).await.is_err());
}

#[tokio::test]
async fn another_acts_at_once_after_one_that_has_stopped_and_not_after_one_that_has_died() {
    let mut stage = Stage::new().await;
    stage.round().await;
    // With the name and the socket of the first, as on a cloned machine.
    let (second, mut swarm) = placer(&stage.fake, &stage.dir, "n1:/run/placer.sock");
    swarm.round().await.unwrap();
    assert!(second.why_idle().unwrap().contains("places for this swarm"));
    stage.swarm.run(async {}).await;
    assert_eq!(stage.placer.why_idle().as_deref(), Some("it is stopping"));
    let (third, mut swarm) = placer(&stage.fake, &stage.dir, "n3:/run/placer.sock");
    swarm.round().await.unwrap();
    assert_eq!(third.why_idle().as_deref(), Some("it has not asked the nodes yet"), "it has the lease");
}

#[tokio::test]
async fn a_service_the_engine_will_not_change_does_not_keep_others_where_they_are() {
    let mut stage = Stage::new().await;
    let mut stubborn = a_service();
    (stubborn["ID"], stubborn["Spec"]["Labels"][PLACEMENT_LABEL]) = (json!("t"), json!(PlacementId(8)));
    stage.fake.kept().services.insert(0, stubborn);
    stage.fake.kept().stubborn = Some("t".to_owned());
    stage.fake.set("n1", "Spec", "Availability", "drain");
    stage.round().await;
    stage.round().await;
    let moved = stage.fake.kept().services[1]["Spec"]["Labels"]["berth.node"].clone();
    assert_eq!(moved, "n2");
}

#[tokio::test]
async fn what_runs_stays_where_it_is_unless_its_node_is_lost_emptied_or_does_not_meet_its_constraints() {
    for (part, key, value, expected) in [
        ("Spec", "Availability", "pause", THERE),
        ("Status", "State", "unknown", THERE),
        ("Spec", "Availability", "drain", MOVED),
        ("Status", "State", "down", MOVED),
        ("Spec", "Labels", "gone", MOVED),
    ] {
        let mut stage = Stage::new().await;
        stage.round().await;
        is(stage.fake.place(), THERE);
        match key {
            "Labels" => stage.fake.without_labels("n1"),
            "State" if value == "down" => {
                stage.fake.set("n1", part, key, value);
                stage.round().await;
                is(stage.fake.place(), THERE);
                assert_eq!(stage.fake.replicas(), 0, "the manager is not to wait for a container that nobody tells of");
                stage.fake.kept().services[0]["Version"]["Index"] = json!(5);
            }
            _ => stage.fake.set("n1", part, key, value),
        }
        stage.round().await;
        is(stage.fake.place(), expected);
        assert_eq!(stage.fake.replicas(), 1);
        stage.round().await;
        is(stage.fake.place(), expected);
        assert!(stage.fake.kept().services[0]["Version"]["Index"].as_u64() <= Some(6), "it is changed once");
    }
}

#[tokio::test]
async fn nothing_is_started_on_a_node_whose_daemon_has_fallen_silent() {
    let mut stage = Stage::new().await;
    stage.fake.silent.lock().unwrap().push("n1".into());
    stage.fake.task("preparing");
    stage.round().await;
    is(stage.fake.place(), THERE);
    // To the next placer it has never answered.
    stage.swarm.run(async {}).await;
    let (placer, swarm) = placer(&stage.fake, &stage.dir, "n1:/run/placer.sock");
    (stage.placer, stage.swarm) = (placer, swarm);
    stage.swarm.round().await.unwrap();
    stage.ask().await;
    stage.swarm.round().await.unwrap();
    is(stage.fake.place(), MOVED);
}

#[tokio::test]
async fn an_election_takes_its_place_from_nobody() {
    for state in ["preparing", "running"] {
        let mut stage = Stage::new().await;
        stage.fake.task(state);
        stage.round().await;
        ["n1", "n2"].iter().for_each(|node| stage.fake.set(node, "Status", "State", "unknown"));
        stage.round().await;
        is(stage.fake.place(), THERE);
        assert_eq!(stage.fake.spec()["Labels"].get("berth.pending"), None, "{state}");
        assert_eq!(stage.fake.kept().services[0]["Version"]["Index"], 5, "{state}");
    }
    let (mut stage, _) = made(&[], &[]).await;
    stage.fake.kept().services[0] = to_be_started();
    ["n1", "n2"].iter().for_each(|node| stage.fake.set(node, "Status", "State", "unknown"));
    stage.round().await;
    assert_eq!(stage.fake.kept().services[0], to_be_started());
}

#[tokio::test]
async fn what_somebody_else_has_started_stays_ended_when_they_end_it() {
    let mut stage = Stage::new().await;
    stage.fake.kept().services[0]["Spec"]["Labels"][labels::START] = json!(labels::BY_PLACER);
    stage.round().await;
    assert_eq!(stage.fake.spec()["Labels"].get(labels::START), None);
    stage.fake.kept().services[0]["Spec"]["Mode"]["Replicated"]["Replicas"] = json!(0);
    stage.round().await;
    assert_eq!(replicas(&stage), 0);
}

/// As `berth run --cluster` has it made.
fn to_be_started() -> Value {
    let mut service = a_service();
    service["Spec"]["Labels"][labels::START] = json!(labels::BY_PLACER);
    service["Spec"]["Mode"]["Replicated"]["Replicas"] = json!(0);
    service
}

/// One that was made, after so much else was given away and these nodes have fallen silent.
async fn made(taken_gib: &[u64], silent: &[&str]) -> (Stage, Vec<Reservation>) {
    let mut stage = Stage::new().await;
    stage.fake.kept().services.clear();
    stage.fake.kept().tasks.clear();
    stage.round().await;
    let mut taken = Vec::new();
    for gib in taken_gib {
        taken.push(stage.placer.reserve(&wanting(*gib)).await.unwrap().0);
    }
    stage.fake.kept().services.push(to_be_started());
    stage.fake.silent.lock().unwrap().extend(silent.iter().map(ToString::to_string));
    stage.round().await;
    (stage, taken)
}

fn replicas(stage: &Stage) -> Value {
    stage.fake.spec()["Mode"]["Replicated"]["Replicas"].clone()
}

#[tokio::test]
async fn what_was_made_is_started_where_it_was_placed_though_this_placer_did_not_place_it() {
    let (mut stage, _) = made(&[], &[]).await;
    is(stage.fake.place(), THERE);
    assert_eq!((replicas(&stage), stage.fake.spec()["Labels"].get(labels::START)), (json!(1), None));
    assert_eq!(stage.fake.spec()["Labels"]["berth.placement"], PlacementId(7).to_string());
    assert_eq!(stage.placer.book().reserved_on(&"n1".parse().unwrap()), 1);
    stage.round().await;
    assert_eq!(stage.fake.kept().services[0]["Version"]["Index"], 6, "it is started once");
}

#[tokio::test]
async fn what_was_made_after_its_place_was_given_to_another_is_started_elsewhere() {
    let (stage, _taken) = made(&[30], &[]).await;
    is(stage.fake.place(), MOVED);
    assert_eq!(replicas(&stage), 1);
}

#[tokio::test]
async fn what_was_made_and_nobody_takes_any_more_is_not_started_until_somebody_does() {
    let (mut stage, taken) = made(&[30, 30], &[]).await;
    assert_eq!((replicas(&stage), &stage.fake.spec()["Labels"][labels::START]), (json!(0), &json!("placer")));
    assert_eq!(stage.fake.spec()["Labels"]["berth.pending"], "nobody takes it: reserved");
    for kept in &taken {
        stage.placer.book().release(kept.id());
    }
    stage.round().await;
    assert_eq!((replicas(&stage), stage.fake.spec()["Labels"].get("berth.pending")), (json!(1), None));
}

#[tokio::test]
async fn what_was_made_is_not_started_on_a_node_that_does_not_answer_by_now() {
    let (stage, _) = made(&[], &["n1"]).await;
    is(stage.fake.place(), MOVED);
    assert_eq!(replicas(&stage), 1);
}

#[tokio::test]
async fn one_that_is_started_again_after_its_place_was_given_away_goes_elsewhere() {
    let mut stage = Stage::new().await;
    stage.round().await;
    let scale = |stage: &Stage, count: u64| {
        stage.fake.kept().services[0]["Spec"]["Mode"]["Replicated"]["Replicas"] = json!(count);
        stage.fake.kept().tasks.clear();
    };
    scale(&stage, 0);
    stage.round().await;
    let request = PlaceRequest { constraints: vec!["node.hostname==n1".into()], ..wanting(30) };
    let (_kept, reserved) = stage.placer.reserve(&request).await.unwrap();
    assert_eq!(reserved.choice.node.as_str(), "n1");
    scale(&stage, 1);
    stage.round().await;
    is(stage.fake.place(), MOVED);
}

#[tokio::test]
async fn of_two_that_wait_for_one_place_one_is_moved_by_a_placer_that_placed_neither() {
    let mut stage = Stage::new().await;
    let mut second = a_service();
    (second["ID"], second["Spec"]["Labels"][PLACEMENT_LABEL]) = (json!("t"), json!(PlacementId(8)));
    stage.fake.kept().services.push(second);
    stage.fake.kept().tasks.clear();
    stage.round().await;
    stage.round().await;
    stage.round().await;
    let on = |at: usize| stage.fake.kept().services[at]["Spec"]["Labels"]["berth.node"].clone();
    assert_eq!([on(0), on(1)], ["n2", "n1"]);
}

#[tokio::test]
async fn what_has_ended_is_not_started_again() {
    let mut stage = Stage::new().await;
    stage.fake.task("complete");
    stage.fake.set("n1", "Status", "State", "down");
    stage.round().await;
    is(stage.fake.place(), THERE);
}

#[tokio::test]
async fn one_that_nobody_takes_waits_with_the_reason_and_goes_when_somebody_does() {
    let mut stage = Stage::new().await;
    stage.fake.set("n1", "Spec", "Availability", "drain");
    stage.fake.set("n2", "Spec", "Availability", "pause");
    stage.round().await;
    assert_eq!(stage.fake.spec()["Labels"]["berth.pending"], "nobody takes it: drained, paused");
    is(stage.fake.place(), ("n1", "node.id==berth.pending"));
    stage.round().await;
    assert_eq!(stage.fake.kept().services[0]["Version"]["Index"], 6, "it is told once");
    let told = stage.placer.nodes(&wanting(1)).unwrap().waiting;
    assert_eq!(told.iter().map(|it| it.why.as_str()).collect::<Vec<_>>(), ["nobody takes it: drained, paused"]);
    let mut third = a_node("n3");
    third["Spec"]["Availability"] = json!("drain");
    stage.fake.kept().nodes.push(third);
    stage.round().await;
    assert_eq!(stage.fake.kept().services[0]["Version"]["Index"], 6, "of so many more, for the same reasons");
    stage.fake.set("n1", "Spec", "Availability", "active");
    stage.round().await;
    is(stage.fake.place(), THERE);
    assert!(stage.fake.spec()["Labels"].get("berth.pending").is_none());
    stage.round().await;
    assert_eq!(stage.placer.nodes(&wanting(1)).unwrap().waiting, []);
    assert_ne!(stage.fake.spec()["Labels"]["berth.placement"], PlacementId(7).to_string());
}

#[tokio::test]
async fn a_service_that_somebody_else_changes_meanwhile_is_left_to_the_next_round() {
    let mut stage = Stage::new().await;
    let service = Service::read(stage.fake.kept().services[0].clone(), &[]).unwrap();
    stage.fake.kept().services[0]["Version"]["Index"] = json!(9);
    let spec = service.told_why("x");
    assert!(!stage.swarm.update(&service, &spec).await.unwrap());
    stage.fake.kept().services.clear();
    assert!(!stage.swarm.update(&service, &spec).await.unwrap());
    stage.round().await;
    assert_eq!(stage.placer.book().reservations(), 0, "it is gone, and its place is free");
}

#[tokio::test]
async fn of_two_placers_one_acts_and_neither_does_without_a_manager() {
    let mut stage = Stage::new().await;
    let (second, mut swarm) = placer(&stage.fake, &stage.dir, "n2:/run/placer.sock");
    swarm.round().await.unwrap();
    let why = second.why_idle().unwrap();
    assert!(why.starts_with("n1:/run/placer.sock (process ") && why.contains("places for this swarm"), "{why}");
    stage.round().await;
    assert_eq!(stage.placer.why_idle(), None);
    stage.fake.kept().is_broken = true;
    let told = swarm.round().await.unwrap_err().to_string();
    assert!(told.contains("the swarm has no leader"), "{told}");
}
