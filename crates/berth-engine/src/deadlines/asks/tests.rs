//! Who may set which deadline, and how long askers wait, on a host of which only the engine says something.

use std::cell::RefCell;
use std::sync::{Arc, Mutex};

use berth_model::control::{Candidate, DeadlineStanding};
use berth_model::deadline::Unit;
use berth_model::{Monitor, Runtime, Stop};
use berth_store::deadlines::Deadlines as Store;
use jiff::Timestamp;

use super::*;
use crate::deadlines::said::Said;

type Answers = Arc<Mutex<Vec<Result<Answer, Refusal>>>>;

struct Host {
    deadlines: Deadlines,
    snapshot: Snapshot,
    /// Which containers the engine was asked about.
    described: RefCell<Vec<String>>,
    now: Anchor,
    answers: Answers,
}

fn id(name: &str) -> ContainerId {
    ContainerId(format!("{:0<64}", name.bytes().map(|byte| format!("{byte:x}")).collect::<String>()))
}

fn host() -> Host {
    let now = Anchor { mono: Mono(1_000_000_000), wall: Timestamp::UNIX_EPOCH };
    let mut monitor = Monitor::new(settings::Monitor::default());
    monitor.apply(Event::Source { source: Source::Docker, status: SourceStatus::Up });
    Host {
        deadlines: Deadlines::new(settings::Deadlines::default()),
        snapshot: monitor.snapshot(&now),
        described: RefCell::default(),
        now,
        answers: Answers::default(),
    }
}

fn user(name: &str) -> Caller {
    Caller { uid: 1000, user: Some(name.to_owned()), is_admin: false }
}

fn root() -> Caller {
    Caller { uid: 0, user: Some("root".into()), is_admin: true }
}

fn set(tenant: &str, deadline: &str) -> DeadlineAsk {
    DeadlineAsk::Set { tenant: tenant.into(), deadline: Some(deadline.parse().unwrap()) }
}

fn show(tenant: &str) -> DeadlineAsk {
    DeadlineAsk::Show { tenant: Some(tenant.into()) }
}

impl Host {
    fn turn(&mut self) {
        self.deadlines.settle();
        let stage = Stage {
            snapshot: &self.snapshot,
            labels: &|_| None,
            uids: &|_| Vec::new(),
            describe: &|id| {
                self.described.borrow_mut().push(id.0);
                true
            },
            edf: &settings::EdfSettings::default(),
            now: &self.now,
        };
        self.deadlines.answer(&stage);
    }

    fn ask(&mut self, caller: Caller, ask: DeadlineAsk) {
        let answers = Arc::clone(&self.answers);
        self.deadlines.ask(caller, ask, Box::new(move |answer| answers.lock().unwrap().push(answer)));
        self.turn();
    }

    /// The engine tells of a container.
    fn told(&mut self, name: &str, labels: &[(&str, &str)]) {
        let labels: BTreeMap<String, String> =
            labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        self.deadlines.overhear(&Event::Container(Box::new(ContainerFacts {
            id: id(name),
            name: name.into(),
            image: "pytorch:2".into(),
            owner: labels.get(OWNER_LABEL).cloned(),
            labels,
            started_at: None,
            health: None,
            endurance: None,
            stop: Stop::default(),
        })));
        self.turn();
    }

    /// The only answer since the last time.
    fn answer(&self) -> Result<DeadlineStanding, Refusal> {
        let mut answers = std::mem::take(&mut *self.answers.lock().unwrap());
        assert_eq!(answers.len(), 1, "{answers:?}");
        match answers.remove(0)? {
            Answer::Deadlines(standings) if standings.len() == 1 => Ok(standings[0].clone()),
            other => panic!("{other:?}"),
        }
    }

    fn is_waiting(&self) -> bool {
        self.answers.lock().unwrap().is_empty()
    }

    fn deadline(&self) -> Option<String> {
        self.answer().unwrap().counts.map(|counts| counts.deadline.to_string())
    }
}

#[test]
fn an_owner_named_by_the_label_of_a_container_that_has_not_come_may_set_its_deadline() {
    let mut host = host();
    host.ask(user("ada"), set("trainer", "9s"));
    assert!(host.is_waiting());
    host.told("trainer", &[(OWNER_LABEL, "ada"), ("berth.deadline", "5s")]);
    let standing = host.answer().unwrap();
    assert_eq!((standing.is_here, standing.owner.as_deref()), (false, Some("ada")));
    assert_eq!(standing.counts.unwrap().deadline.to_string(), "9s");
    host.ask(user("eve"), set("trainer", "1s"));
    assert_eq!(host.answer().unwrap_err().code(), "forbidden");
    host.ask(user("ada"), DeadlineAsk::Reset { tenant: "trainer".into() });
    assert_eq!(host.deadline().as_deref(), Some("5s"), "what its label says");
    assert_eq!(
        *host.described.borrow(),
        ["trainer"],
        "of one of whom something was said the engine is not asked again"
    );
}

