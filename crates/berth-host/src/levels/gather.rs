//! Finding out. Nothing here changes the host: what is tried is undone at once.

use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;

use berth_model::Settings;
use berth_model::settings::Mode;
use rustix::fs::{Access, access};

use super::sys::Library;
use super::{CgroupVersion, CudaFacts, Facts, Freezer, NvmlFacts};
use crate::connector::{self, Filtering};
use crate::docker;
use crate::freezer::Hierarchies;
use crate::nvml::{GpuLook, GpuProbe, NvmlError, NvmlProbe, RawReading};
use crate::probes;
use crate::procs::Registry;

/// Seconds at most, if the engine does not answer.
pub fn gather(settings: &Settings) -> Facts {
    let available = probes::available();
    let halting = available.as_ref().map_or("", |available| match available.unseen {
        true => "unseen",
        false => "by signals, so not where a parent or a terminal would see them",
    });
    let uprobes = told(available.map(|available| match available.multi {
        true => "eBPF probes, many at once (uprobe_multi)",
        false => "eBPF probes, by perf events",
    }));
    Facts {
        nvml: told(nvml(&settings.nvml.library)),
        processes: told(Registry::new(&settings.processes.proc_root, channel().0).map(drop)),
        docker: unless_off(settings.docker.mode, || told(engine(&settings.docker.socket))),
        process_events: unless_off(settings.processes.connector, || told(connector::available().map(filtering))),
        probes: unless_off(settings.probes.mode, || uprobes.clone()),
        uprobes,
        halting,
        freezers: freezers(&fs::read_to_string(settings.processes.proc_root.join("self/mounts")).unwrap_or_default()),
        out_of_sight: Hierarchies::under(&settings.hold.cgroup_root).out_of_sight(&settings.processes.proc_root),
        cuda: cuda(&settings.probes.libraries, "probes.libraries"),
        driver: cuda(std::slice::from_ref(&settings.hold.driver), "hold.driver"),
        means: settings.hold.means.clone(),
        mps_control: in_path("nvidia-cuda-mps-control"),
    }
}

fn told<T, U: From<T>, E: Display>(fact: Result<T, E>) -> Result<U, String> {
    fact.map(U::from).map_err(|error| error.to_string())
}

fn unless_off<T>(mode: Mode, fact: impl FnOnce() -> T) -> Option<T> {
    (mode != Mode::Off).then(fact)
}

fn nvml(library: &Path) -> Result<NvmlFacts, NvmlError> {
    let mut probe = NvmlProbe::open(library)?;
    let described = probe.inventory()?;
    let look = probe.look(false);
    Ok(NvmlFacts {
        driver: probe.driver_version(),
        gpus: look.gpus.len(),
        unseen: look.gpus.iter().filter_map(unseen).collect(),
        mig_capable: described.iter().filter(|gpu| gpu.mig.is_some()).count(),
    })
}

fn unseen(gpu: &GpuLook) -> Option<String> {
    match &gpu.reading {
        RawReading::Lost { reason } => Some(format!("GPU {} is lost: {reason}", gpu.index)),
        RawReading::Ok { processes: Err(reason), .. } => {
            Some(format!("GPU {}: its processes cannot be listed: {reason}", gpu.index))
        }
        RawReading::Ok { .. } => None,
    }
}

fn engine(socket: &Path) -> Result<String, docker::DockerError> {
    let version = docker::available(socket)?.version;
    Ok(format!("engine {} at {}", version.as_deref().unwrap_or("of unknown version"), socket.display()))
}

fn filtering(filtering: Filtering) -> &'static str {
    match filtering {
        Filtering::InKernel => "proc connector, filtered in the kernel",
        Filtering::None => "proc connector, unfiltered (Linux 6.6 would filter)",
    }
}

/// The hierarchies among the mounts that can freeze: v2 always, v1 by its own controller.
pub(super) fn freezers(mounts: &str) -> Vec<Freezer> {
    let freezer = |line: &str| {
        let mut fields = line.split(' ');
        let (_, mount, kind, options) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
        let version = match kind {
            "cgroup2" => CgroupVersion::V2,
            "cgroup" if options.split(',').any(|option| option == "freezer") => CgroupVersion::V1,
            _ => return None,
        };
        let is_writable = access(mount, Access::WRITE_OK).is_ok();
        Some(Freezer { version, mount: mount.into(), is_writable })
    };
    mounts.lines().filter_map(freezer).collect()
}

/// The first of the libraries that loads; if none does, why the first does not.
/// `setting` is where they are named.
pub(super) fn cuda(libraries: &[PathBuf], setting: &str) -> Result<CudaFacts, String> {
    let mut first_refusal = None;
    for library in libraries {
        match Library::open(library) {
            Ok(loaded) => {
                return Ok(CudaFacts {
                    library: library.clone(),
                    has_lock: loaded.has(c"cuCheckpointProcessLock"),
                    has_checkpoint: loaded.has(c"cuCheckpointProcessCheckpoint"),
                    has_green_contexts: loaded.has(c"cuGreenCtxCreate"),
                });
            }
            Err(words) => first_refusal = first_refusal.or(Some(words)),
        }
    }
    let refusal = first_refusal.unwrap_or_else(|| "none is named".to_owned());
    Err(format!("no CUDA driver library ({refusal}): install the NVIDIA driver, or name its libcuda.so.1 in {setting}"))
}

fn in_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|file| access(file, Access::EXEC_OK).is_ok())
}
