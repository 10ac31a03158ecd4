//! Holds as people see and make them: by the command line, with real cgroups and containers.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use berth_load::{Edge, Phase};
use berth_model::Change;
use berth_model::settings::PolicyName;
use berth_model::snapshot::HoldStage;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::held::{can_gate, explained, is_at};
use crate::support::{Cgroup, Daemon, Engine, Host, Nobody, Running, Tenant, run, until};

/// Not allowed; no such tenant.
const DENIED: i32 = 4;
const NO_TENANT: i32 = 5;

/// Computes for five seconds.
const PRODUCT: [&str; 2] = ["--size", "24000"];

/// Frozen, not only told to.
fn is_frozen(cgroup: &Cgroup) -> bool {
    let read = |file: &str| std::fs::read_to_string(cgroup.dir().join(file)).unwrap_or_default();
    read("freezer.state").trim() == "FROZEN" || read("cgroup.events").lines().any(|line| line == "frozen 1")
}

#[test]
fn a_person_holds_and_releases_without_any_policy() {
    let host = Host::start();
    let daemon = host.daemon();
    let tenant = host.holder("held", &[]);
    daemon.sees(&tenant.key());
    let name = tenant.cgroup.path();
    let told = daemon.berth(&["hold", name, "--reason", "demo at noon"]).ok();
    assert_eq!(told, format!("{name} is held, by freeze\n"));
    assert!(is_frozen(&tenant.cgroup));
    let ps = daemon.berth(&["ps", "--wide"]).ok();
    assert!(ps.contains("HOLD") && ps.contains("held ") && ps.contains("demo at noon"), "{ps}");
    let why = daemon.berth(&["explain", name]).ok();
    assert!(why.contains("by root, by freeze: demo at noon") && why.contains("held now"), "{why}");

    let told = daemon.berth(&["release", name]).ok();
    assert!(told.contains("is released"), "{told}");
    assert!(!is_frozen(&tenant.cgroup));
    daemon.row_where(&tenant.key(), |row| is_at(row, HoldStage::Exempt));
    daemon.berth(&["release", name, "--to-policy"]).ok();
    daemon.row_where(&tenant.key(), |row| row.hold.is_none());
    assert!(!daemon.berth(&["ps"]).ok().contains("HOLD"), "nobody is held, so nothing is shown of it");
    let history = explained(&daemon, name)["history"].clone();
    assert_eq!(history.as_array().map(Vec::len), Some(1), "{history}");
    assert_eq!(history[0]["released"]["by_uid"], 0);
}

#[test]
fn whom_nobody_knows_and_what_may_be_several_is_told_with_who_is_there() {
    let host = Host::start();
    let daemon = host.daemon();
    let parent = format!("/berth-e2e-{}-names", std::process::id());
    let groups = ["a/job", "b/job"].map(|name| Arc::new(Cgroup::at(&format!("{parent}-{name}"))));
    let tenants = groups.each_ref().map(|group| host.tenant_in(group, &["hold"]));
    for tenant in &tenants {
        daemon.sees(&tenant.key());
    }
    let several = daemon.berth(&["hold", "job"]);
    assert_eq!(several.code, NO_TENANT, "{several:?}");
    assert!(groups.iter().all(|group| several.stderr.contains(group.path())), "{several:?}");
    let nobody = daemon.berth(&["explain", "jbo"]);
    assert_eq!(nobody.code, NO_TENANT, "{nobody:?}");
    assert!(nobody.stderr.contains("`jbo`") && nobody.stderr.contains(groups[0].path()), "{nobody:?}");
}

