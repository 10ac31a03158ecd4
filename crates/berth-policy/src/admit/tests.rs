//! Laws of admission, a simulation it has to agree with, and the cases people ask about.

use proptest::prelude::*;

use super::demand::MOST_LOOKS;
use super::*;

/// Takes exactly so long.
fn exactly(seconds: f64) -> Option<Spread> {
    Spread::of([seconds])
}

/// Usually `usual`, at most `most`.
fn about(usual: f64, most: f64) -> Option<Spread> {
    Some(Spread { units: 10, median_seconds: usual, p90_seconds: most, most_seconds: most })
}

fn task(name: &str, due: f64, done: f64, takes: Option<Spread>) -> Load {
    let under_way = Some(UnderWay { due_in_seconds: due, done_seconds: done });
    Load { name: name.into(), unit: Unit::Task, deadline_seconds: 100.0, under_way, takes }
}

fn server(name: &str, deadline: f64, takes: Option<Spread>) -> Load {
    Load { name: name.into(), unit: Unit::Burst, deadline_seconds: deadline, under_way: None, takes }
}

fn newcomer(deadline: f64, takes: Option<Spread>) -> Newcomer {
    Newcomer { unit: Unit::Task, deadline_seconds: deadline, takes, run: takes }
}

fn ground(loads: Vec<Load>) -> Ground {
    Ground { gpu: GpuIndex(0), loads, share: 1.0 }
}

fn answer(loads: Vec<Load>, newcomer: &Newcomer) -> Fits {
    admit(&ground(loads), newcomer).fits
}

#[test]
fn alone_the_difference_between_run_time_and_deadline_decides() {
    assert_eq!(answer(vec![], &newcomer(9.0, exactly(8.0))), Fits::Yes);
    assert_eq!(answer(vec![], &newcomer(9.0, exactly(9.5))), Fits::No);
    assert_eq!(answer(vec![], &newcomer(9.0, about(8.0, 9.5))), Fits::Unknown, "one in ten is late");
    assert_eq!(answer(vec![], &newcomer(9.0, None)), Fits::Unknown);
    let loads_long = Newcomer { run: exactly(9.5), ..newcomer(9.0, exactly(2.0)) };
    assert_eq!(answer(vec![], &loads_long), Fits::No, "it takes longer by itself, if not on the GPU");
}

#[test]
fn who_is_due_before_goes_first_and_who_is_due_later_must_still_be_in_time() {
    let newcomer = newcomer(9.0, exactly(3.0));
    assert_eq!(answer(vec![task("early", 5.0, 1.0, exactly(7.0))], &newcomer), Fits::Yes, "6 s of it are left");
    assert_eq!(answer(vec![task("early", 5.0, 0.0, exactly(7.0))], &newcomer), Fits::No);
    assert_eq!(answer(vec![task("later", 12.0, 0.0, exactly(9.0))], &newcomer), Fits::Yes);
    let told = admit(&ground(vec![task("later", 12.0, 0.0, exactly(9.5))]), &newcomer);
    assert_eq!((told.fits, told.endangered), (Fits::No, vec!["later".to_owned()]));
    assert!(told.before.is_empty(), "{:?}", told.before);
}

#[test]
fn it_says_what_is_due_before_and_who_would_be_endangered() {
    let loads = vec![
        task("early", 5.0, 1.0, about(3.0, 5.0)),
        server("server", 2.0, exactly(0.5)),
        task("later", 12.0, 0.0, about(3.0, 5.0)),
        task("hopeless", 20.0, 0.0, exactly(90.0)),
    ];
    let told = admit(&ground(loads), &newcomer(9.0, exactly(2.0)));
    let before: Vec<_> = told.before.iter().map(|work| (work.name.as_str(), work.due_in_seconds)).collect();
    assert_eq!(before, [("server", 2.0), ("early", 5.0)]);
    assert_eq!(told.before[1].left_seconds, Some(4.0));
    assert_eq!((told.usual_seconds, told.most_seconds), (2.0 + 2.0 + 2.0, 4.0 + 2.0 + 2.0));
    assert_eq!(told.endangered, ["server", "later"], "at 12 s, where the server is due too; one is late anyway");
}

#[test]
fn what_is_not_known_is_named_and_never_makes_a_yes() {
    let loads = vec![task("strange", 50.0, 0.0, None), task("overdue", -1.0, 9.0, about(3.0, 5.0))];
    let told = admit(&ground(loads), &newcomer(9.0, exactly(2.0)));
    assert_eq!((told.fits, told.unknown), (Fits::Unknown, vec!["strange".to_owned(), "overdue".to_owned()]));
    let full = vec![task("strange", 50.0, 0.0, None), task("early", 5.0, 0.0, exactly(8.0))];
    assert_eq!(answer(full, &newcomer(9.0, exactly(2.0))), Fits::No, "what is known is too much");
}

