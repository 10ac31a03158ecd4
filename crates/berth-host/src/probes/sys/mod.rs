//! The system calls behind the probes: `bpf(2)` and `perf_event_open(2)`, which neither libc nor rustix wraps.
//!
//! Each command of `bpf(2)` gets its own small structure, laid out as the kernel's `union bpf_attr` begins; the kernel
//! takes what is missing at the end as zero.

mod ring;

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use super::asm::Insn;

pub use ring::Ring;

#[derive(Debug, Clone, Copy)]
pub enum MapType {
    /// Room for all entries is taken at once, so that none is refused later for want of memory.
    Hash,
    /// Room is taken entry by entry.
    SparseHash,
    Array,
    Ring,
}

/// What a program may be attached with; the kernel wants to know when it is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum AttachType {
    PerfEvent = 41,
    UprobeMulti = 48,
}

/// A program to load.
#[derive(Debug, Clone, Copy)]
pub struct Code<'a> {
    pub name: &'a str,
    pub insns: &'a [Insn],
    pub attach: Option<AttachType>,
    /// It calls what may sleep, which the kernel offers only under its own licence.
    pub sleeps: bool,
}

/// Many places of one file, probed at once.
#[derive(Debug, Clone, Copy)]
pub struct Multi<'a> {
    pub path: &'a CStr,
    pub offsets: &'a [u64],
    /// As many as there are offsets.
    pub cookies: &'a [u64],
    pub returns: bool,
    /// 0: every process.
    pub pid: u32,
}

/// One place of one file.
#[derive(Debug, Clone, Copy)]
pub struct Single<'a> {
    pub path: &'a CStr,
    pub offset: u64,
    pub returns: bool,
    /// 0: every process.
    pub pid: u32,
}

const BPF_MAP_CREATE: libc::c_int = 0;
const BPF_MAP_LOOKUP_ELEM: libc::c_int = 1;
const BPF_MAP_UPDATE_ELEM: libc::c_int = 2;
const BPF_MAP_DELETE_ELEM: libc::c_int = 3;
const BPF_MAP_GET_NEXT_KEY: libc::c_int = 4;
const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_LINK_CREATE: libc::c_int = 28;

#[repr(C)]
struct MapCreate {
    map_type: u32,
    key_len: u32,
    value_len: u32,
    max_entries: u32,
    flags: u32,
}

