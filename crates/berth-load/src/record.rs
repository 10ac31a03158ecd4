//! The lines a run prints: one JSON object each, written whole and at once.
//!
//! A time is taken first and written afterwards. The two edges of a short call are written together after it, so that
//! writing never falls between a time and the call it speaks of. A reader that does not keep up with a pipe makes the
//! run wait, as it would any program: give a file where that matters.

use std::fmt;
use std::io::{self, Write};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::options::Mode;

/// A stretch of a task. In this order; not every run has all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Pause before a task
    Wait,
    /// Work before the driver is asked for anything (first task only)
    Host,
    /// Opening the driver, making a context, loading the kernel
    Context,
    /// Taking device memory
    Alloc,
    /// Keeping it and idling
    Hold,
    /// Two copies to the device
    Input,
    /// One round of kernels, from before its launch until it is done
    Kernel,
    /// One copy back
    Output,
    /// Giving device memory back
    Free,
    /// Idling with nothing but the context
    Idle,
    /// Destroying the context
    Destroy,
    /// The end of the process (after the last task)
    Exit,
}

impl Phase {
    pub const ALL: [Self; 12] = [
        Self::Wait,
        Self::Host,
        Self::Context,
        Self::Alloc,
        Self::Hold,
        Self::Input,
        Self::Kernel,
        Self::Output,
        Self::Free,
        Self::Idle,
        Self::Destroy,
        Self::Exit,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Wait => "wait",
            Self::Host => "host",
            Self::Context => "context",
            Self::Alloc => "alloc",
            Self::Hold => "hold",
            Self::Input => "input",
            Self::Kernel => "kernel",
            Self::Output => "output",
            Self::Free => "free",
            Self::Idle => "idle",
            Self::Destroy => "destroy",
            Self::Exit => "exit",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Edge {
    Begin,
    End,
}

/// An instant an observer may want to have seen. The crate's header says which edges each one has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Moment {
    DeviceOpen,
    ContextReady,
    FirstAllocation,
    FirstLaunch,
    KernelDone,
    Freed,
    ContextGone,
    Exit,
}

/// One instant on both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// `CLOCK_MONOTONIC`: the same on the host and in every container of it.
    pub mono_ns: u64,
    /// `CLOCK_REALTIME`, since 1970.
    pub wall_ns: u64,
}

impl Stamp {
    pub fn now() -> Self {
        Self { mono_ns: nanos(ClockId::Monotonic), wall_ns: nanos(ClockId::Realtime) }
    }
}

fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// One printed line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    #[serde(flatten)]
    pub at: Stamp,
    /// As the process sees itself: inside a pid namespace this is not the host's number.
    pub pid: u32,
    /// Counted from 0.
    pub task: u32,
    #[serde(flatten)]
    pub event: Event,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Event {
    /// First line: what was asked for.
    Start {
        version: String,
        mode: Mode,
        size: u32,
        repeats: u32,
        tasks: u32,
        seed: u64,
    },
    /// What the driver said about itself, once.
    Device {
        name: String,
        total_bytes: u64,
        driver_version: i32,
    },
    Phase {
        phase: Phase,
        edge: Edge,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        repeat: Option<u32>,
    },
    Moment {
        moment: Moment,
        edge: Edge,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        repeat: Option<u32>,
    },
    Verify(Verdict),
    /// The run was asked to end (SIGTERM or SIGINT), in this phase or between two.
    Stopped {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        phase: Option<Phase>,
    },
    /// A failure, real or on purpose.
    Error {
        phase: Phase,
        message: String,
    },
    /// Last line of every run that is not killed.
    Summary(Summary),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Verdict {
    Correct {
        checked: u32,
        worst_relative_error: f64,
    },
    Wrong {
        row: u32,
        col: u32,
        expected: f64,
        /// `None` if it is not a number, which JSON cannot say.
        found: Option<f64>,
    },
    NotVerified {
        reason: String,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// What the process is about to answer its parent, where it lives to do so.
    pub exit_code: u8,
    pub tasks: Vec<TaskSummary>,
}

/// Seconds a task spent in each of its phases; `None` is a phase it never finished.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TaskSummary {
    pub task: u32,
    /// Rounds of kernels done.
    pub rounds: u32,
    pub wait_s: Option<f64>,
    pub host_s: Option<f64>,
    pub context_s: Option<f64>,
    pub alloc_s: Option<f64>,
    pub hold_s: Option<f64>,
    pub input_s: Option<f64>,
    /// All rounds together, without the pauses between them.
    pub kernel_s: Option<f64>,
    pub output_s: Option<f64>,
    pub free_s: Option<f64>,
    pub idle_s: Option<f64>,
    pub destroy_s: Option<f64>,
}

impl TaskSummary {
    fn add(&mut self, phase: Phase, seconds: f64) {
        let slot = match phase {
            Phase::Wait => &mut self.wait_s,
            Phase::Host => &mut self.host_s,
            Phase::Context => &mut self.context_s,
            Phase::Alloc => &mut self.alloc_s,
            Phase::Hold => &mut self.hold_s,
            Phase::Input => &mut self.input_s,
            Phase::Kernel => {
                self.rounds += 1;
                &mut self.kernel_s
            }
            Phase::Output => &mut self.output_s,
            Phase::Free => &mut self.free_s,
            Phase::Idle => &mut self.idle_s,
            Phase::Destroy => &mut self.destroy_s,
            Phase::Exit => return,
        };
        *slot = Some(slot.unwrap_or(0.0) + seconds);
    }
}

/// Writes lines and adds up the phases.
#[derive(Debug)]
pub struct Recorder<W> {
    sink: W,
    pid: u32,
    /// The first write that failed; nothing is written after it.
    lost: Option<io::Error>,
    open: Option<(Phase, Stamp)>,
    tasks: Vec<TaskSummary>,
    task: u32,
}

impl<W: Write> Recorder<W> {
    pub fn new(sink: W) -> Self {
        Self { sink, pid: std::process::id(), lost: None, open: None, tasks: Vec::new(), task: 0 }
    }

    /// Later lines belong to this task.
    pub fn enter_task(&mut self, task: u32) {
        self.task = task;
        self.tasks.push(TaskSummary { task, ..TaskSummary::default() });
    }

    /// The phase begun and not ended, if any.
    pub fn phase(&self) -> Option<Phase> {
        self.open.map(|(phase, _)| phase)
    }

    pub fn begin(&mut self, phase: Phase, repeat: Option<u32>) {
        let at = Stamp::now();
        self.open = Some((phase, at));
        self.write(at, Event::Phase { phase, edge: Edge::Begin, repeat });
    }

    pub fn end(&mut self, phase: Phase, repeat: Option<u32>) {
        let at = Stamp::now();
        if let Some((_, since)) = self.open.take()
            && let Some(task) = self.tasks.last_mut()
        {
            task.add(phase, seconds_between(since, at));
        }
        self.write(at, Event::Phase { phase, edge: Edge::End, repeat });
    }

    pub fn moment(&mut self, at: Stamp, moment: Moment, edge: Edge, repeat: Option<u32>) {
        self.write(at, Event::Moment { moment, edge, repeat });
    }

    pub fn event(&mut self, event: Event) {
        self.write(Stamp::now(), event);
    }

    /// The last line.
    pub fn summary(&mut self, exit_code: u8) {
        let tasks = std::mem::take(&mut self.tasks);
        self.event(Event::Summary(Summary { exit_code, tasks }));
    }

    /// Why lines are missing, if they are.
    pub fn lost(&self) -> Option<&io::Error> {
        self.lost.as_ref()
    }

    fn write(&mut self, at: Stamp, event: Event) {
        if self.lost.is_some() {
            return;
        }
        let line = Line { at, pid: self.pid, task: self.task, event };
        if let Err(error) = write_line(&mut self.sink, &line) {
            self.lost = Some(error);
        }
    }
}

/// One `write` per line, so that lines of several processes appended to one file do not mix.
fn write_line(sink: &mut impl Write, line: &Line) -> io::Result<()> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    sink.write_all(&text)?;
    sink.flush()
}