#[test]
fn others_are_refused_and_owners_hold_their_own() {
    let host = Host::start();
    let nobody = Nobody::on(&host);
    let daemon = host.daemon_with("berth", |settings| settings.api.socket_mode = "0666".into());
    let roots = host.holder("roots", &[]);
    daemon.sees(&roots.key());
    let cgroup = Cgroup::make("own");
    let mut command = cgroup.command("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(host.file("bin/berth"));
    command.args(["load", "hold", "--library", &host.library("libcuda.so.1")]);
    let mut own = Running::start(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(host.log("own")));
    daemon.sees(&cgroup.key());

    let socket = daemon.settings.api.socket.to_str().unwrap();
    let asks = |args: &[&str]| run(&mut nobody.berth(&[&["--socket", socket], args].concat()));
    for args in [
        &["hold", roots.cgroup.path()][..],
        &["release", roots.cgroup.path()],
        &["policy", "set", "fifo"],
        &["policy", "set", "off", "--dry-run"],
    ] {
        let refused = asks(args);
        assert_eq!((refused.code, refused.stdout.as_str()), (DENIED, ""), "{args:?}: {refused:?}");
        assert!(refused.stderr.contains("root"), "{refused:?}");
    }
    assert!(!is_frozen(&roots.cgroup));
    asks(&["hold", cgroup.path()]).ok();
    assert!(is_frozen(&cgroup));
    assert_eq!(explained(&daemon, cgroup.path())["hold"]["by_uid"], 65_534);
    asks(&["release", cgroup.path()]).ok();
    assert!(!is_frozen(&cgroup));

    daemon.berth(&["hold", cgroup.path()]).ok();
    let refused = asks(&["release", cgroup.path()]);
    assert_eq!(refused.code, DENIED, "what root holds, root releases: {refused:?}");
    daemon.berth(&["release", "--all"]).ok();
    own.kill();
}

#[test]
fn a_socket_that_may_not_be_opened_is_told_as_such() {
    let host = Host::start();
    let nobody = Nobody::on(&host);
    let daemon = host.daemon();
    let refused = run(&mut nobody.berth(&["--socket", daemon.settings.api.socket.to_str().unwrap(), "hold", "x"]));
    assert_eq!(refused.code, DENIED, "{refused:?}");
    assert!(refused.stderr.contains("api.socket_group"), "{refused:?}");
}

/// The first computes, the second has come to its launch and waits there.
fn two_products(host: &Host, daemon: &Daemon) -> [Tenant; 2] {
    let first = host.tenant("first", &PRODUCT);
    first.reaches(Phase::Kernel);
    let second = host.tenant("second", &PRODUCT);
    daemon.row_where(&second.key(), |row| is_at(row, HoldStage::Held));
    [first, second]
}

#[test]
fn fifo_holds_the_second_of_two_products_and_explain_says_who_computes() {
    let host = Host::start();
    let daemon = host.daemon_with("berth", |settings| settings.hold.policy = PolicyName::Fifo);
    if !can_gate(&daemon, "fifo_holds_the_second_of_two_products_and_explain_says_who_computes") {
        return;
    }
    let [mut first, mut second] = two_products(&host, &daemon);
    let turn = daemon.berth(&["explain", first.cgroup.path()]).ok();
    let awaited = format!("free: it is its turn; `{}` waits for it", second.cgroup.path());
    assert!(turn.contains(&awaited), "{turn}");
    let why = daemon.berth(&["explain", second.cgroup.path()]).ok();
    let told = why.lines().next().unwrap_or_default();
    let expected = format!(" at its first launch: `{}` computes on GPU 0; next in line", first.cgroup.path());
    assert!(told.contains(": waiting ") && told.contains(&expected), "{why}");
    let holds: Value = daemon.try_get(berth_api::paths::HOLDS).unwrap();
    assert_eq!((&holds["policy"], &holds["queue"][0]["behind"]), (&"fifo".into(), &first.cgroup.path().into()));
    assert!(daemon.metrics().contains("berth_queue_length 1"), "{}", daemon.metrics());

    assert_eq!((first.wait(), second.wait()), (0, 0), "both finish");
    let (end, begin) = (first.phase(0, Phase::Kernel, Edge::End), second.phase(0, Phase::Kernel, Edge::End));
    assert!(end < begin, "the second ends after the first: {end:?} {begin:?}");
    assert!(daemon.metrics().contains("berth_holds_total{means=\"gate\"} 1"), "{}", daemon.metrics());
}

/// Their parents wait for stops as well as for ends, and would take one for a person's: the shell goes on without its child,
/// `su` stops itself and is never continued. Where the kernel cannot halt them unseen they are not gated at all.
#[test]
fn whose_parent_would_see_a_stop_is_halted_unseen_or_not_at_all() {
    let test = "whose_parent_would_see_a_stop_is_halted_unseen_or_not_at_all";
    let host = Host::start();
    let daemon = host.daemon_with("berth", |settings| settings.hold.policy = PolicyName::Fifo);
    if !can_gate(&daemon, test) {
        return;
    }
    let is_unseen = berth_host::probes::available().unwrap().unseen;
    let mut first = host.tenant("first", &PRODUCT);
    first.reaches(Phase::Kernel);
    let job = r#""$0" load --size 4000 --repeats 5 --library "$1" >/dev/null"#;
    let parents = [format!("set -m; {job} & fg %1"), format!("su root -s /bin/sh -c 'exec {job}' \"$0\" \"$1\"")];
    let groups: Vec<Cgroup> = (0..parents.len()).map(|n| Cgroup::make(&format!("parent-{n}"))).collect();
    let mut shells: Vec<Running> = (groups.iter().zip(&parents))
        .map(|(group, script)| {
            let library = host.library("libcuda.so.1");
            let mut shell = group.command("bash");
            shell.args(["-c", script, crate::support::BERTH, &library]);
            Running::start(shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()))
        })
        .collect();
    for group in &groups {
        let row =
            daemon.row_where(&group.key(), |row| row.task_id.is_some() && (!is_unseen || is_at(row, HoldStage::Held)));
        assert_eq!(is_at(&row, HoldStage::Held), is_unseen, "{row:?}");
        let means = explained(&daemon, group.path())["means"].clone();
        assert_eq!(means.as_array().unwrap().contains(&"gate".into()), is_unseen, "{means}");
    }
    assert_eq!(shells.iter_mut().map(Running::wait).collect::<Vec<_>>(), [0, 0], "they wait to its end");
    assert_eq!(first.wait(), 0);
}

