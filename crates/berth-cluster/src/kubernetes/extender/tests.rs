//! The scheduler's requests as they were recorded, on clusters that are described here.

use std::sync::{Arc, Mutex};

use berth_model::cluster::report::{LoadReport, UnderWay};
use berth_model::deadline::{Spread, Unit};
use berth_model::id::GpuUuid;

use super::types::{ExtenderArgs, ExtenderBindingArgs, Nodes};
use super::*;
use crate::kubernetes::pod::Pod;
use crate::kubernetes::testing::{gpu, joins, member, placer};
use crate::placer::{Book, Placer};

/// One request, as kube-scheduler 1.20.2 sent it.
macro_rules! recorded {
    ($name:literal) => {
        serde_json::from_str(include_str!(concat!("../../../tests/kubernetes/recorded/", $name, ".json"))).unwrap()
    };
}

/// The three nodes of the recorded requests.
fn cluster(free_gib: [u64; 3]) -> Arc<Placer> {
    let placer = placer();
    for (name, free_gib) in ["node-a", "node-b", "node-c"].into_iter().zip(free_gib) {
        joins(&placer, name, free_gib);
    }
    placer
}

fn another(mut args: ExtenderArgs, uid: &str) -> ExtenderArgs {
    args.pod.meta.uid = Some(uid.to_owned());
    args
}

fn reserved(book: &Book) -> usize {
    book.reservations()
}

#[test]
fn nodes_that_take_the_pod_are_left_and_the_others_are_told_why() {
    let placer = cluster([80, 10, 40]);
    let args: ExtenderArgs = recorded!("filter-node-names");
    let (answer, refusals) = filter(&mut placer.book(), &mut Lately::default(), args, placer.now());
    assert_eq!(answer.node_names.unwrap(), ["node-a", "node-c"]);
    let refused = answer.failed_and_unresolvable_nodes;
    assert_eq!(refused.len(), 1);
    assert_eq!(refused["node-b"], "berth: at most 10.0 GiB is free on a GPU, 20.0 GiB is wanted");
    assert!(answer.error.is_empty() && refusals.is_none());
}

#[test]
fn whole_nodes_go_back_as_they_came() {
    let placer = cluster([80, 10, 40]);
    let args: ExtenderArgs = recorded!("filter-nodes");
    let sent: Vec<String> = args.nodes.as_ref().unwrap().items.iter().map(|item| item.get().to_owned()).collect();
    let (answer, _) = filter(&mut placer.book(), &mut Lately::default(), args, placer.now());
    let nodes = answer.nodes.unwrap();
    let names: Vec<_> = nodes.items.iter().filter_map(|item| Nodes::name(item)).collect();
    assert!(!names.contains(&"node-b".to_owned()) && !names.is_empty(), "{names:?}");
    assert!(nodes.items.iter().all(|item| sent.contains(&item.get().to_owned())));
    assert_eq!(answer.node_names, None);
}

#[test]
fn nobody_is_evicted_for_a_pod_that_no_node_takes() {
    let placer = cluster([10, 10, 10]);
    placer.book().member_is_gone(&"node-c".parse().unwrap());
    let (answer, refusals) =
        filter(&mut placer.book(), &mut Lately::default(), recorded!("filter-node-names"), placer.now());
    assert_eq!(answer.node_names.unwrap(), [] as [&str; 0]);
    assert_eq!(answer.failed_nodes, answer.failed_and_unresolvable_nodes);
    assert_eq!(answer.failed_and_unresolvable_nodes.keys().collect::<Vec<_>>(), ["node-a", "node-b", "node-c"]);
    assert_eq!(refusals.unwrap().total(), 3);
}

#[test]
fn a_pod_that_wants_nothing_of_berth_passes_untouched() {
    let placer = placer();
    let mut args: ExtenderArgs = recorded!("filter-node-names");
    args.pod = Pod::default();
    let names = args.node_names.clone();
    let (answer, refusals) = filter(&mut placer.book(), &mut Lately::default(), args, placer.now());
    assert_eq!((answer.node_names, answer.failed_and_unresolvable_nodes.len(), refusals), (names, 0, None));
}

#[test]
fn a_pod_that_came_past_the_webhook_with_a_slip_of_the_pen_goes_nowhere() {
    let placer = cluster([80, 80, 80]);
    let text = include_str!("../../../tests/kubernetes/recorded/filter-node-names.json").replace("\"9s\"", "\"9sex\"");
    let (answer, _) =
        filter(&mut placer.book(), &mut Lately::default(), serde_json::from_str(&text).unwrap(), placer.now());
    assert_eq!(answer.node_names.unwrap(), [] as [&str; 0]);
    let why = &answer.failed_and_unresolvable_nodes["node-a"];
    assert!(why.starts_with("berth: berth.dev/deadline: `9sex` is not a deadline"), "{why}");
}

