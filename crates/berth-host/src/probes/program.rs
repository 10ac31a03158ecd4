//! The programs that run in the kernel, a few dozen instructions each.
//!
//! Those at rare calls put one [`Record`] into the ring and return. Those at hot calls follow the process's [`Rule`]s: tell
//! a first call, tell when it goes over from computing to waiting and back, or halt it where it stands. None of them
//! writes to the process. The kernel's verifier is their reviewer: the tests load them.
//!
//! Halting is [`Halting::Unseen`] where the kernel can do that: the program itself does not return, and so neither does the
//! thread go on, until the daemon has asked for a freeze of its cgroup. The thread is on its way back to its program then,
//! and gets no further than the freezer; at most the one instruction the probe stands on is executed. Nothing happened
//! that a parent could see or SIGCONT undo, and when nobody decides in time, as when the daemon is dead, nothing is left.
//!
//! Otherwise, and when nobody decides in time, it is a SIGSTOP to the thread that made the call, and so to its process, which it
//! takes before it gets back to its program. Each thread that calls is sent one of its own: passing one by because another is about
//! to stop the process would let its call through. SIGCONT takes back all that are under way.
//!
//! This file is licensed under Apache-2.0 or GPL-2.0, as you choose: what a program that waits calls is offered by the
//! kernel under its own licence only.

use super::asm::{Assembler, Helper, Insn, Reg, Skip, Width};
use super::function::{Cookie, PITCHED};
use super::rule::{Phase, Rule};

/// What a hit leaves in the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub at: u64,
    pub cookie: u64,
    /// Process id in the initial pid namespace.
    pub tgid: u32,
    pub what: What,
    /// What the call takes, where that is known: for an allocation its bytes.
    pub takes: u64,
}

/// What a record tells of a hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum What {
    /// The call was made.
    Passed = 0,
    /// The process was halted before the call was made.
    Halted = 1,
    /// A watched process launches again.
    Resumed = 2,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// Stops the process at such a call if it may not make it, and tells every hit.
    Entry,
    /// Tells every hit whose function returned 0.
    Return,
    /// At allocations: stops those that the GPU has no room for, tells the first one.
    Allocation,
    /// At launches: stops all if the process is gated, tells the first one, and the first after a wait.
    Launch,
    /// At the return of calls that wait for the GPU: tells the first after a launch, if the process is watched.
    Drained,
}

/// How a process is kept from making a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Halting {
    /// The program waits until a freeze was asked for.
    Unseen,
    BySignal,
}

/// Descriptors of the maps the programs use.
#[derive(Debug, Clone, Copy)]
pub struct Maps {
    pub ring: i32,
    /// (process or GPU, [`Rule`]) → number.
    pub rules: i32,
    /// Process → when it was stopped by a signal.
    pub halted: i32,
    /// One counter of records the ring had no room for.
    pub lost: i32,
}

/// Where the kernel hands the called function's registers to the program: x86's `pt_regs`.
#[cfg(target_arch = "x86_64")]
mod registers {
    pub const RETURN_VALUE: i16 = 80;
    pub const INSTRUCTION: i16 = 128;
    pub const SECOND: i16 = 104;
    pub const THIRD: i16 = 96;
    pub const FOURTH: i16 = 88;
}
/// Where the kernel hands the called function's registers to the program: arm64's `user_pt_regs`.
#[cfg(target_arch = "aarch64")]
mod registers {
    pub const RETURN_VALUE: i16 = 0;
    pub const INSTRUCTION: i16 = 256;
    pub const SECOND: i16 = 8;
    pub const THIRD: i16 = 16;
    pub const FOURTH: i16 = 24;
}

// Places on the stack. The record is as `Record::parse` reads it.
const RECORD: i16 = -32;
const RECORD_AT: i16 = RECORD;
const RECORD_COOKIE: i16 = RECORD + 8;
const RECORD_TGID: i16 = RECORD + 16;
const RECORD_WHAT: i16 = RECORD + 20;
const RECORD_TAKES: i16 = RECORD + 24;
const KEY: i16 = -40;
const INSTRUCTION: i16 = -48;
/// What is read is not wanted, and the key is made anew for each use.
const READ: i16 = KEY;
/// From 64 bytes on, to which it rounds up more than 48, the kernel puts the stack of such a program into memory of the CPU. There those
/// who wait on one CPU would overwrite each other's, and a wait would end after some 30 ms (docs/decisions/0009).
const _: () = assert!(INSTRUCTION >= -48, "a program that waits needs a stack of its own");

