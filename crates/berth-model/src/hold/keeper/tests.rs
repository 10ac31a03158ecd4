//! What the keeper does, case by case.

use super::*;
use crate::hold::{Freezer, Signal};

fn tenant() -> TenantKey {
    TenantKey::Cgroup { path: "/a".into() }
}

fn process(pid: u32) -> ProcKey {
    ProcKey { pid, start_ticks: 1 }
}

fn failure(is_passing: bool) -> StepFailure {
    StepFailure { message: "no".into(), is_passing }
}

const PERSON: By = By::Person { uid: 7 };

/// A keeper with one tenant of these processes.
fn keeper(pids: &[u32]) -> Keeper {
    let mut keeper = Keeper::default();
    keeper.meet(&tenant(), &pids.iter().copied().map(process).collect(), true, Mono(0));
    keeper
}

/// Turns, with every order succeeding, until nothing is left to do. The steps, and the changes told.
fn run(keeper: &mut Keeper, at: Mono) -> (Vec<Step>, Vec<HoldChange>) {
    let (mut steps, mut changes) = (Vec::new(), Vec::new());
    loop {
        let turn = keeper.turn(at);
        changes.extend(turn.changes);
        let [order] = turn.orders.as_slice() else { break };
        keeper.step(&order.tenant, order.step, Ok(()), at);
        steps.push(order.step);
    }
    (steps, changes)
}

fn only_order(turn: &Turn) -> Step {
    let [order] = turn.orders.as_slice() else { panic!("{:?}", turn.orders) };
    order.step
}

#[test]
fn a_gated_tenant_is_held_when_it_halts_and_both_are_told() {
    let mut keeper = keeper(&[1]);
    keeper.want(&tenant(), Want::Gated, By::Policy, "b computes", Mono(1)).unwrap();
    assert_eq!(run(&mut keeper, Mono(1)), (vec![Step::Gate(process(1))], vec![]));
    assert_eq!(keeper.view(&tenant(), Mono(2)).unwrap().stage, Stage::Armed);

    keeper.halted(&tenant(), process(1), Mono(5));
    assert_eq!(keeper.view(&tenant(), Mono(5)).unwrap().stage, Stage::Held);
    let (steps, changes) = run(&mut keeper, Mono(6));
    assert_eq!(steps, [Step::Freeze(Freezer::Cgroup), Step::Continue(process(1))]);
    let reason = "b computes".to_owned();
    let held = HoldChange::Held { tenant: tenant(), means: Means::Gate, by: By::Policy, reason, at: Mono(6) };
    assert_eq!(changes, [held]);

    keeper.want(&tenant(), Want::Free, By::Policy, "its turn", Mono(15)).unwrap();
    let (steps, changes) = run(&mut keeper, Mono(15));
    assert_eq!(steps, [Step::Ungate(process(1)), Step::Thaw(Freezer::Cgroup)]);
    let reason = "its turn".to_owned();
    assert_eq!(changes, [HoldChange::Released { tenant: tenant(), by: By::Policy, reason, at: Mono(15) }]);
    assert_eq!(keeper.task_ended(&tenant(), Mono(99)), Duration::from_nanos(10));
}

#[test]
fn every_order_is_noted_in_the_same_turn_and_the_note_goes_when_nothing_is_held() {
    let mut keeper = keeper(&[1]);
    keeper.want(&tenant(), Want::Gated, By::Policy, "r", Mono(1)).unwrap();
    let turn = keeper.turn(Mono(1));
    let [(_, Some(note))] = turn.notes.as_slice() else { panic!("{turn:?}") };
    assert!(note.grip.gated.contains(&process(1)) && note.reason == "r" && note.want == Want::Gated);
    keeper.step(&tenant(), only_order(&turn), Ok(()), Mono(2));

    keeper.want(&tenant(), Want::Free, By::Policy, "s", Mono(3)).unwrap();
    let turn = keeper.turn(Mono(3));
    assert!(matches!(turn.notes.as_slice(), [(_, Some(_))]), "still held until it is known to be undone");
    keeper.step(&tenant(), only_order(&turn), Ok(()), Mono(4));
    assert_eq!(keeper.turn(Mono(4)).notes, [(tenant(), None)]);
}

