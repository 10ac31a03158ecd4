//! The options as command-line flags, for `berth load` and for the small binary of this crate.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use berth_model::{Bytes, Span};

use crate::options::{FOREVER, Failure, GapRange, How, Lookup, Mode, Options};
use crate::record::Phase;

/// Run a naive matrix product on a GPU, phase by phase, and print true times as JSON lines
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// What to do
    #[arg(value_enum, default_value = "matmul")]
    mode: Mode,
    /// Side of the matrices [default: 5120; light: 1024]
    #[arg(short = 'n', long, value_name = "N")]
    size: Option<u32>,
    /// Rounds of kernels per task, or `forever` [default: 1; light: forever]
    #[arg(short, long, value_name = "COUNT", value_parser = count)]
    repeats: Option<u32>,
    /// Pause between rounds
    #[arg(long, value_name = "TIME", value_parser = time)]
    gap: Option<Duration>,
    /// From round to round in mode `light` [default: 100ms]
    #[arg(long, value_name = "TIME", value_parser = time)]
    period: Option<Duration>,
    /// How often the process comes back with a new context, or `forever` [default: 1]
    #[arg(short, long, value_name = "COUNT", value_parser = count)]
    tasks: Option<u32>,
    /// Pause before each task: a time, or MIN..MAX for random ones
    #[arg(long, value_name = "TIME[..TIME]", value_parser = times)]
    task_gap: Option<RangeInclusive<Duration>>,
    /// Seed of random pauses and matrix elements [default: 1]
    #[arg(long)]
    seed: Option<u64>,
    /// Wait this long before asking the driver for anything
    #[arg(long, value_name = "TIME", value_parser = time)]
    host_time: Option<Duration>,
    /// Fill the input matrices on the CPU first
    #[arg(long)]
    fill: bool,
    /// After allocation keep the memory and idle, or `forever` [hold: forever]
    #[arg(long, value_name = "TIME", value_parser = time)]
    hold: Option<Duration>,
    /// Device memory to take besides the matrices [hold: 1GiB]
    #[arg(long, value_name = "BYTES")]
    alloc_bytes: Option<Bytes>,
    /// Pause before that allocation, with the matrices allocated
    #[arg(long, value_name = "TIME", value_parser = time)]
    alloc_after: Option<Duration>,
    /// After freeing, keep the context and idle
    #[arg(long, value_name = "TIME", value_parser = time)]
    idle: Option<Duration>,
    /// Which GPU [default: 0]
    #[arg(long, value_name = "ORDINAL")]
    device: Option<u32>,
    /// Kernels per round, each in a stream of its own [default: 1]
    #[arg(long, value_name = "COUNT")]
    streams: Option<u32>,
    /// Threads along each side of a block [default: 16]
    #[arg(long, value_name = "THREADS")]
    block: Option<u32>,
    /// Fail in the middle of this phase
    #[arg(long, value_name = "PHASE", value_enum)]
    fail_at: Option<Phase>,
    /// How to fail
    #[arg(long, value_enum, default_value = "error", requires = "fail_at")]
    fail_how: How,
    /// In which task to fail, counted from 0
    #[arg(long, value_name = "TASK", default_value = "0", requires = "fail_at")]
    fail_task: u32,
    /// Compare some elements of the result with the CPU's (real devices only)
    #[arg(long)]
    verify: bool,
    /// The CUDA driver library [default: libcuda.so.1]
    #[arg(long, value_name = "PATH")]
    library: Option<PathBuf>,
    /// How to find its functions
    #[arg(long, value_enum, default_value = "auto")]
    lookup: Lookup,
    /// Append the lines to a file (or /dev/fd/N) instead of standard output
    #[arg(short, long, value_name = "PATH")]
    output: Option<PathBuf>,
}

