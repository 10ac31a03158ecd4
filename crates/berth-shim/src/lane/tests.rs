//! Words that are raised and lowered, and pages that the GPU knows.

use berth_proto::shim::sys::{Page, Writers};

use super::*;
use crate::sys::stop::Readers;

fn led() -> (Lane, Page<Stop>, Readers) {
    let (lane, page) = (Lane::new(), Page::<Stop>::create(c"stop", Writers::All).unwrap().0);
    lane.leads[5].put(&page);
    lane.count(Side::Leads, true);
    (lane, page, Readers::default())
}

#[test]
fn a_word_is_up_from_before_the_work_until_it_is_lowered() {
    let (lane, page, readers) = led();
    let reading = readers.enter();
    assert!(lane.raise(&reading));
    let first = page.word.load(Ordering::SeqCst);
    assert_ne!(first, 0);
    assert!(!lane.raise(&reading), "it is up already");
    assert!(lane.lower(&reading, 0));
    assert_eq!(page.word.load(Ordering::SeqCst), 0);
    lane.raise(&reading);
    assert_ne!(page.word.load(Ordering::SeqCst), first, "whoever looks rarely sees that it was down");
}

#[test]
fn a_request_that_follows_at_once_is_told_to_those_who_listen() {
    let (lane, page, readers) = led();
    let reading = readers.enter();
    lane.raise_anew(&reading);
    page.listens.store(1, Ordering::SeqCst);
    lane.raise_anew(&reading);
    assert_eq!(page.word.load(Ordering::SeqCst), 0, "it was not up");
    lane.raise(&reading);
    let first = page.word.load(Ordering::SeqCst);
    lane.raise_anew(&reading);
    let second = page.word.load(Ordering::SeqCst);
    assert!(second != first && second % 2 == 1);
    page.listens.store(0, Ordering::SeqCst);
    lane.raise_anew(&reading);
    assert_eq!(page.word.load(Ordering::SeqCst), second);
}

#[test]
fn work_that_begins_while_the_word_is_lowered_has_it_up_again() {
    let (lane, page, readers) = led();
    let reading = readers.enter();
    lane.raise(&reading);
    lane.started.fetch_add(1, Ordering::SeqCst);
    assert!(!lane.lower(&reading, 0));
    assert!(lane.is_raised());
    assert_ne!(page.word.load(Ordering::SeqCst), 0);
}

/// With a link in it, whose page must stay.
fn yields() -> (YieldSlot, Page<Stop>) {
    let (slot, page) = (YieldSlot::default(), Page::<Stop>::create(c"stop", Writers::All).unwrap().0);
    slot.stop.put(&page);
    (slot, page)
}

#[test]
fn a_page_is_registered_once_and_not_tried_again_where_that_fails() {
    let (slot, _page) = yields();
    assert_eq!(slot.address(9, || panic!("others may still map it"), || ()), None);
    slot.begin(true);
    assert_eq!(slot.address(9, || Some(0x7000), || ()), Some(0x7000));
    assert_eq!(slot.address(9, || panic!("it is known"), || ()), Some(0x7000));
    assert_eq!(slot.clear(), Some((0x7000, 9)));
    assert_eq!(slot.clear(), None, "it is not known any more");
    let (slot, _page) = yields();
    slot.begin(true);
    assert_eq!(slot.address(9, || None, || ()), None);
    assert_eq!(slot.address(9, || panic!("it was tried"), || ()), None);
}

#[test]
fn a_page_is_forgotten_with_the_context_that_knows_it_and_with_no_other() {
    let lane = Lane::new();
    let page = Page::<Stop>::create(c"stop", Writers::All).unwrap().0;
    lane.yields[2].stop.put(&page);
    lane.yields[2].begin(true);
    lane.yields[2].address(9, || Some(0x7000), || ());
    lane.forget_addresses(8);
    assert_eq!(lane.yields[2].known_address(), Some((0x7000, 9)));
    lane.forget_addresses(9);
    assert_eq!(lane.yields[2].known_address(), None);
}

#[test]
fn a_word_that_was_let_go_comes_up_again_and_one_that_nobody_wants_does_not() {
    let (lane, page, readers) = led();
    let reading = readers.enter();
    lane.raise(&reading);
    let first = page.word.swap(0, Ordering::SeqCst);
    lane.raise_again(&reading);
    let second = page.word.load(Ordering::SeqCst);
    assert!(second != 0 && second != first, "another raise");
    lane.raise_again(&reading);
    assert_eq!(page.word.load(Ordering::SeqCst), second, "it was up");
    page.word.store(0, Ordering::SeqCst);
    page.muted.store(1, Ordering::SeqCst);
    lane.raise_again(&reading);
    assert_eq!(page.word.load(Ordering::SeqCst), 0);
    lane.lower(&reading, 0);
    lane.raise(&reading);
    assert_eq!(page.word.load(Ordering::SeqCst), 0);
}

#[test]
fn a_page_whose_link_goes_while_it_is_registered_is_unregistered() {
    let ((slot, _page), unregistered) = (yields(), std::cell::Cell::new(false));
    slot.begin(true);
    let address = slot.address(
        9,
        || {
            assert_eq!(slot.clear(), None);
            Some(0x7000)
        },
        || unregistered.set(true),
    );
    assert_eq!((address, unregistered.get()), (None, true));
}

#[test]
fn a_page_whose_link_went_a_moment_before_is_not_kept_registered() {
    let ((slot, _page), unregistered) = (yields(), std::cell::Cell::new(false));
    slot.begin(true);
    // A call has seen the page, and has not asked for its address yet.
    assert_eq!(slot.clear(), None);
    assert_eq!(slot.address(9, || Some(0x7000), || unregistered.set(true)), None);
    assert_eq!((unregistered.get(), slot.known_address()), (true, None), "the next link has a page of its own");
}
