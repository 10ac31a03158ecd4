//! What the settings and labels say about holding, on real tenants: dry runs, exemptions, gangs, and those who have left.

use berth_load::Phase;
use berth_model::settings::{Mode, PolicyName};
use berth_model::snapshot::HoldStage;
use berth_model::{GpuIndex, TaskRow};

use crate::support::held::{can_gate, explained, is_at};
use crate::support::{Engine, Host, Nobody, run, until};

/// Computes for five seconds.
const PRODUCT: [&str; 2] = ["--size", "24000"];

#[test]
fn a_dry_run_says_once_what_it_would_do_and_does_nothing() {
    let host = Host::start();
    let daemon = host.daemon_with("berth", |settings| {
        (settings.hold.policy, settings.hold.dry_run) = (PolicyName::Fifo, true);
    });
    if !can_gate(&daemon, "a_dry_run_says_once_what_it_would_do_and_does_nothing") {
        return;
    }
    let events = daemon.events();
    let mut first = host.tenant("first", &PRODUCT);
    first.reaches(Phase::Kernel);
    let mut second = host.tenant("second", &PRODUCT);
    let row = daemon.row_where(&second.key(), |row| is_at(row, HoldStage::WouldHold));
    assert_eq!(row.held_seconds, Some(0.0), "{row:?}");
    let why = daemon.berth(&["explain", second.cgroup.path()]).ok();
    let expected = format!("dry run): `{}` computes on GPU 0; next in line", first.cgroup.path());
    assert!(why.contains("runs, and would wait") && why.contains(&expected), "{why}");
    let ps = daemon.berth(&["ps", "--wide"]).ok();
    assert!(ps.contains("dry held") && ps.contains("Queue (1, policy fifo, dry run)"), "{ps}");
    assert!(daemon.metrics().contains("berth_tenants_would_be_held 1"), "{}", daemon.metrics());

    assert_eq!((first.wait(), second.wait()), (0, 0));
    events.ended(&second.key(), 1);
    let told = |kind: &str| events.all().iter().filter(|change| change.kind() == kind).count();
    until("the would-be release", || (told("tenant_would_be_released") > 0).then_some(()));
    assert_eq!((told("tenant_would_be_held"), told("tenant_would_be_released")), (1, 1), "{:?}", events.all());
    assert_eq!((told("tenant_held"), told("tenant_released"), told("hold_failed")), (0, 0, 0), "{:?}", events.all());
}

#[test]
fn a_dry_run_in_earnest_holds_and_back_again_releases() {
    let host = Host::start();
    let daemon = host.daemon_with("berth", |settings| settings.hold.policy = PolicyName::Fifo);
    if !can_gate(&daemon, "a_dry_run_in_earnest_holds_and_back_again_releases") {
        return;
    }
    let first = host.tenant("first", &PRODUCT);
    first.reaches(Phase::Kernel);
    let mut second = host.tenant("second", &PRODUCT);
    daemon.row_where(&second.key(), |row| is_at(row, HoldStage::Held));
    let told = daemon.berth(&["policy", "set", "fifo", "--dry-run"]).ok();
    assert!(told.starts_with("fifo (dry run: it only says what it would do) decides now"), "{told}");
    daemon.row_where(&second.key(), |row| !is_at(row, HoldStage::Held));
    assert!(daemon.berth(&["policy", "show"]).ok().starts_with("fifo (dry run"));
    let told = daemon.berth(&["policy", "set", "fifo", "--dry-run=false"]).ok();
    assert!(told.starts_with("fifo decides now"), "{told}");
    assert_eq!(second.wait(), 0);
}

#[test]
fn whom_the_settings_exempt_runs_beside_others_and_is_told_which_rule_says_so() {
    let host = Host::start();
    let daemon = host.daemon_with("berth", |settings| {
        settings.hold.policy = PolicyName::Fifo;
        settings.hold.never_names = vec!["*-exempt".into()];
    });
    if !can_gate(&daemon, "whom_the_settings_exempt_runs_beside_others_and_is_told_which_rule_says_so") {
        return;
    }
    let first = host.tenant("first", &PRODUCT);
    first.reaches(Phase::Kernel);
    let mut exempt = host.tenant("exempt", &PRODUCT);
    daemon.row_where(&exempt.key(), |row| is_at(row, HoldStage::Exempt));
    exempt.reaches(Phase::Kernel);
    let why = daemon.berth(&["explain", exempt.cgroup.path()]).ok();
    assert!(why.contains(": runs, and policies leave it alone: `hold.never_names` lists `*-exempt`"), "{why}");
    assert!(daemon.berth(&["ps", "--wide"]).ok().contains("`hold.never_names` lists `*-exempt`"));
    assert_eq!(exempt.wait(), 0);
    let events = explained(&daemon, exempt.cgroup.path());
    assert_eq!(events["has_left"], true, "{events}");
}

