//! What the book answers.

mod law;

use std::time::Duration;

use berth_model::cluster::{Choice, Order, Strategy};
use berth_model::id::GpuUuid;

use super::super::testing::{fresh, id, members, report, wanting};
use super::*;

const SECOND: Duration = Duration::from_secs(1);
const SETTINGS: NodesSettings = NodesSettings {
    strategy: Strategy::Fit,
    order: Order::Spread,
    stale_after: Duration::from_secs(5),
    miss_window: Duration::from_secs(60),
    reservation_lasts: Duration::from_secs(30),
};

fn at(seconds: u64) -> Mono {
    Mono(0) + SECOND * u32::try_from(seconds).unwrap()
}

/// Nodes that have reported at 0, of which `n1` has 40 GiB, `n2` 50, … free.
fn book(nodes: u8) -> Book {
    let mut book = Book::new(SETTINGS, SECOND);
    book.members(members(nodes), at(0));
    for question in book.questions(usize::MAX, at(0)) {
        let number: u64 = question.node.as_str()[1..].parse().unwrap();
        book.answered(
            &question.node,
            at(0),
            Ok(fresh(report(question.node.as_str(), 1, 30 + 10 * number, &[]))),
            at(0),
        );
    }
    book
}

fn reserve(book: &mut Book, id: u64, request: &PlaceRequest, now: Mono) -> Option<String> {
    let choice = book.reserve(PlacementId(id), request, &[], now).unwrap();
    choice.map(|choice| choice.node.to_string())
}

fn placed(id: u64, node: &str, gib: u64, is_started: bool) -> Placed {
    let choice = Choice { node: node.parse().unwrap(), gpus: vec![GpuUuid(format!("GPU-{node}"))] };
    Placed { id: PlacementId(id), request: wanting(gib), choice, is_started }
}

#[test]
fn a_node_is_asked_in_its_turn_and_once_at_a_time() {
    let mut book = Book::new(SETTINGS, SECOND);
    book.members(members(3), at(0));
    assert_eq!(book.questions(2, at(0)).len(), 2, "there is room for two");
    let last = book.questions(2, at(0));
    assert_eq!(last.len(), 1);
    assert_eq!(book.questions(9, at(9)), [], "nobody has answered");
    book.answered(&last[0].node, at(0), Err("silent".into()), at(1));
    let next = book.next_question().unwrap();
    assert!((at(1) + SECOND * 9 / 10..=at(1) + SECOND * 11 / 10).contains(&next), "{next:?}");
    assert_eq!(book.questions(9, next), last);
}

#[test]
fn one_that_is_asked_out_of_turn_is_not_asked_twice_as_often_from_then_on() {
    let mut book = book(1);
    let question = book.question(&id("n1")).unwrap();
    for number in 2..9 {
        book.answered(&question.node, at(0), Ok(fresh(report("n1", number, 40, &[]))), at(0));
    }
    assert_eq!(book.questions(9, at(9)).len(), 1);
}

#[test]
fn who_leaves_the_engine_is_forgotten_and_who_does_not_answer_goes_stale() {
    let mut book = book(2);
    assert_eq!(reserve(&mut book, 1, &wanting(45), at(1)).as_deref(), Some("n2"), "n1 has 40");
    book.release(PlacementId(1));
    book.members(members(1), at(1));
    assert_eq!(reserve(&mut book, 1, &wanting(45), at(1)), None);
    assert_eq!(reserve(&mut book, 2, &wanting(1), at(1)).as_deref(), Some("n1"));
    assert_eq!(reserve(&mut book, 3, &wanting(1), at(6)), None);
    let nobody = book.place(&wanting(1), at(6)).unwrap();
    assert_eq!((nobody.candidates, nobody.refusals.0.get("stale")), (0, Some(&1)));
    book.answered(&id("n2"), at(6), Ok(fresh(report("n2", 9, 60, &[]))), at(6));
    assert_eq!(book.ranked(&wanting(1), at(6)).unwrap().len(), 1, "an answer does not make it a member");
}