// Durations of a run are far below 2^53 ns (104 days), where a double is exact.
fn seconds_between(from: Stamp, to: Stamp) -> f64 {
    to.mono_ns.saturating_sub(from.mono_ns) as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(bytes: &[u8]) -> Vec<Line> {
        let text = std::str::from_utf8(bytes).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn line_has_the_documented_shape() {
        let line = Line {
            at: Stamp { mono_ns: 1, wall_ns: 2 },
            pid: 3,
            task: 4,
            event: Event::Phase { phase: Phase::Kernel, edge: Edge::Begin, repeat: Some(5) },
        };
        let text = serde_json::to_string(&line).unwrap();
        let expected =
            r#"{"mono_ns":1,"wall_ns":2,"pid":3,"task":4,"event":"phase","phase":"kernel","edge":"begin","repeat":5}"#;
        assert_eq!(text, expected);
    }

    #[test]
    fn every_kind_of_line_reads_back_as_written() {
        let summary = Summary { exit_code: 1, tasks: vec![TaskSummary { host_s: Some(0.5), ..Default::default() }] };
        let events = [
            Event::Start { version: "1".into(), mode: Mode::Light, size: 1, repeats: 2, tasks: 3, seed: u64::MAX },
            Event::Device { name: "x".into(), total_bytes: u64::MAX, driver_version: 13_000 },
            Event::Phase { phase: Phase::Wait, edge: Edge::End, repeat: None },
            Event::Moment { moment: Moment::FirstAllocation, edge: Edge::Begin, repeat: None },
            Event::Verify(Verdict::Correct { checked: 8, worst_relative_error: 1e-6 }),
            Event::Verify(Verdict::Wrong { row: 1, col: 2, expected: 0.5, found: None }),
            Event::Verify(Verdict::NotVerified { reason: "simulated device".into() }),
            Event::Stopped { phase: Some(Phase::Hold) },
            Event::Stopped { phase: None },
            Event::Error { phase: Phase::Alloc, message: "\"quoted\"\n".into() },
            Event::Summary(summary),
        ];
        for event in events {
            let line = Line { at: Stamp::now(), pid: 1, task: 0, event };
            let text = serde_json::to_string(&line).unwrap();
            assert!(!text.contains('\n'));
            assert_eq!(serde_json::from_str::<Line>(&text).unwrap(), line, "{text}");
        }
    }

    #[test]
    fn phase_names_are_those_of_the_lines() {
        for phase in Phase::ALL {
            assert_eq!(serde_json::to_value(phase).unwrap(), phase.name());
        }
    }

    #[test]
    fn rounds_of_one_task_add_up_and_tasks_stay_apart() {
        let mut sink = Vec::new();
        let mut recorder = Recorder::new(&mut sink);
        for task in 0..2 {
            recorder.enter_task(task);
            for repeat in 0..3 {
                recorder.begin(Phase::Kernel, Some(repeat));
                recorder.end(Phase::Kernel, Some(repeat));
            }
        }
        recorder.summary(0);
        let Event::Summary(summary) = lines(&sink).pop().unwrap().event else { panic!("last line is no summary") };
        assert_eq!(summary.tasks.iter().map(|task| task.rounds).collect::<Vec<_>>(), [3, 3]);
        assert!(summary.tasks.iter().all(|task| task.kernel_s.is_some() && task.input_s.is_none()));
    }

    #[test]
    fn summary_seconds_are_the_difference_of_the_edges() {
        let mut sink = Vec::new();
        let mut recorder = Recorder::new(&mut sink);
        recorder.enter_task(0);
        recorder.begin(Phase::Input, None);
        recorder.end(Phase::Input, None);
        recorder.summary(0);
        let lines = lines(&sink);
        let Event::Summary(summary) = &lines[2].event else { panic!("last line is no summary") };
        let edges = (lines[1].at.mono_ns - lines[0].at.mono_ns) as f64 / 1e9;
        assert_eq!(summary.tasks[0].input_s, Some(edges));
    }

    #[test]
    fn unwritable_sink_is_remembered_and_left_alone() {
        struct Closed(u32);
        impl Write for Closed {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                self.0 += 1;
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut closed = Closed(0);
        let mut recorder = Recorder::new(&mut closed);
        recorder.begin(Phase::Host, None);
        recorder.end(Phase::Host, None);
        assert_eq!(recorder.lost().map(io::Error::kind), Some(io::ErrorKind::BrokenPipe));
        assert_eq!(closed.0, 1);
    }
}