#[test]
fn a_newcomer_of_a_gated_tenant_is_gated_too() {
    let mut keeper = keeper(&[1]);
    keeper.want(&tenant(), Want::Gated, By::Policy, "", Mono(1)).unwrap();
    run(&mut keeper, Mono(1));
    keeper.meet(&tenant(), &[process(1), process(2)].into(), true, Mono(2));
    assert_eq!(run(&mut keeper, Mono(2)).0, [Step::Gate(process(2))]);
}

#[test]
fn a_passing_failure_is_tried_again_after_growing_pauses_and_then_the_hold_is_undone() {
    let mut keeper = keeper(&[1]);
    keeper.want(&tenant(), Want::Locked, By::Policy, "", Mono(0)).unwrap();
    let (mut now, mut pauses) = (Mono(0), Vec::new());
    loop {
        let step = only_order(&keeper.turn(now));
        if step.sets_free() {
            break;
        }
        keeper.step(&tenant(), step, Err(failure(true)), now);
        match keeper.turn(now).again_at {
            Some(at) => {
                pauses.push(at.since(now).as_millis());
                now = at;
            }
            None => break,
        }
    }
    assert_eq!(pauses, [5, 10, 20, 40]);
    let until = now + Duration::from_secs(30);
    assert_eq!(keeper.view(&tenant(), now).unwrap().left_alone_until, Some(until));
    assert_eq!(
        keeper.want(&tenant(), Want::Locked, By::Policy, "", now),
        Err(Refused::FailedLately { until }),
        "a policy leaves it alone"
    );
    assert_eq!(keeper.want(&tenant(), Want::Locked, PERSON, "", now), Ok(()), "a person need not");
}

#[test]
fn a_hold_that_fails_is_undone_since_it_may_have_happened() {
    let mut keeper = keeper(&[1]);
    keeper.want(&tenant(), Want::Locked, By::Policy, "", Mono(0)).unwrap();
    let step = only_order(&keeper.turn(Mono(0)));
    keeper.step(&tenant(), step, Err(failure(false)), Mono(1));
    let (steps, changes) = run(&mut keeper, Mono(1));
    assert_eq!(steps, [Step::Unlock(process(1))]);
    let told = HoldChange::HoldFailed { tenant: tenant(), wanted: Want::Locked, message: "no".into(), at: Mono(1) };
    assert_eq!(changes, [told]);
}

#[test]
fn one_process_that_cannot_be_set_free_does_not_keep_the_others() {
    let mut keeper = keeper(&[1, 2]);
    keeper.want(&tenant(), Want::Locked, By::Policy, "", Mono(0)).unwrap();
    run(&mut keeper, Mono(0));
    keeper.want(&tenant(), Want::Free, By::Policy, "", Mono(1)).unwrap();
    assert_eq!(only_order(&keeper.turn(Mono(1))), Step::Unlock(process(1)));
    keeper.step(&tenant(), Step::Unlock(process(1)), Err(failure(false)), Mono(2));
    assert_eq!(only_order(&keeper.turn(Mono(2))), Step::Unlock(process(2)));
    keeper.step(&tenant(), Step::Unlock(process(2)), Ok(()), Mono(3));
    let again = keeper.turn(Mono(3)).again_at.expect("the first is not given up");
    assert_eq!(only_order(&keeper.turn(again)), Step::Unlock(process(1)));
}