#[test]
fn only_nodes_that_meet_the_constraints_are_ranked_and_the_others_are_counted() {
    let mut book = book(3);
    let request = PlaceRequest { constraints: vec!["node.labels.rack==n2".into()], ..wanting(1) };
    let answer = book.place(&request, at(1)).unwrap();
    assert_eq!((answer.candidates, answer.refusals.0.get("excluded")), (1, Some(&2)));
    assert_eq!(reserve(&mut book, 1, &request, at(1)).as_deref(), Some("n2"));
    let nodes = book.ranked(&request, at(1)).unwrap();
    let why_not: Vec<(&str, bool)> = nodes.iter().map(|node| (node.node.as_str(), node.why_not.is_some())).collect();
    assert_eq!((why_not.len(), why_not[0], &nodes[2].why_not), (3, ("n2", false), &Some(NotHere::Excluded)));
    let wrong = PlaceRequest { constraints: vec!["colour==red".into()], ..wanting(1) };
    assert!(book.place(&wrong, at(1)).is_err() && book.reserve(PlacementId(9), &wrong, &[], at(1)).is_err());
}

#[test]
fn of_two_that_want_the_last_place_one_gets_it_and_the_other_when_it_is_given_back() {
    let mut book = book(1);
    assert_eq!(reserve(&mut book, 1, &wanting(30), at(1)).as_deref(), Some("n1"));
    assert_eq!(reserve(&mut book, 2, &wanting(30), at(1)), None);
    let refused = book.nobody(&wanting(30), &[], at(1)).unwrap();
    assert_eq!((refused.choice, refused.refusals.total()), (None, 1));
    book.release(PlacementId(1));
    assert_eq!(reserve(&mut book, 2, &wanting(30), at(1)).as_deref(), Some("n1"));
}

#[test]
fn a_place_is_confirmed_by_what_the_node_said_last_and_not_by_its_own_reservation() {
    let mut book = book(1);
    assert_eq!(reserve(&mut book, 1, &wanting(30), at(1)).as_deref(), Some("n1"));
    book.answered(&id("n1"), at(2), Ok(fresh(report("n1", 2, 31, &[]))), at(2));
    assert!(book.confirm(PlacementId(1), at(2)).is_some());
    assert_eq!(reserve(&mut book, 2, &wanting(30), at(2)), None, "it is still kept");
    book.answered(&id("n1"), at(3), Ok(fresh(report("n1", 3, 29, &[]))), at(3));
    assert_eq!(book.confirm(PlacementId(1), at(3)), None);
    assert_eq!(reserve(&mut book, 3, &wanting(29), at(3)).as_deref(), Some("n1"), "it was given up");
}

#[test]
fn whoever_hangs_up_keeps_the_place_until_the_engine_has_had_time_to_tell() {
    let mut book = book(1);
    reserve(&mut book, 1, &wanting(30), at(0));
    book.placed(vec![], at(1));
    assert_eq!(book.reservations(), 1, "whoever asked is still there");
    book.hung_up(PlacementId(1), at(1));
    book.placed(vec![], at(5));
    assert_eq!(book.reservations(), 1);
    book.placed(vec![], at(12));
    assert_eq!(book.reservations(), 0);
}

