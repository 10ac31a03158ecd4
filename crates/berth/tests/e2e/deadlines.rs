//! Deadlines as people set them and ask about them: who may, what counts, what outlives whom, and whether one more would be met.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use berth_model::deadline::Origin;
use berth_model::settings::Mode;
use berth_model::{Change, Settings};
use serde_json::{Value, json};

use crate::support::held::can_gate;
use crate::support::{BERTH, Cgroup, Daemon, Engine, Host, Nobody, Run, Running, run, until};

const KEPT: &str = "deadlines.v1.json";

/// What `berth deadline show NAME` says, as JSON.
fn shown(daemon: &Daemon, name: &str) -> Value {
    let told: Value = serde_json::from_str(&daemon.berth(&["deadline", "show", name, "--json"]).ok()).unwrap();
    told[0].clone()
}

fn kept(daemon: &Daemon) -> String {
    std::fs::read_to_string(daemon.settings.history.dir.join(KEPT)).unwrap_or_default()
}

fn killed_and_again(host: &Host, mut daemon: Daemon) -> Daemon {
    daemon.kill();
    host.daemon()
}

#[test]
fn what_is_set_cleared_or_reset_counts_at_once_and_for_the_next_daemon() {
    let host = Host::start();
    let mut daemon = host.daemon();
    let events = daemon.events();
    let tenant = host.holder("set", &[]);
    daemon.sees(&tenant.key());
    let name = tenant.cgroup.path();

    let told = daemon.berth(&["deadline", "set", name, "9"]).ok();
    assert_eq!(told, format!("{name}: 9s for the task, set by root, whatever its labels say\n"));
    let is_told = |change: &Change| matches!(change, Change::DeadlineChanged { deadline: Some(_), by_uid: 0, .. });
    until("the event", || events.all().iter().any(is_told).then_some(()));
    drop(events);
    for is_first in [true, false] {
        let row = daemon.row_where(&tenant.key(), |row| row.deadline.is_some()).deadline.unwrap();
        assert_eq!((row.deadline.to_string().as_str(), row.origin), ("9s", Origin::Set { by_uid: 0 }), "{is_first}");
        let standing = shown(&daemon, name);
        assert_eq!((&standing["is_durable"], &standing["given"]["by_uid"]), (&json!(true), &json!(0)), "{standing}");
        daemon = killed_and_again(&host, daemon);
    }

    let told = daemon.berth(&["deadline", "clear", name]).ok();
    assert_eq!(told, format!("{name}: no deadline, by the word of root\n"));
    daemon = killed_and_again(&host, daemon);
    daemon.sees(&tenant.key());
    assert_eq!(daemon.row(&tenant.key()).unwrap().deadline, None);
    let table = daemon.berth(&["deadline", "show"]).ok();
    assert!(table.contains("cleared by root") && table.contains(" none "), "{table}");

    assert_eq!(daemon.berth(&["deadline", "reset", name]).ok(), format!("{name}: no deadline\n"));
    daemon = killed_and_again(&host, daemon);
    let nobody = daemon.berth(&["deadline", "show"]);
    assert_eq!((nobody.code, nobody.stdout.as_str()), (0, ""), "{nobody:?}");
    assert!(nobody.stderr.contains("nobody has a deadline"), "{nobody:?}");
}

/// At instants that are spread over what a command takes.
#[test]
fn a_daemon_that_is_killed_while_it_writes_leaves_the_old_word_or_the_new_one_and_what_it_promised() {
    let host = Host::start();
    let mut daemon = host.daemon();
    let tenant = host.holder("killed", &[]);
    daemon.sees(&tenant.key());
    let (name, mut before) = (tenant.cgroup.path(), "1s".to_owned());
    daemon.berth(&["deadline", "set", name, &before]).ok();
    for turn in 2..10 {
        let new = format!("{turn}s");
        let mut asking = daemon.berth_meanwhile(&["deadline", "set", name, &new]);
        std::thread::sleep(Duration::from_millis(3 * turn));
        daemon.kill();
        let is_promised = asking.wait() == 0;
        daemon = host.daemon();
        daemon.sees(&tenant.key());
        let found = shown(&daemon, name)["counts"]["deadline"].as_str().unwrap().to_owned();
        assert!(found == new || (found == before && !is_promised), "{found}, not {before} or {new}: {is_promised}");
        before = found;
    }
}

