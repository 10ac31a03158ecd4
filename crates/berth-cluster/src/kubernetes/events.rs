//! Events on pods: why no node takes one.
//!
//! The scheduler tries a pod again and again. A pod has one such event, whose count goes up; it is written when the reasons change, and
//! otherwise now and then. What cannot be told is dropped: an event is a courtesy, and the scheduler tells of it too.

use std::collections::HashMap;
use std::time::Duration;

use berth_model::Mono;
use berth_model::cluster::{PlacementId, Refusals};
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use tokio::sync::mpsc;

use super::client::{ApiPods, MANAGER};
use super::pod::Pod;
use crate::placer::Placer;

/// Between two events of one pod that say the same.
const SAME_AGAIN: Duration = Duration::from_secs(300);
/// Between two events of one pod, whatever they say: figures change with every report.
const AGAIN: Duration = Duration::from_secs(30);
/// Pods that are remembered; of more none is told of until some are forgotten.
const MOST_PODS: usize = 10_000;
/// Of a pod's name in the name of an event, which may have 253 letters.
const LONGEST_BEGINNING: usize = 200;
/// Events that wait to be told.
const MOST_WAITING: usize = 256;

/// No node takes a pod.
#[derive(Debug)]
pub struct WhyNot {
    namespace: String,
    name: String,
    uid: String,
    placement: PlacementId,
    message: String,
}

/// Where others leave what is to be told.
#[derive(Debug, Clone)]
pub struct Events {
    sender: mpsc::Sender<WhyNot>,
}

/// Which of them are told.
#[derive(Debug, Default)]
struct Limit {
    pods: HashMap<PlacementId, Last>,
}

#[derive(Debug)]
struct Last {
    message: String,
    told: Mono,
    first: Timestamp,
    count: i32,
}

// === impl WhyNot ===

impl WhyNot {
    pub fn new(pod: &Pod, refusals: &Refusals) -> Option<Self> {
        let uid = pod.meta.uid.clone()?;
        let reasons = refusals.0.iter().map(|(word, count)| format!("{count} {word}")).collect::<Vec<_>>().join(", ");
        Some(Self {
            namespace: pod.namespace().to_owned(),
            name: pod.name().to_owned(),
            placement: pod.placement()?,
            uid,
            message: format!("no node takes it ({} asked): {reasons}", refusals.total()),
        })
    }

    fn event(&self, count: i32, first: Timestamp, last: Timestamp) -> (String, Event) {
        let name = format!("{}.berth-{}", beginning(&self.name), self.placement);
        let event = Event {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                namespace: Some(self.namespace.clone()),
                ..ObjectMeta::default()
            },
            involved_object: ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                name: Some(self.name.clone()),
                namespace: Some(self.namespace.clone()),
                uid: Some(self.uid.clone()),
                ..ObjectReference::default()
            },
            type_: Some("Warning".to_owned()),
            reason: Some("NoNodeInTime".to_owned()),
            message: Some(self.message.clone()),
            count: Some(count),
            first_timestamp: Some(Time(first)),
            last_timestamp: Some(Time(last)),
            source: Some(EventSource { component: Some(MANAGER.to_owned()), host: None }),
            reporting_component: Some(MANAGER.to_owned()),
            ..Event::default()
        };
        (name, event)
    }
}

/// What an event may be called by: a pod's name alone may be as long as an object's can be, and a part of a name does not end in a dash.
pub(super) fn beginning(pod: &str) -> &str {
    pod.get(..LONGEST_BEGINNING).unwrap_or(pod).trim_end_matches(['-', '.'])
}

// === impl Events ===

impl Events {
    pub fn new() -> (Self, mpsc::Receiver<WhyNot>) {
        let (sender, receiver) = mpsc::channel(MOST_WAITING);
        (Self { sender }, receiver)
    }

    /// Does not wait.
    pub fn tell(&self, why_not: Option<WhyNot>) {
        if let Some(why_not) = why_not {
            let _ = self.sender.try_send(why_not);
        }
    }
}

