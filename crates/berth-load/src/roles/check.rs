//! A program that checks its own results: whether all of its work was done, in the order in which it was asked for.
//!
//! A step is work in one stream, then work in another that waits for the first. Behind each part a stream writes the step's number into a
//! word of host memory; a thread looks at the words all the time, and the program at the end of each step. A number that is missing, late
//! or early is a wrong result. That no kernel is lost or doubled, the driver has to tell: the program says how many it has submitted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::calibration::Given;
use super::gpu::{Gpu, Recorded, Spin};
use super::words::{Checked, Input, Ready, Said, Word, say};
use super::{Place, RoleError};
use crate::driver::CallError;
use crate::record::Stamp;
use crate::sys::work::Waiting;
use crate::sys::work::order::{OrderApi, Words};
use crate::sys::{Code, Stream};

const BLOCKS_PER_SM: u32 = 8;
const LOOK_EVERY: Duration = Duration::from_micros(200);
/// Which word each part of a step writes; on cache lines of their own.
const FIRST: usize = 0;
const SECOND: usize = 16;

const EXAMPLES: &str = "\
Examples:
  berth load check --steps 100 <<< go
  berth load check --graph             each part of a step is a graph";

/// Do a fixed number of steps, and check that each was done and in its order
///
/// Says `{"event":"ready"}`, does its steps at each line `go` of its input, and prints what was wrong with them. `kernels` asks how many
/// it has submitted since it began. Ends with its input.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Steps of each `go`
    #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    steps: u32,
    /// Kernels of each of the two parts of a step
    #[arg(long, value_name = "COUNT", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    kernels: u32,
    /// How long each takes alone
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 100.0)]
    kernel_us: f64,
    /// Each part is a graph of its kernels
    #[arg(long)]
    graph: bool,
    #[command(flatten)]
    given: Given,
    #[command(flatten)]
    place: Place,
}

/// What each of the two parts of a step is.
enum Part {
    Graph(Recorded),
    Kernels(Vec<Spin>),
}

struct Check<'a> {
    gpu: &'a Gpu,
    order: OrderApi,
    part: Part,
    second: Stream,
    words: &'static Words,
    /// Steps so far: the numbers go on.
    done: u32,
}

/// Looks at the words while steps are done.
struct Watch {
    wrong: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<()>,
}

pub fn run(args: &Args) -> Result<(), RoleError> {
    let gpu = Gpu::open(&args.place, Waiting::Sleeping)?;
    let order = OrderApi::load(&args.place.library, args.place.lookup)?;
    let calibration = args.given.complete(&gpu, BLOCKS_PER_SM)?;
    let kernels = vec![calibration.kernel(args.kernel_us); args.kernels as usize];
    let graph = if args.graph { gpu.graph(&kernels)? } else { None };
    let is_graph = graph.is_some();
    let part = graph.map_or(Part::Kernels(kernels), Part::Graph);
    let words = order.words().map_err(gpu.named("cuMemHostRegister"))?;
    let mut check = Check { gpu: &gpu, order, part, second: gpu.another_stream()?, words, done: 0 };
    let input = Input::listen();
    say(&Said::Ready(Ready { calibration: Some(calibration), graph: Some(is_graph) }))?;
    while let Some(word) = input.next()? {
        match word {
            Word::Kernels => say(&Said::Kernels { submitted: gpu.submitted() })?,
            Word::Go(_) | Word::Service => say(&Said::Checked(check.steps(args.steps)?))?,
        }
    }
    Ok(())
}

impl Check<'_> {
    fn steps(&mut self, count: u32) -> Result<Checked, CallError> {
        let watch = Watch::start(self.words);
        let mut checked = Checked { from_ns: Stamp::now().mono_ns, ended_ns: Vec::new(), wrong: 0 };
        let events = [self.gpu.event(false)?, self.gpu.event(false)?];
        let ends = [self.gpu.event(false)?, self.gpu.event(false)?];
        let last = self.done + count;
        for step in self.done + 1..=last {
            let turn = step as usize % 2;
            self.part_in(self.gpu.stream())?;
            self.write(self.gpu.stream(), FIRST, step)?;
            self.gpu.record_in(&events[turn], self.gpu.stream())?;
            self.then("cuStreamWaitEvent", self.order.wait(&self.second, &events[turn]))?;
            self.part_in(&self.second)?;
            self.write(&self.second, SECOND, step)?;
            self.gpu.record_in(&ends[turn], &self.second)?;
            self.then("cuStreamWaitEvent", self.order.wait(self.gpu.stream(), &ends[turn]))?;
            // One step ahead of the one that runs.
            if step > self.done + 1 {
                self.end_of(step - 1, &ends[1 - turn], &mut checked)?;
            }
        }
        self.end_of(last, &ends[last as usize % 2], &mut checked)?;
        self.gpu.synchronize()?;
        self.done = last;
        checked.wrong += u64::from((self.words.get(FIRST), self.words.get(SECOND)) != (last, last));
        checked.wrong += watch.end();
        Ok(checked)
    }

    fn part_in(&self, stream: &Stream) -> Result<(), CallError> {
        match &self.part {
            Part::Graph(graph) => self.gpu.replay_in(graph, stream),
            Part::Kernels(kernels) => kernels.iter().try_for_each(|kernel| self.gpu.launch_in(*kernel, stream)),
        }
    }

    fn write(&self, stream: &Stream, index: usize, step: u32) -> Result<(), CallError> {
        self.then("cuStreamWriteValue32", self.order.write(stream, self.words, index, step))
    }

    fn then(&self, call: &'static str, answer: Result<(), Code>) -> Result<(), CallError> {
        answer.map_err(self.gpu.named(call))
    }

    /// A step that has ended has written its number.
    fn end_of(&self, step: u32, end: &crate::sys::work::Event, checked: &mut Checked) -> Result<(), CallError> {
        self.gpu.await_event(end)?;
        checked.ended_ns.push(Stamp::now().mono_ns);
        checked.wrong += u64::from(self.words.get(SECOND) < step || self.words.get(FIRST) < step);
        Ok(())
    }
}

impl Watch {
    fn start(words: &'static Words) -> Self {
        let (wrong, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (counted, ends) = (Arc::clone(&wrong), Arc::clone(&is_over));
        let thread = std::thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                let [before, first, second] = [SECOND, FIRST, SECOND].map(|index| words.get(index));
                counted.fetch_add(u64::from(!is_in_order(before, first, second)), Ordering::Relaxed);
                std::thread::sleep(LOOK_EVERY);
            }
        });
        Self { wrong, is_over, thread }
    }

    /// How often what was seen could not be.
    fn end(self) -> u64 {
        self.is_over.store(true, Ordering::Relaxed);
        // It cannot panic.
        let _ = self.thread.join();
        self.wrong.load(Ordering::Relaxed)
    }
}

/// What was read of the second part's word, then of the first's, then of the second's again.
fn is_in_order(before: u32, first: u32, second: u32) -> bool {
    // The second part of a step comes after its first, and the first of the next after that.
    before <= first && first <= second.saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_in_order_from_its_first_part_to_the_next_ones() {
        for (before, first, second) in [(0, 0, 0), (0, 1, 0), (0, 1, 1), (0, 2, 1), (3, 4, 9)] {
            assert!(is_in_order(before, first, second), "{before} {first} {second}");
        }
    }

    #[test]
    fn a_second_part_before_its_first_and_a_step_before_the_last_has_ended_are_not() {
        assert!(!is_in_order(2, 1, 2), "the second part of step 2 was done before the first");
        assert!(!is_in_order(0, 2, 0), "the first part of step 2 was done before the second of step 1");
    }
}