#[repr(C)]
struct MapElement {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct ProgLoad {
    prog_type: u32,
    insn_count: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_len: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach_type: u32,
}

#[repr(C)]
struct LinkCreateMulti {
    program: u32,
    target: u32,
    attach_type: u32,
    flags: u32,
    path: u64,
    offsets: u64,
    reference_counts: u64,
    cookies: u64,
    count: u32,
    multi_flags: u32,
    pid: u32,
    padding: u32,
}

#[repr(C)]
struct LinkCreatePerf {
    program: u32,
    target: u32,
    attach_type: u32,
    flags: u32,
    cookie: u64,
}

/// `struct perf_event_attr`, up to the fields a uprobe needs.
#[repr(C)]
struct PerfEventAttr {
    kind: u32,
    len: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    bits: u64,
    wakeup: u32,
    breakpoint: u32,
    path: u64,
    offset: u64,
}

pub fn create_map(kind: MapType, key_len: u32, value_len: u32, max_entries: u32) -> io::Result<OwnedFd> {
    const NO_PREALLOC: u32 = 1;
    let (map_type, flags) = match kind {
        MapType::Hash => (1, 0),
        MapType::SparseHash => (1, NO_PREALLOC),
        MapType::Array => (2, 0),
        MapType::Ring => (27, 0),
    };
    let attr = MapCreate { map_type, key_len, value_len, max_entries, flags };
    // SAFETY: `MapCreate` is the beginning of the kernel's union for this command and holds no pointer.
    unsafe { bpf_fd(BPF_MAP_CREATE, &attr) }
}

/// Sets `key` to `value`, whether it was there or not.
pub fn map_update(map: BorrowedFd<'_>, key: &[u8], value: u64) -> io::Result<()> {
    let attr = element(map, key, &raw const value as u64);
    // SAFETY: callers use maps whose keys are as long as `key` and whose values are 8 bytes; both outlive the call.
    unsafe { bpf(BPF_MAP_UPDATE_ELEM, &attr) }.map(drop)
}

/// Fails as not found where there is no entry.
pub fn map_change(map: BorrowedFd<'_>, key: &[u8], value: u64) -> io::Result<()> {
    const BPF_EXIST: u64 = 2;
    let attr = MapElement { flags: BPF_EXIST, ..element(map, key, &raw const value as u64) };
    // SAFETY: as for `map_update`.
    unsafe { bpf(BPF_MAP_UPDATE_ELEM, &attr) }.map(drop)
}

pub fn map_lookup(map: BorrowedFd<'_>, key: &[u8]) -> io::Result<u64> {
    let mut value = 0_u64;
    let attr = element(map, key, &raw mut value as u64);
    // SAFETY: as for `map_update`; the kernel writes the 8 bytes of `value`.
    unsafe { bpf(BPF_MAP_LOOKUP_ELEM, &attr) }?;
    Ok(value)
}

pub fn map_delete(map: BorrowedFd<'_>, key: &[u8]) -> io::Result<()> {
    let attr = element(map, key, 0);
    // SAFETY: as for `map_update`; there is no value.
    unsafe { bpf(BPF_MAP_DELETE_ELEM, &attr) }.map(drop)
}

/// The key after `key`, or the first one after `None` or a key that is no longer there.
pub fn map_next_key<const LEN: usize>(map: BorrowedFd<'_>, key: Option<&[u8; LEN]>) -> io::Result<[u8; LEN]> {
    let mut next = [0; LEN];
    let mut attr = element(map, &[], next.as_mut_ptr() as u64);
    attr.key = key.map_or(0, |key| key.as_ptr() as u64);
    // SAFETY: callers use maps whose keys are `LEN` bytes; the kernel reads `key` and writes `next`, which outlive the call.
    unsafe { bpf(BPF_MAP_GET_NEXT_KEY, &attr) }?;
    Ok(next)
}

/// Loads a program of the kind uprobes run. `log` receives the verifier's words if it is refused.
pub fn load_program(code: Code<'_>, log: &mut [u8]) -> io::Result<OwnedFd> {
    const PROG_TYPE_KPROBE: u32 = 2;
    const SLEEPABLE: u32 = 1 << 4;
    let mut short = [0; 16];
    short.iter_mut().zip(code.name.bytes().take(15)).for_each(|(to, from)| *to = from);
    // `program.rs` is offered under both.
    let license = if code.sleeps { c"GPL v2" } else { c"Apache-2.0" };
    let attr = ProgLoad {
        prog_type: PROG_TYPE_KPROBE,
        insn_count: length(code.insns),
        insns: code.insns.as_ptr() as u64,
        license: license.as_ptr() as u64,
        log_level: u32::from(!log.is_empty()),
        log_len: length(log),
        log: if log.is_empty() { 0 } else { log.as_mut_ptr() as u64 },
        kernel_version: 0,
        flags: if code.sleeps { SLEEPABLE } else { 0 },
        name: short,
        interface: 0,
        attach_type: code.attach.map_or(0, |a| a as u32),
    };
    // SAFETY: every pointer in `attr` is to memory of the length given with it (the licence ends with a zero) that
    // outlives the call; the kernel writes to `log` only, which is borrowed mutably.
    unsafe { bpf_fd(BPF_PROG_LOAD, &attr) }
}

pub fn link_multi(program: BorrowedFd<'_>, multi: Multi<'_>) -> io::Result<OwnedFd> {
    const RETURN: u32 = 1;
    assert_eq!(multi.offsets.len(), multi.cookies.len(), "each place has its cookie");
    let attr = LinkCreateMulti {
        program: number(program),
        target: 0,
        attach_type: AttachType::UprobeMulti as u32,
        flags: 0,
        path: multi.path.as_ptr() as u64,
        offsets: multi.offsets.as_ptr() as u64,
        reference_counts: 0,
        cookies: multi.cookies.as_ptr() as u64,
        count: length(multi.offsets),
        multi_flags: if multi.returns { RETURN } else { 0 },
        pid: multi.pid,
        padding: 0,
    };
    // SAFETY: the path ends with a zero, both arrays have `count` entries, and all outlive the call.
    unsafe { bpf_fd(BPF_LINK_CREATE, &attr) }
}

/// A perf event at one place. `kind` is the number the kernel gave to uprobes.
pub fn open_uprobe(kind: u32, single: Single<'_>) -> io::Result<OwnedFd> {
    let attr = PerfEventAttr {
        kind,
        len: u32::try_from(size_of::<PerfEventAttr>()).expect("72 bytes"),
        config: u64::from(single.returns),
        sample_period: 0,
        sample_type: 0,
        read_format: 0,
        bits: 0,
        wakeup: 0,
        breakpoint: 0,
        path: single.path.as_ptr() as u64,
        offset: single.offset,
    };
    let (pid, cpu) = if single.pid == 0 { (-1, 0) } else { (i64::from(single.pid), -1) };
    let (no_group, close_on_exec) = (-1_i64, 8_i64);
    // SAFETY: `attr` says its own length, its path ends with a zero, and both outlive the call.
    let fd = unsafe {
        libc::syscall(libc::SYS_perf_event_open, &raw const attr, pid, i64::from(cpu), no_group, close_on_exec)
    };
    // SAFETY: a result that is no error is a new descriptor nobody else has.
    unsafe { owned(fd) }
}

/// Runs `program` at each hit of `event`. The link keeps the event.
pub fn link_perf(program: BorrowedFd<'_>, event: BorrowedFd<'_>, cookie: u64) -> io::Result<OwnedFd> {
    let attr = LinkCreatePerf {
        program: number(program),
        target: number(event),
        attach_type: AttachType::PerfEvent as u32,
        flags: 0,
        cookie,
    };
    // SAFETY: `LinkCreatePerf` is the beginning of the kernel's union for this command and holds no pointer.
    unsafe { bpf_fd(BPF_LINK_CREATE, &attr) }
}

fn element(map: BorrowedFd<'_>, key: &[u8], value: u64) -> MapElement {
    MapElement { map: number(map), padding: 0, key: key.as_ptr() as u64, value, flags: 0 }
}

fn number(fd: BorrowedFd<'_>) -> u32 {
    u32::try_from(fd.as_raw_fd()).expect("an open descriptor is not negative")
}

fn length<T>(slice: &[T]) -> u32 {
    u32::try_from(slice.len()).expect("a few dozen entries, or a log of kilobytes")
}

/// # Safety
/// `attr` must be the beginning of `union bpf_attr` as `command` reads it, without padding left uninitialised, and
/// every address in it valid for what the command does with it.
unsafe fn bpf<T>(command: libc::c_int, attr: &T) -> io::Result<i64> {
    // SAFETY: the caller vouches for what `attr` holds; its length is its own.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attr), size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// # Safety
/// As for [`bpf`]; `command` must be one that returns a descriptor.
unsafe fn bpf_fd<T>(command: libc::c_int, attr: &T) -> io::Result<OwnedFd> {
    // SAFETY: passed on to the caller.
    let fd = unsafe { bpf(command, attr) }?;
    // SAFETY: the command returned a new descriptor nobody else has.
    unsafe { owned(fd) }
}

/// # Safety
/// `fd` must be a system call's result: negative for an error in `errno`, or a new descriptor.
unsafe fn owned(fd: i64) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    let fd = RawFd::try_from(fd).expect("descriptors are 32 bits wide");
    // SAFETY: nobody else owns it, says the caller.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
