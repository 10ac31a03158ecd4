//! Holds that nobody looks after, daemon and guard both dead: what a person is told, and what is done about it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use berth_model::time::Span;
use serde_json::Value;

use crate::support::held::{is_free, is_frozen, launching, stage};
use crate::support::{Cgroup, Daemon, Engine, Host, Nobody, Tenant, run, until};

/// A tenant that is frozen by the word of a daemon that is dead, and so is its guard.
fn orphan(host: &Host, name: &str) -> (Daemon, Tenant) {
    let mut daemon = host.daemon();
    let tenant = host.holder(name, &[]);
    daemon.sees(&tenant.key());
    daemon.berth(&["hold", tenant.cgroup.path(), "--reason", "demo at noon"]).ok();
    daemon.kill_with_guard();
    assert!(is_frozen(tenant.cgroup.dir()), "nobody has let it go");
    (daemon, tenant)
}

fn json(daemon: &Daemon, args: &[&str]) -> Value {
    serde_json::from_str(&daemon.berth(args).ok()).unwrap()
}

/// The file of the only record there is.
fn the_record(daemon: &Daemon) -> PathBuf {
    let files = std::fs::read_dir(&daemon.settings.hold.journal).unwrap().flatten().map(|entry| entry.path());
    let records: Vec<_> = files.filter(|path| path.extension().is_some_and(|it| it == "hold")).collect();
    let [record] = &records[..] else { panic!("{records:?}") };
    record.clone()
}

/// As somebody else than berth would.
fn set_frozen(cgroup: &Path, wanted: bool) {
    let (v1, v2) = (cgroup.join("freezer.state"), cgroup.join("cgroup.freeze"));
    let (file, word) = match (v1.exists(), wanted) {
        (true, true) => (v1, "FROZEN"),
        (true, false) => (v1, "THAWED"),
        (false, true) => (v2, "1"),
        (false, false) => (v2, "0"),
    };
    std::fs::write(file, word).unwrap();
    until("the freezer to do it", || (is_frozen(cgroup) == wanted).then_some(()));
}

#[test]
fn without_a_daemon_who_is_held_is_told_from_the_record_and_so_is_what_to_do() {
    let host = Host::start();
    let (daemon, tenant) = orphan(&host, "orphan");
    let name = tenant.cgroup.path();

    let ps = daemon.berth(&["ps", "--wide"]);
    assert_eq!(ps.code, 0, "{ps:?}");
    for words in ["HOLD", "held ", "On record (no daemon runs)", "by freeze by the word of root: demo at noon"] {
        assert!(ps.stdout.contains(words), "{words}: {ps:?}");
    }
    assert!(ps.stderr.contains("neither a daemon nor a guard runs: `berth release --all`"), "{ps:?}");
    let rows = json(&daemon, &["ps", "--json"]);
    assert_eq!((&rows[0]["hold"]["stage"], &rows[0]["hold"]["by_uid"]), (&"held".into(), &0.into()), "{rows}");
    let all = json(&daemon, &["ps", "--all", "--json"]);
    let record = &all["on_record"]["holds"][0];
    assert_eq!((&record["now"]["is"], &record["means"]), (&"held".into(), &"freeze".into()), "{all}");
    assert!(all["on_record"]["kept_by"].is_null(), "{all}");

    let why = daemon.berth(&["explain", name]);
    assert_eq!(why.code, 0, "{why:?}");
    assert!(why.stdout.contains("is held") && why.stdout.contains("demo at noon"), "{why:?}");
    assert!(why.stderr.contains("no daemon answers") && why.stderr.contains("release --all"), "{why:?}");
    assert_eq!(json(&daemon, &["explain", name, "--json"])["on_record"]["reason"], "demo at noon");
    let nobody_s = daemon.berth(&["explain", "somebody-else"]);
    assert_eq!(nobody_s.code, 1, "{nobody_s:?}");
    assert!(nobody_s.stderr.contains("nothing is on record"), "{nobody_s:?}");

    // Someone thaws it by hand: the record is believed no further than it is true.
    set_frozen(tenant.cgroup.dir(), false);
    let ps = daemon.berth(&["ps"]);
    assert!(ps.stdout.contains("runs: what is on record of it was undone") && !ps.stdout.contains("HOLD"), "{ps:?}");
    set_frozen(tenant.cgroup.dir(), true);
    let released = daemon.berth(&["release", "--all"]).ok();
    assert_eq!(released, format!("released {name}\n"));
    assert!(!is_frozen(tenant.cgroup.dir()));
    let ps = daemon.berth(&["ps"]);
    assert!(!ps.stdout.contains("On record") && !ps.stderr.contains("release"), "{ps:?}");
}

