//! A swarm of three nodes on this machine (`scripts/swarm.sh`), each with a daemon and a simulated GPU of 141 GiB of its own.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::support::{BERTH, Run, run, skip, until, until_within};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/swarm.sh");
/// Nobody listens at its registry: no worker waits for an answer from there.
const IMAGE: &str = "127.0.0.1:9/berth-test:local";
/// More than half of a GPU: there is room for one of them.
pub const MOST: &str = "100GiB";

/// A manager waits a minute for the container before it to end, also where its node is lost.
const RUNS_WITHIN: Duration = Duration::from_secs(120);

/// Ended, with all that is left of it, when dropped. One at a time on a machine: a second waits for the first.
pub struct Swarm {
    dir: PathBuf,
    run: PathBuf,
    _alone: File,
}

/// One task of a service, as the manager tells of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// The name of its node; empty while it has none.
    pub node: String,
    pub state: String,
    pub desired: String,
}

impl Swarm {
    /// `None`, said loudly, where there can be none.
    pub fn for_test(test: &str) -> Option<Self> {
        let tools = "command -v dockerd ip nsenter unshare && unshare --mount --net --uts true";
        let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
        let found = Command::new("sh").args(["-c", tools]).env("PATH", path).stdout(Stdio::null()).status();
        if !found.is_ok_and(|status| status.success()) {
            skip(test, "dockerd, iproute2 and namespaces are needed for a swarm on one machine");
            return None;
        }
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("swarm");
        std::fs::create_dir_all(&dir).unwrap();
        let alone = File::create(dir.join("lock")).unwrap();
        alone.lock().unwrap();
        let mut swarm = Self { run: PathBuf::new(), dir, _alone: alone };
        swarm.script(&["start"], &[]);
        swarm.run = std::fs::read_to_string(swarm.dir.join("run")).unwrap().trim().into();
        until("all nodes to report", || (swarm.placeable() == 3).then_some(()));
        swarm.acts();
        Some(swarm)
    }

    /// `scripts/swarm.sh COMMAND DIR ARGS…`.
    pub fn script(&self, command: &[&str], args: &[&str]) {
        // A file: what the script leaves running would keep a pipe open.
        let log = self.dir.join("script.log");
        let mut script = Command::new(SCRIPT);
        script.args(command).arg(&self.dir).args(args).env("BERTH", BERTH).stdin(Stdio::null());
        script.stdout(File::create(&log).unwrap()).stderr(File::options().append(true).open(&log).unwrap());
        let status = script.status().unwrap();
        assert!(status.success(), "{command:?} {args:?}: {}", std::fs::read_to_string(&log).unwrap());
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.run.join(name)
    }

    pub fn socket(&self, node: u8) -> PathBuf {
        self.file(&format!("n{node}/docker.sock"))
    }

    pub fn host(&self, node: u8) -> String {
        format!("unix://{}", self.socket(node).display())
    }

    /// The client, asking one node's engine.
    pub fn docker_on(&self, node: u8, args: &[&str]) -> Run {
        run(Command::new("docker").args(["--host", &self.host(node)]).args(args))
    }

    /// The client, asking the manager.
    pub fn docker(&self, args: &[&str]) -> Run {
        self.docker_on(1, args)
    }