impl From<Args> for Options {
    fn from(args: Args) -> Self {
        let base = Self::new(args.mode);
        Self {
            mode: args.mode,
            size: args.size.unwrap_or(base.size),
            repeats: args.repeats.unwrap_or(base.repeats),
            gap: args.gap.unwrap_or(base.gap),
            period: args.period.unwrap_or(base.period),
            tasks: args.tasks.unwrap_or(base.tasks),
            task_gap: args.task_gap.map_or(base.task_gap, |r| GapRange { min: *r.start(), max: *r.end() }),
            seed: args.seed.unwrap_or(base.seed),
            host_time: args.host_time.unwrap_or(base.host_time),
            fill: args.fill,
            hold: args.hold.unwrap_or(base.hold),
            alloc_bytes: args.alloc_bytes.map_or(base.alloc_bytes, |bytes| bytes.0),
            alloc_after: args.alloc_after.unwrap_or(base.alloc_after),
            idle: args.idle.unwrap_or(base.idle),
            device: args.device.unwrap_or(base.device),
            streams: args.streams.unwrap_or(base.streams),
            block: args.block.unwrap_or(base.block),
            fail: args.fail_at.map(|phase| Failure { phase, how: args.fail_how, task: args.fail_task }),
            verify: args.verify,
            library: args.library.unwrap_or(base.library),
            lookup: args.lookup,
            output: args.output,
        }
    }
}

fn time(text: &str) -> Result<Duration, String> {
    if text == "forever" {
        return Ok(FOREVER);
    }
    text.parse().map(Span::get).map_err(|error| error.to_string())
}

fn times(text: &str) -> Result<RangeInclusive<Duration>, String> {
    let (min, max) = text.split_once("..").unwrap_or((text, text));
    Ok(time(min)?..=time(max)?)
}

fn count(text: &str) -> Result<u32, String> {
    if text == "forever" {
        return Ok(u32::MAX);
    }
    text.parse().map_err(|_| format!("`{text}` is neither a count nor `forever`"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(clap::Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    fn parse(line: &str) -> Result<Options, clap::Error> {
        let words = std::iter::once("load").chain(line.split_whitespace());
        Command::try_parse_from(words).map(|command| command.args.into())
    }

    #[test]
    fn no_flags_are_the_defaults_of_the_mode() {
        assert_eq!(parse("").unwrap(), Options::new(Mode::Matmul));
        assert_eq!(parse("hold").unwrap(), Options::new(Mode::Hold));
        assert_eq!(parse("light").unwrap(), Options::new(Mode::Light));
    }

    #[test]
    fn flags_reach_their_options() {
        let options = parse(
            "matmul -n 64 -r 3 --gap 20ms --period 7ms -t 2 --task-gap 1s..2s --seed 9 --host-time 1ms --fill --hold 1s \
             --alloc-bytes 20GiB --alloc-after 5s --idle 3s --device 1 --streams 2 --block 32 --verify --library /x.so --lookup dlsym \
             --output /dev/fd/3 --fail-at kernel --fail-how kill --fail-task 1",
        )
        .unwrap();
        let expected = Options {
            mode: Mode::Matmul,
            size: 64,
            repeats: 3,
            gap: Duration::from_millis(20),
            period: Duration::from_millis(7),
            tasks: 2,
            task_gap: GapRange { min: Duration::from_secs(1), max: Duration::from_secs(2) },
            seed: 9,
            host_time: Duration::from_millis(1),
            fill: true,
            hold: Duration::from_secs(1),
            alloc_bytes: 20 << 30,
            alloc_after: Duration::from_secs(5),
            idle: Duration::from_secs(3),
            device: 1,
            streams: 2,
            block: 32,
            fail: Some(Failure { phase: Phase::Kernel, how: How::Kill, task: 1 }),
            verify: true,
            library: "/x.so".into(),
            lookup: Lookup::Dlsym,
            output: Some("/dev/fd/3".into()),
        };
        assert_eq!(options, expected);
    }

    #[test]
    fn forever_is_a_time_and_a_count() {
        let options = parse("--hold forever --repeats forever").unwrap();
        assert_eq!((options.hold, options.repeats), (FOREVER, u32::MAX));
    }

    #[test]
    fn one_pause_is_a_range_of_one() {
        let second = Duration::from_secs(1);
        assert_eq!(parse("--task-gap 1s").unwrap().task_gap, GapRange { min: second, max: second });
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        for line in ["--hold 3", "--repeats many", "--fail-at nowhere", "--fail-how kill", "--alloc-bytes 3", "juggle"]
        {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
