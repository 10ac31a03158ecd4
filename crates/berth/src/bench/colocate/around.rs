//! What both programs find when they start: nothing, an MPS server, the other end of berth's library, or a daemon.

use std::path::{Path, PathBuf};

use anyhow::bail;
use berth_model::settings::KernelSettings;
use berth_proto::shim::{LIBRARY_NAME, SOCKET_VARIABLE};

use super::Deeds;
use super::managed::{Managed, SERVER, TRAINER};
use super::mode::{Mode, Mps, Surroundings};
use super::program::{Invocation, Program, Start};
use crate::bench::launch::host::{Host, Part};
use crate::bench::live::mps;
use crate::bench::live::sprinter::Environment;
use crate::interrupt::Interrupt;
use crate::stage::Stage;

const PRIORITY: &str = "CUDA_MPS_CLIENT_PRIORITY";
const THREAD_PERCENTAGE: &str = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE";

/// Ends what it has started when it is dropped. The programs must be gone by then.
#[derive(Debug)]
pub struct Around {
    surroundings: Surroundings,
    mps: Option<mps::Mps>,
    host: Option<Host>,
    managed: Option<Managed>,
    shim: PathBuf,
    /// Of the simulated GPU.
    library_dir: Option<PathBuf>,
    dir: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Server,
    Trainer,
}

/// The simulated GPU needs no server for it.
pub fn why_no_mps(is_simulated: bool) -> Option<String> {
    (!is_simulated && mps::control().is_none()).then(|| "no nvidia-cuda-mps-control".to_owned())
}

pub fn why_no_shim(given: Option<&Path>) -> Option<String> {
    let library = library(given);
    (!library.is_file()).then(|| format!("no {}; --shim FILE names it", library.display()))
}

/// What readers of the figures have to know.
pub fn debug_note() -> Option<String> {
    cfg!(debug_assertions)
        .then(|| "a debug build: berth's library is several times slower than it should be".to_owned())
}

/// Beside this program, unless it is given.
pub fn library(given: Option<&Path>) -> PathBuf {
    let beside = || Some(std::env::current_exe().ok()?.parent()?.join(LIBRARY_NAME));
    given.map(Path::to_owned).or_else(beside).unwrap_or_else(|| LIBRARY_NAME.into())
}

/// Where programs find the simulated GPU's driver, if that is what they are to use.
pub fn simulated_library_dir(stage: &Stage) -> Option<PathBuf> {
    stage.settings().hold.driver.parent().filter(|_| stage.is_simulated()).map(Path::to_owned)
}

impl Around {
    pub fn set_up(
        stage: &Stage,
        surroundings: Surroundings,
        kernels: &KernelSettings,
        shim: Option<&Path>,
    ) -> anyhow::Result<Self> {
        let dir = stage.dir().to_owned();
        let mps = match mps::control().filter(|_| surroundings.needs_mps() && !stage.is_simulated()) {
            Some(control) => Some(mps::Mps::start(&control, &dir.join("mps"))?),
            None => None,
        };
        let host = match surroundings {
            Surroundings::Links { mps } => Some(Host::start(&dir, kernels, mps)?),
            Surroundings::Bare | Surroundings::Mps(_) | Surroundings::Berth { .. } => None,
        };
        let managed = match surroundings {
            Surroundings::Berth { .. } => Some(Managed::start(stage, kernels)?),
            Surroundings::Bare | Surroundings::Mps(_) | Surroundings::Links { .. } => None,
        };
        let library_dir = simulated_library_dir(stage);
        Ok(Self { surroundings, mps, host, managed, shim: library(shim), library_dir, dir })
    }

    pub fn start_server(&self, invocation: &Invocation) -> anyhow::Result<Program> {
        self.start(Role::Server, invocation)
    }

    pub fn start_trainer(&self, invocation: &Invocation) -> anyhow::Result<Program> {
        self.start(Role::Trainer, invocation)
    }

    fn start(&self, role: Role, invocation: &Invocation) -> anyhow::Result<Program> {
        let (name, part) = match role {
            Role::Server => (SERVER, Part::Leads),
            Role::Trainer => (TRAINER, Part::Yields),
        };
        let cgroup = self.managed.as_ref().map(|managed| managed.cgroup(name));
        let (environment, cgroup) = (self.environment(role), cgroup.as_deref());
        let start = Start { name, invocation, environment, cgroup, dir: &self.dir };
        let program = Program::start(&start)?;
        if let Some(host) = &self.host {
            host.expect(program.pid(), part);
        }
        Ok(program)
    }

    fn environment(&self, role: Role) -> Environment {
        let mut environment = self.mps.as_ref().map(mps::Mps::environment).unwrap_or_default();
        let mut set = |name: &str, value: String| drop(environment.insert(name.to_owned(), value));
        match (self.surroundings, role) {
            // As `berth run` starts those with a goal and those without.
            (
                Surroundings::Mps(Mps::Priority)
                | Surroundings::Links { mps: true }
                | Surroundings::Berth { mps: true },
                role,
            ) => set(PRIORITY, if role == Role::Server { "0" } else { "1" }.to_owned()),
            (Surroundings::Mps(Mps::Half), Role::Trainer) => set(THREAD_PERCENTAGE, "50".to_owned()),
            _ => {}
        }
        let host = self.host.as_ref().map(Host::socket);
        if let Some(socket) = host.or(self.managed.as_ref().map(Managed::socket)) {
            set("LD_PRELOAD", self.shim.display().to_string());
            set(SOCKET_VARIABLE, socket.display().to_string());
            // Why it goes on without berth, if it does.
            set("BERTH_SHIM_LOG", "1".to_owned());
        }
        if let Some(dir) = &self.library_dir {
            set("LD_LIBRARY_PATH", dir.display().to_string());
        }
        environment
    }

    /// What berth has done so far; `None` where it does nothing.
    pub fn deeds(&self) -> Option<Deeds> {
        let managed = || self.managed.as_ref().and_then(Managed::deeds);
        let host = |host: &Host| Deeds { stops: host.counted().stops, ..Deeds::default() };
        self.host.as_ref().map(host).or_else(managed)
    }

    /// Has links be by these settings from now on.
    pub fn vary(&self, settings: &KernelSettings) {
        if let Some(host) = &self.host {
            host.vary(settings);
        }
    }

    /// Begins a mode, once the programs are what it says. `promised_ms`: what the server is to keep at its 99th percentile.
    pub fn enter(&mut self, mode: Mode, promised_ms: Option<f64>, interrupt: &Interrupt) -> anyhow::Result<()> {
        match (mode, &self.host, &self.managed) {
            (Mode::Links { .. }, Some(host), _) if !host.has(2, 1) => {
                bail!("server and trainer have not both attached")
            }
            (Mode::Berth { policy, .. }, _, Some(managed)) => managed.enter(policy, promised_ms, interrupt),
            _ => Ok(()),
        }
    }
}