/// Signals that continue a process undo a stop. There is none here to undo.
#[test]
fn a_tenant_that_is_sent_sigcont_all_the_time_does_not_pass_the_gate() {
    let test = "a_tenant_that_is_sent_sigcont_all_the_time_does_not_pass_the_gate";
    let host = Host::start();
    let daemon = host.daemon_with("berth", |settings| settings.hold.policy = PolicyName::Fifo);
    if !can_gate(&daemon, test) || !berth_host::probes::available().unwrap().unseen {
        return;
    }
    let mut first = host.tenant("first", &PRODUCT);
    first.reaches(Phase::Kernel);
    let mut second = host.tenant("second", &PRODUCT);
    let (pid, is_over) = (Pid::from_raw(second.pid().cast_signed()).unwrap(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                // It may have ended.
                let _ = kill_process(pid, Signal::CONT);
            }
        });
        daemon.row_where(&second.key(), |row| is_at(row, HoldStage::Held));
        assert_eq!(first.wait(), 0);
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(second.wait(), 0);
    let ends = [&first, &second].map(|tenant| tenant.phase(0, Phase::Kernel, Edge::End));
    assert!(ends[0] < ends[1], "the second computes after the first: {ends:?}");
    assert!(daemon.metrics().contains("berth_holds_total{means=\"gate\"} 1"), "{}", daemon.metrics());
}

/// A context takes a second here, so that all are there before the first has its own.
#[test]
fn of_seven_that_come_at_once_some_wait_before_their_contexts_and_all_finish() {
    let test = "of_seven_that_come_at_once_some_wait_before_their_contexts_and_all_finish";
    let host = Host::changed(&[("create_serial_ms = 118.0", "create_serial_ms = 1000.0")]);
    let daemon = host.daemon_with("berth", |settings| settings.hold.policy = PolicyName::Fifo);
    if !can_gate(&daemon, test) {
        return;
    }
    let events = daemon.events();
    let mut tenants: Vec<Tenant> = (1..=7).map(|n| host.tenant(&format!("t{n}"), &["--size", "1024"])).collect();
    let waiting = events.wait_for("one that waits before its context", |change| match change {
        Change::TenantHeld { tenant, reason, .. } if reason.contains("make their contexts") => Some(tenant.clone()),
        _ => None,
    });
    let row = daemon.row(&waiting).unwrap();
    assert_eq!(row.gpu_memory_bytes, None, "it has nothing on the GPU yet: {row:?}");
    assert!(tenants.iter_mut().all(|tenant| tenant.wait() == 0));
}

/// Its kernel runs on and ends; nobody waits for one who stands still by a person's word.
#[test]
fn whom_a_person_holds_gives_way_to_the_next_in_line() {
    let host = Host::start();
    let daemon = host.daemon_with("berth", |settings| settings.hold.policy = PolicyName::Fifo);
    if !can_gate(&daemon, "whom_a_person_holds_gives_way_to_the_next_in_line") {
        return;
    }
    let [mut first, mut second] = two_products(&host, &daemon);
    daemon.berth(&["hold", first.cgroup.path()]).ok();
    assert_eq!(second.wait(), 0, "it finishes while the first is held");
    assert!(first.is_running() && is_frozen(&first.cgroup));
    daemon.berth(&["release", first.cgroup.path()]).ok();
    assert_eq!(first.wait(), 0);
}

