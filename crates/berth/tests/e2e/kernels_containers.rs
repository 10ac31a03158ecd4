//! Containers that take part at the level of kernels, started by `berth run --kernel-level` on a real engine: the library itself, inside of them.

use std::path::PathBuf;
use std::process::Command;

use berth_model::control::SloStanding;
use berth_model::kernels::{KernelRole, KernelRow};
use berth_model::settings::Mode;

use crate::support::{BERTH, Container, Daemon, Engine, Host, Run, run, skip_unprepared, until};

/// What a server is fed: load until there is a file.
const SERVER: &str = "until [ -e /control/end ]; do echo go 50 1; sleep 1; done";

/// A host with an engine, a daemon that asks it, and the library.
struct Stage {
    engine: Engine,
    daemon: Daemon,
    host: Host,
    driver: String,
}

impl Stage {
    fn for_test(test: &str) -> Option<Self> {
        let engine = Engine::for_test(test)?;
        let library = PathBuf::from(BERTH).with_file_name("libberth_shim.so");
        if !library.exists() {
            skip_unprepared(test, "build berth-shim");
            return None;
        }
        let host = Host::start();
        let daemon = host.daemon_with("berth", |settings| {
            settings.docker.mode = Mode::Auto;
            settings.docker.socket = engine.socket();
            settings.kernels.enabled = true;
            settings.kernels.socket = host.file("clients/shim.sock");
            settings.kernels.library = library;
        });
        let driver = run(Command::new(BERTH).args(["sim", "env", "--docker", "--dir"]).arg(host.sim_dir())).ok();
        Some(Self { engine, daemon, host, driver })
    }

    /// `berth run` with these words behind it.
    fn run(&self, words: &[&str]) -> Run {
        let mut berth = Command::new(BERTH);
        berth.arg("--config").arg(self.host.file("berth.toml")).arg("run").args(words);
        run(berth.env("DOCKER_HOST", self.engine.address()).env_remove("DOCKER_CONTEXT"))
    }

    /// A program on the simulated GPU, which is fed by a shell until there is a file `end`.
    fn start(&self, name: &str, options: &[&str], role: &str, feed: &str) -> Container {
        let name = format!("berth-e2e-{}-{name}", std::process::id());
        let (program, control) = (format!("{BERTH}:/berth:ro"), format!("{}:/control:ro", self.host.dir().display()));
        let script = format!("({feed}) | /berth load {role}");
        let mut words = vec!["-d", "--network", "none", "--name", &name, "-v", &program, "-v", &control];
        words.extend(self.driver.split_whitespace());
        words.extend(options);
        words.extend([self.engine.image.as_str(), "sh", "-c", &script]);
        let mut container = self.engine.named(&name);
        self.run(&words).ok().trim().clone_into(&mut container.id);
        container
    }

