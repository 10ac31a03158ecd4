//! Laws of every list, on clusters as they come.

use proptest::prelude::{Strategy, *};

use super::*;

/// What happens to a list.
#[derive(Debug, Clone)]
enum Happens {
    Reports { node: usize, gpus: Vec<GpuReport> },
    Engine { node: usize, engine: Engine },
    Leaves { node: usize },
    Places { wanted: Wanted },
    Releases { placement: u64 },
    Passes { millis: u64 },
}

const NODES: usize = 150;

fn name(node: usize) -> NodeId {
    id(&format!("node-{node}"))
}

fn any_takes() -> impl Strategy<Value = Option<Spread>> {
    let known = (0.0..8.0f64, 0.0..3.0f64, 0.0..3.0f64).prop_map(|(median_seconds, more, most)| {
        let p90_seconds = median_seconds + more;
        Some(Spread { units: 9, median_seconds, p90_seconds, most_seconds: p90_seconds + most })
    });
    prop_oneof![4 => known, 1 => Just(None)]
}

fn any_unit() -> impl Strategy<Value = Unit> {
    prop_oneof![2 => Just(Unit::Task), 1 => Just(Unit::Burst)]
}

fn any_load() -> impl Strategy<Value = LoadReport> {
    let under_way = (-2.0..30.0f64, 0.0..6.0f64)
        .prop_map(|(due_in_seconds, done_seconds)| UnderWay { due_in_seconds, done_seconds });
    (any_unit(), 0.05..40.0f64, prop::option::weighted(0.7, under_way), any_takes())
        .prop_map(|(unit, deadline_seconds, under_way, takes)| LoadReport { unit, deadline_seconds, under_way, takes })
}

fn any_gpu() -> impl Strategy<Value = GpuReport> {
    let state =
        (prop::bool::weighted(0.05), prop::bool::weighted(0.05), prop::bool::weighted(0.05), 0u32..3, 0..=10u32);
    let past = (prop_oneof![Just(1.0), Just(0.9)], 0.0..120.0f64, prop::bool::weighted(0.2), -5.0..5.0f64);
    (prop::option::weighted(0.95, 0u64..=80), state, past, prop::collection::vec(any_load(), 0..4)).prop_map(
        |(free_gib, (is_lost, has_more, missed, others, core), (share, ago, has_missed, past_float_seconds), loads)| {
            GpuReport {
                is_lost,
                memory_used_bytes: free_gib.map(|free| gib(80 - free)),
                others,
                share,
                loads,
                has_more,
                core_pct: Percent::checked(core * 10),
                missed_by_present: missed.into(),
                misses_ago_seconds: has_missed.then_some(ago).into_iter().collect(),
                past_float_seconds,
                ..gpu(0)
            }
        },
    )
}

fn any_wanted() -> impl Strategy<Value = Wanted> {
    let deadline = prop::option::weighted(0.9, prop_oneof![0.02..1.0f64, 1.0..30.0f64, 30.0..20_000.0f64]);
    (deadline, any_unit(), prop::option::weighted(0.8, 0u64..90), 1u32..=2, any_takes(), any_takes()).prop_map(
        |(deadline, unit, memory, gpus, takes, run)| Wanted {
            deadline: deadline.and_then(|seconds| Deadline::new(Duration::from_secs_f64(seconds))),
            unit,
            memory_bytes: memory.map(gib),
            gpus,
            takes,
            run,
        },
    )
}

fn any_event() -> impl Strategy<Value = Happens> {
    let engine = prop_oneof![4 => Just(Engine::Ready), 1 => Just(Engine::Paused), 1 => Just(Engine::Drained), 1 => Just(Engine::Down)];
    prop_oneof![
        12 => (0..NODES, prop::collection::vec(any_gpu(), 0..4)).prop_map(|(node, gpus)| Happens::Reports { node, gpus }),
        2 => (0..NODES, engine).prop_map(|(node, engine)| Happens::Engine { node, engine }),
        1 => (0..NODES).prop_map(|node| Happens::Leaves { node }),
        6 => any_wanted().prop_map(|wanted| Happens::Places { wanted }),
        2 => (0..30u64).prop_map(|placement| Happens::Releases { placement }),
        2 => (0..1_500u64).prop_map(|millis| Happens::Passes { millis }),
    ]
}

fn any_settings() -> impl Strategy<Value = NodesSettings> {
    prop_oneof![2 => Just(SETTINGS), 1 => Just(PACK), 1 => Just(PAPER)]
}

/// A list to which things happened, and the time.
#[derive(Debug)]
struct World {
    list: NodeList,
    now: Mono,
    reports: u64,
    placements: u64,
}