#[test]
fn of_a_container_whose_owner_nobody_names_only_root_decides() {
    let mut host = host();
    for (caller, is_allowed) in [(user("ada"), false), (root(), true)] {
        host.ask(caller, set("trainer", "9s"));
        host.told("trainer", &[]);
        assert_eq!(host.answer().is_ok(), is_allowed);
    }
}

#[test]
fn whoever_asks_for_one_that_does_not_exist_is_told_when_the_engine_says_so_or_says_nothing() {
    let mut host = host();
    host.ask(root(), set("trainer", "9s"));
    host.deadlines.overhear(&Event::ContainerGone { id: ContainerId("trainer".into()) });
    host.turn();
    assert_eq!(host.answer().unwrap_err().code(), "no_such_tenant");

    host.ask(root(), set("trainer", "9s"));
    assert!(host.is_waiting());
    let until = host.deadlines.answer_by().unwrap();
    host.now.mono = until;
    host.turn();
    assert_eq!(host.answer().unwrap_err().code(), "no_such_tenant");
    assert_eq!(host.deadlines.answer_by(), None);
}

#[test]
fn what_is_no_container_s_name_is_not_put_into_a_request_to_the_engine() {
    let mut host = host();
    for name in ["/team/job", "a/../b", "", "-x", "a b", "a%2fb", "a?all=1"] {
        host.ask(root(), show(name));
        assert_eq!(host.answer().unwrap_err().code(), "no_such_tenant", "{name}");
    }
    host.snapshot.sources.clear();
    host.ask(root(), show("trainer"));
    assert_eq!(host.answer().unwrap_err().code(), "no_such_tenant", "without an engine nobody is waited for");
    assert!(host.described.borrow().is_empty());
}

#[test]
fn facts_of_containers_that_are_not_here_are_kept_only_while_something_is_said_of_them() {
    let mut host = host();
    host.told("unasked", &[]);
    host.ask(root(), show("trainer"));
    host.told("trainer", &[("berth.deadline", "5s")]);
    assert_eq!(host.deadline().as_deref(), Some("5s"));
    assert!(host.deadlines.asks.strangers.is_empty());
}

#[test]
fn a_word_counts_when_it_is_on_disk_and_the_last_of_several_is_the_one() {
    let dir = tempfile::tempdir().unwrap();
    let (event_tx, event_rx) = std::sync::mpsc::channel();
    let mut host = host();
    host.deadlines.keep(Said::on_disk(Store::open(dir.path()), event_tx));
    host.ask(root(), set("trainer", "9s"));
    host.told("trainer", &[]);
    host.ask(root(), set("trainer", "8s"));
    for _ in 0..2 {
        event_rx.recv_timeout(Duration::from_secs(20)).unwrap();
    }
    host.turn();
    let answers = std::mem::take(&mut *host.answers.lock().unwrap());
    assert_eq!(answers.len(), 2);
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    drop(host);
    let kept = Store::open(dir.path()).unwrap().overrides().to_vec();
    assert_eq!(kept.len(), 1);
    assert_eq!(kept[0].given.deadline.unwrap().to_string(), "8s");
}

/// What is said to it is written here; something comes from the channel for each word that is.
fn host_on_disk(dir: &std::path::Path) -> (Host, std::sync::mpsc::Receiver<Event>) {
    let (event_tx, event_rx) = std::sync::mpsc::channel();
    let mut host = host();
    host.deadlines.keep(Said::on_disk(Store::open(dir), event_tx));
    (host, event_rx)
}

/// All in one turn, of a container that ada owns.
fn ask_together(host: &mut Host, asks: Vec<(Caller, DeadlineAsk)>) {
    for (caller, ask) in asks {
        let answers = Arc::clone(&host.answers);
        host.deadlines.ask(caller, ask, Box::new(move |answer| answers.lock().unwrap().push(answer)));
    }
    host.turn();
    host.told("trainer", &[(OWNER_LABEL, "ada")]);
}

fn deadlines_told(host: &Host) -> Vec<Result<String, &'static str>> {
    let answers = std::mem::take(&mut *host.answers.lock().unwrap());
    let told = answers.into_iter().map(|answer| match answer.map_err(|refusal| refusal.code())? {
        Answer::Deadlines(standings) => {
            Ok(standings[0].counts.as_ref().map_or_else(String::new, |counts| counts.deadline.to_string()))
        }
        other => panic!("{other:?}"),
    });
    told.collect()
}

#[test]
fn an_owner_does_not_undo_what_root_is_having_written() {
    let dir = tempfile::tempdir().unwrap();
    let (mut host, event_rx) = host_on_disk(dir.path());
    ask_together(&mut host, vec![(root(), set("trainer", "1h")), (user("ada"), set("trainer", "1ms"))]);
    assert_eq!(deadlines_told(&host), [Err("forbidden")], "root waits for the disk");
    event_rx.recv_timeout(Duration::from_secs(20)).unwrap();
    host.turn();
    assert_eq!(deadlines_told(&host), [Ok("1h".to_owned())]);
    let reset = || DeadlineAsk::Reset { tenant: "trainer".into() };
    ask_together(&mut host, vec![(root(), reset()), (root(), set("trainer", "2h")), (user("ada"), reset())]);
    for _ in 0..2 {
        event_rx.recv_timeout(Duration::from_secs(20)).unwrap();
    }
    host.turn();
    assert_eq!(host.deadlines.said.all().iter().map(|said| said.given.by_uid).collect::<Vec<_>>(), [0]);
}