/// In bits: 256 TiB.
const BEYOND_ANY_GPU: i32 = 48;

/// For the daemon to ask for a freeze, which takes it a fraction of a millisecond unless the CPUs are all busy. In nanoseconds.
/// It must end before the kernel ends it.
const PATIENCE: i32 = 200_000_000;

const SIGSTOP: i32 = libc::SIGSTOP;
const EEXIST: i32 = libc::EEXIST;
/// Of a map's update: an entry that is there is left as it is.
const ONLY_IF_NEW: i32 = 1;

// === impl Record ===

impl Record {
    /// `None` if `bytes` are not a record of ours.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (at, rest) = bytes.split_first_chunk()?;
        let (cookie, rest) = rest.split_first_chunk()?;
        let (tgid, rest) = rest.split_first_chunk()?;
        let (what, rest) = rest.split_first_chunk()?;
        let (takes, _) = rest.split_first_chunk()?;
        let what = u32::from_le_bytes(*what);
        Some(Self {
            at: u64::from_le_bytes(*at),
            cookie: u64::from_le_bytes(*cookie),
            tgid: u32::from_le_bytes(*tgid),
            what: [What::Passed, What::Halted, What::Resumed].into_iter().find(|w| *w as u32 == what)?,
            takes: u64::from_le_bytes(*takes),
        })
    }
}

// === impl Program ===

impl Program {
    pub const ALL: [Program; 5] =
        [Program::Entry, Program::Return, Program::Allocation, Program::Launch, Program::Drained];

    pub fn name(self) -> &'static str {
        match self {
            Program::Entry => "berth_entry",
            Program::Return => "berth_return",
            Program::Allocation => "berth_allocate",
            Program::Launch => "berth_launch",
            Program::Drained => "berth_drained",
        }
    }

    /// It is for probes at a function's return.
    pub fn returns(self) -> bool {
        matches!(self, Program::Return | Program::Drained)
    }

    pub fn assemble(self, maps: Maps, halting: Halting) -> Vec<Insn> {
        let mut asm = Assembler::default();
        if self.returns() {
            // `CUresult` is 32 bits wide, the upper half of the register is anyone's.
            asm.load(Width::Word, Reg::R0, Reg::R1, registers::RETURN_VALUE).leave_unless_zero(Reg::R0);
        }
        look_around(&mut asm);
        match self {
            Program::Entry => halt_if_gated(&mut asm, maps, halting),
            Program::Return => {}
            Program::Allocation => {
                measure(&mut asm);
                halt_without_room(&mut asm, maps, halting);
                leave_unless_first(&mut asm, maps);
            }
            Program::Launch => {
                halt_if_gated(&mut asm, maps, halting);
                tell_if_resumed(&mut asm, maps);
                leave_unless_first(&mut asm, maps);
            }
            Program::Drained => leave_unless_computing(&mut asm, maps),
        }
        tell(&mut asm, maps, What::Passed);
        asm.finish()
    }
}

/// Begins the record. From here on: R6 the registers of the process, R7 the cookie, R8 the process, R9 what the call takes.
fn look_around(asm: &mut Assembler) {
    asm.copy(Reg::R6, Reg::R1).set(Reg::R9, 0);
    asm.call(Helper::KtimeGetNs).store(Width::Double, RECORD_AT, Reg::R0);
    asm.copy(Reg::R1, Reg::R6).call(Helper::AttachCookie).copy(Reg::R7, Reg::R0);
    asm.store(Width::Double, RECORD_COOKIE, Reg::R7);
    asm.call(Helper::CurrentPidTgid).copy(Reg::R8, Reg::R0).shift_right(Reg::R8, 32);
    asm.store(Width::Word, RECORD_TGID, Reg::R8);
    asm.load(Width::Double, Reg::R0, Reg::R6, registers::INSTRUCTION).store(Width::Double, INSTRUCTION, Reg::R0);
}

/// R9 = the bytes that an allocation asks for.
fn measure(asm: &mut Assembler) {
    asm.load(Width::Double, Reg::R9, Reg::R6, registers::SECOND);
    asm.copy(Reg::R0, Reg::R7).shift_right(Reg::R0, Cookie::FUNCTION_SHIFT).and(Reg::R0, 0xff);
    let plain = asm.skip_unless_equal(Reg::R0, i32::from(PITCHED));
    asm.load(Width::Double, Reg::R9, Reg::R6, registers::THIRD);
    asm.load(Width::Double, Reg::R1, Reg::R6, registers::FOURTH).multiply(Reg::R9, Reg::R1);
    asm.land(plain);
}