    /// The service of the documentation's Compose file, by Compose itself, with what only a test needs in a second file.
    fn compose(&self, feed: &str) -> Container {
        let (_, text) =
            include_str!("../../../../docs/inside.md").split_once("**The label alone mounts nothing.**").unwrap();
        let (_, text) = text.split_once("```yaml\n").unwrap();
        let (file, _) = text.split_once("```").unwrap();
        let library = PathBuf::from(BERTH).with_file_name("libberth_shim.so");
        let here = |path: &str, host: &str| (format!("- {path}:"), format!("- {host}:"));
        let places = [
            here("/usr/lib/berth/libberth_shim.so", &library.display().to_string()),
            here("/run/berth/shim", &self.host.file("clients").display().to_string()),
        ];
        let file = places.iter().fold(file.to_owned(), |file, (from, to)| {
            assert!(file.contains(from), "{from} in {file}");
            file.replace(from, to)
        });
        let mut words = self.driver.split_whitespace();
        let (Some("-v"), Some(driver), Some("-e"), Some(variable)) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            panic!("{}", self.driver);
        };
        let (variable, value) = variable.split_once('=').unwrap();
        let volumes =
            [format!("{BERTH}:/berth:ro"), format!("{}:/control:ro", self.host.dir().display()), driver.into()];
        let name = format!("berth-e2e-{}-compose", std::process::id());
        let more = serde_json::json!({"services": {"server": {
            "container_name": name,
            "image": self.engine.image,
            "network_mode": "none",
            "command": ["sh", "-c", format!("({feed}) | /berth load serve").replace('$', "$$")],
            "environment": {variable: value},
            "volumes": volumes,
        }}});
        let files = [("compose.yaml", file), ("more.json", more.to_string())];
        let mut compose = Command::new("docker-compose");
        compose.args(["--project-name", &name]).env("DOCKER_HOST", self.engine.address());
        for (place, text) in files {
            std::fs::write(self.host.file(place), text).unwrap();
            compose.arg("--file").arg(self.host.file(place));
        }
        let mut container = self.engine.named(&name);
        run(compose.args(["up", "--detach", "--no-color"])).ok();
        container.id = container.says(".Id");
        container
    }

    fn server(&self, options: &[&str]) -> Container {
        self.start("server", options, "serve", SERVER)
    }

    fn trainer(&self, name: &str, options: &[&str]) -> Container {
        self.start(name, options, "train", "echo go; until [ -e /control/end ]; do sleep 1; done; echo enough")
    }

    fn end(&self, containers: &[&Container]) {
        std::fs::write(self.host.file("end"), "").unwrap();
        for container in containers {
            let ended = || container.says(".State.Status") == "exited";
            until(&format!("the end of {}", container.name), || ended().then_some(()));
            assert_eq!(container.says(".State.ExitCode"), "0", "{}", container.log());
        }
    }

    /// As `berth slo show` tells it.
    fn standing(&self, of: &Container) -> Option<SloStanding> {
        let told: Vec<SloStanding> = serde_json::from_str(&self.daemon.berth(&["slo", "show", "--json"]).ok()).unwrap();
        told.into_iter().find(|standing| standing.tenant == of.key())
    }

    fn row(&self, of: &Container, wanted: impl Fn(&KernelRow) -> bool) -> KernelRow {
        let row = || self.standing(of)?.rows.into_iter().find(|row| wanted(row));
        until(&format!("the row of {}", of.name), row)
    }
}

#[test]
fn a_server_with_a_goal_leads_a_trainer_and_the_image_stays_as_it_is() {
    let Some(stage) = Stage::for_test("a_server_with_a_goal_leads_a_trainer_and_the_image_stays") else { return };
    let image = || stage.engine.docker(&["image", "inspect", &stage.engine.image]).ok();
    let before = image();
    let server = stage.server(&["--kernel-level", "--label", "berth.slo.latency=p99:10ms"]);
    // It need not be root to read the library and reach the socket.
    let trainer = stage.trainer("trainer", &["--kernel-level", "--user", "4321:4321"]);
    let bystander = stage.trainer("bystander", &[]);

    let leads = stage.row(&server, |row| row.role == KernelRole::Leads);
    let yields = stage.row(&trainer, |row| row.role == KernelRole::Yields && row.counters.stops > 0);
    assert_eq!((leads.name.as_str(), &yields.yields_to[..]), (server.name.as_str(), &[server.name.clone()][..]));
    stage.daemon.row_where(&bystander.key(), |row| row.container_name == bystander.name && row.task_id.is_some());
    assert!(stage.standing(&bystander).is_none(), "it did not ask for it");

    for container in [&server, &trainer] {
        let mounts = container.says("range .Mounts}}{{.Destination}} {{.RW}}\n{{end");
        let ours: Vec<&str> = mounts.lines().filter(|mount| mount.starts_with("/run/berth/")).collect();
        assert!(ours.len() == 4 && ours.iter().all(|mount| mount.ends_with(" false")), "{mounts}");
    }
    assert_eq!(image(), before);
    stage.end(&[&server, &trainer, &bystander]);
    until("both to have left", || {
        let rows = stage.daemon.snapshot().kernels.map(|level| level.rows).unwrap_or_default();
        rows.is_empty().then_some(())
    });
}

