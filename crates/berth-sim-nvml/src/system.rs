//! What NVML says about the machine.

use std::ffi::{c_int, c_uint};

use berth_proto::nvml::result;

use crate::edge::{Answer, Out, OutText};
use crate::state;

pub(crate) fn driver_version(out: OutText, room: c_uint) -> Answer {
    out.set(&state::host()?.driver_version, room)
}

/// The library's own version: the CUDA generation before the driver's.
pub(crate) fn nvml_version(out: OutText, room: c_uint) -> Answer {
    let host = state::host()?;
    out.set(&format!("{}.{}", host.cuda_version / 1000, host.driver_version), room)
}

pub(crate) fn cuda_version(out: Out<c_int>) -> Answer {
    out.set(c_int::try_from(state::host()?.cuda_version).unwrap_or(c_int::MAX))
}

/// The program's path, cut to the room there is, as far as `/proc` shows it to the caller.
pub(crate) fn process_name(pid: c_uint, out: OutText, room: c_uint) -> Answer {
    state::host()?;
    let command = std::fs::read(format!("/proc/{pid}/cmdline")).map_err(|_| result::NOT_FOUND)?;
    let program = command.split(|byte| *byte == 0).next().unwrap_or_default();
    let mut name = String::from_utf8_lossy(program).into_owned();
    let mut end = name.len().min((room as usize).saturating_sub(1));
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name.truncate(end);
    out.set(&name, room)
}