/// Tells them one after the other, until nobody is left who could leave one.
pub async fn tell(pods: &ApiPods, placer: &Placer, mut events: mpsc::Receiver<WhyNot>) {
    let mut limit = Limit::default();
    while let Some(why_not) = events.recv().await {
        let wall = Timestamp::now();
        let Some((count, first)) = limit.passes(&why_not, placer.now(), wall) else { continue };
        let (name, event) = why_not.event(count, first, wall);
        if let Err(error) = pods.tell(&why_not.namespace, &name, &event).await {
            tracing::debug!(pod = why_not.name, %error, "an event was not told");
        }
    }
}

// === impl Limit ===

impl Limit {
    /// How often it was said and since when, if it is to be told now.
    fn passes(&mut self, why_not: &WhyNot, now: Mono, wall: Timestamp) -> Option<(i32, Timestamp)> {
        if self.pods.len() >= MOST_PODS {
            self.pods.retain(|_, last| now.since(last.told) < SAME_AGAIN);
        }
        let has_room = self.pods.len() < MOST_PODS;
        let Some(last) = self.pods.get_mut(&why_not.placement) else {
            let last = Last { message: why_not.message.clone(), told: now, first: wall, count: 1 };
            return has_room.then(|| self.pods.insert(why_not.placement, last)).map(|_| (1, wall));
        };
        last.count = last.count.saturating_add(1);
        let again = if last.message == why_not.message { SAME_AGAIN } else { AGAIN };
        if now.since(last.told) < again {
            return None;
        }
        last.told = now;
        last.message.clone_from(&why_not.message);
        Some((last.count, last.first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_model::cluster::NotHere;
    use serde_json::json;

    fn why_not(uid: &str, whys: &[NotHere]) -> WhyNot {
        let pod = json!({"metadata": {"name": "trainer", "namespace": "team", "uid": uid}});
        let mut refusals = Refusals::default();
        whys.iter().for_each(|why| refusals.add(why));
        WhyNot::new(&serde_json::from_value(pod).unwrap(), &refusals).unwrap()
    }

    fn at(seconds: u64) -> Mono {
        Mono::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn an_event_says_how_many_nodes_refused_for_what() {
        let told = why_not("u", &[NotHere::NoReport, NotHere::Reserved, NotHere::NoReport]);
        let (name, event) = told.event(3, Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH);
        assert_eq!(event.message.unwrap(), "no node takes it (3 asked): 2 no-report, 1 reserved");
        assert_eq!((event.involved_object.uid.as_deref(), event.count), (Some("u"), Some(3)));
        assert!(name.starts_with("trainer.berth-"));
    }

    #[test]
    fn an_event_of_a_pod_with_a_long_name_has_a_name_that_is_allowed() {
        let mut told = why_not("u", &[NotHere::Reserved]);
        told.name = format!("{}.{}", "a".repeat(228), "b".repeat(24));
        let (name, _) = told.event(1, Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH);
        assert!(name.len() <= 253 && !name.contains("..") && name.contains("aaa.berth-"), "{name}");
    }

    #[test]
    fn a_pod_that_is_tried_again_and_again_is_told_of_now_and_then() {
        let (mut limit, wall) = (Limit::default(), Timestamp::UNIX_EPOCH);
        let (same, other) = (why_not("u", &[NotHere::Reserved]), why_not("u", &[NotHere::NoReport]));
        assert_eq!(limit.passes(&same, at(0), wall), Some((1, wall)));
        for second in 1..300 {
            assert_eq!(limit.passes(&same, at(second), wall), None);
        }
        assert_eq!(limit.passes(&same, at(300), wall), Some((301, wall)));
        assert_eq!(limit.passes(&other, at(301), wall), None);
        assert_eq!(limit.passes(&other, at(330), wall), Some((303, wall)));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut limit = Limit::default();
        for n in 0..MOST_PODS + 10 {
            limit.passes(&why_not(&format!("u{n}"), &[NotHere::Reserved]), at(0), Timestamp::UNIX_EPOCH);
        }
        assert_eq!(limit.pods.len(), MOST_PODS);
        let later = why_not("later", &[NotHere::Reserved]);
        assert!(limit.passes(&later, at(300), Timestamp::UNIX_EPOCH).is_some());
        assert_eq!(limit.pods.len(), 1);
    }
}
