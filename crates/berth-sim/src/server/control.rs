//! Making things go wrong from outside, and asking what was done: one line in, one line back.
//!
//! ```text
//! gpu-lost GPU | nvml AREA CODE | no-permission | kernel-fault PID   →   ok | refused: why
//! kernels PID                                                        →   ok COUNT
//! ```
//! Only root and the server's own user are listened to, by the kernel's word on who they are.

use std::fmt::Display;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use berth_proto::sim_dir;

use super::sys;
use crate::{Fault, NvmlArea};

/// No command is longer.
const MAX_LINE_BYTES: usize = 256;
const OK: &str = "ok";
const KERNELS: &str = "kernels";
const REFUSED: &str = "refused: ";

#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    #[error("reach the simulator at {path}")]
    Connect { path: PathBuf, source: io::Error },
    #[error("talk to the simulator at {path}")]
    Talk { path: PathBuf, source: io::Error },
    #[error("the simulator at {path} refused: {why}")]
    Refused { path: PathBuf, why: String },
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum CommandError {
    #[error("unknown fault {name:?} (there are: gpu-lost, nvml, no-permission, kernel-fault)")]
    Unknown { name: String },
    #[error("unknown NVML area {name:?} (there are: {})", NvmlArea::ALL.map(NvmlArea::name).join(", "))]
    Area { name: String },
    #[error("{what} is {value:?}, must be a number")]
    Number { what: &'static str, value: String },
    #[error("{what} is missing")]
    Missing { what: &'static str },
    #[error("{value:?} is one word too many")]
    Extra { value: String },
}

/// Makes a fault strike in the simulator that serves `dir`.
pub fn inject(dir: &Path, fault: Fault) -> Result<(), ControlError> {
    ask(dir, &command(fault)).map(drop)
}

/// How many kernels of a process have run to their end, in the contexts it has now.
pub fn kernels_done(dir: &Path, pid: u32) -> Result<u64, ControlError> {
    let answer = ask(dir, &format!("{KERNELS} {pid}"))?;
    let refused = |_| ControlError::Refused { path: dir.join(sim_dir::CONTROL), why: format!("no number: {answer:?}") };
    answer.parse().map_err(refused)
}

/// What follows `ok` in the answer.
fn ask(dir: &Path, line: &str) -> Result<String, ControlError> {
    let path = dir.join(sim_dir::CONTROL);
    let talk = |source| ControlError::Talk { path: path.clone(), source };
    let mut stream =
        UnixStream::connect(&path).map_err(|source| ControlError::Connect { path: path.clone(), source })?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).map_err(talk)?;
    stream.write_all(format!("{line}\n").as_bytes()).map_err(talk)?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).map_err(talk)?;
    let answer = answer.trim_end();
    match answer.strip_prefix(OK) {
        Some(rest) => Ok(rest.trim().to_owned()),
        None => Err(ControlError::Refused { path, why: answer.trim_start_matches(REFUSED).to_owned() }),
    }
}

fn command(fault: Fault) -> String {
    match fault {
        Fault::GpuLost { gpu } => format!("gpu-lost {gpu}"),
        Fault::Nvml { area, code } => format!("nvml {} {code}", area.name()),
        Fault::NoPermission => "no-permission".into(),
        Fault::KernelFault { pid } => format!("kernel-fault {pid}"),
    }
}

fn parse(line: &str) -> Result<Command, CommandError> {
    let mut words = line.split_whitespace();
    let command = match words.next().unwrap_or_default() {
        KERNELS => Command::Kernels { pid: number(words.next(), "PID")? },
        name => Command::Fault(fault(name, &mut words)?),
    };
    match words.next() {
        None => Ok(command),
        Some(value) => Err(CommandError::Extra { value: value.into() }),
    }
}

