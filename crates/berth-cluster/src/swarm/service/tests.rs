//! Services as an engine of 20.10 tells of them.

use berth_model::id::GpuUuid;
use berth_model::quantity::Bytes;

use super::*;

/// As an engine of 20.10 tells of a service that berth has made.
fn told() -> Value {
    json!({
        "ID": "k9sjjn61q6u6sb72o0ta57qnx",
        "Version": { "Index": 21 },
        "UpdatedAt": "2026-11-16T05:00:00.25Z",
        "Spec": {
            "Name": "solver",
            "Labels": {
                "team": "a", "berth.placement": "000000000000feed", "berth.node": "n2id", "berth.gpus": "GPU-2",
                "berth.deadline": "9s", "berth.memory": "1024B",
            },
            "TaskTemplate": {
                "ContainerSpec": {
                    "Image": "solver:3",
                    "Labels": { "berth.placement": "000000000000feed", "berth.deadline": "9s" },
                    "Env": ["NVIDIA_VISIBLE_DEVICES=GPU-2", "CUDA_VISIBLE_DEVICES=GPU-2", "A=NVIDIA_VISIBLE_DEVICES=x"],
                    "OfANewerEngine": { "kept": true },
                },
                "RestartPolicy": { "Condition": "none" },
                "Placement": { "Constraints": ["node.labels.rack==a", "node.id==n2id"] },
            },
            "Mode": { "Replicated": { "Replicas": 1 } },
        },
    })
}

fn task(state: &str, desired: &str, created: &str) -> Task {
    serde_json::from_value(json!({
        "ID": "x", "ServiceID": "k9sjjn61q6u6sb72o0ta57qnx", "CreatedAt": created,
        "Status": { "State": state }, "DesiredState": desired,
    }))
    .unwrap()
}

fn service(told: Value) -> Service {
    Service::read(told, &[]).unwrap()
}

#[test]
fn what_was_placed_is_read_with_the_user_s_own_constraints() {
    let service = service(told());
    assert_eq!((service.placement, service.choice.node.as_str()), (PlacementId(0xfeed), "n2id"));
    assert_eq!(service.request.constraints, ["node.labels.rack==a"]);
    assert_eq!((service.request.memory_bytes, service.request.image.as_deref()), (Some(Bytes(1024)), Some("solver:3")));
    assert_eq!((service.version(), service.pending()), (21, None));
    let mut strange = told();
    strange["Spec"]["Labels"]["berth.placement"] = json!("mine");
    assert!(Service::read(strange, &[]).is_none(), "somebody else's label");
    let mut twice = told();
    twice["Spec"]["TaskTemplate"]["Placement"]["Constraints"] = json!(["node.id==n2id", "node.id==n2id"]);
    let service = Service::read(twice, &[]).unwrap();
    assert_eq!(service.request.constraints, ["node.id==n2id"], "its user wants it there and nowhere else");
    let told_why = service.told_why("nobody");
    let waits = Service::read(json!({ "ID": "s", "Spec": told_why }), &[]).unwrap();
    assert_eq!(waits.request.constraints, ["node.id==n2id"]);
    let mut freed = told();
    freed["Spec"]["TaskTemplate"]["Placement"]["Constraints"] = json!(["node.labels.rack==a"]);
    assert!(Service::read(freed, &[]).is_none(), "somebody has taken it out of berth's hands");
}

