//! A program of a pair: started with what it is to find in its environment, told words, and listened to.
//!
//! It ends with the measurement however that ends: its input closes.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde::de::DeserializeOwned;

use crate::bench::live::sprinter::Environment;
use crate::interrupt::Interrupt;

/// How long a program may take to end once its input has.
const ENDS_WITHIN: Duration = Duration::from_secs(10);
const STEP: Duration = Duration::from_millis(50);

/// A program and its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invocation {
    pub program: PathBuf,
    pub args: Vec<String>,
}

/// Where a program is started, and as what.
#[derive(Debug)]
pub struct Start<'a> {
    pub name: &'a str,
    pub invocation: &'a Invocation,
    pub environment: Environment,
    /// It is moved there before it is anything: a tenant of its own.
    pub cgroup: Option<&'a Path>,
    /// Where what it says to people is kept.
    pub dir: &'a Path,
}

#[derive(Debug)]
pub struct Program {
    name: String,
    child: Child,
    stdin: Option<ChildStdin>,
    line_rx: Receiver<String>,
    log: PathBuf,
}

impl Program {
    pub fn start(start: &Start<'_>) -> anyhow::Result<Self> {
        let log = start.dir.join(format!("{}.log", start.name));
        let mut command = command(start);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(File::create(&log)?);
        let mut child = command.spawn().with_context(|| format!("starting {}", start.name))?;
        let stdout = child.stdout.take().context("a program without output")?;
        let (line_tx, line_rx) = channel();
        std::thread::spawn(move || {
            let lines = BufReader::new(stdout).lines();
            let _ = lines.map_while(Result::ok).try_for_each(|line| line_tx.send(line));
        });
        let stdin = child.stdin.take();
        Ok(Self { name: start.name.to_owned(), child, stdin, line_rx, log })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn tell(&mut self, word: &str) -> anyhow::Result<()> {
        let stdin = self.stdin.as_mut().context("its input is closed")?;
        let told = writeln!(stdin, "{word}").and_then(|()| stdin.flush());
        told.with_context(|| format!("telling {} to `{word}`{}", self.name, self.last_words()))
    }

    /// The next line that can be read as one; what else it prints is passed over.
    pub fn hear<T: DeserializeOwned>(&mut self, within: Duration, interrupt: &Interrupt) -> anyhow::Result<T> {
        let deadline = Instant::now() + within;
        loop {
            interrupt.check()?;
            match self.line_rx.recv_timeout(STEP) {
                Ok(line) => {
                    if let Ok(said) = serde_json::from_str(&line) {
                        return Ok(said);
                    }
                }
                Err(RecvTimeoutError::Timeout) if Instant::now() > deadline => {
                    bail!("{} said nothing for {} s{}", self.name, within.as_secs(), self.last_words())
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => bail!("{} ended{}", self.name, self.last_words()),
            }
        }
    }

    /// Without waiting for the end of what it does.
    pub fn kill(mut self) {
        let _ = self.child.kill();
    }

    /// What it last said to people, for a message.
    pub fn last_words(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        let last = &lines[lines.len().saturating_sub(3)..];
        if last.is_empty() { String::new() } else { format!(": {}", last.join("; ")) }
    }
}

fn command(start: &Start<'_>) -> Command {
    let Invocation { program, args } = start.invocation;
    let Some(cgroup) = start.cgroup else {
        let mut command = Command::new(program);
        command.args(args).envs(&start.environment);
        return command;
    };
    // What is preloaded is for the program, not for the shell that moves it.
    let mut command = Command::new("/bin/sh");
    command.args(["-c", r#"echo $$ > "$0/cgroup.procs" && exec env "$@""#]).arg(cgroup);
    command.args(start.environment.iter().map(|(name, value)| format!("{name}={value}")));
    command.arg(program).args(args);
    command
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let deadline = Instant::now() + ENDS_WITHIN;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use berth_load::roles::words::Said;

    use super::*;

    fn shell(script: &str) -> Invocation {
        Invocation { program: "/bin/sh".into(), args: vec!["-c".to_owned(), script.to_owned()] }
    }

    fn start(invocation: &Invocation, dir: &Path) -> Program {
        let environment = Environment::from([("A".to_owned(), "b c".to_owned())]);
        Program::start(&Start { name: "server", invocation, environment, cgroup: None, dir }).unwrap()
    }

    #[test]
    fn what_a_program_prints_besides_its_lines_is_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let script = r#"echo loading; read -r word; echo "{\"event\":\"service\",\"ms\":${#word}.5}""#;
        let mut program = start(&shell(script), dir.path());
        program.tell("four").unwrap();
        let interrupt = Interrupt::listen().unwrap();
        let said: Said = program.hear(Duration::from_secs(20), &interrupt).unwrap();
        assert_eq!(said, Said::Service { ms: 4.5 });
    }

    #[test]
    fn one_that_ends_is_told_with_its_last_words() {
        let dir = tempfile::tempdir().unwrap();
        let mut program = start(&shell(r#"echo "no $A here" >&2"#), dir.path());
        let error = program.hear::<Said>(Duration::from_secs(20), &Interrupt::listen().unwrap()).unwrap_err();
        assert_eq!(error.to_string(), "server ended: no b c here");
    }

    #[test]
    fn it_is_gone_when_it_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let program = start(&shell("read -r word"), dir.path());
        let proc = format!("/proc/{}", program.pid());
        assert!(Path::new(&proc).exists());
        drop(program);
        assert!(!Path::new(&proc).exists());
    }
}