/// Halts a process that may not make this call. R6 becomes 1 if it was halted, else 0.
fn halt_if_gated(asm: &mut Assembler, maps: Maps, halting: Halting) {
    asm.set(Reg::R6, 0);
    look_up_stop(asm, maps);
    let unruled = asm.skip_if_equal(Reg::R0, 0);
    halt(asm, maps, halting);
    asm.land(unruled);
}

/// Takes what is asked for out of the pool of the process's GPU, or halts the process where that would be too much.
///
/// Taken first, and put back if it was too much: so the pool is never overdrawn, whoever asks at the same time. Sizes beyond
/// [`BEYOND_ANY_GPU`] are the driver's to refuse, and not counted.
fn halt_without_room(asm: &mut Assembler, maps: Maps, halting: Halting) {
    asm.copy(Reg::R0, Reg::R9).shift_right(Reg::R0, BEYOND_ANY_GPU);
    let absurd = asm.skip_unless_equal(Reg::R0, 0);
    look_up_stop(asm, maps);
    let unruled = asm.skip_if_equal(Reg::R0, 0);
    asm.load(Width::Word, Reg::R1, Reg::R0, 0).store(Width::Word, KEY, Reg::R1);
    look_up_pool(asm, maps, Rule::CEILING);
    let unbounded = asm.skip_if_equal(Reg::R0, 0);
    asm.load(Width::Double, Reg::R6, Reg::R0, 0);
    look_up_pool(asm, maps, Rule::TAKEN);
    let uncounted = asm.skip_if_equal(Reg::R0, 0);
    asm.copy(Reg::R1, Reg::R9).fetch_add(Reg::R0, Reg::R1).sum(Reg::R1, Reg::R9);
    let fits = asm.skip_if_at_most(Reg::R1, Reg::R6);
    asm.copy(Reg::R1, Reg::R9).negate(Reg::R1).fetch_add(Reg::R0, Reg::R1);
    halt(asm, maps, halting);
    asm.land(absurd).land(unruled).land(unbounded).land(uncounted).land(fits);
}

/// R6 becomes 1 if the process was halted, else 0.
fn halt(asm: &mut Assembler, maps: Maps, halting: Halting) {
    match halting {
        Halting::Unseen => wait(asm, maps),
        Halting::BySignal => stop(asm, maps),
    }
}

/// Waits until a freeze was asked for, or the process may make the call after all, and tells that it waits, unless that is known.
/// When nobody decides in time the process is stopped, unless someone would see it: then it makes the call.
fn wait(asm: &mut Assembler, maps: Maps) {
    tell_of_waiting(asm, maps);
    asm.set(Reg::R6, 0);
    let (mark, over) = asm.bounded();
    let unreadable = give_way(asm);
    look_up(asm, maps, |asm| _ = asm.set(Reg::R0, Rule::GO));
    let undecided = asm.skip_if_equal(Reg::R0, 0);
    asm.load(Width::Double, Reg::R2, Reg::R0, 0).load(Width::Double, Reg::R1, Reg::Fp, RECORD_AT);
    let go = asm.skip_if_at_most(Reg::R1, Reg::R2);
    asm.land(undecided);
    look_up_stop(asm, maps);
    let ungated = asm.skip_if_equal(Reg::R0, 0);
    asm.call(Helper::KtimeGetNs).load(Width::Double, Reg::R1, Reg::Fp, RECORD_AT).subtract(Reg::R0, Reg::R1);
    asm.set(Reg::R1, PATIENCE);
    let in_time = asm.skip_if_at_most(Reg::R0, Reg::R1);
    asm.again(in_time, mark).land(over).land(unreadable);
    look_up(asm, maps, |asm| _ = asm.set(Reg::R0, Rule::DISCREET));
    let seen = asm.skip_unless_equal(Reg::R0, 0);
    stop(asm, maps);
    let stopped = asm.skip();
    asm.land(go).set(Reg::R6, 1);
    asm.land(ungated).land(seen).land(stopped);
}

