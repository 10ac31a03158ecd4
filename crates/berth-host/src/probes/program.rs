//! The three programs that run in the kernel, a few dozen instructions each.
//!
//! All of them put one [`Record`] into the ring and return; none writes to the process, signals it or waits. The
//! kernel's verifier is their reviewer: the tests load them.

use super::asm::{Assembler, Helper, Insn, Reg, Width};
use super::function::Cookie;

/// What a hit leaves in the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub at: u64,
    pub cookie: u64,
    /// Process id in the initial pid namespace.
    pub tgid: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// Tells every hit.
    Entry,
    /// Tells every hit whose function returned 0.
    Return,
    /// Tells the first hit of an armed process and call, counts the others and leaves.
    First,
}

/// Descriptors of the maps the programs use.
#[derive(Debug, Clone, Copy)]
pub struct Maps {
    pub ring: i32,
    /// (process, call) → hits since it was armed. No entry: not armed.
    pub armed: i32,
    /// One counter of records the ring had no room for.
    pub lost: i32,
}

/// Where the return value lies in the registers the kernel hands to the program: `rax` in x86's `pt_regs`.
#[cfg(target_arch = "x86_64")]
const RETURN_VALUE: i16 = 80;
/// Where the return value lies in the registers the kernel hands to the program: `x0` in arm64's `user_pt_regs`.
#[cfg(target_arch = "aarch64")]
const RETURN_VALUE: i16 = 0;

// Places on the stack. The record is time, cookie, process and four bytes of padding, as `Record::parse` reads it.
const RECORD: i16 = -24;
const RECORD_AT: i16 = RECORD;
const RECORD_COOKIE: i16 = RECORD + 8;
const RECORD_TGID: i16 = RECORD + 16;
const RECORD_PADDING: i16 = RECORD + 20;
const KEY: i16 = -32;

// === impl Record ===

impl Record {
    /// `None` if `bytes` are not a record of ours.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (at, rest) = bytes.split_first_chunk()?;
        let (cookie, rest) = rest.split_first_chunk()?;
        let (tgid, _padding) = rest.split_first_chunk()?;
        Some(Self { at: u64::from_le_bytes(*at), cookie: u64::from_le_bytes(*cookie), tgid: u32::from_le_bytes(*tgid) })
    }
}

// === impl Program ===

impl Program {
    pub const ALL: [Program; 3] = [Program::Entry, Program::Return, Program::First];

    pub fn name(self) -> &'static str {
        match self {
            Program::Entry => "berth_entry",
            Program::Return => "berth_return",
            Program::First => "berth_first",
        }
    }

    pub fn assemble(self, maps: Maps) -> Vec<Insn> {
        let mut asm = Assembler::default();
        if self == Program::Return {
            // `CUresult` is 32 bits wide, the upper half of the register is anyone's.
            asm.load(Width::Word, Reg::R0, Reg::R1, RETURN_VALUE).leave_unless_zero(Reg::R0);
        }
        asm.copy(Reg::R6, Reg::R1);
        asm.call(Helper::KtimeGetNs).store(Width::Double, RECORD_AT, Reg::R0);
        asm.copy(Reg::R1, Reg::R6).call(Helper::AttachCookie).copy(Reg::R7, Reg::R0);
        asm.call(Helper::CurrentPidTgid).copy(Reg::R8, Reg::R0).shift_right(Reg::R8, 32);
        if self == Program::First {
            leave_unless_first(&mut asm, maps);
        }
        tell(&mut asm, maps);
        asm.finish()
    }
}

/// Goes on only for the hit that turns the counter of (process, call) from 0 to 1.
fn leave_unless_first(asm: &mut Assembler, maps: Maps) {
    asm.copy(Reg::R0, Reg::R7).and(Reg::R0, Cookie::CALL_MASK);
    asm.store(Width::Word, KEY, Reg::R8).store(Width::Word, KEY + 4, Reg::R0);
    asm.map(Reg::R1, maps.armed).stack_address(Reg::R2, KEY).call(Helper::MapLookup).leave_if_zero(Reg::R0);
    asm.set(Reg::R1, 1).fetch_add(Reg::R0, Reg::R1).leave_unless_zero(Reg::R1);
}

/// Puts the record into the ring, or counts it as lost.
fn tell(asm: &mut Assembler, maps: Maps) {
    asm.set(Reg::R0, 0).store(Width::Word, RECORD_PADDING, Reg::R0);
    asm.store(Width::Double, RECORD_COOKIE, Reg::R7).store(Width::Word, RECORD_TGID, Reg::R8);
    asm.map(Reg::R1, maps.ring).stack_address(Reg::R2, RECORD);
    asm.set(Reg::R3, i32::from(-RECORD)).set(Reg::R4, 0).call(Helper::RingbufOutput).leave_if_zero(Reg::R0);
    asm.set(Reg::R0, 0).store(Width::Word, KEY, Reg::R0);
    asm.map(Reg::R1, maps.lost).stack_address(Reg::R2, KEY).call(Helper::MapLookup).leave_if_zero(Reg::R0);
    asm.set(Reg::R1, 1).fetch_add(Reg::R0, Reg::R1);
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: Maps = Maps { ring: 3, armed: 4, lost: 5 };

    fn calls(program: Program) -> Vec<i32> {
        program.assemble(MAPS).iter().filter(|i| i.code == 0x85).map(|i| i.immediate).collect()
    }

    #[test]
    fn a_failed_call_is_left_before_any_work() {
        let insns = Program::Return.assemble(MAPS);
        assert_eq!((insns[0].code, insns[0].offset, insns[1].code), (0x61, RETURN_VALUE, 0x55));
    }

    #[test]
    fn programs_call_only_what_observing_needs() {
        let (time, cookie, process, ring, lookup) = (5, 174, 14, 130, 1);
        assert_eq!(calls(Program::Entry), [time, cookie, process, ring, lookup]);
        assert_eq!(calls(Program::Return), [time, cookie, process, ring, lookup]);
        assert_eq!(calls(Program::First), [time, cookie, process, lookup, ring, lookup]);
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&7_u64.to_le_bytes());
        bytes[8..16].copy_from_slice(&0x1_0000_0203_u64.to_le_bytes());
        bytes[16..20].copy_from_slice(&42_u32.to_le_bytes());
        assert_eq!(Record::parse(&bytes), Some(Record { at: 7, cookie: 0x1_0000_0203, tgid: 42 }));
        assert_eq!(Record::parse(&bytes[..12]), None);
    }
}
