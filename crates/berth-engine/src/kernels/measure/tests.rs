//! What windows come to, of tenants that stay and that come and go.

use super::*;

const LOOK: Duration = Duration::from_millis(10);

fn tenant(name: &str) -> TenantKey {
    TenantKey::Cgroup { path: name.into() }
}

fn slo(label: &str, value: &str) -> Slo {
    Slo::from_labels(&[(format!("berth.slo.{label}"), value.to_owned())].into()).0
}

fn busy(launches: u64) -> Stretch {
    Stretch { passed: LOOK, busy: true, may_run: true, alone: false, launches, requests: 0 }
}

/// So many looks at one that did the same in each.
fn guest(looks: u32, stretch: &Stretch, together: usize) -> Guest {
    let mut guest = Guest::default();
    (0..looks).for_each(|_| guest.tally.pass(stretch, together, LOOK));
    guest
}

/// Alone it launches ten times in a look.
fn known_alone(mut guest: Guest) -> Guest {
    (0..100).for_each(|_| guest.goals.pass(&Stretch { alone: true, ..busy(10) }));
    guest
}

fn window(guests: Vec<(&str, Guest, Slo)>, seconds: f64) -> Option<Window> {
    let slos: BTreeMap<TenantKey, Slo> = guests.iter().map(|(name, _, slo)| (tenant(name), slo.clone())).collect();
    // All were there all the time.
    let there = |(name, mut guest, _): (&str, Guest, Slo)| {
        guest.tally.there = seconds;
        (tenant(name), guest)
    };
    let guests = guests.into_iter().map(there).collect();
    let mut meter = Meter { seconds, ..Meter::default() };
    Some(meter.window(&guests, &|tenant| slos.get(tenant).cloned(), &|_| None)?.window)
}

fn ended(took_ms: u64, usual_ms: u64) -> Ended {
    let ms = Duration::from_millis;
    Ended { lane: 0, at: Mono(0), took: ms(took_ms), usual: ms(usual_ms) }
}

#[test]
fn work_is_what_it_takes_alone_and_never_more_than_the_time_it_had_some() {
    let half = known_alone(guest(200, &busy(5), 2));
    let forged = known_alone(guest(200, &busy(10_000), 2));
    let seen = window(vec![("half", half, Slo::default()), ("forged", forged, Slo::default())], 2.0).unwrap();
    assert!((seen.goodput - 1.5).abs() < 1e-6, "{seen:?}");
    assert!((seen.fairness.unwrap() - 0.9).abs() < 1e-6, "a half and a whole: {seen:?}");
    assert!((seen.slowdown.unwrap() - 1.5).abs() < 1e-6, "twice as long, and as long: {seen:?}");
    assert_eq!(seen.kept, None, "nobody has a goal");
}

#[test]
fn without_a_speed_alone_each_has_its_part_of_the_time() {
    let stopped = Stretch { may_run: false, ..busy(0) };
    let guests =
        vec![("one", guest(200, &busy(1), 1), Slo::default()), ("two", guest(200, &stopped, 1), Slo::default())];
    let seen = window(guests, 2.0).unwrap();
    assert!((seen.goodput - 1.0).abs() < 1e-6 && (seen.fairness.unwrap() - 0.5).abs() < 1e-6, "{seen:?}");
    assert_eq!(seen.slowdown, None, "nothing ended, and no speed is known");
}

#[test]
fn late_requests_miss_the_goal_and_their_work_counts_for_less() {
    let mut server = guest(200, &busy(1), 1);
    let within = Some(Duration::from_millis(10));
    (0..100).for_each(|number| server.tally.ended(&ended(if number < 60 { 4 } else { 40 }, 4), within, None));
    let seen = window(vec![("server", server, slo("latency", "p80:10ms"))], 2.0).unwrap();
    assert!((seen.kept.unwrap() - 0.75).abs() < 1e-6, "60 of 80 %: {seen:?}");
    assert!((seen.goodput - 0.75).abs() < 1e-6, "{seen:?}");
    assert!((seen.slowdown.unwrap() - 4.6).abs() < 1e-6, "{seen:?}");
}

#[test]
fn a_window_waits_for_enough_requests_but_not_for_ever() {
    let server = || ("server", guest(200, &busy(1), 1), slo("latency", "p99:10ms"));
    assert_eq!(window(vec![server()], 1.9), None, "too short");
    assert_eq!(window(vec![server()], 9.9), None, "no request has ended");
    assert_eq!(window(vec![server()], 10.0).unwrap().kept, None, "and none says anything");
}

