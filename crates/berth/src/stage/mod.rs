//! A place where tenants can be put on a GPU and watched: what `berth demo` and `berth bench` stand on.
//!
//! It brings up a simulated GPU (or takes the host's), and starts workloads on the best *ground* there is: Docker
//! containers if an engine answers, plain cgroups if they may be made, bare processes otherwise. Tenants write their lines
//! to files under the stage's directory. Everything it made is gone when it is dropped; a simulator left behind by a
//! killed stage ends by itself, and what else is left behind is removed by the next stage of that name.

mod cgroup;
mod docker;
mod id;
mod process;
mod sim;

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use berth_model::{Settings, TenantKey};

use self::cgroup::CgroupGround;
use self::docker::DockerGround;
pub use self::id::StageId;
use self::process::ProcessGround;
use self::sim::SimGpu;

const MEMORY: &str = "/dev/shm";

/// Which GPU the tenants use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GpuChoice {
    Sim {
        profile: String,
        gpus: u32,
        time_scale: Option<u32>,
        /// All processes are clients of an MPS server.
        mps: bool,
    },
    /// The host's own driver.
    Real,
}

/// Where the tenants live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum GroundChoice {
    /// The first of the others that works
    Auto,
    /// Docker containers
    Docker,
    /// Plain cgroups
    Cgroup,
    /// Bare processes: one tenant, since they belong to one user
    Process,
}

/// A tenant to be started.
#[derive(Debug, Clone, Default)]
pub struct Launch {
    pub name: String,
    pub owner: Option<String>,
    /// Of a container; tenants of other grounds have none.
    pub labels: Vec<(String, String)>,
    /// Arguments of `berth`, which must take `--output FILE` for the tenant's lines.
    pub args: Vec<String>,
}

/// A started tenant.
#[derive(Debug, Clone)]
pub struct Tenant {
    /// Where its lines are.
    pub lines: PathBuf,
    started: Started,
}

/// What a ground knows of a tenant it started.
#[derive(Debug, Clone)]
struct Started {
    /// How the ground refers to it.
    handle: String,
    /// As berth shows it.
    name: String,
    /// As berth knows it; `None` where several tenants of a stage are one to berth.
    key: Option<TenantKey>,
}

/// Its fields are dropped in this order: who writes into the directories ends before they are removed.
#[derive(Debug)]
pub struct Stage {
    ground: Box<dyn Ground>,
    gpu: Option<SimGpu>,
    dir: tempfile::TempDir,
    /// Where daemons keep their journal of holds: in memory, as `/run` is, where there is such a place.
    memory: tempfile::TempDir,
    /// Why it is not a better one; empty if the caller chose.
    shortcomings: Vec<String>,
    shares_ipc: bool,
}

/// A way to start and end tenants. Names are unique within a stage.
trait Ground: std::fmt::Debug + Send {
    /// In a word, as in "as Docker containers".
    fn what(&self) -> &'static str;
    fn start(&mut self, start: &Start) -> anyhow::Result<Started>;
    /// The exit code of a tenant that has ended.
    fn exit_code(&mut self, handle: &str) -> anyhow::Result<Option<i32>>;
    /// Ends a tenant that may still run; no error if it does not.
    fn end(&mut self, handle: &str) -> anyhow::Result<()>;
    /// What berth's settings must say to see these tenants.
    fn settings(&self, settings: &mut Settings);
}

/// What a ground needs to know to start a tenant.
#[derive(Debug)]
struct Start<'a> {
    name: &'a str,
    owner: Option<&'a str>,
    labels: &'a [(String, String)],
    program: PathBuf,
    args: Vec<String>,
    /// The simulator's directory, which the tenant must see at the same path.
    sim: Option<&'a Path>,
    /// Where `libcuda.so.1` is.
    library_dir: PathBuf,
    /// Must be writable for the tenant, at the same path.
    out: PathBuf,
    /// It shares memory with programs of the host.
    shares_ipc: bool,
}

impl Tenant {
    pub fn name(&self) -> &str {
        &self.started.name
    }

    pub fn key(&self) -> Option<&TenantKey> {
        self.started.key.as_ref()
    }
}