#[test]
fn a_person_s_word_beats_the_policy_s_until_the_task_ends() {
    let mut keeper = keeper(&[1]);
    keeper.want(&tenant(), Want::Gated, By::Policy, "", Mono(0)).unwrap();
    keeper.want(&tenant(), Want::Free, PERSON, "I need it", Mono(1)).unwrap();
    let refused = keeper.want(&tenant(), Want::Gated, By::Policy, "", Mono(2));
    assert_eq!(refused, Err(Refused::PersonDecided { uid: 7 }));
    keeper.task_ended(&tenant(), Mono(3));
    assert_eq!(keeper.want(&tenant(), Want::Gated, By::Policy, "", Mono(4)), Ok(()));
}

#[test]
fn what_a_person_unpauses_is_theirs_and_its_gate_is_taken_away() {
    let mut keeper = keeper(&[1]);
    keeper.pause_after(&tenant(), Some(Duration::ZERO), None);
    keeper.want(&tenant(), Want::Gated, By::Policy, "", Mono(0)).unwrap();
    run(&mut keeper, Mono(0));
    keeper.halted(&tenant(), process(1), Mono(1));
    assert_eq!(run(&mut keeper, Mono(1)).0.last(), Some(&Step::HandOver));
    keeper.engine_told(&tenant(), false, 7, Mono(2));
    assert_eq!(run(&mut keeper, Mono(2)).0, [Step::Ungate(process(1))]);
    let refused = keeper.want(&tenant(), Want::Gated, By::Policy, "", Mono(3));
    assert_eq!(refused, Err(Refused::PersonDecided { uid: 7 }));
}

/// The engine tells of what we had it do as of anything else, while we do it and for a while after.
#[test]
fn our_own_pauses_are_nobody_s_word_however_late_they_are_told() {
    let mut keeper = keeper(&[1]);
    let docker = Want::Frozen(Freezer::Docker);
    keeper.want(&tenant(), docker, PERSON, "", Mono(0)).unwrap();
    assert_eq!(only_order(&keeper.turn(Mono(0))), Step::Freeze(Freezer::Docker));
    keeper.engine_told(&tenant(), true, 0, Mono(1));
    keeper.step(&tenant(), Step::Freeze(Freezer::Docker), Ok(()), Mono(2));
    assert_eq!(keeper.view(&tenant(), Mono(2)).unwrap().stage, Stage::Held);

    keeper.want(&tenant(), Want::Locked, PERSON, "", Mono(3)).unwrap();
    assert_eq!(only_order(&keeper.turn(Mono(3))), Step::Thaw(Freezer::Docker));
    keeper.engine_told(&tenant(), false, 0, Mono(4));
    keeper.step(&tenant(), Step::Thaw(Freezer::Docker), Ok(()), Mono(5));
    for (paused, at) in [(true, 1), (false, 4), (true, 1)] {
        keeper.engine_told(&tenant(), paused, 0, Mono(at));
    }
    let view = keeper.view(&tenant(), Mono(6)).unwrap();
    assert_eq!((view.want, view.by, view.is_frozen_by_others), (Want::Locked, PERSON, false));
    keeper.engine_told(&tenant(), true, 0, Mono(7));
    assert!(keeper.view(&tenant(), Mono(7)).unwrap().is_frozen_by_others, "what comes after is somebody's");
}

#[test]
fn what_a_person_paused_is_continued_within_and_never_thawed() {
    let mut keeper = keeper(&[1]);
    keeper.want(&tenant(), Want::Gated, By::Policy, "", Mono(0)).unwrap();
    run(&mut keeper, Mono(0));
    keeper.halted(&tenant(), process(1), Mono(1));
    keeper.engine_told(&tenant(), true, 7, Mono(1));
    assert_eq!(run(&mut keeper, Mono(1)).0, [Step::Ungate(process(1)), Step::Continue(process(1))]);
    assert_eq!(keeper.want(&tenant(), Want::Gated, By::Policy, "", Mono(2)), Err(Refused::FrozenByOthers));
    keeper.engine_told(&tenant(), false, 7, Mono(3));
    assert_eq!(keeper.want(&tenant(), Want::Gated, By::Policy, "", Mono(4)), Ok(()), "it was never berth's to lose");
}

