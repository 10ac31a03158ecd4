//! An MPS server of the measurement's own, for the runs that are compared with it.
//!
//! Its pipes and logs are in a directory that the tenants see; no other program's MPS is touched, and no setting of the GPU
//! is changed. The server is started before the tenants and ended after them, so that neither is in the measured time.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use super::sprinter::Environment;

const CONTROL: &str = "nvidia-cuda-mps-control";
const PIPE_DIRECTORY: &str = "CUDA_MPS_PIPE_DIRECTORY";
const LOG_DIRECTORY: &str = "CUDA_MPS_LOG_DIRECTORY";
/// For one command of the control program.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Ends when it is dropped.
#[derive(Debug)]
pub struct Mps {
    control: PathBuf,
    dir: PathBuf,
}

/// Where the control program is; `None` where there is none.
pub fn control() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(CONTROL)).find(|program| program.is_file())
}

impl Mps {
    /// Returns when a server runs. `dir` is made, and must be visible to the tenants at the same path.
    pub fn start(control: &Path, dir: &Path) -> anyhow::Result<Mps> {
        fs::create_dir_all(dir.join("log")).with_context(|| format!("making {}", dir.display()))?;
        let mps = Mps { control: control.to_owned(), dir: dir.to_owned() };
        mps.run(&["-d"], None).context("starting the MPS control daemon")?;
        let user = rustix::process::geteuid().as_raw();
        mps.tell(&format!("start_server -uid {user}")).context("starting an MPS server")?;
        let deadline = Instant::now() + ANSWER_WITHIN;
        while mps.tell("get_server_list")?.trim().is_empty() {
            if Instant::now() > deadline {
                bail!("no MPS server runs after {} s; see {}", ANSWER_WITHIN.as_secs(), dir.join("log").display());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(mps)
    }

    /// What makes a program a client of this server.
    pub fn environment(&self) -> Environment {
        Environment::from([(PIPE_DIRECTORY.to_owned(), self.dir.display().to_string())])
    }

    fn tell(&self, command: &str) -> anyhow::Result<String> {
        self.run(&[], Some(command)).with_context(|| format!("telling MPS to `{command}`"))
    }

    /// The control program's output. It is killed if it does not end: a server that hangs must not hang the measurement.
    fn run(&self, args: &[&str], input: Option<&str>) -> anyhow::Result<String> {
        let answer = self.dir.join("answer");
        let output = File::create(&answer)?;
        let mut command = Command::new(&self.control);
        command.args(args).env(PIPE_DIRECTORY, &self.dir).env(LOG_DIRECTORY, self.dir.join("log"));
        command.stdin(Stdio::piped()).stdout(output.try_clone()?).stderr(output);
        let mut child = command.spawn().with_context(|| format!("running {}", self.control.display()))?;
        if let (Some(input), Some(stdin)) = (input, &mut child.stdin) {
            // One that has ended already has said why.
            let _ = writeln!(stdin, "{input}");
        }
        drop(child.stdin.take());
        let status = wait(&mut child)?;
        let said = fs::read_to_string(&answer)?;
        if !status.success() {
            bail!("{CONTROL} ended with {status}: {}", said.trim());
        }
        Ok(said)
    }
}

fn wait(child: &mut Child) -> anyhow::Result<std::process::ExitStatus> {
    let deadline = Instant::now() + ANSWER_WITHIN;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if Instant::now() > deadline {
            child.kill()?;
            child.wait()?;
            bail!("{CONTROL} does not answer within {} s", ANSWER_WITHIN.as_secs());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl Drop for Mps {
    fn drop(&mut self) {
        if let Err(error) = self.tell("quit -t 5") {
            tracing::warn!(error = format!("{error:#}"), "the MPS server may be left running");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// A control program that writes down what it is told, and knows of a server once told to start one.
    fn stand_in(dir: &Path, script: &str) -> PathBuf {
        let program = dir.join(CONTROL);
        fs::write(&program, format!("#!/bin/sh\ncd \"$CUDA_MPS_PIPE_DIRECTORY\" || exit 1\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        program
    }

    #[test]
    fn a_server_is_started_before_and_ended_after() {
        let dir = tempfile::tempdir().unwrap();
        let script = r#"[ "$1" = -d ] && { echo daemon >>told; exit; }
            read -r line; echo "$line" >>told
            [ "$line" != get_server_list ] || echo 4711"#;
        let control = stand_in(dir.path(), script);
        let mps = Mps::start(&control, &dir.path().join("mps")).unwrap();
        assert_eq!(mps.environment()[PIPE_DIRECTORY], dir.path().join("mps").display().to_string());
        drop(mps);
        let told = fs::read_to_string(dir.path().join("mps/told")).unwrap();
        let told: Vec<&str> = told.lines().map(|line| line.split(' ').next().unwrap()).collect();
        assert_eq!(told, ["daemon", "start_server", "get_server_list", "quit"]);
    }

    #[test]
    fn a_control_program_that_fails_is_told_with_its_words() {
        let dir = tempfile::tempdir().unwrap();
        let control = stand_in(dir.path(), "echo 'no GPU here'; exit 1");
        let error = Mps::start(&control, &dir.path().join("mps")).unwrap_err();
        assert!(format!("{error:#}").contains("no GPU here"), "{error:#}");
    }
}