#[test]
fn a_deadline_that_is_set_in_the_middle_of_a_task_counts_from_its_start() {
    let host = Host::start();
    let daemon = host.daemon();
    let tenant = host.holder("under-way", &[]);
    let row = daemon.sees(&tenant.key());
    daemon.berth(&["deadline", "set", tenant.cgroup.path(), "1h"]).ok();
    let deadline = daemon.row_where(&tenant.key(), |row| row.deadline.is_some()).deadline.unwrap();
    let (work, began) = (deadline.work.unwrap(), row.task_started_at.unwrap());
    let off = work.started_at.duration_since(began).as_secs_f64();
    assert!(off.abs() < 0.1, "{off}");
}

#[test]
fn strangers_are_refused_and_so_is_who_would_undo_what_root_has_set() {
    let host = Host::start();
    let daemon = host.daemon_with("berth", |settings| settings.api.socket_mode = "0666".into());
    let nobody = Nobody::on(&host);
    let socket = daemon.settings.api.socket.to_str().unwrap().to_owned();
    let asks = |args: &[&str]| run(&mut nobody.berth(&[&["--socket", socket.as_str(), "deadline"], args].concat()));
    let tenant = host.holder("theirs", &[]);
    daemon.sees(&tenant.key());
    let name = tenant.cgroup.path();
    for args in [&["set", name, "1ms"][..], &["clear", name], &["reset", name]] {
        let refused = asks(args);
        assert_eq!((refused.code, refused.stdout.as_str()), (4, ""), "{refused:?}");
        assert!(refused.stderr.contains("belongs to root"), "{refused:?}");
    }
    assert_eq!(kept(&daemon), "", "nothing was written");
    assert!(asks(&["show", name]).ok().ends_with("no deadline\n"), "anybody may see");
    assert_eq!(asks(&["set", "nobody-of-this-name", "9s"]).code, 5);

    let cgroup = Cgroup::make("own");
    let mut command = cgroup.command("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(host.file("bin/berth"));
    command.args(["load", "hold", "--library", &host.library("libcuda.so.1")]);
    let mut own = Running::start(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(host.log("own")));
    daemon.sees(&cgroup.key());
    assert!(asks(&["set", cgroup.path(), "9s"]).ok().contains("9s for the task, set by user 65534"));
    daemon.berth(&["deadline", "set", cgroup.path(), "2m"]).ok();
    let refused = asks(&["set", cgroup.path(), "1s"]);
    assert_eq!(refused.code, 4, "{refused:?}");
    assert!(refused.stderr.contains("user 0 has decided"), "{refused:?}");
    own.kill();
}

#[test]
fn bounds_hold_for_root_too_and_are_shown() {
    let host = Host::start();
    let daemon = host.daemon_with("berth", |settings| {
        settings.deadline.bounds = vec!["owner root 5s..1h".parse().unwrap()];
    });
    let tenant = host.holder("bounded", &[]);
    daemon.sees(&tenant.key());
    let name = tenant.cgroup.path();
    let told = daemon.berth(&["deadline", "set", name, "1ms"]).ok();
    assert!(told.contains("5s for the task, set by root") && told.contains("1ms was asked for"), "{told}");
    assert!(told.contains("`owner root 5s..1h`"), "{told}");
    let standing = shown(&daemon, name);
    assert_eq!((&standing["counts"]["deadline"], &standing["counts"]["asked"]), (&json!("5s"), &json!("1ms")));
    assert!(daemon.berth(&["deadline", "show"]).ok().contains("5s (not 1ms)"));
    assert!(kept(&daemon).contains("\"1ms\""), "what was said is kept: bounds may change");
}

#[test]
fn what_is_no_deadline_is_refused_as_a_wrong_command_line() {
    let host = Host::start();
    let daemon = host.daemon();
    for (text, why) in [("abc", "write seconds"), ("-1", "more than 0"), ("0", "more than 0"), ("9000h", "too long")] {
        let refused = daemon.berth(&["deadline", "set", "x", text]);
        assert!(refused.code == 2 && refused.stderr.contains(why), "{refused:?}");
    }
}

#[test]
fn a_file_that_is_damaged_or_of_later_is_left_alone_and_nothing_is_set() {
    let host = Host::start();
    let dir = host.settings("berth").history.dir;
    for text in ["{\"version\": 1, \"dead", "{\"version\": 2, \"deadlines\": {}}"] {
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join(KEPT), text).unwrap();
        let mut daemon = host.daemon();
        let tenant = host.holder("refused", &[]);
        daemon.sees(&tenant.key());
        let refused = daemon.berth(&["deadline", "set", tenant.cgroup.path(), "9s"]);
        assert!(refused.code == 1 && refused.stderr.contains(KEPT), "{refused:?}");
        assert_eq!(kept(&daemon), text);
        assert_eq!(daemon.stop(), 0);
    }
}