#[test]
fn what_is_kept_for_others_is_not_given_away() {
    let newcomer = newcomer(10.0, exactly(8.5));
    assert_eq!(admit(&Ground { share: 0.9, ..ground(vec![]) }, &newcomer).fits, Fits::Yes);
    assert_eq!(admit(&Ground { share: 0.8, ..ground(vec![]) }, &newcomer).fits, Fits::No);
}

#[test]
fn servers_count_with_what_they_may_ask_for() {
    let servers = |count: usize| (0..count).map(|_| server("server", 1.0, exactly(0.2))).collect::<Vec<_>>();
    assert_eq!(answer(servers(4), &newcomer(10.0, exactly(1.9))), Fits::Yes);
    assert_eq!(answer(servers(4), &newcomer(10.0, exactly(2.1))), Fits::No);
    let server = |takes| Newcomer { unit: Unit::Burst, ..newcomer(1.0, exactly(takes)) };
    assert_eq!(answer(servers(4), &server(0.1)), Fits::Yes);
    assert_eq!(answer(servers(4), &server(0.3)), Fits::No);
}

/// Fifty servers and a batch job of an hour.
fn busy(deadline: f64, takes: f64) -> Ground {
    let servers = (0..50).map(|number| server(&format!("server-{number}"), deadline, exactly(takes)));
    Ground { share: 0.9, ..ground(servers.chain([task("batch", 3600.0, 0.0, exactly(60.0))]).collect()) }
}

fn steps(ground: &Ground, newcomer: &Newcomer) -> usize {
    demand(ground, newcomer, By::Worst).walk(newcomer.deadline_seconds, |_, _| true).1
}

#[test]
fn few_instants_are_looked_at_however_many_there_are() {
    let newcomer = newcomer(9.0, exactly(1.0));
    for deadline in [1.85, 0.001] {
        let ground = busy(deadline, deadline / 185.0);
        assert_eq!(admit(&ground, &newcomer).fits, Fits::Yes);
        assert!(steps(&ground, &newcomer) <= 20, "{}", steps(&ground, &newcomer));
    }
}

#[test]
fn what_takes_long_to_reckon_is_not_known_and_that_is_said() {
    let newcomer = newcomer(9.0, exactly(0.000_01));
    let ground = ground(vec![server("server", 0.001, exactly(0.000_999_9)), task("batch", 3600.0, 0.0, exactly(0.1))]);
    let told = admit(&ground, &newcomer);
    assert_eq!((told.fits, told.is_unreckoned), (Fits::Unknown, true));
    assert!(steps(&ground, &newcomer) * 3 <= MOST_LOOKS + 3, "{}", steps(&ground, &newcomer));
    let over = Ground { share: 0.999, ..ground.clone() };
    assert_eq!(admit(&over, &newcomer).fits, Fits::No, "it only gets worse");
    let close = admit(&busy(1.0, 0.02), &Newcomer { takes: about(1.0, 900.0), ..newcomer });
    assert!(!close.is_unreckoned, "{close:?}");
}

#[test]
fn those_who_serve_very_often_are_named_as_endangered_too() {
    let told = admit(&busy(0.001, 0.000_01), &newcomer(9.0, exactly(5.0)));
    assert_eq!((told.fits, told.endangered.len()), (Fits::No, 50));
}

/// Earliest deadline first in whole seconds until everything that can be late is over: whether somebody who is due with the newcomer or
/// later is.
fn simulated(loads: &[Load], newcomer: &Newcomer) -> bool {
    const END: u32 = 400;
    let mut jobs: Vec<(f64, f64, f64)> = Vec::new();
    let streams = loads.iter().map(|load| stream(&load.work(), None, By::Most)).chain([newcomer.stream(By::Most)]);
    for stream in streams {
        jobs.extend(stream.first.map(|(due, left)| (0.0, due, left)));
        if let Some((begins, deadline, takes)) = stream.further {
            jobs.extend(
                (0..END).map(|number| begins + f64::from(number) * deadline).map(|at| (at, at + deadline, takes)),
            );
        }
    }
    for now in (0..END).map(f64::from) {
        let is_late =
            |(_, due, left): &(f64, f64, f64)| *left > 0.0 && *due <= now && *due >= newcomer.deadline_seconds;
        if jobs.iter().any(is_late) {
            return false;
        }
        let ready = jobs.iter_mut().filter(|(at, _, left)| *at <= now && *left > 0.0);
        if let Some((_, _, left)) = ready.min_by(|one, other| one.1.total_cmp(&other.1)) {
            *left -= 1.0;
        }
    }
    true
}

