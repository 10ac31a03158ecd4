//! Does a process compute together with others, by NCCL or RDMA? Then moving its memory away would hang them all.
//!
//! That the library is loaded is no sign: PyTorch loads `libnccl` into every process that imports it. What tells are its
//! traces: memory shared with other ranks, the network card opened for remote access, and what launchers put into the
//! environment. A group none of that shows for (ranks on several hosts over plain sockets, started by hand) is missed.

use std::path::Path;

/// What gave it away.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Sign {
    #[error("it maps {0}, which NCCL shares with other ranks")]
    SharedMemory(String),
    #[error("it maps {0}: a network card may reach its memory")]
    Rdma(String),
    #[error("it has loaded {library} and was started with {variable}={size}")]
    Group { library: String, variable: &'static str, size: u64 },
}

/// How launchers tell a process how many there are: torchrun, Open MPI, MPICH and Intel MPI, Slurm.
const SIZES: [&str; 5] = ["WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"];

/// From `/proc/PID/maps` and `/proc/PID/environ`.
pub fn sign(maps: &str, environ: &str) -> Option<Sign> {
    let mapped = || maps.lines().filter_map(path);
    let shared = mapped().find(|path| path.starts_with("/dev/shm/nccl-"));
    if let Some(path) = shared {
        return Some(Sign::SharedMemory(path.to_owned()));
    }
    if let Some(path) = mapped().find(|path| path.starts_with("/dev/infiniband/")) {
        return Some(Sign::Rdma(path.to_owned()));
    }
    let library = mapped().filter_map(file_name).find(|name| name.starts_with("libnccl"))?;
    let (variable, size) = SIZES.into_iter().find_map(|variable| {
        let size: u64 =
            environ.split('\0').find_map(|entry| entry.strip_prefix(variable)?.strip_prefix('='))?.parse().ok()?;
        (size > 1).then_some((variable, size))
    })?;
    Some(Sign::Group { library: library.to_owned(), variable, size })
}

/// The last of six fields, spaces and all; mappings without a file have none.
fn path(line: &str) -> Option<&str> {
    let path = line.splitn(6, ' ').nth(5)?.trim_start();
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    path.starts_with('/').then_some(path)
}

fn file_name(path: &str) -> Option<&str> {
    Path::new(path).file_name()?.to_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NCCL: &str = "7f10b0000000-7f10b0100000 r-xp 00000000 08:01 77         /usr/lib/libnccl.so.2.21.5\n";
    const SHARED: &str = "7f10b0000000-7f10b0100000 rw-s 00000000 00:1b 9         /dev/shm/nccl-Ab3dEf (deleted)\n";
    const VERBS: &str = "7f10b0000000-7f10b0001000 -w-s 00000000 00:05 9          /dev/infiniband/uverbs0\n";
    const PLAIN: &str = "7f10a0000000-7f10a0021000 rw-p 00000000 00:00 0 \n";

    #[test]
    fn a_process_that_only_loaded_the_library_computes_alone() {
        assert_eq!(sign(&format!("{PLAIN}{NCCL}"), "PATH=/bin\0"), None);
        assert_eq!(sign(NCCL, "WORLD_SIZE=1\0"), None);
        assert_eq!(sign(PLAIN, "WORLD_SIZE=8\0"), None, "not by NCCL");
    }

    #[test]
    fn a_rank_of_many_is_told_by_how_it_was_started() {
        for variable in SIZES {
            let sign = sign(&format!("{PLAIN}{NCCL}"), &format!("A=1\0{variable}=8\0"));
            assert_eq!(sign, Some(Sign::Group { library: "libnccl.so.2.21.5".into(), variable, size: 8 }));
        }
    }

    #[test]
    fn traces_of_other_ranks_tell_without_the_library_or_the_environment() {
        assert_eq!(sign(SHARED, ""), Some(Sign::SharedMemory("/dev/shm/nccl-Ab3dEf".into())));
        assert_eq!(sign(VERBS, ""), Some(Sign::Rdma("/dev/infiniband/uverbs0".into())));
    }
}
