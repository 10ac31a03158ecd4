//! A few eBPF instructions by name, enough for programs that skip forward, leave early, or wait in a bounded loop.
//!
//! A jump goes to the common exit, which returns 0, to where its [`Skip`] lands, or back to a [`Mark`]; what is jumped back to
//! has to be a [`Assembler::bounded`], or the kernel refuses the program. Encoding as in the kernel's
//! `Documentation/bpf/standardization/instruction-set.rst`; nothing here talks to the kernel.

/// One eBPF instruction, in the kernel's layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Insn {
    pub code: u8,
    /// Source register in the high half, destination in the low one.
    pub registers: u8,
    pub offset: i16,
    pub immediate: i32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Reg {
    R0 = 0,
    R1 = 1,
    R2 = 2,
    R3 = 3,
    R4 = 4,
    R5 = 5,
    R6 = 6,
    R7 = 7,
    R8 = 8,
    R9 = 9,
    /// The frame pointer: the stack lies below it.
    Fp = 10,
}

/// Kernel functions by their number in `include/uapi/linux/bpf.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Helper {
    MapLookup = 1,
    MapUpdate = 2,
    MapDelete = 3,
    KtimeGetNs = 5,
    CurrentPidTgid = 14,
    SendSignalThread = 117,
    RingbufOutput = 130,
    CurrentTask = 158,
    AttachCookie = 174,
    CopyFromUserTask = 191,
}

/// How many bytes a load or store moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    Word,
    Double,
}

/// A jump over what follows, until it is made to land.
#[derive(Debug)]
#[must_use = "a skip goes nowhere until it lands"]
pub struct Skip(usize);

/// A place that is jumped back to.
#[derive(Debug, Clone, Copy)]
pub struct Mark(usize);

/// Instructions so far, and which of them jump to the exit.
#[derive(Debug, Default)]
pub struct Assembler {
    insns: Vec<Insn>,
    leaving: Vec<usize>,
}

// === impl Width ===

impl Width {
    fn bits(self) -> u8 {
        match self {
            Width::Word => 0x00,
            Width::Double => 0x18,
        }
    }
}

// === impl Assembler ===

impl Assembler {
    pub fn copy(&mut self, to: Reg, from: Reg) -> &mut Self {
        self.push(0xbf, to, from, 0, 0)
    }

    pub fn set(&mut self, to: Reg, value: i32) -> &mut Self {
        self.push(0xb7, to, Reg::R0, 0, value)
    }

    pub fn add(&mut self, to: Reg, value: i32) -> &mut Self {
        self.push(0x07, to, Reg::R0, 0, value)
    }

    pub fn and(&mut self, to: Reg, mask: i32) -> &mut Self {
        self.push(0x57, to, Reg::R0, 0, mask)
    }

    pub fn or(&mut self, to: Reg, bits: i32) -> &mut Self {
        self.push(0x47, to, Reg::R0, 0, bits)
    }

    /// `to += by`
    pub fn sum(&mut self, to: Reg, by: Reg) -> &mut Self {
        self.push(0x0f, to, by, 0, 0)
    }

    /// `to -= by`
    pub fn subtract(&mut self, to: Reg, by: Reg) -> &mut Self {
        self.push(0x1f, to, by, 0, 0)
    }

    pub fn negate(&mut self, to: Reg) -> &mut Self {
        self.push(0x87, to, Reg::R0, 0, 0)
    }

    /// `to *= by`
    pub fn multiply(&mut self, to: Reg, by: Reg) -> &mut Self {
        self.push(0x2f, to, by, 0, 0)
    }

    pub fn shift_right(&mut self, to: Reg, bits: i32) -> &mut Self {
        self.push(0x77, to, Reg::R0, 0, bits)
    }

    /// `to = *(base + offset)`
    pub fn load(&mut self, width: Width, to: Reg, base: Reg, offset: i16) -> &mut Self {
        self.push(0x61 | width.bits(), to, base, offset, 0)
    }

    /// `*(fp + offset) = from`
    pub fn store(&mut self, width: Width, offset: i16, from: Reg) -> &mut Self {
        self.push(0x63 | width.bits(), Reg::Fp, from, offset, 0)
    }

    /// `to = fp + offset`
    pub fn stack_address(&mut self, to: Reg, offset: i16) -> &mut Self {
        self.copy(to, Reg::Fp).add(to, i32::from(offset))
    }

    /// `to` = the map behind this descriptor. Two slots long.
    pub fn map(&mut self, to: Reg, descriptor: i32) -> &mut Self {
        const PSEUDO_MAP_FD: u8 = 1;
        let registers = PSEUDO_MAP_FD << 4 | to as u8;
        self.insns.push(Insn { code: 0x18, registers, offset: 0, immediate: descriptor });
        self.insns.push(Insn { code: 0, registers: 0, offset: 0, immediate: 0 });
        self
    }