    /// A command of berth's on the manager.
    pub fn berth_command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(BERTH);
        command.arg("--config").arg(self.file("n1/berth.toml")).args(args).env("DOCKER_HOST", self.host(1));
        command
    }

    pub fn berth(&self, args: &[&str]) -> Run {
        run(&mut self.berth_command(args))
    }

    /// What a container on any node needs to use the GPU there, and the image.
    fn with_gpu(&self) -> Vec<String> {
        let mut args: Vec<String> =
            ["--no-resolve-image", "--env", "LD_LIBRARY_PATH=/berth-sim/lib", "--mount"].map(String::from).into();
        args.push(format!("type=bind,src={},dst=/berth-sim", self.file("sim").display()));
        args.extend(["--mount".to_owned(), format!("type=bind,src={BERTH},dst=/berth,ro"), IMAGE.to_owned()]);
        args
    }

    /// `berth run --cluster FLAGS… IMAGE COMMAND…`.
    pub fn run_command(&self, flags: &[&str], command: &[&str]) -> Command {
        let mut run = self.berth_command(&["run", "--cluster"]);
        run.args(flags).args(self.with_gpu()).args(command);
        run
    }

    /// One that takes most of a GPU, and is content with having it.
    pub fn place(&self, name: &str, flags: &[&str]) -> Run {
        self.place_small(name, &[&["--memory", MOST], flags].concat())
    }

    /// One that fits beside any other.
    pub fn place_small(&self, name: &str, flags: &[&str]) -> Run {
        // The first process of a container is not ended by a signal it does not handle.
        let flags = [&["--name", name, "--stop-signal", "KILL"], flags].concat();
        run(&mut self.run_command(&flags, &["sleep", "1000"]))
    }

    /// The same as a service that is started again wherever it can be.
    pub fn serve(&self, name: &str, flags: &[&str]) -> Run {
        self.place(name, &[&["--restart-condition", "any"], flags].concat())
    }

    pub fn tasks(&self, service: &str) -> Vec<Task> {
        let format = "{{.Node}}|{{.CurrentState}}|{{.DesiredState}}";
        let told = self.docker(&["service", "ps", "--format", format, service]);
        let task = |line: &str| {
            let mut parts = line.split('|').map(str::to_owned);
            let (node, state, desired) = (parts.next()?, parts.next()?, parts.next()?);
            Some(Task { node, state: state.split(' ').next()?.to_lowercase(), desired: desired.to_lowercase() })
        };
        told.stdout.lines().filter_map(task).collect()
    }

    /// Waits until it runs as the manager wants it to, and says where.
    pub fn runs(&self, service: &str) -> String {
        let mut told = Vec::new();
        let is_running = |task: &Task| task.state == "running" && task.desired == "running";
        until_within(RUNS_WITHIN, &format!("{service} to run"), || {
            let tasks = self.tasks(service);
            if tasks != told {
                eprintln!("{service}: {tasks:?}");
                told.clone_from(&tasks);
            }
            tasks.into_iter().find(is_running).map(|task| task.node)
        })
    }

    /// Containers of a service that run on a node, by what the node's own engine says.
    pub fn containers(&self, node: u8, service: &str) -> usize {
        self.containers_with(node, service, &[])
    }

    /// The same, also of those that were never started or have ended.
    pub fn containers_ever(&self, node: u8, service: &str) -> usize {
        self.containers_with(node, service, &["--all"])
    }

    /// None where the node has no power.
    fn containers_with(&self, node: u8, service: &str, flags: &[&str]) -> usize {
        let filter = format!("label=com.docker.swarm.service.name={service}");
        let args = [&["ps", "--quiet", "--filter", &filter], flags].concat();
        self.docker_on(node, &args).stdout.lines().count()
    }

    pub fn services(&self) -> Vec<String> {
        let told = self.docker(&["service", "ls", "--format", "{{.Name}}"]).ok();
        told.lines().map(str::to_owned).collect()
    }

    pub fn inspect(&self, service: &str) -> Value {
        let told = self.docker(&["service", "inspect", service]).ok();
        serde_json::from_str::<Value>(&told).unwrap()[0].take()
    }

    /// Why a node takes nothing, by one word; `None` if it would take something small.
    pub fn why_not(&self, node: &str) -> Option<String> {
        let told = self.nodes();
        let Some(found) = told.iter().find(|one| one["name"] == node) else { return Some("not known yet".to_owned()) };
        found["why_not"]["reason"].as_str().map(str::to_owned)
    }

    pub fn nodes(&self) -> Vec<Value> {
        self.asked("/v1/nodes")["nodes"].as_array().cloned().unwrap_or_default()
    }

    /// Waits until the placer places.
    pub fn acts(&self) {
        until("the placer to act", || (self.asked("/v1/health")["is_acting"] == true).then_some(()));
    }

    /// What the placer answers; `Null` if it does not.
    fn asked(&self, path: &str) -> Value {
        let Ok(mut placer) = UnixStream::connect(self.file("placer.sock")) else { return Value::Null };
        write!(placer, "GET {path} HTTP/1.1\r\nHost: placer\r\nConnection: close\r\n\r\n").unwrap();
        let mut told = String::new();
        // Killed while it answers, it has told nothing.
        let _ = placer.read_to_string(&mut told);
        let told = told.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        serde_json::from_str(told).unwrap_or_default()
    }

    fn placeable(&self) -> usize {
        self.nodes().iter().filter(|node| node["why_not"].is_null()).count()
    }

    pub fn pid(&self, file: &str) -> i32 {
        std::fs::read_to_string(self.file(file)).unwrap().trim().parse().unwrap()
    }
}

impl Drop for Swarm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for log in ["placer", "daemon1", "daemon2", "daemon3"] {
                let text = std::fs::read_to_string(self.dir.join(format!("{log}.log"))).unwrap_or_default();
                let lines: Vec<&str> = text.lines().collect();
                eprintln!("==== {log}\n{}", lines[lines.len().saturating_sub(20)..].join("\n"));
            }
        }
        self.script(&["stop"], &[]);
    }
}
