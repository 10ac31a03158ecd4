//! What a run is asked to do, and the check that it makes sense before anything is touched.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::record::Phase;

/// Largest matrix: 16 GiB each, beyond what one GPU holds three of.
pub const MAX_SIZE: u32 = 65_536;

/// A duration that no run outlives; waits of this length end only by a signal.
pub const FOREVER: Duration = Duration::MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// A naive matrix product, phase by phase
    Matmul,
    /// Take memory, keep it and idle
    Hold,
    /// Small products at a fixed period
    Light,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Matmul => "matmul",
            Self::Hold => "hold",
            Self::Light => "light",
        })
    }
}

/// How the driver's functions are found in the library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum Lookup {
    /// `cuGetProcAddress` where the library has it, `dlsym` otherwise
    Auto,
    /// `cuGetProcAddress` only, as the CUDA runtime does since 11.3
    ProcAddress,
    /// `dlsym` only, as older programs do
    Dlsym,
}

/// How a run that was told to fail does so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum How {
    /// Notice an error, release everything, exit 1
    Error,
    /// `abort()`: SIGABRT, nothing released
    Abort,
    /// SIGKILL to itself, nothing released
    Kill,
    /// Exit 0 without freeing or destroying anything
    Exit,
    /// Stay for ever; only SIGKILL ends it
    Hang,
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Abort => "abort",
            Self::Kill => "kill",
            Self::Exit => "exit",
            Self::Hang => "hang",
        })
    }
}

/// A failure on purpose, in the middle of a phase: after its first call (after the context is made, for `context`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    pub phase: Phase,
    pub how: How,
    /// Which task fails, counted from 0.
    pub task: u32,
}

/// A pause of random length, even between the two bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GapRange {
    pub min: Duration,
    pub max: Duration,
}

/// Everything a run needs to know. [`Options::new`] gives each mode's defaults; change fields as needed.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    pub mode: Mode,
    /// Side n of the n×n matrices.
    pub size: u32,
    /// Rounds of kernels per task; `u32::MAX` is for ever in practice.
    pub repeats: u32,
    /// Pause between two rounds (`matmul` only).
    pub gap: Duration,
    /// From the start of one round to the start of the next (`light` only). A late round is not made up for.
    pub period: Duration,
    /// How often the process comes back: context, work and destruction of the context, all over again.
    pub tasks: u32,
    /// Pause before each task, the first included.
    pub task_gap: GapRange,
    /// Seed of everything random: pauses and matrix elements.
    pub seed: u64,
    /// Waiting in the host phase, before anything is asked of the driver. Uses no CPU.
    pub host_time: Duration,
    /// Fill the input matrices in the host phase (CPU work and memory). Otherwise they are untouched zero pages.
    pub fill: bool,
    /// After allocation, keep the memory and idle this long.
    pub hold: Duration,
    /// Device memory taken besides the matrices, in one piece; more than the GPU has is a real out-of-memory.
    pub alloc_bytes: u64,
    /// Pause before that, with the matrices allocated.
    pub alloc_after: Duration,
    /// After everything is freed, keep the context and idle this long.
    pub idle: Duration,
    pub device: u32,
    /// Kernels per round, each in its own stream.
    pub streams: u32,
    /// Threads along each side of a block.
    pub block: u32,
    pub fail: Option<Failure>,
    /// Compare some elements of the result with the CPU's; implies `fill`. Real devices only.
    pub verify: bool,
    /// The driver library: a path, or a name for the dynamic linker to find.
    pub library: PathBuf,
    pub lookup: Lookup,
    /// Append the lines to this file instead of standard output; `/dev/fd/N` names an open descriptor.
    pub output: Option<PathBuf>,
}

impl Options {
    pub fn new(mode: Mode) -> Self {
        let light = mode == Mode::Light;
        Self {
            mode,
            size: if light { 1_024 } else { 5_120 },
            repeats: if light { u32::MAX } else { 1 },
            gap: Duration::ZERO,
            period: Duration::from_millis(100),
            tasks: 1,
            task_gap: GapRange::default(),
            seed: 1,
            host_time: Duration::ZERO,
            fill: false,
            hold: if mode == Mode::Hold { FOREVER } else { Duration::ZERO },
            alloc_bytes: if mode == Mode::Hold { 1 << 30 } else { 0 },
            alloc_after: Duration::ZERO,
            idle: Duration::ZERO,
            device: 0,
            streams: 1,
            block: 16,
            fail: None,
            verify: false,
            library: PathBuf::from("libcuda.so.1"),
            lookup: Lookup::Auto,
            output: None,
        }
    }

    /// Bytes of one matrix.
    pub fn matrix_bytes(&self) -> u64 {
        u64::from(self.size) * u64::from(self.size) * 4
    }