#[test]
fn switching_the_policy_off_releases_whom_it_holds_and_says_so() {
    let host = Host::start();
    let daemon = host.daemon_with("berth", |settings| settings.hold.policy = PolicyName::Fifo);
    if !can_gate(&daemon, "switching_the_policy_off_releases_whom_it_holds_and_says_so") {
        return;
    }
    let shown = daemon.berth(&["policy", "show"]).ok();
    assert!(shown.starts_with("fifo\n") && shown.contains("fifo.quantum = \"10s\""), "{shown}");
    let [_first, second] = two_products(&host, &daemon);
    let events = daemon.events();
    daemon.berth(&["policy", "set", "off"]).ok();
    daemon.row_where(&second.key(), |row| row.hold.is_none());
    assert!(!is_frozen(&second.cgroup));
    assert_eq!(daemon.berth(&["policy", "show"]).ok(), "off\n");
    let reason = events.wait_for("the release", |change| match change {
        Change::TenantReleased { tenant, reason, .. } if *tenant == second.key() => Some(reason.clone()),
        _ => None,
    });
    assert!(reason.contains("off"), "{reason}");
}

/// A frozen process cannot take a signal: whoever sends one is as good as whoever says release.
#[test]
fn whom_someone_tells_to_end_is_let_go_and_ends_by_itself() {
    let host = Host::start();
    let daemon = host.daemon();
    let mut tenant = host.holder("told-to-end", &[]);
    daemon.sees(&tenant.key());
    daemon.berth(&["hold", tenant.cgroup.path()]).ok();
    assert!(is_frozen(&tenant.cgroup));
    let events = daemon.events();
    tenant.signal(rustix::process::Signal::TERM);
    assert_eq!(tenant.wait(), 0, "it came to its own end");
    let reason = events.wait_for("the release", |change| match change {
        Change::TenantReleased { tenant: whom, reason, .. } if *whom == tenant.key() => Some(reason.clone()),
        _ => None,
    });
    assert_eq!(reason, "someone sent it SIGTERM");
}

#[test]
fn a_daemon_that_stops_releases_a_person_s_holds_too() {
    let host = Host::start();
    let mut daemon = host.daemon();
    let tenant = host.holder("held", &[]);
    daemon.sees(&tenant.key());
    daemon.berth(&["hold", tenant.cgroup.path()]).ok();
    assert!(is_frozen(&tenant.cgroup));
    let config = host.file("berth.toml");
    assert_eq!(daemon.stop(), 0);
    assert!(!is_frozen(&tenant.cgroup));
    let gone =
        run(Command::new(crate::support::BERTH).arg("--config").arg(config).args(["hold", tenant.cgroup.path()]));
    assert_eq!(gone.code, 1, "{gone:?}");
    assert!(gone.stderr.contains("no daemon listens on"), "{gone:?}");
}

#[test]
fn the_engine_shows_a_held_container_as_paused_and_its_unpause_is_a_person_s_word() {
    let test = "the_engine_shows_a_held_container_as_paused_and_its_unpause_is_a_person_s_word";
    let Some(engine) = Engine::for_test(test) else { return };
    let host = Host::start();
    let daemon = host.daemon_with("berth", |settings| {
        settings.docker.mode = berth_model::settings::Mode::Required;
        settings.docker.socket = engine.socket();
    });
    let container = engine.run(&host, "held", &[], &["hold"]);
    container.reaches(Phase::Hold);
    daemon.row_where(&container.key(), |row| row.container_name == container.name && row.task_id.is_some());
    daemon.berth(&["hold", &container.id[..12]]).ok();
    assert_eq!(container.says(".State.Status"), "paused");
    daemon.berth(&["release", &container.name]).ok();
    assert_eq!(container.says(".State.Status"), "running");

    daemon.berth(&["hold", &container.name]).ok();
    engine.docker(&["unpause", &container.id]).ok();
    daemon.row_where(&container.key(), |row| is_at(row, HoldStage::Exempt));
    assert_eq!(container.says(".State.Status"), "running");

    engine.docker(&["pause", &container.id]).ok();
    until("the pause to be known", || {
        let is_paused = explained(&daemon, &container.name)["is_paused_by_others"] == true;
        is_paused.then_some(())
    });
    let refused = daemon.berth(&["release", &container.name]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.stderr.contains("someone else has paused"), "{refused:?}");
    assert_eq!(container.says(".State.Status"), "paused", "what others paused stays paused");
    engine.docker(&["unpause", &container.id]).ok();
}