/// A file system of 64 KiB, gone with this.
struct Small(PathBuf);

impl Small {
    fn at(dir: PathBuf) -> Self {
        std::fs::create_dir_all(&dir).unwrap();
        run(Command::new("mount").args(["-t", "tmpfs", "-o", "size=64k", "berth-e2e"]).arg(&dir)).ok();
        Self(dir)
    }

    /// Until nothing more can be written.
    fn fill(&self) {
        let mut file = std::fs::File::create(self.0.join("filler")).unwrap();
        while std::io::Write::write_all(&mut file, &[0; 512]).is_ok() {}
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        run(Command::new("umount").arg("--lazy").arg(&self.0));
    }
}

#[test]
fn on_a_full_disk_nothing_changes_and_it_is_said() {
    let host = Host::start();
    let small = Small::at(host.settings("berth").history.dir);
    let daemon = host.daemon();
    let tenant = host.holder("full", &[]);
    daemon.sees(&tenant.key());
    let name = tenant.cgroup.path();
    daemon.berth(&["deadline", "set", name, "9s"]).ok();
    small.fill();
    let before = kept(&daemon);
    let refused = daemon.berth(&["deadline", "set", name, "5s"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.stderr.contains("stays as it was") && refused.stderr.contains("No space left"), "{refused:?}");
    assert_eq!((shown(&daemon, name)["counts"]["deadline"].as_str(), kept(&daemon)), (Some("9s"), before));
    std::fs::remove_file(small.0.join("filler")).unwrap();
    daemon.berth(&["deadline", "set", name, "5s"]).ok();
}

#[test]
fn where_nothing_is_written_down_it_is_said_how_long_it_counts() {
    let host = Host::start();
    let daemon = host.daemon_with("berth", |settings| settings.history.enabled = false);
    let tenant = host.holder("passing", &[]);
    daemon.sees(&tenant.key());
    let told = daemon.berth(&["deadline", "set", tenant.cgroup.path(), "9s"]).ok();
    assert!(told.contains("until the daemon ends") && told.contains("history.enabled"), "{told}");
    daemon.row_where(&tenant.key(), |row| row.deadline.is_some());
    assert!(!daemon.settings.history.dir.exists());
}

#[test]
fn where_nobody_can_be_held_deadlines_are_set_and_judged_all_the_same() {
    let host = Host::start();
    std::fs::write(host.file("in-the-way"), "").unwrap();
    let daemon = host.daemon_with("berth", |settings| settings.hold.journal = host.file("in-the-way/holds"));
    let mut tenant = host.holder("unheld", &[]);
    daemon.sees(&tenant.key());
    let name = tenant.cgroup.path().to_owned();
    assert!(daemon.berth(&["hold", &name]).stderr.contains("holds nobody"));
    daemon.berth(&["deadline", "set", &name, "1h"]).ok();
    daemon.row_where(&tenant.key(), |row| row.deadline.is_some());
    tenant.kill();
    let hits = || shown(&daemon, &name)["counts"]["tally"]["hits"].as_u64();
    until("the verdict", || hits().filter(|hits| *hits == 1));
    let told = daemon.berth(&["admit", "--deadline", "9s", "--takes", "1s"]).ok();
    assert!(told.contains("nobody is held here"), "{told}");
}

fn with_engine(host: &Host, engine: &Engine) -> Daemon {
    host.daemon_with("berth", |settings: &mut Settings| {
        (settings.docker.mode, settings.docker.socket) = (Mode::Required, engine.socket());
    })
}

/// A container that is removed when dropped, made but not started.
struct Made<'a>(&'a Engine, String);