const PAUSE_AFTER: Duration = Duration::from_secs(10);

/// Frozen by the cgroup at a launch, and to be paused by its engine after a while.
fn held_at_a_launch() -> Keeper {
    let mut keeper = keeper(&[1]);
    keeper.pause_after(&tenant(), Some(PAUSE_AFTER), None);
    keeper.want(&tenant(), Want::Gated, By::Policy, "", Mono(0)).unwrap();
    run(&mut keeper, Mono(0));
    keeper.halted(&tenant(), process(1), Mono(0));
    run(&mut keeper, Mono(0));
    keeper
}

#[test]
fn a_hold_that_lasts_is_handed_over_to_the_engine_and_is_one_hold_throughout() {
    let mut keeper = held_at_a_launch();
    let due = Mono(0) + PAUSE_AFTER;
    let early = keeper.turn(Mono(1));
    assert_eq!((early.orders.len(), early.again_at), (0, Some(due)), "it asks to be woken for it");

    let turn = keeper.turn(due);
    assert_eq!(only_order(&turn), Step::HandOver);
    let [(_, Some(note))] = turn.notes.as_slice() else { panic!("{turn:?}") };
    assert!(note.grip.frozen == Some(Freezer::Docker) && note.grip.sheltered, "whatever a crash leaves is on record");
    let view = keeper.view(&tenant(), due).unwrap();
    assert_eq!((view.stage, view.held_since), (Stage::Held, Some(Mono(0))), "held meanwhile");
    keeper.step(&tenant(), Step::HandOver, Ok(()), due);
    assert_eq!(run(&mut keeper, due), (vec![], vec![]), "nothing to tell, and nothing more to do");
    assert_eq!(keeper.note(&tenant()).unwrap().grip.frozen, Some(Freezer::Docker));

    keeper.want(&tenant(), Want::Free, By::Policy, "its turn", due).unwrap();
    assert_eq!(run(&mut keeper, due).0, [Step::Ungate(process(1)), Step::Thaw(Freezer::Docker)]);
}

#[test]
fn an_engine_that_cannot_take_over_costs_nobody_the_hold_and_is_asked_again_later() {
    let mut keeper = held_at_a_launch();
    let due = Mono(0) + PAUSE_AFTER;
    assert_eq!(only_order(&keeper.turn(due)), Step::HandOver);
    keeper.step(&tenant(), Step::HandOver, Err(failure(false)), due);
    let turn = keeper.turn(due);
    let later = due + Patience::default().leave_alone;
    assert_eq!((&turn.orders, &turn.changes, turn.again_at), (&vec![], &vec![], Some(later)));
    assert_eq!(keeper.view(&tenant(), due).unwrap().stage, Stage::Held);
    assert_eq!(only_order(&keeper.turn(later)), Step::HandOver);

    keeper.step(&tenant(), Step::HandOver, Err(failure(false)), later);
    keeper.want(&tenant(), Want::Free, By::Policy, "", later).unwrap();
    let way = [Step::Ungate(process(1)), Step::Unshelter, Step::Thaw(Freezer::Docker)];
    assert_eq!(run(&mut keeper, later).0, way, "it may have got anywhere");
}

const GRACE: Duration = Duration::from_secs(30);

fn sent(signal: Signal) -> Sent {
    Sent { signal: Some(signal), kills_after: None }
}