#[test]
fn each_is_answered_with_what_it_said_though_another_said_something_since() {
    let dir = tempfile::tempdir().unwrap();
    let (mut host, event_rx) = host_on_disk(dir.path());
    ask_together(&mut host, vec![(user("ada"), set("trainer", "9s")), (root(), set("trainer", "1h"))]);
    for _ in 0..2 {
        event_rx.recv_timeout(Duration::from_secs(20)).unwrap();
    }
    host.turn();
    assert_eq!(deadlines_told(&host), [Ok("9s".to_owned()), Ok("1h".to_owned())]);
}

#[test]
fn a_container_that_is_removed_while_its_deadline_is_written_is_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let (mut host, event_rx) = host_on_disk(dir.path());
    ask_together(&mut host, vec![(root(), set("trainer", "9s"))]);
    host.deadlines.overhear(&Event::ContainerGone { id: id("trainer") });
    for _ in 0..2 {
        event_rx.recv_timeout(Duration::from_secs(20)).unwrap();
    }
    host.turn();
    assert!(host.deadlines.said.all().is_empty(), "{:?}", host.deadlines.said.all());
    drop(host);
    assert!(Store::open(dir.path()).unwrap().overrides().is_empty());
}

#[test]
fn who_asks_while_too_many_wait_for_the_disk_is_told_to_ask_again() {
    let dir = tempfile::tempdir().unwrap();
    let (mut host, event_rx) = host_on_disk(dir.path());
    ask_together(&mut host, vec![(root(), set("trainer", "7s"))]);
    event_rx.recv_timeout(Duration::from_secs(20)).unwrap();
    host.turn();
    assert_eq!(host.deadline().as_deref(), Some("7s"));
    ask_together(&mut host, (0..=MOST_WRITING).map(|_| (root(), set("trainer", "9s"))).collect());
    let refused = host.answers.lock().unwrap().first().cloned().unwrap().unwrap_err().to_string();
    assert!(refused.contains("ask again"), "{refused}");
    for _ in 0..MOST_WRITING {
        event_rx.recv_timeout(Duration::from_secs(20)).unwrap();
    }
    host.turn();
    host.answers.lock().unwrap().clear();
    host.ask(root(), set("trainer", "8s"));
    event_rx.recv_timeout(Duration::from_secs(20)).unwrap();
    host.turn();
    assert_eq!(host.deadline().as_deref(), Some("8s"));
}

#[test]
fn a_word_is_found_whatever_engine_the_container_is_taken_to_be_of() {
    let mut host = host();
    let key = |runtime| TenantKey::Container { runtime, id: id("trainer") };
    let given = Given { deadline: None, by_uid: 7, at: Timestamp::UNIX_EPOCH };
    let said = Override { tenant: key(Runtime::Docker), name: "trainer".into(), given };
    host.deadlines.said.say(key(Runtime::Docker), Some(said));
    for runtime in [Runtime::Docker, Runtime::Podman, Runtime::Unknown] {
        assert_eq!(host.deadlines.said.of(&key(runtime)), Some(given));
    }
    host.deadlines.said.say(key(Runtime::Unknown), None);
    assert_eq!(host.deadlines.said.of(&key(Runtime::Docker)), None);
}

#[test]
fn a_container_the_engine_has_removed_is_forgotten_and_one_of_another_engine_is_not() {
    let mut host = host();
    let said = |runtime, name: &str| {
        let given = Given { deadline: None, by_uid: 0, at: Timestamp::UNIX_EPOCH };
        Override { tenant: TenantKey::Container { runtime, id: id(name) }, name: name.into(), given }
    };
    for one in [said(Runtime::Docker, "ours"), said(Runtime::Podman, "theirs"), said(Runtime::Unknown, "whose")] {
        host.deadlines.said.say(one.tenant.clone(), Some(one));
    }
    for name in ["ours", "theirs", "whose"] {
        host.deadlines.overhear(&Event::ContainerGone { id: id(name) });
    }
    let left: Vec<&str> = host.deadlines.said.all().iter().map(|said| said.name.as_str()).collect();
    assert_eq!(left, ["theirs", "whose"]);
}

#[test]
fn a_gpu_that_is_not_there_is_told_as_such() {
    let mut host = host();
    let deadline: Deadline = "9s".parse().unwrap();
    let candidate = Candidate {
        deadline,
        unit: Unit::Task,
        image: None,
        command: None,
        owner: None,
        takes: Some(deadline),
        gpu: Some(berth_model::GpuIndex(7)),
    };
    host.ask(user("ada"), DeadlineAsk::Admit(candidate));
    assert_eq!(host.answer().unwrap_err().code(), "no_such_gpu");
}