#[test]
fn one_who_waited_and_left_is_explained_by_the_next_daemon_too() {
    let host = Host::start();
    let hold = |settings: &mut berth_model::Settings| settings.hold.policy = PolicyName::Fifo;
    let mut daemon = host.daemon_with("berth", hold);
    if !can_gate(&daemon, "one_who_waited_and_left_is_explained_by_the_next_daemon_too") {
        return;
    }
    let events = daemon.events();
    let mut first = host.tenant("first", &PRODUCT);
    first.reaches(Phase::Kernel);
    let mut second = host.tenant("second", &PRODUCT);
    assert_eq!((first.wait(), second.wait()), (0, 0));
    events.ended(&second.key(), 1);
    drop(events);
    let because = format!("`{}` computes on GPU 0", first.cgroup.path());
    let is_told = |why: &str| why.contains(": left ") && why.contains(", held for ") && why.contains(&because);
    let why = daemon.berth(&["explain", second.cgroup.path()]).ok();
    assert!(is_told(&why), "{why}");
    daemon.stop();
    let daemon = host.daemon_with("berth", hold);
    let why = daemon.berth(&["explain", second.cgroup.path()]).ok();
    assert!(is_told(&why), "by the next daemon: {why}");
}

#[test]
fn containers_of_a_compose_project_on_gpus_of_their_own_wait_together() {
    let test = "containers_of_a_compose_project_on_gpus_of_their_own_wait_together";
    let Some(engine) = Engine::for_test(test) else { return };
    let host = Host::start();
    let daemon = host.daemon_with("berth", |settings| {
        (settings.docker.mode, settings.docker.socket) = (Mode::Required, engine.socket());
        settings.hold.policy = PolicyName::Fifo;
    });
    if !can_gate(&daemon, test) {
        return;
    }
    let rival = engine.run(&host, "rival", &[], &PRODUCT);
    rival.reaches(Phase::Kernel);
    let rank = |name: &str, gpu: &str| {
        let label = ["--label", "com.docker.compose.project=llm"];
        engine.run(&host, name, &label, &["--size", "24000", "--device", gpu])
    };
    let [first, second] = [rank("rank0", "0"), rank("rank1", "1")];
    let waits = |row: &TaskRow| is_at(row, HoldStage::Held) || is_at(row, HoldStage::Gated);
    daemon.row_where(&first.key(), |row| row.gpu_index == Some(GpuIndex(0)) && waits(row));
    let row = daemon.row_where(&second.key(), |row| row.gpu_index == Some(GpuIndex(1)) && waits(row));
    let reason = row.hold.map(|hold| hold.reason).unwrap_or_default();
    assert!(reason.contains(&rival.name), "nobody is on its GPU but itself: {reason}");
    assert_eq!(explained(&daemon, &second.name)["gang_with"], serde_json::json!([first.name]));
}

/// Containers of many people run as root: whose they are, labels say.
#[test]
fn owners_named_by_labels_are_exempt_by_name_and_by_user_id_only_where_no_label_names_them() {
    let test = "owners_named_by_labels_are_exempt_by_name_and_by_user_id_only_where_no_label_names_them";
    let Some(engine) = Engine::for_test(test) else { return };
    let host = Host::start();
    let daemon = host.daemon_with("berth", |settings| {
        (settings.docker.mode, settings.docker.socket) = (Mode::Required, engine.socket());
        settings.hold.policy = PolicyName::Fifo;
        settings.hold.never_owners = vec!["ada".into(), "0".into()];
    });
    let run = |name: &str, labels: &[&str]| {
        let container = engine.run(&host, name, labels, &["hold"]);
        container.reaches(Phase::Hold);
        container
    };
    let never = ["--label", "berth.hold=never", "--label", "berth.owner=eve"];
    let [adas, eves, unlabelled, never] = [
        run("adas", &["--label", "berth.owner=ada"]),
        run("eves", &["--label", "berth.owner=eve"]),
        run("unlabelled", &[]),
        run("never", &never),
    ];
    for (container, why) in [
        (&adas, "`hold.never_owners` lists `ada`"),
        (&unlabelled, "`hold.never_owners` lists `0`"),
        (&never, "its label says `berth.hold=never`"),
    ] {
        let row = daemon.row_where(&container.key(), |row| is_at(row, HoldStage::Exempt));
        assert_eq!(row.hold.map(|hold| hold.reason).as_deref(), Some(why));
    }
    let row = daemon.row_where(&eves.key(), |row| row.container_name == eves.name);
    assert!(!is_at(&row, HoldStage::Exempt), "{row:?}");
}

#[test]
fn a_dry_run_is_the_administrator_s() {
    let host = Host::start();
    let daemon = host.daemon_with("berth", |settings| settings.api.socket_mode = "0666".into());
    let nobody = Nobody::on(&host);
    let socket = daemon.settings.api.socket.to_str().unwrap().to_owned();
    let asks = |args: &[&str]| run(&mut nobody.berth(&[&["--socket", socket.as_str()], args].concat()));
    let refused = asks(&["policy", "set", "off", "--dry-run"]);
    assert_eq!(refused.code, 4, "{refused:?}");
    assert!(asks(&["policy", "show"]).ok().starts_with("off\n"), "anybody may see who decides");
}