#[test]
fn of_many_nodes_reasons_are_told_by_their_word_so_that_the_scheduler_can_count_them() {
    let placer = placer();
    let names: Vec<String> = (0..20).map(|n| format!("n{n}")).collect();
    (0..20).for_each(|n| joins(&placer, &names[n], 1 + n as u64 % 15));
    let args = ExtenderArgs { node_names: Some(names), ..recorded!("filter-node-names") };
    let (answer, _) = filter(&mut placer.book(), &mut Lately::default(), args, placer.now());
    let refused = answer.failed_and_unresolvable_nodes;
    assert!(refused.len() == 20 && refused.values().all(|why| why == "berth: too-little-memory"), "{refused:?}");
}

#[test]
fn the_answer_has_the_names_that_go_gives_its_fields() {
    let placer = cluster([80, 10, 40]);
    let (answer, _) = filter(&mut placer.book(), &mut Lately::default(), recorded!("filter-node-names"), placer.now());
    let answer = serde_json::to_value(answer).unwrap();
    let names: Vec<&String> = answer.as_object().unwrap().keys().collect();
    assert_eq!(names, ["Error", "FailedAndUnresolvableNodes", "FailedNodes", "NodeNames"]);
    let best =
        prioritize(&mut placer.book(), &mut Lately::default(), &recorded!("prioritize-node-names"), placer.now());
    let best = serde_json::to_value(&best[0]).unwrap();
    assert_eq!(best["Score"], 10);
    assert!(best["Host"].is_string());
}

#[test]
fn the_last_place_is_not_offered_to_two() {
    let placer = cluster([25, 0, 0]);
    let first: ExtenderArgs = recorded!("filter-node-names");
    let (answer, _) = filter(&mut placer.book(), &mut Lately::default(), first, placer.now());
    assert_eq!(answer.node_names.unwrap(), ["node-a"]);
    // The first is not bound yet.
    let (answer, _) = filter(
        &mut placer.book(),
        &mut Lately::default(),
        another(recorded!("filter-node-names"), "other"),
        placer.now(),
    );
    assert_eq!(answer.node_names.unwrap(), [] as [&str; 0]);
    // It asks again itself: its own place is not in its way.
    let (answer, _) = filter(&mut placer.book(), &mut Lately::default(), recorded!("filter-node-names"), placer.now());
    assert_eq!(answer.node_names.unwrap(), ["node-a"]);
    assert_eq!(reserved(&placer.book()), 1);
}

#[test]
fn the_place_of_the_best_is_kept_when_it_has_been_told() {
    let placer = cluster([80, 80, 80]);
    let order =
        prioritize(&mut placer.book(), &mut Lately::default(), &recorded!("prioritize-node-names"), placer.now());
    let (most, best) = order.iter().map(|one| (one.score, one.host.clone())).max().unwrap();
    assert_eq!((most, order.iter().filter(|one| one.score == most).count()), (10, 1));
    let book = placer.book();
    assert_eq!((book.reservations(), book.reserved_on(&best.parse().unwrap())), (1, 1));
}

#[test]
fn what_was_found_a_moment_ago_is_what_would_be_found_now() {
    let order = |free: [u64; 3], lately: &mut Lately| {
        let placer = cluster(free);
        prioritize(&mut placer.book(), lately, &recorded!("prioritize-node-names"), placer.now())
    };
    let found = |free: [u64; 3]| {
        let (placer, mut lately) = (cluster(free), Lately::default());
        filter(&mut placer.book(), &mut lately, recorded!("filter-node-names"), placer.now());
        lately
    };
    let sorted = |mut order: Vec<types::HostPriority>| {
        order.sort_by(|a, b| a.host.cmp(&b.host));
        order.into_iter().map(|one| (one.host, one.score)).collect::<Vec<_>>()
    };
    let anew = sorted(order([80, 60, 40], &mut Lately::default()));
    assert_eq!(sorted(order([80, 60, 40], &mut found([80, 60, 40]))), anew);
    assert_eq!(sorted(order([80, 60, 40], &mut found([40, 60, 80]))), anew, "the best is not what it was");
    assert_eq!(sorted(order([80, 60, 40], &mut found([80, 60, 1]))), anew, "one more takes it than did");
}

