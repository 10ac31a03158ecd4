//! Tenants that do not fit into a GPU's memory together: they wait for it or are parked, and none of them fails.

use std::time::Duration;

use berth_load::{Edge, Moment, Phase};
use berth_model::hold::Means;
use berth_model::settings::{Mode, PolicyName};
use berth_model::snapshot::HoldStage;
use berth_model::time::Span;
use berth_model::{Change, Settings, TaskRow, TenantKey};

use crate::support::held::{can_gate, is_frozen, is_stopped};
use crate::support::{Cgroup, Container, Daemon, Engine, Events, Host, Tenant, skip, until, until_within};

/// What the design promises: a dead daemon's holds are undone within this time.
const FREE_WITHIN: Duration = Duration::from_secs(2);

/// Matrices of 0.7 GiB and 1.7 GiB beside them: 60 % of the GPU's 4 GiB. A product takes 0.2 s.
const SIXTY: [&str; 4] = ["--size", "8000", "--alloc-bytes", "1700MiB"];
/// Matrices of 40 %, and after a while another 30 %.
const FORTY_AND_THIRTY: [&str; 6] = ["--size", "11900", "--alloc-bytes", "1230MiB", "--alloc-after", "2s"];

fn fifo(settings: &mut Settings) {
    settings.hold.policy = PolicyName::Fifo;
    settings.fifo.park_idle = Span::from_millis(500);
}

fn without_park(settings: &mut Settings) {
    fifo(settings);
    settings.hold.means.remove(&Means::Park);
}

/// A daemon that can stop tenants at their allocations; `None`, said loudly, where it cannot.
fn queueing(host: &Host, test: &str, change: impl FnOnce(&mut Settings)) -> Option<Daemon> {
    let daemon = host.daemon_with("berth", change);
    can_gate(&daemon, test).then_some(daemon)
}

fn tenant(host: &Host, name: &str, load: &[&str], more: &[&str]) -> Tenant {
    host.tenant(name, &[load, more].concat())
}

fn is_held(row: &TaskRow, means: Means) -> bool {
    row.hold.as_ref().is_some_and(|hold| hold.stage == HoldStage::Held && hold.means == Some(means))
}

fn was_held(events: &Events, tenant: &TenantKey, wanted: Means) {
    events.wait_for(&format!("{tenant} to be held by {}", wanted.as_str()), |change| match change {
        Change::TenantHeld { tenant: held, means, .. } if held == tenant && *means == wanted => Some(()),
        _ => None,
    });
}

fn stands_still(tenant: &Tenant) -> bool {
    is_frozen(tenant.cgroup.dir()) || is_stopped(tenant.pid())
}

#[test]
fn of_two_tenants_of_sixty_percent_the_second_waits_at_its_allocation_and_is_told_for_whom() {
    let test = "of_two_tenants_of_sixty_percent_the_second_waits_at_its_allocation_and_is_told_for_whom";
    let host = Host::small();
    let Some(daemon) = queueing(&host, test, without_park) else { return };
    let mut first = tenant(&host, "first", &SIXTY, &["--repeats", "20"]);
    first.reaches(Phase::Kernel);
    let mut second = tenant(&host, "second", &SIXTY, &[]);
    let row = daemon.row_where(&second.key(), |row| is_held(row, Means::Gate));
    let why = until("the reason", || {
        let why = daemon.berth(&["explain", second.cgroup.path()]).ok();
        why.contains("at an allocation of 1.7 GiB").then_some(why)
    });
    assert!(why.contains(&format!("`{}` has 2.4 GiB", first.cgroup.path())), "{why}");
    assert!(why.contains("GPU 0 has"), "{why}");
    assert_eq!((first.wait(), second.wait()), (0, 0), "neither sees that memory has run out: {row:?}");
    let (freed, allocated) = (first.phase(0, Phase::Free, Edge::Begin), second.phase(0, Phase::Alloc, Edge::End));
    assert!(freed.is_some() && freed < allocated, "{freed:?} {allocated:?}");
}

