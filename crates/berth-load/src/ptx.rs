//! The kernel, as PTX text that the driver of any GPU from Maxwell on compiles when it is loaded.
//!
//! A naive FP32 product `C = A × B` of row-major n×n matrices, one thread per element: `col` runs along x, so that a
//! warp reads B and writes C in whole lines and shares its element of A. It is deliberately not a good matrix product:
//! the papers measure this one, and its cost is a plain function of n.
//!
//! The `berth-cost` line is for the simulated GPU, which does not run the text: it takes operations and bytes as
//! products of numbers and kernel parameters (`p3` is the fourth, `n`). A real driver sees a comment.

use std::ffi::CStr;

/// Name of the entry in [`MATMUL`].
pub const ENTRY: &CStr = c"matmul";

/// Parameters: A, B and C as device pointers (u64), n (u32).
///
/// The inner loop is unrolled by four, the rest of n is done one by one, and threads outside the matrix leave at once:
/// any n and any block shape give the right result.
pub const MATMUL: &CStr = c"\
// berth-cost: matmul flops 2 p3 p3 p3 bytes 12 p3 p3
.version 6.0
.target sm_50
.address_size 64

.visible .entry matmul(
    .param .u64 param_a,
    .param .u64 param_b,
    .param .u64 param_c,
    .param .u32 param_n
)
{
    .reg .pred %outside, %past, %few, %more;
    .reg .b32 %n, %row, %col, %block, %threads, %thread, %quads, %rest;
    .reg .b64 %a, %b, %c, %at, %line;
    .reg .f32 %sum, %a0, %a1, %a2, %a3, %b0, %b1, %b2, %b3;

    ld.param.u32 %n, [param_n];
    mov.u32 %block, %ctaid.y;
    mov.u32 %threads, %ntid.y;
    mov.u32 %thread, %tid.y;
    mad.lo.u32 %row, %block, %threads, %thread;
    mov.u32 %block, %ctaid.x;
    mov.u32 %threads, %ntid.x;
    mov.u32 %thread, %tid.x;
    mad.lo.u32 %col, %block, %threads, %thread;
    setp.ge.u32 %outside, %row, %n;
    setp.ge.u32 %past, %col, %n;
    or.pred %outside, %outside, %past;
    @%outside bra DONE;

    // a = &A[row][0], b = &B[0][col], line = bytes from one row of B to the next
    ld.param.u64 %a, [param_a];
    cvta.to.global.u64 %a, %a;
    mul.wide.u32 %at, %row, %n;
    shl.b64 %at, %at, 2;
    add.u64 %a, %a, %at;
    ld.param.u64 %b, [param_b];
    cvta.to.global.u64 %b, %b;
    mul.wide.u32 %at, %col, 4;
    add.u64 %b, %b, %at;
    mul.wide.u32 %line, %n, 4;

    mov.f32 %sum, 0f00000000;
    shr.u32 %quads, %n, 2;
    and.b32 %rest, %n, 3;
    setp.eq.u32 %few, %quads, 0;
    @%few bra REST;

QUAD:
    ld.global.nc.f32 %b0, [%b];
    add.u64 %at, %b, %line;
    ld.global.nc.f32 %b1, [%at];
    add.u64 %at, %at, %line;
    ld.global.nc.f32 %b2, [%at];
    add.u64 %at, %at, %line;
    ld.global.nc.f32 %b3, [%at];
    add.u64 %b, %at, %line;
    ld.global.nc.f32 %a0, [%a];
    ld.global.nc.f32 %a1, [%a+4];
    ld.global.nc.f32 %a2, [%a+8];
    ld.global.nc.f32 %a3, [%a+12];
    add.u64 %a, %a, 16;
    fma.rn.f32 %sum, %a0, %b0, %sum;
    fma.rn.f32 %sum, %a1, %b1, %sum;
    fma.rn.f32 %sum, %a2, %b2, %sum;
    fma.rn.f32 %sum, %a3, %b3, %sum;
    sub.u32 %quads, %quads, 1;
    setp.ne.u32 %more, %quads, 0;
    @%more bra QUAD;

REST:
    setp.eq.u32 %few, %rest, 0;
    @%few bra STORE;
    ld.global.nc.f32 %b0, [%b];
    ld.global.nc.f32 %a0, [%a];
    fma.rn.f32 %sum, %a0, %b0, %sum;
    add.u64 %b, %b, %line;
    add.u64 %a, %a, 4;
    sub.u32 %rest, %rest, 1;
    bra REST;

STORE:
    ld.param.u64 %c, [param_c];
    cvta.to.global.u64 %c, %c;
    mul.wide.u32 %at, %row, %n;
    shl.b64 %at, %at, 2;
    add.u64 %c, %c, %at;
    mul.wide.u32 %at, %col, 4;
    add.u64 %c, %c, %at;
    st.global.f32 [%c], %sum;

DONE:
    ret;
}
";

#[cfg(feature = "cli")]
pub mod spin;
#[cfg(test)]
mod tests;