#[test]
fn a_move_changes_the_place_and_nothing_else() {
    let choice = Choice { node: "n3id".parse().unwrap(), gpus: vec![GpuUuid("GPU-3".into())] };
    let moved = service(told()).moved(PlacementId(0xbeef), &choice);
    let mut expected = told()["Spec"].clone();
    expected["Labels"]["berth.placement"] = json!("000000000000beef");
    expected["Labels"]["berth.node"] = json!("n3id");
    expected["Labels"]["berth.gpus"] = json!("GPU-3");
    expected["TaskTemplate"]["ContainerSpec"]["Labels"]["berth.placement"] = json!("000000000000beef");
    expected["TaskTemplate"]["ContainerSpec"]["Env"] =
        json!(["A=NVIDIA_VISIBLE_DEVICES=x", "NVIDIA_VISIBLE_DEVICES=GPU-3", "CUDA_VISIBLE_DEVICES=GPU-3"]);
    expected["TaskTemplate"]["Placement"]["Constraints"] = json!(["node.labels.rack==a", "node.id==n3id"]);
    assert_eq!(moved, expected);
}

#[test]
fn one_that_was_only_made_has_no_place_of_its_own_until_it_is_started_there() {
    let mut made = told();
    made["Spec"]["Mode"]["Replicated"]["Replicas"] = json!(0);
    let scaled = service(made.clone());
    assert_eq!((scaled.stage, scaled.placed()), (Stage::Over, None), "its user wants none");
    made["Spec"]["Labels"][START] = json!(labels::BY_PLACER);
    let made = service(made);
    assert_eq!((made.stage, made.placed()), (Stage::Made, None));
    assert_eq!(made.waiting().map(|told| told.why).as_deref(), Some("no placer has started it yet"));
    let started = made.moved(made.placement, &made.choice);
    assert_eq!((&started["Mode"]["Replicated"]["Replicas"], started["Labels"].get(START)), (&json!(1), None));
    let unplaced = made.told_why("nobody takes it: stale 2");
    assert_eq!(
        (&unplaced["Mode"]["Replicated"]["Replicas"], &unplaced["Labels"][START]),
        (&json!(0), &json!("placer"))
    );
}

#[test]
fn one_that_has_lost_its_node_comes_back_as_often_as_it_was_there() {
    let mut scaled = told();
    scaled["Spec"]["Mode"]["Replicated"]["Replicas"] = json!(3);
    let mut withdrawn = told();
    withdrawn["Spec"] = service(scaled.clone()).withdrawn();
    assert_eq!(withdrawn["Spec"]["Mode"]["Replicated"]["Replicas"], 0);
    let lost = service(withdrawn.clone());
    let back = lost.moved(lost.placement, &lost.choice);
    assert_eq!((&back["Mode"], &back["Labels"]), (&scaled["Spec"]["Mode"], &scaled["Spec"]["Labels"]));
    let mut waits = told();
    waits["Spec"] = lost.told_why("nobody takes it: stale 2");
    let waits = service(waits);
    assert_eq!(waits.moved(PlacementId(1), &waits.choice)["Mode"]["Replicated"]["Replicas"], 3);
    withdrawn["Spec"]["Mode"]["Replicated"]["Replicas"] = json!(2);
    let spec = service(withdrawn).unmarked().unwrap();
    assert_eq!((&spec["Labels"], &spec["Mode"]["Replicated"]["Replicas"]), (&told()["Spec"]["Labels"], &json!(2)));
}

#[test]
fn one_without_a_place_goes_nowhere_until_it_has_another() {
    let spec = service(told()).told_why("nobody takes it: stale 2");
    assert_eq!(spec["TaskTemplate"]["Placement"]["Constraints"], json!(["node.labels.rack==a", NOWHERE]));
    let mut waiting = told();
    waiting["Spec"] = spec;
    let waiting = service(waiting);
    assert_eq!(waiting.pending(), Some("nobody takes it: stale 2"));
    let told = waiting.waiting().unwrap();
    assert_eq!((told.name.as_str(), told.why.as_str()), ("solver", "nobody takes it: stale 2"));
    assert_eq!(told.since, "2026-11-16T05:00:00.25Z".parse().ok());
    assert_eq!(service(super::tests::told()).waiting(), None);
    assert_eq!(waiting.request.constraints, ["node.labels.rack==a"]);
    let moved = waiting.moved(PlacementId(1), &waiting.choice.clone());
    assert_eq!(moved["TaskTemplate"]["Placement"]["Constraints"], json!(["node.labels.rack==a", "node.id==n2id"]));
    assert!(moved["Labels"].get(PENDING).is_none());
}