#[test]
fn a_service_of_compose_takes_part_as_the_documentation_says() {
    let Some(stage) = Stage::for_test("a_service_of_compose_takes_part") else { return };
    if Command::new("docker-compose").arg("version").output().is_err() {
        return skip_unprepared("a_service_of_compose_takes_part", "no docker-compose (make test installs it)");
    }
    let server = stage.compose(SERVER);
    let trainer = stage.trainer("beside-compose", &["--kernel-level"]);
    let leads = stage.row(&server, |row| row.role == KernelRole::Leads);
    stage.row(&trainer, |row| row.role == KernelRole::Yields && row.counters.stops > 0);
    assert_eq!(leads.name, server.name);
    stage.end(&[&server, &trainer]);
}

#[test]
fn programs_without_cuda_and_libraries_of_their_own_are_as_they_were() {
    let Some(stage) = Stage::for_test("programs_without_cuda_and_libraries_of_their_own") else { return };
    // Made so that its environment shows what an image brings along.
    let image = format!("berth-e2e-{}-own", std::process::id());
    let container = stage.engine.run_shell(&stage.host, "own", &[], "true");
    container.docker(&["wait"]).ok();
    let own = "ENV LD_PRELOAD=/own.so";
    stage.engine.docker(&["commit", "--change", own, &container.id, &image]).ok();
    let shown = |words: &[&str]| {
        let script = "echo $LD_PRELOAD; cat /run/berth/lib64/libberth_shim.so | wc -c";
        let line = [&["--rm", "--network", "none", "--kernel-level"], words, &["sh", "-c", script]].concat();
        let told = stage.run(&line);
        assert!(told.stderr.is_empty(), "{told:?}");
        told.ok()
    };
    let library = PathBuf::from(BERTH).with_file_name("libberth_shim.so");
    let bytes = std::fs::metadata(library).unwrap().len();
    let ours = "/run/berth/$LIB/libberth_shim.so";
    assert_eq!(shown(&[&stage.engine.image]), format!("{ours}\n{bytes}\n"));
    assert_eq!(shown(&[&image]), format!("/own.so:{ours}\n{bytes}\n"));
    assert_eq!(shown(&["-e", "LD_PRELOAD=/mine.so", &image]), format!("/mine.so:{ours}\n{bytes}\n"));
    stage.engine.docker(&["rmi", "--force", &image]).ok();
}

#[test]
fn an_image_with_musl_is_started_without_the_library_and_it_is_told_why() {
    let Some(stage) = Stage::for_test("an_image_with_musl_is_started_without_the_library") else { return };
    let (image, root) = (format!("berth-e2e-{}-musl", std::process::id()), stage.host.file("root"));
    std::fs::create_dir_all(root.join("bin")).unwrap();
    std::fs::create_dir_all(root.join("lib")).unwrap();
    // Never called: the shell is a static program. What tells of musl is its loader's name.
    std::fs::write(root.join("lib/ld-musl-x86_64.so.1"), "").unwrap();
    let make = "cp $(command -v busybox) bin/sh && tar -c . | docker -H $E import - $I";
    let mut shell = Command::new("sh");
    shell.args(["-ec", make]).current_dir(&root).env("E", stage.engine.address()).env("I", &image);
    run(&mut shell).ok();
    let listed = || stage.engine.docker(&["ps", "--all", "--quiet", "--filter", &format!("ancestor={image}")]).ok();
    let script = "echo ${LD_PRELOAD-nothing}";
    let told = stage.run(&["--rm", "--network", "none", "--kernel-level", &image, "sh", "-c", script]);
    assert!(told.stderr.contains(&format!("{image} is made with musl")), "{told:?}");
    assert_eq!((told.code, told.stdout.as_str(), listed().as_str()), (0, "nothing\n", ""));
    stage.engine.docker(&["rmi", "--force", &image]).ok();
}