    /// Whether a task of this mode goes through the phase at all.
    pub fn has_phase(&self, phase: Phase) -> bool {
        match phase {
            Phase::Host | Phase::Context | Phase::Alloc | Phase::Free | Phase::Destroy | Phase::Exit => true,
            Phase::Wait => !self.task_gap.max.is_zero(),
            Phase::Hold => !self.hold.is_zero(),
            Phase::Idle => !self.idle.is_zero(),
            Phase::Kernel => self.mode != Mode::Hold && self.repeats > 0,
            Phase::Input | Phase::Output => self.mode != Mode::Hold,
        }
    }

    /// Refuses what cannot be meant, naming the option, its value and what would be right.
    pub fn check(&self) -> Result<(), OptionsError> {
        in_range("size", self.size.into(), 1, MAX_SIZE.into())?;
        in_range("tasks", self.tasks.into(), 1, u32::MAX.into())?;
        in_range("streams", self.streams.into(), 1, 128)?;
        in_range("block", self.block.into(), 1, 32)?;
        if self.mode == Mode::Hold {
            in_range("alloc-bytes", self.alloc_bytes, 1, u64::MAX)?;
        }
        if self.mode == Mode::Light {
            in_range("period (ns)", self.period.as_nanos().try_into().unwrap_or(u64::MAX), 1, u64::MAX)?;
        }
        if self.task_gap.min > self.task_gap.max {
            return Err(OptionsError::TaskGap { min: self.task_gap.min, max: self.task_gap.max });
        }
        match self.fail {
            Some(failure) if !self.has_phase(failure.phase) => {
                Err(OptionsError::NoSuchPhase { phase: failure.phase, mode: self.mode })
            }
            Some(failure) if failure.task >= self.tasks => {
                Err(OptionsError::NoSuchTask { task: failure.task, tasks: self.tasks })
            }
            Some(failure) if failure.phase == Phase::Host && failure.task > 0 => {
                Err(OptionsError::HostOnce { task: failure.task })
            }
            _ => Ok(()),
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::new(Mode::Matmul)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    #[error("{option} is {value}, must be from {min} to {max}")]
    Range { option: &'static str, value: u64, min: u64, max: u64 },
    #[error("task gap goes from {min:?} to {max:?}, the first must not be longer than the second")]
    TaskGap { min: Duration, max: Duration },
    #[error("asked to fail in phase {phase}, which a {mode} run with these options does not have")]
    NoSuchPhase { phase: Phase, mode: Mode },
    #[error("asked to fail in task {task}, but tasks are counted from 0 and there are {tasks}")]
    NoSuchTask { task: u32, tasks: u32 },
    #[error("asked to fail in phase host of task {task}, but only task 0 has host work")]
    HostOnce { task: u32 },
}

fn in_range(option: &'static str, value: u64, min: u64, max: u64) -> Result<(), OptionsError> {
    if (min..=max).contains(&value) { Ok(()) } else { Err(OptionsError::Range { option, value, min, max }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_of_every_mode_are_accepted() {
        for mode in [Mode::Matmul, Mode::Hold, Mode::Light] {
            assert_eq!(Options::new(mode).check(), Ok(()), "{mode:?}");
        }
    }

    #[test]
    fn sizes_outside_the_range_are_refused_by_name() {
        for size in [0, MAX_SIZE + 1] {
            let error = Options { size, ..Options::default() }.check().unwrap_err();
            assert_eq!(error.to_string(), format!("size is {size}, must be from 1 to 65536"));
        }
    }

    #[test]
    fn zero_counts_are_refused() {
        let base = Options::default();
        assert!(Options { tasks: 0, ..base.clone() }.check().is_err());
        assert!(Options { streams: 0, ..base.clone() }.check().is_err());
        assert!(Options { block: 33, ..base }.check().is_err());
        assert!(Options { alloc_bytes: 0, ..Options::new(Mode::Hold) }.check().is_err());
        assert!(Options { period: Duration::ZERO, ..Options::new(Mode::Light) }.check().is_err());
    }

    #[test]
    fn span_the_wrong_way_round_is_refused() {
        let task_gap = GapRange { min: Duration::from_secs(2), max: Duration::from_secs(1) };
        assert!(matches!(Options { task_gap, ..Options::default() }.check(), Err(OptionsError::TaskGap { .. })));
    }

    #[test]
    fn failing_where_the_run_never_comes_is_refused() {
        let fail = |phase, task| Some(Failure { phase, how: How::Exit, task });
        let kernel = Options { fail: fail(Phase::Kernel, 0), ..Options::new(Mode::Hold) };
        assert!(matches!(kernel.check(), Err(OptionsError::NoSuchPhase { .. })));
        let later = Options { fail: fail(Phase::Kernel, 1), ..Options::default() };
        assert!(matches!(later.check(), Err(OptionsError::NoSuchTask { .. })));
        let host = Options { tasks: 2, fail: fail(Phase::Host, 1), ..Options::default() };
        assert!(matches!(host.check(), Err(OptionsError::HostOnce { task: 1 })));
    }
}
