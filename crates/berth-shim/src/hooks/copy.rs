//! Copies and fills, of which also those count that their caller waits for: they are work of the GPU like others. Against the budget of
//! bytes count only those that have an end on the host.

use std::ffi::{c_uchar, c_uint, c_ulonglong, c_ushort, c_void};

use berth_proto::cuda::CuResult;

use crate::hooks::Default;
use crate::work::{End, Work, submit};

/// Kinds of copies that are told apart.
const ANY: u64 = 1;
const TO_DEVICE: u64 = 2;
const FROM_DEVICE: u64 = 3;
const WITHIN: u64 = 4;
const PEER: u64 = 5;
const PLANE: u64 = 6;
const SPACE: u64 = 7;
const FILL: u64 = 8;
const BATCH: u64 = 9;

/// `CU_MEMORYTYPE_HOST` and `…_UNIFIED`
const HOST: u64 = 1;
const UNIFIED: u64 = 4;

/// `CUDA_MEMCPY2D` and `CUDA_MEMCPY3D`, which has the layout of `CUDA_MEMCPY3D_PEER`.
#[repr(C)]
pub struct Copy2D {
    from: End2D,
    to: End2D,
    width_bytes: u64,
    height: u64,
}

#[repr(C)]
struct End2D {
    place: [u64; 2],
    memory_type: u64,
    host: u64,
    device: u64,
    array_and_pitch: [u64; 2],
}

#[repr(C)]
pub struct Copy3D {
    from: End3D,
    to: End3D,
    width_bytes: u64,
    height: u64,
    depth: u64,
}

#[repr(C)]
struct End3D {
    place: [u64; 4],
    memory_type: u64,
    host: u64,
    device: u64,
    array_and_pitch: [u64; 4],
}

const _: () = assert!(size_of::<Copy2D>() == 128 && size_of::<Copy3D>() == 200);

/// The type is the lower half of its word.
fn end(memory_type: u64, address: u64) -> End {
    match memory_type & 0xffff_ffff {
        HOST => End::Host,
        UNIFIED => End::At(address),
        _ => End::Device,
    }
}

fn product(sizes: &[u64]) -> u64 {
    sizes.iter().copied().fold(1, u64::saturating_mul)
}

/// # Safety
/// Null, or a description.
unsafe fn plane(copy: *const Copy2D) -> Work {
    // SAFETY: the caller's promise.
    let Some(copy) = (unsafe { copy.as_ref() }) else { return Work::copy(PLANE, 0, [End::Device; 2]) };
    let ends = [&copy.to, &copy.from].map(|it| end(it.memory_type, it.device));
    Work::copy(PLANE, product(&[copy.width_bytes, copy.height]), ends)
}

/// # Safety
/// Null, or a description.
unsafe fn space(copy: *const Copy3D) -> Work {
    // SAFETY: the caller's promise.
    let Some(copy) = (unsafe { copy.as_ref() }) else { return Work::copy(SPACE, 0, [End::Device; 2]) };
    let ends = [&copy.to, &copy.from].map(|it| end(it.memory_type, it.device));
    Work::copy(SPACE, product(&[copy.width_bytes, copy.height, copy.depth]), ends)
}

/// # Safety
/// Null, or arrays of `count` elements.
unsafe fn batch(to: *const u64, from: *const u64, sizes: *const usize, count: usize) -> Work {
    if to.is_null() || from.is_null() || sizes.is_null() || count == 0 {
        return Work::copy(BATCH, 0, [End::Device; 2]);
    }
    // SAFETY: the caller's promise.
    let (sizes, ends) = unsafe { (std::slice::from_raw_parts(sizes, count), [End::At(*to), End::At(*from)]) };
    Work::copy(BATCH, sizes.iter().fold(0, |sum: u64, size| sum.saturating_add(*size as u64)), ends)
}

fn fill(sizes: &[u64]) -> Work {
    Work::copy(FILL, product(sizes), [End::Device; 2])
}

/// One that is never launched elsewhere.
fn go(default: Default, stream: u64, work: impl FnOnce() -> Work, real: impl Fn() -> CuResult) -> CuResult {
    submit(default.of(stream), work, |_| real())
}

