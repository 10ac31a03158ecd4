//! From options to the steps of a run. Pure: no clock, no driver, same options same steps.
//!
//! A task is four lists: *setup* (until the data is on the device), *rounds* of kernels, *result*, *teardown*. The
//! runner goes through them in order and, when asked to stop, jumps to the teardown. A failure on purpose is a step
//! like any other.
//!
//! Properties, held by tests: every phase that begins ends; what is allocated is freed, once, before the context is
//! destroyed; nothing touches the device outside a context; a failure asked for is in the steps exactly once.

use std::time::Duration;

use crate::options::{How, Mode, Options};
use crate::record::Phase;

/// Device memory by what it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Buffer {
    A,
    B,
    C,
    /// `alloc_bytes`, besides the matrices.
    Extra,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Begin(Phase, Option<u32>),
    End(Phase, Option<u32>),
    Sleep(Duration),
    /// Until `period` × this many after the first round began.
    SleepUntilRound(u32),
    FillHost,
    OpenDevice,
    CreateContext,
    LoadKernel,
    CreateStreams,
    Alloc(Buffer, u64),
    CopyIn(Buffer),
    /// One kernel per stream.
    Launch(u32),
    /// Until all streams are done.
    Synchronize(u32),
    /// Makes sure that a result seen later was copied by this task.
    MarkResult,
    CopyOut,
    Verify,
    Free(Buffer),
    DestroyContext,
    Fail(How),
}

/// The steps of a run, made when asked for: a run for ever has no end of rounds.
#[derive(Debug, Clone, Copy)]
pub struct Plan<'a> {
    options: &'a Options,
}

impl<'a> Plan<'a> {
    pub fn new(options: &'a Options) -> Self {
        Self { options }
    }

    pub fn setup(&self, task: u32) -> Vec<Step> {
        let options = self.options;
        let mut steps = self.phase(Phase::Wait, task, vec![Step::Sleep(task_gap(options, task))]);
        if task == 0 {
            steps.extend(self.phase(Phase::Host, task, self.host()));
        }
        let context = vec![Step::OpenDevice, Step::CreateContext, Step::LoadKernel, Step::CreateStreams];
        steps.extend(self.phase(Phase::Context, task, context));
        steps.extend(self.phase(Phase::Alloc, task, self.allocations()));
        steps.extend(self.phase(Phase::Hold, task, vec![Step::Sleep(options.hold)]));
        steps.extend(self.phase(Phase::Input, task, vec![Step::CopyIn(Buffer::A), Step::CopyIn(Buffer::B)]));
        steps
    }

    pub fn rounds(&self) -> u32 {
        if self.options.has_phase(Phase::Kernel) { self.options.repeats } else { 0 }
    }

    pub fn round(&self, task: u32, repeat: u32) -> Vec<Step> {
        let options = self.options;
        let mut steps = Vec::with_capacity(6);
        if options.mode == Mode::Light {
            steps.push(Step::SleepUntilRound(repeat));
        } else if repeat > 0 && !options.gap.is_zero() {
            steps.push(Step::Sleep(options.gap));
        }
        steps.push(Step::Begin(Phase::Kernel, Some(repeat)));
        steps.push(Step::Launch(repeat));
        if repeat == 0 {
            steps.extend(self.failure(Phase::Kernel, task));
        }
        steps.push(Step::Synchronize(repeat));
        steps.push(Step::End(Phase::Kernel, Some(repeat)));
        steps
    }

    pub fn result(&self, task: u32) -> Vec<Step> {
        let verify = self.options.verify && self.rounds() > 0;
        let mark = verify.then_some(Step::MarkResult);
        let output = self.phase(Phase::Output, task, vec![Step::CopyOut]);
        mark.into_iter().chain(output).chain(verify.then_some(Step::Verify)).collect()
    }

    pub fn teardown(&self, task: u32) -> Vec<Step> {
        let frees = self.buffers().into_iter().map(|(buffer, _)| Step::Free(buffer)).collect();
        let mut steps = self.phase(Phase::Free, task, frees);
        steps.extend(self.phase(Phase::Idle, task, vec![Step::Sleep(self.options.idle)]));
        steps.extend(self.phase(Phase::Destroy, task, vec![Step::DestroyContext]));
        steps
    }

    /// After the last task.
    pub fn exit(&self) -> Option<Step> {
        self.options.fail.filter(|failure| failure.phase == Phase::Exit).map(|failure| Step::Fail(failure.how))
    }

    fn host(&self) -> Vec<Step> {
        let options = self.options;
        let fill = (options.fill || options.verify) && options.mode != Mode::Hold;
        fill.then_some(Step::FillHost).into_iter().chain([Step::Sleep(options.host_time)]).collect()
    }

    fn allocations(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        for (buffer, bytes) in self.buffers() {
            let pause = buffer == Buffer::Extra && !self.options.alloc_after.is_zero();
            steps.extend(pause.then_some(Step::Sleep(self.options.alloc_after)));
            steps.push(Step::Alloc(buffer, bytes));
        }
        steps
    }

    fn buffers(&self) -> Vec<(Buffer, u64)> {
        let bytes = self.options.matrix_bytes();
        let mut buffers = match self.options.mode {
            Mode::Hold => Vec::new(),
            Mode::Matmul | Mode::Light => vec![(Buffer::A, bytes), (Buffer::B, bytes), (Buffer::C, bytes)],
        };
        if self.options.alloc_bytes > 0 {
            buffers.push((Buffer::Extra, self.options.alloc_bytes));
        }
        buffers
    }

    /// The steps between the phase's edges, with the failure asked for in their midst; nothing if the mode has no such
    /// phase.
    fn phase(&self, phase: Phase, task: u32, inner: Vec<Step>) -> Vec<Step> {
        if !self.options.has_phase(phase) {
            return Vec::new();
        }
        // The context phase fails with a context made but not yet used: its opening of the device leaves no trace.
        let place = if phase == Phase::Context { 2 } else { 1 };
        let mut steps = vec![Step::Begin(phase, None)];
        for (index, step) in inner.into_iter().enumerate() {
            steps.push(step);
            if index + 1 == place {
                steps.extend(self.failure(phase, task));
            }
        }
        steps.push(Step::End(phase, None));
        steps
    }

    fn failure(&self, phase: Phase, task: u32) -> Option<Step> {
        let asked = self.options.fail.filter(|failure| failure.phase == phase && failure.task == task);
        asked.map(|failure| Step::Fail(failure.how))
    }
}

/// The pause before a task: the same for the same seed and task.
fn task_gap(options: &Options, task: u32) -> Duration {
    let span = options.task_gap;
    let width = span.max.saturating_sub(span.min).as_nanos();
    let share = u128::from(mix(options.seed ^ (u64::from(task) << 32 | 0x6761_7073)));
    // At most `width`, which came from a Duration: 128 bits are enough for the product of any span below 500 years.
    let nanos = width.saturating_mul(share) >> 64;
    span.min.saturating_add(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
}

/// SplitMix64's finisher: a number that looks random, from one that does not.
pub(crate) fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests;