/// Once: what was told is noted. If there was no room to tell it, the next call is told.
fn tell_of_waiting(asm: &mut Assembler, maps: Maps) {
    asm.set(Reg::R0, Rule::WAITING).store(Width::Word, KEY, Reg::R8).store(Width::Word, KEY + 4, Reg::R0);
    asm.map(Reg::R1, maps.rules).stack_address(Reg::R2, KEY).stack_address(Reg::R3, RECORD_AT);
    asm.set(Reg::R4, ONLY_IF_NEW).call(Helper::MapUpdate);
    let known = asm.skip_if_equal(Reg::R0, -EEXIST);
    let told = put(asm, maps, What::Halted);
    count_as_lost(asm, maps);
    asm.set(Reg::R0, Rule::WAITING).store(Width::Word, KEY, Reg::R8).store(Width::Word, KEY + 4, Reg::R0);
    asm.map(Reg::R1, maps.rules).stack_address(Reg::R2, KEY).call(Helper::MapDelete);
    asm.land(known).land(told);
}

/// Lets others have the CPU, and skips if the thread is being killed: reading a byte of the process's own memory by way of
/// its pages does both, on kernels that preempt nobody too. The byte is the instruction that is being executed.
fn give_way(asm: &mut Assembler) -> Skip {
    asm.call(Helper::CurrentTask).copy(Reg::R4, Reg::R0);
    asm.stack_address(Reg::R1, READ).set(Reg::R2, 1).set(Reg::R5, 0);
    asm.load(Width::Double, Reg::R3, Reg::Fp, INSTRUCTION);
    asm.call(Helper::CopyFromUserTask).skip_unless_equal(Reg::R0, 0)
}

/// Stops the process, and tells, unless it is known as stopped. R6 becomes 1 if it was stopped.
///
/// First the signal, then the entry: whoever continues the process removes the entry first, so a stop that its SIGCONT
/// did not take back has an entry of its own, and is told.
fn stop(asm: &mut Assembler, maps: Maps) {
    asm.set(Reg::R1, SIGSTOP).call(Helper::SendSignalThread);
    let refused = asm.skip_unless_equal(Reg::R0, 0);
    asm.set(Reg::R6, 1);
    asm.map(Reg::R1, maps.halted).stack_address(Reg::R2, RECORD_TGID).stack_address(Reg::R3, RECORD_AT);
    asm.set(Reg::R4, ONLY_IF_NEW).call(Helper::MapUpdate);
    let known = asm.skip_if_equal(Reg::R0, -EEXIST);
    tell(asm, maps, What::Halted);
    asm.land(refused).land(known);
}

/// Of a watched process: notes that it computes, and tells if that is new. A launch that was halted is not told; it
/// happens when the process goes on.
fn tell_if_resumed(asm: &mut Assembler, maps: Maps) {
    look_up(asm, maps, |asm| _ = asm.set(Reg::R0, Rule::WATCH));
    let unwatched = asm.skip_if_equal(Reg::R0, 0);
    asm.set(Reg::R1, Phase::Computing as i32).exchange(Reg::R0, Reg::R1);
    let known = asm.skip_if_equal(Reg::R1, Phase::Computing as i32);
    let stopped = asm.skip_unless_equal(Reg::R6, 0);
    tell(asm, maps, What::Resumed);
    asm.land(unwatched).land(known).land(stopped);
}

/// Goes on only for a watched process that was not known to be waiting, and notes that it is.
fn leave_unless_computing(asm: &mut Assembler, maps: Maps) {
    look_up(asm, maps, |asm| _ = asm.set(Reg::R0, Rule::WATCH));
    asm.leave_if_zero(Reg::R0);
    asm.set(Reg::R1, Phase::Drained as i32).exchange(Reg::R0, Reg::R1);
    asm.add(Reg::R1, -(Phase::Drained as i32)).leave_if_zero(Reg::R1);
}

/// Goes on only for the hit that turns the counter of (process, call) from 0 to 1.
fn leave_unless_first(asm: &mut Assembler, maps: Maps) {
    look_up(asm, maps, |asm| _ = asm.copy(Reg::R0, Reg::R7).and(Reg::R0, Cookie::CALL_MASK));
    asm.leave_if_zero(Reg::R0);
    asm.set(Reg::R1, 1).fetch_add(Reg::R0, Reg::R1).leave_unless_zero(Reg::R1);
}

/// R0 = where the number of the rule that stops such calls of the process is, or 0.
fn look_up_stop(asm: &mut Assembler, maps: Maps) {
    look_up(asm, maps, |asm| {
        asm.copy(Reg::R0, Reg::R7).and(Reg::R0, Cookie::CALL_MASK).or(Reg::R0, Rule::STOP);
    });
}