impl Stage {
    /// Sets the scene. `name` tells several stages on one host apart and is part of the containers' names.
    pub fn open(name: &str, gpu: &GpuChoice, ground: GroundChoice, docker_socket: &Path) -> anyhow::Result<Self> {
        let id = StageId::here(name)?;
        let parent = std::env::temp_dir();
        let in_memory = Some(Path::new(MEMORY)).filter(|dir| dir.is_dir()).unwrap_or(&parent);
        let made = |parent: &Path| tempfile::Builder::new().prefix(&format!("{id}-")).tempdir_in(parent);
        let dir = made(&parent).context("making a directory")?;
        let memory = made(in_memory).context("making a directory in memory")?;
        std::fs::create_dir(dir.path().join("out"))?;
        let gpu = match gpu {
            GpuChoice::Sim { profile, gpus, time_scale, mps } => {
                Some(SimGpu::start(&dir.path().join("sim"), profile, *gpus, *time_scale, *mps)?)
            }
            GpuChoice::Real => None,
        };
        let mut shortcomings = Vec::new();
        let ground = match ground {
            GroundChoice::Auto => best_ground(&id, docker_socket, &mut shortcomings),
            choice => open_ground(&id, choice, docker_socket)?,
        };
        // After the tenants that use them.
        remove_left_behind(&parent, name);
        remove_left_behind(Path::new(MEMORY), name);
        Ok(Self { ground, gpu, dir, memory, shortcomings, shares_ipc: false })
    }

