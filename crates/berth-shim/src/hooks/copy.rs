//! Asynchronous copies and fills. Synchronous ones are passed on: their caller waits for them, so little of them is ever outstanding.

use std::ffi::{c_uchar, c_uint, c_ushort, c_void};

use crate::work::{Work, submit};

/// Kinds of copies that are told apart.
const ANY: u64 = 1;
const TO_DEVICE: u64 = 2;
const FROM_DEVICE: u64 = 3;
const WITHIN: u64 = 4;
const PEER: u64 = 5;
const PLANE: u64 = 6;
const SPACE: u64 = 7;
const FILL: u64 = 8;

/// `CUDA_MEMCPY2D` and `CUDA_MEMCPY3D`, of which only the extents are read.
#[repr(C)]
pub struct Copy2D {
    before: [u64; 14],
    width_bytes: u64,
    height: u64,
}

#[repr(C)]
pub struct Copy3D {
    before: [u64; 22],
    width_bytes: u64,
    height: u64,
    depth: u64,
}

const _: () = assert!(size_of::<Copy2D>() == 128 && size_of::<Copy3D>() == 200);

fn product(sizes: &[u64]) -> u64 {
    sizes.iter().copied().fold(1, u64::saturating_mul)
}

fn fill(bytes_each: u64, count: usize) -> Work {
    Work::copy(FILL, product(&[bytes_each, count as u64]))
}

crate::hooks::hooks! {
    cuMemcpyAsync / cuMemcpyAsync_ptsz: (to: u64, from: u64, bytes: usize, stream: u64) |real, default|
        // SAFETY: the caller's own arguments, as in all of these.
        submit(default.of(stream), || Work::copy(ANY, bytes as u64), |_| unsafe { real(to, from, bytes, stream) });
    cuMemcpyHtoDAsync_v2 / cuMemcpyHtoDAsync_v2_ptsz: (to: u64, from: *const c_void, bytes: usize, stream: u64) |real, default|
        // SAFETY: as above.
        submit(default.of(stream), || Work::copy(TO_DEVICE, bytes as u64), |_| unsafe { real(to, from, bytes, stream) });
    cuMemcpyDtoHAsync_v2 / cuMemcpyDtoHAsync_v2_ptsz: (to: *mut c_void, from: u64, bytes: usize, stream: u64) |real, default|
        // SAFETY: as above.
        submit(default.of(stream), || Work::copy(FROM_DEVICE, bytes as u64), |_| unsafe { real(to, from, bytes, stream) });
    cuMemcpyDtoDAsync_v2 / cuMemcpyDtoDAsync_v2_ptsz: (to: u64, from: u64, bytes: usize, stream: u64) |real, default|
        // SAFETY: as above.
        submit(default.of(stream), || Work::copy(WITHIN, bytes as u64), |_| unsafe { real(to, from, bytes, stream) });
    cuMemcpyPeerAsync / cuMemcpyPeerAsync_ptsz: (
        to: u64, to_context: u64, from: u64, from_context: u64, bytes: usize, stream: u64,
    ) |real, default|
        // SAFETY: as above.
        submit(default.of(stream), || Work::copy(PEER, bytes as u64), |_| unsafe {
            real(to, to_context, from, from_context, bytes, stream)
        });
    cuMemcpy2DAsync_v2 / cuMemcpy2DAsync_v2_ptsz: (copy: *const Copy2D, stream: u64) |real, default| {
        // SAFETY: null or a description, by the driver API's contract.
        let bytes = unsafe { copy.as_ref() }.map_or(0, |copy| product(&[copy.width_bytes, copy.height]));
        // SAFETY: as above.
        submit(default.of(stream), || Work::copy(PLANE, bytes), |_| unsafe { real(copy, stream) })
    };
    cuMemcpy3DAsync_v2 / cuMemcpy3DAsync_v2_ptsz: (copy: *const Copy3D, stream: u64) |real, default| {
        // SAFETY: as above.
        let bytes = unsafe { copy.as_ref() }.map_or(0, |copy| product(&[copy.width_bytes, copy.height, copy.depth]));
        // SAFETY: as above.
        submit(default.of(stream), || Work::copy(SPACE, bytes), |_| unsafe { real(copy, stream) })
    };
    cuMemsetD8Async / cuMemsetD8Async_ptsz: (to: u64, value: c_uchar, count: usize, stream: u64) |real, default|
        // SAFETY: as above.
        submit(default.of(stream), || fill(1, count), |_| unsafe { real(to, value, count, stream) });
    cuMemsetD16Async / cuMemsetD16Async_ptsz: (to: u64, value: c_ushort, count: usize, stream: u64) |real, default|
        // SAFETY: as above.
        submit(default.of(stream), || fill(2, count), |_| unsafe { real(to, value, count, stream) });
    cuMemsetD32Async / cuMemsetD32Async_ptsz: (to: u64, value: c_uint, count: usize, stream: u64) |real, default|
        // SAFETY: as above.
        submit(default.of(stream), || fill(4, count), |_| unsafe { real(to, value, count, stream) });
    cuMemsetD2D8Async / cuMemsetD2D8Async_ptsz: (
        to: u64, pitch: usize, value: c_uchar, width: usize, height: usize, stream: u64,
    ) |real, default|
        // SAFETY: as above.
        submit(default.of(stream), || fill(height as u64, width), |_| unsafe { real(to, pitch, value, width, height, stream) });
    cuMemsetD2D16Async / cuMemsetD2D16Async_ptsz: (
        to: u64, pitch: usize, value: c_ushort, width: usize, height: usize, stream: u64,
    ) |real, default|
        // SAFETY: as above.
        submit(default.of(stream), || fill(product(&[2, height as u64]), width), |_| unsafe {
            real(to, pitch, value, width, height, stream)
        });
    cuMemsetD2D32Async / cuMemsetD2D32Async_ptsz: (
        to: u64, pitch: usize, value: c_uint, width: usize, height: usize, stream: u64,
    ) |real, default|
        // SAFETY: as above.
        submit(default.of(stream), || fill(product(&[4, height as u64]), width), |_| unsafe {
            real(to, pitch, value, width, height, stream)
        });
}