/// R0 = where a number of the GPU is, or 0. Which GPU stands in the key already.
fn look_up_pool(asm: &mut Assembler, maps: Maps, code: i32) {
    asm.set(Reg::R0, code).store(Width::Word, KEY + 4, Reg::R0);
    asm.map(Reg::R1, maps.rules).stack_address(Reg::R2, KEY).call(Helper::MapLookup);
}

/// R0 = where the number of the process's rule is, or 0. `code` puts the rule's code into R0.
fn look_up(asm: &mut Assembler, maps: Maps, code: impl FnOnce(&mut Assembler)) {
    code(asm);
    asm.store(Width::Word, KEY, Reg::R8).store(Width::Word, KEY + 4, Reg::R0);
    asm.map(Reg::R1, maps.rules).stack_address(Reg::R2, KEY).call(Helper::MapLookup);
}

/// Puts the record into the ring, or counts it as lost.
fn tell(asm: &mut Assembler, maps: Maps, what: What) {
    let told = put(asm, maps, what);
    count_as_lost(asm, maps);
    asm.land(told);
}

/// Skips if the ring had room for the record.
fn put(asm: &mut Assembler, maps: Maps, what: What) -> Skip {
    asm.set(Reg::R0, what as i32).store(Width::Word, RECORD_WHAT, Reg::R0);
    asm.store(Width::Double, RECORD_TAKES, Reg::R9);
    asm.map(Reg::R1, maps.ring).stack_address(Reg::R2, RECORD);
    asm.set(Reg::R3, i32::from(-RECORD)).set(Reg::R4, 0).call(Helper::RingbufOutput);
    asm.skip_if_equal(Reg::R0, 0)
}

fn count_as_lost(asm: &mut Assembler, maps: Maps) {
    asm.set(Reg::R0, 0).store(Width::Word, KEY, Reg::R0);
    asm.map(Reg::R1, maps.lost).stack_address(Reg::R2, KEY).call(Helper::MapLookup);
    let missing = asm.skip_if_equal(Reg::R0, 0);
    asm.set(Reg::R1, 1).fetch_add(Reg::R0, Reg::R1);
    asm.land(missing);
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: Maps = Maps { ring: 3, rules: 4, halted: 5, lost: 6 };

    fn calls(program: Program, halting: Halting) -> Vec<i32> {
        program.assemble(MAPS, halting).iter().filter(|i| i.code == 0x85).map(|i| i.immediate).collect()
    }

    #[test]
    fn a_failed_call_is_left_before_any_work() {
        for program in [Program::Return, Program::Drained] {
            let insns = program.assemble(MAPS, Halting::Unseen);
            assert_eq!((insns[0].code, insns[0].offset, insns[1].code), (0x61, registers::RETURN_VALUE, 0x55));
        }
    }

    #[test]
    fn only_programs_at_the_entry_of_a_function_can_halt_anyone() {
        let (signal, wait) = (Helper::SendSignalThread as i32, Helper::CopyFromUserTask as i32);
        for program in Program::ALL {
            let [unseen, by_signal] = [Halting::Unseen, Halting::BySignal].map(|halting| calls(program, halting));
            assert_eq!(by_signal.contains(&signal), !program.returns(), "{program:?}");
            assert_eq!(unseen.contains(&wait), !program.returns(), "{program:?}");
            assert!(!by_signal.contains(&wait), "{program:?}");
        }
    }

    #[test]
    fn programs_call_only_what_observing_needs() {
        let (time, cookie, process, ring, lookup) = (5, 174, 14, 130, 1);
        let calls = |program| calls(program, Halting::Unseen);
        assert_eq!(calls(Program::Return), [time, cookie, process, ring, lookup]);
        assert_eq!(calls(Program::Drained), [time, cookie, process, lookup, ring, lookup]);
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&7_u64.to_le_bytes());
        bytes[8..16].copy_from_slice(&0x1_0000_0203_u64.to_le_bytes());
        bytes[16..20].copy_from_slice(&42_u32.to_le_bytes());
        bytes[20] = 1;
        bytes[24..].copy_from_slice(&4096_u64.to_le_bytes());
        let record = Record { at: 7, cookie: 0x1_0000_0203, tgid: 42, what: What::Halted, takes: 4096 };
        assert_eq!(Record::parse(&bytes), Some(record));
        assert_eq!(Record::parse(&bytes[..28]), None);
        bytes[20] = 9;
        assert_eq!(Record::parse(&bytes), None, "nothing tells that");
    }
}