#[test]
fn an_idle_tenant_is_parked_for_one_that_wants_to_run_and_comes_back() {
    let test = "an_idle_tenant_is_parked_for_one_that_wants_to_run_and_comes_back";
    let host = Host::small();
    let Some(daemon) = queueing(&host, test, fifo) else { return };
    let events = daemon.events();
    // It keeps its memory in between.
    let mut first = tenant(&host, "idle", &SIXTY, &["--repeats", "2", "--gap", "10s"]);
    until("its first product", || first.moment(0, Moment::KernelDone, Edge::End));
    let mut second = tenant(&host, "eager", &SIXTY, &["--repeats", "5"]);
    was_held(&events, &first.key(), Means::Park);
    let row = daemon.row(&first.key()).unwrap();
    assert!(row.task_id.is_some(), "its task goes on though the driver no longer lists it: {row:?}");
    assert_eq!((second.wait(), first.wait()), (0, 0), "neither sees that memory has run out");
    let ended = second.phase(0, Phase::Free, Edge::Begin);
    assert!(ended < first.phase(0, Phase::Output, Edge::Begin), "the first computed again after the second was done");
}

#[test]
fn a_notebook_that_never_computed_is_parked_too_and_has_its_memory_back_afterwards() {
    let test = "a_notebook_that_never_computed_is_parked_too_and_has_its_memory_back_afterwards";
    let host = Host::small();
    let Some(daemon) = queueing(&host, test, fifo) else { return };
    let events = daemon.events();
    let notebook = host.holder("notebook", &["--alloc-bytes", "2400MiB"]);
    let had = daemon.sees(&notebook.key()).gpu_memory_bytes;
    let mut eager = tenant(&host, "eager", &SIXTY, &[]);
    was_held(&events, &notebook.key(), Means::Park);
    assert_eq!(eager.wait(), 0);
    daemon.row_where(&notebook.key(), |row| row.hold.is_none() && row.gpu_memory_bytes == had);
    assert!(!stands_still(&notebook));
}

#[test]
fn two_that_hold_memory_and_want_more_both_finish_one_parked_meanwhile() {
    let test = "two_that_hold_memory_and_want_more_both_finish_one_parked_meanwhile";
    let host = Host::small();
    let Some(daemon) = queueing(&host, test, fifo) else { return };
    let events = daemon.events();
    let mut tenants = ["one", "two"].map(|name| tenant(&host, name, &FORTY_AND_THIRTY, &[]));
    events.wait_for("one of them to be parked", |change| {
        matches!(change, Change::TenantHeld { means: Means::Park, .. }).then_some(())
    });
    for tenant in &mut tenants {
        assert_eq!(tenant.wait(), 0, "it does not see that memory had run out");
    }
}

#[test]
fn two_that_hold_memory_and_want_more_end_in_order_and_explained_without_park() {
    let test = "two_that_hold_memory_and_want_more_end_in_order_and_explained_without_park";
    let host = Host::small();
    let Some(daemon) = queueing(&host, test, without_park) else { return };
    let events = daemon.events();
    let mut first = tenant(&host, "one", &FORTY_AND_THIRTY, &[]);
    daemon.sees(&first.key());
    let mut second = tenant(&host, "two", &FORTY_AND_THIRTY, &[]);
    let reason = events.wait_for("the younger to be let through", |change| match change {
        Change::TenantReleased { tenant, reason, .. } if *tenant == second.key() => Some(reason.clone()),
        _ => None,
    });
    assert!(reason.contains("that nobody on GPU 0 gives back: let through to fail"), "{reason}");
    assert_ne!(second.wait(), 0, "nobody can help it");
    assert_eq!(first.wait(), 0, "the one that came first has what it wanted");
}