#[test]
fn whom_someone_sends_a_signal_is_let_go_to_take_it_and_left_alone_for_as_long_as_an_end_takes() {
    let mut keeper = held_at_a_launch();
    keeper.signalled(&tenant(), sent(Signal::HUP), 0, Mono(1));
    assert_eq!(run(&mut keeper, Mono(1)).0, [Step::Ungate(process(1)), Step::Thaw(Freezer::Cgroup)]);
    let refused = keeper.want(&tenant(), Want::Gated, By::Policy, "", Mono(2));
    assert_eq!(refused, Err(Refused::PersonDecided { uid: 0 }));
    let until = Mono(1) + GRACE;
    assert_eq!(keeper.turn(Mono(2)).again_at, Some(until), "it asks to be woken for it");
    let view = keeper.view(&tenant(), Mono(2)).unwrap();
    assert_eq!((view.left_alone_until, view.reason.as_str()), (Some(until), "someone sent it SIGHUP"));
    assert_eq!(keeper.turn(until).again_at, Some(until), "the policy is to be asked");
    assert_eq!(keeper.want(&tenant(), Want::Gated, By::Policy, "", until), Ok(()), "and decides again");
}

#[test]
fn a_signal_to_processes_of_an_earlier_task_is_none_to_these() {
    let mut keeper = held_at_a_launch();
    keeper.task_ended(&tenant(), Mono(3));
    keeper.signalled(&tenant(), sent(Signal::TERM), 0, Mono(2));
    assert_eq!(keeper.want(&tenant(), Want::Gated, By::Policy, "", Mono(4)), Ok(()));
}

#[test]
fn a_signal_that_can_wait_lets_nobody_go_unless_its_engine_stops_it_by_that() {
    let mut keeper = held_at_a_launch();
    for signal in [Signal::WINCH, Signal::CONT] {
        keeper.signalled(&tenant(), sent(signal), 0, Mono(1));
        assert_eq!(run(&mut keeper, Mono(1)).0, [], "{signal}");
    }
    let stop = Sent { signal: Some(Signal::WINCH), kills_after: Some(Duration::from_secs(10)) };
    keeper.signalled(&tenant(), stop, 0, Mono(2));
    assert_eq!(run(&mut keeper, Mono(2)).0.last(), Some(&Step::Thaw(Freezer::Cgroup)));
}

#[test]
fn one_that_runs_is_left_alone_to_end_and_takes_any_other_signal_as_it_goes() {
    let mut keeper = keeper(&[1]);
    keeper.signalled(&tenant(), sent(Signal::USR1), 0, Mono(1));
    assert_eq!(keeper.want(&tenant(), Want::Gated, By::Policy, "", Mono(2)), Ok(()));
    keeper.signalled(&tenant(), sent(Signal::TERM), 0, Mono(3));
    assert_eq!(keeper.view(&tenant(), Mono(3)).unwrap().want, Want::Free);
    assert!(keeper.want(&tenant(), Want::Gated, By::Policy, "", Mono(4)).is_err());
}

#[test]
fn a_person_s_hold_that_a_signal_interrupts_is_taken_up_again() {
    let mut keeper = keeper(&[1]);
    keeper.want(&tenant(), Want::Frozen(Freezer::Cgroup), PERSON, "I said so", Mono(0)).unwrap();
    run(&mut keeper, Mono(0));
    for at in [1, 2] {
        keeper.signalled(&tenant(), sent(Signal::USR1), 0, Mono(at));
        run(&mut keeper, Mono(at));
    }
    let (steps, _) = run(&mut keeper, Mono(1) + GRACE);
    assert_eq!(steps, [Step::Freeze(Freezer::Cgroup)]);
    let view = keeper.view(&tenant(), Mono(1) + GRACE).unwrap();
    assert_eq!((view.by, view.reason.as_str()), (PERSON, "I said so"));
}

#[test]
fn who_must_be_seen_alive_is_let_go_for_a_breath_and_held_again_after_it_by_whoever_held_it() {
    const BREATH: Duration = Duration::from_secs(11);
    let mut keeper = keeper(&[1]);
    keeper.want(&tenant(), Want::Frozen(Freezer::Cgroup), PERSON, "I said so", Mono(0)).unwrap();
    run(&mut keeper, Mono(0));
    keeper.breathe(&tenant(), BREATH, Mono(1));
    assert_eq!(run(&mut keeper, Mono(1)).0, [Step::Thaw(Freezer::Cgroup)]);
    keeper.breathe(&tenant(), BREATH, Mono(5));
    assert_eq!(keeper.turn(Mono(5)).again_at, Some(Mono(1) + BREATH), "a breath under way is not a longer one");
    let (steps, _) = run(&mut keeper, Mono(1) + BREATH);
    assert_eq!(steps, [Step::Freeze(Freezer::Cgroup)]);
    assert_eq!(keeper.view(&tenant(), Mono(1) + BREATH).unwrap().by, PERSON);
}