#[test]
fn what_the_engine_has_is_kept_until_it_has_it_no_more() {
    let mut book = book(1);
    reserve(&mut book, 1, &wanting(30), at(0));
    book.placed(vec![placed(1, "n1", 30, false)], at(1));
    book.hung_up(PlacementId(1), at(1));
    book.placed(vec![placed(1, "n1", 30, false)], at(40));
    book.expire(at(40));
    assert_eq!(book.reservations(), 1, "it waits to be started, for however long");
    book.placed(vec![placed(1, "n1", 30, true)], at(41));
    book.expire(at(90));
    assert_eq!(book.reservations(), 1, "it runs, and has not come to the GPU yet");
    book.answered(&id("n1"), at(90), Ok(fresh(report("n1", 9, 10, &[PlacementId(1)]))), at(90));
    book.placed(vec![placed(1, "n1", 30, true)], at(90));
    assert_eq!(book.reservations(), 0, "its node tells of it");
    book.answered(&id("n1"), at(91), Ok(fresh(report("n1", 10, 40, &[]))), at(91));
    book.placed(vec![placed(1, "n1", 30, true)], at(91));
    assert_eq!(book.reservations(), 1, "it has left the GPU, and may come back");
    book.placed(vec![placed(1, "n1", 30, false)], at(91));
    assert_eq!(book.reservations(), 1, "it has ended, and is started again");
    assert_eq!(book.why_not_start(PlacementId(1), at(91)), None);
    book.placed(vec![placed(2, "n1", 30, false)], at(91));
    assert_eq!(book.reservations(), 1);
    book.placed(vec![], at(91));
    assert_eq!(book.reservations(), 0);
}

#[test]
fn after_a_restart_what_the_engine_runs_is_reserved_unless_its_node_has_seen_it() {
    let mut book = book(2);
    book.answered(&id("n2"), at(1), Ok(fresh(report("n2", 2, 20, &[PlacementId(7)]))), at(1));
    book.placed(vec![placed(6, "n1", 30, false), placed(7, "n2", 30, true)], at(1));
    assert_eq!(book.reservations(), 1);
    assert_eq!(reserve(&mut book, 8, &wanting(20), at(1)).as_deref(), Some("n2"), "n1 has 10 GiB left");
    book.answered(&id("n1"), at(2), Ok(fresh(report("n1", 2, 10, &[PlacementId(6)]))), at(2));
    assert_eq!(book.ranked(&wanting(1), at(2)).unwrap().iter().map(|node| node.reserved).sum::<u32>(), 1);
}

#[test]
fn of_several_gpus_those_are_reserved_on_which_it_was_not_seen() {
    let two = |number: u64, placed: &[PlacementId]| {
        let mut told = report("n1", number, 40, placed);
        let second = report("n1", number, 40, &[]).gpus.remove(0);
        told.gpus.push(berth_model::cluster::GpuReport { uuid: GpuUuid("GPU-b".into()), ..second });
        fresh(told)
    };
    let mut book = book(1);
    book.answered(&id("n1"), at(1), Ok(two(2, &[PlacementId(1)])), at(1));
    let mut both = placed(1, "n1", 30, true);
    both.choice.gpus.push(GpuUuid("GPU-b".into()));
    both.request.gpus = 2;
    book.placed(vec![both], at(1));
    assert_eq!(book.reservations(), 1, "it is not on the second yet");
    let wants = |gpus: u32| PlaceRequest { gpus, ..wanting(30) };
    assert!(book.place(&wants(1), at(1)).unwrap().choice.is_some(), "what it takes on the first is in the report");
    assert!(book.place(&wants(2), at(1)).unwrap().choice.is_none());
}

#[test]
fn what_this_book_did_not_place_is_judged_on_its_own_gpus_before_it_is_started() {
    let mut book = book(2);
    let why_not = |book: &mut Book, id: u64| book.why_not_start(PlacementId(id), at(1)).map(|why| why.word());
    book.placed(vec![placed(1, "n1", 30, false), placed(2, "n1", 30, false)], at(1));
    assert_eq!([why_not(&mut book, 1), why_not(&mut book, 2)], [Some("too-little-memory"); 2]);
    book.release(PlacementId(1));
    assert_eq!(why_not(&mut book, 2), None, "it is alone there by now");
    book.placed(vec![placed(2, "n1", 30, false), placed(3, "n1", 30, false)], at(1));
    assert_eq!(why_not(&mut book, 2), None, "it was there first");
    assert_eq!(why_not(&mut book, 3), Some("too-little-memory"));
    let mut lost = report("n1", 2, 40, &[]);
    lost.gpus[0].is_lost = true;
    let second = GpuUuid("GPU-b".into());
    lost.gpus.push(berth_model::cluster::GpuReport { uuid: second, ..report("n1", 2, 40, &[]).gpus.remove(0) });
    book.answered(&id("n1"), at(1), Ok(fresh(lost)), at(1));
    assert_eq!(why_not(&mut book, 2), Some("gpus-lost"), "another GPU of its node is none of its own");
}