#[test]
fn a_person_locks_and_parks_and_undoes_both() {
    let host = Host::small();
    let daemon = host.daemon();
    let tenant = host.holder("kept", &["--alloc-bytes", "1GiB"]);
    let name = tenant.cgroup.path();
    let before = daemon.sees(&tenant.key()).task_id;
    for means in [Means::Lock, Means::Park] {
        let told = daemon.berth(&["hold", name, "--by", means.as_str()]).ok();
        assert_eq!(told, format!("{name} is held, by {}\n", means.as_str()));
        let ps = daemon.berth(&["ps", "--wide"]).ok();
        assert!(ps.contains("held "), "{ps}");
        assert_eq!(daemon.ps().len(), 1, "a daemon that calls the driver is nobody's tenant: {ps}");
        let is_parked = means == Means::Park;
        let row = daemon.row_where(&tenant.key(), |row| row.gpu_memory_bytes.is_none() == is_parked);
        assert!(is_held(&row, means) && row.task_id == before, "{row:?}");
        assert_eq!(
            is_frozen(tenant.cgroup.dir()),
            is_parked,
            "what is locked runs on until it asks the driver for something"
        );
        assert!(daemon.berth(&["release", name]).ok().contains("is released"));
        let row = daemon.sees(&tenant.key());
        assert_eq!(row.task_id, before, "one stay throughout");
        assert!(!stands_still(&tenant));
    }
}

