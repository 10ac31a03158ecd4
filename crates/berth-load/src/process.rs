//! A run as a whole process: options checked, driver found, signals taken, exit code given.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};

use crate::driver::CudaDriver;
use crate::options::{How, Options};
use crate::record::{Edge, Event, Moment, Phase, Recorder, Stamp};
use crate::run::{Ending, execute};
use crate::stop::SignalPause;
use crate::sys::LoadError;

/// What the process answers its parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Done, or stopped cleanly when asked to.
    Ok = 0,
    /// A driver call failed, the result was wrong, or the run was told to fail; the message names the phase.
    Failed = 1,
    /// Options that make no sense, or an output that cannot be opened.
    Usage = 2,
    /// No driver library, or no such device.
    NoDevice = 3,
    /// The work was done but lines could not be written.
    LinesLost = 4,
}

/// The same for a help text.
pub const EXIT_CODES_HELP: &str = "Exit codes: 0 done or stopped on request, 1 a CUDA call failed or the result was \
    wrong, 2 wrong options, 3 no driver library or no such device, 4 lines could not be written";

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        (exit as u8).into()
    }
}

/// Does what the options say. Lines go to the output, a message for people to standard error. Returns when the process
/// should end; does not return where it was told to abort, be killed or hang.
pub fn run(options: &Options) -> Exit {
    let checked = options.check().map_err(|error| error.to_string());
    let mut recorder = match checked.and_then(|()| open(options.output.as_deref())) {
        Ok(sink) => Recorder::new(sink),
        Err(message) => return complain(Exit::Usage, &message),
    };
    recorder.event(start(options));
    let exit = match work(options, &mut recorder) {
        Ok(Ending::Done | Ending::Stopped | Ending::Failed { how: How::Exit, .. }) => Exit::Ok,
        Ok(Ending::Failed { how: How::Abort, .. }) => abort(&mut recorder),
        Ok(Ending::Failed { how: How::Kill, .. }) => kill(&mut recorder),
        Ok(Ending::Failed { how: How::Hang, .. }) => hang(),
        Ok(Ending::Failed { phase, how: How::Error }) => {
            complain(Exit::Failed, &format!("in phase {phase}: failing on purpose"))
        }
        Ok(Ending::Wrong) => complain(Exit::Failed, "in phase output: the result differs from the CPU's"),
        Ok(Ending::Call { phase, error }) if error.is_no_device() => {
            complain(Exit::NoDevice, &format!("in phase {phase}: {error}\n{NO_DEVICE_HELP}"))
        }
        Ok(Ending::Call { phase, error }) => complain(Exit::Failed, &format!("in phase {phase}: {error}")),
        Err(error) => {
            recorder.event(Event::Error { phase: Phase::Context, message: error.to_string() });
            complain(Exit::NoDevice, &format!("{error}\n{NO_DEVICE_HELP}"))
        }
    };
    finish(&mut recorder, exit)
}

pub(crate) const NO_DEVICE_HELP: &str = "a GPU host's driver brings libcuda.so.1; the NVIDIA container toolkit mounts it into \
    containers.\nwithout a GPU, `berth sim serve` runs a simulated one: point --library or LD_LIBRARY_PATH at its \
    libcuda.so.1.";

fn work(options: &Options, recorder: &mut Recorder<Box<dyn Write>>) -> Result<Ending, StartError> {
    let pause = SignalPause::install().map_err(StartError::Signals)?;
    let driver = CudaDriver::load(&options.library, options.lookup)?;
    Ok(execute(options, &driver, recorder, &pause))
}

#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error("cannot take SIGTERM and SIGINT: {0}")]
    Signals(io::Error),
    #[error(transparent)]
    Library(#[from] LoadError),
}

fn start(options: &Options) -> Event {
    Event::Start {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        mode: options.mode,
        size: options.size,
        repeats: options.repeats,
        tasks: options.tasks,
        seed: options.seed,
    }
}

/// Appends, so that several processes may share a file.
fn open(path: Option<&Path>) -> Result<Box<dyn Write>, String> {
    let Some(path) = path else { return Ok(Box::new(io::stdout())) };
    match File::options().create(true).append(true).open(path) {
        Ok(file) => Ok(Box::new(file)),
        Err(error) => Err(format!("cannot open {} for the lines: {error}", path.display())),
    }
}

fn complain(exit: Exit, message: &str) -> Exit {
    eprintln!("berth load: {message}");
    exit
}

fn leave(recorder: &mut Recorder<impl Write>) {
    recorder.moment(Stamp::now(), Moment::Exit, Edge::Begin, None);
}

fn finish(recorder: &mut Recorder<impl Write>, exit: Exit) -> Exit {
    leave(recorder);
    recorder.summary(exit as u8);
    match recorder.lost() {
        Some(error) if exit == Exit::Ok => complain(Exit::LinesLost, &format!("cannot write lines: {error}")),
        _ => exit,
    }
}

fn abort(recorder: &mut Recorder<impl Write>) -> ! {
    leave(recorder);
    std::process::abort()
}

fn kill(recorder: &mut Recorder<impl Write>) -> ! {
    leave(recorder);
    // The first process of a pid namespace (a container's command) is immune to this one, but not to what follows.
    let _ = kill_process(getpid(), Signal::KILL);
    std::process::abort()
}

fn hang() -> ! {
    loop {
        std::thread::sleep(Duration::from_secs(3_600));
    }
}