/// With requests and answers as text: what the scheduler waits for, but for the way there.
#[test]
fn five_thousand_nodes_are_filtered_and_ranked_within_50_ms() {
    const NODES: u32 = 5_000;
    let rounds = if cfg!(debug_assertions) { 5 } else { 200 };
    let placer = placer();
    let names: Vec<String> = (0..NODES).map(|n| format!("gpu-node-{n}.example.internal")).collect();
    for (at, name) in names.iter().enumerate() {
        busy(&placer, name, at as u64);
    }
    let mut request: serde_json::Value = recorded!("filter-node-names");
    request["NodeNames"] = names.into();
    // However long it takes, reports do not go stale.
    let now = placer.now();
    let mut took: Vec<std::time::Duration> = (0..rounds)
        .map(|round| {
            request["Pod"]["metadata"]["uid"] = format!("pod-{round}").into();
            let (text, mut lately) = (request.to_string(), Lately::default());
            let begin = std::time::Instant::now();
            let (answer, _) = filter(&mut placer.book(), &mut lately, serde_json::from_str(&text).unwrap(), now);
            let _ = serde_json::to_vec(&answer).unwrap();
            let filtered = begin.elapsed();
            assert!(!answer.failed_and_unresolvable_nodes.is_empty());
            let mut left = request.clone();
            left["NodeNames"] = answer.node_names.unwrap().into();
            let text = left.to_string();
            let begin = std::time::Instant::now();
            let order = prioritize(&mut placer.book(), &mut lately, &serde_json::from_str(&text).unwrap(), now);
            let _ = serde_json::to_vec(&order).unwrap();
            filtered + begin.elapsed()
        })
        .collect();
    took.sort();
    let (half, most) = (took[took.len() / 2], took[took.len() * 99 / 100]);
    println!("filter and prioritize, {NODES} nodes, {rounds} pods: p50 {half:.1?}, p99 {most:.1?}");
    assert!(cfg!(debug_assertions) || most.as_millis() <= 50, "p99 {most:?}");
}

/// A node with two GPUs of which each has three tenants with deadlines; one in three is too full.
fn busy(placer: &Placer, name: &str, number: u64) {
    let mut gpus = [0, 1].map(|at| gpu(format!("GPU-{number}-{at}"), if number.is_multiple_of(3) { 10 } else { 40 }));
    for gpu in &mut gpus {
        gpu.loads = (1..=3).map(|at| load(f64::from(at) * 4.0, 0.5)).collect();
    }
    member(placer, name, gpus.into());
}

fn load(due_in_seconds: f64, takes_seconds: f64) -> LoadReport {
    let under_way = Some(UnderWay { due_in_seconds, done_seconds: 0.1 });
    LoadReport { unit: Unit::Task, deadline_seconds: 12.0, under_way, takes: Spread::of([takes_seconds]) }
}

// === bind ===