#[test]
fn whom_the_driver_must_not_move_is_refused_with_the_reason_and_runs_on() {
    let host = Host::small();
    let daemon = host.daemon();
    let cgroup = std::sync::Arc::new(Cgroup::make("rank"));
    let tenant = host.tenant_in(&cgroup, &["hold", "--alloc-bytes", "3500MiB"]);
    daemon.sees(&tenant.key());
    // The host's memory must hold what is moved out.
    let limits = ["memory.limit_in_bytes", "memory.max"];
    let root = std::path::Path::new("/sys/fs/cgroup/memory").join(cgroup.path().trim_start_matches('/'));
    let Ok(()) = std::fs::create_dir(&root) else {
        return skip("whom_the_driver_must_not_move_is_refused_with_the_reason_and_runs_on", "no memory cgroup");
    };
    let limited = limits.iter().any(|file| std::fs::write(root.join(file), "1073741824").is_ok());
    assert!(limited && std::fs::write(root.join("cgroup.procs"), tenant.pid().to_string()).is_ok());
    let refused = daemon.berth(&["hold", cgroup.path(), "--by", "park"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.stderr.contains("within its memory limit"), "{refused:?}");
    until("it runs", || (!stands_still(&tenant)).then_some(()));
    let why = daemon.berth(&["explain", cgroup.path(), "--json"]).ok();
    let told: serde_json::Value = serde_json::from_str(&why).unwrap();
    let means = told["means"].as_array().unwrap();
    assert!(!means.contains(&"park".into()) && means.contains(&"freeze".into()), "{why}");
    assert!(why.contains("within its memory limit"), "{why}");
    drop(tenant);
    until("its memory cgroup to go", || std::fs::remove_dir(&root).is_ok().then_some(()));
}

#[test]
fn a_killed_daemon_leaves_nobody_locked_or_parked_or_at_an_allocation() {
    let test = "a_killed_daemon_leaves_nobody_locked_or_parked_or_at_an_allocation";
    let host = Host::small();
    let Some(mut daemon) = queueing(&host, test, without_park) else { return };
    // Launches all the time, so that a lock is seen in what it prints.
    let light = host.tenant("light", &["light", "--size", "64", "--alloc-bytes", "800MiB", "--period", "20ms"]);
    daemon.sees(&light.key());
    daemon.berth(&["hold", light.cgroup.path(), "--by", "lock"]).ok();
    let first = host.holder("first", &["--alloc-bytes", "2GiB"]);
    daemon.sees(&first.key());
    let second = host.tenant("second", &["hold", "--alloc-bytes", "2GiB"]);
    daemon.row_where(&second.key(), |row| is_held(row, Means::Gate));
    daemon.kill();
    let killed_at = light.last_word();
    until_within(FREE_WITHIN, "nobody stands still", || {
        [&light, &first, &second].iter().all(|tenant| !stands_still(tenant)).then_some(())
    });
    until_within(FREE_WITHIN, "the one that was locked goes on", || (light.last_word() > killed_at).then_some(()));
}

#[test]
fn a_killed_daemon_s_parked_tenants_come_back_when_there_is_room_and_in_order() {
    let host = Host::small();
    let mut daemon = host.daemon();
    let load = |name| host.tenant(name, &["light", "--size", "64", "--alloc-bytes", "2400MiB", "--period", "20ms"]);
    let parked = ["early", "late"].map(|name| {
        let tenant = load(name);
        daemon.sees(&tenant.key());
        daemon.berth(&["hold", tenant.cgroup.path(), "--by", "park"]).ok();
        tenant
    });
    let mut third = load("third");
    daemon.sees(&third.key());
    daemon.kill();
    until_within(FREE_WITHIN, "nobody stands still", || {
        parked.iter().all(|tenant| !stands_still(tenant)).then_some(())
    });
    let words = parked.each_ref().map(Tenant::last_word);
    assert!(third.is_running());
    third.kill();
    until("the one that was parked first is back", || (parked[0].last_word() > words[0]).then_some(()));
    assert_eq!(parked[1].last_word(), words[1], "there is no room for the other");
    let [mut early, late] = parked;
    early.kill();
    until("the other is back too", || (late.last_word() > words[1]).then_some(()));
}

/// Both stand at an allocation after two seconds; a second later one is thawed, locked, moved out and frozen, and after the other's
/// end the other way round.
#[test]
fn a_daemon_killed_at_any_instant_of_a_park_leaves_nobody_held_and_nobody_out() {
    let test = "a_daemon_killed_at_any_instant_of_a_park_leaves_nobody_held_and_nobody_out";
    let host = Host::small();
    let mut was_any_parking = false;
    for round in 0..6_u64 {
        let Some(mut daemon) = queueing(&host, test, fifo) else { return };
        let mut tenants = ["one", "two"].map(|name| tenant(&host, name, &FORTY_AND_THIRTY, &[]));
        for tenant in &tenants {
            daemon.row_where(&tenant.key(), |row| is_held(row, Means::Gate));
        }
        std::thread::sleep(Duration::from_millis(700 + 331 * round));
        let is_parking = |row: &TaskRow| row.hold.as_ref().is_some_and(|hold| hold.means == Some(Means::Park));
        was_any_parking |= daemon.snapshot().tasks.iter().any(is_parking);
        daemon.kill();
        until_within(FREE_WITHIN, "nobody stands still", || {
            tenants.iter().all(|tenant| !stands_still(tenant)).then_some(())
        });
        // Without a daemon one may be told that memory has run out. None is left locked or moved out: then it would never end.
        tenants.iter_mut().for_each(|tenant| _ = tenant.wait());
    }
    assert!(was_any_parking, "no kill came while anybody was parked or about to be: nothing was shown");
}

#[test]
fn a_daemon_that_starts_anew_brings_back_whom_the_one_before_it_parked() {
    let host = Host::small();
    let mut daemon = host.daemon();
    let load = |name| host.tenant(name, &["light", "--size", "64", "--alloc-bytes", "2400MiB", "--period", "20ms"]);
    let parked = load("parked");
    daemon.sees(&parked.key());
    daemon.berth(&["hold", parked.cgroup.path(), "--by", "park"]).ok();
    let mut other = load("other");
    daemon.sees(&other.key());
    daemon.kill();
    let word = parked.last_word();
    // The guard has it and cannot bring it back: it hands over to this one.
    let daemon = host.daemon();
    assert_eq!(parked.last_word(), word, "there is no room");
    other.kill();
    until("it is back", || (parked.last_word() > word).then_some(()));
    daemon.sees(&parked.key());
}

// === the same in containers ===

fn with_engine(engine: &Engine, change: fn(&mut Settings)) -> impl FnOnce(&mut Settings) {
    let socket = engine.socket();
    move |settings| {
        change(settings);
        settings.docker.mode = Mode::Required;
        settings.docker.socket = socket;
    }
}

/// Its exit code, when it has ended.
fn ended(container: &Container) -> String {
    until("the container to end", || has_ended(container).then_some(()));
    container.says(".State.ExitCode")
}

fn has_ended(container: &Container) -> bool {
    container.says(".State.Running") == "false"
}

fn container_stands_still(container: &Container) -> bool {
    let read = |file: &str| std::fs::read_to_string(container.freezer().join(file)).unwrap_or_default();
    matches!(read("freezer.state").trim(), "FROZEN" | "FREEZING")
        || read("cgroup.freeze").trim() == "1"
        || is_stopped(container.pid())
        || container.says(".State.Status") == "paused"
}

#[test]
fn of_two_containers_of_sixty_percent_the_second_waits_and_both_finish() {
    let test = "of_two_containers_of_sixty_percent_the_second_waits_and_both_finish";
    let Some(engine) = Engine::for_test(test) else { return };
    let host = Host::small();
    let Some(daemon) = queueing(&host, test, with_engine(&engine, without_park)) else { return };
    let first = engine.run(&host, "first", &[], &[&SIXTY[..], &["--repeats", "20"]].concat());
    first.reaches(Phase::Kernel);
    let second = engine.run(&host, "second", &[], &SIXTY);
    daemon.row_where(&second.key(), |row| is_held(row, Means::Gate));
    until("the reason", || {
        let why = daemon.berth(&["explain", &second.name]).ok();
        let is_told =
            why.contains("at an allocation of 1.7 GiB") && why.contains(&format!("`{}` has 2.4 GiB", first.name));
        is_told.then_some(())
    });
    assert_eq!([ended(&first), ended(&second)], ["0", "0"], "{}{}", first.log(), second.log());
}

#[test]
fn two_containers_that_hold_memory_and_want_more_both_finish_one_parked_meanwhile() {
    let test = "two_containers_that_hold_memory_and_want_more_both_finish_one_parked_meanwhile";
    let Some(engine) = Engine::for_test(test) else { return };
    let host = Host::small();
    let Some(daemon) = queueing(&host, test, with_engine(&engine, fifo)) else { return };
    let events = daemon.events();
    let containers = ["one", "two"].map(|name| engine.run(&host, name, &[], &FORTY_AND_THIRTY));
    events.wait_for("one of them to be parked", |change| {
        matches!(change, Change::TenantHeld { means: Means::Park, .. }).then_some(())
    });
    for container in &containers {
        assert_eq!(ended(container), "0", "{}", container.log());
    }
}

#[test]
fn a_killed_daemon_s_locked_parked_and_waiting_containers_run_again() {
    let test = "a_killed_daemon_s_locked_parked_and_waiting_containers_run_again";
    let Some(engine) = Engine::for_test(test) else { return };
    let host = Host::small();
    let Some(mut daemon) = queueing(&host, test, with_engine(&engine, fifo)) else { return };
    let light = ["light", "--size", "64", "--period", "20ms", "--alloc-bytes"];
    let held = [("locked", "100MiB", "lock"), ("parked", "1GiB", "park")].map(|(name, bytes, means)| {
        let container = engine.run(&host, name, &[], &[&light[..], &[bytes]].concat());
        daemon.sees(&container.key());
        daemon.berth(&["hold", &container.name, "--by", means]).ok();
        container
    });
    let first = engine.run(&host, "first", &[], &["hold", "--alloc-bytes", "2GiB"]);
    daemon.sees(&first.key());
    let waiting = engine.run(&host, "waiting", &[], &["hold", "--alloc-bytes", "2GiB"]);
    daemon.row_where(&waiting.key(), |row| is_held(row, Means::Gate));
    daemon.kill();
    let all = [&held[0], &held[1], &first, &waiting];
    until_within(FREE_WITHIN, "nobody stands still", || {
        let is_free = |container: &&&Container| !has_ended(container) && container_stands_still(container);
        all.iter().find(is_free).is_none().then_some(())
    });
    for container in &held {
        let said = container.lines();
        until(&format!("{} goes on", container.name), || (container.lines() > said).then_some(()));
    }
}