#[test]
fn a_rate_is_missed_only_by_one_that_has_no_time_left() {
    let rate = slo("throughput", "100/s");
    let one_in_a_look = Stretch { requests: 1, ..busy(1) };
    let kept = |looks| window(vec![("server", guest(looks, &one_in_a_look, 1), rate.clone())], 4.0).unwrap().kept;
    assert_eq!((kept(400), kept(300)), (Some(1.0), Some(1.0)));
    let slow = Stretch { passed: LOOK * 2, ..one_in_a_look };
    let missed = window(vec![("server", guest(200, &slow, 1), rate.clone())], 4.0).unwrap().kept.unwrap();
    assert!((missed - 0.5).abs() < 1e-6, "{missed}");
}

/// A GPU on which tenants come and go, by looks.
#[derive(Default)]
struct Scene {
    meter: Meter,
    guests: BTreeMap<TenantKey, Guest>,
}

impl Scene {
    /// So many looks at these, of whom each has work all the time and its turns.
    fn looks(&mut self, many: u32, who: &[&str]) {
        let Self { meter, guests } = self;
        let here: Vec<TenantKey> = who.iter().map(|name| tenant(name)).collect();
        for _ in 0..many {
            guests.retain(|tenant, guest| {
                here.contains(tenant) || {
                    meter.leaves(tenant, guest);
                    false
                }
            });
            let counted = meter.pass(here.len(), true, LOOK);
            for tenant in &here {
                let come = || Guest::with(meter.comes(tenant));
                let guest = guests.entry(tenant.clone()).or_insert_with(come);
                counted.into_iter().for_each(|counted| guest.tally.pass(&busy(1), here.len(), counted));
            }
        }
    }

    fn window(&mut self) -> Option<Seen> {
        let seen = self.meter.window(&self.guests, &|_| None, &|_| Some(1.5))?;
        self.meter.restart(Mono(1));
        self.guests.values_mut().for_each(|guest| guest.tally = Tally::default());
        Some(seen)
    }
}

#[test]
fn time_counts_while_several_are_there_and_somebody_has_work() {
    let mut scene = Scene::default();
    scene.looks(500, &["one"]);
    assert_eq!((scene.meter.seconds, scene.window()), (0.0, None), "alone there is nothing to measure");
    scene.looks(201, &["one", "two"]);
    assert_eq!(scene.meter.pass(2, false, LOOK), Some(Duration::ZERO));
    let seen = scene.window().unwrap();
    assert!((seen.window.goodput - 1.0).abs() < 1e-6 && seen.counts, "its time alone is none of it: {seen:?}");
    assert_eq!((seen.tenants, seen.changing, seen.worst_finish), (2, 0.0, Some(1.5)));
}

#[test]
fn one_that_passes_by_voids_nothing_of_others_and_is_not_judged() {
    let mut scene = Scene::default();
    scene.looks(90, &["one", "two"]);
    scene.looks(30, &["one", "two", "guest"]);
    scene.looks(81, &["one", "two"]);
    let seen = scene.window().unwrap();
    assert!((seen.window.goodput - 1.0).abs() < 1e-6, "all that was done counts: {seen:?}");
    assert!((seen.window.fairness.unwrap() - 1.0).abs() < 1e-6 && seen.tenants == 2 && seen.counts, "{seen:?}");
    assert!((0.05..0.1).contains(&seen.changing), "{seen:?}");
}

#[test]
fn whoever_leaves_and_comes_back_is_the_same_and_keeps_no_window_from_closing() {
    let mut scene = Scene::default();
    for _ in 0..60 {
        scene.looks(3, &["one", "hostile", "two"]);
        scene.looks(1, &["one", "two"]);
    }
    let seen = scene.window().unwrap();
    assert!(seen.counts && seen.tenants == 3, "{seen:?}");
}

#[test]
fn where_much_is_of_those_who_pass_by_it_takes_longer_and_is_compared_with_its_like_alone() {
    let mut scene = Scene::default();
    let names: Vec<String> = (0..200).map(|number| format!("job{number}")).collect();
    let mut closed = Vec::new();
    for name in &names {
        scene.looks(20, &["one", name]);
        closed.extend(scene.window());
    }
    let counts: Vec<bool> = closed.iter().map(|seen| seen.counts).collect();
    assert_eq!(counts, [false, true, true], "{closed:?}");
    assert!(closed.iter().all(|seen| seen.seconds >= 9.9 && seen.changing > 0.4), "{closed:?}");
    scene.looks(201, &["one", "two"]);
    assert!(scene.window().unwrap().counts, "a company that stayed");
}