impl World {
    fn new(settings: NodesSettings) -> Self {
        let mut list = NodeList::new(settings);
        (0..NODES).for_each(|node| list.engine(&name(node), Engine::Ready));
        Self { list, now: START, reports: 0, placements: 0 }
    }

    fn happens(&mut self, event: &Happens) {
        match event {
            Happens::Reports { node, gpus } => {
                self.reports += 1;
                // Of one that has left nobody wants to know.
                let _ = self.list.apply(report(name(*node).as_str(), self.reports, gpus.clone()), self.now);
            }
            Happens::Engine { node, engine } => self.list.engine(&name(*node), *engine),
            Happens::Leaves { node } => self.list.remove(&name(*node)),
            Happens::Places { wanted } => {
                if let Some(place) = self.list.choose(wanted, Among::All, self.now) {
                    self.placements += 1;
                    self.list.reserve(PlacementId(self.placements), wanted, &place.choice, self.now);
                }
            }
            Happens::Releases { placement } => self.list.release(PlacementId(*placement)),
            Happens::Passes { millis } => {
                self.now = self.now + Duration::from_millis(*millis);
                self.list.expire(self.now);
            }
        }
    }

    fn after(settings: NodesSettings, events: &[Happens]) -> Self {
        let mut world = Self::new(settings);
        events.iter().for_each(|event| world.happens(event));
        world
    }

    fn ranked(&self, wanted: &Wanted) -> Vec<Verdict> {
        self.list.rank(wanted, Among::All, self.now)
    }
}