/// Held by the engine's pause, where owners may not exempt.
fn paused_strictly() -> Keeper {
    let mut keeper = Keeper::default().with_leaves(Leaves { owners_exempt: false, ..Leaves::default() });
    keeper.meet(&tenant(), &[process(1)].into(), true, Mono(0));
    keeper.want(&tenant(), Want::Frozen(Freezer::Docker), By::Policy, "", Mono(0)).unwrap();
    run(&mut keeper, Mono(0));
    keeper
}

#[test]
fn an_unpause_counts_for_a_grace_where_owners_may_not_exempt() {
    let mut keeper = paused_strictly();
    keeper.engine_told(&tenant(), false, 0, Mono(2));
    assert_eq!(keeper.view(&tenant(), Mono(2)).unwrap().left_alone_until, Some(Mono(2) + GRACE));
    keeper.turn(Mono(2) + GRACE);
    assert_eq!(keeper.want(&tenant(), Want::Gated, By::Policy, "", Mono(2) + GRACE), Ok(()));
}

/// An engine lets a paused container go on to take a signal, and tells of that as of any unpause.
#[test]
fn an_unpause_that_comes_with_a_signal_counts_as_the_signal_though_it_could_wait() {
    let mut keeper = keeper(&[1]);
    keeper.want(&tenant(), Want::Frozen(Freezer::Docker), By::Policy, "", Mono(0)).unwrap();
    run(&mut keeper, Mono(0));
    keeper.signalled(&tenant(), sent(Signal::WINCH), 0, Mono(2));
    assert_eq!(run(&mut keeper, Mono(2)).0, [], "it can wait");
    keeper.engine_told(&tenant(), false, 0, Mono(3));
    let view = keeper.view(&tenant(), Mono(3)).unwrap();
    assert_eq!((view.want, view.left_alone_until), (Want::Free, Some(Mono(3) + GRACE)), "though owners may exempt");
}

#[test]
fn who_is_unpaused_again_and_again_is_held_again_in_the_end_and_told_so() {
    let mut keeper = paused_strictly();
    let mut now = Mono(1);
    let mut told = String::new();
    for _ in 0..10 {
        now = now + Duration::from_secs(1);
        keeper.engine_told(&tenant(), false, 0, now);
        let view = keeper.view(&tenant(), now).unwrap();
        let Some(until) = view.left_alone_until else { break };
        told = view.reason;
        now = until;
        keeper.turn(now);
        keeper.want(&tenant(), Want::Frozen(Freezer::Docker), By::Policy, "", now).unwrap();
        run(&mut keeper, now);
    }
    assert!(told.starts_with("someone unpaused it, and has so often"), "{told}");
    assert_eq!(run(&mut keeper, now).0, [Step::Freeze(Freezer::Docker)], "at once");
    assert!(now.since(Mono(0)) < Duration::from_secs(150), "three graces and what little was paid back");
}

#[test]
fn with_its_last_process_a_hold_ends_and_the_cgroup_is_thawed_for_whoever_clears_it_away() {
    let mut keeper = held_at_a_launch();
    keeper.exited(process(1), Mono(1));
    assert_eq!(run(&mut keeper, Mono(1)).0, [Step::Thaw(Freezer::Cgroup)]);
}