#[test]
fn a_forged_or_older_report_changes_nothing_and_is_told() {
    let mut book = book(1);
    book.answered(&id("n1"), at(1), Err("its signature is wrong".into()), at(1));
    book.answered(&id("n1"), at(2), Ok(fresh(report("n1", 1, 80, &[]))), at(2));
    let node = &book.ranked(&wanting(1), at(2)).unwrap()[0];
    assert_eq!(node.age_seconds, Some(2.0));
    assert!(node.refused.as_ref().unwrap().contains("not newer"), "{:?}", node.refused);
    assert!(!book.has_answered(&id("n1"), at(1)));
}

#[test]
fn what_is_only_planned_is_planned_anew_and_what_stands_somewhere_is_not() {
    let mut book = book(2);
    let Placed { id: one, choice, .. } = placed(1, "n1", 30, false);
    let elsewhere = placed(1, "n2", 30, false).choice;
    book.keep(one, &wanting(30), &choice, at(0));
    book.reconsider(one);
    assert_eq!(book.reservations(), 0);
    book.keep(one, &wanting(30), &choice, at(0));
    book.stands(placed(1, "n1", 30, false), at(1));
    book.reconsider(one);
    book.keep(one, &wanting(30), &elsewhere, at(2));
    assert_eq!([book.reserved_on(&id("n1")), book.reserved_on(&id("n2"))], [1, 0]);
}

#[test]
fn what_was_bound_keeps_its_place_though_the_engine_tells_of_it_late() {
    let mut book = book(1);
    let Placed { id: one, choice, .. } = placed(1, "n1", 30, false);
    book.keep(one, &wanting(30), &choice, at(0));
    book.taken(one, at(0));
    book.forget_untold(at(29));
    assert_eq!(book.reservations(), 1);
    book.forget_untold(at(31));
    assert_eq!(book.reservations(), 0);
}

#[test]
fn what_has_left_its_gpu_and_is_started_again_is_counted_meanwhile() {
    let mut book = book(1);
    book.stands(placed(1, "n1", 30, true), at(0));
    book.reported(&id("n1"), Ok(report("n1", 2, 10, &[PlacementId(1)])), at(1));
    assert_eq!(book.reservations(), 0, "it is in the report");
    book.reported(&id("n1"), Ok(report("n1", 3, 40, &[])), at(2));
    assert_eq!(book.reservations(), 1);
    assert!(book.place(&wanting(30), at(2)).unwrap().choice.is_none());
    book.placed_are_only(&BTreeSet::new());
    assert!(book.place(&wanting(30), at(2)).unwrap().choice.is_some(), "the engine has it no more");
}

#[test]
fn what_is_told_is_as_old_as_the_node_says_it_is() {
    let mut book = book(1);
    let told = Told { what: report("n1", 2, 40, &[]), age: SECOND * 3 };
    book.answered(&id("n1"), at(10), Ok(told), at(10));
    assert!(book.has_answered(&id("n1"), at(10)));
    assert_eq!(book.ranked(&wanting(1), at(11)).unwrap()[0].age_seconds, Some(4.0));
    assert!(matches!(book.why_not(&id("n1"), &wanting(1), at(13)), Some(NotHere::Stale { .. })), "it is of 7 s");
}