fn any_events(most: usize) -> impl Strategy<Value = Vec<Happens>> {
    prop::collection::vec(any_event(), 0..most)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// The choice is found without looking at everybody; it is that of whoever does.
    #[test]
    fn a_choice_is_the_first_of_a_plain_scan(
        settings in any_settings(), events in any_events(120), asked in prop::collection::vec((any_wanted(), 0..400u64), 1..8),
    ) {
        let world = World::after(settings, &events);
        for (wanted, later) in asked {
            let now = world.now + Duration::from_millis(later);
            let first = world.list.rank(&wanted, Among::All, now).into_iter().next().and_then(|verdict| verdict.result.ok());
            prop_assert_eq!(world.list.choose(&wanted, Among::All, now), first);
        }
    }

    /// By the facts of the report, not by what the list made of them.
    #[test]
    fn a_choice_has_the_memory_the_report_and_the_engine_for_it(
        settings in any_settings(), events in any_events(80), wanted in any_wanted(),
    ) {
        let mut world = World::after(settings, &events);
        let mut on_their_way: Vec<(Choice, u64)> = Vec::new();
        let engine = |world: &World, node: &NodeId| {
            let at = world.list.places[node];
            world.list.nodes[at].as_ref().unwrap().engine
        };
        // Everything that was on its way before is let go, so that what is counted here is all there is.
        (0..=world.placements).for_each(|id| world.list.release(PlacementId(id)));
        for id in 1_000..1_020 {
            let Some(Place { choice, .. }) = world.list.choose(&wanted, Among::All, world.now) else { break };
            prop_assert_eq!(engine(&world, &choice.node), Engine::Ready);
            let (report, made) = world.list.report(&choice.node).unwrap();
            prop_assert!(world.now.since(made) <= SETTINGS.stale_after);
            prop_assert_eq!(choice.gpus.len(), wanted.gpus as usize);
            for uuid in &choice.gpus {
                let gpu = report.gpus.iter().find(|gpu| gpu.uuid == *uuid).unwrap();
                prop_assert!(!gpu.is_lost);
                let Some(wanted) = wanted.memory_bytes else { continue };
                let before = on_their_way.iter().filter(|(other, _)| other.node == choice.node && other.gpus.contains(uuid));
                let taken: u64 = before.map(|(_, bytes)| bytes).sum();
                prop_assert!(gpu.free_bytes().unwrap().0 >= taken + wanted.0);
            }
            world.list.reserve(PlacementId(id), &wanted, &choice, world.now);
            on_their_way.push((choice, wanted.memory_bytes.map_or(0, |bytes| bytes.0)));
        }
    }

    /// What is taken away is as if it had never been there.
    #[test]
    fn releasing_what_was_reserved_restores(settings in any_settings(), events in any_events(80), placed in any_wanted(), wanted in any_wanted()) {
        let mut world = World::after(settings, &events);
        let before = world.ranked(&wanted);
        if let Some(place) = world.list.choose(&placed, Among::All, world.now) {
            world.list.reserve(PlacementId(7_777), &placed, &place.choice, world.now);
            prop_assert!(world.list.reserved(&place.choice.node) > 0);
            world.list.release(PlacementId(7_777));
        }
        prop_assert_eq!(world.ranked(&wanted), before);
    }

    #[test]
    fn in_which_order_nodes_report_does_not_matter(
        settings in any_settings(), gpus in prop::collection::vec(prop::collection::vec(any_gpu(), 0..3), NODES), order in Just((0..NODES).collect::<Vec<_>>()).prop_shuffle(), wanted in any_wanted(),
    ) {
        let told = |order: &[usize]| {
            let mut world = World::new(settings);
            order.iter().for_each(|node| world.happens(&Happens::Reports { node: *node, gpus: gpus[*node].clone() }));
            (world.ranked(&wanted), world.list.choose(&wanted, Among::All, world.now))
        };
        prop_assert_eq!(told(&order), told(&(0..NODES).collect::<Vec<_>>()));
    }

    /// Each time one is placed where it is sure to fit, everybody there is still in time; so the last place is given away once.
    #[test]
    fn two_who_ask_at_once_do_not_get_the_last_place_both(events in any_events(60), wanted in any_wanted()) {
        let mut world = World::after(SETTINGS, &events);
        let Some(only) = world.list.choose(&wanted, Among::All, world.now) else { return Ok(()) };
        // Nobody else is there to be asked.
        (0..NODES).map(name).filter(|node| *node != only.choice.node).for_each(|node| world.list.remove(&node));
        for id in 1_000..1_300 {
            let Some(place) = world.list.choose(&wanted, Among::All, world.now) else { break };
            world.list.reserve(PlacementId(id), &wanted, &place.choice, world.now);
            let full = Wanted { memory_bytes: Some(Bytes(u64::MAX)), ..wanted.clone() };
            prop_assert_eq!(world.list.choose(&full, Among::All, world.now), None);
        }
        let (has_length, has_memory) = (wanted.takes.is_some_and(|takes| takes.median_seconds > 0.2), wanted.memory_bytes.is_some_and(|bytes| bytes.0 > 0));
        if has_memory || (has_length && wanted.deadline.is_some_and(|deadline| deadline.seconds() < 30.0)) {
            let last = world.list.choose(&wanted, Among::All, world.now);
            prop_assert_eq!(last, None, "a node has room for so many and not for one more");
            prop_assert_eq!(world.list.verdict(&only.choice.node, &wanted, world.now), Err(NotHere::Reserved));
        }
    }

    /// Who is refused would break something: somebody's memory, or what is known to be too much.
    #[test]
    fn reasons_are_counted_for_everybody_who_is_not_chosen(settings in any_settings(), events in any_events(80), wanted in any_wanted()) {
        let world = World::after(settings, &events);
        let ranked = world.ranked(&wanted);
        let refused = ranked.iter().filter(|verdict| verdict.result.is_err()).count();
        prop_assert_eq!(world.list.refusals(&wanted, Among::All, world.now).total() as usize, refused);
        for verdict in &ranked {
            prop_assert_eq!(&world.list.verdict(&verdict.node, &wanted, world.now), &verdict.result);
            match &verdict.result {
                Err(NotHere::TooLittleMemory { free_bytes, wanted_bytes }) => prop_assert!(free_bytes < wanted_bytes),
                Err(NotHere::WouldBeLate { due_seconds, room_seconds }) => prop_assert!(due_seconds > room_seconds),
                Err(NotHere::TooShort { needs_seconds, deadline_seconds }) => prop_assert!(needs_seconds > deadline_seconds),
                Err(NotHere::FloatTooShort { float_seconds, deadline_seconds }) => prop_assert!(float_seconds <= deadline_seconds),
                Err(NotHere::Stale { age_seconds }) => prop_assert!(*age_seconds > 5.0),
                _ => {}
            }
        }
        let scores: Vec<f64> = ranked.iter().map_while(|verdict| Some(verdict.result.as_ref().ok()?.score)).collect();
        prop_assert!(scores.is_sorted_by(|one, other| one >= other) && scores.iter().all(|score| (0.0..=1.0).contains(score)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5))]

    #[test]
    fn in_a_large_list_a_choice_is_the_first_of_a_plain_scan(
        settings in any_settings(), gpus in prop::collection::vec(any_gpu(), 60), asked in prop::collection::vec(any_wanted(), 20),
    ) {
        let mut list = NodeList::new(settings);
        for node in 0..1_500 {
            list.engine(&name(node), Engine::Ready);
            let own = (0..2).map(|gpu| gpus[(node * 7 + gpu * 13) % gpus.len()].clone()).collect();
            list.apply(report(name(node).as_str(), 1, own), START).unwrap();
        }
        for (number, wanted) in asked.iter().enumerate() {
            let first = list.rank(wanted, Among::All, START).into_iter().next().and_then(|verdict| verdict.result.ok());
            prop_assert_eq!(&list.choose(wanted, Among::All, START), &first);
            if let Some(place) = first {
                list.reserve(PlacementId(number as u64), wanted, &place.choice, START);
            }
        }
    }
}