    pub fn ground(&self) -> &'static str {
        self.ground.what()
    }

    /// The tenants are processes of one user: one tenant, for whoever has to tell them apart.
    pub fn is_bare(&self) -> bool {
        self.ground() == ProcessGround::WHAT
    }

    /// Whether tenants have the labels they are launched with.
    pub fn has_labels(&self) -> bool {
        self.ground() == DockerGround::WHAT
    }

    pub fn is_simulated(&self) -> bool {
        self.gpu.is_some()
    }

    /// Tenants launched from now on can share memory with programs of the host, as clients of an MPS server do.
    pub fn share_ipc(&mut self) {
        self.shares_ipc = true;
    }

    /// Why the tenants are nothing better, where nobody chose: one line for each ground that did not work.
    pub fn shortcomings(&self) -> &[String] {
        &self.shortcomings
    }

    /// A directory that lives as long as the stage.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Settings for a daemon of this stage alone: its own socket, table and journal, its GPU, its engine.
    pub fn settings(&self) -> Settings {
        let mut settings = Settings::default();
        settings.api.socket = self.dir.path().join("berth.sock");
        settings.table.path = self.dir.path().join("tasks");
        settings.hold.journal = self.memory.path().join("holds");
        // It begins with nothing and leaves nothing.
        settings.history.enabled = false;
        if let Some(gpu) = &self.gpu {
            settings.nvml.library = gpu.library("libnvidia-ml.so.1");
            settings.probes.libraries = vec![gpu.library("libcuda.so.1")];
            settings.hold.driver = gpu.library("libcuda.so.1");
        }
        self.ground.settings(&mut settings);
        settings
    }

    pub fn launch(&mut self, launch: &Launch) -> anyhow::Result<Tenant> {
        let out = self.dir.path().join("out");
        let lines = out.join(format!("{}.jsonl", launch.name));
        let mut args = launch.args.clone();
        args.extend(["--output".to_owned(), lines.display().to_string()]);
        let start = Start {
            name: &launch.name,
            owner: launch.owner.as_deref(),
            labels: &launch.labels,
            program: std::env::current_exe().context("finding this program")?,
            args,
            sim: self.gpu.as_ref().map(SimGpu::dir),
            library_dir: self.library_dir()?,
            out,
            shares_ipc: self.shares_ipc,
        };
        let started = self.ground.start(&start).with_context(|| format!("starting {}", launch.name))?;
        Ok(Tenant { lines, started })
    }

    pub fn exit_code(&mut self, tenant: &Tenant) -> anyhow::Result<Option<i32>> {
        self.ground.exit_code(&tenant.started.handle)
    }

    pub fn end(&mut self, tenant: &Tenant) -> anyhow::Result<()> {
        self.ground.end(&tenant.started.handle)
    }

    /// Waits until the tenant has ended or `stop` says so; `None` in that case.
    pub fn wait(&mut self, tenant: &Tenant, mut stop: impl FnMut() -> bool) -> anyhow::Result<Option<i32>> {
        loop {
            match self.exit_code(tenant)? {
                Some(code) => return Ok(Some(code)),
                None if stop() => return Ok(None),
                None => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    fn library_dir(&self) -> anyhow::Result<PathBuf> {
        match &self.gpu {
            Some(gpu) => Ok(gpu.dir().join("lib")),
            None => real_library_dir(),
        }
    }
}

/// The first that works. Bare processes always do.
fn best_ground(id: &StageId, docker_socket: &Path, shortcomings: &mut Vec<String>) -> Box<dyn Ground> {
    for (choice, what) in [(GroundChoice::Docker, "Docker containers"), (GroundChoice::Cgroup, "plain cgroups")] {
        match open_ground(id, choice, docker_socket) {
            Ok(ground) => return ground,
            Err(error) => shortcomings.push(format!("not as {what}: {error:#}")),
        }
    }
    Box::new(ProcessGround::default())
}

fn open_ground(id: &StageId, choice: GroundChoice, docker_socket: &Path) -> anyhow::Result<Box<dyn Ground>> {
    Ok(match choice {
        GroundChoice::Docker => Box::new(DockerGround::open(docker_socket, id).context("using Docker")?),
        GroundChoice::Cgroup => Box::new(CgroupGround::open(id).context("making cgroups")?),
        GroundChoice::Auto | GroundChoice::Process => Box::new(ProcessGround::default()),
    })
}

/// Directories of stages of this name that were killed.
fn remove_left_behind(parent: &Path, name: &str) {
    let me = rustix::process::geteuid().as_raw();
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let id = entry.file_name().to_str().and_then(|text| StageId::parse(name, text));
        // Anybody may make a directory there: only our own are removed.
        let is_ours = entry.metadata().is_ok_and(|found| found.is_dir() && found.uid() == me);
        if is_ours && id.is_some_and(|id| id.is_over()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// Where the host's own driver library is.
fn real_library_dir() -> anyhow::Result<PathBuf> {
    const PLACES: [&str; 5] = [
        "/usr/local/nvidia/lib64",
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib64",
        "/usr/lib/wsl/lib",
    ];
    let found = PLACES.iter().map(PathBuf::from).find(|dir| dir.join("libcuda.so.1").exists());
    match found {
        Some(dir) => Ok(dir),
        None => bail!("no libcuda.so.1 in {}: is the NVIDIA driver installed?", PLACES.join(", ")),
    }
}

/// Polls until `ready`, or fails after `limit`.
fn wait_until(what: &str, limit: Duration, mut ready: impl FnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    let deadline = Instant::now() + limit;
    while !ready()? {
        if Instant::now() > deadline {
            bail!("{what} is not there after {} s", limit.as_secs());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// Notes when it is dropped whether its tenants could still write.
    #[derive(Debug)]
    struct Witness {
        out: PathBuf,
        could_write: Arc<AtomicBool>,
    }

    impl Ground for Witness {
        fn what(&self) -> &'static str {
            "a witness"
        }

        fn start(&mut self, _: &Start) -> anyhow::Result<Started> {
            bail!("starts nobody")
        }

        fn exit_code(&mut self, _: &str) -> anyhow::Result<Option<i32>> {
            Ok(None)
        }

        fn end(&mut self, _: &str) -> anyhow::Result<()> {
            Ok(())
        }

        fn settings(&self, _: &mut Settings) {}
    }

    impl Drop for Witness {
        fn drop(&mut self) {
            self.could_write.store(std::fs::write(self.out.join("line"), "last").is_ok(), Ordering::Relaxed);
        }
    }

    #[test]
    fn tenants_end_before_the_directory_goes_that_they_write_into() {
        let mut stage = Stage::open("berth-test", &GpuChoice::Real, GroundChoice::Process, Path::new("/none")).unwrap();
        let (dir, could_write) = (stage.dir().to_owned(), Arc::new(AtomicBool::new(false)));
        stage.ground = Box::new(Witness { out: dir.join("out"), could_write: Arc::clone(&could_write) });
        drop(stage);
        assert!(could_write.load(Ordering::Relaxed), "the directory went first");
        assert!(!dir.exists());
    }
}
