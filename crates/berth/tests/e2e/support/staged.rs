//! A command that sets a stage of its own (`berth demo`, `berth bench`), and what it may leave behind.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::engine::Engine;
use super::hierarchy;
use super::host::Host;
use super::process::{BERTH, Running};

/// With a temporary directory of its own, which several may share; prints to a file.
#[derive(Debug)]
pub struct Staged {
    /// What its containers, cgroups and directories are named.
    stage: &'static str,
    pub process: Running,
    tmp: PathBuf,
    printed: PathBuf,
}

impl Staged {
    /// `args`: those of `berth`. `name` tells those of a test apart.
    pub fn start(host: &Host, name: &str, stage: &'static str, args: &[&str]) -> Self {
        Self::start_in(host, &format!("tmp-{name}"), name, stage, args)
    }

    pub fn start_in(host: &Host, tmp: &str, name: &str, stage: &'static str, args: &[&str]) -> Self {
        let (tmp, printed) = (host.file(tmp), host.file(&format!("printed-{name}")));
        std::fs::create_dir_all(&tmp).unwrap();
        let file = std::fs::File::create(&printed).unwrap();
        let mut command = Command::new(BERTH);
        command.args(args).env("TMPDIR", &tmp).stdin(Stdio::null()).stdout(file).stderr(host.log(name));
        Self { stage, process: Running::start(&mut command), tmp, printed }
    }

    /// In a terminal, which is closed when the process is killed.
    pub fn start_in_terminal(host: &Host, stage: &'static str, args: &[&str]) -> Self {
        let (tmp, printed) = (host.file("tmp"), host.file("printed"));
        std::fs::create_dir_all(&tmp).unwrap();
        let mut command = Command::new("script");
        command.args(["--quiet", "--flush", "--command"]).arg(format!("exec {BERTH} {}", args.join(" "))).arg(&printed);
        command.env("TMPDIR", &tmp).env("TERM", "xterm").stdin(Stdio::piped()).stdout(Stdio::null());
        Self { stage, process: Running::start(command.stderr(host.log("script"))), tmp, printed }
    }

    pub fn printed(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.printed).unwrap_or_default()).into_owned()
    }

    /// Its own, by its pid.
    pub fn cgroup(&self) -> Option<PathBuf> {
        let prefix = format!("{}-{}-", self.stage, self.process.pid());
        let is_own = |path: &PathBuf| path.file_name().unwrap().to_str().is_some_and(|name| name.starts_with(&prefix));
        std::fs::read_dir(hierarchy()).unwrap().flatten().map(|entry| entry.path()).find(is_own)
    }

    /// Command lines of the processes that name its directory, itself and the test's among them only if they do.
    pub fn processes(&self) -> Vec<String> {
        let tmp = self.tmp.to_str().unwrap();
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let commands = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
        let commands = commands.map(|command| String::from_utf8_lossy(&command).replace('\0', " "));
        commands.filter(|command| command.contains(tmp)).collect()
    }

    /// Its daemons, which are processes of their own.
    pub fn daemons(&self) -> Vec<String> {
        self.processes().into_iter().filter(|command| command.contains(" daemon ")).collect()
    }

    pub fn files(&self) -> Vec<PathBuf> {
        std::fs::read_dir(&self.tmp).unwrap().flatten().map(|entry| entry.path()).collect()
    }

    /// On the engine: containers and images by its pid.
    pub fn on(&self, engine: &Engine) -> String {
        let pid = self.process.pid();
        let label = format!("label=berth.stage.pid={pid}");
        let containers = engine.docker(&["ps", "--all", "--quiet", "--filter", &label]).ok();
        let images = format!("reference={}-{pid}-*", self.stage);
        containers + &engine.docker(&["images", "--quiet", "--filter", &images]).ok()
    }

    pub fn leaves_nothing(&self) {
        assert_eq!(self.files(), Vec::<PathBuf>::new(), "files are left");
        assert_eq!(self.cgroup(), None, "cgroups are left");
        assert_eq!(self.processes(), Vec::<String>::new(), "processes are left");
    }

    pub fn leaves_nothing_on(&self, engine: &Engine) {
        self.leaves_nothing();
        assert_eq!(self.on(engine), "", "containers or images are left");
    }
}
