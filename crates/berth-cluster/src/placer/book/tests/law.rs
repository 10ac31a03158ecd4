//! The law that nothing is given away twice: whoever comes, goes, dies or is late, containers on a GPU fit into it.
//!
//! A world beside the book: what an engine has, and what is on each GPU. It tells the book what a round of the placer and a report of a
//! node tell, and does what the book says.

use std::collections::BTreeMap;

use proptest::prelude::{prop_assert, prop_oneof, proptest};
use proptest::strategy::Strategy as _;

use super::*;

/// How far a container is, as the engine knows it; what the book believes is its own affair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// It has a place, and whoever asked for it has not had it made.
    Asked,
    /// The engine has it without a container: it is the placer's to start it.
    Made,
    /// The engine starts it, now or at any time.
    Waiting,
    /// It was over or had ended, and is about to be started: the placer has a round's time to object.
    Back,
    Running {
        is_on_gpu: bool,
    },
    /// Scaled to nothing.
    Over,
}

#[derive(Debug, Clone)]
struct Container {
    id: u64,
    node: String,
    gib: u64,
    state: State,
}

#[derive(Debug, Clone)]
enum Step {
    Ask { gib: u64 },
    HangUp { nth: usize },
    Make { nth: usize },
    Start { nth: usize },
    Arrive { nth: usize },
    Leave { nth: usize },
    End { nth: usize },
    ScaleToNone { nth: usize },
    ScaleToOne { nth: usize },
    Remove { nth: usize },
    Round,
    Report { node: u8 },
    Reports,
    Expire,
    Pass { seconds: u64 },
    RestartPlacer,
}

fn step() -> impl proptest::strategy::Strategy<Value = Step> {
    let nth = || 0usize..6;
    prop_oneof![
        6 => (15u64..40).prop_map(|gib| Step::Ask { gib }),
        1 => nth().prop_map(|nth| Step::HangUp { nth }),
        4 => nth().prop_map(|nth| Step::Make { nth }),
        4 => nth().prop_map(|nth| Step::Start { nth }),
        3 => nth().prop_map(|nth| Step::Arrive { nth }),
        1 => nth().prop_map(|nth| Step::Leave { nth }),
        2 => nth().prop_map(|nth| Step::End { nth }),
        2 => nth().prop_map(|nth| Step::ScaleToNone { nth }),
        2 => nth().prop_map(|nth| Step::ScaleToOne { nth }),
        1 => nth().prop_map(|nth| Step::Remove { nth }),
        6 => proptest::strategy::Just(Step::Round),
        4 => (1u8..4).prop_map(|node| Step::Report { node }),
        2 => proptest::strategy::Just(Step::Reports),
        1 => proptest::strategy::Just(Step::Expire),
        2 => (0u64..3).prop_map(|seconds| Step::Pass { seconds }),
        1 => (3u64..40).prop_map(|seconds| Step::Pass { seconds }),
        1 => proptest::strategy::Just(Step::RestartPlacer),
    ]
}

struct World {
    book: Book,
    containers: Vec<Container>,
    now: Mono,
    number: u64,
}

fn free(node: &str) -> u64 {
    30 + 10 * node[1..].parse::<u64>().unwrap()
}

impl World {
    fn new() -> Self {
        let mut world = Self { book: book(3), containers: vec![], now: at(0), number: 1 };
        world.reports();
        world
    }

