//! berth as `docker`: the stand-in beside the docker client, on a real engine; and as a plugin of the client.

mod lines;
mod sides;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use berth_model::settings::Mode;

use crate::support::{BERTH, Cgroups, Engine, Host, OwnEngine, run, skip_unprepared};
use lines::{Line, lines};
use sides::{Sides, client};

/// How many lines are tried at a time: they mostly wait for the engine.
const AT_A_TIME: usize = 4;

/// An engine of the test's own: what it lists is what the test has made.
fn own_engine(test: &str) -> Option<OwnEngine> {
    let own = OwnEngine::start(&Engine::for_test(test)?, Cgroups::OfTheMachine, &[]);
    if own.is_none() {
        skip_unprepared(test, "no engine of its own can be started");
    }
    own
}

/// Each line on its own, several at a time; what did not go as expected.
fn tried(sides: &Sides, lines: &[(usize, &Line)], at_a_time: usize) -> Vec<String> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut wrong = Vec::new();
        while let Some((number, line)) = lines.get(next.fetch_add(1, Ordering::Relaxed)) {
            wrong.extend(sides.complaint(*number, line).map(|told| format!("{}\n{told}", line.text)));
        }
        wrong
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..at_a_time).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    })
}

#[test]
fn command_lines_do_what_they_do_with_the_client_but_for_deadlines() {
    let Some(own) = own_engine("command_lines_do_what_they_do_with_the_client") else { return };
    let sides = Sides::new(own.engine());
    let lines = lines();
    assert!(lines.len() >= 150, "only {} lines", lines.len());
    // Lists and refusals look at all containers of the engine: nothing else may come and go meanwhile.
    let (alone, together): (Vec<_>, Vec<_>) = lines.iter().enumerate().partition(|(_, line)| line.is_alone());
    let mut wrong = tried(&sides, &together, AT_A_TIME);
    sides.make_listed();
    wrong.extend(tried(&sides, &alone, 1));
    assert!(wrong.is_empty(), "{} of {} lines went wrong:\n\n{}", wrong.len(), lines.len(), wrong.join("\n\n"));
}

