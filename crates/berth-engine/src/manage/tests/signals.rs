//! Those who are to end are let go.

use super::*;

#[test]
fn whom_someone_wants_to_end_is_let_go_to_hear_it_and_not_held_again() {
    let mut host = Host::new();
    host.arrives(1);
    host.tell(Event::Moment { process: key(1), moment: Moment::FirstLaunch, at: Mono(host.now) });
    host.look(&[1]);
    host.settle();
    host.now += 500 * MS;
    host.arrives(2);
    host.look(&[1, 2]);
    host.settle();
    host.tell(Event::Halted { process: key(2), call: HaltedCall::Launch, at: Mono(host.now) });
    host.settle();
    assert_eq!(host.steps().last(), Some(&(tenant(2), Step::Continue(key(2)))), "held, and its stop hidden");

    *host.meter.is_asked_to_end.lock().unwrap() = true;
    host.now += 100 * MS;
    host.settle();
    assert_eq!(host.steps(), [], "nobody looks all the time");
    host.now += 1_000 * MS;
    host.settle();
    assert_eq!(host.steps(), [(tenant(2), Step::Ungate(key(2))), (tenant(2), Step::Thaw(Freezer::Cgroup))]);
}