#[derive(Debug, thiserror::Error, PartialEq)]
#[error("{0}")]
struct Broken(&'static str);

/// An API server with one pod. What it is told to fail, fails.
#[derive(Default)]
struct OnePod {
    pod: Mutex<Option<Pod>>,
    chosen: Mutex<Vec<String>>,
    /// The binding is made and its answer lost.
    loses_answer: bool,
    refuses_binding: bool,
    is_silent_after: bool,
    bindings: Mutex<usize>,
}

impl OnePod {
    fn new() -> Self {
        let args: ExtenderArgs = recorded!("filter-node-names");
        Self { pod: Mutex::new(Some(args.pod)), ..Self::default() }
    }

    fn bound_to(self, node: &str) -> Self {
        self.pod.lock().unwrap().as_mut().unwrap().node = Some(node.to_owned());
        self
    }
}

impl Pods for OnePod {
    type Error = Broken;

    async fn get(&self, _: &str, _: &str) -> Result<Option<Pod>, Broken> {
        if self.is_silent_after && *self.bindings.lock().unwrap() > 0 {
            return Err(Broken("silent"));
        }
        Ok(self.pod.lock().unwrap().clone())
    }

    async fn choose(&self, _: &str, _: &str, uid: &str, gpus: &[GpuUuid]) -> Result<(), Broken> {
        assert_eq!(self.pod.lock().unwrap().as_ref().unwrap().meta.uid.as_deref(), Some(uid));
        *self.chosen.lock().unwrap() = gpus.iter().map(|gpu| gpu.0.clone()).collect();
        Ok(())
    }

    async fn bind(&self, args: &ExtenderBindingArgs) -> Result<(), Broken> {
        *self.bindings.lock().unwrap() += 1;
        if self.refuses_binding {
            return Err(Broken("refused"));
        }
        self.pod.lock().unwrap().as_mut().unwrap().node = Some(args.node.clone());
        if self.loses_answer { Err(Broken("lost")) } else { Ok(()) }
    }
}

#[tokio::test]
async fn the_gpus_are_written_before_the_pod_is_bound_and_the_place_is_taken() {
    let (placer, pods) = (cluster([80, 80, 80]), OnePod::new());
    let bound = bind(&placer, &pods, &recorded!("bind")).await.unwrap();
    assert_eq!(bound.choice.unwrap().node.as_str(), "node-b");
    assert_eq!(*pods.chosen.lock().unwrap(), ["GPU-node-b"]);
    assert_eq!(placer.book().reserved_on(&"node-b".parse().unwrap()), 1);
}

#[tokio::test]
async fn a_node_that_does_not_take_it_any_more_refuses_and_nothing_is_written() {
    let (placer, pods) = (cluster([80, 10, 80]), OnePod::new());
    let refused = bind(&placer, &pods, &recorded!("bind")).await.unwrap_err().to_string();
    assert_eq!(
        refused,
        "node node-b does not take pod default/trainer: at most 10.0 GiB is free on a GPU, 20.0 GiB is wanted"
    );
    assert_eq!(
        (pods.chosen.lock().unwrap().len(), *pods.bindings.lock().unwrap(), reserved(&placer.book())),
        (0, 0, 0)
    );
}

#[tokio::test]
async fn who_asks_again_after_a_lost_answer_is_told_that_it_is_bound() {
    let (placer, pods) = (cluster([80, 80, 80]), OnePod { loses_answer: true, ..OnePod::new() });
    bind(&placer, &pods, &recorded!("bind")).await.unwrap();
    bind(&placer, &pods, &recorded!("bind")).await.unwrap();
    assert_eq!((*pods.bindings.lock().unwrap(), reserved(&placer.book())), (1, 1));
}

#[tokio::test]
async fn a_binding_that_is_refused_gives_the_place_back() {
    let (placer, pods) = (cluster([80, 80, 80]), OnePod { refuses_binding: true, ..OnePod::new() });
    bind(&placer, &pods, &recorded!("bind")).await.unwrap_err();
    assert_eq!(reserved(&placer.book()), 0);
}

#[tokio::test]
async fn where_nobody_knows_whether_it_is_bound_the_place_is_kept() {
    let pods = OnePod { loses_answer: true, is_silent_after: true, ..OnePod::new() };
    let placer = cluster([80, 80, 80]);
    bind(&placer, &pods, &recorded!("bind")).await.unwrap_err();
    assert_eq!(reserved(&placer.book()), 1);
}

#[tokio::test]
async fn a_pod_that_is_elsewhere_gone_or_another_is_not_bound() {
    let placer = cluster([80, 80, 80]);
    let args: ExtenderBindingArgs = recorded!("bind");
    let told = |error: NotBound<Broken>| error.to_string();
    let elsewhere = OnePod::new().bound_to("node-a");
    assert_eq!(
        told(bind(&placer, &elsewhere, &args).await.unwrap_err()),
        "pod default/trainer is bound to node-a already"
    );
    assert_eq!(told(bind(&placer, &OnePod::default(), &args).await.unwrap_err()), "pod default/trainer is gone");
    let other = ExtenderBindingArgs { pod_uid: "other".to_owned(), ..args };
    assert_eq!(told(bind(&placer, &OnePod::new(), &other).await.unwrap_err()), "pod default/trainer is gone");
    assert_eq!(reserved(&placer.book()), 0);
}

#[tokio::test]
async fn a_pod_that_requests_no_gpu_is_not_ours_to_bind() {
    let placer = cluster([80, 80, 80]);
    let (bare, none) = (OnePod::new(), OnePod::new());
    bare.pod.lock().unwrap().as_mut().unwrap().containers.clear();
    let told = bind(&placer, &bare, &recorded!("bind")).await.unwrap_err().to_string();
    assert!(told.starts_with("pod default/trainer requests no berth.dev/gpu"), "{told}");
    let nothing = serde_json::json!([{"resources": {"limits": {"berth.dev/gpu": "0"}}}]);
    none.pod.lock().unwrap().as_mut().unwrap().containers = serde_json::from_value(nothing).unwrap();
    bind(&placer, &none, &recorded!("bind")).await.unwrap();
    let bindings = |pods: &OnePod| *pods.bindings.lock().unwrap();
    assert_eq!((bindings(&bare), bindings(&none), reserved(&placer.book())), (0, 1, 0));
}
