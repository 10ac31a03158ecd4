//! What the settings and labels say, and what comes of it: means, exemptions, gangs, dry runs.

use berth_model::control::{Answer, Refusal, What};
use berth_model::settings::Hold;
use berth_model::snapshot::{HoldCounters, HoldStage};

use super::asks::root;
use super::*;

fn fifo(hold: Hold) -> Rules {
    Rules { hold: Hold { policy: PolicyName::Fifo, ..hold }, ..Rules::default() }
}

impl Host {
    fn launches(&mut self, pid: u32) {
        self.tell(Event::Moment { process: key(pid), moment: Moment::FirstLaunch, at: Mono(self.now) });
    }

    /// The first computes when the second comes.
    fn contended(rules: Rules) -> Self {
        let mut host = Host::ruled(rules);
        host.contend();
        host
    }

    fn contend(&mut self) {
        self.arrives(1);
        self.launches(1);
        self.look(&[1]);
        self.settle();
        self.now += 500 * MS;
        self.arrives(2);
        self.look(&[1, 2]);
        self.settle();
    }

    fn shown(&mut self) -> Snapshot {
        let now = Anchor { mono: Mono(self.now), wall: Timestamp::from_second(1_000).unwrap() };
        let mut snapshot = self.monitor.snapshot(&now);
        self.manager.show(&mut snapshot, &now);
        snapshot
    }

    pub(super) fn row(&mut self, pid: u32) -> TaskRow {
        self.shown().tasks.into_iter().find(|row| row.tenant == tenant(pid)).unwrap()
    }

    fn stage(&mut self, pid: u32) -> Option<HoldStage> {
        self.row(pid).hold.map(|hold| hold.stage)
    }

    /// Kinds of changes so far, but for the tasks' own.
    fn told(&mut self) -> Vec<&'static str> {
        std::mem::take(&mut self.changes).iter().map(Change::kind).collect()
    }
}

#[test]
fn what_the_settings_do_not_allow_is_not_done() {
    let mut host = Host::contended(fifo(Hold { means: [Means::Lock].into(), ..Hold::default() }));
    assert_eq!(host.steps(), [], "neither gate nor freeze may be used");
    let hold = What::Hold { tenant: "t1".into(), means: Some(Means::Freeze), reason: None };
    let refused = host.asks(root(), hold).unwrap_err();
    assert!(refused.to_string().starts_with("`/t1` cannot be held by freeze"), "by persons neither: {refused}");
}

#[test]
fn whom_a_rule_exempts_is_not_held_and_everybody_is_told_why() {
    for (hold, why) in [
        (Hold { never_names: vec!["/t2*".into()], ..Hold::default() }, "`hold.never_names` lists `/t2*`"),
        (Hold { never_owners: vec!["2".into()], ..Hold::default() }, "`hold.never_owners` lists `2`"),
    ] {
        let mut host = Host::contended(fifo(hold));
        assert_eq!(host.steps(), []);
        let row = host.row(2).hold.expect("it is told");
        assert_eq!((row.stage, row.by_uid, row.reason.as_str()), (HoldStage::Exempt, None, why));
        assert_eq!(host.explained("t2").hold.map(|hold| hold.reason).as_deref(), Some(why));
        assert_eq!(host.stage(1), None);
    }
    let host = Host::contended(fifo(Hold::default()));
    assert_eq!(host.steps(), [(tenant(2), Step::Gate(key(2)))], "without a rule it would have been gated");
}

#[test]
fn a_label_exempts_too_and_one_that_comes_late_sets_free() {
    let mut host = Host::contended(fifo(Hold::default()));
    assert_eq!(host.stage(2), Some(HoldStage::Gated));
    host.labels.insert(tenant(2), [("berth.hold".to_owned(), "never".to_owned())].into());
    host.settle();
    assert_eq!(host.stage(2), Some(HoldStage::Exempt));
    assert_eq!(host.row(2).hold.unwrap().reason, "its label says `berth.hold=never`");
}

#[test]
fn a_dry_run_does_nothing_and_tells_each_change_of_mind_once() {
    let mut host = Host::contended(fifo(Hold { dry_run: true, ..Hold::default() }));
    assert_eq!(host.stage(2), Some(HoldStage::WouldGate));
    host.now += 100 * MS;
    host.launches(2);
    for _ in 0..20 {
        host.now += 10 * MS;
        host.look(&[1, 2]);
        host.settle();
    }
    let row = host.row(2).hold.unwrap();
    assert_eq!((row.stage, row.behind.as_deref()), (HoldStage::WouldHold, Some("/t1")), "{row:?}");
    assert_eq!(host.row(2).held_seconds, Some(0.0), "nobody is kept off");
    let management = host.shown().management.unwrap();
    assert_eq!((management.dry_run, management.queue.len(), management.would_be_holds.gate), (true, 1, 1));
    assert_eq!(management.holds, HoldCounters::default());

    host.tell(Event::Drained { process: key(1), at: Mono(host.now) });
    host.settle();
    assert_eq!(host.stage(2), None, "its turn would have come");
    assert_eq!(host.told(), ["tenant_would_be_held", "tenant_would_be_released"]);
    assert_eq!(host.steps(), [], "and nothing was done");
    assert!(!host.manager.holds_any() && host.manager.journal.is_empty());
}

