//! What NVML says about a GPU.

use std::ffi::{c_char, c_int, c_uint};

use berth_proto::nvml::{Memory, MemoryV2, PciInfo, Utilization, result};
use berth_proto::nvml_state::{Area, Gpu};

use crate::edge::{Answer, Out, OutText, Text};
use crate::state;

/// `NVML_DEVICE_ARCH_*` by the major and minor compute capability; `NVML_DEVICE_ARCH_UNKNOWN` otherwise.
const ARCHITECTURES: [((u32, u32), u32); 6] =
    [((7, 0), 5), ((7, 5), 6), ((8, 0), 7), ((8, 6), 7), ((8, 9), 8), ((9, 0), 9)];
const ARCHITECTURE_UNKNOWN: u32 = u32::MAX;

/// Compute capabilities of the GPUs that can be divided into instances: A100 and A30, H100 and H200, B200.
const WITH_MIG: [(u32, u32); 3] = [(8, 0), (9, 0), (10, 0)];

/// `NVML_BRAND_NVIDIA` and `NVML_BRAND_GEFORCE`.
const BRAND_NVIDIA: u32 = 14;
const BRAND_GEFORCE: u32 = 5;

pub(crate) fn count(out: Out<c_uint>) -> Answer {
    out.set(state::host_for(Area::Device)?.gpu_count)
}

pub(crate) fn by_index(index: c_uint, out: Out<u64>) -> Answer {
    let host = state::host_for(Area::Device)?;
    if index >= host.gpu_count {
        return Err(result::INVALID_ARGUMENT);
    }
    if state::gpu_at(index)?.lost {
        return Err(result::GPU_IS_LOST);
    }
    out.set(state::handle(index))
}

fn by(out: Out<u64>, is_it: impl Fn(&Gpu) -> bool) -> Answer {
    let host = state::host_for(Area::Device)?;
    for index in 0..host.gpu_count {
        if is_it(&state::gpu_at(index)?) {
            return by_index(index, out);
        }
    }
    Err(result::NOT_FOUND)
}

pub(crate) fn by_uuid(uuid: Text, out: Out<u64>) -> Answer {
    let uuid = uuid.get()?;
    by(out, |gpu| gpu.uuid == uuid)
}

pub(crate) fn by_bus_id(bus_id: Text, out: Out<u64>) -> Answer {
    let wanted = bus_place(bus_id.get()?).ok_or(result::INVALID_ARGUMENT)?;
    by(out, |gpu| bus_place(&gpu.pci_bus_id) == Some(wanted))
}

/// `domain:bus:device.function` as numbers; a domain may be left out.
fn bus_place(text: &str) -> Option<(u32, u32, u32)> {
    let mut parts = text.rsplit(':');
    let device = parts.next()?.split('.').next()?;
    let bus = parts.next()?;
    let domain = parts.next().unwrap_or("0");
    let number = |text| u32::from_str_radix(text, 16).ok();
    Some((number(domain)?, number(bus)?, number(device)?))
}

fn about(device: u64) -> Answer<Gpu> {
    state::gpu(device, Area::Device).map(|(_, gpu)| gpu)
}

pub(crate) fn name(device: u64, out: OutText, room: c_uint) -> Answer {
    out.set(&about(device)?.name, room)
}

pub(crate) fn uuid(device: u64, out: OutText, room: c_uint) -> Answer {
    out.set(&about(device)?.uuid, room)
}

pub(crate) fn index(device: u64, out: Out<c_uint>) -> Answer {
    about(device)?;
    out.set(state::index_of(device)?)
}

pub(crate) fn pci_info(device: u64, out: Out<PciInfo>) -> Answer {
    let gpu = about(device)?;
    let (domain, bus, slot) = bus_place(&gpu.pci_bus_id).unwrap_or_default();
    out.set(PciInfo {
        // The older text has a domain of four digits.
        bus_id_legacy: text_field(gpu.pci_bus_id.strip_prefix("0000").unwrap_or(&gpu.pci_bus_id)),
        domain,
        bus,
        device: slot,
        device_id: 0,
        subsystem_id: 0,
        bus_id: text_field(&gpu.pci_bus_id),
    })
}

