//! Who may have how much, look by look.

use proptest::prelude::*;

use super::*;

const GIB: u64 = 1 << 30;

fn tenant(name: &str) -> TenantKey {
    TenantKey::Cgroup { path: name.into() }
}

fn holder(came: u64, has: u64, reserves: u64) -> Holder {
    Holder { came, pids: BTreeSet::new(), has: has * GIB, is_seen: true, cap: None, reserves: reserves * GIB }
}

fn seen(at: u64, free: u64) -> Seen {
    Seen { at: Mono(at), free: free * GIB, by_pid: BTreeMap::new() }
}

fn memory(free: u64, holders: &BTreeMap<TenantKey, Holder>) -> Memory {
    let mut memory = Memory::default();
    memory.look(holders, Mono(1));
    memory.see(seen(2, free));
    memory.look(holders, Mono(3));
    memory
}

fn limit(memory: &Memory, name: &str) -> Option<u64> {
    memory.room(&tenant(name)).limit.map(|bytes| bytes / GIB)
}

#[test]
fn others_leave_free_what_is_reserved_and_whoever_has_reserved_it_is_bound_by_nothing() {
    let mut holders = BTreeMap::from([(tenant("server"), holder(1, 2, 10)), (tenant("trainer"), holder(2, 30, 0))]);
    let mut memory = memory(40, &holders);
    assert_eq!((limit(&memory, "server"), limit(&memory, "trainer")), (None, Some(62)), "30, and 40 without 8");
    let room = memory.room(&tenant("server"));
    assert_eq!((room.kept, room.missing), (Some(8 * GIB), Some(0)));
    // It takes five of its eight: what others may take stays the same.
    holders.get_mut(&tenant("server")).unwrap().has = 7 * GIB;
    memory.look(&holders, Mono(4));
    assert_eq!(limit(&memory, "trainer"), Some(62));
    assert_eq!(memory.room(&tenant("server")).kept, Some(3 * GIB));
    // Beyond them it takes what others might have had.
    holders.get_mut(&tenant("server")).unwrap().has = 15 * GIB;
    memory.look(&holders, Mono(5));
    assert_eq!(limit(&memory, "trainer"), Some(57));
    memory.see(seen(6, 27));
    memory.look(&holders, Mono(7));
    assert_eq!(limit(&memory, "trainer"), None, "nothing is lacked any more");
}

#[test]
fn what_one_gives_back_it_may_have_again_and_others_by_the_driver_s_word() {
    let mut holders = BTreeMap::from([
        (tenant("server"), holder(1, 0, 10)),
        (tenant("a"), holder(2, 30, 0)),
        (tenant("b"), holder(3, 5, 0)),
    ]);
    let mut memory = memory(20, &holders);
    assert_eq!((limit(&memory, "a"), limit(&memory, "b")), (Some(40), Some(15)));
    holders.get_mut(&tenant("a")).unwrap().has = 0;
    memory.look(&holders, Mono(4));
    assert_eq!((limit(&memory, "a"), limit(&memory, "b")), (Some(40), Some(15)));
    memory.see(seen(5, 50));
    memory.look(&holders, Mono(6));
    assert_eq!((limit(&memory, "a"), limit(&memory, "b")), (Some(40), Some(45)));
}

#[test]
fn where_more_is_reserved_than_there_is_whoever_came_first_has_its_own_and_the_rest_is_missing() {
    let holders = BTreeMap::from([
        (tenant("late"), holder(9, 0, 8)),
        (tenant("early"), holder(4, 0, 8)),
        (tenant("other"), holder(1, 3, 0)),
    ]);
    let memory = memory(10, &holders);
    let told = |name| (memory.room(&tenant(name)).kept, memory.room(&tenant(name)).missing);
    assert_eq!(told("early"), (Some(8 * GIB), Some(0)));
    assert_eq!(told("late"), (Some(2 * GIB), Some(6 * GIB)));
    assert_eq!(told("other"), (None, None));
    assert_eq!((limit(&memory, "early"), limit(&memory, "late"), limit(&memory, "other")), (Some(8), Some(2), Some(3)));
}

#[test]
fn without_a_reservation_or_a_word_of_the_driver_s_only_own_limits_count() {
    let mut holders =
        BTreeMap::from([(tenant("a"), holder(1, 3, 0)), (tenant("b"), Holder { cap: Some(GIB), ..holder(2, 3, 0) })]);
    assert_eq!((limit(&memory(1, &holders), "a"), limit(&memory(1, &holders), "b")), (None, Some(1)));
    holders.get_mut(&tenant("a")).unwrap().reserves = GIB;
    let mut unseen = Memory::default();
    unseen.look(&holders, Mono(1));
    assert_eq!((limit(&unseen, "b"), unseen.room(&tenant("a")).kept), (Some(1), None));
}

#[test]
fn what_was_taken_after_the_driver_looked_and_before_its_word_came_counts() {
    let mut holders = BTreeMap::from([
        (tenant("server"), holder(1, 0, 4)),
        (tenant("a"), holder(2, 0, 0)),
        (tenant("b"), holder(3, 0, 0)),
    ]);
    let mut memory = Memory::default();
    memory.look(&holders, Mono(10));
    holders.get_mut(&tenant("a")).unwrap().has = 5 * GIB;
    memory.look(&holders, Mono(20));
    memory.see(seen(15, 10));
    memory.look(&holders, Mono(30));
    assert_eq!(limit(&memory, "b"), Some(1), "of ten four are reserved and five are taken");
}

