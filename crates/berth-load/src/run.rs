//! Goes through a plan's steps on a driver and records what happened when.
//!
//! One thread, one task after the other. A run ends in one of five ways ([`Ending`]). Asked to stop, it looks up at the
//! start of a phase and in every wait, then goes straight to the teardown: a kernel already running is waited for,
//! since nothing can end it. On a driver's error everything held is given back on the way out; on a failure on purpose
//! other than `error` it is left as it is, for the caller to die with.

use std::io::Write;
use std::time::{Duration, Instant};

use crate::driver::{CallError, Driver, Held, Shape};
use crate::matrix::Matrices;
use crate::options::{How, Mode, Options};
use crate::plan::{Buffer, Plan, Step};
use crate::ptx;
use crate::record::{Edge, Event, Moment, Phase, Recorder, Stamp, Verdict};
use crate::stop::{Pause, Woken};

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    Done,
    /// Asked to, cleanly.
    Stopped,
    /// The device's result differs from the CPU's.
    Wrong,
    Call {
        phase: Phase,
        error: CallError,
    },
    Failed {
        phase: Phase,
        how: How,
    },
}

/// Why the steps were left before their end.
enum Left {
    Stop,
    Wrong,
    Call(CallError),
    Fail(How),
}

impl From<CallError> for Left {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

/// Runs all tasks and says how it ended. Writes everything but the last line.
pub fn execute<D: Driver, W: Write>(
    options: &Options,
    driver: &D,
    recorder: &mut Recorder<W>,
    pause: &dyn Pause,
) -> Ending {
    let size = if options.mode == Mode::Hold { 0 } else { options.size };
    let mut runner = Runner {
        options,
        plan: Plan::new(options),
        driver,
        recorder,
        pause,
        held: Held::new(driver),
        matrices: Matrices::zeroed(size, options.seed),
        opened: false,
        first_round: None,
    };
    match runner.tasks() {
        Ok(ending) => ending,
        Err(left) => runner.leave(left),
    }
}

struct Runner<'r, D: Driver, W> {
    options: &'r Options,
    plan: Plan<'r>,
    driver: &'r D,
    recorder: &'r mut Recorder<W>,
    pause: &'r dyn Pause,
    held: Held<'r, D>,
    matrices: Matrices,
    opened: bool,
    first_round: Option<Instant>,
}

