//! Can this host have probes, and if not, why? Asked by `berth doctor` and before each start.
//!
//! The kernel is asked by trying, on nothing: an empty ring, a program that is not attached, a probe on a directory.
//! Only what a refusal meant is read from `/proc` and `/sys`.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;

use super::error::ProbeError;
use super::program::{Halting, Maps, Program};
use super::sys::{self, AttachType, Code, MapType, Multi};

/// What this host's kernel offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Available {
    /// Many places can be probed at once, in one process only (`uprobe_multi`, Linux 6.6 with fixes, or later).
    /// Otherwise each place is a perf event.
    pub multi: bool,
    /// A call can be kept waiting unseen, without a signal (Linux 6.9 or later).
    pub unseen: bool,
}

/// The inode that `/proc/PID/ns/pid` has for the initial pid namespace on every Linux.
const INITIAL_PID_NAMESPACE: u64 = 0xEFFF_FFFC;

pub fn available() -> Result<Available, ProbeError> {
    let namespace = fs::metadata("/proc/self/ns/pid")
        .map_err(|source| ProbeError::Refused { attempted: "look at /proc/self/ns/pid", source })?;
    if namespace.ino() != INITIAL_PID_NAMESPACE {
        return Err(ProbeError::PidNamespace);
    }
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    if cfg!(target_arch = "x86_64") && return_probes_kill(release.trim()) {
        return Err(ProbeError::ReturnProbesKill { release: release.trim().to_owned() });
    }
    let ring = sys::create_map(MapType::Ring, 0, 0, 4096).map_err(|e| refusal("create a ring buffer", e))?;
    let map = sys::create_map(MapType::Array, 4, 8, 1).map_err(|e| refusal("create a map", e))?;
    let (ring, map) = (ring.as_raw_fd(), map.as_raw_fd());
    let maps = Maps { ring, rules: map, halted: map, lost: map };
    let attempt = |halting, attach| {
        let insns = Program::Entry.assemble(maps, halting);
        let sleeps = halting == Halting::Unseen;
        sys::load_program(Code { name: "berth_try", insns: &insns, attach, sleeps }, &mut [])
    };
    attempt(Halting::BySignal, None).map_err(|e| refusal("load a program", e))?;
    uprobe_kind()?;
    let multi = attempt(Halting::BySignal, Some(AttachType::UprobeMulti));
    let multi = multi.is_ok_and(|program| filters_by_process(program.as_fd()));
    Ok(Available { multi, unseen: attempt(Halting::Unseen, None).is_ok() })
}

/// The number of uprobes among perf events.
pub fn uprobe_kind() -> Result<u32, ProbeError> {
    let kind = fs::read_to_string("/sys/bus/event_source/devices/uprobe/type").map_err(|_| ProbeError::NoUprobes)?;
    kind.trim().parse().map_err(|_| ProbeError::NoUprobes)
}

/// Multi-uprobes that filter by process: the first kernels with them filtered by thread. Those that do it right refuse
/// a process id of −1 before they look at the path, which here is no file and so is refused in any case.
fn filters_by_process(program: std::os::fd::BorrowedFd<'_>) -> bool {
    let attempt = |pid| {
        let multi = Multi { path: c"/", offsets: &[0], cookies: &[0], returns: false, pid };
        sys::link_multi(program, multi).err().and_then(|e| e.raw_os_error())
    };
    attempt(0) == Some(libc::EBADF) && attempt(u32::MAX) == Some(libc::EINVAL)
}

/// What the kernel meant by refusing `attempted`.
pub fn refusal(attempted: &'static str, error: io::Error) -> ProbeError {
    match error.raw_os_error() {
        Some(libc::ENOSYS) => ProbeError::NoBpf,
        Some(libc::EINVAL) => ProbeError::TooOld { attempted },
        Some(libc::EPERM | libc::EACCES) => {
            let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
            let lockdown = fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
            permission(attempted, error, &status, &lockdown)
        }
        _ => ProbeError::Refused { attempted, source: error },
    }
}