    /// Adds `with` to the 64 bits at `base` in one step; `with` becomes what was there before.
    pub fn fetch_add(&mut self, base: Reg, with: Reg) -> &mut Self {
        const ADD_AND_FETCH: i32 = 0x01;
        self.push(0xdb, base, with, 0, ADD_AND_FETCH)
    }

    /// Puts `with` into the 64 bits at `base` in one step; `with` becomes what was there before.
    pub fn exchange(&mut self, base: Reg, with: Reg) -> &mut Self {
        const EXCHANGE: i32 = 0xe1;
        self.push(0xdb, base, with, 0, EXCHANGE)
    }

    /// Arguments are R1 to R5, the result is R0; R1 to R5 are lost.
    pub fn call(&mut self, helper: Helper) -> &mut Self {
        self.push(0x85, Reg::R0, Reg::R0, 0, helper as i32)
    }

    pub fn leave_if_zero(&mut self, reg: Reg) -> &mut Self {
        self.leaving.push(self.insns.len());
        self.push(0x15, reg, Reg::R0, 0, 0)
    }

    pub fn leave_unless_zero(&mut self, reg: Reg) -> &mut Self {
        self.leaving.push(self.insns.len());
        self.push(0x55, reg, Reg::R0, 0, 0)
    }

    pub fn skip(&mut self) -> Skip {
        self.push(0x05, Reg::R0, Reg::R0, 0, 0);
        Skip(self.insns.len() - 1)
    }

    /// Begins a loop. Skips when it has gone round so often, or for so long, as the kernel lets a loop go on: a quarter of a
    /// second on x86. Linux 6.9 and later.
    pub fn bounded(&mut self) -> (Mark, Skip) {
        let mark = self.insns.len();
        self.push(0xe5, Reg::R0, Reg::R0, 0, 0);
        (Mark(mark), Skip(mark))
    }

    pub fn skip_if_equal(&mut self, reg: Reg, value: i32) -> Skip {
        self.push(0x15, reg, Reg::R0, 0, value);
        Skip(self.insns.len() - 1)
    }

    pub fn skip_unless_equal(&mut self, reg: Reg, value: i32) -> Skip {
        self.push(0x55, reg, Reg::R0, 0, value);
        Skip(self.insns.len() - 1)
    }

    /// Skips if `reg` is at most `limit`, both unsigned.
    pub fn skip_if_at_most(&mut self, reg: Reg, limit: Reg) -> Skip {
        self.push(0xbd, reg, limit, 0, 0);
        Skip(self.insns.len() - 1)
    }

    /// What comes next is where `skip` goes.
    pub fn land(&mut self, skip: Skip) -> &mut Self {
        self.point(skip.0, self.insns.len());
        self
    }

    /// `skip` goes back to `mark`.
    pub fn again(&mut self, skip: Skip, mark: Mark) -> &mut Self {
        self.point(skip.0, mark.0);
        self
    }

    /// Appends the exit and points the jumps at it.
    pub fn finish(mut self) -> Vec<Insn> {
        let exit = self.insns.len();
        for at in std::mem::take(&mut self.leaving) {
            self.point(at, exit);
        }
        self.set(Reg::R0, 0).push(0x95, Reg::R0, Reg::R0, 0, 0);
        self.insns
    }

    /// Makes the jump at `from` go to `to`.
    fn point(&mut self, from: usize, to: usize) {
        let place = |at: usize| i16::try_from(at).expect("programs here are a few dozen instructions long");
        self.insns[from].offset = place(to) - place(from) - 1;
    }