#[test]
fn a_hold_that_is_impossible_here_is_told_and_dropped() {
    let mut keeper = Keeper::default();
    keeper.meet(&tenant(), &[process(1)].into(), false, Mono(0));
    keeper.want(&tenant(), Want::Frozen(Freezer::Cgroup), By::Policy, "", Mono(0)).unwrap();
    let turn = keeper.turn(Mono(1));
    assert!(turn.orders.is_empty());
    assert!(matches!(turn.changes.as_slice(), [HoldChange::HoldFailed { wanted: Want::Frozen(_), .. }]), "{turn:?}");
    assert_eq!(keeper.view(&tenant(), Mono(1)).unwrap().stage, Stage::Free);
}

#[test]
fn a_stop_nobody_asked_for_is_undone() {
    let mut keeper = Keeper::default();
    keeper.halted(&tenant(), process(1), Mono(0));
    assert_eq!(run(&mut keeper, Mono(0)).0, [Step::Continue(process(1))]);
}

#[test]
fn a_tenant_that_is_gone_leaves_nothing_even_with_a_step_in_flight() {
    let mut keeper = keeper(&[1]);
    keeper.want(&tenant(), Want::Frozen(Freezer::Docker), By::Policy, "", Mono(0)).unwrap();
    let step = only_order(&keeper.turn(Mono(0)));
    keeper.gone(&tenant(), Mono(1));
    assert_eq!(keeper.turn(Mono(1)).notes, [(tenant(), None)]);
    keeper.step(&tenant(), step, Ok(()), Mono(2));
    assert_eq!(keeper.turn(Mono(2)), Turn::default());
    assert_eq!(keeper.view(&tenant(), Mono(2)), None);
}

#[test]
fn what_an_earlier_daemon_left_is_undone() {
    let mut keeper = Keeper::default();
    let grip = Grip { frozen: Some(Freezer::Docker), locked: [process(3)].into(), ..Grip::default() };
    let note = Note { grip, want: Want::Free, by: By::Policy, reason: "after a crash".into(), since: Mono(0) };
    keeper.adopt(&tenant(), note, true, Mono(1));
    assert_eq!(run(&mut keeper, Mono(1)).0, [Step::Thaw(Freezer::Docker), Step::Unlock(process(3))]);
    assert_eq!(keeper.view(&tenant(), Mono(2)), None, "forgotten when undone");
}

#[test]
fn of_what_an_earlier_daemon_left_and_is_over_only_the_note_is_removed() {
    let mut keeper = Keeper::default();
    let reason = String::new();
    let note = Note { grip: Grip::default(), want: Want::Gated, by: By::Policy, reason, since: Mono(0) };
    keeper.adopt(&tenant(), Note { want: Want::Free, ..note }, true, Mono(1));
    let turn = keeper.turn(Mono(1));
    assert_eq!((turn.notes, turn.orders), (vec![(tenant(), None)], vec![]));
    assert_eq!(keeper.view(&tenant(), Mono(1)), None);
}

#[test]
fn what_cannot_be_undone_for_long_is_told_once_and_goes_on_being_tried() {
    let mut keeper = Keeper::default();
    let grip = Grip { locked: [process(3)].into(), parked: [process(3)].into(), ..Grip::default() };
    let note = Note { grip, want: Want::Free, by: By::Policy, reason: "after a crash".into(), since: Mono(0) };
    keeper.adopt(&tenant(), note, true, Mono(1));
    let (mut tried, mut told) = (0, 0);
    for second in 1..600 {
        let at = Mono(second * 1_000_000_000);
        let turn = keeper.turn(at);
        told += turn.changes.len();
        for order in turn.orders {
            // Somebody else has the memory it needs.
            keeper.step(&order.tenant, order.step, Err(failure(true)), at);
            tried += 1;
        }
    }
    assert!(tried > 100 && told == 1, "tried {tried} times, told {told} times");
    let again_at = keeper.turn(Mono(900_000_000_000)).again_at.expect("it is tried again");
    assert_eq!(run(&mut keeper, again_at).0, [Step::Restore(process(3)), Step::Unlock(process(3))]);
}
