//! What is learned of a tenant in one task and told of it in the next.

use berth_policy::Past;

use super::*;

impl Host {
    fn now(&self) -> Anchor {
        Anchor { mono: Mono(self.now), wall: Timestamp::from_second(1_000).unwrap() }
    }

    /// Its process ends, and its task with it.
    fn ends(&mut self, pid: u32) {
        let exited = Event::ProcessExited { process: key(pid), at: Mono(self.now) };
        self.manager.note(&exited, Mono(self.now));
        let ended = self.monitor.apply(exited);
        assert!(matches!(&ended[..], [Change::TaskEnded { .. }]), "{ended:?}");
        let snapshot = self.monitor.snapshot(&self.now());
        self.manager.task_ended(&tenant(pid), Mono(self.now), Some(&snapshot.ended[0]));
    }

    fn past(&mut self, pid: u32) -> (Option<Past>, Option<Bytes>) {
        let snapshot = self.monitor.snapshot(&self.now());
        let Manager { activities, keeper, terms, annals, .. } = &self.manager;
        let view = view::view(&snapshot, activities, keeper, terms, annals, Mono(self.now));
        let found = view.tenants.into_iter().find(|found| found.key == tenant(pid)).unwrap();
        (found.past, found.needs)
    }
}

/// For two seconds it computes, for one it does not.
#[test]
fn a_policy_is_told_what_the_same_program_did_before() {
    let mut host = Host::new();
    host.arrives(1);
    host.arrives(2);
    host.tell(Event::Moment { process: key(1), moment: Moment::FirstLaunch, at: Mono(host.now) });
    host.look(&[1, 2]);
    host.settle();
    assert_eq!(host.past(1), (None, None), "nobody knows it yet");

    host.now += 2_000 * MS;
    host.tell(Event::Drained { process: key(1), at: Mono(host.now) });
    host.settle();
    host.now += 1_000 * MS;
    host.ends(1);
    host.settle();

    host.now += 1_000 * MS;
    host.arrives(1);
    host.look(&[1, 2]);
    host.settle();
    let (past, needs) = host.past(1);
    let Past { active_seconds, peak_memory, duty, .. } = past.unwrap();
    assert_eq!((active_seconds, peak_memory, needs), (2.0, Some(Bytes(1 << 30)), Some(Bytes(1 << 30))));
    assert!((duty - 2.0 / 3.0).abs() < 1e-9, "{duty}");
    assert_eq!(host.past(2), (None, None), "another user's figures are another's");
}

#[test]
fn the_time_it_was_held_is_no_time_it_could_have_computed() {
    let mut host = Host::new();
    host.second_comes();
    host.stops(2);
    host.now += 5_000 * MS;
    host.tell(Event::Drained { process: key(1), at: Mono(host.now) });
    host.settle();
    host.now += 1_000 * MS;
    host.tell(Event::Drained { process: key(2), at: Mono(host.now) });
    host.settle();
    host.ends(2);

    host.arrives(2);
    host.settle();
    let Past { active_seconds, duty, .. } = host.past(2).0.unwrap();
    assert_eq!((active_seconds, duty), (1.0, 1.0), "held for five seconds, it computed in the one left");
    let held = host.manager.annals.holds_of(&tenant(2));
    assert!(matches!(&held[..], [hold] if !hold.is_open()), "{held:?}");
}

#[test]
fn tasks_that_a_killed_daemon_left_under_way_are_told_of_once_though_nobody_comes_after_them() {
    let home = tempfile::tempdir().unwrap();
    let mut settings = berth_model::Settings::default();
    settings.history.dir = home.path().join("history");
    let file = settings.history.dir.join("open.v1.jsonl");
    let mut host = Host::new();
    let daemon = |host: &mut Host| {
        let now = host.now();
        let (mut annals, history) = open_annals(&settings, |_| (), &now);
        annals.keep_open(&host.monitor.snapshot(&now), &|_| None, &now);
        drop(annals);
        history.unwrap().left_open.len()
    };
    host.arrives(1);
    host.look(&[1]);
    assert_eq!(daemon(&mut host), 0);
    assert_ne!(std::fs::read_to_string(&file).unwrap(), "", "it was killed now");
    assert_eq!(daemon(&mut Host::new()), 1);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "");
}