    fn push(&mut self, code: u8, to: Reg, from: Reg, offset: i16, immediate: i32) -> &mut Self {
        let registers = (from as u8) << 4 | to as u8;
        self.insns.push(Insn { code, registers, offset, immediate });
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(build: impl FnOnce(&mut Assembler)) -> Vec<[u8; 8]> {
        let mut asm = Assembler::default();
        build(&mut asm);
        let encode = |i: &Insn| {
            let mut bytes = [i.code, i.registers, 0, 0, 0, 0, 0, 0];
            bytes[2..4].copy_from_slice(&i.offset.to_le_bytes());
            bytes[4..].copy_from_slice(&i.immediate.to_le_bytes());
            bytes
        };
        asm.insns.iter().map(encode).collect()
    }

    /// Texts and bytes as a compiler's assembler pairs them.
    #[test]
    fn each_instruction_encodes_as_the_kernel_documents() {
        let check = |text: &str, build: fn(&mut Assembler) -> &mut Assembler, wanted: [u8; 8]| {
            assert_eq!(bytes(|asm| _ = build(asm)), [wanted], "{text}");
        };
        check("r6 = r1", |a| a.copy(Reg::R6, Reg::R1), [0xbf, 0x16, 0, 0, 0, 0, 0, 0]);
        check("r3 = 24", |a| a.set(Reg::R3, 24), [0xb7, 0x03, 0, 0, 24, 0, 0, 0]);
        check("r2 += -8", |a| a.add(Reg::R2, -8), [0x07, 0x02, 0, 0, 0xf8, 0xff, 0xff, 0xff]);
        check("r0 &= 255", |a| a.and(Reg::R0, 255), [0x57, 0x00, 0, 0, 0xff, 0, 0, 0]);
        check("r0 |= 256", |a| a.or(Reg::R0, 256), [0x47, 0x00, 0, 0, 0, 1, 0, 0]);
        check("r0 -= r1", |a| a.subtract(Reg::R0, Reg::R1), [0x1f, 0x10, 0, 0, 0, 0, 0, 0]);
        check("r9 *= r1", |a| a.multiply(Reg::R9, Reg::R1), [0x2f, 0x19, 0, 0, 0, 0, 0, 0]);
        check("r8 >>= 32", |a| a.shift_right(Reg::R8, 32), [0x77, 0x08, 0, 0, 32, 0, 0, 0]);
        let load = [0x61, 0x10, 80, 0, 0, 0, 0, 0];
        check("r0 = *(u32 *)(r1 + 80)", |a| a.load(Width::Word, Reg::R0, Reg::R1, 80), load);
        let store = [0x63, 0x8a, 0xfc, 0xff, 0, 0, 0, 0];
        check("*(u32 *)(r10 - 4) = r8", |a| a.store(Width::Word, -4, Reg::R8), store);
        let store = [0x7b, 0x0a, 0xf0, 0xff, 0, 0, 0, 0];
        check("*(u64 *)(r10 - 16) = r0", |a| a.store(Width::Double, -16, Reg::R0), store);
        let add = [0xdb, 0x10, 0, 0, 1, 0, 0, 0];
        check("r1 = atomic_fetch_add((u64 *)(r0 + 0), r1)", |a| a.fetch_add(Reg::R0, Reg::R1), add);
        let exchange = [0xdb, 0x10, 0, 0, 0xe1, 0, 0, 0];
        check("r1 = xchg_64(r0 + 0, r1)", |a| a.exchange(Reg::R0, Reg::R1), exchange);
        check("call 174", |a| a.call(Helper::AttachCookie), [0x85, 0x00, 0, 0, 174, 0, 0, 0]);
        check("if r1 != 0 goto +0", |a| a.leave_unless_zero(Reg::R1), [0x55, 0x01, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn a_map_takes_two_slots() {
        let got = bytes(|a| _ = a.map(Reg::R1, 5));
        assert_eq!(got, [[0x18, 0x11, 0, 0, 5, 0, 0, 0], [0; 8]]);
    }

    #[test]
    fn a_skip_goes_to_where_it_lands() {
        let mut asm = Assembler::default();
        let zero = asm.skip_if_equal(Reg::R0, -17);
        let small = asm.skip_if_at_most(Reg::R9, Reg::R1);
        asm.map(Reg::R2, 3).land(small).set(Reg::R1, 1).land(zero);
        let insns = asm.finish();
        assert_eq!((insns[0].code, insns[0].immediate, insns[0].offset), (0x15, -17, 4));
        assert_eq!((insns[1].code, insns[1].registers, insns[1].offset), (0xbd, 0x19, 2));
    }

    #[test]
    fn a_loop_goes_back_to_where_its_bound_is_checked_and_ends_where_that_lands() {
        let mut asm = Assembler::default();
        asm.set(Reg::R0, 1);
        let (mark, over) = asm.bounded();
        let sooner = asm.skip();
        let more = asm.skip_if_equal(Reg::R0, 1);
        asm.again(more, mark).set(Reg::R1, 1).land(over).land(sooner);
        let insns = asm.finish();
        assert_eq!((insns[1].code, insns[1].registers, insns[1].offset), (0xe5, 0, 3), "may_goto");
        assert_eq!((insns[2].code, insns[2].offset), (0x05, 2));
        assert_eq!((insns[3].code, insns[3].offset), (0x15, -3));
    }

    #[test]
    fn every_early_leave_lands_on_the_common_exit() {
        let mut asm = Assembler::default();
        asm.leave_if_zero(Reg::R1).map(Reg::R2, 3).leave_unless_zero(Reg::R0).set(Reg::R1, 1);
        let insns = asm.finish();
        let exit = insns.len() - 2;
        for (at, insn) in insns.iter().enumerate().filter(|(_, i)| matches!(i.code, 0x15 | 0x55)) {
            assert_eq!(at + 1 + usize::try_from(insn.offset).unwrap(), exit);
        }
        assert_eq!((insns[exit].code, insns[exit].immediate, insns[exit + 1].code), (0xb7, 0, 0x95));
    }
}
