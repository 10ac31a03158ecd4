//! What people ask, and what they are answered.

use std::sync::mpsc::channel;

use berth_model::TaskState;
use berth_model::control::{Answer, Ask, Caller, Explanation, PastWhat, Refusal, Standing, What};
use berth_model::snapshot::{HoldStage, StandsAt};

use super::*;

pub(super) fn root() -> Caller {
    Caller { uid: 0, user: Some("root".into()), is_admin: true }
}

/// Runs tenant `uid` in [`Host::arrives`].
fn user(uid: u32) -> Caller {
    Caller { uid, user: None, is_admin: false }
}

fn hold(tenant: &str) -> What {
    What::Hold { tenant: tenant.into(), means: None, reason: Some("needs the GPU for a demo".into()) }
}

fn release(tenant: &str) -> What {
    What::Release { tenant: tenant.into() }
}

impl Host {
    /// Two that compute, under a policy of this name.
    fn with_two(policy: PolicyName) -> Self {
        let mut host = Host::under(policy);
        for pid in [1, 2] {
            host.arrives(pid);
            host.tell(Event::Moment { process: key(pid), moment: Moment::FirstLaunch, at: Mono(host.now) });
        }
        host.look(&[1, 2]);
        host.settle();
        host.steps();
        host
    }

    /// Two that compute, and one whom the policy holds.
    fn with_third_waiting() -> Self {
        let mut host = Host::with_two(PolicyName::Fifo);
        host.arrives(3);
        host.look(&[1, 2, 3]);
        host.settle();
        host.stops(3);
        host
    }

    pub(super) fn asks(&mut self, caller: Caller, what: What) -> Result<Answer, Refusal> {
        let (tx, rx) = channel();
        self.manager.ask(Ask { caller, what }, Box::new(move |answer| tx.send(answer).unwrap()));
        self.settle();
        rx.try_recv().expect("there is an answer")
    }

