//! What belongs to the whole process: its link to the server, its devices, and whether it may still use them.
//!
//! A process that called `cuInit` and forked has, as with the real driver, a child that can never use CUDA. The child
//! is told by its pid: it never touches the parent's sockets or locks.

use std::cell::RefCell;
use std::ffi::c_uint;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use berth_proto::cuda::result;
use berth_proto::sim::{Device, Reply, Request};
use berth_proto::wire::{Role, WireError};
use berth_proto::{nvml_state, sim_dir};

use crate::connection::{Connection, Lost};
use crate::edge::Answer;
use crate::log::say;
use crate::visible;

/// Pid of the process that began to initialise; 0 before.
static OWNER: AtomicU32 = AtomicU32::new(0);
/// The server went away: nothing works any more, as after a GPU was lost.
static LOST: AtomicBool = AtomicBool::new(false);
static PROCESS: OnceLock<Process> = OnceLock::new();
static INITIALISING: Mutex<()> = Mutex::new(());

thread_local! {
    static CONNECTION: RefCell<Option<Connection>> = const { RefCell::new(None) };
}

#[derive(Debug)]
pub(crate) struct Process {
    socket: PathBuf,
    /// The visible devices, in the process's order.
    pub(crate) devices: Vec<Gpu>,
    /// Held open for as long as the process is one: closing it takes the process off the GPU.
    _anchor: Connection,
}

#[derive(Debug)]
pub(crate) struct Gpu {
    /// The server's number for it.
    pub(crate) index: u32,
    pub(crate) about: Device,
    /// `00000000:3B:00.0`; empty if the snapshot could not be read.
    pub(crate) pci_bus_id: String,
}

pub(crate) fn init(flags: c_uint) -> Answer {
    if flags != 0 {
        return Err(result::INVALID_VALUE);
    }
    let pid = std::process::id();
    let owner = OWNER.load(Ordering::Acquire);
    if owner != 0 && owner != pid {
        return Err(result::NOT_INITIALIZED);
    }
    OWNER.store(pid, Ordering::Release);
    let _one_at_a_time = INITIALISING.lock().unwrap_or_else(PoisonError::into_inner);
    if PROCESS.get().is_some() {
        return get().map(drop);
    }
    match connect() {
        Ok(process) => {
            // Only this function sets it, and it holds the lock.
            PROCESS.get_or_init(|| process);
            Ok(())
        }
        Err(code) => {
            OWNER.store(0, Ordering::Release);
            Err(code)
        }
    }
}

/// The process's state, if `cuInit` was called here and the server is still there.
pub(crate) fn get() -> Answer<&'static Process> {
    if OWNER.load(Ordering::Acquire) != std::process::id() {
        return Err(result::NOT_INITIALIZED);
    }
    let process = PROCESS.get().ok_or(result::NOT_INITIALIZED)?;
    if LOST.load(Ordering::Relaxed) {
        return Err(result::DEVICE_UNAVAILABLE);
    }
    Ok(process)
}

/// Asks the server on this thread's own connection and waits. A refusal comes back as the error.
pub(crate) fn call(request: Request) -> Answer<Reply> {
    match with_connection(|connection| connection.call(request))? {
        Reply::Error(code) => Err(code),
        reply => Ok(reply),
    }
}

/// Asks and waits, where the answer is only yes or no.
pub(crate) fn demand(request: Request) -> Answer {
    match call(request)? {
        Reply::Done => Ok(()),
        reply => Err(unexpected(&reply)),
    }
}

/// Asks for something that comes back as a handle.
pub(crate) fn obtain(request: Request) -> Answer<u64> {
    match call(request)? {
        Reply::Handle(handle) => Ok(handle),
        reply => Err(unexpected(&reply)),
    }
}

/// Asks without waiting; an error comes back from this thread's next call that waits.
pub(crate) fn post(request: Request) -> Answer {
    with_connection(|connection| connection.post(request))
}

/// A conversation of its own for a thread of this library.
pub(crate) fn connect_thread() -> Answer<Connection> {
    let opened = Connection::open(&get()?.socket, Role::Thread);
    opened.map_err(|lost| explain(lost, result::DEVICE_UNAVAILABLE))
}

