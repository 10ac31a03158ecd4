//! Why probes cannot be had, said so that a person can act on it.

use std::io;
use std::path::PathBuf;

use berth_model::ProcKey;

use super::elf::ElfError;

#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    #[error("{missing} missing for eBPF probes: run the daemon as root, or grant CAP_BPF and CAP_PERFMON")]
    Capability { missing: String },
    #[error(
        "eBPF probes are forbidden by a seccomp filter on this process: run the daemon outside a container, or in one \
         with `--security-opt seccomp=unconfined`"
    )]
    Seccomp,
    #[error("the kernel is locked down ({mode}), which forbids eBPF probes: boot without `lockdown=` to have them")]
    Lockdown { mode: String },
    #[error("this kernel has no eBPF (CONFIG_BPF_SYSCALL): use one that has it")]
    NoBpf,
    #[error("this kernel is too old for eBPF probes ({attempted} is unknown to it): use Linux 5.15 or later")]
    TooOld { attempted: &'static str },
    #[error("this kernel has no uprobes (CONFIG_UPROBE_EVENTS): use one that has them")]
    NoUprobes,
    #[error(
        "the daemon is in a pid namespace of its own, so the pids that probes see mean nothing to it: run it on the host, \
         or in a container with `--pid=host`"
    )]
    PidNamespace,
    #[error(
        "Linux {release} may kill processes that have a seccomp filter, as containers do, when a return probe is hit: use \
         6.14 or later, a current 6.12, or anything before 6.11"
    )]
    ReturnProbesKill { release: String },
    #[error("{attempted} for eBPF probes: {source}")]
    Refused { attempted: &'static str, source: io::Error },
    #[error("the kernel's verifier refuses the eBPF program {program}: {source}; it says: {log}")]
    Verifier { program: &'static str, source: io::Error, log: String },
    #[error("open driver library {path}: {source}")]
    OpenLibrary { path: PathBuf, source: io::Error },
    #[error("driver library {path} cannot be probed: {source}")]
    Library { path: PathBuf, source: ElfError },
    #[error("attach probes to {path}: {source}")]
    Attach { path: PathBuf, source: io::Error },
    #[error("process {process} is gone")]
    Gone { process: ProcKey },
    #[error("process {process} has no driver library loaded")]
    NoDriver { process: ProcKey },
    #[error("probe {calls} of process {process}: {reason}")]
    Unattached { process: ProcKey, calls: &'static str, reason: String },
    #[error("tell the probes about process {process}: {source}")]
    Rule { process: ProcKey, source: io::Error },
    #[error("the probes were stopped")]
    Stopped,
}
