//! Arrays and mipmaps: memory in a layout of the driver's own. What they take is reckoned by their descriptions; the driver takes a little more.

use std::ffi::{c_int, c_uint};

use crate::hooks::memory::{On, allocate, free};

/// `CUDA_ARRAY_DESCRIPTOR`
#[repr(C)]
pub struct Flat {
    width: usize,
    height: usize,
    format: c_int,
    channels: c_uint,
}

/// `CUDA_ARRAY3D_DESCRIPTOR`
#[repr(C)]
pub struct Deep {
    width: usize,
    height: usize,
    depth: usize,
    format: c_int,
    channels: c_uint,
    flags: c_uint,
}

/// `CUDA_ARRAY3D_LAYERED`, `…_CUBEMAP`: the depth is a number of layers, or of faces. `CUDA_ARRAY3D_SPARSE` and `…_DEFERRED_MAPPING`: its memory is made apart.
const LAYERED: c_uint = 0x01 | 0x04;
const WITHOUT_MEMORY: c_uint = 0x40 | 0x80;

/// Of one channel of one element. What is compressed takes less.
fn bytes_of(format: c_int) -> u64 {
    match format {
        0x03 | 0x0a | 0x20 => 4,
        0x02 | 0x09 | 0x10 | 0xc3..=0xc5 | 0xc9..=0xcb => 2,
        _ => 1,
    }
}

impl Deep {
    fn of(flat: &Flat) -> Self {
        let Flat { width, height, format, channels } = *flat;
        Self { width, height, depth: 0, format, channels, flags: 0 }
    }

    /// With so many levels, each half as large as the one before in each direction.
    fn bytes(&self, levels: c_uint) -> usize {
        if self.flags & WITHOUT_MEMORY != 0 {
            return 0;
        }
        let element = bytes_of(self.format).saturating_mul(self.channels.into());
        let level = |level: c_uint| {
            let side = |elements: usize| (elements as u64).checked_shr(level).unwrap_or(0).max(1);
            let depth = if self.flags & LAYERED == 0 { side(self.depth) } else { self.depth as u64 };
            element.saturating_mul(side(self.width)).saturating_mul(side(self.height)).saturating_mul(depth.max(1))
        };
        // No side has more than 64 bits.
        let all = (0..levels.min(64)).map(level).fold(0, u64::saturating_add);
        usize::try_from(all).unwrap_or(usize::MAX)
    }
}

crate::hooks::hooks! {
    cuArrayCreate_v2: (out: *mut u64, wanted: *const Flat) |real, _default| {
        // SAFETY: null or a description, by the driver API's contract.
        let bytes = unsafe { wanted.as_ref() }.map_or(0, |wanted| Deep::of(wanted).bytes(1));
        // SAFETY: the caller's own arguments, as in all of these.
        allocate(out, bytes, On::Current, || unsafe { real(out, wanted) })
    };
    cuArray3DCreate_v2: (out: *mut u64, wanted: *const Deep) |real, _default| {
        // SAFETY: as above.
        let bytes = unsafe { wanted.as_ref() }.map_or(0, |wanted| wanted.bytes(1));
        // SAFETY: as above.
        allocate(out, bytes, On::Current, || unsafe { real(out, wanted) })
    };
    // SAFETY: as above.
    cuArrayDestroy: (array: u64) |real, _default| free(array, || unsafe { real(array) });
    cuMipmappedArrayCreate: (out: *mut u64, wanted: *const Deep, levels: c_uint) |real, _default| {
        // SAFETY: as above.
        let bytes = unsafe { wanted.as_ref() }.map_or(0, |wanted| wanted.bytes(levels));
        // SAFETY: as above.
        allocate(out, bytes, On::Current, || unsafe { real(out, wanted, levels) })
    };
    // SAFETY: as above.
    cuMipmappedArrayDestroy: (array: u64) |real, _default| free(array, || unsafe { real(array) });
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOAT: c_int = 0x20;
    const HALF: c_int = 0x10;

    #[test]
    fn an_array_takes_what_its_elements_take() {
        let flat = Flat { width: 1024, height: 512, format: FLOAT, channels: 4 };
        assert_eq!(Deep::of(&flat).bytes(1), 1024 * 512 * 16);
        let row = Flat { width: 100, height: 0, format: HALF, channels: 1 };
        assert_eq!(Deep::of(&row).bytes(1), 200);
    }

    #[test]
    fn each_level_of_a_mipmap_is_half_as_large_in_each_direction_but_for_its_layers() {
        let deep = |depth, flags| Deep { width: 8, height: 4, depth, format: FLOAT, channels: 1, flags };
        assert_eq!(deep(2, 0).bytes(3), 4 * (8 * 4 * 2 + 4 * 2 + 2));
        assert_eq!(deep(6, LAYERED).bytes(2), 4 * 6 * (8 * 4 + 4 * 2));
        assert_eq!(deep(2, 0x40).bytes(3), 0, "its memory is made and mapped apart");
    }

    #[test]
    fn no_description_overflows() {
        let huge =
            Deep { width: usize::MAX, height: usize::MAX, depth: 2, format: FLOAT, channels: u32::MAX, flags: 0 };
        assert_eq!(huge.bytes(u32::MAX), usize::MAX);
    }
}
