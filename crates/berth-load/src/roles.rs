//! Programs that share a GPU, for measurements of who slows whom: one that serves requests, one that trains, one that only
//! launches, one that checks its results.
//!
//! All say `ready` on standard output once they have everything, and do nothing until a line comes on standard input, so that whoever
//! measures can start several and have them begin together. They end at the end of their input. See [`words`] for the lines: programs
//! written against another framework can speak them too.

mod abuse;
mod arrivals;
mod calibration;
mod check;
mod gpu;
mod launch;
mod serve;
mod train;
pub mod words;

use std::io;
use std::path::PathBuf;

pub use self::calibration::Calibration;
use crate::driver::CallError;
use crate::options::Lookup;
use crate::process::{Exit, NO_DEVICE_HELP};
use crate::sys::LoadError;

/// `berth load`, whatever it is to be.
#[derive(Debug, Clone, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Load {
    #[command(subcommand)]
    role: Option<Role>,
    #[command(flatten)]
    args: crate::Args,
}

#[derive(Debug, Clone, clap::Subcommand)]
enum Role {
    Serve(serve::Args),
    Train(train::Args),
    Launch(launch::Args),
    Check(check::Args),
    #[command(hide = true)]
    Abuse(abuse::Args),
}

/// On which GPU, by which driver.
#[derive(Debug, Clone, clap::Args)]
struct Place {
    /// Which GPU
    #[arg(long, value_name = "ORDINAL", default_value_t = 0)]
    device: u32,
    /// The CUDA driver library
    #[arg(long, value_name = "PATH", default_value = "libcuda.so.1")]
    library: PathBuf,
    /// How to find its functions
    #[arg(long, value_enum, default_value = "auto")]
    lookup: Lookup,
}

#[derive(Debug, thiserror::Error)]
enum RoleError {
    #[error(transparent)]
    Library(#[from] LoadError),
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("cannot write lines: {0}")]
    Output(#[source] io::Error),
    #[error("`{0}` is no word this program knows")]
    Word(String),
    #[error("the driver's own launch is not found in its library's file")]
    NothingPast,
}

impl Load {
    /// Returns when the process should end.
    pub fn run(self) -> Exit {
        let ended = match self.role {
            None => return crate::run(&self.args.into()),
            Some(Role::Serve(args)) => serve::run(&args),
            Some(Role::Train(args)) => train::run(&args),
            Some(Role::Launch(args)) => launch::run(&args),
            Some(Role::Check(args)) => check::run(&args),
            Some(Role::Abuse(args)) => abuse::run(&args),
        };
        let Err(error) = ended else { return Exit::Ok };
        let no_device = match &error {
            RoleError::Library(_) => true,
            RoleError::Call(call) => call.is_no_device(),
            RoleError::Output(_) | RoleError::Word(_) | RoleError::NothingPast => false,
        };
        eprintln!("berth load: {error}");
        match error {
            _ if no_device => {
                eprintln!("{NO_DEVICE_HELP}");
                Exit::NoDevice
            }
            RoleError::Output(_) => Exit::LinesLost,
            RoleError::Word(_) => Exit::Usage,
            RoleError::Call(_) | RoleError::Library(_) | RoleError::NothingPast => Exit::Failed,
        }
    }
}
