//! Those who are to end are let go.

use berth_model::snapshot::HoldStage;

use super::*;

#[test]
fn whom_someone_sends_a_signal_is_let_go_to_take_it_and_held_again_when_it_lives_on() {
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

    *host.meter.awaited.lock().unwrap() = Some(Signal::HUP);
    host.now += 100 * MS;
    host.settle();
    assert_eq!(host.steps(), [], "nobody looks all the time");
    host.now += 1_000 * MS;
    host.settle();
    assert_eq!(host.steps(), [(tenant(2), Step::Ungate(key(2))), (tenant(2), Step::Thaw(Freezer::Cgroup))]);
    let row = host.row(2).hold.unwrap();
    assert_eq!((row.stage, row.reason.as_str()), (HoldStage::Exempt, "someone sent it SIGHUP"));
    assert!(row.until.is_some() && host.explained("t2").hold.unwrap().until == row.until, "{row:?}");

    *host.meter.awaited.lock().unwrap() = None;
    host.now += 29_000 * MS;
    host.look(&[1, 2]);
    host.settle();
    assert_eq!(host.steps(), [], "it is left alone");
    host.now += 1_000 * MS;
    host.look(&[1, 2]);
    host.settle();
    host.settle();
    assert_eq!(host.steps(), [(tenant(2), Step::Gate(key(2)))], "while the other computes on");
}