impl Drop for Made<'_> {
    fn drop(&mut self) {
        self.0.docker(&["rm", "--force", &self.1]);
    }
}

#[test]
fn a_container_that_has_not_come_yet_can_be_given_a_deadline_which_goes_with_it() {
    let test = "a_container_that_has_not_come_yet_can_be_given_a_deadline_which_goes_with_it";
    let Some(engine) = Engine::for_test(test) else { return };
    let host = Host::start();
    let mut daemon = with_engine(&host, &engine);
    let name = format!("berth-e2e-{}-not-yet", std::process::id());
    let label = "berth.deadline=7s";
    engine.docker(&["create", "--name", &name, "--label", label, &engine.image, "sleep", "600"]).ok();
    let made = Made(&engine, name.clone());

    assert!(
        daemon.berth(&["deadline", "show", &name]).ok().contains("7s for the task, by its label; it is not on a GPU")
    );
    let told = daemon.berth(&["deadline", "set", &name, "9s"]).ok();
    assert!(told.contains(&format!("{name}: 9s for the task, set by root")) && told.contains("not on a GPU"), "{told}");
    daemon.kill();
    daemon = with_engine(&host, &engine);
    let standing = until("the container's labels", || {
        Some(shown(&daemon, &name)).filter(|standing| !standing["counts"].is_null())
    });
    assert_eq!((&standing["name"], &standing["counts"]["from"]), (&json!(name), &json!("set")), "{standing}");
    assert!(daemon.berth(&["deadline", "reset", &name]).ok().contains("7s for the task, by its label"));

    daemon.berth(&["deadline", "clear", &name]).ok();
    drop(made);
    until("it to be forgotten", || (!kept(&daemon).contains(&name)).then_some(()));
    assert_eq!(daemon.berth(&["deadline", "show", &name]).code, 5);
}

#[test]
fn what_is_set_goes_before_the_label_of_a_container_and_is_forgotten_with_it() {
    let test = "what_is_set_goes_before_the_label_of_a_container_and_is_forgotten_with_it";
    let Some(engine) = Engine::for_test(test) else { return };
    let host = Host::start();
    let mut daemon = with_engine(&host, &engine);
    let container = engine.run(&host, "labelled", &["--label", "berth.deadline=7s"], &["hold"]);
    let deadline = |daemon: &Daemon| {
        let row =
            daemon.row_where(&container.key(), |row| row.container_name == container.name && row.task_id.is_some());
        row.deadline.map(|row| (row.deadline.to_string(), row.origin))
    };
    assert_eq!(deadline(&daemon), Some(("7s".into(), Origin::Label)));
    daemon.berth(&["deadline", "clear", &container.id[..12]]).ok();
    assert_eq!(deadline(&daemon), None);
    daemon.berth(&["deadline", "set", &container.name, "2h"]).ok();
    assert_eq!(deadline(&daemon), Some(("2h".into(), Origin::Set { by_uid: 0 })));
    daemon.kill();
    let name = container.name.clone();
    container.remove();
    daemon = with_engine(&host, &engine);
    until("one that was removed meanwhile to be forgotten", || (!kept(&daemon).contains(&name)).then_some(()));
}

/// The same program with the same arguments each time: where it writes is no argument.
fn product(host: &Host, cgroup: &Cgroup, size: &str) -> Running {
    let mut command = cgroup.command(BERTH);
    command.args(["load", "--size", size, "--library", &host.library("libcuda.so.1")]).stdin(Stdio::null());
    Running::start(command.stdout(Stdio::null()).stderr(Stdio::null()))
}

fn admits(daemon: &Daemon, args: &[&str]) -> (i32, Value) {
    let Run { code, stdout, stderr } = daemon.berth(&[&["admit", "--json"], args].concat());
    (code, serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}{stderr}")))
}

