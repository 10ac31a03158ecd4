//! What a program may ask about the devices.

use std::ffi::c_int;

use berth_proto::cuda::{Uuid, result};

use crate::edge::{Answer, Out, OutText, Text, ordinal};
use crate::process::{self, Gpu};

/// The device at a program's ordinal.
pub(crate) fn gpu(device: c_int) -> Answer<&'static Gpu> {
    let index = ordinal(device)? as usize;
    process::get()?.devices.get(index).ok_or(result::INVALID_DEVICE)
}

pub(crate) fn count(out: Out<c_int>) -> Answer {
    let count = process::get()?.devices.len();
    out.set(c_int::try_from(count).unwrap_or(c_int::MAX))
}

pub(crate) fn get(out: Out<c_int>, device: c_int) -> Answer {
    gpu(device)?;
    out.set(device)
}

pub(crate) fn name(out: OutText, room: c_int, device: c_int) -> Answer {
    out.set(&gpu(device)?.about.name, room)
}

pub(crate) fn uuid(out: Out<Uuid>, device: c_int) -> Answer {
    out.set(Uuid { bytes: gpu(device)?.about.uuid })
}

pub(crate) fn total_memory(out: Out<usize>, device: c_int) -> Answer {
    out.set(usize::try_from(gpu(device)?.about.total_memory).unwrap_or(usize::MAX))
}

pub(crate) fn pci_bus_id(out: OutText, room: c_int, device: c_int) -> Answer {
    let id = &gpu(device)?.pci_bus_id;
    // CUDA says the domain with four digits where NVML says it with eight.
    out.set(id.strip_prefix("0000").unwrap_or(id), room)
}

pub(crate) fn by_pci_bus_id(out: Out<c_int>, bus_id: Text) -> Answer {
    let wanted = bus_id.get()?.to_ascii_lowercase();
    let devices = &process::get()?.devices;
    let found = devices.iter().position(|gpu| same_bus(&gpu.pci_bus_id.to_ascii_lowercase(), &wanted));
    let device = found.ok_or(result::INVALID_DEVICE)?;
    out.set(c_int::try_from(device).unwrap_or(c_int::MAX))
}

/// The same domain, bus and device; a domain may be left out or written with fewer digits.
fn same_bus(full: &str, wanted: &str) -> bool {
    let place = |id: &str| {
        let mut parts = id.rsplit(':');
        let (device, bus) = (parts.next()?.to_owned(), parts.next()?);
        let domain = parts.next().unwrap_or("0");
        Some((u32::from_str_radix(domain, 16).ok()?, u32::from_str_radix(bus, 16).ok()?, device))
    };
    place(wanted).is_some() && place(wanted) == place(full)
}

pub(crate) fn compute_capability(major: Out<c_int>, minor: Out<c_int>, device: c_int) -> Answer {
    let capability = gpu(device)?.about.compute_capability;
    major.set(signed(capability.0))?;
    minor.set(signed(capability.1))
}

pub(crate) fn attribute(out: Out<c_int>, attribute: c_int, device: c_int) -> Answer {
    out.set(attribute_value(gpu(device)?, attribute)?)
}

/// The last attribute CUDA 13.0 knows.
const LAST_ATTRIBUTE: c_int = 147;

/// The attributes by their number in the driver API: limits all GPUs of the last ten years share, this GPU's own
/// values, and 0 ("not there") for every capability that is not modelled.
fn attribute_value(gpu: &Gpu, attribute: c_int) -> Answer<c_int> {
    let about = &gpu.about;
    Ok(match attribute {
        1..=3 => 1024,                                         // threads per block, block x and y
        4 => 64,                                               // block z
        5 => c_int::MAX,                                       // grid x
        6 | 7 => 65535,                                        // grid y and z
        8 => 48 << 10,                                         // shared memory per block
        9 => 64 << 10,                                         // constant memory
        10 => 32,                                              // warp
        11 => c_int::MAX,                                      // pitch
        12 | 82 => 64 << 10,                                   // registers per block, per SM
        14 | 30 => 512,                                        // texture and surface alignment
        15 | 19 | 31 | 41 | 78 | 79 | 80 | 90 | 95 | 115 => 1, // overlap, host mapping, concurrency, UVA, priorities, caches, preemption, cooperation, pools
        91 | 99 | 113 => 1, // registered host memory: by its own address, at all, for reading only
        92..=94 | 122 | 123 => 1, // streams wait for words: at all, of 64 bits, by NOR; by old and new numbers
        133 => about.has_mps.into(),
        16 => signed(about.sm_count),
        33 => pci_field(gpu, 9, 11),
        34 => pci_field(gpu, 12, 14),
        39 => signed(about.max_threads_per_sm),
        40 => 2, // copy engines
        50 => pci_field(gpu, 0, 8),
        75 => signed(about.compute_capability.0),
        76 => signed(about.compute_capability.1),
        81 => 96 << 10, // shared memory per SM
        97 => 96 << 10, // shared memory per block, on request
        106 => 32,      // blocks per SM
        attribute if (1..=LAST_ATTRIBUTE).contains(&attribute) => 0,
        _ => return Err(result::INVALID_VALUE),
    })
}

/// A hexadecimal field of the bus id.
fn pci_field(gpu: &Gpu, start: usize, end: usize) -> c_int {
    gpu.pci_bus_id.get(start..end).and_then(|field| c_int::from_str_radix(field, 16).ok()).unwrap_or(0)
}

fn signed(value: u32) -> c_int {
    c_int::try_from(value).unwrap_or(c_int::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bus_is_found_however_its_domain_is_written() {
        for wanted in ["00000000:0b:00.0", "0000:0b:00.0", "0b:00.0"] {
            assert!(same_bus("00000000:0b:00.0", wanted), "{wanted}");
        }
        assert!(!same_bus("00000000:0b:00.0", "0000:0c:00.0"));
        assert!(!same_bus("", ""));
    }
}
