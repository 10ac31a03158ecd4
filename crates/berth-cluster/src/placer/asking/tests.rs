//! Nodes asked for minutes, by a clock that jumps to whatever happens next.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use berth_model::cluster::Engine;
use berth_model::settings::PlacerSettings;
use tokio::time::{Instant, sleep};

use super::*;
use crate::placer::testing::{fresh, id, report, wanting};
use crate::placer::{Facts, Member};

const SECOND: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
struct Nodes {
    silent: Mutex<BTreeSet<NodeId>>,
    /// Asking these fails as nothing should.
    broken: Mutex<BTreeSet<NodeId>>,
    asked: Mutex<BTreeMap<NodeId, u32>>,
    number: AtomicU64,
}

impl AskNodes for Arc<Nodes> {
    fn report<'a>(&'a self, question: &'a Question) -> Asked<'a, Told<Report>> {
        *self.asked.lock().unwrap().entry(question.node.clone()).or_default() += 1;
        Box::pin(async move {
            assert!(!self.broken.lock().unwrap().contains(&question.node), "a defect");
            sleep(Duration::from_millis(2)).await;
            if self.silent.lock().unwrap().contains(&question.node) {
                std::future::pending::<()>().await;
            }
            let number = self.number.fetch_add(1, Ordering::Relaxed) + 1;
            Ok(fresh(report(question.node.as_str(), number, 40, &[])))
        })
    }

    fn pasts<'a>(&'a self, _question: &'a Question) -> Asked<'a, Vec<Past>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

impl Nodes {
    fn asked(&self, node: &NodeId) -> u32 {
        self.asked.lock().unwrap().get(node).copied().unwrap_or_default()
    }
}

fn members(nodes: &[NodeId]) -> BTreeMap<NodeId, Member> {
    let address = Some(([10, 0, 0, 1], 7277).into());
    let member = Member { name: None, engine: Engine::Ready, address, facts: Facts::new() };
    nodes.iter().map(|node| (node.clone(), member.clone())).collect()
}

/// So many nodes, which are being asked.
fn asking(count: usize) -> (Vec<NodeId>, Arc<Nodes>, Arc<Placer>) {
    let names: Vec<NodeId> = (0..count).map(|number| id(&format!("n{number}"))).collect();
    let nodes = Arc::new(Nodes::default());
    let placer = Placer::new(&PlacerSettings::default(), Box::new(Arc::clone(&nodes)));
    placer.members(members(&names));
    tokio::spawn(Arc::clone(&placer).ask_nodes());
    (names, nodes, placer)
}

#[tokio::test(start_paused = true)]
async fn thousands_that_fall_silent_at_once_do_not_make_the_others_stale() {
    let (names, nodes, placer) = asking(3300);
    sleep(SECOND * 3).await;
    let (lost, living) = names.split_at(3000);
    nodes.silent.lock().unwrap().extend(lost.iter().cloned());
    let end = Instant::now() + SECOND * 60;
    while Instant::now() < end {
        sleep(SECOND / 2).await;
        let (book, now) = (placer.book(), placer.now());
        for node in living {
            assert_eq!(book.why_not(node, &wanting(1), now), None, "{node}, {:?} before the end", end - Instant::now());
        }
    }
    let book = placer.book();
    assert!(lost.iter().all(|node| book.why_not(node, &wanting(1), placer.now()).is_some()));
}

#[tokio::test(start_paused = true)]
async fn one_that_is_silent_is_asked_ever_more_seldom_until_something_changes() {
    let (names, nodes, placer) = asking(2);
    let (silent, other) = (&names[0], &names[1]);
    nodes.silent.lock().unwrap().insert(silent.clone());
    sleep(SECOND * 600).await;
    let asked = nodes.asked(silent);
    assert!((20..40).contains(&asked) && nodes.asked(other) > 400, "{asked}, {}", nodes.asked(other));

    // Its engine says that it is not as it was: it may be back.
    nodes.silent.lock().unwrap().clear();
    let mut changed = members(&names);
    changed.get_mut(silent).unwrap().engine = Engine::Paused;
    placer.members(changed);
    sleep(SECOND / 10).await;
    assert_eq!(nodes.asked(silent), asked + 1);
    sleep(SECOND * 10).await;
    assert!(nodes.asked(silent) > asked + 8, "as often as any other");
}

#[tokio::test(start_paused = true)]
async fn a_question_that_fails_is_asked_again() {
    let (names, nodes, placer) = asking(1);
    sleep(SECOND * 2).await;
    nodes.broken.lock().unwrap().insert(names[0].clone());
    sleep(SECOND * 20).await;
    assert!(placer.book().why_not(&names[0], &wanting(1), placer.now()).is_some());
    nodes.broken.lock().unwrap().clear();
    sleep(SECOND * 2).await;
    assert_eq!(placer.book().why_not(&names[0], &wanting(1), placer.now()), None);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_another_has_overtaken_is_an_answer() {
    let (names, _, placer) = asking(1);
    sleep(SECOND).await;
    let (node, mut book, asked) = (&names[0], placer.book(), placer.now());
    // The node has answered the second question first, and that answer comes last.
    let numbered = |number| Ok(fresh(report("n0", number, 40, &[])));
    let later = asked + SECOND;
    book.answered(node, asked, numbered(1002), later);
    assert!(!book.has_answered(node, later));
    book.answered(node, later, numbered(1001), later);
    assert!(book.has_answered(node, later));
    assert_eq!(book.ranked(&wanting(1), later).unwrap()[0].refused, None);
    // The same one twice is none.
    book.answered(node, later + SECOND, numbered(1002), later);
    assert!(!book.has_answered(node, later + SECOND));
}
