//! Requests as the library sees them.

use std::sync::atomic::Ordering;

use berth_proto::shim::{Request, RequestSlot};

use crate::daemon::{Client, Daemon, Link};
use crate::links::{attached, orders};
use crate::tenant::{Tenant, until};

const MS: u64 = 1_000_000;

fn requests(client: &Client) -> Vec<Request> {
    client.ledger.requests.iter().filter_map(RequestSlot::read).collect()
}

fn count(client: &Client) -> u64 {
    client.ledger().requests.load(Ordering::Relaxed)
}

/// Until what it did before it is counted is over.
fn settled(tenant: &mut Tenant, client: &Client) {
    tenant.until("launches that are counted", |tenant| {
        tenant.run("launch s0 1000 1");
        client.ledger().launches.load(Ordering::Relaxed) > 0
    });
    tenant.run("sync s0");
    until("it to be idle", || client.ledger().busy.load(Ordering::Relaxed) == 0 && count(client) > 0);
}

#[test]
fn each_stretch_of_work_is_a_request_whether_others_yield_or_not() {
    for leads in [false, true] {
        let daemon = Daemon::start();
        let (mut tenant, client) = attached(&daemon, |lane| {
            orders(lane);
            lane.sample_every.store(1_000, Ordering::Relaxed);
            // However long it lingers.
            lane.linger_ns.store(500_000_000, Ordering::Relaxed);
        });
        let link = Link::new();
        if leads {
            client.leads(1, &link);
            tenant.until("a word that is raised", |tenant| {
                tenant.run("launch s0 1000 1");
                link.word() != 0
            });
        }
        settled(&mut tenant, &client);
        for _ in 0..3 {
            let before = count(&client);
            tenant.run("launch s0 5000000 2");
            tenant.run("launch s1 1000000 1");
            until("the end of a request", || count(&client) == before + 1);
            assert_eq!(tenant.ask("query s0"), 0, "all of it is done");
        }
        let requests = requests(&client);
        let last = &requests[requests.len() - 3..];
        for request in last {
            assert_eq!((request.lane, request.pieces), (0, 3), "leads: {leads}");
            assert!(request.took_ns >= 10 * MS, "{}", request.took_ns);
        }
        assert!(last.windows(2).all(|two| two[0].began_ns + two[0].took_ns <= two[1].began_ns));
        let all: u64 = requests.iter().map(|request| request.took_ns).sum();
        assert_eq!(client.ledger().request_ns.load(Ordering::Relaxed), all);
    }
}

#[test]
fn work_that_is_submitted_before_the_last_is_done_belongs_to_the_same_request() {
    let daemon = Daemon::start();
    let (mut tenant, client) = attached(&daemon, |lane| {
        orders(lane);
        lane.sample_every.store(1_000, Ordering::Relaxed);
    });
    settled(&mut tenant, &client);
    let before = count(&client);
    tenant.run("launch s0 300000000 1");
    for _ in 0..5 {
        tenant.run("launch s1 1000000 1");
        tenant.run("sync s1");
        assert_eq!(count(&client), before, "the other stream still works");
    }
    until("the end of it", || count(&client) == before + 1);
    assert_eq!(requests(&client).last().map(|request| request.pieces), Some(6));
}