    fn next(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Ask { gib } => {
                let id = self.next();
                if let Some(node) = reserve(&mut self.book, id, &wanting(gib), self.now) {
                    self.containers.push(Container { id, node, gib, state: State::Asked });
                }
            }
            Step::HangUp { nth } => {
                let id = self.containers.get(nth).map(|one| one.id);
                id.into_iter().for_each(|id| self.book.hung_up(PlacementId(id), self.now));
            }
            Step::Make { nth } => self.becomes(nth, |state| state == State::Asked, State::Made),
            Step::Start { nth } => {
                self.becomes(nth, |state| state == State::Waiting, State::Running { is_on_gpu: false });
            }
            Step::Arrive { nth } => self.becomes(nth, is_running, State::Running { is_on_gpu: true }),
            Step::Leave { nth } => self.becomes(nth, is_running, State::Running { is_on_gpu: false }),
            Step::End { nth } => self.becomes(nth, is_running, State::Back),
            Step::ScaleToNone { nth } => {
                self.becomes(nth, |state| is_running(state) || state == State::Waiting, State::Over);
            }
            Step::ScaleToOne { nth } => self.becomes(nth, |state| state == State::Over, State::Back),
            Step::Remove { nth } if nth < self.containers.len() => drop(self.containers.remove(nth)),
            Step::Remove { .. } => {}
            Step::Round => self.round(),
            Step::Report { node } => self.report(&format!("n{node}")),
            Step::Reports => self.reports(),
            Step::Expire => self.book.expire(self.now),
            Step::Pass { seconds } => self.now = self.now + SECOND * u32::try_from(seconds).unwrap(),
            Step::RestartPlacer => {
                self.book = book(3);
                self.reports();
                self.round();
            }
        }
    }

    /// Of those of which it is so, one.
    fn becomes(&mut self, nth: usize, is_so: impl Fn(State) -> bool, state: State) {
        let mut found: Vec<&mut Container> = self.containers.iter_mut().filter(|one| is_so(one.state)).collect();
        let count = found.len().max(1);
        found.get_mut(nth % count).into_iter().for_each(|one| one.state = state);
    }

    /// What a round of the placer does: it tells the book what the engine has, starts what was made, and moves what may not start.
    fn round(&mut self) {
        let told = |one: &Container| match one.state {
            State::Waiting | State::Back => Some(placed(one.id, &one.node, one.gib, false)),
            State::Running { .. } => Some(placed(one.id, &one.node, one.gib, true)),
            _ => None,
        };
        self.book.placed(self.containers.iter().filter_map(told).collect(), self.now);
        for nth in 0..self.containers.len() {
            let Container { id, node, gib, state } = self.containers[nth].clone();
            match state {
                State::Made => {
                    let node = node.parse().unwrap();
                    match self.book.take(PlacementId(id), &wanting(gib), &node, self.now) {
                        Ok(_) => self.starts(nth, id, node.to_string()),
                        Err(_) => self.moves(nth),
                    }
                }
                State::Waiting | State::Back => match self.book.why_not_start(PlacementId(id), self.now) {
                    None => self.containers[nth].state = State::Waiting,
                    Some(_) => self.moves(nth),
                },
                _ => {}
            }
        }
    }

    /// To another place, or to none.
    fn moves(&mut self, nth: usize) {
        let (id, gib) = (self.next(), self.containers[nth].gib);
        let found = reserve(&mut self.book, id, &wanting(gib), self.now);
        self.book.release(PlacementId(self.containers[nth].id));
        match found {
            Some(node) => self.starts(nth, id, node),
            None => self.containers[nth].state = State::Made,
        }
    }

    fn starts(&mut self, nth: usize, id: u64, node: String) {
        let gib = self.containers[nth].gib;
        self.book.stands(placed(id, &node, gib, false), self.now);
        self.containers[nth] = Container { id, node, gib, state: State::Waiting };
    }

    fn reports(&mut self) {
        ["n1", "n2", "n3"].iter().for_each(|node| self.report(node));
    }

    fn report(&mut self, node: &str) {
        let there = |one: &&Container| one.node == node && one.state == State::Running { is_on_gpu: true };
        let on_gpu: Vec<&Container> = self.containers.iter().filter(there).collect();
        let used: u64 = on_gpu.iter().map(|one| one.gib).sum();
        let ids: Vec<PlacementId> = on_gpu.iter().map(|one| PlacementId(one.id)).collect();
        let told = report(node, self.next(), free(node) - used, &ids);
        self.book.answered(&id(node), self.now, Ok(fresh(told)), self.now);
    }

    /// Of containers that run or may be started at any time.
    fn taken(&self) -> BTreeMap<&str, u64> {
        let mut taken = BTreeMap::new();
        for one in self.containers.iter().filter(|one| is_running(one.state) || one.state == State::Waiting) {
            *taken.entry(one.node.as_str()).or_insert(0) += one.gib;
        }
        taken
    }
}

fn is_running(state: State) -> bool {
    matches!(state, State::Running { .. })
}

proptest! {
    #![proptest_config(proptest::test_runner::Config::with_cases(512))]
    #[test]
    fn no_memory_is_given_away_twice(steps in proptest::collection::vec(step(), 1..120)) {
        let mut world = World::new();
        for (at, step) in steps.iter().enumerate() {
            world.take(step);
            for (node, taken) in world.taken() {
                prop_assert!(taken <= free(node), "{taken} of {} GiB on {node} after {:?}", free(node), &steps[..=at]);
            }
        }
    }
}