#[test]
fn whether_one_more_fits_is_told_from_what_the_like_took_and_who_is_there() {
    let host = Host::start();
    let daemon = host.daemon();
    if !can_gate(&daemon, "whether_one_more_fits_is_told_from_what_the_like_took_and_who_is_there") {
        return;
    }
    // Computes for some two seconds.
    let size = "18000";
    let (mut command, cgroup) = (String::new(), Cgroup::make("like"));
    for _ in 0..3 {
        let mut one = product(&host, &cgroup, size);
        let row = daemon.sees(&cgroup.key());
        daemon.berth(&["deadline", "set", cgroup.path(), "1m"]).ok();
        command = row.command;
        assert_eq!(one.wait(), 0);
        daemon.sees_nothing_of(&cgroup.key());
    }
    let like = |deadline: &'static str| ["--deadline", deadline, "--command", &command].map(str::to_owned);
    let asked = |args: &[String]| admits(&daemon, &args.iter().map(String::as_str).collect::<Vec<_>>());
    let (code, told) = asked(&like("1m"));
    let takes = told["takes"]["median_seconds"].as_f64().unwrap();
    assert_eq!((code, &told["fits"], &told["takes"]["units"]), (0, &json!("yes"), &json!(3)), "{told}");
    assert!((0.3..20.0).contains(&takes), "{told}");
    let spare = 60.0 - told["run"]["p90_seconds"].as_f64().unwrap();
    assert!((told["spare_seconds"].as_f64().unwrap() - spare).abs() < 1e-6, "{told}");
    assert_eq!(asked(&like("10ms")).0, 6, "it takes longer by itself");
    let (code, told) = admits(&daemon, &["--deadline", "1m", "--command", "never seen"]);
    assert_eq!((code, &told["fits"], &told["takes"]), (7, &json!("unknown"), &Value::Null), "{told}");

    let stranger = host.holder("stranger", &["--device", "0"]);
    daemon.sees(&stranger.key());
    daemon.berth(&["deadline", "set", stranger.cgroup.path(), "2m"]).ok();
    let (code, told) = admits(&daemon, &["--deadline", "9s", "--takes", "3s", "--gpu", "0"]);
    assert_eq!((code, &told["gpus"][0]["unknown"]), (7, &json!([stranger.cgroup.path()])), "{told}");
    let (code, told) = admits(&daemon, &["--deadline", "9s", "--takes", "3s"]);
    assert_eq!((code, &told["gpu"]), (0, &json!(1)), "nobody is on the other: {told}");
    let text = daemon.berth(&["admit", "--deadline", "9s", "--takes", "10s"]);
    assert_eq!(text.code, 6, "{text:?}");
    assert!(text.stdout.starts_with("no: ") && text.stdout.contains("alone it would be 1.0s late"), "{text:?}");
    assert_eq!(daemon.berth(&["admit", "--deadline", "9s", "--takes", "1s", "--gpu", "7"]).code, 1);
    assert_eq!(daemon.berth(&["admit", "--deadline", "9s"]).code, 2, "of what?");
}

#[test]
fn a_unit_under_way_takes_the_time_another_would_need() {
    let host = Host::start();
    let daemon = host.daemon();
    if !can_gate(&daemon, "a_unit_under_way_takes_the_time_another_would_need") {
        return;
    }
    // Computes for some ten seconds, on the first GPU.
    let (size, cgroup) = ("30000", Cgroup::make("under-way"));
    let mut first = product(&host, &cgroup, size);
    daemon.sees(&cgroup.key());
    daemon.berth(&["deadline", "set", cgroup.path(), "1m"]).ok();
    assert_eq!(first.wait(), 0);
    daemon.sees_nothing_of(&cgroup.key());
    let mut second = product(&host, &cgroup, size);
    let deadline = |row: &berth_model::TaskRow| row.deadline.as_ref().is_some_and(|row| row.work.is_some());
    let takes = daemon.row_where(&cgroup.key(), deadline).deadline.unwrap().takes.unwrap().median_seconds;
    let asks = |deadline: f64, takes: f64| {
        let [deadline, takes] = [deadline, takes].map(|seconds| format!("{seconds:.3}"));
        admits(&daemon, &["--deadline", &deadline, "--takes", &takes, "--gpu", "0"])
    };
    let (code, told) = asks(70.0, 70.0 - takes / 4.0);
    assert_eq!(code, 6, "what is left of the other is due before: {told}");
    assert_eq!(told["gpus"][0]["before"][0]["name"], cgroup.path(), "{told}");
    let (code, told) = asks(70.0, 40.0);
    assert_eq!(code, 0, "{told}");
    let (code, told) = asks(50.0, 49.9);
    assert_eq!((code, &told["gpus"][0]["endangered"]), (6, &json!([cgroup.path()])), "it would come too late: {told}");
    second.kill();
}
