//! What of the probes lives in the kernel: maps, programs, and links from places in a file to programs.
//!
//! Everything is held by descriptors: it is gone when they are closed, however the daemon ends.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::available::{self, Available, refusal};
use super::error::ProbeError;
use super::function::Cookie;
use super::program::{Halting, Maps, Program};
use super::rule::Rule;
use super::sys::{self, AttachType, Code, MapType, Multi, Ring, Single};

/// How places are attached to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// All places of a library with one link (Linux 6.6 and later).
    Multi,
    /// One perf event for each place; `kind` is uprobes' number among perf events.
    PerfEvents { kind: u32 },
}

#[derive(Debug)]
pub struct Kernel {
    way: Way,
    rules: OwnedFd,
    halted: OwnedFd,
    lost: OwnedFd,
    /// In the order of [`Program::ALL`].
    programs: Vec<OwnedFd>,
}

/// Attached probes. Dropping them detaches, which takes the kernel tens of milliseconds for each link.
#[derive(Debug)]
pub struct Links {
    /// With the function it probes, where a link is for one.
    links: Vec<(Option<u8>, OwnedFd)>,
}

/// A place in a file, and what its probe tells.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    pub offset: u64,
    pub cookie: Cookie,
}

/// Bytes of the ring: 6,553 records, so that a process which calls rare functions in a loop does not push others out.
const RING_LEN: u32 = 1 << 18;
/// More than a host has processes on its GPUs, with a few rules for each.
const MAX_RULES: u32 = 1 << 18;
/// More than anyone waits for.
const MAX_HALTED: u32 = 1 << 14;
const LOST_KEY: [u8; 4] = [0; 4];

// === impl Kernel ===

impl Kernel {
    pub fn load(way: Way, halting: Halting) -> Result<(Kernel, Ring), ProbeError> {
        let ring = sys::create_map(MapType::Ring, 0, 0, RING_LEN).map_err(|e| refusal("create a ring buffer", e))?;
        let rules = sys::create_map(MapType::SparseHash, 8, 8, MAX_RULES).map_err(|e| refusal("create a map", e))?;
        let halted = sys::create_map(MapType::Hash, 4, 8, MAX_HALTED).map_err(|e| refusal("create a map", e))?;
        let lost = sys::create_map(MapType::Array, 4, 8, 1).map_err(|e| refusal("create a map", e))?;
        let maps = Maps {
            ring: ring.as_raw_fd(),
            rules: rules.as_raw_fd(),
            halted: halted.as_raw_fd(),
            lost: lost.as_raw_fd(),
        };
        let programs = Program::ALL.into_iter().map(|p| load(p, maps, way, halting)).collect::<Result<_, _>>()?;
        let ring = Ring::new(ring, RING_LEN as usize)
            .map_err(|source| ProbeError::Refused { attempted: "map the ring buffer", source })?;
        Ok((Kernel { way, rules, halted, lost, programs }, ring))
    }

    /// Attaches `program` at each place of `file`, in process `pid` or in all.
    pub fn attach(&self, program: Program, file: &File, places: &[Place], pid: Option<u32>) -> io::Result<Links> {
        // The file by its descriptor: whatever happens to its path, this is the inode that was read.
        let path = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd())).expect("no zero in it");
        let returns = program.returns();
        let pid = pid.unwrap_or(0);
        let links = match self.way {
            Way::Multi => vec![(None, self.attach_multi(program, &path, places, returns, pid)?)],
            Way::PerfEvents { kind } => {
                let single = |place: &Place| {
                    let event = sys::open_uprobe(kind, Single { path: &path, offset: place.offset, returns, pid })?;
                    let link = sys::link_perf(self.program(program), event.as_fd(), place.cookie.encode())?;
                    Ok((Some(place.cookie.function), link))
                };
                places.iter().map(single).collect::<io::Result<_>>()?
            }
        };
        Ok(Links { links })
    }

    /// From now on the programs follow this rule for the process, or the GPU.
    pub fn rule(&self, of: u32, rule: Rule, number: u64) -> io::Result<()> {
        sys::map_update(self.rules.as_fd(), &rule.key(of), number)
    }

    /// The same where there is such a rule; else nothing.
    pub fn change(&self, of: u32, rule: Rule, number: u64) -> io::Result<()> {
        match sys::map_change(self.rules.as_fd(), &rule.key(of), number) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            changed => changed,
        }
    }

    /// What a rule's number is now; `None` if there is no such rule.
    pub fn number(&self, of: u32, rule: Rule) -> Option<u64> {
        sys::map_lookup(self.rules.as_fd(), &rule.key(of)).ok()
    }

    /// They do no longer. Returns the number the rule had come to, `None` if there was no such rule.
    pub fn revoke(&self, pid: u32, rule: Rule) -> Option<u64> {
        let number = self.number(pid, rule);
        // Not there is as good as deleted.
        let _ = sys::map_delete(self.rules.as_fd(), &rule.key(pid));
        number
    }

    /// Which processes the programs have stopped, for [`super::read_halted`].
    pub fn halted(&self) -> BorrowedFd<'_> {
        self.halted.as_fd()
    }

    /// Records the ring had no room for.
    pub fn lost(&self) -> u64 {
        sys::map_lookup(self.lost.as_fd(), &LOST_KEY).unwrap_or(0)
    }

    fn attach_multi(
        &self,
        program: Program,
        path: &CStr,
        places: &[Place],
        returns: bool,
        pid: u32,
    ) -> io::Result<OwnedFd> {
        let offsets: Vec<_> = places.iter().map(|p| p.offset).collect();
        let cookies: Vec<_> = places.iter().map(|p| p.cookie.encode()).collect();
        sys::link_multi(self.program(program), Multi { path, offsets: &offsets, cookies: &cookies, returns, pid })
    }

    fn program(&self, program: Program) -> BorrowedFd<'_> {
        let index = Program::ALL.iter().position(|p| *p == program).expect("all are in ALL");
        self.programs[index].as_fd()
    }
}

fn load(program: Program, maps: Maps, way: Way, halting: Halting) -> Result<OwnedFd, ProbeError> {
    let insns = program.assemble(maps, halting);
    let attach = (way == Way::Multi).then_some(AttachType::UprobeMulti);
    let sleeps = halting == Halting::Unseen && !program.returns();
    let code = Code { name: program.name(), insns: &insns, attach, sleeps };
    sys::load_program(code, &mut []).or_else(|_| {
        // Again, for the verifier's reasons, which are not wanted when it agrees.
        let mut log = vec![0; 1 << 16];
        sys::load_program(code, &mut log).map_err(|source| {
            let end = log.iter().position(|b| *b == 0).unwrap_or(log.len());
            if end == 0 {
                return refusal("load a program", source);
            }
            let log = String::from_utf8_lossy(&log[..end]).trim().to_owned();
            ProbeError::Verifier { program: program.name(), source, log }
        })
    })
}

// === impl Way ===

impl Way {
    /// The best the kernel offers, or perf events if `perf_events`.
    pub fn choose(available: Available, perf_events: bool) -> Result<Way, ProbeError> {
        if available.multi && !perf_events {
            return Ok(Way::Multi);
        }
        Ok(Way::PerfEvents { kind: available::uprobe_kind()? })
    }
}

// === impl Links ===

impl Links {
    /// Detaches, beginning with the function that is being hit: the kernel takes one after the other.
    pub fn detach(mut self, hit: u8) {
        self.links.sort_by_key(|(function, _)| *function != Some(hit));
        for (_, link) in self.links {
            drop(link);
        }
    }
}
