//! A program that treats the libraries inside of it badly: forks and uses the GPU in the child, or closes descriptors that are not its own.
//!
//! For tests of what others and the daemon take from it, which is nothing.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use super::gpu::{Gpu, Spin};
use super::words::{Checked, Input, Ready, Said, say};
use super::{Place, RoleError};
use crate::record::Stamp;
use crate::sys::work::Waiting;
use crate::sys::work::abuse;

/// Short, so that there are many.
const KERNEL: Spin = Spin { blocks: 64, rounds: 1_000 };
const ROUNDS: usize = 20;
const KERNELS: usize = 50;
/// In each round, and none is ever destroyed.
const STREAMS: usize = 500;
/// No child takes so long; one that does hangs.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum How {
    /// Fork again and again; each child launches, too
    Fork,
    /// Close all descriptors, and launch on
    Close,
    /// Make thousands of streams, and launch into each
    Streams,
}

/// Fork or close descriptors in the middle of work, for tests
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[arg(value_enum)]
    how: How,
    #[command(flatten)]
    place: Place,
}

/// What is wrong afterwards: a parent's call that failed, a child that crashed or hung. After closing, nothing is expected any more.
pub fn run(args: &Args) -> Result<(), RoleError> {
    let gpu = Gpu::open(&args.place, Waiting::Sleeping)?;
    let input = Input::listen();
    say(&Said::Ready(Ready::default()))?;
    while input.next()?.is_some() {
        let mut checked = Checked { from_ns: Stamp::now().mono_ns, ended_ns: Vec::new(), wrong: 0 };
        for _ in 0..ROUNDS {
            match args.how {
                How::Fork => checked.wrong += u64::from(!forks(&gpu)) + u64::from(!works(&gpu)),
                How::Close => {
                    abuse::close_all();
                    works(&gpu);
                }
                How::Streams => {
                    for _ in 0..STREAMS {
                        gpu.launch_in(KERNEL, &gpu.another_stream()?)?;
                    }
                    checked.wrong += u64::from(!works(&gpu));
                }
            }
            checked.ended_ns.push(Stamp::now().mono_ns);
        }
        say(&Said::Checked(checked))?;
    }
    Ok(())
}

fn works(gpu: &Gpu) -> bool {
    (0..KERNELS).try_for_each(|_| gpu.launch(KERNEL)).and_then(|()| gpu.synchronize()).is_ok()
}

/// The driver refuses the child, which is its good right; that it ends by itself is all that is asked for.
fn forks(gpu: &Gpu) -> bool {
    let child = abuse::in_a_child(|| {
        works(gpu);
        0
    });
    child.is_some_and(ends_well)
}

fn ends_well(child: Pid) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        match waitpid(Some(child), WaitOptions::NOHANG) {
            Ok(None) => std::thread::sleep(Duration::from_millis(1)),
            Ok(Some((_, status))) => return status.exit_status() == Some(0),
            Err(_) => return false,
        }
    }
    let _ = kill_process(child, Signal::KILL);
    let _ = waitpid(Some(child), WaitOptions::empty());
    false
}