fn fault<'a>(name: &str, words: &mut impl Iterator<Item = &'a str>) -> Result<Fault, CommandError> {
    Ok(match name {
        "gpu-lost" => Fault::GpuLost { gpu: number(words.next(), "GPU")? },
        "nvml" => Fault::Nvml { area: area(words.next())?, code: number(words.next(), "code")? },
        "no-permission" => Fault::NoPermission,
        "kernel-fault" => Fault::KernelFault { pid: number(words.next(), "pid")? },
        name => return Err(CommandError::Unknown { name: name.into() }),
    })
}

fn area(word: Option<&str>) -> Result<NvmlArea, CommandError> {
    let name = word.ok_or(CommandError::Missing { what: "NVML area" })?;
    NvmlArea::from_name(name).ok_or_else(|| CommandError::Area { name: name.into() })
}

fn number(word: Option<&str>, what: &'static str) -> Result<u32, CommandError> {
    let value = word.ok_or(CommandError::Missing { what })?;
    value.parse().map_err(|_| CommandError::Number { what, value: value.into() })
}

/// The server's side of one connection.
#[derive(Debug)]
pub(super) struct Commander {
    stream: UnixStream,
    line: Vec<u8>,
    allowed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Command {
    Fault(Fault),
    /// What a process has had done.
    Kernels {
        pid: u32,
    },
}

/// What a connection came to, as far as it has been read.
#[derive(Debug)]
pub(super) enum Heard {
    /// The line is not whole yet.
    More,
    Command(Command),
    /// It was answered, or it ended; there is nothing more to do.
    Over,
}

impl Commander {
    pub(super) fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let own = rustix::process::geteuid().as_raw();
        let allowed = sys::peer(&stream)?.is_some_and(|peer| peer.uid == 0 || peer.uid == own);
        Ok(Self { stream, line: Vec::new(), allowed })
    }

    pub(super) fn hear(&mut self) -> Heard {
        let mut chunk = [0; MAX_LINE_BYTES];
        match self.stream.read(&mut chunk) {
            Ok(bytes) if bytes > 0 => self.line.extend_from_slice(&chunk[..bytes]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Heard::More,
            _ => return Heard::Over,
        }
        let end = self.line.iter().position(|byte| *byte == b'\n');
        let Some(end) = end else {
            return if self.line.len() < MAX_LINE_BYTES { Heard::More } else { Heard::Over };
        };
        if !self.allowed {
            self.refuse(&"only root and the user the simulator runs as may break it");
            return Heard::Over;
        }
        match parse(&String::from_utf8_lossy(&self.line[..end])) {
            Ok(command) => Heard::Command(command),
            Err(error) => {
                self.refuse(&error);
                Heard::Over
            }
        }
    }

    pub(super) fn confirm(&mut self) {
        self.say(OK);
    }

    pub(super) fn answer(&mut self, number: u64) {
        self.say(&format!("{OK} {number}"));
    }

    pub(super) fn refuse(&mut self, why: &dyn Display) {
        self.say(&format!("{REFUSED}{why}"));
    }

    /// One short line into an empty socket; whoever has gone does not need it.
    fn say(&mut self, line: &str) {
        let _ = self.stream.write_all(format!("{line}\n").as_bytes());
    }
}

impl AsFd for Commander {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_survives_being_written_down() {
        let mut faults = vec![Fault::GpuLost { gpu: 3 }, Fault::NoPermission, Fault::KernelFault { pid: 42 }];
        faults.extend(NvmlArea::ALL.map(|area| Fault::Nvml { area, code: 15 }));
        for fault in faults {
            assert_eq!(parse(&command(fault)), Ok(Command::Fault(fault)));
        }
    }

    #[test]
    fn a_bad_command_names_what_is_wrong() {
        for (line, part) in [
            ("explode", "explode"),
            ("gpu-lost", "missing"),
            ("gpu-lost x", "\"x\""),
            ("nvml everything 15", "process-list"),
            ("no-permission now", "now"),
            ("kernels", "missing"),
        ] {
            let error = parse(line).unwrap_err().to_string();
            assert!(error.contains(part), "{line}: {error}");
        }
    }
}