    fn stands(&mut self, caller: Caller, what: What) -> Standing {
        match self.asks(caller, what) {
            Ok(Answer::Stands(standing)) => *standing,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn explained(&mut self, selector: &str) -> Explanation {
        match self.asks(user(99), What::Explain { tenant: selector.into() }) {
            Ok(Answer::Explained(explanation)) => *explanation,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn whoever_is_to_be_held_is_told_of_before_anything_is_done_to_it() {
    let mut host = Host::with_two(PolicyName::Off);
    assert_eq!(host.kept_off, BTreeMap::new());
    host.asks(root(), hold("t1")).unwrap();
    assert_eq!(host.kept_off, [(tenant(1), 0)].into());
    assert!(!host.steps().is_empty(), "it is held");
}

#[test]
fn a_person_holds_and_releases_without_any_policy() {
    let mut host = Host::with_two(PolicyName::Off);
    let held = host.stands(root(), hold("t1"));
    let row = held.hold.expect("it is held");
    assert_eq!((row.stage, row.by_uid, held.is_settled), (HoldStage::Held, Some(0), true));
    assert_eq!((row.reason.as_str(), row.means), ("needs the GPU for a demo", Some(Means::Freeze)));
    assert_eq!(host.steps(), [(tenant(1), Step::Freeze(Freezer::Cgroup))]);

    let free = host.stands(root(), release("/t1"));
    assert_eq!(free.hold.map(|row| row.stage), Some(HoldStage::Exempt), "policies leave it alone");
    assert_eq!(host.steps(), [(tenant(1), Step::Thaw(Freezer::Cgroup))]);
    assert_eq!(host.stands(root(), What::HandBack { tenant: "t1".into() }).hold, None);
}

#[test]
fn owners_act_on_their_own_and_on_nobody_else() {
    let mut host = Host::with_two(PolicyName::Off);
    let refused = host.asks(user(2), hold("t1")).unwrap_err();
    assert!(matches!(&refused, Refusal::NotYours { owner: Some(owner), .. } if owner == "1"), "{refused:?}");
    assert_eq!(host.steps(), [], "nothing was done");
    host.stands(user(1), hold("t1"));
    assert_eq!(host.asks(user(2), release("t1")).unwrap_err().code(), "forbidden");
    host.stands(user(1), release("t1"));
}

#[test]
fn what_root_has_decided_its_owner_does_not_undo() {
    let mut host = Host::with_two(PolicyName::Off);
    host.stands(root(), hold("t1"));
    let refused = host.asks(user(1), release("t1")).unwrap_err();
    assert_eq!(refused, Refusal::DecidedByAnother { name: "/t1".into(), uid: 0 });
    assert_eq!(host.asks(user(1), What::HandBack { tenant: "t1".into() }).unwrap_err().code(), "forbidden");
}

#[test]
fn only_admins_switch_the_policy_and_off_releases_what_it_held() {
    let mut host = Host::with_third_waiting();
    host.stands(user(2), hold("t2"));
    assert!(host.manager.keeper.note(&tenant(3)).is_some(), "the policy holds the third");

    let off = What::SetPolicy { policy: PolicyName::Off, dry_run: None };
    assert_eq!(host.asks(user(1), off.clone()).unwrap_err(), Refusal::AdminsOnly);
    assert!(host.manager.keeper.note(&tenant(3)).is_some());
    host.asks(root(), off).unwrap();
    assert_eq!(host.manager.keeper.note(&tenant(3)), None);
    assert!(host.manager.keeper.note(&tenant(2)).is_some(), "a person's hold stays");
}

#[test]
fn releasing_all_releases_what_one_may_and_nothing_else() {
    let mut host = Host::with_two(PolicyName::Off);
    host.stands(user(1), hold("t1"));
    host.stands(user(2), hold("t2"));
    let Ok(Answer::Released(released)) = host.asks(user(2), What::ReleaseAll) else { panic!("not released") };
    assert_eq!(released.iter().map(|standing| standing.name.as_str()).collect::<Vec<_>>(), ["/t2"]);
    assert_eq!(host.asks(user(2), What::ReleaseAll).unwrap_err().code(), "forbidden", "the rest is another's");
    assert!(matches!(host.asks(root(), What::ReleaseAll), Ok(Answer::Released(released)) if released.len() == 1));
    assert_eq!(host.asks(root(), What::ReleaseAll), Ok(Answer::Released(vec![])));
}

#[test]
fn what_the_policy_has_decided_is_left_as_it_is_when_it_is_left_to_the_policy() {
    let mut host = Host::with_third_waiting();
    host.steps();
    let back = host.stands(root(), What::HandBack { tenant: "t3".into() });
    assert_eq!((back.hold.map(|row| row.stage), host.steps()), (Some(HoldStage::Held), vec![]));
}

#[test]
fn a_hold_that_fails_is_told_with_what_went_wrong() {
    let mut host = Host::with_two(PolicyName::Off);
    *host.hands.fail.lock().unwrap() = Some("no such file".into());
    let refused = host.asks(root(), hold("t1")).unwrap_err();
    assert!(matches!(&refused, Refusal::Failed { message, .. } if message.contains("no such file")), "{refused:?}");
    assert!(matches!(&host.explained("t1").history[0].what, PastWhat::Failed { .. }));
}

#[test]
fn means_that_are_not_there_are_refused_with_those_that_are() {
    let mut host = Host::with_two(PolicyName::Off);
    let lock = What::Hold { tenant: "t1".into(), means: Some(Means::Lock), reason: None };
    let told = host.asks(root(), lock).unwrap_err().to_string();
    assert_eq!(told, "`/t1` cannot be held by lock; what can be done to it here: freeze, gate, park");
}

#[test]
fn who_waits_is_told_for_whom_at_what_and_what_came_before() {
    let mut host = Host::under(PolicyName::Fifo);
    host.arrives(1);
    host.tell(Event::Moment { process: key(1), moment: Moment::FirstLaunch, at: Mono(host.now) });
    host.look(&[1]);
    host.settle();
    host.now += 500 * MS;
    host.arrives(2);
    host.look(&[1, 2]);
    host.settle();
    host.tell(Event::Halted { process: key(2), call: HaltedCall::Launch, at: Mono(host.now) });
    host.tell(Event::Moment { process: key(2), moment: Moment::FirstLaunch, at: Mono(host.now) });
    host.settle();
    host.now += 14_000 * MS;

    let told = host.explained("t2");
    let row = told.hold.expect("it is held");
    assert_eq!((row.stage, row.place, row.places), (HoldStage::Held, Some(1), Some(1)));
    assert_eq!((row.behind.as_deref(), row.stands_at), (Some("/t1"), Some(StandsAt::FirstLaunch)));
    assert_eq!((told.computing_there, told.policy), (vec!["/t1".to_owned()], PolicyName::Fifo));
    assert_eq!(told.state, TaskState::Loaded, "its launch was stopped before it was submitted");
    assert!((13.9..14.1).contains(&told.held_seconds), "{}", told.held_seconds);
    let PastWhat::Held { released: None, by_uid: None, reason, .. } = &told.history[0].what else {
        panic!("{:?}", told.history)
    };
    assert!(reason.contains("/t1"), "{reason}");
}

#[test]
fn who_waits_is_told_who_computes_now_and_not_who_did_when_it_was_stopped() {
    let mut host = Host::under(PolicyName::Fifo);
    host.arrives(1);
    host.tell(Event::Moment { process: key(1), moment: Moment::FirstLaunch, at: Mono(host.now) });
    host.look(&[1]);
    host.settle();
    for pid in [2, 3] {
        host.now += 500 * MS;
        host.arrives(pid);
        host.look(&[1, 2, 3][..pid as usize]);
        host.settle();
        host.tell(Event::Halted { process: key(pid), call: HaltedCall::Launch, at: Mono(host.now) });
        host.settle();
    }
    let reason = |host: &mut Host| host.explained("t3").hold.expect("it is held").reason;
    assert_eq!(reason(&mut host), "`/t1` computes on GPU 0");
    host.now += 1_000 * MS;
    host.tell(Event::Drained { process: key(1), at: Mono(host.now) });
    host.settle();
    assert_eq!(reason(&mut host), "`/t2` computes on GPU 0", "it was thawed");
}

/// The driver's figures of one among several are read rarely.
#[test]
fn one_whose_launches_are_seen_is_not_called_idle_and_one_that_has_waited_for_long_is() {
    let mut host = Host::under(PolicyName::Fifo);
    host.second_comes();
    let state = |host: &mut Host| (host.explained("t1").state, host.row(1).state);
    host.now += 30_000 * MS;
    assert_eq!(state(&mut host), (TaskState::Computing, TaskState::Computing), "it has launched");
    host.tell(Event::Drained { process: key(1), at: Mono(host.now) });
    host.now += 1_000 * MS;
    assert_eq!(state(&mut host), (TaskState::Computing, TaskState::Computing), "until a moment ago");
    host.now += 2_000 * MS;
    assert_eq!(state(&mut host), (TaskState::Idle, TaskState::Idle));
    host.tell(Event::Launched { process: key(1), at: Mono(host.now) });
    assert_eq!(state(&mut host), (TaskState::Computing, TaskState::Computing), "it has begun again");
}

#[test]
fn without_a_guard_nobody_is_held_anew_by_anyone_and_releases_go_on() {
    let mut host = Host::with_two(PolicyName::Off);
    host.stands(root(), hold("t1"));
    host.steps();
    host.guarded.set(false);
    let refused = host.asks(root(), hold("t2")).unwrap_err();
    assert!(refused.code() == "no_holds" && refused.to_string().contains("guard"), "{refused}");
    let set = |policy, dry_run| What::SetPolicy { policy, dry_run: Some(dry_run) };
    for policy in [PolicyName::Fifo, PolicyName::Paper] {
        assert_eq!(host.asks(root(), set(policy, false)).unwrap_err().code(), "no_holds");
        host.asks(root(), set(policy, true)).unwrap();
    }
    let unsaid = What::SetPolicy { policy: PolicyName::Paper, dry_run: None };
    assert_eq!(host.asks(root(), unsaid).unwrap_err().code(), "no_holds", "it would end the dry run");
    host.asks(root(), set(PolicyName::Off, false)).unwrap();
    assert_eq!(host.steps(), [], "who is held stays held");
    host.stands(root(), release("t1"));
    assert_eq!(host.steps(), [(tenant(1), Step::Thaw(Freezer::Cgroup))]);
    host.guarded.set(true);
    host.stands(root(), hold("t2"));
}

#[test]
fn a_policy_whose_guard_is_gone_holds_no_newcomer_and_goes_on_with_whom_it_holds() {
    let mut host = Host::new();
    host.second_comes();
    assert_eq!(host.steps(), [(tenant(2), Step::Gate(key(2)))]);

    host.guarded.set(false);
    host.arrives(3);
    host.look(&[1, 2, 3]);
    host.tell(Event::Halted { process: key(2), call: HaltedCall::Launch, at: Mono(host.now) });
    for _ in 0..20 {
        host.now += 600 * MS;
        host.settle();
    }
    let steps = host.steps();
    assert!(!steps.contains(&(tenant(3), Step::Gate(key(3)))), "{steps:?}");
    let hidden = [Step::Freeze(Freezer::Cgroup), Step::Continue(key(2))];
    assert!(hidden.iter().all(|step| steps.contains(&(tenant(2), *step))), "{steps:?}");
    let failed = |change: &&Change| matches!(change, Change::HoldFailed { message, .. } if message.contains("guard"));
    assert!(host.changes.iter().any(|change| failed(&change)), "{:?}", host.changes);
    assert!(
        host.changes
            .iter()
            .filter(failed)
            .all(|change| matches!(change, Change::HoldFailed { name, .. } if name == "/t3"))
    );
}