/// With so many tasks, by how it is started again.
fn stage(restarts: &str, tasks: &[Task]) -> (Stage, Option<bool>) {
    let mut told = told();
    told["Spec"]["TaskTemplate"]["RestartPolicy"]["Condition"] = json!(restarts);
    let service = Service::read(told, tasks).unwrap();
    (service.stage, service.placed().map(|placed| placed.is_started))
}

const RUNNING: (Stage, Option<bool>) = (Stage::Running, Some(true));
const WAITING: (Stage, Option<bool>) = (Stage::Waiting, Some(false));
const OVER: (Stage, Option<bool>) = (Stage::Over, None);

#[test]
fn how_far_it_is_goes_by_its_youngest_task_and_by_whether_it_is_started_again() {
    let (one, two) = ("2026-11-16T05:00:01Z", "2026-11-16T05:00:02Z");
    assert_eq!(stage("none", &[]), WAITING);
    assert_eq!(stage("none", &[task("running", "running", two)]), RUNNING);
    assert_eq!(stage("none", &[task("running", "shutdown", two)]), WAITING, "its node is lost");
    assert_eq!(stage("none", &[task("running", "running", two), task("failed", "shutdown", one)]), RUNNING);
    assert_eq!(stage("none", &[task("complete", "running", two)]), OVER);
    assert_eq!(stage("none", &[task("failed", "running", two)]), OVER);
    assert_eq!(stage("on-failure", &[task("complete", "running", two)]), OVER);
    assert_eq!(stage("on-failure", &[task("failed", "running", two)]), WAITING, "the manager has not seen to it yet");
    assert_eq!(stage("any", &[task("failed", "shutdown", one), task("ready", "ready", two)]), WAITING);
    assert_eq!(stage("any", &[task("preparing", "running", two)]), WAITING);
    let mut unwanted = told();
    unwanted["Spec"]["Mode"]["Replicated"]["Replicas"] = json!(0);
    assert_eq!(Service::read(unwanted, &[task("running", "running", two)]).unwrap().stage, Stage::Over);
}

#[test]
fn the_youngest_is_so_by_its_time_and_not_by_how_that_is_written() {
    let [whole, half] = ["2026-11-16T05:00:01Z", "2026-11-16T05:00:01.5Z"];
    assert_eq!(stage("any", &[task("running", "running", half), task("failed", "shutdown", whole)]), RUNNING);
}

#[test]
fn a_task_of_its_last_place_does_not_tell_how_far_it_is_in_this_one() {
    let mut before = task("failed", "shutdown", "2026-11-16T05:00:01Z");
    before.spec = json!({ "ContainerSpec": { "Labels": { "berth.placement": "000000000000dead" } } });
    assert_eq!(stage("none", std::slice::from_ref(&before)), WAITING);
    before.spec["ContainerSpec"]["Labels"]["berth.placement"] = json!("000000000000feed");
    assert_eq!(stage("none", &[before]), OVER);
}

#[test]
fn one_that_the_manager_has_given_up_is_over_however_it_was_to_be_started_again() {
    for state in ["complete", "failed", "rejected"] {
        for restarts in ["none", "on-failure", "any"] {
            assert_eq!(
                stage(restarts, &[task(state, "shutdown", "2026-11-16T05:00:01Z")]),
                OVER,
                "{state}, {restarts}"
            );
        }
    }
}

/// As an engine of 20.10 writes it.
#[test]
fn one_that_was_ended_by_its_constraints_is_not_over_and_has_no_place() {
    let mut ended = task("rejected", "shutdown", "2026-11-16T05:00:01Z");
    ended.status.message = "task rejected by constraint enforcer".to_owned();
    assert_eq!(stage("none", &[ended]), (Stage::Displaced, None));
}
