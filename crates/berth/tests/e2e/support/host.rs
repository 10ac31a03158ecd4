//! A host of our own: a directory, and in it simulated GPUs, daemons' files and tenants' lines.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use berth_load::Phase;
use berth_model::Settings;
use berth_model::settings::Mode;
use berth_sim::server::find_libraries;
use tempfile::TempDir;

use super::cgroup::Cgroup;
use super::daemon::Daemon;
use super::process::{BERTH, Running, run};
use super::tenant::Tenant;

/// Two simulated H200, and whatever a test puts beside them.
#[derive(Debug)]
pub struct Host {
    sim: Option<Running>,
    started: AtomicU32,
    dir: TempDir,
}

impl Host {
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// With further options for the simulator.
    pub fn start_with(options: &[&str]) -> Self {
        let mut host = Self::bare();
        host.start_sim_with(options);
        host
    }

    /// One GPU of 4 GiB that moves memory quickly: as much as any machine has to spare.
    pub fn small() -> Self {
        Self::changed(&[
            ("memory_mib = 143771", "memory_mib = 4096"),
            ("memory_mib = 518", "memory_mib = 64"),
            ("save_base_ms = 1720.0", "save_base_ms = 50.0"),
        ])
    }

    /// One GPU of a profile in which some lines read otherwise.
    pub fn changed(lines: &[(&str, &str)]) -> Self {
        let mut profile = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../profiles/h200.toml")).to_owned();
        for (from, to) in lines {
            assert!(profile.contains(from), "the profile has no `{from}` any more");
            profile = profile.replace(from, to);
        }
        let mut host = Self::bare();
        std::fs::write(host.file("changed.toml"), profile).unwrap();
        host.serve(host.file("changed.toml").to_str().unwrap(), 1, &[]);
        host
    }

    /// Without a simulator yet.
    pub fn bare() -> Self {
        // A test may come back as another user, who must find its files.
        let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        let dir = tempfile::Builder::new().prefix("berth-e2e-").permissions(everybody).tempdir().unwrap();
        Self { sim: None, started: AtomicU32::new(0), dir }
    }

    pub fn start_sim(&mut self) {
        self.start_sim_with(&[]);
    }

    fn start_sim_with(&mut self, options: &[&str]) {
        self.serve("h200", 2, options);
    }

    fn serve(&mut self, profile: &str, gpus: u32, options: &[&str]) {
        if let Err(error) = find_libraries() {
            panic!("{error}; `cargo build --workspace` makes them");
        }
        let mut command = Command::new(BERTH);
        command.args([
            "sim",
            "serve",
            "--profile",
            profile,
            "--gpus",
            &gpus.to_string(),
            "--until-stdin-closes",
            "--dir",
        ]);
        command.arg(self.sim_dir()).args(options).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(self.log("sim"));
        let mut sim = Running::start(&mut command);
        // Printed when everything is in place.
        assert!(sim.first_line().contains(&format!("{gpus} x NVIDIA H200")), "the simulator does not start");
        self.sim = Some(sim);
    }

    /// Without a chance to say goodbye.
    pub fn kill_sim(&mut self) {
        self.sim.take().unwrap().kill();
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn sim_dir(&self) -> PathBuf {
        self.file("sim")
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn library(&self, name: &str) -> String {
        self.sim_dir().join("lib").join(name).to_str().unwrap().to_owned()
    }

    /// For a daemon that shares nothing but the GPUs with others of this host, and asks no container engine. `name` tells
    /// the daemons of a host apart.
    pub fn settings(&self, name: &str) -> Settings {
        let mut settings = Settings::default();
        settings.api.socket = self.file(&format!("{name}.sock"));
        settings.table.path = self.file(&format!("{name}.tasks"));
        settings.nvml.library = self.library("libnvidia-ml.so.1").into();
        settings.probes.libraries = vec![self.library("libcuda.so.1").into()];
        settings.docker.mode = Mode::Off;
        settings.hold.journal = self.file(&format!("{name}.holds"));
        settings.history.dir = self.file(&format!("{name}.history"));
        settings.hold.driver = self.library("libcuda.so.1").into();
        settings.log.level = "debug".into();
        settings
    }

    pub fn write_config(&self, name: &str, settings: &Settings) -> PathBuf {
        let file = self.file(&format!("{name}.toml"));
        std::fs::write(&file, toml::to_string(settings).unwrap()).unwrap();
        file
    }

    /// A daemon that has looked at the GPUs.
    pub fn daemon(&self) -> Daemon {
        self.daemon_with("berth", |_| ())
    }

    pub fn daemon_with(&self, name: &str, change: impl FnOnce(&mut Settings)) -> Daemon {
        let mut settings = self.settings(name);
        change(&mut settings);
        Daemon::start(self, name, settings)
    }

    /// `berth load` in a cgroup of its own.
    pub fn tenant(&self, name: &str, args: &[&str]) -> Tenant {
        self.tenant_in(&Arc::new(Cgroup::make(name)), args)
    }

    /// `berth load hold`, when it holds its memory.
    pub fn holder(&self, name: &str, args: &[&str]) -> Tenant {
        let tenant = self.tenant(name, &[&["hold"], args].concat());
        tenant.reaches(Phase::Hold);
        tenant
    }

    pub fn tenant_in(&self, cgroup: &Arc<Cgroup>, args: &[&str]) -> Tenant {
        let count = self.started.fetch_add(1, Ordering::Relaxed);
        let lines = self.file(&format!("lines-{count}.jsonl"));
        Tenant::start(Arc::clone(cgroup), &self.library("libcuda.so.1"), lines, args)
    }

    pub fn fault(&self, fault: &[&str]) {
        run(Command::new(BERTH).args(["sim", "fault", "--dir"]).arg(self.sim_dir()).args(fault)).ok();
    }

    pub fn log(&self, name: &str) -> std::fs::File {
        let file = self.file(&format!("{name}.log"));
        std::fs::File::options().create(true).append(true).open(file).unwrap()
    }
}

impl Drop for Host {
    /// What the servers had to say, to whoever reads of the failure.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        for file in std::fs::read_dir(self.dir.path()).unwrap().flatten().map(|entry| entry.path()) {
            if file.extension().is_some_and(|extension| extension == "log") {
                eprintln!("==== {}\n{}", file.display(), std::fs::read_to_string(&file).unwrap_or_default());
            }
        }
    }
}