impl<D: Driver, W: Write> Runner<'_, D, W> {
    fn tasks(&mut self) -> Result<Ending, Left> {
        let mut ending = Ending::Done;
        for task in 0..self.options.tasks {
            self.recorder.enter_task(task);
            self.first_round = None;
            let worked = self.work(task);
            let stopped = matches!(worked, Err(Left::Stop));
            if stopped {
                self.note_stop()
            } else {
                worked?
            }
            self.teardown(task)?;
            if stopped {
                ending = Ending::Stopped;
                break;
            }
        }
        self.recorder.begin(Phase::Exit, None);
        self.plan.exit().map_or(Ok(()), |step| self.step(step))?;
        Ok(ending)
    }

    fn work(&mut self, task: u32) -> Result<(), Left> {
        self.steps(self.plan.setup(task))?;
        for repeat in 0..self.plan.rounds() {
            self.steps(self.plan.round(task, repeat))?;
        }
        self.steps(self.plan.result(task))
    }

    /// Gives back what is held, if anything; a stop on the way shortens the idling only.
    fn teardown(&mut self, task: u32) -> Result<(), Left> {
        if self.held.context.is_none() {
            return Ok(());
        }
        for step in self.plan.teardown(task) {
            match (step, self.step(step)) {
                (Step::Begin(..) | Step::Sleep(_), Err(Left::Stop)) => self.begin_anyway(step),
                (_, result) => result?,
            }
        }
        Ok(())
    }

    fn begin_anyway(&mut self, step: Step) {
        if let Step::Begin(phase, repeat) = step {
            self.recorder.begin(phase, repeat);
        }
    }

    fn steps(&mut self, steps: Vec<Step>) -> Result<(), Left> {
        steps.into_iter().try_for_each(|step| self.step(step))
    }

    fn step(&mut self, step: Step) -> Result<(), Left> {
        match step {
            Step::Begin(phase, repeat) => {
                self.sleep(Duration::ZERO)?;
                self.recorder.begin(phase, repeat);
            }
            Step::End(phase, repeat) => self.recorder.end(phase, repeat),
            Step::Sleep(time) => self.sleep(time)?,
            Step::SleepUntilRound(round) => self.sleep_until_round(round)?,
            Step::FillHost => self.matrices.fill(),
            Step::OpenDevice => self.open_device()?,
            Step::CreateContext => {
                self.held.context = Some(self.driver.create_context(self.options.device)?);
                self.moment(Moment::ContextReady, Edge::End, None);
            }
            Step::LoadKernel => self.held.kernel = Some(self.driver.load_kernel(ptx::MATMUL, ptx::ENTRY)?),
            Step::CreateStreams => {
                for _ in 0..self.options.streams {
                    self.held.streams.push(self.driver.create_stream()?);
                }
            }
            Step::Alloc(buffer, bytes) => self.alloc(buffer, bytes)?,
            Step::CopyIn(buffer) => self.copy_in(buffer)?,
            Step::Launch(repeat) => self.launch(repeat)?,
            Step::Synchronize(repeat) => {
                for stream in &self.held.streams {
                    self.driver.synchronize(stream)?;
                }
                self.moment(Moment::KernelDone, Edge::End, Some(repeat));
            }
            Step::MarkResult => self.matrices.mark_result(),
            Step::CopyOut => {
                if let Some(memory) = self.held.buffer(Buffer::C) {
                    self.driver.copy_out(&mut self.matrices.c, memory)?;
                }
            }
            Step::Verify => self.verify()?,
            Step::Free(buffer) => self.free(buffer)?,
            Step::DestroyContext => {
                self.held.destroy()?;
                self.moment(Moment::ContextGone, Edge::End, None);
            }
            Step::Fail(how) => return Err(Left::Fail(how)),
        }
        Ok(())
    }

    /// Once per process: later tasks find the driver open.
    fn open_device(&mut self) -> Result<(), Left> {
        if self.opened {
            return Ok(());
        }
        let before = Stamp::now();
        let opened = self.driver.init();
        let after = Stamp::now();
        self.recorder.moment(before, Moment::DeviceOpen, Edge::Begin, None);
        opened?;
        self.recorder.moment(after, Moment::DeviceOpen, Edge::End, None);
        let info = self.driver.device_info(self.options.device)?;
        self.opened = true;
        self.recorder.event(Event::Device {
            name: info.name,
            total_bytes: info.total_bytes,
            driver_version: info.driver_version,
        });
        Ok(())
    }

    fn alloc(&mut self, buffer: Buffer, bytes: u64) -> Result<(), Left> {
        let first = self.held.memory.is_empty();
        let before = Stamp::now();
        let allocated = self.driver.alloc(bytes);
        let after = Stamp::now();
        if first {
            self.recorder.moment(before, Moment::FirstAllocation, Edge::Begin, None);
        }
        self.held.memory.push((buffer, allocated?));
        if first {
            self.recorder.moment(after, Moment::FirstAllocation, Edge::End, None);
        }
        Ok(())
    }

    fn copy_in(&mut self, buffer: Buffer) -> Result<(), Left> {
        let from = if buffer == Buffer::A { &self.matrices.a } else { &self.matrices.b };
        match self.held.buffer(buffer) {
            Some(memory) => Ok(self.driver.copy_in(memory, from)?),
            None => Ok(()),
        }
    }

    fn launch(&mut self, repeat: u32) -> Result<(), Left> {
        let matrices = [Buffer::A, Buffer::B, Buffer::C].map(|buffer| self.held.buffer(buffer));
        let (Some(kernel), [Some(a), Some(b), Some(c)]) = (&self.held.kernel, matrices) else { return Ok(()) };
        let shape = Shape::covering(self.options.size, self.options.block);
        for (index, stream) in self.held.streams.iter().enumerate() {
            let before = Stamp::now();
            let launched = self.driver.launch(kernel, stream, shape, [a, b, c], self.options.size);
            let after = Stamp::now();
            let first = repeat == 0 && index == 0;
            if first {
                self.recorder.moment(before, Moment::FirstLaunch, Edge::Begin, Some(repeat));
            }
            launched?;
            if first {
                self.recorder.moment(after, Moment::FirstLaunch, Edge::End, Some(repeat));
            }
        }
        Ok(())
    }

    fn free(&mut self, buffer: Buffer) -> Result<(), Left> {
        if self.held.free(buffer)? && self.held.memory.is_empty() {
            self.moment(Moment::Freed, Edge::End, None);
        }
        Ok(())
    }

    fn verify(&mut self) -> Result<(), Left> {
        let verdict = self.matrices.verify();
        let wrong = matches!(verdict, Verdict::Wrong { .. });
        self.recorder.event(Event::Verify(verdict));
        if wrong { Err(Left::Wrong) } else { Ok(()) }
    }

    fn moment(&mut self, moment: Moment, edge: Edge, repeat: Option<u32>) {
        self.recorder.moment(Stamp::now(), moment, edge, repeat);
    }

    fn sleep_until_round(&mut self, round: u32) -> Result<(), Left> {
        let now = Instant::now();
        let first = *self.first_round.get_or_insert(now);
        let due = self.options.period.saturating_mul(round);
        self.sleep(due.saturating_sub(now.saturating_duration_since(first)))
    }

    fn sleep(&self, time: Duration) -> Result<(), Left> {
        match self.pause.wait(time) {
            Woken::Elapsed => Ok(()),
            Woken::Stopped => Err(Left::Stop),
        }
    }

    /// Says that the run was asked to end and closes the phase it was waiting in.
    fn note_stop(&mut self) {
        let phase = self.recorder.phase();
        self.recorder.event(Event::Stopped { phase });
        if let Some(phase) = phase {
            self.recorder.end(phase, None);
        }
    }

    /// Consumes the runner: what it holds is given back here, or never.
    fn leave(self, left: Left) -> Ending {
        let phase = self.recorder.phase().unwrap_or(Phase::Exit);
        match left {
            Left::Stop => Ending::Stopped,
            Left::Wrong => Ending::Wrong,
            Left::Call(error) => {
                self.recorder.event(Event::Error { phase, message: error.to_string() });
                Ending::Call { phase, error }
            }
            Left::Fail(how) => {
                let message = format!("failing on purpose: {how}");
                self.recorder.event(Event::Error { phase, message });
                if how != How::Error {
                    // To die at once, as told: even giving host memory back takes long enough for a kernel to end.
                    std::mem::forget(self);
                }
                Ending::Failed { phase, how }
            }
        }
    }
}

#[cfg(test)]
mod tests;