#[test]
fn words_of_who_was_never_seen_on_the_gpu_keep_nobody_out() {
    let ghost = |has| Holder { pids: [9].into(), is_seen: false, ..holder(3, has, 0) };
    let own = |pid, holder| Holder { pids: [pid].into(), ..holder };
    let mut holders: BTreeMap<TenantKey, Holder> = [
        (tenant("reserved"), own(1, holder(1, 0, 20))),
        (tenant("other"), own(2, holder(2, 5, 0))),
        (tenant("ghost"), ghost(0)),
    ]
    .into();
    let told = |at| Seen { by_pid: [(1, 0), (2, 5 * GIB)].into(), ..seen(at, 60) };
    let mut memory = Memory::default();
    memory.look(&holders, Mono(1));
    memory.see(told(2));
    memory.look(&holders, Mono(3));
    let before = memory.room(&tenant("other")).limit;
    assert_eq!(before, Some(45 * GIB), "what it has, and what is free beyond the reservation");
    holders.insert(tenant("ghost"), ghost(70));
    memory.look(&holders, Mono(4));
    assert_eq!(memory.room(&tenant("other")).limit, before);
    assert_eq!(memory.room(&tenant("reserved")).kept, Some(20 * GIB));
}

#[test]
fn what_a_newcomer_had_before_anybody_looked_is_not_free_for_others() {
    let mut holders: BTreeMap<TenantKey, Holder> =
        [(tenant("reserved"), holder(1, 0, 20)), (tenant("other"), holder(2, 0, 0))].into();
    let mut memory = memory(60, &holders);
    let before = memory.room(&tenant("other")).limit.unwrap();
    holders.insert(tenant("newcomer"), holder(3, 30, 0));
    memory.look(&holders, Mono(4));
    assert_eq!(memory.room(&tenant("other")).limit, Some(before - 30 * GIB));
}

#[test]
fn claims_that_the_driver_does_not_bear_out_keep_nobody_out() {
    let liar = |has| Holder { pids: [7].into(), ..holder(2, has, 0) };
    let mut holders = BTreeMap::from([
        (tenant("server"), holder(1, 0, 4)),
        (tenant("liar"), liar(50)),
        (tenant("b"), holder(3, 0, 0)),
    ]);
    let mut memory = memory(10, &holders);
    memory.see(Seen { by_pid: [(7, GIB)].into(), ..seen(4, 10) });
    holders.insert(tenant("liar"), liar(60));
    memory.look(&holders, Mono(5));
    assert_eq!(limit(&memory, "b"), Some(6));
}

#[test]
fn what_the_driver_counts_of_a_tenant_beyond_its_allocations_is_used_of_its_reservation() {
    let server = Holder { pids: [7, 8].into(), ..holder(1, 1, 4) };
    let holders = BTreeMap::from([(tenant("server"), server), (tenant("b"), holder(3, 0, 0))]);
    let mut memory = memory(10, &holders);
    memory.see(Seen { by_pid: [(7, 2 * GIB), (8, GIB), (9, 5 * GIB)].into(), ..seen(4, 10) });
    memory.look(&holders, Mono(5));
    assert_eq!(memory.room(&tenant("server")).kept, Some(GIB));
}

fn everybody() -> impl Strategy<Value = Vec<(u64, u64)>> {
    prop::collection::vec((0..40u64, prop_oneof![Just(0), 0..60u64]), 2..6)
}

proptest! {
    /// Each in turn takes some of what it may have, and the daemon looks after each.
    #[test]
    fn whoever_takes_what_it_may_leaves_free_what_others_have_reserved_as_far_as_it_was_there(
        everybody in everybody(), free in 0..200u64, takes in prop::collection::vec((0..6usize, 0..=100u64), 0..30),
    ) {
        let name = |number: usize| tenant(&format!("{number}"));
        let each = everybody.iter().enumerate();
        let mut holders: BTreeMap<TenantKey, Holder> =
            each.map(|(number, (has, reserves))| (name(number), holder(number as u64, *has, *reserves))).collect();
        let mut memory = memory(free, &holders);
        let kept = |memory: &Memory| (0..everybody.len()).filter_map(|it| memory.room(&name(it)).kept).sum::<u64>();
        let mut left = free * GIB;
        prop_assert!(kept(&memory) <= left);
        for (who, part) in takes {
            let own = name(who % everybody.len());
            let room = memory.room(&own);
            prop_assert!(room.limit.is_none_or(|limit| limit >= room.has), "never below what it has");
            prop_assert!(room.limit.is_none_or(|limit| limit - room.has >= room.kept.unwrap_or(0)), "it has what is kept for it");
            let may = room.limit.map_or(left, |limit| limit - room.has).min(left);
            let taken = if part == 100 { may } else { may / 100 * part };
            holders.get_mut(&own).unwrap().has += taken;
            left -= taken;
            memory.look(&holders, Mono(9));
            prop_assert!(kept(&memory) <= left, "{} of {left}", kept(&memory));
        }
    }
}