crate::hooks::hooks! {
    cuMemcpy / cuMemcpy_ptds: (to: u64, from: u64, bytes: usize) |real, default|
        // SAFETY: the caller's own arguments, as in all of these.
        go(default, 0, || Work::copy(ANY, bytes as u64, [End::At(to), End::At(from)]), || unsafe { real(to, from, bytes) });
    cuMemcpyAsync / cuMemcpyAsync_ptsz: (to: u64, from: u64, bytes: usize, stream: u64) |real, default|
        // SAFETY: as above.
        go(default, stream, || Work::copy(ANY, bytes as u64, [End::At(to), End::At(from)]), || unsafe { real(to, from, bytes, stream) });
    cuMemcpyHtoD_v2 / cuMemcpyHtoD_v2_ptds: (to: u64, from: *const c_void, bytes: usize) |real, default|
        // SAFETY: as above.
        go(default, 0, || Work::copy(TO_DEVICE, bytes as u64, [End::Device, End::Host]), || unsafe { real(to, from, bytes) });
    cuMemcpyHtoDAsync_v2 / cuMemcpyHtoDAsync_v2_ptsz: (to: u64, from: *const c_void, bytes: usize, stream: u64) |real, default|
        // SAFETY: as above.
        go(default, stream, || Work::copy(TO_DEVICE, bytes as u64, [End::Device, End::Host]), || unsafe { real(to, from, bytes, stream) });
    cuMemcpyDtoH_v2 / cuMemcpyDtoH_v2_ptds: (to: *mut c_void, from: u64, bytes: usize) |real, default|
        // SAFETY: as above.
        go(default, 0, || Work::copy(FROM_DEVICE, bytes as u64, [End::Host, End::Device]), || unsafe { real(to, from, bytes) });
    cuMemcpyDtoHAsync_v2 / cuMemcpyDtoHAsync_v2_ptsz: (to: *mut c_void, from: u64, bytes: usize, stream: u64) |real, default|
        // SAFETY: as above.
        go(default, stream, || Work::copy(FROM_DEVICE, bytes as u64, [End::Host, End::Device]), || unsafe { real(to, from, bytes, stream) });
    cuMemcpyDtoD_v2 / cuMemcpyDtoD_v2_ptds: (to: u64, from: u64, bytes: usize) |real, default|
        // SAFETY: as above.
        go(default, 0, || Work::copy(WITHIN, bytes as u64, [End::Device, End::Device]), || unsafe { real(to, from, bytes) });
    cuMemcpyDtoDAsync_v2 / cuMemcpyDtoDAsync_v2_ptsz: (to: u64, from: u64, bytes: usize, stream: u64) |real, default|
        // SAFETY: as above.
        go(default, stream, || Work::copy(WITHIN, bytes as u64, [End::Device, End::Device]), || unsafe { real(to, from, bytes, stream) });
    cuMemcpyPeer / cuMemcpyPeer_ptds: (to: u64, to_context: u64, from: u64, from_context: u64, bytes: usize) |real, default|
        // SAFETY: as above.
        go(default, 0, || Work::copy(PEER, bytes as u64, [End::Device, End::Device]), || unsafe { real(to, to_context, from, from_context, bytes) });
    cuMemcpyPeerAsync / cuMemcpyPeerAsync_ptsz: (to: u64, to_context: u64, from: u64, from_context: u64, bytes: usize, stream: u64) |real, default|
        // SAFETY: as above.
        go(default, stream, || Work::copy(PEER, bytes as u64, [End::Device, End::Device]), || unsafe { real(to, to_context, from, from_context, bytes, stream) });
    cuMemcpyHtoA_v2 / cuMemcpyHtoA_v2_ptds: (to: u64, at: usize, from: *const c_void, bytes: usize) |real, default|
        // SAFETY: as above.
        go(default, 0, || Work::copy(TO_DEVICE, bytes as u64, [End::Device, End::Host]), || unsafe { real(to, at, from, bytes) });
    cuMemcpyHtoAAsync_v2 / cuMemcpyHtoAAsync_v2_ptsz: (to: u64, at: usize, from: *const c_void, bytes: usize, stream: u64) |real, default|
        // SAFETY: as above.
        go(default, stream, || Work::copy(TO_DEVICE, bytes as u64, [End::Device, End::Host]), || unsafe { real(to, at, from, bytes, stream) });
    cuMemcpyAtoH_v2 / cuMemcpyAtoH_v2_ptds: (to: *mut c_void, from: u64, at: usize, bytes: usize) |real, default|
        // SAFETY: as above.
        go(default, 0, || Work::copy(FROM_DEVICE, bytes as u64, [End::Host, End::Device]), || unsafe { real(to, from, at, bytes) });
    cuMemcpyAtoHAsync_v2 / cuMemcpyAtoHAsync_v2_ptsz: (to: *mut c_void, from: u64, at: usize, bytes: usize, stream: u64) |real, default|
        // SAFETY: as above.
        go(default, stream, || Work::copy(FROM_DEVICE, bytes as u64, [End::Host, End::Device]), || unsafe { real(to, from, at, bytes, stream) });
    cuMemcpyAtoD_v2 / cuMemcpyAtoD_v2_ptds: (to: u64, from: u64, at: usize, bytes: usize) |real, default|
        // SAFETY: as above.
        go(default, 0, || Work::copy(WITHIN, bytes as u64, [End::Device, End::Device]), || unsafe { real(to, from, at, bytes) });
    cuMemcpyDtoA_v2 / cuMemcpyDtoA_v2_ptds: (to: u64, at: usize, from: u64, bytes: usize) |real, default|
        // SAFETY: as above.
        go(default, 0, || Work::copy(WITHIN, bytes as u64, [End::Device, End::Device]), || unsafe { real(to, at, from, bytes) });
    cuMemcpyAtoA_v2 / cuMemcpyAtoA_v2_ptds: (to: u64, at: usize, from: u64, from_at: usize, bytes: usize) |real, default|
        // SAFETY: as above.
        go(default, 0, || Work::copy(WITHIN, bytes as u64, [End::Device, End::Device]), || unsafe { real(to, at, from, from_at, bytes) });
    cuMemcpy2D_v2 / cuMemcpy2D_v2_ptds: (copy: *const Copy2D) |real, default|
        // SAFETY: as above; null or a description, by the driver API's contract.
        go(default, 0, || unsafe { plane(copy) }, || unsafe { real(copy) });
    cuMemcpy2DAsync_v2 / cuMemcpy2DAsync_v2_ptsz: (copy: *const Copy2D, stream: u64) |real, default|
        // SAFETY: as above; null or a description, by the driver API's contract.
        go(default, stream, || unsafe { plane(copy) }, || unsafe { real(copy, stream) });
    cuMemcpy2DUnaligned_v2 / cuMemcpy2DUnaligned_v2_ptds: (copy: *const Copy2D) |real, default|
        // SAFETY: as above; null or a description, by the driver API's contract.
        go(default, 0, || unsafe { plane(copy) }, || unsafe { real(copy) });
    cuMemcpy3D_v2 / cuMemcpy3D_v2_ptds: (copy: *const Copy3D) |real, default|
        // SAFETY: as above; null or a description, by the driver API's contract.
        go(default, 0, || unsafe { space(copy) }, || unsafe { real(copy) });
    cuMemcpy3DAsync_v2 / cuMemcpy3DAsync_v2_ptsz: (copy: *const Copy3D, stream: u64) |real, default|
        // SAFETY: as above; null or a description, by the driver API's contract.
        go(default, stream, || unsafe { space(copy) }, || unsafe { real(copy, stream) });
    cuMemcpy3DPeer / cuMemcpy3DPeer_ptds: (copy: *const Copy3D) |real, default|
        // SAFETY: as above; null or a description, by the driver API's contract.
        go(default, 0, || unsafe { space(copy) }, || unsafe { real(copy) });
    cuMemcpy3DPeerAsync / cuMemcpy3DPeerAsync_ptsz: (copy: *const Copy3D, stream: u64) |real, default|
        // SAFETY: as above; null or a description, by the driver API's contract.
        go(default, stream, || unsafe { space(copy) }, || unsafe { real(copy, stream) });
    cuMemcpyBatchAsync / cuMemcpyBatchAsync_ptsz: (
        to: *const u64, from: *const u64, sizes: *const usize, count: usize, attributes: *const c_void, indices: *const usize,
        attribute_count: usize, failed: *mut usize, stream: u64,
    ) |real, default|
        // SAFETY: as above; arrays of so many, by the driver API's contract.
        go(default, stream, || unsafe { batch(to, from, sizes, count) }, || unsafe {
            real(to, from, sizes, count, attributes, indices, attribute_count, failed, stream)
        });
    cuMemcpyBatchAsync_v2 / cuMemcpyBatchAsync_v2_ptsz: (
        to: *const u64, from: *const u64, sizes: *const usize, count: usize, attributes: *const c_void, indices: *const usize,
        attribute_count: usize, stream: u64,
    ) |real, default|
        // SAFETY: as above; arrays of so many, by the driver API's contract.
        go(default, stream, || unsafe { batch(to, from, sizes, count) }, || unsafe {
            real(to, from, sizes, count, attributes, indices, attribute_count, stream)
        });
    cuMemcpy3DBatchAsync / cuMemcpy3DBatchAsync_ptsz: (count: usize, copies: *const c_void, failed: *mut usize, flags: c_ulonglong, stream: u64) |real, default|
        // SAFETY: as above.
        go(default, stream, || Work::copy(BATCH, 0, [End::Device, End::Device]), || unsafe { real(count, copies, failed, flags, stream) });
    cuMemcpy3DBatchAsync_v2 / cuMemcpy3DBatchAsync_v2_ptsz: (count: usize, copies: *const c_void, flags: c_ulonglong, stream: u64) |real, default|
        // SAFETY: as above.
        go(default, stream, || Work::copy(BATCH, 0, [End::Device, End::Device]), || unsafe { real(count, copies, flags, stream) });
    cuMemsetD8_v2 / cuMemsetD8_v2_ptds: (to: u64, value: c_uchar, count: usize) |real, default|
        // SAFETY: as above.
        go(default, 0, || fill(&[1, count as u64]), || unsafe { real(to, value, count) });
    cuMemsetD2D8_v2 / cuMemsetD2D8_v2_ptds: (to: u64, pitch: usize, value: c_uchar, width: usize, height: usize) |real, default|
        // SAFETY: as above.
        go(default, 0, || fill(&[1, width as u64, height as u64]), || unsafe { real(to, pitch, value, width, height) });
    cuMemsetD8Async / cuMemsetD8Async_ptsz: (to: u64, value: c_uchar, count: usize, stream: u64) |real, default|
        // SAFETY: as above.
        go(default, stream, || fill(&[1, count as u64]), || unsafe { real(to, value, count, stream) });
    cuMemsetD2D8Async / cuMemsetD2D8Async_ptsz: (to: u64, pitch: usize, value: c_uchar, width: usize, height: usize, stream: u64) |real, default|
        // SAFETY: as above.
        go(default, stream, || fill(&[1, width as u64, height as u64]), || unsafe { real(to, pitch, value, width, height, stream) });
    cuMemsetD16_v2 / cuMemsetD16_v2_ptds: (to: u64, value: c_ushort, count: usize) |real, default|
        // SAFETY: as above.
        go(default, 0, || fill(&[2, count as u64]), || unsafe { real(to, value, count) });
    cuMemsetD2D16_v2 / cuMemsetD2D16_v2_ptds: (to: u64, pitch: usize, value: c_ushort, width: usize, height: usize) |real, default|
        // SAFETY: as above.
        go(default, 0, || fill(&[2, width as u64, height as u64]), || unsafe { real(to, pitch, value, width, height) });
    cuMemsetD16Async / cuMemsetD16Async_ptsz: (to: u64, value: c_ushort, count: usize, stream: u64) |real, default|
        // SAFETY: as above.
        go(default, stream, || fill(&[2, count as u64]), || unsafe { real(to, value, count, stream) });
    cuMemsetD2D16Async / cuMemsetD2D16Async_ptsz: (to: u64, pitch: usize, value: c_ushort, width: usize, height: usize, stream: u64) |real, default|
        // SAFETY: as above.
        go(default, stream, || fill(&[2, width as u64, height as u64]), || unsafe { real(to, pitch, value, width, height, stream) });
    cuMemsetD32_v2 / cuMemsetD32_v2_ptds: (to: u64, value: c_uint, count: usize) |real, default|
        // SAFETY: as above.
        go(default, 0, || fill(&[4, count as u64]), || unsafe { real(to, value, count) });
    cuMemsetD2D32_v2 / cuMemsetD2D32_v2_ptds: (to: u64, pitch: usize, value: c_uint, width: usize, height: usize) |real, default|
        // SAFETY: as above.
        go(default, 0, || fill(&[4, width as u64, height as u64]), || unsafe { real(to, pitch, value, width, height) });
    cuMemsetD32Async / cuMemsetD32Async_ptsz: (to: u64, value: c_uint, count: usize, stream: u64) |real, default|
        // SAFETY: as above.
        go(default, stream, || fill(&[4, count as u64]), || unsafe { real(to, value, count, stream) });
    cuMemsetD2D32Async / cuMemsetD2D32Async_ptsz: (to: u64, pitch: usize, value: c_uint, width: usize, height: usize, stream: u64) |real, default|
        // SAFETY: as above.
        go(default, stream, || fill(&[4, width as u64, height as u64]), || unsafe { real(to, pitch, value, width, height, stream) });
}
