//! Every way in which a program finds the driver's functions leads through the library.

use crate::daemon::Daemon;
use crate::tenant::Tenant;

/// A kernel that is launched by a function found in this way attaches the process and is counted.
fn is_hooked(program: &str, find: &str, symbol: &str) {
    let daemon = Daemon::start();
    let mut tenant = Tenant::with(program, &daemon.path(), |_| {});
    tenant.run("prepare 0");
    assert_eq!(tenant.ask(find), 1, "{find}");
    tenant.tell("launch 0 1000 1");
    let client = daemon.welcome(|orders| orders.sample_every.store(1, std::sync::atomic::Ordering::Relaxed));
    client.lane();
    assert_eq!(tenant.answer(), 0);
    assert_eq!(tenant.calls(symbol), 1, "{find} reached {symbol}");
    let launches = &client.ledger().launches;
    tenant.until("a launch that is counted", |tenant| {
        tenant.run("launch 0 1000 1");
        launches.load(std::sync::atomic::Ordering::Relaxed) > 0
    });
}

#[test]
fn a_function_found_by_dlsym_is_ours() {
    is_hooked("tenant", "find dlsym", "cuLaunchKernel");
    is_hooked("tenant", "find twin", "cuLaunchKernel_ptsz");
}

#[test]
fn a_function_found_by_any_version_of_the_drivers_own_search_is_ours() {
    is_hooked("tenant", "find proc1 11030 0", "cuLaunchKernel");
    is_hooked("tenant", "find proc1 11080 2", "cuLaunchKernel_ptsz");
    is_hooked("tenant", "find proc2 12000 0", "cuLaunchKernel");
    is_hooked("tenant", "find proc2 13000 1", "cuLaunchKernel");
    is_hooked("tenant", "find proc2 12040 2", "cuLaunchKernel_ptsz");
    is_hooked("tenant", "find proc2_ptsz 12040 0", "cuLaunchKernel_ptsz");
    is_hooked("tenant", "find proc3 13000 0", "cuLaunchKernel");
}

#[test]
fn a_driver_newer_than_the_list_is_hooked_where_its_function_is_the_listed_one() {
    is_hooked("tenant", "find proc2 13020 0", "cuLaunchKernel");
    let mut tenant = Tenant::start("/nowhere".as_ref());
    tenant.run("prepare 0");
    assert_eq!(tenant.ask("newer 13000"), 0, "the ABI of the list is ours");
    assert_eq!(tenant.ask("newer 13020"), 1, "another ABI is the driver's own");
}

#[test]
fn a_program_that_is_linked_to_the_driver_calls_ours() {
    is_hooked("linked", "find linked", "cuLaunchKernel");
    is_hooked("linked", "find default", "cuLaunchKernel");
}

#[test]
fn a_process_without_a_driver_finds_none() {
    let mut tenant = Tenant::start("/nowhere".as_ref());
    assert_eq!(tenant.ask("early"), 0, "before it has loaded the driver");
    let mut linked = Tenant::with("linked", "/nowhere".as_ref(), |_| {});
    assert_eq!(linked.ask("early"), 1);
}

#[test]
fn who_asks_for_the_next_function_of_a_name_does_not_find_itself() {
    let mut tenant = Tenant::with("linked", "/nowhere".as_ref(), |_| {});
    assert_eq!(tenant.ask("next"), 1, "what comes next depends on who asks, and that is not the library");
}
