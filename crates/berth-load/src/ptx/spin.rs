//! A kernel that lasts as long as one likes, and an empty one, for programs of many short kernels.
//!
//! How many rounds make a microsecond is measured (`roles::calibration`): nothing here knows a GPU's speed.

use std::ffi::CStr;

/// Names of the entries in [`SPIN`].
pub const SPIN_ENTRY: &CStr = c"spin";
pub const EMPTY_ENTRY: &CStr = c"empty";
/// Threads of a block that [`SPIN`]'s cost reckons with.
pub const SPIN_THREADS: u32 = 256;

/// `spin` multiplies and adds in a circle, eight times a round, in every thread. Parameters: rounds and blocks (u32; the latter only for the
/// cost), and a device pointer (u64) that is never written: the result is always near a half, which the compiler cannot know.
/// `empty` has no parameters and does nothing.
pub const SPIN: &CStr = c"\
// berth-cost: spin flops 4096 p0 p1
// berth-cost: empty flops 1
.version 6.0
.target sm_50
.address_size 64

.visible .entry spin(
    .param .u32 param_rounds,
    .param .u32 param_blocks,
    .param .u64 param_out
)
{
    .reg .pred %done, %wrong;
    .reg .b32 %rounds;
    .reg .b64 %out;
    .reg .f32 %x;

    ld.param.u32 %rounds, [param_rounds];
    mov.f32 %x, 0f3F800000;

ROUND:
    setp.eq.u32 %done, %rounds, 0;
    @%done bra END;
    fma.rn.f32 %x, %x, 0f3F000000, 0f3E800000;
    fma.rn.f32 %x, %x, 0f3F000000, 0f3E800000;
    fma.rn.f32 %x, %x, 0f3F000000, 0f3E800000;
    fma.rn.f32 %x, %x, 0f3F000000, 0f3E800000;
    fma.rn.f32 %x, %x, 0f3F000000, 0f3E800000;
    fma.rn.f32 %x, %x, 0f3F000000, 0f3E800000;
    fma.rn.f32 %x, %x, 0f3F000000, 0f3E800000;
    fma.rn.f32 %x, %x, 0f3F000000, 0f3E800000;
    sub.u32 %rounds, %rounds, 1;
    bra ROUND;

END:
    setp.lt.f32 %wrong, %x, 0f00000000;
    @!%wrong bra LEAVE;
    ld.param.u64 %out, [param_out];
    cvta.to.global.u64 %out, %out;
    st.global.f32 [%out], %x;

LEAVE:
    ret;
}

.visible .entry empty()
{
    ret;
}
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_is_that_of_the_instructions_in_a_round() {
        let text = SPIN.to_str().unwrap();
        let additions = text.lines().filter(|line| line.trim_start().starts_with("fma.")).count();
        // A multiplication and an addition each, in every thread of a block.
        let cost = format!("// berth-cost: spin flops {} p0 p1", additions * 2 * SPIN_THREADS as usize);
        assert!(text.lines().any(|line| line == cost), "{cost}");
    }
}