/// The server answered, but not what was asked.
pub(crate) fn unexpected(reply: &Reply) -> u32 {
    say(format_args!("unexpected answer {reply:?}"));
    result::UNKNOWN
}

fn with_connection<T>(work: impl FnOnce(&mut Connection) -> Result<T, Lost>) -> Answer<T> {
    let process = get()?;
    let outcome = CONNECTION.try_with(|slot| {
        let mut slot = slot.borrow_mut();
        let connection = match slot.take() {
            Some(connection) => slot.insert(connection),
            None => slot.insert(Connection::open(&process.socket, Role::Thread)?),
        };
        work(connection)
    });
    match outcome {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(lost)) => {
            LOST.store(true, Ordering::Relaxed);
            Err(explain(lost, result::DEVICE_UNAVAILABLE))
        }
        // The thread is ending and its connection is already closed.
        Err(_) => Err(result::DEINITIALIZED),
    }
}

fn connect() -> Answer<Process> {
    let dir = sim_dir::find(connect as *const std::ffi::c_void).ok_or(result::NO_DEVICE)?;
    let socket = dir.join(sim_dir::SOCKET);
    let opened = Connection::open(&socket, Role::Process);
    let mut anchor = opened.map_err(|lost| {
        say(format_args!("no simulator at {}", socket.display()));
        explain(lost, result::NO_DEVICE)
    })?;
    let present = devices(&mut anchor).map_err(|lost| explain(lost, result::NO_DEVICE))?;
    if let Some(request) = mps_client() {
        anchor.call(request).map_err(|lost| explain(lost, result::NO_DEVICE))?;
    }
    anchor.call(Request::Init).map_err(|lost| explain(lost, result::NO_DEVICE))?;
    let setting = std::env::var(visible::VARIABLE).ok();
    let snapshot = nvml_state::Reader::open(&dir.join(nvml_state::FILE_NAME)).ok();
    let bus_id = |index: u32| snapshot.as_ref()?.gpu(index as usize).ok().map(|gpu| gpu.pci_bus_id);
    let about: Vec<Device> = present.iter().map(|(_, about)| about.clone()).collect();
    let seen = visible::visible(setting.as_deref(), &about);
    let devices: Vec<Gpu> = seen
        .into_iter()
        .map(|position| {
            let (index, about) = present[position].clone();
            Gpu { index, about, pci_bus_id: bus_id(index).unwrap_or_default() }
        })
        .collect();
    if devices.is_empty() {
        return Err(result::NO_DEVICE);
    }
    Ok(Process { socket, devices, _anchor: anchor })
}

/// What the environment says of this process as a client of MPS, if it says something that makes sense.
fn mps_client() -> Option<Request> {
    let number = |name| std::env::var(name).ok()?.trim().parse::<f64>().ok().filter(|number| *number >= 0.0);
    let percentage = number("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
    let priority = number("CUDA_MPS_CLIENT_PRIORITY");
    percentage.or(priority)?;
    Some(Request::MpsClient {
        percentage: whole(percentage.unwrap_or(100.0).clamp(1.0, 100.0)),
        priority: whole(priority.unwrap_or(0.0)),
    })
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // not negative, and a float cast saturates
fn whole(number: f64) -> u32 {
    number.ceil() as u32
}

/// The devices that are there, with the server's number of each: a lost one is left out.
fn devices(connection: &mut Connection) -> Result<Vec<(u32, Device)>, Lost> {
    let Reply::Count(count) = connection.call(Request::DeviceCount)? else {
        return Ok(Vec::new());
    };
    let mut devices = Vec::new();
    for device in 0..count {
        if let Reply::Device(about) = connection.call(Request::Device { device })? {
            devices.push((device, *about));
        }
    }
    Ok(devices)
}

/// Another version is named as what it is; everything else is `otherwise`.
fn explain(lost: Lost, otherwise: u32) -> u32 {
    match lost {
        Lost::Wire(error @ WireError::Version { .. }) => {
            say(format_args!("{error}"));
            result::SYSTEM_DRIVER_MISMATCH
        }
        Lost::Wire(error) => {
            say(format_args!("{error}"));
            otherwise
        }
        Lost::Io(error) => {
            say(format_args!("{error}"));
            otherwise
        }
    }
}