#[test]
fn records_that_cannot_be_used_are_named_and_nothing_is_claimed_of_them() {
    let host = Host::start();
    let nobody = Nobody::on(&host);
    let (daemon, tenant) = orphan(&host, "torn");
    let record = the_record(&daemon);
    let whole = std::fs::read_to_string(&record).unwrap();
    let journal = daemon.settings.hold.journal.clone();
    let boot = whole.split("\"boot\":\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
    std::fs::write(journal.join("70.hold"), "nonsense").unwrap();
    std::fs::write(journal.join("71.hold"), whole.replace(boot, "another")).unwrap();
    let ps = daemon.berth(&["ps"]);
    assert_eq!(ps.code, 0, "{ps:?}");
    assert!(ps.stderr.contains("70.hold cannot be used: it is no record of a hold"), "{ps:?}");
    assert!(ps.stderr.contains("1 record is of an earlier boot"), "{ps:?}");
    assert_eq!(ps.stdout.matches("is held").count(), 1, "{ps:?}");
    assert!(journal.join("70.hold").exists() && journal.join("71.hold").exists(), "looking changes nothing");

    // Cut short behind what was done: it is held, whoever it was and however long.
    let reason = whole.find("\"reason\"").unwrap();
    std::fs::write(&record, &whole[..reason]).unwrap();
    let ps = daemon.berth(&["ps"]);
    assert!(ps.stdout.contains("is held") && !ps.stdout.contains("demo at noon"), "{ps:?}");

    // Who may not read it is told that, and not that nobody is held.
    let (socket, set) = (host.file("none.sock"), format!("hold.journal={}", journal.display()));
    let given = ["--socket", socket.to_str().unwrap(), "--set", &set];
    let asks = |args: &[&str]| run(&mut nobody.berth(&[&given, args].concat()));
    let ps = asks(&["ps"]);
    assert!(ps.stderr.contains("only the user of the daemon may read"), "{ps:?}");
    let why = asks(&["explain", tenant.cgroup.path()]);
    assert!(why.code != 0 && why.stderr.contains("only the user of the daemon may read"), "{why:?}");
    let released = daemon.berth(&["release", "--all"]);
    assert!(released.stdout.contains("released ") && !is_frozen(tenant.cgroup.dir()), "{released:?}");
    assert!(released.code == 1 && released.stderr.contains("70.hold"), "nobody knows whom it held: {released:?}");
    std::fs::remove_file(journal.join("70.hold.unreadable")).unwrap();
    daemon.berth(&["release", "--all"]).ok();
}

#[test]
fn without_a_daemon_one_who_is_there_and_not_held_is_told_so_and_one_who_has_left_since_as_last_seen() {
    let host = Host::start();
    let mut daemon = host.daemon();
    let mut tenant = host.holder("there", &[]);
    daemon.sees(&tenant.key());
    let name = tenant.cgroup.path().to_owned();
    until("it to be on record as under way", || {
        let open = std::fs::read_to_string(daemon.settings.history.dir.join("open.v1.jsonl")).ok()?;
        open.contains(&name).then_some(())
    });
    daemon.kill_with_guard();
    let why = daemon.berth(&["explain", &name]).ok();
    assert!(why.starts_with(&format!("{name}: free: no hold of it is on record")), "{why}");
    assert_eq!(json(&daemon, &["explain", &name, "--json"])["is_held"], false);
    tenant.kill();
    let why =
        until("it to be gone", || Some(daemon.berth(&["explain", &name]).ok()).filter(|why| !why.contains("free")));
    assert!(why.contains("was there when the daemon stopped"), "{why}");
}

/// Nothing proves that it was berth who froze it.
#[test]
fn one_whose_record_was_torn_before_what_was_done_is_named_until_somebody_has_let_it_go_on() {
    let host = Host::start();
    let (daemon, tenant) = orphan(&host, "cut");
    let record = the_record(&daemon);
    let whole = std::fs::read_to_string(&record).unwrap();
    std::fs::write(&record, &whole[..whole.find("\"grip\"").unwrap() + 9]).unwrap();
    for _ in 0..2 {
        let released = daemon.berth(&["release", "--all"]);
        assert_eq!((released.code, released.stdout.as_str()), (1, ""), "{released:?}");
        assert!(released.stderr.contains(&format!("{} is not free yet", tenant.cgroup.path())), "{released:?}");
        assert!(released.stderr.contains(&format!("> {}/", tenant.cgroup.dir().display())), "{released:?}");
        assert!(is_frozen(tenant.cgroup.dir()), "it may have been a person");
    }
    set_frozen(tenant.cgroup.dir(), false);
    assert_eq!(daemon.berth(&["release", "--all"]).ok(), "nobody is held\n");
}

/// One made later at the same path, which someone else froze, is none of berth's.
#[test]
fn a_record_of_a_cgroup_that_is_another_one_now_is_told_as_gone_and_nothing_is_touched() {
    let host = Host::start();
    let (daemon, mut tenant) = orphan(&host, "replaced");
    let (name, record) = (tenant.cgroup.path().to_owned(), the_record(&daemon));
    let bytes = std::fs::read(&record).unwrap();
    set_frozen(tenant.cgroup.dir(), false);
    tenant.kill();
    let cgroup = Arc::clone(&tenant.cgroup);
    drop(tenant);
    // Kept until the other one is made, so that it cannot have its inode.
    let spare = Cgroup::make("spare");
    until("the cgroup to be removed", || std::fs::remove_dir(cgroup.dir()).ok());
    std::fs::create_dir(cgroup.dir()).unwrap();
    drop(spare);
    set_frozen(cgroup.dir(), true);

    let gone = "its cgroup is another one now";
    let ps = daemon.berth(&["ps"]);
    assert!(ps.stdout.contains(&format!("{name} is gone: {gone}")), "{ps:?}");
    assert!(ps.stderr.contains("clears it away"), "{ps:?}");
    let told = daemon.berth(&["release", "--all"]).ok();
    assert_eq!(told, format!("{name} is gone: {gone}, nothing was touched\n"));
    assert!(is_frozen(cgroup.dir()) && !record.exists());
    std::fs::write(&record, &bytes).unwrap();
    let told = json(&daemon, &["release", "--all", "--json"]);
    assert_eq!((&told["gone"][0]["why"], told["released"].as_array().map(Vec::len)), (&gone.into(), Some(0)), "{told}");

    // The same by the next daemon.
    std::fs::write(&record, &bytes).unwrap();
    let _daemon = host.daemon();
    until("the record to be cleared away", || (!record.exists()).then_some(()));
    let log = until("the log of it", || {
        let log = std::fs::read_to_string(host.file("berth.log")).unwrap();
        log.contains("hold_gone").then_some(log)
    });
    let line = log.lines().find(|line| line.contains("hold_gone")).unwrap();
    assert!(line.contains(gone) && line.contains(&name), "{line}");
    assert!(is_frozen(cgroup.dir()));
    set_frozen(cgroup.dir(), false);
}

/// Its own cgroup is thawed, so that its engine can check its health, and so that people can pause it.
#[test]
fn a_container_that_stands_in_the_shelter_is_told_as_held_and_released_into_a_person_s_pause() {
    let test = "a_container_that_stands_in_the_shelter_is_told_as_held_and_released_into_a_person_s_pause";
    let Some(engine) = Engine::for_test(test) else { return };
    let no_hand_over = |settings: &mut berth_model::Settings| settings.hold.pause_after = Span::from_millis(600_000);
    let Some((host, mut daemon)) = stage(test, &engine, no_hand_over) else { return };
    let checked = ["--health-cmd", "true", "--health-interval", "1s", "--health-timeout", "10s"];
    let container = launching(&engine, &host, &daemon, "sheltered", &checked);
    until("the first check", || (container.says(".State.Health.Status") == "healthy").then_some(()));
    daemon.berth(&["hold", &container.name, "--by", "gate"]).ok();
    let cgroup = container.freezer();
    until("it to stand in the shelter", || is_frozen(&cgroup.join("berth-shelter")).then_some(()));
    daemon.kill_with_guard();
    assert!(!is_frozen(&cgroup));

    let ps = daemon.berth(&["ps"]);
    assert!(ps.stdout.contains("HOLD") && ps.stdout.contains("is held"), "{ps:?}");
    assert!(ps.stderr.contains("neither a daemon nor a guard runs: `berth release --all`"), "{ps:?}");
    let all = json(&daemon, &["ps", "--all", "--json"]);
    assert_eq!(all["on_record"]["holds"][0]["now"]["is"], "held", "{all}");

    container.docker(&["pause"]).ok();
    daemon.berth(&["release", "--all"]).ok();
    assert_eq!(container.says(".State.Status"), "paused");
    assert!(is_frozen(&cgroup) && !cgroup.join("berth-shelter").exists());
    container.docker(&["unpause"]).ok();
    assert!(is_free(&cgroup));
    let lines = container.lines();
    until("it to go on", || (container.lines() > lines).then_some(()));
}