/// It pauses by a freeze, at first sight, and lets one go at a time, while all of them run in truth.
#[test]
fn a_dry_run_of_the_published_policy_tells_a_story_for_each_tenant() {
    let hold = Hold { policy: PolicyName::Paper, dry_run: true, ..Hold::default() };
    let mut host = Host::ruled(Rules { hold, ..Rules::default() });
    host.contend();
    host.arrives(3);
    for pid in [2, 3] {
        host.launches(pid);
    }
    for _ in 0..30 {
        host.now += 100 * MS;
        host.look(&[1, 2, 3]);
        host.settle();
    }
    for pid in [2, 3] {
        let of_it = host.changes.iter().filter_map(|change| match change {
            Change::TenantWouldBeHeld { tenant: of, .. } if *of == tenant(pid) => Some("held"),
            Change::TenantWouldBeReleased { tenant: of, .. } if *of == tenant(pid) => Some("released"),
            _ => None,
        });
        let story: Vec<&str> = of_it.collect();
        assert_eq!(story.first(), Some(&"held"), "{pid}");
        assert!(story.windows(2).all(|pair| pair[0] != pair[1]), "{pid}: {story:?}");
    }
    assert_eq!((host.steps(), host.manager.holds_any()), (vec![], false));
}

#[test]
fn going_over_to_a_dry_run_releases_what_was_held_and_only_admins_may() {
    let mut host = Host::contended(fifo(Hold::default()));
    host.tell(Event::Halted { process: key(2), call: HaltedCall::Launch, at: Mono(host.now) });
    host.settle();
    assert_eq!(host.stage(2), Some(HoldStage::Held));
    let dry = What::SetPolicy { policy: PolicyName::Fifo, dry_run: Some(true) };
    let anybody = berth_model::control::Caller { uid: 2, user: None, is_admin: false };
    assert_eq!(host.asks(anybody, dry.clone()).unwrap_err().code(), "forbidden");
    assert_eq!(host.stage(2), Some(HoldStage::Held));
    let Ok(Answer::Policy(view)) = host.asks(root(), dry) else { panic!("not set") };
    assert!(view.dry_run);
    assert!(!host.manager.holds_any(), "released");
}

#[test]
fn a_dry_run_that_is_not_asked_for_again_ends_unless_the_settings_say_so() {
    let set = |host: &mut Host, dry_run| {
        let set = What::SetPolicy { policy: PolicyName::Fifo, dry_run };
        let Ok(Answer::Policy(view)) = host.asks(root(), set) else { panic!("not set") };
        view.dry_run
    };
    for configured in [false, true] {
        let mut host = Host::contended(fifo(Hold { dry_run: configured, ..Hold::default() }));
        assert!(set(&mut host, Some(true)));
        assert_eq!(set(&mut host, None), configured);
        assert!(!set(&mut host, Some(false)));
    }
}

#[test]
fn where_owners_may_not_exempt_they_release_what_they_hold_and_not_what_the_policy_does() {
    let mut host = Host::contended(fifo(Hold { owners_exempt: false, ..Hold::default() }));
    let owner = || berth_model::control::Caller { uid: 2, user: None, is_admin: false };
    let (hold, release) =
        (What::Hold { tenant: "t2".into(), means: None, reason: None }, What::Release { tenant: "t2".into() });
    assert_eq!(host.asks(owner(), release.clone()).unwrap_err(), Refusal::PolicyDecides { name: "/t2".into() });
    host.asks(owner(), hold).unwrap();
    assert_eq!(host.stage(2), Some(HoldStage::Held));
    host.asks(owner(), release.clone()).unwrap();
    assert_eq!(host.stage(2), Some(HoldStage::Gated), "the policy decides again");
    host.asks(root(), release).unwrap();
    assert_eq!(host.stage(2), Some(HoldStage::Exempt), "root may");
}

#[test]
fn a_person_holds_in_a_dry_run_too() {
    let mut host = Host::contended(fifo(Hold { dry_run: true, ..Hold::default() }));
    let hold = What::Hold { tenant: "t2".into(), means: None, reason: None };
    host.asks(root(), hold).unwrap();
    assert_eq!(
        (host.stage(2), host.steps()),
        (Some(HoldStage::Held), vec![(tenant(2), Step::Freeze(Freezer::Cgroup))])
    );
}