fn whole(range: std::ops::Range<i32>) -> impl Strategy<Value = f64> {
    range.prop_map(f64::from)
}

fn any_task() -> impl Strategy<Value = Load> {
    (whole(-5..40), whole(0..9), whole(0..9))
        .prop_map(|(due, takes, done)| task("task", due, done.min(takes), exactly(takes)))
}

fn any_server() -> impl Strategy<Value = Load> {
    (whole(2..12), whole(0..4), prop::option::of((whole(-5..12), whole(0..4)))).prop_map(|(deadline, takes, now)| {
        Load {
            under_way: now.map(|(due, done)| UnderWay { due_in_seconds: due, done_seconds: done.min(takes) }),
            ..server("server", deadline, exactly(takes))
        }
    })
}

fn any_loads() -> impl Strategy<Value = Vec<Load>> {
    prop::collection::vec(prop_oneof![2 => any_task(), 1 => any_server()], 0..5)
}

fn any_newcomer() -> impl Strategy<Value = Newcomer> {
    let unit = prop_oneof![3 => Just(Unit::Task), 1 => Just(Unit::Burst)];
    (unit, whole(1..40), whole(1..12))
        .prop_map(|(unit, deadline, takes)| Newcomer { unit, ..newcomer(deadline, exactly(takes)) })
}

/// So little is to spare that somebody is late only after half a day: it takes nearly all the looks there are to find that.
#[test]
fn who_is_overdue_changes_nothing_where_it_takes_long_to_reckon() {
    let takes = exactly(3.532_746_380_228_200_4);
    let under_way = Some(UnderWay { due_in_seconds: 2.0, done_seconds: 0.0 });
    let server = Load { under_way, ..server("server", 5.0, takes) };
    let loads = [server, task("task", 4.0, 0.0, takes)].map(|load| load.work());
    let share = 0.706_577_204_350_366_2;
    let told = share_is_enough(loads.into_iter(), share);
    assert!(matches!(told, Err((due, room)) if due > room && room > 40_000.0), "{told:?}");
    let lost = task("lost", 0.0, 0.0, exactly(0.1)).work();
    assert_eq!(share_is_enough(loads.into_iter().chain([lost]), share), told);
}

/// Where what comes again takes the whole time but for so little, somebody may be late only after more looks than there are.
const NEARLY: f64 = 1e-3;
/// Seconds of which every instant is looked at.
const LOOKED_AT: f64 = 500.0;