/// A text in a fixed field, zero-terminated.
fn text_field<const N: usize>(text: &str) -> [c_char; N] {
    let mut field = [0; N];
    for (place, byte) in field.iter_mut().take(N - 1).zip(text.bytes()) {
        *place = byte.cast_signed();
    }
    field
}

/// Version 1 counts what belongs to no process as used.
pub(crate) fn memory(device: u64, out: Out<Memory>) -> Answer {
    let (_, gpu) = state::gpu(device, Area::Memory)?;
    let free = gpu.total_bytes.saturating_sub(gpu.used_bytes);
    out.set(Memory { total: gpu.total_bytes, free, used: gpu.used_bytes })
}

/// Version 2 says what belongs to no process apart.
pub(crate) fn memory_v2(device: u64, out: Out<MemoryV2>) -> Answer {
    let version = out.get()?.version;
    if version != MemoryV2::VERSION {
        return Err(result::ARGUMENT_VERSION_MISMATCH);
    }
    let (_, gpu) = state::gpu(device, Area::Memory)?;
    out.set(MemoryV2 {
        version,
        total: gpu.total_bytes,
        reserved: gpu.reserved_bytes,
        free: gpu.total_bytes.saturating_sub(gpu.used_bytes),
        used: gpu.used_bytes.saturating_sub(gpu.reserved_bytes),
    })
}

pub(crate) fn utilization(device: u64, out: Out<Utilization>) -> Answer {
    let (_, gpu) = state::gpu(device, Area::Utilisation)?;
    out.set(Utilization { gpu: gpu.gpu_pct, memory: gpu.memory_pct })
}

pub(crate) fn compute_capability(device: u64, major: Out<c_int>, minor: Out<c_int>) -> Answer {
    let capability = about(device)?.compute_capability;
    major.set(c_int::try_from(capability.0).unwrap_or(c_int::MAX))?;
    minor.set(c_int::try_from(capability.1).unwrap_or(c_int::MAX))
}

pub(crate) fn architecture(device: u64, out: Out<c_uint>) -> Answer {
    let capability = about(device)?.compute_capability;
    let known = ARCHITECTURES.iter().find(|(of, _)| *of == capability);
    out.set(known.map_or(ARCHITECTURE_UNKNOWN, |(_, architecture)| *architecture))
}

pub(crate) fn brand(device: u64, out: Out<c_uint>) -> Answer {
    let is_geforce = about(device)?.name.contains("GeForce");
    out.set(if is_geforce { BRAND_GEFORCE } else { BRAND_NVIDIA })
}

/// For settings the model knows one value of.
pub(crate) fn fixed(device: u64, out: Out<c_uint>, value: c_uint) -> Answer {
    about(device)?;
    out.set(value)
}

/// Partitioned GPUs are not modelled: where the real one could be, it is off and stays off.
pub(crate) fn mig_mode(device: u64, current: Out<c_uint>, pending: Out<c_uint>) -> Answer {
    if !WITH_MIG.contains(&about(device)?.compute_capability) {
        return Err(result::NOT_SUPPORTED);
    }
    current.set(0)?;
    pending.set(0)
}

/// For what this GPU does not have; a wrong handle or a lost GPU comes first, as in NVML.
pub(crate) fn not_supported(device: u64) -> Answer {
    about(device)?;
    Err(result::NOT_SUPPORTED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bus_is_the_same_however_its_domain_is_written() {
        for text in ["00000000:0B:00.0", "0000:0b:00.0", "0b:00.0"] {
            assert_eq!(bus_place(text), Some((0, 11, 0)), "{text}");
        }
        assert_eq!(bus_place("nonsense"), None);
    }

    #[test]
    fn a_text_too_long_for_its_field_still_ends() {
        let field: [c_char; 4] = text_field("abcdef");
        assert_eq!(field.map(c_char::cast_unsigned), *b"abc\0");
    }
}