fn permission(attempted: &'static str, source: io::Error, status: &str, lockdown: &str) -> ProbeError {
    let field = |name: &str| status.lines().find_map(|l| l.strip_prefix(name)).map(str::trim);
    let missing = missing_capabilities(field("CapEff:").and_then(|v| u64::from_str_radix(v, 16).ok()).unwrap_or(0));
    if !missing.is_empty() {
        return ProbeError::Capability { missing: missing.join(" and ") };
    }
    if let Some(mode) = lockdown.split(['[', ']']).nth(1).filter(|mode| *mode != "none") {
        return ProbeError::Lockdown { mode: mode.to_owned() };
    }
    if field("Seccomp:").is_some_and(|mode| mode != "0") {
        return ProbeError::Seccomp;
    }
    ProbeError::Refused { attempted, source }
}

fn missing_capabilities(effective: u64) -> Vec<&'static str> {
    const SYS_ADMIN: (u32, &str) = (21, "CAP_SYS_ADMIN");
    const NEEDED: [(u32, &str); 2] = [(39, "CAP_BPF"), (38, "CAP_PERFMON")];
    let has = |bit: u32| effective >> bit & 1 == 1;
    if has(SYS_ADMIN.0) {
        return Vec::new();
    }
    NEEDED.into_iter().filter(|(bit, _)| !has(*bit)).map(|(_, name)| name).collect()
}

/// Linux 6.11 made return probes a system call of their own, which seccomp filters (Docker's default one among them)
/// answer by killing the process; 6.14 and later updates of 6.12 and 6.13 let it pass. When those updates came is known
/// about, not exactly: the limits here are on the safe side.
fn return_probes_kill(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|n| n.parse::<u32>().ok());
    match (numbers.next(), numbers.next(), numbers.next()) {
        (Some(6), Some(11), _) => true,
        (Some(6), Some(12), patch) => patch.unwrap_or(0) < 20,
        (Some(6), Some(13), patch) => patch.unwrap_or(0) < 8,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied() -> io::Error {
        io::Error::from_raw_os_error(libc::EPERM)
    }

    #[test]
    fn a_missing_capability_is_named() {
        let error = permission("create a map", denied(), "CapEff:\t0000004000000000\nSeccomp:\t2\n", "");
        assert!(matches!(&error, ProbeError::Capability { missing } if missing == "CAP_BPF"), "{error}");
        let error = permission("create a map", denied(), "CapEff:\t0000000000000000\n", "");
        assert!(error.to_string().starts_with("CAP_BPF and CAP_PERFMON missing"), "{error}");
    }

    #[test]
    fn with_all_capabilities_it_is_lockdown_then_seccomp_then_unknown() {
        let status = "CapEff:\t000001ffffffffff\nSeccomp:\t2\n";
        let locked = permission("create a map", denied(), status, "none integrity [confidentiality]\n");
        assert!(matches!(locked, ProbeError::Lockdown { mode } if mode == "confidentiality"));
        assert!(matches!(permission("create a map", denied(), status, "[none] integrity\n"), ProbeError::Seccomp));
        let status = "CapEff:\t000001ffffffffff\nSeccomp:\t0\n";
        assert!(matches!(permission("create a map", denied(), status, ""), ProbeError::Refused { .. }));
    }

    #[test]
    fn kernels_whose_return_probes_kill_containers_are_known() {
        for release in ["6.11.0-29-generic", "6.12.9", "6.12.0+deb13-amd64", "6.13.1-arch1"] {
            assert!(return_probes_kill(release), "{release}");
        }
        for release in ["5.15.0-91-generic", "6.1.0-18-amd64", "6.10.5", "6.12.38+deb13-amd64", "6.14.0", "6.18.44", ""]
        {
            assert!(!return_probes_kill(release), "{release}");
        }
    }
}