/// The two screens of the paper: the container's configuration on disk, and the list with its column.
#[test]
fn a_deadline_is_in_the_engines_configuration_and_in_the_list_and_survives_the_engine() {
    let Some(mut own) = own_engine("a_deadline_is_in_the_engines_configuration") else { return };
    let sides = Sides::new(own.engine());
    let image = own.engine().image.clone();
    let id = sides.stand_in(&format!("docker create -dl 9 --name solver {image}")).ok();
    sides.stand_in(&format!("docker run -dl 2m --name ran --net none {image} true")).ok();
    sides.stand_in(&format!("docker create --name free {image}")).ok();

    let config = own.data_root().join("containers").join(id.trim()).join("config.v2.json");
    let config: serde_json::Value = serde_json::from_str(&fs::read_to_string(config).unwrap()).unwrap();
    assert_eq!(config["Config"]["Labels"]["berth.deadline"], "9");

    let deadlines = || {
        let told = sides.stand_in("docker ps --all").ok();
        let mut rows = told.lines().map(|row| row.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(rows.next().and_then(|mut header| header.pop()).as_deref(), Some("DEADLINES"), "{told}");
        let mut ends: Vec<String> = rows.map(|row| row[row.len().saturating_sub(2)..].join(" ")).collect();
        ends.sort();
        ends
    };
    assert_eq!(deadlines(), ["Created free", "ran 2m", "solver 9"]);
    own.bring_down();
    own.bring_up();
    assert_eq!(deadlines(), ["Created free", "ran 2m", "solver 9"]);
}

#[test]
fn the_label_that_stock_docker_makes_of_the_flag_is_listed_where_it_can_be_one() {
    let Some(engine) = Engine::for_test("the_label_that_stock_docker_makes_of_the_flag") else { return };
    let sides = Sides::new(&engine);
    for (number, (labels, shown)) in [
        ("-l 9", "9"),
        ("-l 1500ms -l a=b,c -l x", "1500ms"),
        ("-l 1.5 -l v1 -l m5 -l 9=5 -l 0", "1.5"),
        ("-l 9 -l 10", ""),
        ("-l 9 -l berth.deadline=2m", "2m"),
        ("-l s3 -l 9x -l 0s -l s= -l 9s5", ""),
        ("-l berth.deadline=123456789012345678901", "12345678901234567890..."),
        ("-l 000000000000000000009", "00000000000000000000..."),
        ("-l berth.deadline=soon", "soon"),
        (r#"-l "berth.deadline=$(printf 'a\033[2J\nb')""#, r#""a\x1b[2J\nb""#),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("berth-e2e-{}-stock-{number}", std::process::id());
        sides.client(&format!("docker create --name {name} {labels} {}", engine.image)).ok();
        let row = sides.stand_in(&format!("docker ps --all --filter name={name}")).ok();
        sides.client(&format!("docker rm {name}")).ok();
        let cell = row.lines().nth(1).and_then(|row| row.split_once(&name)).map(|(_, cell)| cell.trim().to_owned());
        assert_eq!(cell.as_deref(), Some(shown), "{labels}: {row}");
    }
}

#[test]
fn a_deadline_that_was_set_later_is_listed_as_such() {
    let Some(engine) = Engine::for_test("a_deadline_that_was_set_later_is_listed_as_such") else { return };
    let (host, sides) = (Host::start(), Sides::new(&engine));
    let daemon = host.daemon_with("berth", |settings| {
        settings.docker.mode = Mode::Auto;
        settings.docker.socket = engine.socket();
        settings.history.enabled = true;
    });
    let container = engine.run(&host, "set", &["--label", "berth.deadline=9"], &["hold"]);
    daemon.row_where(&container.key(), |row| row.container_name == container.name);
    let listed = |flags: &str| {
        let socket = daemon.settings.api.socket.display();
        let told =
            sides.stand_in(&format!("BERTH_SOCKET={socket} docker ps {flags} --filter name={}", container.name)).ok();
        told.lines().nth(1).and_then(|row| row.split_once(&container.name)).unwrap().1.trim().to_owned()
    };
    assert_eq!(listed(""), "9");
    daemon.berth(&["deadline", "set", &container.name, "12s"]).ok();
    assert_eq!((listed(""), listed("--no-trunc")), ("12s (set)".into(), "12s (set)".into()));
    daemon.berth(&["deadline", "clear", &container.name]).ok();
    assert_eq!(listed(""), "- (cleared)");
    daemon.berth(&["deadline", "reset", &container.name]).ok();
    assert_eq!(listed(""), "9");
}

#[test]
fn the_plugin_is_listed_and_makes_containers_with_deadlines() {
    let Some(engine) = Engine::for_test("the_plugin_is_listed_and_makes_containers_with_deadlines") else { return };
    let sides = Sides::new(&engine);
    let plugins = sides.home().join(".docker/cli-plugins");
    let installed =
        format!("{BERTH} docker-shim install --dir {} --plugin-dir {}", sides.home().display(), plugins.display());
    sides.client(&installed).ok();
    assert!(sides.client("docker info").stdout.contains("berth"), "{}", sides.client("docker info").stdout);
    assert!(sides.client("docker --help").ok().contains("berth*"));
    for help in ["docker berth", "docker berth --help", "docker help berth"] {
        assert!(sides.client(help).ok().contains("docker berth run --deadline 9s"), "{help}");
    }
    let unknown = sides.client("docker berth rm x");
    assert_eq!((unknown.code, unknown.stdout.as_str()), (1, ""), "{unknown:?}");
    assert!(unknown.stderr.contains("docker berth rm"), "{unknown:?}");

    let name = format!("berth-e2e-{}-plugin", std::process::id());
    let (image, address) = (&engine.image, engine.address());
    let label = |by: &str| {
        sides.client(&by.replace("NAME", &name)).ok();
        let label = sides.client(&format!("docker inspect --format '{{{{json .Config.Labels}}}}' {name}")).ok();
        sides.client(&format!("docker rm {name}")).ok();
        label.trim().to_owned()
    };
    let expected = r#"{"berth.deadline":"9s"}"#;
    assert_eq!(label(&format!("docker berth create --deadline 9s --name NAME {image}")), expected);
    assert_eq!(label(&format!("docker berth run -dl 9s --name NAME --net none {image} true")), expected);
    assert_eq!(
        label(&format!("unset DOCKER_HOST; docker -H {address} berth create -dl 9s --name NAME {image}")),
        expected,
        "the client's global flags are handed on"
    );
    let refused = sides.client(&format!("docker berth run -dl abc {image}"));
    assert_eq!(refused.code, 125, "{refused:?}");
    assert!(refused.stderr.contains("Run 'docker berth run --help'"), "{refused:?}");
    assert_eq!(sides.client(&format!("docker berth run --net none --rm {image} sh -c 'exit 7'")).code, 7);
    let header = sides.client("docker berth ps").ok();
    assert!(header.lines().next().unwrap().ends_with("DEADLINES"), "{header}");
}

#[test]
fn a_stand_in_without_a_client_says_so_and_never_calls_itself() {
    let dir = tempfile::tempdir().unwrap();
    let bin = dir.path().join("bin");
    fs::create_dir(&bin).unwrap();
    symlink(BERTH, bin.join("docker")).unwrap();
    let called = |name: &str, path: &Path| {
        let mut command = std::process::Command::new(bin.join("docker"));
        run(command.arg("version").env(name, path))
    };
    let itself = called("BERTH_DOCKER", &bin.join("docker"));
    assert_eq!(itself.code, 127, "{itself:?}");
    assert!(itself.stderr.starts_with("docker: ") && itself.stderr.contains("BERTH_DOCKER"), "{itself:?}");
    assert_eq!(called("BERTH_DOCKER", &dir.path().join("nothing")).code, 127);

    // A script that is called docker and calls docker: in a circle, unless somebody counts.
    let script = dir.path().join("script");
    fs::write(&script, format!("#!/bin/sh\nexec {}/docker \"$@\"\n", bin.display())).unwrap();
    run(std::process::Command::new("chmod").arg("+x").arg(&script)).ok();
    let circle = called("BERTH_DOCKER", &script);
    assert_eq!(circle.code, 127, "{circle:?}");
    assert!(circle.stderr.contains("leads back"), "{circle:?}");
}

#[test]
fn an_installed_stand_in_is_found_first_and_finds_the_client() {
    let Some(client) = client() else {
        return skip_unprepared("an_installed_stand_in_is_found_first", "there is no docker client");
    };
    let dir = tempfile::tempdir().unwrap();
    let (bin, plugins) = (dir.path().join("bin"), dir.path().join("plugins"));
    let path = format!("{}:{}", bin.display(), client.parent().unwrap().display());
    let shell = |line: &str| run(std::process::Command::new("/bin/sh").args(["-c", line]).env("PATH", &path));
    let shim = |action: &str| {
        shell(&format!("{BERTH} docker-shim {action} --dir {} --plugin-dir {}", bin.display(), plugins.display()))
    };
    let installed = shim("install");
    assert!(installed.stderr.contains("hash -r"), "it is found first: {installed:?}");
    assert!(installed.ok().contains("bin/docker -> "));
    assert!(shell("command -v docker").ok().starts_with(bin.to_str().unwrap()));
    let version = shell("docker --version");
    assert_eq!(version.ok(), run(std::process::Command::new(&client).arg("--version")).ok());
    assert!(shell("docker run --help").ok().contains("--deadline"));
    shim("remove").ok();
    assert!(!shell("docker run --help").ok().contains("--deadline"));

    symlink(&client, bin.join("docker")).unwrap();
    let refused = shim("install");
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.stderr.contains("is not berth's"), "{refused:?}");
    assert!(fs::symlink_metadata(plugins.join("docker-berth")).is_err());
}