/// As likely with figures that are spread, and missing.
fn any_vague_loads() -> impl Strategy<Value = Vec<Load>> {
    let takes = prop_oneof![Just(None), (0.0..5.0, 0.0..5.0).prop_map(|(usual, more)| about(usual, usual + more))];
    prop::collection::vec((any_loads(), takes), 0..4).prop_map(|some| {
        some.into_iter().flat_map(|(loads, takes)| loads.into_iter().map(move |load| Load { takes, ..load })).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// All figures are exact: it is not known only where servers fill the GPU nearly to the last second for ever.
    #[test]
    fn it_agrees_with_a_simulation(loads in any_loads(), newcomer in any_newcomer()) {
        let streams = loads.iter().map(|load| stream(&load.work(), None, By::Most)).chain([newcomer.stream(By::Most)]);
        let rate = streams.map(|stream| stream.rate()).sum::<f64>();
        match (admit(&ground(loads.clone()), &newcomer).fits, simulated(&loads, &newcomer)) {
            (Fits::Unknown, _) => prop_assert!((rate - 1.0).abs() <= NEARLY),
            (Fits::No, true) => prop_assert!(rate > 1.0, "somebody is late long after the simulation has ended"),
            (told, is_in_time) => prop_assert_eq!(told, if is_in_time { Fits::Yes } else { Fits::No }),
        }
    }

    /// By looking at every instant.
    #[test]
    fn no_instant_that_matters_is_left_out(loads in any_vague_loads(), newcomer in any_newcomer(), share in 0.1..=1.0f64) {
        let (ground, due) = (Ground { share, ..ground(loads) }, newcomer.deadline_seconds);
        let demand = super::demand(&ground, &newcomer, By::Most);
        let late = demand.streams.iter().flat_map(|stream| stream.instants(due, LOOKED_AT));
        let late = late.filter(|at| demand.is_late(demand.by(*at), *at)).reduce(f64::max);
        match demand.outcome(due) {
            Outcome::LateAt(at) if at <= LOOKED_AT && demand.rate() < share => {
                prop_assert!(late.is_some_and(|late| (late - at).abs() <= TOLERANCE), "{:?} and not {}", late, at);
            }
            Outcome::LateAt(_) => {}
            Outcome::InTime => prop_assert_eq!(late, None),
            Outcome::Unreckoned => prop_assert!((demand.rate() - share).abs() <= NEARLY),
        }
    }

    /// By looking at every instant.
    #[test]
    fn a_share_is_too_little_where_somebody_is_late_who_would_not_be_otherwise(
        loads in any_vague_loads(), share in 0.1..1.0f64, overdue in -5.0..=0.0f64, left in 0.1..9.0f64,
    ) {
        let loads: Vec<LoadReport> = loads.iter().map(Load::work).collect();
        let told = share_is_enough(loads.iter().copied(), share);
        let lost = task("lost", overdue, 0.0, exactly(left)).work();
        prop_assert_eq!(share_is_enough(loads.iter().copied().chain([lost]), share), told, "who is overdue changes nothing");
        let can_be_in_time = |stream: &Stream<'_>| stream.first.is_none_or(|(due, left)| left <= due + TOLERANCE);
        let streams = loads.iter().map(|load| stream(load, None, By::Usual));
        let streams = streams.map(|stream| if can_be_in_time(&stream) { stream } else { Stream { first: None, ..stream } });
        let demand = Demand { streams: streams.collect(), share };
        let mut instants = demand.streams.iter().flat_map(|stream| stream.instants(0.0, LOOKED_AT));
        let is_for_the_share = |at: f64| demand.is_late(demand.by(at), at) && demand.by(at) <= at + TOLERANCE;
        let is_late = instants.any(is_for_the_share);
        match told {
            Ok(()) => prop_assert!(!is_late || demand.rate() >= share - NEARLY),
            Err((due, room)) => {
                let only_gets_worse = demand.rate() > share && demand.rate() <= 1.0 + TOLERANCE;
                prop_assert!(due > room && (is_late || only_gets_worse || room > share * LOOKED_AT));
            }
        }
    }

    /// With the figures of an instant at which it is late.
    #[test]
    fn without_names_the_answer_is_the_same(loads in any_vague_loads(), newcomer in any_newcomer(), share in 0.1..=1.0f64) {
        let bare: Vec<LoadReport> = loads.iter().map(Load::work).collect();
        let told = admit(&Ground { share, ..ground(loads) }, &newcomer).fits;
        match fits_beside(bare.into_iter(), share, &newcomer) {
            Ok(fits) => prop_assert_eq!(told, fits),
            Err(Late::Alone { needs_seconds }) => prop_assert!(told == Fits::No && needs_seconds > newcomer.deadline_seconds),
            Err(Late::Together { due_seconds, room_seconds }) => prop_assert!(told == Fits::No && due_seconds > room_seconds),
        }
    }

    #[test]
    fn more_time_never_turns_a_yes_into_a_no(loads in any_vague_loads(), newcomer in any_newcomer(), more in 0.0..20.0) {
        let longer = Newcomer { deadline_seconds: newcomer.deadline_seconds + more, ..newcomer };
        if answer(loads.clone(), &newcomer) == Fits::Yes {
            let told = admit(&ground(loads), &longer);
            prop_assert!(told.fits == Fits::Yes || told.is_unreckoned);
        }
    }

    #[test]
    fn more_load_never_turns_a_no_into_a_yes(
        loads in any_vague_loads(), another in any_vague_loads(), newcomer in any_newcomer(), share in 0.1..=1.0f64,
    ) {
        let fuller = loads.iter().cloned().chain(another).collect();
        let told = |loads| admit(&Ground { share, ..ground(loads) }, &newcomer);
        if told(loads).fits == Fits::No {
            let told = told(fuller);
            prop_assert!(told.fits == Fits::No || told.is_unreckoned);
        }
    }

    #[test]
    fn less_for_those_with_deadlines_never_makes_it_fit(loads in any_vague_loads(), newcomer in any_newcomer(), share in 0.1..1.0) {
        let less = admit(&Ground { share, ..ground(loads.clone()) }, &newcomer);
        let whole = admit(&ground(loads), &newcomer);
        prop_assert!(less.fits <= whole.fits || less.is_unreckoned || whole.is_unreckoned);
    }
}
